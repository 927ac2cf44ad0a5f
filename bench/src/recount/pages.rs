//! Pages of a process tree in memory and paged out, and what was touched between two readings. Pure except for
//! [`TreePages::read`].

use std::collections::{HashMap, HashSet};

use lowtide_kernel::pagemap::{Entry, FrameFile, PageMap, flag};
use lowtide_kernel::proc;
use lowtide_kernel::root::{Kernel, Result};
use lowtide_model::PAGE;
use lowtide_model::units::count;
use serde::Serialize;

/// Base pages in a huge page.
const HUGE_PAGES: u64 = 512;

/// A page: process id and page number.
type Place = (u32, u64);

/// All pages of a tree that are present or paged out at one moment, ascending.
#[derive(Debug, Default)]
pub struct TreePages {
    pages: Vec<(Place, Entry)>,
}

/// Bytes that are in memory. After the eviction they are locked, or mapped by other programs as well: used or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Kept {
    pub anon_bytes: u64,
    pub file_bytes: u64,
}

/// Bytes that were touched since the eviction. A page that several processes map counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Touched {
    /// Anonymous, in memory or paged out before, by pages of 4 KiB.
    pub anon_reused_bytes: u64,
    /// The same, with each huge page of before counted completely: it has one accessed bit.
    pub anon_reused_whole_bytes: u64,
    /// Anonymous, not mapped before.
    pub anon_first_bytes: u64,
    /// Files mapped before: at least, and at most (a fault maps neighbours in the page cache too).
    pub file_reused_bytes: [u64; 2],
    /// Files not mapped before: at least, and at most.
    pub file_first_bytes: [u64; 2],
}

impl Touched {
    /// At least so much was used.
    pub fn low(&self) -> u64 {
        self.anonymous() + self.files()[0]
    }

    /// At most so much was used: complete huge pages, what faults on files mapped besides, and all that could not be
    /// evicted.
    pub fn high(&self, kept: Kept) -> u64 {
        self.anon_reused_whole_bytes + self.anon_first_bytes + self.files()[1] + kept.anon_bytes + kept.file_bytes
    }

    /// Anonymous memory, which is exact.
    pub fn anonymous(&self) -> u64 {
        self.anon_reused_bytes + self.anon_first_bytes
    }

    /// Files: at least, and at most.
    pub fn files(&self) -> [u64; 2] {
        [0, 1].map(|bound| self.file_reused_bytes[bound] + self.file_first_bytes[bound])
    }
}

impl TreePages {
    /// Reads all pages of these processes. One that ends meanwhile has no pages.
    pub fn read(kernel: &Kernel, pids: &[u32]) -> Result<Self> {
        let mut pages = Vec::new();
        for pid in pids {
            let Ok(map) = PageMap::open(kernel, *pid) else { continue };
            for mapping in proc::mappings(kernel, *pid).unwrap_or_default() {
                let mut add = |page: u64, entry: Entry| pages.push(((*pid, page), entry));
                let walked = map.each_held(mapping.start / PAGE, mapping.end / PAGE, &mut add);
                walked.map_err(|e| lowtide_kernel::root::Error::new("read", format!("/proc/{pid}/pagemap"), e))?;
            }
        }
        pages.sort_unstable_by_key(|(place, _)| *place);
        Ok(Self { pages })
    }

    fn entry(&self, place: Place) -> Option<Entry> {
        let at = self.pages.binary_search_by_key(&place, |(place, _)| *place).ok()?;
        Some(self.pages[at].1)
    }

    fn is_present(&self, place: Place) -> bool {
        self.entry(place).is_some_and(Entry::is_present)
    }

    fn present(&self) -> impl Iterator<Item = (Place, Entry)> {
        self.pages.iter().copied().filter(|(_, entry)| entry.is_present())
    }

    /// What is in memory; each frame once.
    pub fn in_memory(&self) -> Kept {
        let mut frames = HashSet::new();
        let mut kept = Kept::default();
        for (_, entry) in self.present().filter(|(_, entry)| frames.insert(entry.frame())) {
            let bytes = if entry.is_file() { &mut kept.file_bytes } else { &mut kept.anon_bytes };
            *bytes += PAGE;
        }
        kept
    }

    /// The ranges of 2 MiB that are huge pages, by process and number.
    pub fn huge(&self, kernel: &Kernel) -> Result<HashSet<Place>> {
        let flags = FrameFile::flags(kernel)?;
        let mut huge = HashSet::new();
        for ((pid, page), entry) in self.present() {
            let first = page.is_multiple_of(HUGE_PAGES) && entry.frame().is_multiple_of(HUGE_PAGES);
            if first && !entry.is_file() && flags.value(entry.frame())?.unwrap_or(0) & flag::THP != 0 {
                huge.insert((pid, page / HUGE_PAGES));
            }
        }
        Ok(huge)
    }
}

/// Readings of a tree around its eviction.
#[derive(Debug)]
pub struct Evicted<'a> {
    pub before: &'a TreePages,
    /// After it: pages in memory here could not be evicted.
    pub after: &'a TreePages,
    /// Huge pages at any time before.
    pub huge: &'a HashSet<Place>,
    /// Pages of a file that one fault can map.
    pub around: u64,
}

