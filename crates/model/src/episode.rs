//! What was sampled of one page: stretches of use and, where watching ended, the last stretch of idleness.

use crate::named::named;
use std::collections::BTreeMap;

use crate::PAGE;

named! {
    /// What backs a sampled page.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum PageKind {
        /// Anonymous memory: heap, stacks, private copies.
        #[default]
        Anon = "anon",
        /// Page cache or shared memory that a process of the target maps.
        File = "file",
        /// Page cache charged to the target's cgroup that no process maps: used by read() and write().
        Cache = "cache",
    }
}

impl PageKind {
    /// Position in [`PageKind::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::Anon => 0,
            Self::File => 1,
            Self::Cache => 2,
        }
    }
}

/// Which page: a process' page by its address, or a page of the cache by its frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageKey {
    /// Process id for a mapped page; 0 for a frame of the page cache.
    pub space: u32,
    /// Page number: virtual address / 4096, or the frame number.
    pub page: u64,
}

impl PageKey {
    /// First byte of the page.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.page * PAGE
    }
}

/// One row of `cohort.parquet`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Episode {
    /// The page.
    pub key: PageKey,
    /// What backs it.
    pub kind: PageKind,
    /// Bytes this sampled page stood for at the end.
    pub weight_bytes: f64,
    /// 1 / number of mappings; `None` in records that do not have it.
    pub share: Option<f64>,
    /// True: touched in every tick of `start_s..=end_s`. False: untouched during it, and watching ended then; or the touch
    /// that follows is the first that was sampled of the page.
    pub touched: bool,
    /// Start, seconds since the start of the record (the end of the first tick in which it was sampled touched).
    pub start_s: f64,
    /// End, seconds since the start of the record.
    pub end_s: f64,
    /// Reuse time: seconds from the touch before to `start_s`; 0 where a stretch goes on, or idleness begins with a touch;
    /// `None` where none was sampled.
    pub reuse_s: Option<f64>,
}

/// Rows as they were written, put together again: pieces of a stretch of use that was cut become one. So a page that is
/// always in use takes one row however long it was watched.
#[derive(Debug, Clone, Default)]
pub struct Lives {
    rows: Vec<Episode>,
    last: BTreeMap<PageKey, usize>,
}

impl Episode {
    /// What it counts beside pages of its kind that were watched at the same time. That is not what it stands for: this changes when
    /// more pages are sampled, or fewer, and a row may begin before and end after that.
    #[must_use]
    pub fn relative_weight(&self) -> f64 {
        self.share.unwrap_or(self.weight_bytes)
    }
}

impl Lives {
    /// Adds the next row; those of one page come in the order of time.
    pub fn push(&mut self, row: Episode) {
        if let Some(last) = self.last.get(&row.key).and_then(|at| self.rows.get_mut(*at))
            && row.touched
            && row.reuse_s.is_some_and(|reuse_s| reuse_s <= 0.0)
            && last.touched
            && last.kind == row.kind
        {
            last.end_s = row.end_s;
            return;
        }
        self.last.insert(row.key, self.rows.len());
        self.rows.push(row);
    }

    /// The rows.
    #[must_use]
    pub fn rows(self) -> Vec<Episode> {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_stretch_become_one() {
        let row = |page: u64, touched, start_s, end_s, reuse_s| Episode {
            key: PageKey { space: 1, page },
            kind: PageKind::Anon,
            weight_bytes: 4096.0,
            share: None,
            touched,
            start_s,
            end_s,
            reuse_s,
        };
        let mut lives = Lives::default();
        for row in [
            row(1, true, 1.0, 5.0, Some(0.5)),
            row(2, true, 1.0, 1.0, None),
            row(1, true, 6.0, 10.0, Some(0.0)),
            row(1, false, 10.0, 20.0, Some(0.0)),
            row(2, true, 9.0, 9.0, Some(8.0)),
        ] {
            lives.push(row);
        }
        let rows = lives.rows();
        assert_eq!(rows.len(), 4);
        assert_eq!((rows[0].start_s, rows[0].end_s, rows[0].reuse_s), (1.0, 10.0, Some(0.5)));
    }
}
