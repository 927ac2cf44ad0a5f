//! Cost of reading the kernel: generations of many cgroups, and DAMON's regions by either of its two interfaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lowtide_kernel::cgroup::{Cgroup, Version};
use lowtide_kernel::damon::{Damon, KdamondSetup, Operations};
use lowtide_kernel::lru_gen;
use lowtide_kernel::monitor::Target;
use lowtide_kernel::monitor::mglru::MglruMonitor;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::own_cpu_s;
use lowtide_kernel::system;
use lowtide_kernel::trace::Trace;
use lowtide_kernel::undo::Journal;

use lowtide_model::PAGE;
use lowtide_model::stats::quantile;
use lowtide_model::units::{count, float};

use crate::grid::{figure, table};

#[derive(Debug, clap::Args)]
pub struct ReadsArgs {
    /// Cgroups, each with a sleeping process and some page cache
    #[arg(long, default_value_t = 1000)]
    cgroups: usize,
    /// Regions of a DAMON snapshot
    #[arg(long, default_value_t = 500)]
    regions: usize,
    /// Reads of each kind
    #[arg(long, default_value_t = 12)]
    times: usize,
}

struct Row {
    what: String,
    cpu_ms: Vec<f64>,
}

/// Measures and prints. What this kernel does not have is left out, with the reason.
pub fn run(args: &ReadsArgs) -> anyhow::Result<()> {
    let kernel = Kernel::default();
    let folder = tempfile::tempdir()?;
    let journal = Journal::open(kernel.clone(), folder.path())?;
    let mut rows = vec![parsing(args)];
    for (name, result) in
        [("generations of cgroups", generations(args, &kernel)), ("regions of DAMON", regions(args, &kernel, &journal))]
    {
        match result {
            Ok(more) => rows.extend(more),
            Err(error) => println!("skip - {name}: {error}"),
        }
    }
    let cells = rows.iter().map(|row| {
        let at = |share: f64| figure(quantile(&row.cpu_ms, share), 2, "");
        vec![row.what.clone(), at(0.5), at(0.9), row.cpu_ms.len().to_string()]
    });
    print!("{}", table("", "what is read | CPU ms, median | p90 | times", &cells.collect::<Vec<_>>()));
    Ok(())
}

fn timed<T>(cpu_ms: &mut Vec<f64>, work: impl FnOnce() -> T) -> T {
    let before = own_cpu_s();
    let result = work();
    cpu_ms.push((own_cpu_s() - before) * 1e3);
    result
}

/// Parsing the text of `lru_gen` alone, without a kernel: compares the speed of machines.
fn parsing(args: &ReadsArgs) -> Row {
    let one = |n: usize| {
        let path = format!("/kubepods.slice/kubepods-burstable.slice/pod{n:06}/container");
        format!("memcg {n} {path}\n node 0\n 1 90123 4711 312\n 2 5011 0 0\n 3 1002 815 12\n 4 1 3 0\n")
    };
    let text: String = (0..args.cgroups).map(one).collect();
    let mut cpu_ms = Vec::new();
    for _ in 0..args.times {
        let all = timed(&mut cpu_ms, || lru_gen::parse(&text));
        assert_eq!(all.len(), args.cgroups);
    }
    Row { what: format!("text of lru_gen with {} cgroups, parsed", args.cgroups), cpu_ms }
}

/// Cgroups made for this, each with a sleeping process and page cache; removed when dropped.
pub struct SleepingCgroups {
    group: PathBuf,
    home: PathBuf,
    count: usize,
    sleepers: Vec<Child>,
    files: tempfile::TempDir,
}

impl SleepingCgroups {
    /// Path of their parent.
    pub fn name(&self) -> String {
        self.group.to_string_lossy().into_owned()
    }

    /// Makes them. Needs cgroup version 2.
    pub fn make(kernel: &Kernel, count: usize) -> anyhow::Result<Self> {
        let here = Cgroup::of(kernel, std::process::id())?.context("there is no memory cgroup")?;
        if here.version == Version::V1 {
            bail!("needs cgroup version 2");
        }
        let point = Cgroup::mount_point(kernel)?;
        let group = point.join(format!("lowtide-bench-{}", std::process::id()));
        fs::create_dir(&group)?;
        // Not in /tmp, which may be memory that swaps.
        let files = tempfile::tempdir_in("/var/tmp")?;
        let mut all = Self { group, home: here.path, count, sleepers: Vec::new(), files };
        fs::write(all.group.join("cgroup.subtree_control"), "+memory")?;
        for n in 0..count {
            let own = all.group.join(n.to_string());
            fs::create_dir(&own)?;
            // What this process allocates there is charged to that cgroup.
            fs::write(own.join("cgroup.procs"), "0")?;
            fs::write(all.files.path().join(n.to_string()), [7; 65536])?;
            all.sleepers.push(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn()?);
        }
        fs::write(all.home.join("cgroup.procs"), "0")?;
        Ok(all)
    }
}

