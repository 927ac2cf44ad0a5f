//! The kernel's clock, and waiting by it. A kernel that is a tree of files has one that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, Timespec, poll};

use crate::sys::{own_cpu_s, thread_cpu_s};
use crate::system::monotonic_ns;

/// A clock that moves only when a caller waits on it.
#[derive(Debug, Clone, Default)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    /// Nanoseconds it shows.
    pub fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Moves it on.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(by, Ordering::Relaxed);
    }
}

/// Source of time.
#[derive(Debug, Clone, Default)]
pub(crate) enum Clock {
    /// `CLOCK_MONOTONIC` of the kernel that runs, the clock of trace events.
    #[default]
    Running,
    /// A test's.
    Test(TestClock),
}

impl Clock {
    pub(crate) fn monotonic_ns(&self) -> u64 {
        match self {
            Self::Running => monotonic_ns(),
            Self::Test(clock) => clock.now_ns(),
        }
    }

    pub(crate) fn own_cpu_s(&self) -> f64 {
        match self {
            Self::Running => own_cpu_s(),
            Self::Test(_) => 0.0,
        }
    }

    pub(crate) fn thread_cpu_s(&self) -> f64 {
        match self {
            Self::Running => thread_cpu_s(),
            Self::Test(_) => 0.0,
        }
    }

    /// Waits until one of these is ready, a signal comes, or the time is over; a test's clock is moved on by that time at once.
    pub(crate) fn wait(&self, fds: &mut [PollFd<'_>], time: Duration) -> std::io::Result<()> {
        let left = match self {
            Self::Running => time,
            Self::Test(clock) => {
                clock.advance(time);
                Duration::ZERO
            }
        };
        match poll(fds, Some(&Timespec::try_from(left).map_err(std::io::Error::other)?)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_moves_a_test_s_clock_and_takes_no_time() {
        let (test, began) = (TestClock::default(), std::time::Instant::now());
        let clock = Clock::Test(test.clone());
        clock.wait(&mut [], Duration::from_secs(3600)).unwrap();
        assert_eq!((clock.monotonic_ns(), test.now_ns()), (3_600_000_000_000, 3_600_000_000_000));
        assert!(began.elapsed() < Duration::from_secs(600));
        let running = Clock::Running;
        let before = running.monotonic_ns();
        running.wait(&mut [], Duration::from_millis(2)).unwrap();
        assert!(running.monotonic_ns() >= before + 2_000_000);
    }
}
