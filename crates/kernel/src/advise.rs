//! Advice on the memory of a process (`process_madvise(2)`), in batches, on what is in memory of the ranges.
//!
//! Mappings change meanwhile. A range that is no longer there, or that the kernel does not touch (locked, device memory), is
//! left out and counted; none of this advice changes the contents of memory.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use lowtide_model::PAGE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::pagemap::{Entry, PageMap};
use crate::root::{Error, Kernel, Result};
use crate::sys::{self, Advice};

/// One call takes at most so many ranges (`UIO_MAXIOV`).
const RANGES: usize = 1024;
/// And so many bytes, so that it can be stopped in between: the kernel does not return before it is through.
const BATCH: u64 = 32 << 20;
/// A range that the kernel cannot advise just now is tried so often.
const TRIES: u32 = 3;

/// A process, held so that its pid can belong to no other.
#[derive(Debug)]
struct Held {
    pidfd: OwnedFd,
    pages: PageMap,
}

impl Held {
    fn open(kernel: &Kernel, pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}");
        let gone = || Error::os("hold", &path, libc::ESRCH);
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|error| Error::new("hold", &path, error))?;
        let held = Self { pidfd, pages: PageMap::open(kernel, pid)? };
        // Alive after its page table was opened: both are the same process'.
        if held.has_ended() { Err(gone()) } else { Ok(held) }
    }

    fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).map_or(true, |ready| ready > 0)
    }

    /// Pages in memory within a range, as ranges; of them, those to `keep`.
    fn present(&self, (start, end): (u64, u64), keep: Option<&Keep<'_>>) -> Result<Vec<(u64, u64)>> {
        let mut present: Vec<(u64, u64)> = Vec::new();
        let mut add = |from: u64, to: u64| match present.last_mut() {
            Some(last) if last.1 == from * PAGE => last.1 = to * PAGE,
            _ => present.push((from * PAGE, to * PAGE)),
        };
        let (first, end) = (start / PAGE, end.div_ceil(PAGE));
        let walked = match keep {
            None => self.pages.populated(first, end, &mut add),
            Some(keep) => {
                // Page by page only where there is something: a reservation may span terabytes.
                let mut there = Vec::new();
                self.pages.populated(first, end, &mut |from, to| there.push((from, to))).and_then(|()| {
                    let mut kept = |page: u64, entry: Entry| {
                        if keep(page * PAGE, entry.is_file()) {
                            add(page, page + 1);
                        }
                    };
                    there.iter().try_for_each(|(from, to)| self.pages.each_present(*from, *to, &mut kept))
                })
            }
        };
        walked.map_err(|error| Error::new("read", "/proc/PID/pagemap", error))?;
        Ok(present)
    }
}

/// Whether a page at this address is meant, by whether it is a file's (or shared memory).
pub type Keep<'a> = dyn Fn(u64, bool) -> bool + 'a;

/// Advice on ranges of a process' memory: on the pages in memory that `keep` chooses, or on all of them.
#[derive(Clone, Copy)]
pub struct AdviceRequest<'a> {
    /// Ranges of addresses.
    pub ranges: &'a [(u64, u64)],
    /// The advice.
    pub advice: Advice,
    /// Which pages; `None`: all.
    pub keep: Option<&'a Keep<'a>>,
}

/// The result of advice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdviceOutcome {
    /// Bytes in memory that the kernel was advised on.
    pub tried_bytes: u64,
    /// Of them, what it would not touch or what was gone.
    pub refused_bytes: u64,
    /// For each range as given, as far as was reached: pages in memory before, and afterwards.
    pub pages: Vec<(u32, u32)>,
}

/// Gives advice on processes, each held from its first advice on.
#[derive(Debug)]
pub struct Adviser {
    kernel: Kernel,
    held: HashMap<u32, Held>,
}

impl Adviser {
    /// An adviser that holds no process yet.
    pub fn new(kernel: &Kernel) -> Self {
        Self { kernel: kernel.clone(), held: HashMap::new() }
    }

