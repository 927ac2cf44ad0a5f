//! Which pages of a target the sample holds now, and in which frames they are.

use lowtide_model::choice::Choice;
use lowtide_model::cohort::Found;
use lowtide_model::episode::{PageKey, PageKind};
use lowtide_model::units::float;
use lowtide_model::{PAGE, region::Extent};

use crate::lru_gen;
use crate::numa::FrameNodes;
use crate::pagemap::{FrameFile, PageMap, flag};
use crate::proc;
use crate::root::{Error, Kernel, Result, UnlessGone};

/// The files that describe frames.
#[derive(Debug)]
pub struct Frames {
    pub(super) kernel: Kernel,
    flags: FrameFile,
    counts: FrameFile,
    cgroups: Option<FrameFile>,
    /// Whether accesses to unmapped page cache leave a trace that DAMON reads.
    cache_leaves_trace: bool,
    /// Physical ranges of memory, as frame numbers.
    ram: Vec<(u64, u64)>,
    nodes: FrameNodes,
    /// Shared memory counts as anonymous.
    by_lists: bool,
}

/// A mapping with more chosen places than this is searched for populated stretches first.
const SPARSE_PLACES: u64 = 8192;

impl Frames {
    /// Opens what this kernel has.
    pub fn open(kernel: &Kernel) -> Result<Self> {
        let ram = crate::system::ram(kernel)?;
        Ok(Self {
            kernel: kernel.clone(),
            flags: FrameFile::flags(kernel)?,
            counts: FrameFile::counts(kernel)?,
            cgroups: FrameFile::cgroups(kernel).ok(),
            cache_leaves_trace: !mglru_is_on(kernel),
            ram: ram.into_iter().map(|(start, end)| (start / PAGE, end / PAGE)).collect(),
            nodes: FrameNodes::of(kernel),
            by_lists: false,
        })
    }

    /// Kinds as the kernel's LRU lists have them, and so its reclaim: shared memory and tmpfs go to swap, with anonymous memory.
    /// Pages of tmpfs that no process maps are left out.
    #[must_use]
    pub fn by_lists(mut self) -> Self {
        self.by_lists = true;
        self
    }

    /// Whether unmapped page cache of a cgroup can be found and sampled.
    pub fn samples_cache(&self) -> bool {
        self.cgroups.is_some() && !self.ram.is_empty() && self.cache_leaves_trace
    }

    /// Frames of memory in all.
    pub fn ram_frames(&self) -> u64 {
        self.ram.iter().map(|(start, end)| end - start).sum()
    }

    /// The chosen pages that a process has in memory, appended to `out`. A process that ended has none.
    pub fn mapped(&self, pid: u32, choice: Choice, out: &mut Vec<Found>) -> Result<()> {
        let fail = |e| Error::new("read", format!("/proc/{pid}/pagemap"), e);
        let Some((mappings, map)) = address_space(&self.kernel, pid)? else { return Ok(()) };
        for mapping in &mappings {
            let (first, end) = (mapping.start / PAGE, mapping.end / PAGE);
            let mut stretches = Vec::new();
            if (end - first) >> choice.level > SPARSE_PLACES {
                map.populated(first, end, &mut |from, to| stretches.push((from, to))).map_err(fail)?;
            } else {
                stretches.push((first, end));
            }
            let pages = stretches.into_iter().flat_map(|(from, to)| choice.pages_in(from, to));
            for (page, entry) in map.present(pages).map_err(fail)?.into_iter().filter(|(_, entry)| entry.frame() != 0) {
                let may_be_shared_memory = self.by_lists && entry.is_file();
                let needs_flags = may_be_shared_memory || !entry.is_exclusive();
                let flags = if needs_flags { self.flags.value(entry.frame())? } else { None };
                let is_swap_backed = flags.is_some_and(|flags| flags & flag::SWAPBACKED != 0);
                let is_file = entry.is_file() && !(may_be_shared_memory && is_swap_backed);
                let kind = if is_file { PageKind::File } else { PageKind::Anon };
                let share = if entry.is_exclusive() { Some(1.0) } else { self.shared_weight(entry.frame(), flags)? };
                let key = PageKey { space: pid, page };
                let (frame, node) = (entry.frame(), self.nodes.node(entry.frame()));
                out.extend(share.map(|share| Found { key, kind, frame, node, share, allocated_s: None }));
            }
        }
        Ok(())
    }

