//! What the cohort saw of one page: stretches of use and, where watching ended, the last stretch of idleness.

use crate::PAGE;

/// What backs a sampled page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Anonymous memory: heap, stacks, private copies.
    Anon,
    /// Page cache or shared memory that a process of the target maps.
    File,
    /// Page cache charged to the target's cgroup that no process maps: used by read() and write().
    Cache,
}

impl Kind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Anon, Self::File, Self::Cache];

    /// The word used in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Anon => "anon",
            Self::File => "file",
            Self::Cache => "cache",
        }
    }

    /// The kind of that word; `None` for any other.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Position in [`Kind::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

/// Which page: a process' page by its address, or a page of the cache by its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// The page.
    pub key: PageKey,
    /// What backs it.
    pub kind: Kind,
    /// Bytes this sampled page stands for.
    pub weight_bytes: f64,
    /// True: touched in every tick of `start_s..=end_s`. False: untouched during it, and watching ended then.
    pub touched: bool,
    /// Start, seconds since the start of the record (the end of the first tick in which it was seen touched).
    pub start_s: f64,
    /// End, seconds since the start of the record.
    pub end_s: f64,
    /// Reuse time: seconds from the touch before to `start_s`; 0 where a stretch goes on; `None` where none was seen.
    pub reuse_s: Option<f64>,
}