    /// Lets go of processes that have ended.
    pub fn forget_ended(&mut self) {
        self.held.retain(|_, held| !held.has_ended());
    }

    /// Holds a process, so that its number can belong to no other while this lives.
    ///
    /// # Errors
    /// If it is gone, or its page table may not be read.
    pub fn hold(&mut self, pid: u32) -> Result<()> {
        self.held(pid).map(|_| ())
    }

    fn held(&mut self, pid: u32) -> Result<&Held> {
        if self.held.get(&pid).is_some_and(Held::has_ended) {
            self.held.remove(&pid);
        }
        match self.held.entry(pid) {
            std::collections::hash_map::Entry::Occupied(held) => Ok(held.into_mut()),
            std::collections::hash_map::Entry::Vacant(free) => Ok(free.insert(Held::open(&self.kernel, pid)?)),
        }
    }

    /// Pages in memory of a range.
    ///
    /// # Errors
    /// If the process is gone, or its page table may not be read.
    pub fn resident(&mut self, pid: u32, range: (u64, u64)) -> Result<u32> {
        Ok(pages(&self.held(pid)?.present(range, None)?))
    }

    /// Advises on what is in memory of the ranges and to `keep`, as long as `go_on` says so, which is asked between batches.
    ///
    /// # Errors
    /// If the process is gone or may not be advised on. What the kernel refuses of it is no error.
    pub fn advise(
        &mut self,
        pid: u32,
        &AdviceRequest { ranges, advice, keep }: &AdviceRequest<'_>,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<AdviceOutcome> {
        // On absent pages too where they are what is meant.
        let absent = matches!(advice, Advice::Willneed | Advice::Collapse);
        let held = self.held(pid)?;
        let mut outcome = AdviceOutcome::default();
        let mut batch: Vec<(u64, u64)> = Vec::new();
        // Ranges whose advice was given.
        let mut reached = 0;
        let mut stopped = false;
        for range in ranges {
            let present = held.present(*range, keep)?;
            outcome.pages.push((pages(&present), 0));
            batch.extend(if absent { vec![*range] } else { present });
            if batch.len() >= RANGES || bytes(&batch) >= BATCH {
                stopped = !go_on();
                if stopped {
                    break;
                }
                held.batch(pid, &std::mem::take(&mut batch), advice, &mut outcome)?;
                reached = outcome.pages.len();
            }
        }
        if !stopped && go_on() {
            held.batch(pid, &batch, advice, &mut outcome)?;
            reached = outcome.pages.len();
        }
        outcome.pages.truncate(reached);
        for (range, (_, after)) in ranges.iter().zip(&mut outcome.pages) {
            *after = pages(&held.present(*range, keep)?);
        }
        Ok(outcome)
    }
}

impl Held {
    /// One batch, in calls of as many ranges as the kernel takes.
    fn batch(&self, pid: u32, ranges: &[(u64, u64)], advice: Advice, outcome: &mut AdviceOutcome) -> Result<()> {
        outcome.tried_bytes += bytes(ranges);
        let (mut at, mut tries) = (0, 0);
        while at < ranges.len() {
            let call = &ranges[at..ranges.len().min(at + RANGES)];
            let mut advised = match sys::process_madvise(self.pidfd.as_fd(), call, advice) {
                Ok(advised) => advised,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::EAGAIN) if tries < TRIES => {
                        tries += 1;
                        continue;
                    }
                    // Not mapped any more, locked or not of a kind that can be advised on, not now.
                    Some(libc::EINVAL | libc::ENOMEM | libc::EAGAIN | libc::EBUSY | libc::EBADF | libc::EFAULT) => 0,
                    _ => return Err(Error::new("advise on the memory of", format!("/proc/{pid}"), error)),
                },
            };
            tries = 0;
            let all = advised == bytes(call);
            while let Some((start, end)) = ranges.get(at).filter(|(start, end)| advised > 0 && advised >= end - start) {
                (advised, at) = (advised - (end - start), at + 1);
            }
            if !all {
                // The kernel stopped at this one.
                let (start, end) = ranges[at];
                (outcome.refused_bytes, at) = (outcome.refused_bytes + (end - start) - advised, at + 1);
            }
        }
        Ok(())
    }
}

