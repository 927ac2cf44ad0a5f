//! Instructions of lowtide's work, counted in a guest in virtual time (`vm/run --clock virtual`), where a nanosecond of CPU
//! time is an instruction: these figures repeat, whatever else the machine does. They include the kernel's part.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::monitor::Target;
use lowtide_kernel::monitor::damon::{DamonMonitor, RecordStart, Rhythm};
use lowtide_kernel::monitor::mglru::MglruMonitor;
use lowtide_kernel::monitor::smaps::SmapsMonitor;
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{Area, thread_cpu_s};
use lowtide_kernel::undo::Journal;
use lowtide_kernel::zram::{Zram, ZramSetup};
use lowtide_model::random::Random;
use lowtide_model::stats::quantile;
use lowtide_model::units::float;

use crate::child::Running;
use crate::grid::table;
use crate::reads::SleepingCgroups;
use crate::tools::Tools;
use crate::{kdamonds, loads};

/// Rounds of the loop by which a processor's instructions per second are measured.
const ROUNDS: u64 = 40_000_000;
/// An increase of more than this share is reported.
const DEARER: f64 = 0.05;
/// Pages that are paged out and refaulted.
const PAGES: usize = 8192;

#[derive(Debug, clap::Args)]
pub struct InstructionsArgs {
    #[command(flatten)]
    tools: Tools,
    /// Count, in a guest in virtual time, and write the figures to this file
    #[arg(long, value_name = "FILE", required_unless_present = "counted")]
    count: Option<PathBuf>,
    /// Print the figures of this file, each with its share of a core of this machine
    #[arg(long, value_name = "FILE", conflicts_with = "count")]
    counted: Option<PathBuf>,
    /// Report what became dearer since these figures
    #[arg(long, value_name = "FILE", requires = "counted")]
    known: Option<PathBuf>,
}

type Counts = BTreeMap<String, f64>;

pub fn run(args: &InstructionsArgs) -> anyhow::Result<()> {
    if let Some(path) = &args.count {
        let text: String = count(&args.tools)?.iter().map(|(what, n)| format!("{what},{n:.0}\n")).collect();
        return fs::write(path, text).with_context(|| path.display().to_string());
    }
    let counted = read(args.counted.as_deref().context("no figures given")?)?;
    let known = args.known.as_deref().map(read).transpose()?.unwrap_or_default();
    print(&counted, &known)
}

fn read(path: &Path) -> anyhow::Result<Counts> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let pair = |line: &str| Some((line.rsplit_once(',')?.0.to_owned(), line.rsplit_once(',')?.1.parse().ok()?));
    text.lines().map(|line| pair(line).with_context(|| format!("{}: {line}", path.display()))).collect()
}

/// Prints the counts, as shares of a core that runs the loop at this machine's rate, and what became dearer.
fn print(counted: &Counts, known: &Counts) -> anyhow::Result<()> {
    let of_loop = counted.get(LOOP).copied().with_context(|| format!("{LOOP} was not counted"))?;
    let rates: Vec<f64> = (0..5).map(|_| of_loop / loop_s()).collect();
    let rate = quantile(&rates, 0.5).unwrap_or(f64::NAN);
    println!("a core here: {:.2} billion instructions a second, by the same loop (median of five)\n", rate / 1e9);
    let rows: Vec<Vec<String>> = counted
        .iter()
        .map(|(what, n)| {
            let share = if what.ends_with("per second") { format!("{:.3} %", n / rate * 100.0) } else { String::new() };
            let change = known.get(what).map(|was| format!("{:+.1} %", (n / was - 1.0) * 100.0));
            vec![what.clone(), format!("{:.1}", n / 1e3), share, change.unwrap_or_else(|| "new".to_owned())]
        })
        .collect();
    print!("{}", table("", "what | thousand instructions | of a core | change", &rows));
    for (what, was) in known {
        match counted.get(what) {
            None => println!("not counted any more: {what}"),
            Some(n) if *n > was * (1.0 + DEARER) => {
                println!("dearer: {what}, {:.1} thousand, was {:.1}", n / 1e3, was / 1e3)
            }
            Some(_) => {}
        }
    }
    Ok(())
}

const LOOP: &str = "the loop";

fn loop_s() -> f64 {
    let before_s = thread_cpu_s();
    std::hint::black_box(loads::hash(ROUNDS));
    thread_cpu_s() - before_s
}

