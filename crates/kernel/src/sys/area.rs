//! Memory that is mapped only to be evicted and touched again.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use super::check;

/// Pages of this process; unmapped when dropped.
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
            // SAFETY: the page lies inside the mapping, which is writable and not shared with other code yet.
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

    /// Number of its first page in this process' address space.
    pub fn first_page(&self) -> u64 {
        (self.start.as_ptr().addr() / Self::PAGE) as u64
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
        check(unsafe { libc::madvise(self.start.as_ptr().cast(), self.pages * Self::PAGE, advice) })
    }

    /// Which pages are in memory, be it mapped here or in the page or swap cache.
    pub fn resident(&self) -> io::Result<Vec<bool>> {
        let mut found = vec![0u8; self.pages];
        // SAFETY: the range is this mapping and `found` has one byte for each of its pages.
        check(unsafe { libc::mincore(self.start.as_ptr().cast(), self.pages * Self::PAGE, found.as_mut_ptr()) })?;
        Ok(found.iter().map(|byte| byte & 1 == 1).collect())
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map`, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.pages * Self::PAGE) };
    }
}
