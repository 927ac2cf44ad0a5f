//! `lowtide-bench recount`: how much memory a program uses within a time, counted by page faults.
//!
//! All of lowtide's monitors read accessed bits. This does not: it stops the program, pages out all its memory, and
//! continues it; whatever is mapped again after the window was touched within it. Anonymous memory is counted page by page
//! and exactly. What remains unknown is reported: pages that could not be evicted (locked, or mapped by other programs too),
//! and pages of files that a fault mapped besides its own.
//!
//! Limits: memory that was touched and unmapped again within the window is not counted, nor are files that are read and
//! not mapped. Refaults cost time, so a program that runs at full speed does less work than usual, mostly within the first
//! second: beside each figure are the share of its usual work, by its CPU time outside of the kernel, and the kernel time.
//! Huge pages are split: the count is by 4 KiB, and a second figure counts huge pages of before completely. khugepaged
//! could read pages back.

mod pages;
mod print;
mod swap;
mod tree;

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lowtide_kernel::advise::{AdviceRequest, Adviser};
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{Advice, Signals};
use lowtide_kernel::undo::{self, Journal};
use lowtide_model::PAGE;
use lowtide_model::units::{Span, count, float, integer};
use serde::Serialize;

use crate::grid;
use crate::machine::monotonic_s;
use crate::truth::Truth;
use pages::{Evicted, Kept, Touched, TreePages};
use swap::CountSwap;
use tree::{Still, Tree};

/// Between two checks for a signal.
const CHECK: Duration = Duration::from_millis(10);
/// Evicting is repeated as long as it makes progress, so often at most.
const PASSES: u32 = 6;
/// The usual CPU use of a program is measured for so long before each eviction.
const USUAL: Duration = Duration::from_secs(2);
/// A program that computes for less than this share of the time has too few clock ticks to measure its work.
const COMPUTES: f64 = 0.1;
/// A pattern program writes the next line of its log within this time.
const NEXT_LINE: Duration = Duration::from_millis(1500);

#[derive(Debug, clap::Args)]
pub struct RecountArgs {
    /// Count this process and its descendants
    #[arg(long, value_name = "PID", conflicts_with = "command", required_unless_present = "command")]
    pid: Option<u32>,
    /// Begin after this time, when the program is in steady state
    #[arg(long, value_name = "TIME", default_value = "10s")]
    after: Span,
    /// Windows, ascending
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "1s,5s,10s")]
    windows: Vec<Span>,
    /// Number of rounds of evicting and counting
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The log that a pattern program writes (`--truth`), to compare the count to
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// A program to start, which is ended afterwards, and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    /// Whether swap was made for this, or was on already.
    own_swap: bool,
    /// How many pages of a file one fault can map.
    fault_around_pages: u64,
    rounds: Vec<Round>,
}

/// One eviction and what came back.
#[derive(Debug, Serialize)]
struct Round {
    /// When the program continued: `CLOCK_MONOTONIC`, seconds.
    start_s: f64,
    /// How long it was stopped for the eviction.
    stopped_s: f64,
    /// In memory before.
    before: Kept,
    /// Of it, in huge pages.
    huge_bytes: u64,
    /// Not evictable.
    kept: Kept,
    windows: Vec<Window>,
}

#[derive(Debug, Clone, Serialize)]
struct Window {
    window_s: f64,
    /// Its end: `CLOCK_MONOTONIC`, seconds.
    end_s: f64,
    touched: Touched,
    /// Counted bytes: at least, and at most.
    used_bytes: [u64; 2],
    /// CPU time of the program outside of the kernel, as a share of that in the same time before the eviction: the share of
    /// its usual work. `None` for a program that hardly computes.
    work_share: Option<f64>,
    /// CPU time in the kernel within the window, most of it for refaults.
    system_s: f64,
    /// From the program's own log.
    truth: Option<Against>,
}

/// A count, and the program's log for comparison, which covers its areas and tables.
#[derive(Debug, Clone, Copy, Serialize)]
struct Against {
    log_bytes: f64,
    /// Anonymous memory; for a program that maps a file also of files, at most.
    counted_bytes: f64,
}

