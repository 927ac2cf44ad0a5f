//! Carries out orders in a thread of its own: paging out takes as long as compressing does, and the tick must not wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use lowtide_kernel::advise::{AdviceRequest, Adviser, Keep};
use lowtide_kernel::pressure;
use lowtide_kernel::root::{Error, Kernel};
use lowtide_kernel::sys::Advice;
use lowtide_model::PAGE;
use lowtide_model::scheme::{Action, FilterType, allowed};
use lowtide_policy::machine::{BlockDone, Done, Order};

/// The result of one order.
#[derive(Debug)]
pub struct Report {
    /// The order.
    pub order: Order,
    /// For the policy.
    pub done: Done,
    /// Bytes that the kernel was advised on, and those of them that it would not touch.
    pub tried_bytes: u64,
    /// See above.
    pub refused_bytes: u64,
    /// Bytes that were evicted, or fetched; all that were tried where that does not show.
    pub applied_bytes: u64,
    /// Why it failed, if it did: the process is gone, or may not be advised on.
    pub error: Option<Error>,
}

/// The results of a turn.
#[derive(Debug, Default)]
pub struct Turn {
    /// Of each order.
    pub reports: Vec<Report>,
    /// Pages in memory of the blocks that were to be counted.
    pub back: Vec<(u32, u64, u32)>,
    /// CPU seconds it took.
    pub cpu_s: f64,
}

/// Orders for a turn.
#[derive(Debug, Default)]
pub struct Job {
    /// Advice to give.
    pub orders: Vec<Order>,
    /// Blocks whose resident pages are counted before: the process, first byte, one past the last.
    pub count: Vec<(u32, (u64, u64))>,
    /// The processes of the target, in their order.
    pub targets: Vec<u32>,
}

/// The thread.
#[derive(Debug)]
pub struct Worker {
    jobs: Option<Sender<Job>>,
    turns: Receiver<Turn>,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    /// It is at work.
    pub busy: bool,
}

/// What stops a batch from being followed by another.
pub struct BatchBrake {
    kernel: Kernel,
    /// Memory pressure of the target.
    file: String,
    limit: f64,
    stop: Box<dyn Fn() -> bool + Send>,
    last: Option<(Instant, f64)>,
    pressed: bool,
}

impl BatchBrake {
    /// Stops above so much of the pressure in this file, or when `stop` is true.
    pub fn new(kernel: &Kernel, pressure_file: &str, limit: f64, stop: impl Fn() -> bool + Send + 'static) -> Self {
        let (kernel, file) = (kernel.clone(), pressure_file.to_owned());
        Self { kernel, file, limit, stop: Box::new(stop), last: None, pressed: false }
    }

    /// Whether another batch may follow. Pressure is averaged over a tenth of a second and more: less is noise.
    fn go_on(&mut self) -> bool {
        let now = Instant::now();
        if self.last.is_none_or(|(at, _)| now.duration_since(at).as_secs_f64() >= 0.1) {
            let total = pressure::read(&self.kernel, &self.file).ok().map(|pressure| pressure.some_s);
            if let (Some((at, before)), Some(total)) = (self.last, total) {
                self.pressed = (total - before) / now.duration_since(at).as_secs_f64() > self.limit;
            }
            self.last = total.map(|total| (now, total));
        }
        !self.pressed && !(self.stop)()
    }
}

impl Worker {
    /// Starts the thread. `pressure_file` and `pressure_limit` stop it between batches.
    pub fn new(kernel: &Kernel, pressure_file: &str, pressure_limit: f64) -> Self {
        let (jobs, inbox) = channel::<Job>();
        let (outbox, turns) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let mut brake = BatchBrake::new(kernel, pressure_file, pressure_limit, move || stopped.load(Ordering::Relaxed));
        let mut adviser = Adviser::new(kernel);
        let thread = std::thread::spawn(move || {
            for job in inbox {
                if outbox.send(work(&mut adviser, job, &mut brake)).is_err() {
                    break;
                }
            }
        });
        Self { jobs: Some(jobs), turns, thread: Some(thread), stop, busy: false }
    }

    /// Hands over orders. Not while it is at work: they would be stale when their turn came.
    pub fn order(&mut self, job: Job) {
        if let Some(jobs) = &self.jobs {
            self.busy = jobs.send(job).is_ok();
        }
    }

