//! The system calls, and all of this program's `unsafe`.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, mmap_anonymous, msync, munmap};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::units::HUGE_PAGE;

/// Set by the handler of SIGTERM and SIGINT.
static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_stop(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Makes SIGTERM and SIGINT ask for an orderly end.
pub fn catch_stop_signals() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value of this plain C struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // No SA_RESTART: a signal must interrupt a sleep.
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: `action` is initialised, and the handler only stores to an atomic, which is async-signal-safe.
        if unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

pub fn stop_requested() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither part of this clock is ever negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Sleeps until `CLOCK_MONOTONIC` shows `deadline_ns`, or until a signal comes.
pub fn sleep_until(deadline_ns: u64) {
    let (seconds, nanoseconds) = (deadline_ns / 1_000_000_000, deadline_ns % 1_000_000_000);
    let deadline = Timespec { tv_sec: seconds.cast_signed(), tv_nsec: nanoseconds.cast_signed() };
    // A signal may end the sleep early; the caller reads the clock again.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &deadline);
}

/// A mapping that starts on a 2 MiB boundary and has inaccessible pages on both sides, so that it is a VMA of its own.
#[derive(Debug)]
pub struct AreaMapping {
    start: *mut u8,
    len: usize,
    reserved: *mut u8,
    reserved_len: usize,
}

/// What an [`AreaMapping`] maps.
#[derive(Debug, Clone, Copy)]
pub enum Mapped<'a> {
    /// Private memory, in 4 KiB pages whatever the system's huge page policy is.
    Small,
    /// Private memory, in huge pages where the kernel has them.
    Huge,
    /// Private memory, in pages that the system's huge page policy chooses.
    System,
    /// A file's bytes, shared.
    File(&'a File),
}

impl AreaMapping {
    /// Maps `len` bytes, a multiple of the page size; a file must be at least that long.
    pub fn new(len: usize, what: Mapped<'_>) -> io::Result<Self> {
        let reserved_len = len + 2 * HUGE_PAGE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let reserved =
            unsafe { mmap_anonymous(ptr::null_mut(), reserved_len, ProtFlags::empty(), flags)? }.cast::<u8>();
        // The first boundary after the first byte: at least one page is left in front, and at least one behind.
        let start = reserved.wrapping_add(HUGE_PAGE - reserved.addr() % HUGE_PAGE);
        let mapping = Self { start, len, reserved, reserved_len };
        let (at, access) = (start.cast(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: start - reserved <= 2 MiB, so the range lies within the reservation, which nothing uses yet.
        unsafe {
            match what {
                Mapped::File(file) => mmap(at, len, access, MapFlags::SHARED | MapFlags::FIXED, file, 0)?,
                _ => mmap_anonymous(at, len, access, MapFlags::PRIVATE | MapFlags::FIXED)?,
            };
        }
        // Read-ahead is not turned off by MADV_RANDOM: the kernel then ignores the accesses to such a mapping when it
        // chooses what to reclaim, which would make it a special case of memory use rather than a plain one.
        let advice = match what {
            Mapped::Huge => Advice::LinuxHugepage,
            Mapped::System => return Ok(mapping),
            Mapped::Small | Mapped::File(_) => Advice::LinuxNoHugepage,
        };
        // SAFETY: the range is this mapping, and huge page advice changes no contents.
        let advised = unsafe { madvise(at, len, advice) };
        if matches!(what, Mapped::Huge) {
            // A kernel built without huge pages refuses either; small pages are what it has.
            advised?;
        }
        Ok(mapping)
    }

    /// Gives private memory a name in `/proc/PID/maps`, where the kernel can do that.
    pub fn name(&self, name: &str) {
        let Ok(name) = CString::new(name) else { return };
        // SAFETY: the range is this mapping, and the kernel copies the name.
        unsafe { libc::prctl(libc::PR_SET_VMA, libc::PR_SET_VMA_ANON_NAME, self.start, self.len, name.as_ptr()) };
    }

    /// Writes a mapped file's changes back, so that its pages are clean.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping.
        Ok(unsafe { msync(self.start.cast(), self.len, MsyncFlags::SYNC) }?)
    }

    pub fn start(&self) -> usize {
        self.start.addr()
    }

    #[inline]
    fn word(&self, offset: usize) -> *mut u64 {
        assert!(offset.is_multiple_of(8) && offset < self.len, "touch outside");
        // SAFETY: `offset` is within the mapping.
        unsafe { self.start.add(offset).cast() }
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

impl Drop for AreaMapping {
    fn drop(&mut self) {
        // SAFETY: the reservation is this value's own and holds the mapping; no pointers into it outlive `self`.
        let _ = unsafe { munmap(self.reserved.cast(), self.reserved_len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_aligned_and_holds_what_is_stored() {
        let map = AreaMapping::new(3 << 20, Mapped::Small).unwrap();
        map.name("test");
        assert_eq!(map.start() % HUGE_PAGE, 0);
        map.store((3 << 20) - 8, 17);
        assert_eq!(map.load((3 << 20) - 8), 17);
        assert_eq!(map.load(0), 0);
    }

    #[test]
    #[should_panic(expected = "touch outside")]
    fn a_touch_outside_is_refused() {
        AreaMapping::new(4096, Mapped::Small).unwrap().load(4096);
    }

    #[test]
    fn the_clock_goes_and_sleep_follows_it() {
        let start = monotonic_ns();
        sleep_until(start + 2_000_000);
        assert!(monotonic_ns() >= start + 2_000_000);
        assert_eq!(rustix::param::page_size(), 4096);
    }
}
