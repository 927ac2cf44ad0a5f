//! StallTotals stall information: time in which tasks waited for a resource, and being woken when they do
//! (Documentation/accounting/psi.rst).

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use lowtide_model::units::float;
use rustix::event::{PollFd, PollFlags};

use crate::root::{Error, Kernel, Result};

/// Time stalled, seconds since boot or since the cgroup was made.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StallTotals {
    /// Some task stalled.
    pub some_s: f64,
    /// All tasks stalled; `None` where the kernel does not report it.
    pub full_s: Option<f64>,
}

/// Parses a PSI file: `some avg10=0.00 avg60=0.00 avg300=0.00 total=12`.
pub fn parse(text: &str) -> Option<StallTotals> {
    let total = |kind: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(kind))?;
        let us: u64 = line.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()?;
        Some(float(us) / 1e6)
    };
    Some(StallTotals { some_s: total("some")?, full_s: total("full") })
}

/// Reads a PSI file. A kernel booted without `psi=1` has the file but refuses to read it (`EOPNOTSUPP`).
pub fn read(kernel: &Kernel, path: &str) -> Result<StallTotals> {
    parse(&kernel.read_text(path)?).ok_or_else(|| Error::unexpected(path, "no 'some' line"))
}

/// A trigger: wakes when tasks were stalled for long enough within the window, until its cgroup is gone. The kernel keeps it as
/// long as its file is open.
#[derive(Debug)]
pub struct Trigger {
    file: Option<File>,
}

impl Trigger {
    /// Asks to be woken when some task was stalled for `stall` within `window`, at most once a window. Without
    /// `CAP_SYS_RESOURCE` the kernel wants a window that is a multiple of 2 s.
    pub fn open(kernel: &Kernel, path: &str, stall: Duration, window: Duration) -> Result<Self> {
        let mut open = OpenOptions::new();
        open.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let mut file = open.open(kernel.path(path)).map_err(|e| Error::new("open", path, e))?;
        let text = format!("some {} {}\0", stall.as_micros(), window.as_micros());
        file.write_all(text.as_bytes()).map_err(|e| Error::new("set a trigger on", path, e))?;
        Ok(Self { file: Some(file) })
    }

    /// What to poll; `None` once the cgroup is gone.
    pub fn waker(&self) -> Option<PollFd<'_>> {
        self.file.as_ref().map(|file| PollFd::new(file, PollFlags::PRI))
    }

    /// Whether these flags, returned for [`Trigger::waker`], mean that tasks stalled. Closes the file if they mean that the cgroup
    /// is gone.
    pub fn woken(&mut self, flags: PollFlags) -> bool {
        if flags.contains(PollFlags::ERR) {
            self.file = None;
        }
        self.file.is_some() && flags.contains(PollFlags::PRI)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn totals_are_seconds() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n";
        assert_eq!(parse(text), Some(StallTotals { some_s: 2.5, full_s: Some(1.0) }));
    }

    #[test]
    fn a_trigger_says_what_it_wants_in_microseconds() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("memory.pressure"), "").unwrap();
        let kernel = Kernel::at(dir.path());
        let mut trigger =
            Trigger::open(&kernel, "/memory.pressure", Duration::from_millis(100), Duration::from_secs(2)).unwrap();
        let text = std::fs::read_to_string(dir.path().join("memory.pressure")).unwrap();
        assert_eq!(text, "some 100000 2000000\0");
        assert!(Trigger::open(&kernel, "/none", Duration::ZERO, Duration::ZERO).unwrap_err().is_gone());
        assert_eq!((trigger.woken(PollFlags::PRI), trigger.woken(PollFlags::IN)), (true, false));
        assert!(trigger.waker().is_some());
        assert!(!trigger.woken(PollFlags::ERR | PollFlags::PRI) && trigger.waker().is_none(), "its cgroup is gone");
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\PC|\\n)*") {
            let _ = parse(&text);
        }
    }
}