    /// The results of the last orders, once they are complete.
    pub fn turn(&mut self) -> Option<Turn> {
        let turn = self.turns.try_recv().ok()?;
        self.busy = false;
        Some(turn)
    }
}

impl Drop for Worker {
    /// Ends after the batch it is at.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes a turn.
pub fn work(adviser: &mut Adviser, job: Job, brake: &mut BatchBrake) -> Turn {
    let before = lowtide_kernel::sys::thread_cpu_s();
    adviser.forget_ended();
    let mut turn = Turn::default();
    for (pid, range) in job.count {
        // A process that has ended faulted nothing back.
        let pages = adviser.resident(pid, range).unwrap_or(0);
        turn.back.push((pid, range.0, pages));
    }
    for order in job.orders {
        turn.reports.push(carry_out(adviser, order, &job.targets, brake));
    }
    turn.cpu_s = lowtide_kernel::sys::thread_cpu_s() - before;
    turn
}

/// Pages of 512 that must be there for a huge page to be made of them: the rest would be memory that was not asked for.
const FULL: u32 = 448;

/// What the kernel is advised; `None` for what is only counted.
fn advice_of(action: Action) -> Option<Advice> {
    match action {
        Action::Pageout => Some(Advice::Pageout),
        Action::Cold => Some(Advice::Cold),
        Action::Willneed => Some(Advice::Willneed),
        Action::Collapse => Some(Advice::Collapse),
        _ => None,
    }
}

fn carry_out(adviser: &mut Adviser, mut order: Order, targets: &[u32], brake: &mut BatchBrake) -> Report {
    let before = lowtide_kernel::sys::thread_cpu_s();
    if order.action == Action::Collapse {
        let pid = order.pid;
        order.ranges.retain(|range| adviser.resident(pid, *range).is_ok_and(|pages| pages >= FULL));
    }
    let filters = order.filters.as_slice();
    let place = targets.iter().position(|pid| *pid == order.pid);
    // A page that is used since is refaulted, and its block is spared then: the filter `young` by other means.
    let keep = |at: u64, file: bool| {
        allowed(filters, |kind| match kind {
            FilterType::Anon => !file,
            FilterType::Addr(start, end) => (*start..*end).contains(&at),
            FilterType::Target(index) => usize::try_from(*index).ok() == place,
            _ => false,
        })
    };
    let keep: Option<&Keep<'_>> = if filters.is_empty() { None } else { Some(&keep) };
    // As in the policy, pressure holds only what takes memory.
    let mut go_on = || if order.action.takes() { brake.go_on() } else { !(brake.stop)() };
    let result = advice_of(order.action)
        .map(|advice| adviser.advise(order.pid, &AdviceRequest { ranges: &order.ranges, advice, keep }, &mut go_on))
        .transpose();
    // What is only counted, or failed, is not tried again at once.
    let reached = if let Ok(Some(outcome)) = &result { outcome.pages.len() } else { order.ranges.len() };
    let skipped = order.ranges[reached..].iter().map(|range| (order.pid, *range)).collect();
    let (outcome, error) = match result {
        Ok(outcome) => (outcome.unwrap_or_default(), None),
        Err(error) => (lowtide_kernel::advise::AdviceOutcome::default(), Some(error)),
    };
    let evicted = |(before, after): &(u32, u32)| before.saturating_sub(*after);
    let fetched = |(before, after): &(u32, u32)| after.saturating_sub(*before);
    let pages: u64 = match order.action {
        Action::Pageout => outcome.pages.iter().map(|pages| u64::from(evicted(pages))).sum(),
        Action::Willneed => outcome.pages.iter().map(|pages| u64::from(fetched(pages))).sum(),
        _ => (outcome.tried_bytes - outcome.refused_bytes.min(outcome.tried_bytes)) / PAGE,
    };
    let pid = order.pid;
    let block = |((start, _), pages): (&(u64, u64), &(u32, u32))| BlockDone {
        pid,
        start: *start,
        evicted: evicted(pages),
        left: pages.1,
    };
    let blocks = order.ranges.iter().zip(&outcome.pages).map(block);
    Report {
        done: Done {
            scheme: order.scheme,
            cpu_s: lowtide_kernel::sys::thread_cpu_s() - before,
            blocks: blocks.collect(),
            skipped,
        },
        tried_bytes: outcome.tried_bytes,
        refused_bytes: outcome.refused_bytes,
        applied_bytes: pages * PAGE,
        error,
        order,
    }
}
