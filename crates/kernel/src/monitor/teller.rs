//! Tells DAMON what to monitor, one thing after the other, in a thread of its own.
//!
//! A commit is answered only when the current sampling interval is over, and while it waits every other write to
//! DAMON's files is refused with `EBUSY`: so nobody else may write, and the tick must not wait.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::damon::{Damon, KdamondSetup, SchemeStats};
use crate::root::Result;
use crate::sys::thread_cpu_s;
use crate::system::monotonic_ns;

/// What became of one thing told.
#[derive(Debug)]
pub struct Told {
    /// To which kdamond.
    pub kdamond: usize,
    /// Whether it was switched on by it.
    pub start: bool,
    /// The pid of its thread, if it was switched on.
    pub pid: Option<u32>,
    /// When the kernel had taken it, `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: u64,
    /// CPU seconds it took.
    pub cost_s: f64,
    /// What its schemes did, if that was asked; or why it failed.
    pub result: Result<Option<Vec<SchemeStats>>>,
}

#[derive(Debug)]
enum Job {
    /// Monitor this.
    Tell { kdamond: usize, setup: KdamondSetup },
    /// Say what so many schemes did.
    Count { kdamond: usize, schemes: usize },
}

/// The thread that tells.
#[derive(Debug)]
pub struct Teller {
    jobs: Option<Sender<Job>>,
    done: Receiver<Told>,
    thread: Option<JoinHandle<()>>,
}

fn work(damon: &Damon, job: &Job) -> Told {
    let before = thread_cpu_s();
    let (kdamond, start, result) = match job {
        Job::Tell { kdamond, setup } => {
            // A kdamond that follows processes ends with the last of them.
            let start = damon.pid(*kdamond).is_none();
            let told = if start { damon.start(*kdamond, setup) } else { damon.commit(*kdamond, setup) };
            (*kdamond, start, told.map(|()| None))
        }
        Job::Count { kdamond, schemes } => {
            let counted = match damon.tallies(*kdamond, *schemes) {
                // It has ended with its targets, and keeps what it had counted to itself.
                Err(error) if error.is_invalid() => Ok(Some(Vec::new())),
                other => other.map(Some),
            };
            (*kdamond, false, counted)
        }
    };
    let at_ns = monotonic_ns();
    Told {
        kdamond,
        start,
        pid: if start { damon.pid(kdamond) } else { None },
        at_ns,
        cost_s: thread_cpu_s() - before,
        result,
    }
}

impl Teller {
    /// Starts the thread. It keeps DAMON until it is dropped.
    pub fn new(damon: Damon) -> Self {
        let (jobs, inbox) = channel::<Job>();
        let (outbox, done) = channel();
        let thread = std::thread::spawn(move || {
            for job in inbox {
                if outbox.send(work(&damon, &job)).is_err() {
                    break;
                }
            }
        });
        Self { jobs: Some(jobs), done, thread: Some(thread) }
    }

    /// Hands over something to tell.
    pub fn tell(&self, kdamond: usize, setup: KdamondSetup) {
        self.hand_over(Job::Tell { kdamond, setup });
    }

    /// Asks what so many schemes of a kdamond did.
    pub fn count(&self, kdamond: usize, schemes: usize) {
        self.hand_over(Job::Count { kdamond, schemes });
    }

    fn hand_over(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // The thread only ends when this does.
            let _ = jobs.send(job);
        }
    }

    /// The next thing that was told, if any.
    pub fn told(&self) -> Option<Told> {
        self.done.try_recv().ok()
    }
}

impl Drop for Teller {
    /// Waits for what is being told: DAMON can only be given back after it.
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
