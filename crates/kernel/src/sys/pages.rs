//! `PAGEMAP_SCAN` and `process_madvise`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

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