fn count(tools: &Tools) -> anyhow::Result<Counts> {
    let kernel = Kernel::default();
    let folder = tools.folder()?;
    let journal = Journal::open(kernel.clone(), folder.path())?;
    let mut counts = Counts::from([(LOOP.to_owned(), instructions(loop_s()))]);
    let mut note = |what: &str, n: f64| {
        eprintln!("{what}: {n:.0}");
        counts.insert(what.to_owned(), n);
    };
    {
        let program = tools.pattern(&tools.pattern_file("fixed")?, folder.path())?;
        let mut running = Running::start(program_for(program, 100_000), folder.path())?;
        let target = populated(&kernel, running.pid)?;
        let watched = |watch| watched(&kernel, &journal, &target, watch);
        for pages in [500.0, 2000.0, 8000.0] {
            note(&format!("cohort of {pages} pages, per second"), watched(Watch::Cohort(pages))?);
        }
        // DAMON splits regions at random, so each run differs.
        let draws: Vec<f64> = (0..6).map(|_| watched(Watch::Map)).collect::<anyhow::Result<_>>()?;
        note("map, a region checked once", draws.iter().sum::<f64>() / 6.0);
        note("smaps, a cycle's clear and reading of 512 MiB", smaps(&kernel, &target)?);
        running.terminate();
    }
    for n in [100, 1000] {
        let cgroups = SleepingCgroups::make(&kernel, n)?;
        note(&format!("MGLRU of {n} cgroups, a tick"), generations(&kernel, &cgroups)?);
        note(&format!("agent of {n} cgroups, a turn"), agent(tools, &kernel, &cgroups, folder.path())?);
    }
    for (what, n) in paged(&kernel, &journal)? {
        note(what, n);
    }
    Ok(counts)
}

fn instructions(cpu_s: f64) -> f64 {
    cpu_s * 1e9
}

fn program_for(mut program: Command, seconds: u32) -> Command {
    program.args(["--seconds", &seconds.to_string()]);
    program
}

/// The process as a target, once it has stopped growing.
fn populated(kernel: &Kernel, pid: u32) -> anyhow::Result<Target> {
    let mut before = 0;
    loop {
        std::thread::sleep(Duration::from_secs(2));
        let rss = proc::status(kernel, pid)?.rss();
        if rss == before && rss > 400 << 20 {
            return Ok(Target { pids: vec![pid], totals: [float(rss), 0.0, 0.0], ..Target::default() });
        }
        before = rss;
    }
}

/// CPU seconds so far of all threads of a process.
fn cpu_of(kernel: &Kernel, pid: u32) -> anyhow::Result<f64> {
    let tasks = kernel.list(format!("/proc/{pid}/task"))?;
    let of = |task: &String| proc::cpu_seconds(kernel, task.parse().ok()?).ok();
    Ok(tasks.iter().filter_map(of).sum())
}

#[derive(Clone, Copy)]
enum Watch {
    Cohort(f64),
    Map,
}

/// Instructions of one of DAMON's instruments, settled: kernel threads, reading, and the walks over the target at the recorder's
/// rhythm (every 5 and 15 s). Of the cohort: per second. Of the map: per check of a region, as DAMON has a different number of
/// regions each time.
fn watched(kernel: &Kernel, journal: &Journal, target: &Target, watch: Watch) -> anyhow::Result<f64> {
    const SETTLED_S: u32 = 20;
    // DAMON chooses at random where to split regions and which page of one to check, so few regions vary.
    let counted_s: u32 = match watch {
        Watch::Cohort(pages) if pages > 4000.0 => 100,
        Watch::Cohort(_) | Watch::Map => 300,
    };
    let rhythm = Rhythm {
        cohort_pages: if let Watch::Cohort(pages) = watch { pages } else { 500.0 },
        cohort_sampling_s: 1.0,
        map_regions: 300.0,
        map_sampling_s: 0.1,
        map_aggregation_s: 2.0,
        map_on: None,
        map_goal: None,
        map_at_once: false,
    };
    let mut damon = DamonMonitor::take(kernel, journal, &rhythm, RecordStart { epoch_ns: 0, attached: false })?;
    let so_far =
        || cpu_of(kernel, std::process::id()).map(|own_s| own_s + kdamonds::cpu_s(kernel).values().sum::<f64>());
    let (mut before_s, mut checks) = (0.0, 0.0);
    for second in 0..SETTLED_S + counted_s {
        if second == SETTLED_S {
            (before_s, checks) = (so_far()?, 0.0);
        }
        let now_s = f64::from(second);
        match watch {
            Watch::Cohort(_) if second % 5 == 0 => damon.refresh_cohort(target, now_s, false)?,
            Watch::Map if second % 15 == 0 => damon.refresh_map(target)?,
            _ => {}
        }
        if damon.pending_cost_s().is_some() {
            damon.configure(now_s);
        }
        std::thread::sleep(Duration::from_secs(1));
        damon.poll()?;
        checks += damon.checks_per_s().1;
        std::hint::black_box((damon.picture(target), std::mem::take(&mut damon.snapshots), damon.take_episodes(false)));
    }
    let per = if let Watch::Map = watch { checks } else { f64::from(counted_s) };
    Ok(instructions(so_far()? - before_s) / per)
}