    /// 1 / number of mappings of a frame; `None` for frames that are no ordinary memory: the zero page, device memory,
    /// hugetlbfs (which DAMON cannot sample).
    fn shared_weight(&self, frame: u64, flags: Option<u64>) -> Result<Option<f64>> {
        let Some(flags) = flags else { return Ok(None) };
        if flags & (flag::ZERO_PAGE | flag::RESERVED | flag::HUGE | flag::NOPAGE) != 0 {
            return Ok(None);
        }
        Ok(Some(1.0 / float(self.counts.value(frame)?.unwrap_or(1).max(1))))
    }

    /// The chosen frames that hold page cache charged to one of `cgroups` and mapped by no process. Reads one entry per
    /// chosen frame of the machine.
    pub fn cache(&self, cgroups: &[u64], choice: Choice, out: &mut Vec<Found>) -> Result<()> {
        for frame in self.chosen(choice) {
            out.extend(self.cache_frame(cgroups, frame)?);
        }
        Ok(())
    }

    /// The page in a frame, if it (still) is unmapped page cache of one of `cgroups`.
    pub fn cache_frame(&self, cgroups: &[u64], frame: u64) -> Result<Option<Found>> {
        let Some(file) = &self.cgroups else { return Ok(None) };
        if !file.value(frame)?.is_some_and(|inode| inode != 0 && cgroups.contains(&inode)) {
            return Ok(None);
        }
        let flags = self.flags.value(frame)?.unwrap_or(flag::NOPAGE);
        let left_out = self.by_lists && flags & flag::SWAPBACKED != 0;
        Ok((kind_of(flags) == Some(PageKind::Cache) && !left_out).then_some(frame_found(frame, PageKind::Cache)))
    }

    /// The chosen frames of the machine that reclaim could take.
    pub fn all(&self, choice: Choice, out: &mut Vec<Found>) -> Result<()> {
        for frame in self.chosen(choice) {
            let flags = self.flags.value(frame)?.unwrap_or(flag::NOPAGE);
            let kind = kind_of(flags).filter(|kind| *kind != PageKind::Cache || self.cache_leaves_trace);
            out.extend(kind.map(|kind| frame_found(frame, kind)));
        }
        Ok(())
    }

    fn chosen(&self, choice: Choice) -> impl Iterator<Item = u64> {
        self.ram.iter().flat_map(move |(start, end)| choice.pages_in(*start, *end))
    }
}

/// With the multi-generational LRU, `read` and `write` count a use of the page cache in a way of its own
/// (`folio_mark_accessed` returns before it clears the idle flag), and DAMON does not sample it.
fn mglru_is_on(kernel: &Kernel) -> bool {
    lru_gen::switch(kernel).is_ok_and(|bits| bits & 1 == 1)
}

fn kind_of(flags: u64) -> Option<PageKind> {
    if flags & flag::LRU == 0 || flags & flag::NOPAGE != 0 {
        None
    } else if flags & flag::ANON != 0 {
        Some(PageKind::Anon)
    } else if flags & flag::MMAP != 0 {
        Some(PageKind::File)
    } else {
        Some(PageKind::Cache)
    }
}

/// A page that is known by its frame, and so never moves.
fn frame_found(frame: u64, kind: PageKind) -> Found {
    Found { key: PageKey { space: 0, page: frame }, kind, frame, node: 0, share: 1.0, allocated_s: None }
}

/// The mappings and the page table of a process; `None` if it has ended.
fn address_space(kernel: &Kernel, pid: u32) -> Result<Option<(Vec<proc::Mapping>, PageMap)>> {
    proc::mappings(kernel, pid).and_then(|mappings| Ok((mappings, PageMap::open(kernel, pid)?))).unless_gone()
}

/// At most so many extents are kept; a target so scattered that it has more loses its shortest ones.
const EXTENTS: usize = 32_768;