/// Counts and prints. Fails without swap or permission, if the program ends too early, or if a signal comes.
pub fn run(args: &RecountArgs) -> anyhow::Result<()> {
    anyhow::ensure!(!args.windows.is_empty() && args.windows.is_sorted(), "windows must be ascending");
    let kernel = Kernel::default();
    let signals = Signals::block(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
    let journal = Journal::open(kernel.clone(), &undo::folder())?;
    let dir = tempfile::tempdir()?;
    // Declared before the tree: a program started here has ended before swap is switched off, so nothing is read back.
    let swap;
    let mut tree = match args.pid {
        Some(pid) => Tree::of(&kernel, pid)?,
        None => Tree::start(&kernel, &args.command, &signals, dir.path())?,
    };
    wait(Instant::now() + args.after.0, &signals, &mut tree)?;
    swap = CountSwap::ready(&kernel, &journal, resident(&kernel, &tree)?)?;
    let mut counter = Counter { kernel, journal, signals, around: swap.around, huge: HashSet::new() };
    let mut report = Report { own_swap: swap.own.is_some(), fault_around_pages: swap.around, rounds: Vec::new() };
    for number in 1..=args.rounds {
        let round = counter.round(&mut tree, &args.windows);
        report.rounds.push(round.with_context(|| format!("round {number}"))?);
    }
    if let Some(log) = &args.truth {
        wait(Instant::now() + NEXT_LINE, &counter.signals, &mut tree)?;
        add_truth(&mut report, &Truth::read(log)?);
    }
    drop(tree);
    if let Some(own) = swap.own {
        own.take_down()?;
    }
    grid::print(args.json, &report, || print::text(&report))
}

/// Bytes of a tree that may have to go into swap.
fn resident(kernel: &Kernel, tree: &Tree) -> anyhow::Result<u64> {
    let statuses = tree.processes()?.into_iter().filter_map(|stat| proc::status(kernel, stat.id.pid).ok());
    Ok(statuses.map(|status| status.rss_anon + status.rss_shmem).sum())
}

/// Waits, and fails if a signal comes or the program ends.
fn wait(until: Instant, signals: &Signals, tree: &mut Tree) -> anyhow::Result<()> {
    let mut checked = Instant::now();
    loop {
        if let Some(signal) = signals.next()? {
            bail!("ended by signal {}", signal.number);
        }
        let now = Instant::now();
        if now >= until {
            return Ok(());
        }
        // Listing all processes costs more than checking for a signal.
        if checked.elapsed() > 20 * CHECK {
            checked = now;
            anyhow::ensure!(!tree.has_ended()?, "the program has ended");
        }
        std::thread::sleep(CHECK.min(until - now));
    }
}

/// State of all rounds.
struct Counter {
    kernel: Kernel,
    journal: Journal,
    signals: Signals,
    around: u64,
    /// Huge pages before the eviction: they are mapped again as small ones.
    huge: HashSet<(u32, u64)>,
}

impl Counter {
    fn round(&mut self, tree: &mut Tree, windows: &[Span]) -> anyhow::Result<Round> {
        let (begun, usual) = (Instant::now(), tree.cpu_s()?);
        wait(begun + USUAL, &self.signals, tree)?;
        let usual_share = (tree.cpu_s()?.user - usual.user) / begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let still = tree.stop(&self.journal)?;
        let before = TreePages::read(&self.kernel, &still.pids)?;
        let huge = before.huge(&self.kernel)?;
        let huge_bytes = count(huge.len()) * 512 * PAGE;
        self.huge.extend(huge);
        self.evict(&still)?;
        let after = TreePages::read(&self.kernel, &still.pids)?;
        let cpu_s = tree.cpu_s()?;
        let (start, start_s, kept) = (Instant::now(), monotonic_s(), after.in_memory());
        drop(still);
        let stopped_s = begun.elapsed().as_secs_f64();
        let evicted = Evicted { before: &before, after: &after, huge: &self.huge, around: self.around };
        let mut round = Round { start_s, stopped_s, before: before.in_memory(), huge_bytes, kept, windows: Vec::new() };
        let mut held_up = Duration::ZERO;
        for window in windows {
            wait(start + held_up + window.0, &self.signals, tree)?;
            let (at, end_s) = (Instant::now(), monotonic_s());
            let still = tree.stop(&self.journal)?;
            let now = TreePages::read(&self.kernel, &still.pids)?;
            let used = tree.cpu_s()?;
            drop(still);
            held_up += at.elapsed();
            let touched = evicted.touched(&now);
            let used_bytes = [touched.low(), touched.high(kept)];
            let window_s = window.0.as_secs_f64();
            let share = (used.user - cpu_s.user) / (usual_share * window_s);
            let work_share = Some(share).filter(|_| usual_share >= COMPUTES);
            let system_s = used.system - cpu_s.system;
            round.windows.push(Window { window_s, end_s, touched, used_bytes, work_share, system_s, truth: None });
        }
        Ok(round)
    }

    /// Pages out everything evictable.
    fn evict(&self, still: &Still) -> anyhow::Result<()> {
        let mut adviser = Adviser::new(&self.kernel);
        for pid in &still.pids {
            let mut left = u64::MAX;
            for _ in 0..PASSES {
                let mappings = proc::mappings(&self.kernel, *pid)?;
                let ranges: Vec<(u64, u64)> = mappings.iter().map(|mapping| (mapping.start, mapping.end)).collect();
                let outcome = adviser.advise(
                    *pid,
                    &AdviceRequest { ranges: &ranges, advice: Advice::Pageout, keep: None },
                    || true,
                )?;
                let stays = outcome.pages.iter().map(|(_, after)| u64::from(*after)).sum();
                if stays >= left {
                    break;
                }
                left = stays;
            }
        }
        Ok(())
    }
}

/// Adds the truth from the program's log to each count, including the tables that it reads to write the log. Files that
/// are read and not mapped are in the log only and cannot be compared.
fn add_truth(report: &mut Report, truth: &Truth) {
    let has = |backing: &str| truth.header.areas.iter().any(|area| area.backing == backing);
    if has("read") {
        return;
    }
    for window in report.rounds.iter_mut().flat_map(|round| &mut round.windows) {
        let seconds = u32::try_from(integer(window.window_s.round())).unwrap_or(u32::MAX);
        let files = if has("file") { window.touched.files()[1] } else { 0 };
        let counted_bytes = float(window.touched.anonymous() + files);
        let used = truth.at(window.end_s, |line| line.working_set.get(&seconds).copied());
        window.truth = used.map(|bytes| Against { log_bytes: bytes + truth.header.own_bytes(), counted_bytes });
    }
}
