//! System calls that neither std nor rustix wraps. The only module with `unsafe`.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lowtide_model::units::float;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal as Number};
use nix::sys::signalfd::{SfdFlags, SignalFd};

mod area;
mod pages;

pub use area::Area;
pub use pages::{Advice, PageRange, SCAN_PRESENT, SCAN_SWAPPED, process_madvise, scan_pages};

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
    pub fn code(&self) -> i32 {
        if libc::WIFSIGNALED(self.status) { 128 + libc::WTERMSIG(self.status) } else { libc::WEXITSTATUS(self.status) }
    }
}

/// The result of [`reap`].
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

/// User plus system CPU seconds of this process.
pub fn own_cpu_s() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| cpu_s(&usage))
}

/// CPU time of the calling thread, seconds.
pub fn thread_cpu_s() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default().as_secs_f64()
}

/// A copy of a descriptor that this process was started with; it is closed when a program is executed. Fails if there is none of
/// that number.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is borrowed for the call below only, which refuses a number without a descriptor.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(rustix::io::fcntl_dupfd_cloexec(descriptor, 0)?)
}

/// What the children of this process used that ended and were waited for.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChildrenUsage {
    /// Faults without I/O.
    pub minor_faults: u64,
    /// Faults with I/O.
    pub major_faults: u64,
    /// User plus system CPU seconds.
    pub cpu_s: f64,
}

/// What the children of this process used that ended and were waited for.
pub fn children_usage() -> ChildrenUsage {
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or_else(
        |_| ChildrenUsage::default(),
        |usage| ChildrenUsage {
            minor_faults: u64::try_from(usage.minor_page_faults()).unwrap_or(0),
            major_faults: u64::try_from(usage.major_page_faults()).unwrap_or(0),
            cpu_s: cpu_s(&usage),
        },
    )
}

/// Page faults with I/O of the calling thread so far.
pub fn thread_major_faults() -> u64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| u64::try_from(usage.major_page_faults()).unwrap_or(0))
}

fn cpu_s(usage: &Usage) -> f64 {
    let times = [usage.user_time(), usage.system_time()];
    times.into_iter().map(|time| float(time.tv_sec()) + float(time.tv_usec()) / 1e6).sum()
}

/// A signal as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// Whether a process sent it. The terminal's Ctrl-C is sent by the kernel, to the entire foreground group.
    pub from_process: bool,
}

/// Signals as a file: they no longer interrupt this process but wait to be read.
#[derive(Debug)]
pub struct Signals {
    file: SignalFd,
    set: SigSet,
}

impl Signals {
    /// Blocks `numbers` and opens a file from which they can be read, without waiting.
    pub fn block(numbers: &[i32]) -> io::Result<Self> {
        let set = numbers.iter().map(|number| Number::try_from(*number)).collect::<nix::Result<SigSet>>()?;
        set.thread_block()?;
        let file = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { file, set })
    }

    /// The next signal, if one is waiting.
    pub fn next(&self) -> io::Result<Option<Signal>> {
        let info = self.file.read_signal()?;
        Ok(info.map(|info| Signal { number: info.ssi_signo.cast_signed(), from_process: info.ssi_code <= 0 }))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Has the child of `command` unblock these signals and move itself into the cgroup whose open `cgroup.procs` is given,
/// between fork and exec: not one page of the program is charged elsewhere.
pub fn prepare_child(command: &mut Command, signals: &Signals, procs: Option<File>) {
    let set = signals.set;
    let hook = move || {
        if let Some(procs) = &procs {
            (&*procs).write_all(b"0")?;
        }
        Ok(set.thread_unblock()?)
    };
    // SAFETY: the hook calls write(2) and pthread_sigmask(3), both async-signal-safe, and allocates nothing.
    unsafe { command.pre_exec(hook) };
}

/// Drops this program's code from its resident set: what is still used comes back from the page cache, page by page.
pub fn forget_code() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for line in maps.lines().filter(|line| line.contains(" r-xp ") && line.contains(" /")) {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let address = |text: &str| usize::from_str_radix(text, 16).ok();
        if let Some((start, end)) = range.and_then(|(a, b)| address(a).zip(address(b))) {
            let start = std::ptr::with_exposed_provenance_mut::<libc::c_void>(start);
            // SAFETY: pages of a read-only file mapping are the file's; dropping them changes nothing that
            // could be read. It is advice: a failure leaves everything as it was.
            unsafe { libc::madvise(start, end - start.addr(), libc::MADV_DONTNEED) };
        }
    }
}

/// Swaps to a device from now on. `priority` 0..=32767: the highest is filled first, and every explicit one is above
/// devices without.
pub fn swap_on(device: &Path, priority: u16) -> io::Result<()> {
    /// `SWAP_FLAG_PREFER` and the mask of the priority (include/linux/swap.h).
    const PREFER: i32 = 0x8000;
    const PRIORITY: i32 = 0x7fff;
    let path = CString::new(device.as_os_str().as_bytes())?;
    // SAFETY: `path` is a NUL-terminated string that lives as long as the call.
    check(unsafe { libc::swapon(path.as_ptr(), PREFER | i32::from(priority) & PRIORITY) })
}

/// Ends swapping to a device; what it holds is brought back into memory first.
pub fn swap_off(device: &Path) -> io::Result<()> {
    let path = CString::new(device.as_os_str().as_bytes())?;
    // SAFETY: `path` is a NUL-terminated string that lives as long as the call.
    check(unsafe { libc::swapoff(path.as_ptr()) })
}

/// The error that a system call left where it did not return 0.
fn check(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
        let mut received = None;
        for _ in 0..100 {
            received = signals.next().unwrap();
            if received.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // Another thread of the test runner may have taken the ignored signal; if it came here, it came from a process.
        assert!(received.is_none_or(|signal| signal == Signal { number: libc::SIGURG, from_process: true }));
    }

    #[test]
    fn own_cpu_time_grows() {
        let before = own_cpu_s();
        let mut sum = 0u64;
        while own_cpu_s() <= before && sum < 1 << 40 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(own_cpu_s() > before);
    }

    #[test]
    fn an_area_can_be_filled_touched_and_asked_about() {
        let area = Area::anonymous(16, |page, bytes| bytes[0] = u8::try_from(page).unwrap()).unwrap();
        assert_eq!((0..16).map(|page| area.touch(page)).sum::<u8>(), 120);
        assert_eq!(area.resident().unwrap(), [true; 16]);
        assert!(area.first_page() > 0);
    }

    #[test]
    fn a_path_that_is_no_swap_device_is_refused() {
        assert!(swap_on(Path::new("/proc/self/status"), 0).is_err());
        assert!(swap_off(Path::new("/proc/self/status")).is_err());
    }
}
