//! Filters of schemes: memory that is spared, or that alone is meant.

use serde::{Deserialize, Serialize};

use crate::named::named;
use crate::units::Size;

/// Memory that is rejected, or allowed alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Filter {
    /// Which memory.
    pub of: FilterType,
    /// False: all but that memory is meant.
    pub matching: bool,
    /// True: what is meant is allowed; else it is rejected.
    pub allow: bool,
}

/// What a filter matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterType {
    /// Anonymous pages.
    Anon,
    /// Pages on the active list.
    Active,
    /// Pages charged to a cgroup: its path below the mount.
    Memcg(String),
    /// Pages that were used since the last sample.
    Young,
    /// Huge pages of at least and at most so many bytes.
    HugepageSize(Size, Size),
    /// Pages that no process maps.
    Unmapped,
    /// Addresses, from the first byte to the one past the last.
    Addr(u64, u64),
    /// One of several targets, counted from 0.
    Target(u32),
}

impl FilterType {
    /// DAMON's word.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.word().name()
    }

    /// Whether it is decided for a region, without reading its pages.
    #[must_use]
    pub fn is_core(&self) -> bool {
        matches!(self, Self::Addr(..) | Self::Target(_))
    }

    fn word(&self) -> Word {
        match self {
            Self::Anon => Word::Anon,
            Self::Active => Word::Active,
            Self::Memcg(_) => Word::Memcg,
            Self::Young => Word::Young,
            Self::HugepageSize(..) => Word::HugepageSize,
            Self::Unmapped => Word::Unmapped,
            Self::Addr(..) => Word::Addr,
            Self::Target(_) => Word::Target,
        }
    }
}

named! {
    /// DAMON's word for a type of filter.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[allow(missing_docs, reason = "as above")]
    pub enum Word {
        Anon = "anon",
        Active = "active",
        Memcg = "memcg",
        Young = "young",
        HugepageSize = "hugepage_size",
        Unmapped = "unmapped",
        Addr = "addr",
        Target = "target",
    }
}

/// A filter as written: each type has fields of its own.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with the type of a filter")]
struct Written {
    r#type: Word,
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    matching: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    allow: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<u32>,
}

fn yes() -> bool {
    true
}

impl TryFrom<Written> for Filter {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written { r#type, matching, allow, cgroup, min, max, start, end, target } = written;
        let of = match (r#type, cgroup, (min, max), (start, end), target) {
            (Word::Anon, None, (None, None), (None, None), None) => FilterType::Anon,
            (Word::Active, None, (None, None), (None, None), None) => FilterType::Active,
            (Word::Young, None, (None, None), (None, None), None) => FilterType::Young,
            (Word::Unmapped, None, (None, None), (None, None), None) => FilterType::Unmapped,
            (Word::Memcg, Some(cgroup), (None, None), (None, None), None) => FilterType::Memcg(cgroup),
            (Word::HugepageSize, None, (Some(min), Some(max)), (None, None), None) if min <= max => {
                FilterType::HugepageSize(min, max)
            }
            (Word::Addr, None, (None, None), (Some(start), Some(end)), None) if start < end => {
                FilterType::Addr(start, end)
            }
            (Word::Target, None, (None, None), (None, None), Some(target)) => FilterType::Target(target),
            (word, ..) => {
                let wants = match word {
                    Word::Memcg => "cgroup = \"/path\"",
                    Word::HugepageSize => "min and max, for example min = \"2M\", max = \"2M\"",
                    Word::Addr => "start and end, start below end",
                    Word::Target => "target = N",
                    _ => "no field but matching and allow",
                };
                return Err(format!("a filter of type {} takes {wants}", word.name()));
            }
        };
        Ok(Self { of, matching, allow })
    }
}

impl From<Filter> for Written {
    fn from(filter: Filter) -> Self {
        let mut written = Self {
            r#type: filter.of.word(),
            matching: filter.matching,
            allow: filter.allow,
            cgroup: None,
            min: None,
            max: None,
            start: None,
            end: None,
            target: None,
        };
        match filter.of {
            FilterType::Memcg(cgroup) => written.cgroup = Some(cgroup),
            FilterType::HugepageSize(min, max) => (written.min, written.max) = (Some(min), Some(max)),
            FilterType::Addr(start, end) => (written.start, written.end) = (Some(start), Some(end)),
            FilterType::Target(target) => written.target = Some(target),
            FilterType::Anon | FilterType::Active | FilterType::Young | FilterType::Unmapped => {}
        }
        written
    }
}

/// What a list of filters says of memory that matches those of `matches`: the first that applies decides; where none does,
/// memory is allowed unless the last filter allows (Linux, mm/damon/core.c since 6.14).
#[must_use]
pub fn allowed(filters: &[Filter], matches: impl Fn(&FilterType) -> bool) -> bool {
    let first = filters.iter().find(|filter| matches(&filter.of) == filter.matching);
    first.map_or_else(|| filters.last().is_none_or(|last| !last.allow), |filter| filter.allow)
}
