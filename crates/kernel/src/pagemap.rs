//! `/proc/PID/pagemap`, `/proc/kpageflags`, `kpagecount`, `kpagecgroup`: which frame holds which page, and whose it is.
//!
//! A file opened here stays bound to the memory it was opened for: when the process is gone, reads give nothing, and a
//! later process with the same pid is never read through it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use lowtide_model::PAGE;
use lowtide_model::region::Extent;

use crate::root::{Error, Kernel, Result};
use crate::sys::{self, PageRange};

/// One entry of pagemap (Documentation/admin-guide/mm/pagemap.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry(pub u64);

impl Entry {
    /// In memory.
    pub fn is_present(self) -> bool {
        self.0 >> 63 == 1
    }

    /// Paged out: its contents are in swap. Shared memory that was paged out has an empty entry instead.
    pub fn is_swapped(self) -> bool {
        self.0 >> 62 & 1 == 1
    }

    /// File page or shared memory.
    pub fn is_file(self) -> bool {
        self.0 >> 61 & 1 == 1
    }

    /// Mapped exactly once.
    pub fn is_exclusive(self) -> bool {
        self.0 >> 56 & 1 == 1
    }

    /// The frame; 0 without `CAP_SYS_ADMIN`.
    pub fn frame(self) -> u64 {
        self.0 & ((1 << 55) - 1)
    }
}

/// The page table of one process.
#[derive(Debug)]
pub struct PageMap {
    file: File,
}

/// How many bytes of address space one `read_chunk` covers: 8 KiB of entries.
const CHUNK_PAGES: usize = 1024;
/// Pages of one page table (x86-64, arm64 with pages of 4 KiB).
const TABLE_PAGES: u64 = 512;

impl PageMap {
    /// Opens a process' page table.
    pub fn open(kernel: &Kernel, pid: u32) -> Result<Self> {
        Ok(Self { file: kernel.open(format!("/proc/{pid}/pagemap"))? })
    }

    /// The entry of one page (by page number); not present if the process is gone.
    pub fn entry(&self, page: u64) -> io::Result<Entry> {
        let mut bytes = [0; 8];
        match self.file.read_exact_at(&mut bytes, page * 8) {
            Ok(()) => Ok(Entry(u64::from_ne_bytes(bytes))),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(Entry(0)),
            Err(e) => Err(e),
        }
    }

    /// Those of `pages`, ascending page numbers, that are present, with their entries. Each page table is read once: the kernel
    /// walks it to its end, however little of it is asked for (`pagemap_read` in fs/proc/task_mmu.c).
    pub fn present(&self, pages: impl Iterator<Item = u64>) -> io::Result<Vec<(u64, Entry)>> {
        let (mut table, mut read) = (Vec::new(), 0..0);
        let mut present = Vec::new();
        for page in pages {
            if !read.contains(&page) {
                let end = (page / TABLE_PAGES + 1) * TABLE_PAGES;
                table.clear();
                self.entries(page, end, &mut |at, entry| table.push((at, entry)))?;
                read = page..end;
            }
            let found = table.binary_search_by_key(&page, |(at, _)| *at).map(|at| table[at]);
            present.extend(found.ok().filter(|(_, entry)| entry.is_present()));
        }
        Ok(present)
    }

    /// Calls `visit(first, end)` with ranges of page numbers in `first..end` that hold present pages. Before 6.7, which
    /// has no `PAGEMAP_SCAN`, entries are read one by one.
    pub fn populated(&self, first: u64, end: u64, visit: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        self.ranges(first, end, sys::SCAN_PRESENT, visit)
    }

    /// Calls `visit(page, entry)` for every page in `first..end` that is present or paged out. A range without either is
    /// skipped at once where the kernel has `PAGEMAP_SCAN`: a reservation may span terabytes.
    pub fn each_held(&self, first: u64, end: u64, visit: &mut dyn FnMut(u64, Entry)) -> io::Result<()> {
        let mut held = Vec::new();
        self.ranges(first, end, sys::SCAN_PRESENT | sys::SCAN_SWAPPED, &mut |from, to| held.push((from, to)))?;
        held.iter().try_for_each(|(from, to)| self.entries(*from, *to, visit))
    }

