//! The one file with `unsafe`: system calls that neither std nor rustix wraps.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Status and resource use of a child that ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Its process id.
    pub pid: u32,
    /// Raw wait status.
    pub status: i32,
    /// Largest resident set of the child or any descendant it waited for, bytes.
    pub max_rss_bytes: u64,
}

impl Ended {
    /// The exit code a shell would report: the code, or 128 + signal.
    #[must_use]
    pub fn code(&self) -> i32 {
        if libc::WIFSIGNALED(self.status) { 128 + libc::WTERMSIG(self.status) } else { libc::WEXITSTATUS(self.status) }
    }
}

/// What [`reap`] found.
#[derive(Debug, Clone, Copy)]
pub enum Reaped {
    /// A child ended.
    Ended(Ended),
    /// There are children, none of which has ended.
    Running,
    /// There are no children.
    None,
}

/// Collects one ended child of any kind, without waiting.
pub fn reap() -> io::Result<Reaped> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value of that plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable locals for the length of the call.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    match pid {
        0 => Ok(Reaped::Running),
        -1 => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ECHILD) => Ok(Reaped::None),
            e => Err(e),
        },
        pid => Ok(Reaped::Ended(Ended {
            pid: pid.unsigned_abs(),
            status,
            max_rss_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
        })),
    }
}

/// User plus system CPU seconds of this process, and its highest resident set in bytes.
#[must_use]
pub fn own_usage() -> (f64, u64) {
    // SAFETY: an all-zero rusage is a valid value of that plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live local; RUSAGE_SELF with a valid pointer cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    #[expect(clippy::cast_precision_loss, reason = "CPU seconds are far below 2^52")]
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime) + seconds(usage.ru_stime), u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024)
}

/// A signal as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// Whether a process sent it. The terminal's Ctrl-C is sent by the kernel, to the whole foreground group.
    pub from_process: bool,
}

/// Signals as a file: they no longer interrupt this process but wait to be read.
#[derive(Debug)]
pub struct Signals {
    file: File,
    numbers: Vec<i32>,
}

impl Signals {
    /// Blocks `numbers` and opens a file from which they can be read, without waiting.
    pub fn block(numbers: &[i32]) -> io::Result<Self> {
        let set = signal_set(numbers);
        // SAFETY: `set` is an initialised signal set and the old mask is not asked for.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: `set` is initialised; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and nothing else owns it.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { file: owned.into(), numbers: numbers.to_vec() })
    }

    /// The next signal, if one is waiting.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        // SAFETY: an all-zero signalfd_siginfo is a valid value of that plain C struct.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer is a live local of exactly the size given.
        let got = unsafe { libc::read(self.file.as_raw_fd(), (&raw mut info).cast(), size) };
        if got < 0 {
            return match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
                e => Err(e),
            };
        }
        Ok(Some(Signal { number: info.ssi_signo.cast_signed(), from_process: info.ssi_code <= 0 }))
    }

    /// Lets the signals through again, for a child between fork and exec.
    pub fn unblock_in_child(&self) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
        let set = signal_set(&self.numbers);
        move || {
            // SAFETY: `set` is an initialised signal set; pthread_sigmask is async-signal-safe.
            match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) } {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

impl std::os::fd::AsFd for Signals {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn signal_set(numbers: &[i32]) -> libc::sigset_t {
    // SAFETY: an all-zero sigset_t is valid storage for sigemptyset.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live local; sigaddset refuses numbers that are not signals.
    unsafe {
        libc::sigemptyset(&raw mut set);
        for number in numbers {
            libc::sigaddset(&raw mut set, *number);
        }
    }
    set
}

/// Runs `hook` in the child of `command` between fork and exec.
///
/// The hook must only make system calls: after fork, other threads' locks may be held for ever.
pub fn before_exec(
    command: &mut std::process::Command,
    hook: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) -> &mut std::process::Command {
    use std::os::unix::process::CommandExt;
    // SAFETY: the callers in this workspace pass hooks made of async-signal-safe system calls only.
    unsafe { command.pre_exec(hook) }
}

/// A range of pages found by `PAGEMAP_SCAN`; the kernel's `struct page_region`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// The categories that were asked for and hold.
    pub categories: u64,
}

/// The kernel's `struct pm_scan_arg` (include/uapi/linux/fs.h, 6.7).
#[repr(C)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `PAGE_IS_PRESENT` and `PAGE_IS_SWAPPED` of `PAGEMAP_SCAN`.
pub const SCAN_PRESENT: u64 = 1 << 3;

/// Ranges of present pages of the process whose pagemap this is, and where the walk stopped (`end` when complete).
/// `ENOTTY` before 6.7.
pub fn scan_present(pagemap: &File, start: u64, end: u64, ranges: &mut [PageRange]) -> io::Result<(usize, u64)> {
    /// `_IOWR('f', 16, struct pm_scan_arg)`.
    const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
    let mut arg = ScanArg {
        size: size_of::<ScanArg>() as u64,
        flags: 0,
        start,
        end,
        walk_end: 0,
        vec: ranges.as_mut_ptr() as u64,
        vec_len: ranges.len() as u64,
        max_pages: 0,
        category_inverted: 0,
        category_mask: SCAN_PRESENT,
        category_anyof_mask: 0,
        return_mask: SCAN_PRESENT,
    };
    // SAFETY: `arg` is a live local laid out as the kernel's struct, and `vec`/`vec_len` describe `ranges`, which is
    // borrowed mutably for the length of the call.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
    usize::try_from(found).map(|found| (found, arg.walk_end)).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_wait_to_be_read() {
        // SIGURG is ignored by default, so a slip cannot end the test runner.
        let signals = Signals::block(&[libc::SIGURG]).unwrap();
        assert_eq!(signals.next().unwrap(), None);
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::URG).unwrap();
        let mut seen = None;
        for _ in 0..100 {
            seen = signals.next().unwrap();
            if seen.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // Another thread of the test runner may have taken the ignored signal; if it came here, it came from a process.
        assert!(seen.is_none_or(|signal| signal == Signal { number: libc::SIGURG, from_process: true }));
    }

    #[test]
    fn own_usage_is_positive() {
        let (cpu, rss) = own_usage();
        assert!(cpu >= 0.0 && rss > 100_000);
    }
}