fn bytes(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

fn pages(ranges: &[(u64, u64)]) -> u32 {
    u32::try_from(bytes(ranges) / PAGE).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Area;

    fn range(area: &Area, pages: std::ops::Range<u64>) -> (u64, u64) {
        let base = area.first_page() * PAGE;
        (base + pages.start * PAGE, base + pages.end * PAGE)
    }

    #[test]
    fn advice_on_what_is_gone_is_counted_not_an_error() {
        let area = Area::anonymous(64, |page, bytes| bytes.fill(u8::try_from(page).unwrap())).unwrap();
        let mut adviser = Adviser::new(&Kernel::default());
        let own = std::process::id();
        let here = range(&area, 0..64);
        assert_eq!(adviser.resident(own, here).unwrap(), 64);
        let ranges = [(1 << 30, (1 << 30) + PAGE), here];
        let outcome =
            adviser.advise(own, &AdviceRequest { ranges: &ranges, advice: Advice::Cold, keep: None }, || true).unwrap();
        assert_eq!((outcome.tried_bytes, outcome.refused_bytes), (64 * PAGE, 0), "nothing was there");
        assert_eq!(outcome.pages, [(0, 0), (64, 64)], "cold memory stays where it is");
        // Absent pages are advised on where they are meant; the kernel stops at the range that is no mapping.
        let outcome = adviser
            .advise(own, &AdviceRequest { ranges: &ranges, advice: Advice::Willneed, keep: None }, || true)
            .unwrap();
        assert_eq!((outcome.tried_bytes, outcome.refused_bytes), (65 * PAGE, PAGE));
        let outcome = adviser
            .advise(own, &AdviceRequest { ranges: &ranges, advice: Advice::Cold, keep: None }, || false)
            .unwrap();
        assert_eq!((outcome.tried_bytes, outcome.pages.len()), (0, 0), "stopped before the first batch");
        let anonymous = |at: u64, file: bool| !file && at < here.0 + 16 * PAGE;
        let outcome = adviser
            .advise(own, &AdviceRequest { ranges: &ranges, advice: Advice::Cold, keep: Some(&anonymous) }, || true)
            .unwrap();
        assert_eq!(outcome.tried_bytes, 16 * PAGE, "and only on what is meant");
        assert_eq!(area.touch(63), 63);
    }

    #[test]
    fn a_process_that_is_gone_is_an_error_that_says_so() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let error = Adviser::new(&Kernel::default()).resident(child.id(), (0, PAGE)).unwrap_err();
        assert!(error.is_gone(), "{error}");
    }

    proptest::proptest! {
        /// Wherever the kernel stops, everything else is advised on.
        #[test]
        fn refused_ranges_hold_nothing_up(good in proptest::collection::vec(proptest::bool::ANY, 1..40)) {
            let area = Area::anonymous(40, |_, bytes| bytes.fill(1)).unwrap();
            let ranges: Vec<(u64, u64)> = good
                .iter()
                .enumerate()
                .map(|(at, good)| if *good { range(&area, at as u64..at as u64 + 1) } else { (1 << 30, (1 << 30) + PAGE) })
                .collect();
            let outcome = Adviser::new(&Kernel::default())
                .advise(std::process::id(), &AdviceRequest { ranges: &ranges, advice: Advice::Willneed, keep: None }, || true)
                .unwrap();
            let bad = good.iter().filter(|good| !**good).count() as u64;
            proptest::prop_assert_eq!(outcome.refused_bytes, bad * PAGE);
        }
    }
}