    /// Ranges of page numbers in `first..end` of pages in any of the categories of `PAGEMAP_SCAN`.
    fn ranges(&self, first: u64, end: u64, categories: u64, visit: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        let mut ranges = [PageRange::default(); 256];
        let (mut at, stop) = (first * PAGE, end * PAGE);
        while at < stop {
            match sys::scan_pages(&self.file, (at, stop), categories, &mut ranges) {
                Ok((found, walked)) => {
                    for range in &ranges[..found] {
                        visit(range.start / PAGE, range.end / PAGE);
                    }
                    if walked <= at {
                        break;
                    }
                    at = walked;
                }
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
                    let swapped = categories & sys::SCAN_SWAPPED != 0;
                    return self.entries(at / PAGE, end, &mut |page, entry| {
                        if swapped || entry.is_present() {
                            visit(page, page + 1);
                        }
                    });
                }
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Calls `visit(page, entry)` for every present page in `first..end`.
    pub fn each_present(&self, first: u64, end: u64, visit: &mut dyn FnMut(u64, Entry)) -> io::Result<()> {
        self.entries(first, end, &mut |page, entry| {
            if entry.is_present() {
                visit(page, entry);
            }
        })
    }

    /// Calls `visit(page, entry)` for every page in `first..end` that is present or paged out, reading all entries.
    fn entries(&self, first: u64, end: u64, visit: &mut dyn FnMut(u64, Entry)) -> io::Result<()> {
        let mut bytes = [0; 8 * CHUNK_PAGES];
        let mut page = first;
        while page < end {
            let want = 8 * usize::try_from(end - page).unwrap_or(CHUNK_PAGES).min(CHUNK_PAGES);
            let got = self.file.read_at(&mut bytes[..want], page * 8)?;
            if got < 8 {
                return Ok(());
            }
            for (at, chunk) in (page..).zip(bytes[..got].chunks_exact(8)) {
                let entry = Entry(chunk.try_into().map_or(0, u64::from_ne_bytes));
                if entry.is_present() || entry.is_swapped() {
                    visit(at, entry);
                }
            }
            page += u64::try_from(got / 8).unwrap_or(u64::MAX);
        }
        Ok(())
    }

    /// The physically contiguous stretches of a range of pages, appended to `out`.
    pub fn extents(&self, pid: u32, first: u64, end: u64, out: &mut Vec<Extent>) -> io::Result<()> {
        let mut present = Vec::new();
        self.populated(first, end, &mut |from, to| present.push((from, to)))?;
        for (from, to) in present {
            self.each_present(from, to, &mut |page, entry| {
                let (virt, phys) = (page * PAGE, entry.frame() * PAGE);
                match out.last_mut() {
                    Some(last) if last.pid == pid && last.virt + last.len == virt && last.phys + last.len == phys => {
                        last.len += PAGE;
                    }
                    _ => out.push(Extent { pid, virt, phys, len: PAGE }),
                }
            })?;
        }
        Ok(())
    }
}

/// Bits of `/proc/kpageflags` (include/uapi/linux/kernel-page-flags.h).
pub mod flag {
    /// On an LRU list.
    pub const LRU: u64 = 1 << 5;
    /// Mapped by a process.
    pub const MMAP: u64 = 1 << 11;
    /// Anonymous.
    pub const ANON: u64 = 1 << 12;
    /// Goes to swap when it is evicted: anonymous, shared memory, tmpfs.
    pub const SWAPBACKED: u64 = 1 << 14;
    /// hugetlbfs: not on an LRU list, DAMON cannot sample it.
    pub const HUGE: u64 = 1 << 17;
    /// No page here.
    pub const NOPAGE: u64 = 1 << 20;
    /// Part of a transparent huge page.
    pub const THP: u64 = 1 << 22;
    /// The shared page of zeros behind anonymous memory that was only read.
    pub const ZERO_PAGE: u64 = 1 << 24;
    /// Reserved: not the process' memory (device memory, vDSO).
    pub const RESERVED: u64 = 1 << 32;
}

/// One of the per-frame files: a `u64` for every frame.
#[derive(Debug)]
pub struct FrameFile {
    file: File,
    path: &'static str,
}

impl FrameFile {
    fn open(kernel: &Kernel, path: &'static str) -> Result<Self> {
        Ok(Self { file: kernel.open(path)?, path })
    }

    /// `/proc/kpageflags`.
    pub fn flags(kernel: &Kernel) -> Result<Self> {
        Self::open(kernel, "/proc/kpageflags")
    }

    /// `/proc/kpagecount`: how often each frame is mapped.
    pub fn counts(kernel: &Kernel) -> Result<Self> {
        Self::open(kernel, "/proc/kpagecount")
    }

    /// `/proc/kpagecgroup`: inode of the memory cgroup each frame is charged to.
    pub fn cgroups(kernel: &Kernel) -> Result<Self> {
        Self::open(kernel, "/proc/kpagecgroup")
    }

    /// The value of one frame; `None` beyond the last frame.
    pub fn value(&self, frame: u64) -> Result<Option<u64>> {
        let mut bytes = [0; 8];
        match self.file.read_exact_at(&mut bytes, frame * 8) {
            Ok(()) => Ok(Some(u64::from_ne_bytes(bytes))),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(Error::new("read", self.path, e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn own_pages_are_found_in_memory() {
        let kernel = Kernel::default();
        let data = vec![1u8; 1 << 20];
        let first = (data.as_ptr() as u64).div_ceil(PAGE);
        let map = PageMap::open(&kernel, std::process::id()).unwrap();
        let mut pages = 0;
        map.populated(first, first + 255, &mut |from, to| pages += to - from).unwrap();
        assert_eq!(pages, 255);
        let mut present = 0;
        map.each_present(first, first + 255, &mut |_, entry| present += u64::from(!entry.is_file())).unwrap();
        assert_eq!(present, 255);
        let mut held = 0;
        map.each_held(first, first + 255, &mut |_, entry| held += u64::from(!entry.is_swapped())).unwrap();
        assert_eq!(held, 255);
        let mut extents = Vec::new();
        map.extents(1, first, first + 255, &mut extents).unwrap();
        assert_eq!(extents.iter().map(|e| e.len).sum::<u64>(), 255 * PAGE);
    }

    proptest! {
        /// What is read a page table at a time is what is read page by page, past the end of the file, too.
        #[test]
        fn pages_are_found_by_tables(entries: Vec<u64>, pages in proptest::collection::btree_set(0..3000_u64, 0..200)) {
            let dir = tempfile::tempdir().unwrap();
            let bytes: Vec<u8> = entries.iter().cycle().take(20 * entries.len()).flat_map(|entry| entry.to_ne_bytes()).collect();
            std::fs::create_dir_all(dir.path().join("proc/5")).unwrap();
            std::fs::write(dir.path().join("proc/5/pagemap"), bytes).unwrap();
            let map = PageMap::open(&Kernel::at(dir.path()), 5).unwrap();
            let one_by_one = pages.iter().map(|page| (*page, map.entry(*page).unwrap()));
            let expected: Vec<(u64, Entry)> = one_by_one.filter(|(_, entry)| entry.is_present()).collect();
            prop_assert_eq!(map.present(pages.iter().copied()).unwrap(), expected);
        }
    }
}