impl Evicted<'_> {
    /// What was touched since and is still mapped.
    pub fn touched(&self, now: &TreePages) -> Touched {
        let stayed: HashSet<u64> =
            now.present().filter(|(place, _)| self.after.is_present(*place)).map(|(_, entry)| entry.frame()).collect();
        // A frame in several processes was reused if it was anywhere.
        let mut frames: HashMap<u64, (Place, bool, bool)> = HashMap::new();
        for (place, entry) in now.present().filter(|(place, _)| !self.after.is_present(*place)) {
            if !stayed.contains(&entry.frame()) {
                let reused = self.before.entry(place).is_some() || self.after.entry(place).is_some();
                frames.entry(entry.frame()).or_insert((place, entry.is_file(), reused)).2 |= reused;
            }
        }
        let mut touched = Touched::default();
        let (mut huge, mut faults) = (HashSet::new(), [HashSet::new(), HashSet::new()]);
        for ((pid, page), file, reused) in frames.into_values() {
            match (file, reused) {
                (false, false) => touched.anon_first_bytes += PAGE,
                (false, true) => {
                    touched.anon_reused_bytes += PAGE;
                    let block = (pid, page / HUGE_PAGES);
                    if !self.huge.contains(&block) {
                        touched.anon_reused_whole_bytes += PAGE;
                    } else if huge.insert(block) {
                        touched.anon_reused_whole_bytes += HUGE_PAGES * PAGE;
                    }
                }
                (true, reused) => {
                    let bytes = if reused { &mut touched.file_reused_bytes } else { &mut touched.file_first_bytes };
                    bytes[1] += PAGE;
                    faults[usize::from(reused)].insert((pid, page / self.around.max(1)));
                }
            }
        }
        let [first, reused] = &faults;
        touched.file_reused_bytes[0] = PAGE * count(reused.len());
        // A fault on a page used before may have mapped the new ones beside it.
        touched.file_first_bytes[0] = PAGE * count(first.difference(reused).count());
        touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SWAPPED: Entry = Entry(1 << 62);

    fn anon(frame: u64) -> Entry {
        Entry(1 << 63 | frame)
    }

    fn file(frame: u64) -> Entry {
        Entry(1 << 63 | 1 << 61 | frame)
    }

    fn picture(pages: &[(Place, Entry)]) -> TreePages {
        let mut pages = pages.to_vec();
        pages.sort_unstable_by_key(|(place, _)| *place);
        TreePages { pages }
    }

    #[test]
    fn reuse_first_touch_and_what_stayed_are_distinct() {
        let before = picture(&[((1, 1), anon(11)), ((1, 2), anon(12)), ((1, 3), anon(13)), ((1, 40), file(20))]);
        let after = picture(&[((1, 1), SWAPPED), ((1, 2), SWAPPED), ((1, 3), anon(13))]);
        let now = picture(&[
            ((1, 1), anon(31)),
            ((1, 2), SWAPPED),
            ((1, 3), anon(13)),
            ((1, 9), anon(32)),
            ((1, 40), file(20)),
            ((1, 41), file(21)),
            ((1, 64), file(22)),
        ]);
        let huge = HashSet::from([(1, 0)]);
        let evicted = Evicted { before: &before, after: &after, huge: &huge, around: 16 };
        let touched = evicted.touched(&now);
        assert_eq!((touched.anon_reused_bytes, touched.anon_reused_whole_bytes), (PAGE, 512 * PAGE));
        assert_eq!(touched.anon_first_bytes, PAGE);
        assert_eq!((touched.file_reused_bytes, touched.file_first_bytes), ([PAGE, PAGE], [PAGE, 2 * PAGE]));
        let kept = after.in_memory();
        assert_eq!(kept, Kept { anon_bytes: PAGE, file_bytes: 0 });
        assert_eq!((touched.low(), touched.high(kept)), (4 * PAGE, 517 * PAGE));
    }

    #[test]
    fn what_two_processes_map_counts_once() {
        let before = picture(&[((1, 1), anon(11)), ((2, 1), anon(11)), ((1, 2), anon(12)), ((2, 2), anon(12))]);
        let after = picture(&[((1, 1), SWAPPED), ((2, 1), SWAPPED), ((1, 2), anon(12)), ((2, 2), SWAPPED)]);
        let now = picture(&[((1, 1), anon(31)), ((2, 1), anon(31)), ((1, 2), anon(12)), ((2, 2), anon(12))]);
        let none = HashSet::new();
        let touched = Evicted { before: &before, after: &after, huge: &none, around: 16 }.touched(&now);
        assert_eq!(touched.anonymous(), PAGE, "what stayed for one was not fetched by the other");
    }

    proptest! {
        #[test]
        fn nothing_is_counted_twice(pages in prop::collection::btree_map((1u32..3, 0u64..64), 0u64..128, 0..60)) {
            let now = picture(&pages.iter().map(|(place, frame)| (*place, anon(*frame))).collect::<Vec<_>>());
            let (none, empty) = (HashSet::new(), TreePages::default());
            let evicted = Evicted { before: &empty, after: &empty, huge: &none, around: 16 };
            let frames: HashSet<u64> = pages.values().copied().collect();
            prop_assert_eq!(evicted.touched(&now).low(), frames.len() as u64 * PAGE);
            let same = Evicted { before: &now, after: &now, huge: &none, around: 16 };
            prop_assert_eq!(same.touched(&now), Touched::default());
        }
    }
}
