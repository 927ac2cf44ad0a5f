//! The scheduler: the one place in which lowtide waits.
//!
//! Recorder, agent, guard and recommender are [`LoopTask`]s. Each says when it is due and which descriptors wake it before; the
//! clock is the kernel's, which in tests is one that they move.

use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{Signal, Signals};
use rustix::event::{PollFd, PollFlags};

/// Why a task ended: for the record, and for exit codes.
pub type Reason = &'static str;

/// Something that has turns.
pub trait LoopTask {
    /// Seconds since its start.
    fn now_s(&self) -> f64;

    /// When it is due next, in the same seconds.
    fn next_due_s(&self) -> f64;

    /// Descriptors that wake it before that.
    fn wakers(&self) -> Vec<PollFd<'_>> {
        Vec::new()
    }

    /// The events of these descriptors, in their order.
    fn woken(&mut self, _events: &[PollFlags]) {}

    /// A signal came. The reason if that ends it. Fails as [`LoopTask::turn`].
    fn signal(&mut self, signal: &Signal) -> anyhow::Result<Option<Reason>>;

    /// A turn: after every wait, due or woken. The reason if that was the last. Fails if it cannot go on.
    fn turn(&mut self, signals: &Signals) -> anyhow::Result<Option<Reason>>;
}

/// Waits for what is due, and does it. The reason if the task has ended. Fails if signals cannot be waited for, or the
/// task cannot go on.
pub fn step(kernel: &Kernel, signals: &Signals, task: &mut impl LoopTask) -> anyhow::Result<Option<Reason>> {
    let wait_s = task.next_due_s() - task.now_s();
    let events: Vec<PollFlags> = {
        let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
        fds.extend(task.wakers());
        kernel.wait(&mut fds, wait_s)?;
        fds.iter().skip(1).map(PollFd::revents).collect()
    };
    task.woken(&events);
    while let Some(signal) = signals.next()? {
        if let Some(reason) = task.signal(&signal)? {
            return Ok(Some(reason));
        }
    }
    task.turn(signals)
}

/// Runs a task to its end. Fails as [`step`].
pub fn run(kernel: &Kernel, signals: &Signals, task: &mut impl LoopTask) -> anyhow::Result<Reason> {
    loop {
        if let Some(reason) = step(kernel, signals, task)? {
            return Ok(reason);
        }
    }
}
