//! The one file with `unsafe`: system calls that neither std nor rustix wraps.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

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

/// User plus system CPU seconds of this process.
pub fn own_cpu_s() -> f64 {
    cpu_of(&usage_of(libc::RUSAGE_SELF))
}

/// CPU time of the calling thread, seconds.
pub fn thread_cpu_s() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "CPU time of one thread")]
    let seconds = now.tv_sec as f64 + now.tv_nsec as f64 / 1e9;
    seconds
}

/// Minor and major faults, and CPU seconds, of the children of this process that ended and were waited for.
pub fn children_usage() -> ([u64; 2], f64) {
    let usage = usage_of(libc::RUSAGE_CHILDREN);
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    ([count(usage.ru_minflt), count(usage.ru_majflt)], cpu_of(&usage))
}

/// What `who`, one of the `RUSAGE_*` constants, has used.
fn usage_of(who: libc::c_int) -> libc::rusage {
    // SAFETY: an all-zero rusage is a valid value of that plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live local; with a valid pointer and one of the constants the call cannot fail.
    unsafe { libc::getrusage(who, &raw mut usage) };
    usage
}

#[expect(clippy::cast_precision_loss, reason = "CPU seconds are far below 2^52")]
fn cpu_of(usage: &libc::rusage) -> f64 {
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
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
    fn unblock_in_child(&self) -> impl Fn() -> io::Result<()> + Send + Sync + 'static {
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

/// Has the child of `command` let these signals through again, and move itself into the cgroup whose open `cgroup.procs` is
/// given, between fork and exec: not one page of the program is charged elsewhere.
pub fn prepare_child(command: &mut std::process::Command, signals: &Signals, procs: Option<File>) {
    use std::io::Write;
    let unblock = signals.unblock_in_child();
    let hook = move || {
        if let Some(procs) = &procs {
            (&*procs).write_all(b"0")?;
        }
        unblock()
    };
    // SAFETY: the hook calls write(2) and pthread_sigmask(3), both async-signal-safe, and allocates nothing.
    unsafe { before_exec(command, hook) }
}

/// Runs `hook` in the child of `command` between fork and exec.
///
/// # Safety
/// The hook must be async-signal-safe: after fork, other threads' locks may be held for ever.
unsafe fn before_exec(command: &mut std::process::Command, hook: impl Fn() -> io::Result<()> + Send + Sync + 'static) {
    use std::os::unix::process::CommandExt;
    // SAFETY: the caller's contract is that of pre_exec.
    unsafe { command.pre_exec(hook) };
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

/// `PAGE_IS_PRESENT` of `PAGEMAP_SCAN`.
pub const SCAN_PRESENT: u64 = 1 << 3;
/// `PAGE_IS_SWAPPED` of `PAGEMAP_SCAN`.
pub const SCAN_SWAPPED: u64 = 1 << 4;

/// Ranges of pages in any of the `categories` of the process whose pagemap this is, filled into `ranges`, and where the
/// walk of `within` stopped (its end when complete). `ENOTTY` before 6.7.
pub fn scan_pages(
    pagemap: &File,
    within: (u64, u64),
    categories: u64,
    ranges: &mut [PageRange],
) -> io::Result<(usize, u64)> {
    /// `_IOWR('f', 16, struct pm_scan_arg)`.
    const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
    let mut arg = ScanArg {
        size: size_of::<ScanArg>() as u64,
        flags: 0,
        start: within.0,
        end: within.1,
        walk_end: 0,
        vec: ranges.as_mut_ptr() as u64,
        vec_len: ranges.len() as u64,
        max_pages: 0,
        category_inverted: 0,
        category_mask: 0,
        category_anyof_mask: categories,
        return_mask: categories,
    };
    // SAFETY: `arg` is a live local laid out as the kernel's struct, and `vec`/`vec_len` describe `ranges`, which is
    // borrowed mutably for the length of the call.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
    usize::try_from(found).map(|found| (found, arg.walk_end)).map_err(|_| io::Error::last_os_error())
}

/// Advice to `process_madvise(2)`. None of it changes what memory holds, so it is safe on any address of any process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Advice {
    /// Bring in.
    Willneed = libc::MADV_WILLNEED,
    /// Reclaim before others.
    Cold = libc::MADV_COLD,
    /// Reclaim now, used or not.
    Pageout = libc::MADV_PAGEOUT,
    /// Make huge pages of it.
    Collapse = libc::MADV_COLLAPSE,
}

/// Advises the kernel on address ranges (first byte, one past the last) of a process; returns how many bytes were advised.
/// The kernel takes at most 1,024 ranges and 2 GiB in one call, and stops at the first range it cannot advise.
pub fn process_madvise(process: BorrowedFd<'_>, ranges: &[(u64, u64)], advice: Advice) -> io::Result<u64> {
    let address = |at: u64| usize::try_from(at).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let ranges = ranges.iter().map(|(start, end)| {
        let iov_base = std::ptr::without_provenance_mut(address(*start)?);
        Ok(libc::iovec { iov_base, iov_len: address(*end)?.saturating_sub(address(*start)?) })
    });
    let ranges = ranges.collect::<io::Result<Vec<libc::iovec>>>()?;
    // SAFETY: `ranges` is alive for the length of the call; the addresses are another process' or advice that leaves
    // the contents of memory alone, so nothing is read or written through them here.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            ranges.as_ptr(),
            ranges.len(),
            advice as libc::c_int,
            0 as libc::c_uint,
        )
    };
    u64::try_from(advised).map_err(|_| io::Error::last_os_error())
}