/// Instructions of clearing the referenced bits and reading them once.
fn smaps(kernel: &Kernel, target: &Target) -> anyhow::Result<f64> {
    let mut monitor = SmapsMonitor::new(kernel, target)?.with_windows(&[5]);
    let mut spent_s = Vec::new();
    for cycle in 0..6 {
        let before_s = thread_cpu_s();
        monitor.step(f64::from(cycle) * 6.0, target)?;
        std::thread::sleep(Duration::from_secs(5));
        std::hint::black_box(monitor.step(f64::from(cycle) * 6.0 + 5.0, target)?);
        spent_s.push(thread_cpu_s() - before_s);
    }
    median_instructions(&spent_s)
}

fn median_instructions(spent_s: &[f64]) -> anyhow::Result<f64> {
    quantile(spent_s, 0.5).map(instructions).context("no measurements")
}

/// Instructions of one tick over cgroups: aging, reading, adding up.
fn generations(kernel: &Kernel, cgroups: &SleepingCgroups) -> anyhow::Result<f64> {
    let target = Target { cgroups: vec![Cgroup::named(kernel, &cgroups.name())?], ..Target::default() };
    let mut monitor = MglruMonitor::new(kernel, &target, &[])?;
    let mut spent_s = Vec::new();
    for second in 0..21 {
        let before_s = thread_cpu_s();
        monitor.step(f64::from(second))?;
        spent_s.push(thread_cpu_s() - before_s);
        std::thread::sleep(Duration::from_secs(1));
    }
    median_instructions(&spent_s)
}

/// Instructions of one turn of the agent over cgroups.
fn agent(tools: &Tools, kernel: &Kernel, cgroups: &SleepingCgroups, folder: &Path) -> anyhow::Result<f64> {
    const TURN_S: f64 = 5.0;
    let (config, stop) = (folder.join("agent.toml"), folder.join("stop"));
    let name = cgroups.name();
    let name = name.rsplit('/').next().unwrap_or_default();
    let stop = stop.display();
    fs::write(&config, format!("stop_file = \"{stop}\"\nstate_file = \"\"\n[[workload]]\ncgroup = \"/{name}/*\"\n"))?;
    let mut running = Running::start(tools.agent(&config)?, folder)?;
    // Start-up does not count.
    std::thread::sleep(Duration::from_secs(60));
    let (begun, before_s) = (Instant::now(), cpu_of(kernel, running.pid)?);
    std::thread::sleep(Duration::from_secs(100));
    let turns = begun.elapsed().as_secs_f64() / TURN_S;
    anyhow::ensure!(running.is_running()?, "the agent ended");
    let spent_s = cpu_of(kernel, running.pid)? - before_s;
    running.terminate();
    running.wait(Duration::from_secs(30), || ())?;
    Ok(instructions(spent_s) / turns)
}

/// Instructions of paging out a page to zram, and of a refault.
fn paged(kernel: &Kernel, journal: &Journal) -> anyhow::Result<[(&'static str, f64); 2]> {
    let setup = ZramSetup { bytes: 256 << 20, priority: 100, algorithm: None };
    let swap = Zram::swap_on(kernel, journal, &setup)?;
    // Half of each page compresses to nothing.
    let mut random = Random::new(1);
    let area = Area::anonymous(PAGES, |_, bytes| {
        bytes[..2048].chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.number().to_ne_bytes()));
    })?;
    let before_s = thread_cpu_s();
    area.page_out()?;
    let out_s = thread_cpu_s();
    for page in 0..PAGES {
        std::hint::black_box(area.touch(page));
    }
    let back_s = thread_cpu_s();
    drop(area);
    swap.take_down()?;
    let each = |seconds: f64| instructions(seconds) / float(PAGES);
    Ok([("a page paged out", each(out_s - before_s)), ("a page brought back", each(back_s - out_s))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_written_and_nonsense_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counts");
        fs::write(&path, "cohort of 500 pages, per second,1200\nthe loop,5\n").unwrap();
        let counts = read(&path).unwrap();
        assert_eq!(counts["cohort of 500 pages, per second"], 1200.0);
        assert_eq!(counts[LOOP], 5.0);
        fs::write(&path, "the loop\n").unwrap();
        assert!(read(&path).is_err());
    }
}
