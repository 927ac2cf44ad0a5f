//! The system calls, and all of this program's `unsafe`.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::units::HUGE_PAGE;

/// Set by the handler of SIGTERM and SIGINT.
static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Makes SIGTERM and SIGINT ask for an orderly end rather than kill.
pub fn catch_stop_signals() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value of this plain C struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // No SA_RESTART: a signal must cut a sleep short.
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: `action` is initialised, and the handler only stores to an atomic, which is async-signal-safe.
        if unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Whether SIGTERM or SIGINT has come.
pub fn stop_requested() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the result. The call cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // Neither part of this clock is ever negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Sleeps until `CLOCK_MONOTONIC` shows `deadline_ns`, or until a signal comes.
pub fn sleep_until(deadline_ns: u64) {
    let deadline = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000).cast_signed(),
        tv_nsec: (deadline_ns % 1_000_000_000).cast_signed(),
    };
    // SAFETY: `deadline` is initialised; with TIMER_ABSTIME no remaining time is written.
    unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const deadline, ptr::null_mut());
    }
}

/// The kernel's base page size.
pub fn page_size() -> usize {
    // SAFETY: sysconf takes no pointers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(0)
}

/// What a file's pages are going to be used for.
#[derive(Debug, Clone, Copy)]
pub enum Advice {
    /// They are read one by one: no reading ahead.
    Random,
    /// They are not needed: drop the clean ones from the page cache.
    DontNeed,
}

/// Advises the kernel on a whole file.
pub fn advise_file(file: &File, advice: Advice) -> io::Result<()> {
    let advice = match advice {
        Advice::Random => libc::POSIX_FADV_RANDOM,
        Advice::DontNeed => libc::POSIX_FADV_DONTNEED,
    };
    // SAFETY: the descriptor is open for as long as `file` is borrowed.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// A mapping that starts on a 2 MiB boundary and has inaccessible pages on both sides, so that it is a VMA of its own.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    reserved: NonNull<u8>,
    reserved_len: usize,
}

/// What a [`Mapping`] is made of.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// Private memory, in 4 KiB pages whatever the system's huge page policy is.
    Small,
    /// Private memory, in huge pages where the kernel has them.
    Huge,
    /// A file's bytes, shared.
    File(&'a File),
}

/// `mmap` with the error turned into a value.
///
/// # Safety
///
/// With `MAP_FIXED`, `addr..addr + len` must belong to the caller and hold nothing that is in use.
unsafe fn mmap(
    addr: *mut u8,
    len: usize,
    prot: libc::c_int,
    flags: libc::c_int,
    fd: libc::c_int,
) -> io::Result<NonNull<u8>> {
    // SAFETY: the caller vouches for what MAP_FIXED replaces; without it the kernel picks free space.
    let got = unsafe { libc::mmap(addr.cast(), len, prot, flags, fd, 0) };
    if got == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(got.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

impl Mapping {
    /// Maps `len` bytes, a multiple of the page size; a file must be at least that long.
    pub fn new(len: usize, source: Source<'_>) -> io::Result<Self> {
        let reserved_len = len + 2 * HUGE_PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: no MAP_FIXED.
        let reserved = unsafe { mmap(ptr::null_mut(), reserved_len, libc::PROT_NONE, flags, -1)? };
        // From the first byte but one up to the next boundary: at least one page in front, and at least one behind.
        let skip = HUGE_PAGE - reserved.as_ptr().addr() % HUGE_PAGE;
        let (kind, fd) = match source {
            Source::Small | Source::Huge => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
            Source::File(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        };
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let mut mapping = Mapping { start: reserved, len, reserved, reserved_len };
        // SAFETY: skip <= 2 MiB, so that the range lies within the reservation made above, which nothing uses yet.
        mapping.start = unsafe {
            let start = reserved.as_ptr().add(skip);
            mmap(start, len, prot, kind | libc::MAP_FIXED, fd)?
        };
        // Reading ahead is not turned off by MADV_RANDOM: the kernel then ignores the accesses to such a mapping when
        // it chooses what to reclaim, which would make it a special case of memory use rather than a plain one.
        match source {
            Source::Huge => mapping.advise(libc::MADV_HUGEPAGE)?,
            // A kernel built without huge pages refuses this, and rightly so.
            Source::Small | Source::File(_) => drop(mapping.advise(libc::MADV_NOHUGEPAGE)),
        }
        Ok(mapping)
    }

    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the range is this mapping, and huge page advice changes no contents.
        match unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Gives private memory a name in `/proc/PID/maps`, where the kernel can do that.
    pub fn name(&self, name: &str) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: the range is this mapping, and the kernel copies the name.
        unsafe {
            libc::prctl(libc::PR_SET_VMA, libc::PR_SET_VMA_ANON_NAME, self.start.as_ptr(), self.len, name.as_ptr());
        }
    }

    /// Writes a mapped file's changes back, so that its pages are clean.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping.
        match unsafe { libc::msync(self.start.as_ptr().cast(), self.len, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Address of the first byte.
    pub fn start(&self) -> usize {
        self.start.as_ptr().addr()
    }

    #[inline]
    fn word(&self, offset: usize) -> *mut u64 {
        assert!(offset.is_multiple_of(8) && offset < self.len, "touch outside");
        // SAFETY: `offset` is within the mapping.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }

    /// Loads the word at `offset`, a multiple of 8 within the mapping.
    #[inline]
    pub fn load(&self, offset: usize) -> u64 {
        // SAFETY: an aligned word of a mapping that is readable as long as `self` lives, checked by `word`. Volatile, as
        // the load itself is the purpose. A file that is cut short by others raises SIGBUS, which ends the program.
        unsafe { self.word(offset).read_volatile() }
    }

    /// Stores `value` at `offset`, a multiple of 8 within the mapping.
    #[inline]
    pub fn store(&self, offset: usize, value: u64) {
        // SAFETY: as in `load`; the mapping is writable, and no reference into it exists anywhere.
        unsafe { self.word(offset).write_volatile(value) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the reservation is this value's own and holds the mapping; no pointers into it outlive `self`.
        unsafe { libc::munmap(self.reserved.as_ptr().cast(), self.reserved_len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_aligned_and_holds_what_is_stored() {
        let map = Mapping::new(3 << 20, Source::Small).unwrap();
        map.name("test");
        assert_eq!(map.start() % HUGE_PAGE, 0);
        map.store((3 << 20) - 8, 17);
        assert_eq!(map.load((3 << 20) - 8), 17);
        assert_eq!(map.load(0), 0);
    }

    #[test]
    #[should_panic(expected = "touch outside")]
    fn a_touch_outside_is_refused() {
        Mapping::new(4096, Source::Small).unwrap().load(4096);
    }

    #[test]
    fn the_clock_goes_and_sleep_follows_it() {
        let start = monotonic_ns();
        sleep_until(start + 2_000_000);
        assert!(monotonic_ns() >= start + 2_000_000);
        assert_eq!(page_size(), 4096);
    }
}