/// Gives back the memory of this program's code: what is still needed comes back from the page cache, page by page, and
/// what only served to start does not.
pub fn forget_code() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for line in maps.lines().filter(|line| line.contains(" r-xp ") && line.contains(" /")) {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let address = |text: &str| usize::from_str_radix(text, 16).ok();
        if let Some((start, end)) = range.and_then(|(a, b)| address(a).zip(address(b))) {
            let start = std::ptr::with_exposed_provenance_mut::<libc::c_void>(start);
            // SAFETY: pages of a file mapping that nobody can write to are the file's; dropping them changes nothing that
            // could be read. It is advice: a failure leaves everything as it was.
            unsafe { libc::madvise(start, end - start.addr(), libc::MADV_DONTNEED) };
        }
    }
}

/// Page faults with I/O of the calling thread so far.
pub fn thread_major_faults() -> u64 {
    u64::try_from(usage_of(libc::RUSAGE_THREAD).ru_majflt).unwrap_or(0)
}

/// Pages of this process that are mapped only to be evicted and touched again; unmapped when dropped.
#[derive(Debug)]
pub struct Area {
    start: NonNull<u8>,
    pages: usize,
}

impl Area {
    const PAGE: usize = 4096;

    /// Private memory in base pages, each written by `fill` (page index, its bytes).
    pub fn anonymous(pages: usize, mut fill: impl FnMut(usize, &mut [u8])) -> io::Result<Self> {
        let area = Self::map(pages, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        // A kernel without huge pages says EINVAL, which is what is wanted.
        let _ = area.advise(libc::MADV_NOHUGEPAGE);
        for page in 0..pages {
            // SAFETY: the page lies inside the mapping, which is writable and known to nobody else yet.
            fill(page, unsafe { std::slice::from_raw_parts_mut(area.page(page), Self::PAGE) });
        }
        Ok(area)
    }

    /// The first pages of a file, not read ahead. The file must not be cut short while this lives: a touch beyond its
    /// end is a SIGBUS.
    pub fn file(file: &File, pages: usize) -> io::Result<Self> {
        let area = Self::map(pages, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd())?;
        area.advise(libc::MADV_RANDOM)?;
        Ok(area)
    }

    fn map(pages: usize, protection: i32, flags: i32, fd: i32) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), pages * Self::PAGE, protection, flags, fd, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(first) if start != libc::MAP_FAILED => Ok(Self { start: first, pages }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Address of the first byte.
    pub fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    fn page(&self, page: usize) -> *mut u8 {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        // SAFETY: the offset was checked to lie inside the mapping.
        unsafe { self.start.as_ptr().add(page * Self::PAGE) }
    }

    /// Reads one byte of a page, which brings the page in.
    pub fn touch(&self, page: usize) -> u8 {
        // SAFETY: the page lies inside the mapping, which is readable and lives as long as `self`.
        unsafe { self.page(page).read_volatile() }
    }

    /// Asks the kernel to reclaim all of it now.
    pub fn page_out(&self) -> io::Result<()> {
        self.advise(libc::MADV_PAGEOUT)
    }

    fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the range is this mapping; the callers here pass advice that leaves its contents alone.
        match unsafe { libc::madvise(self.start.as_ptr().cast(), self.pages * Self::PAGE, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Which pages are in memory, be it mapped here or in the page or swap cache.
    pub fn resident(&self) -> io::Result<Vec<bool>> {
        let mut found = vec![0u8; self.pages];
        // SAFETY: the range is this mapping and `found` has one byte for each of its pages.
        match unsafe { libc::mincore(self.start.as_ptr().cast(), self.pages * Self::PAGE, found.as_mut_ptr()) } {
            0 => Ok(found.iter().map(|byte| byte & 1 == 1).collect()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map`, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.pages * Self::PAGE) };
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
    match unsafe { libc::swapon(path.as_ptr(), PREFER | i32::from(priority) & PRIORITY) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends swapping to a device; what it holds is brought back into memory first.
pub fn swap_off(device: &Path) -> io::Result<()> {
    let path = CString::new(device.as_os_str().as_bytes())?;
    // SAFETY: `path` is a NUL-terminated string that lives as long as the call.
    match unsafe { libc::swapoff(path.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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
        assert!(area.address().is_multiple_of(4096));
    }

    #[test]
    fn a_path_that_is_no_swap_device_is_refused() {
        assert!(swap_on(Path::new("/proc/self/status"), 0).is_err());
        assert!(swap_off(Path::new("/proc/self/status")).is_err());
    }
}
