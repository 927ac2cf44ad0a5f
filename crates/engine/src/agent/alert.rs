//! Turns in quick succession while tasks of the machine stall on memory: whoever guards must know within a second.

use std::time::Duration;

use lowtide_kernel::pressure::Trigger;
use lowtide_kernel::root::{Kernel, Result};
use rustix::event::{PollFd, PollFlags};

/// The guard is woken as soon as some task has stalled for so long within this window, the shortest that Linux takes from a process
/// without `CAP_SYS_RESOURCE`; and again for each window.
const STALL: Duration = Duration::from_millis(50);
const WINDOW: Duration = Duration::from_secs(2);
/// Time between two turns then, seconds: more where they take more than this share of a CPU. And how long after the last stall.
const EVERY_S: f64 = 0.25;
const MOST_CPU: f64 = 0.05;
const LASTS_S: f64 = 3.0;

/// Whether tasks stall, as the kernel reports it.
#[derive(Debug)]
pub(super) struct Alert {
    trigger: Trigger,
    /// The trigger was woken since the last turn.
    woken: bool,
    until_s: f64,
}

impl Alert {
    /// Waits for stalls of the machine. Fails where the kernel reports none.
    pub fn new(kernel: &Kernel) -> Result<Self> {
        let trigger = Trigger::open(kernel, "/proc/pressure/memory", STALL, WINDOW)?;
        Ok(Self { trigger, woken: false, until_s: f64::NEG_INFINITY })
    }

    /// The descriptor to poll.
    pub fn waker(&self) -> Option<PollFd<'_>> {
        self.trigger.waker()
    }

    /// The event of that descriptor.
    pub fn woken(&mut self, event: PollFlags) {
        self.woken |= self.trigger.woken(event);
    }

    /// When the next turn is due at the latest, after one that took so many CPU seconds; `None` while nothing stalls.
    pub fn due_s(&mut self, now_s: f64, (last_s, cpu_s): (f64, f64)) -> Option<f64> {
        if std::mem::take(&mut self.woken) {
            self.until_s = now_s + LASTS_S;
        }
        // A clock that was set back must not make it last.
        (now_s..now_s + LASTS_S + 1.0).contains(&self.until_s).then_some(last_s + EVERY_S.max(cpu_s / MOST_CPU))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_makes_turns_quick_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Kernel::at(dir.path());
        assert!(Alert::new(&kernel).unwrap_err().is_gone());
        std::fs::create_dir_all(dir.path().join("proc/pressure")).unwrap();
        std::fs::write(dir.path().join("proc/pressure/memory"), "").unwrap();
        let mut alert = Alert::new(&kernel).unwrap();
        assert_eq!(alert.due_s(10.0, (9.5, 0.0)), None);
        alert.woken(PollFlags::PRI);
        assert_eq!(alert.due_s(10.0, (9.5, 0.0)), Some(9.75));
        assert_eq!(alert.due_s(10.0, (9.5, 0.05)), Some(10.5), "many workloads");
        assert_eq!((alert.due_s(12.9, (12.0, 0.0)), alert.due_s(13.1, (13.0, 0.0))), (Some(12.25), None));
        alert.woken(PollFlags::ERR);
        assert!(alert.waker().is_none());
    }
}