impl Drop for SleepingCgroups {
    fn drop(&mut self) {
        let _ = fs::write(self.home.join("cgroup.procs"), "0");
        for sleeper in &mut self.sleepers {
            let _ = sleeper.kill();
            let _ = sleeper.wait();
        }
        for n in 0..self.count {
            remove(&self.group.join(n.to_string()));
        }
        remove(&self.group);
    }
}

/// A cgroup needs a moment after its last process.
fn remove(folder: &Path) {
    let start = Instant::now();
    while fs::remove_dir(folder).is_err() && folder.exists() && start.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn generations(args: &ReadsArgs, kernel: &Kernel) -> anyhow::Result<Vec<Row>> {
    let lru = lru_gen::LruGen::open(kernel)?;
    let cgroups = SleepingCgroups::make(kernel, args.cgroups)?;
    let target = Target { cgroups: vec![Cgroup::named(kernel, &cgroups.name())?], ..Target::default() };
    let mut monitor = MglruMonitor::new(kernel, &target, &[])?;
    let (mut ticks, mut reads) = (Vec::new(), Vec::new());
    monitor.step(0.0)?;
    for second in 0..args.times {
        std::thread::sleep(Duration::from_secs(1));
        timed(&mut ticks, || monitor.step(float(second)))?;
        timed(&mut reads, || lru.read())?;
    }
    let (asked, missing) = (monitor.requested, monitor.missing);
    println!("generations: {missing} of {asked} asked for were not made");
    Ok(vec![
        Row { what: format!("a tick over {} cgroups: aged, read, added up", args.cgroups), cpu_ms: ticks },
        Row { what: "of it, reading lru_gen (all cgroups of the machine)".to_owned(), cpu_ms: reads },
    ])
}

/// This bench's kdamond. lowtide itself reads regions from the tracepoint, so only this bench uses `tried_regions`.
const KDAMOND: &str = "/sys/kernel/mm/damon/admin/kdamonds/0";

/// Adds a scheme without effect that applies to every region.
fn want_tried_regions(kernel: &Kernel) -> anyhow::Result<()> {
    let schemes = format!("{KDAMOND}/contexts/0/schemes");
    kernel.write(format!("{schemes}/nr_schemes"), "1")?;
    kernel.write(format!("{schemes}/0/action"), "stat")?;
    for part in ["sz", "nr_accesses", "age"] {
        kernel.write(format!("{schemes}/0/access_pattern/{part}/min"), "0")?;
        kernel.write(format!("{schemes}/0/access_pattern/{part}/max"), &u64::MAX.to_string())?;
    }
    Ok(kernel.write(format!("{KDAMOND}/state"), "commit")?)
}

/// The regions of the next application of the scheme: start, end, accesses, age.
fn tried_regions(kernel: &Kernel) -> anyhow::Result<Vec<[u64; 4]>> {
    kernel.write(format!("{KDAMOND}/state"), "update_schemes_tried_regions")?;
    let folder = format!("{KDAMOND}/contexts/0/schemes/0/tried_regions");
    let mut regions = Vec::new();
    for name in kernel.list(&folder)?.into_iter().filter(|name| name.parse::<u64>().is_ok()) {
        let number = |file: &str| kernel.read_number(format!("{folder}/{name}/{file}"));
        regions.push([number("start")?, number("end")?, number("nr_accesses")?, number("age")?]);
    }
    Ok(regions)
}

/// One-page regions at the beginning of memory, far enough apart that none are merged.
fn regions(args: &ReadsArgs, kernel: &Kernel, journal: &Journal) -> anyhow::Result<Vec<Row>> {
    let ram = system::ram(kernel)?;
    let (start, end) = ram.into_iter().max_by_key(|(start, end)| end - start).context("memory's ranges are hidden")?;
    let count = count(args.regions);
    let apart = (end - start) / (count + 1) / PAGE * PAGE;
    let ranges = (0..count).map(|n| (start + n * apart, start + n * apart + PAGE)).collect();
    let mut damon = Damon::take(kernel, journal, 1)?;
    let mut trace = Trace::open(kernel, journal, 1 << 20)?;
    if !damon.operations(0)?.contains(&Operations::Paddr) {
        bail!("needs DAMON paddr");
    }
    let second = Duration::from_secs(1);
    let setup = KdamondSetup {
        operations: Operations::Paddr,
        sampling: second,
        aggregation: second,
        update: 3600 * second,
        min_regions: args.regions,
        max_regions: 2 * args.regions,
        pids: Vec::new(),
        ranges,
        goal: None,
        schemes: Vec::new(),
    };
    damon.start(0, &setup)?;
    let (mut traced, mut tried) = (Vec::new(), Vec::new());
    for _ in 0..args.times {
        std::thread::sleep(second);
        let mut events = Vec::new();
        timed(&mut traced, || trace.read(&mut events))?;
    }
    let mut found = 0;
    want_tried_regions(kernel)?;
    for _ in 0..args.times {
        found = timed(&mut tried, || tried_regions(kernel))?.len();
    }
    println!("regions: {found} by tried_regions");
    Ok(vec![
        Row { what: format!("a snapshot of {} regions, traced", args.regions), cpu_ms: traced },
        Row { what: format!("a snapshot of {found} regions, by tried_regions"), cpu_ms: tried },
    ])
}
