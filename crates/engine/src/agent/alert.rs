//! Turns in quick succession while tasks of the machine stall on memory: whoever guards must know within a second.

use std::time::Duration;

use lowtide_kernel::pressure::{self, Trigger};
use lowtide_kernel::root::{Error, Kernel, Result};
use rustix::event::{PollFd, PollFlags};

const PRESSURE: &str = "/proc/pressure/memory";
/// The guard is woken as soon as some task has stalled for so long within this window, the shortest that Linux takes
/// (kernel/sched/psi.c: WINDOW_MIN_US); and again for each window.
const STALL: Duration = Duration::from_millis(25);
const WINDOW: Duration = Duration::from_millis(500);
/// Time between two turns then, and while something is granted, seconds: more where they take more than this share of a CPU. And
/// how long after the last stall.
const EVERY_S: f64 = 0.125;
const MOST_CPU: f64 = 0.05;
const LASTS_S: f64 = 3.0;

/// How stalls are noticed.
#[derive(Debug)]
enum Notice {
    /// The kernel wakes.
    Woken(Trigger),
    /// The kernel wakes no process without `CAP_SYS_RESOURCE` in less than two seconds, so its count is read: when, and how
    /// long tasks had stalled by then, seconds.
    Read(f64, f64),
}

/// Whether tasks stall, as the kernel reports it.
#[derive(Debug)]
pub(super) struct Alert {
    kernel: Kernel,
    notice: Notice,
    /// Some task stalled since this was asked last.
    woken: bool,
    until_s: f64,
}

impl Alert {
    /// Notices stalls of the machine; with the reason where the kernel does not wake it. Fails where the kernel reports none.
    pub fn new(kernel: &Kernel) -> Result<(Self, Option<Error>)> {
        let stalled_s = pressure::read(kernel, PRESSURE)?.some_s;
        let (notice, why_read) = match Trigger::open(kernel, PRESSURE, STALL, WINDOW) {
            Ok(trigger) => (Notice::Woken(trigger), None),
            Err(error) => (Notice::Read(kernel.awake_s(), stalled_s), Some(error)),
        };
        Ok((Self { kernel: kernel.clone(), notice, woken: false, until_s: f64::NEG_INFINITY }, why_read))
    }

    /// The descriptor to poll.
    pub fn waker(&self) -> Option<PollFd<'_>> {
        if let Notice::Woken(trigger) = &self.notice { trigger.waker() } else { None }
    }

    /// The event of that descriptor.
    pub fn woken(&mut self, event: PollFlags) {
        if let Notice::Woken(trigger) = &mut self.notice {
            self.woken |= trigger.woken(event);
        }
    }

    /// When the count is to be read again; `None` where the kernel wakes.
    pub fn check_due_s(&self) -> Option<f64> {
        if let Notice::Read(read_s, _) = self.notice { Some(read_s + EVERY_S) } else { None }
    }

    /// Reads the count if that is due.
    fn check(&mut self, now_s: f64) {
        let Notice::Read(read_s, before_s) = self.notice else { return };
        // A clock that was set back must not end it.
        if (read_s..read_s + EVERY_S).contains(&now_s) {
            return;
        }
        let stalled_s = pressure::read(&self.kernel, PRESSURE).map_or(before_s, |totals| totals.some_s);
        self.woken |= stalled_s - before_s >= STALL.as_secs_f64();
        self.notice = Notice::Read(now_s, stalled_s);
    }

    /// Whether tasks stall, or did some moments ago.
    pub fn is_on(&self, now_s: f64) -> bool {
        // A clock that was set back must not make it last.
        (now_s..now_s + LASTS_S + 1.0).contains(&self.until_s)
    }

    /// When the next turn is due at the latest, after one that took so many CPU seconds; `None` while nothing stalls and nothing
    /// is granted. Who waits for a turn must not wait for one that has ended.
    pub fn due_s(&mut self, now_s: f64, (last_s, cpu_s): (f64, f64), granted: bool) -> Option<f64> {
        self.check(now_s);
        if std::mem::take(&mut self.woken) {
            self.until_s = now_s + LASTS_S;
        }
        (granted || self.is_on(now_s)).then_some(last_s + EVERY_S.max(cpu_s / MOST_CPU))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n";

    fn alert(dir: &std::path::Path) -> Alert {
        let kernel = Kernel::at(dir);
        assert!(Alert::new(&kernel).unwrap_err().is_gone());
        std::fs::create_dir_all(dir.join("proc/pressure")).unwrap();
        std::fs::write(dir.join("proc/pressure/memory"), QUIET).unwrap();
        Alert::new(&kernel).unwrap().0
    }

    #[test]
    fn a_stall_makes_turns_quick_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let mut alert = alert(dir.path());
        assert_eq!((alert.due_s(10.0, (9.5, 0.0), false), alert.check_due_s()), (None, None));
        alert.woken(PollFlags::PRI);
        assert_eq!(alert.due_s(10.0, (9.5, 0.0), false), Some(9.625));
        assert_eq!(alert.due_s(10.0, (9.5, 0.05), false), Some(10.5), "many workloads");
        assert_eq!(
            (alert.due_s(12.9, (12.0, 0.0), false), alert.due_s(13.1, (13.0, 0.0), false)),
            (Some(12.125), None)
        );
        assert_eq!(alert.due_s(13.1, (13.0, 0.0), true), Some(13.125), "somebody waits");
        alert.woken(PollFlags::ERR);
        assert!(alert.waker().is_none());
    }

    #[test]
    fn without_a_trigger_the_count_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut alert = alert(dir.path());
        alert.notice = Notice::Read(10.0, 0.001);
        let stalled =
            |us: &str| std::fs::write(dir.path().join("proc/pressure/memory"), QUIET.replace("1000", us)).unwrap();
        stalled("20000");
        assert_eq!(
            (alert.due_s(10.25, (9.5, 0.0), false), alert.check_due_s()),
            (None, Some(10.375)),
            "less than 25 ms"
        );
        stalled("46000");
        assert_eq!(alert.due_s(10.35, (9.5, 0.0), false), None, "it was read a moment ago");
        assert!(!alert.is_on(10.35));
        assert_eq!(alert.due_s(10.5, (9.5, 0.0), false), Some(9.625));
        assert!(alert.is_on(13.4) && !alert.is_on(13.6));
    }
}