/// Where a target's memory is, physically.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    /// In order of physical address.
    pub extents: Vec<Extent>,
    /// Mappings by process.
    pub names: Vec<(u32, proc::Mapping)>,
    /// Bytes of extents left out because there were too many.
    pub lost_bytes: u64,
}

/// Where a target's memory is now, physically.
pub fn layout(kernel: &Kernel, pids: &[u32]) -> Result<Layout> {
    let Layout { mut extents, mut names, mut lost_bytes } = Layout::default();
    for pid in pids {
        let fail = |e| Error::new("read", format!("/proc/{pid}/pagemap"), e);
        let Some((mappings, map)) = address_space(kernel, *pid)? else { continue };
        for mapping in mappings {
            map.extents(*pid, mapping.start / PAGE, mapping.end / PAGE, &mut extents).map_err(fail)?;
            lost_bytes += thin(&mut extents);
            names.push((*pid, mapping));
        }
    }
    extents.sort_unstable_by_key(|extent| extent.phys);
    Ok(Layout { extents, names, lost_bytes })
}

/// Drops the shortest extents where there are too many; returns the bytes dropped.
fn thin(extents: &mut Vec<Extent>) -> u64 {
    let mut lost = 0;
    let mut shortest = PAGE;
    while extents.len() > EXTENTS {
        extents.retain(|extent| {
            let keep = extent.len > shortest;
            lost += if keep { 0 } else { extent.len };
            keep
        });
        shortest *= 2;
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_by_flags() {
        assert_eq!(kind_of(flag::LRU | flag::ANON | flag::MMAP), Some(PageKind::Anon));
        assert_eq!(kind_of(flag::LRU | flag::MMAP), Some(PageKind::File));
        assert_eq!(kind_of(flag::LRU), Some(PageKind::Cache));
        assert_eq!(kind_of(flag::ANON), None);
    }

    /// A process with a page of a file, of shared memory and of its own, and a page of tmpfs that nobody maps, all charged to
    /// cgroup 7.
    fn tree() -> (tempfile::TempDir, Kernel) {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            std::fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(name), bytes).unwrap();
        };
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let (present, file, once) = (1 << 63, 1 << 61, 1 << 56);
        write("proc/5/maps", b"00001000-00004000 rw-s 00000000 00:01 9 /memfd:cache (deleted)\n");
        write("proc/5/pagemap", &words(&[0, present | file | once | 1, present | file | once | 2, present | once | 3]));
        let (mapped, swap) = (flag::LRU | flag::MMAP, flag::SWAPBACKED);
        write("proc/kpageflags", &words(&[0, mapped, mapped | swap, mapped | swap | flag::ANON, flag::LRU | swap]));
        write("proc/kpagecount", &words(&[0, 1, 1, 1, 0]));
        write("proc/kpagecgroup", &words(&[0, 7, 7, 7, 7]));
        write("proc/iomem", b"00000000-00004fff : System RAM\n");
        let kernel = Kernel::at(dir.path());
        (dir, kernel)
    }

    #[test]
    fn shared_memory_is_anonymous_by_the_kernels_lists_and_else_file() {
        let (_dir, kernel) = tree();
        let all = Choice { level: 0, seed: 0, turn: 0 };
        let kinds = |frames: &Frames| {
            let mut found = Vec::new();
            frames.mapped(5, all, &mut found).unwrap();
            let mapped: Vec<PageKind> = found.iter().map(|page| page.kind).collect();
            (mapped, frames.cache_frame(&[7], 4).unwrap().map(|page| page.kind))
        };
        let frames = Frames::open(&kernel).unwrap();
        assert_eq!(kinds(&frames), (vec![PageKind::File, PageKind::File, PageKind::Anon], Some(PageKind::Cache)));
        assert_eq!(kinds(&frames.by_lists()), (vec![PageKind::File, PageKind::Anon, PageKind::Anon], None));
    }

    #[test]
    fn thinning_drops_the_shortest() {
        let mut extents: Vec<Extent> = (0..40_000)
            .map(|i| Extent { pid: 1, virt: i << 20, phys: i << 20, len: if i % 4 == 0 { 8192 } else { 4096 } })
            .collect();
        let lost = thin(&mut extents);
        assert_eq!((extents.len(), lost), (10_000, 30_000 * 4096));
    }
}
