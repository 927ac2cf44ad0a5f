//! Operation schemes: what to do to memory of which size, access rate and age, how fast, when, and sparing what.
//!
//! The words are those of DAMON-based Operation Schemes (Linux, Documentation/mm/damon/design.rst), whose pattern, action,
//! quotas, watermarks and filters these are. [`line`] reads and writes the one-line form, [`file`] TOML and JSON.

pub mod builtin;
pub mod file;
mod filter;
pub mod line;
mod quota;
pub mod words;

use crate::named::named;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::filter::{Filter, FilterType, allowed};
pub use self::quota::{Goal, GoalMetric, Quota, Weights};
use crate::units::{Share, Size, Span};

named! {
    /// What is done to a region.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Action {
        /// Read ahead what was paged out or was never read.
        Willneed = "willneed",
        /// Move to the end of the list from which memory is reclaimed; nothing is written out.
        Cold = "cold",
        /// Write to swap or to its file, and free.
        Pageout = "pageout",
        /// Allow huge pages.
        Hugepage = "hugepage",
        /// Forbid huge pages.
        Nohugepage = "nohugepage",
        /// Make huge pages of it at once.
        Collapse = "collapse",
        /// Reclaim it later than others.
        LruPrio = "lru_prio",
        /// Reclaim it sooner than others.
        LruDeprio = "lru_deprio",
        /// Move to another memory node, hottest first.
        MigrateHot = "migrate_hot",
        /// Move to another memory node, coldest first.
        MigrateCold = "migrate_cold",
        /// Count only.
        Stat = "stat",
    }
}

impl Action {
    /// Whether cold memory is taken first when a quota does not suffice for all.
    #[must_use]
    pub fn prefers_cold(self) -> bool {
        matches!(self, Self::Cold | Self::Pageout | Self::Nohugepage | Self::LruDeprio | Self::MigrateCold)
    }

    /// Whether it takes memory from who uses it, now or under the next pressure.
    #[must_use]
    pub fn takes(self) -> bool {
        matches!(self, Self::Pageout | Self::Cold)
    }

    /// Whether it moves pages to another memory node.
    #[must_use]
    pub fn migrates(self) -> bool {
        matches!(self, Self::MigrateHot | Self::MigrateCold)
    }
}

/// A lower and an upper bound, both included. `None`: no bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, try_from = "AnyBounds<T>")]
#[serde(bound(deserialize = "T: Deserialize<'de> + PartialOrd + std::fmt::Display"))]
pub struct Bounds<T> {
    /// The least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<T>,
    /// The most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<T>,
}

/// Bounds as written, which may contradict each other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table like { min = ..., max = ... }")]
struct AnyBounds<T> {
    min: Option<T>,
    max: Option<T>,
}

impl<T: PartialOrd + std::fmt::Display> TryFrom<AnyBounds<T>> for Bounds<T> {
    type Error = String;

    fn try_from(AnyBounds { min, max }: AnyBounds<T>) -> Result<Self, String> {
        if let (Some(least), Some(most)) = (&min, &max)
            && least > most
        {
            return Err(format!("min {least} is above max {most}: nothing can be between them; swap them"));
        }
        Ok(Self { min, max })
    }
}

impl<T> Default for Bounds<T> {
    fn default() -> Self {
        Self { min: None, max: None }
    }
}

impl<T: PartialOrd> Bounds<T> {
    /// Whether a value lies in between.
    pub fn hold(&self, value: &T) -> bool {
        self.min.as_ref().is_none_or(|min| value >= min) && self.max.as_ref().is_none_or(|max| value <= max)
    }

    /// Whether there is no bound at all.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.min.is_none() && self.max.is_none()
    }
}

/// One operation scheme.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, expecting = "a table with the keys of a scheme")]
pub struct Scheme {
    /// For people and for the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What is done.
    pub action: Action,
    /// Bytes of a region.
    #[serde(default, skip_serializing_if = "Bounds::is_open")]
    pub size: Bounds<Size>,
    /// Share of the samples that found an access.
    #[serde(default, skip_serializing_if = "Bounds::is_open")]
    pub access: Bounds<Share>,
    /// For how long the access rate has been like this.
    #[serde(default, skip_serializing_if = "Bounds::is_open")]
    pub age: Bounds<Span>,
    /// How often it is applied; every aggregation interval if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apply_interval: Option<Span>,
    /// Where `migrate_*` moves to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node: Option<u32>,
    /// Where `migrate_*` moves to, in these shares, instead of to one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<Destination>,
    /// How much at most.
    #[serde(default, skip_serializing_if = "Quota::is_default")]
    pub quota: Quota,
    /// When it is active at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watermarks: Option<Watermarks>,
    /// What is spared, or what alone is meant. The first that matches decides.
    #[serde(default, rename = "filter", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
}

/// Deserialises a type as its fields are written, and then checks that they go together.
macro_rules! checked {
    ($($kind:ty),*) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let written = Self::deserialize(deserializer)?;
                written.check().map(|()| written).map_err(D::Error::custom)
            }
        }

        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }
    )*};
}
checked!(Scheme, Watermarks);

impl Scheme {
    /// A scheme for all memory, without bounds.
    #[must_use]
    pub fn new(action: Action) -> Self {
        Self {
            name: None,
            action,
            size: Bounds::default(),
            access: Bounds::default(),
            age: Bounds::default(),
            apply_interval: None,
            target_node: None,
            destinations: Vec::new(),
            quota: Quota::default(),
            watermarks: None,
            filters: Vec::new(),
        }
    }

    /// Its name, or its action.
    #[must_use]
    pub fn title(&self) -> &str {
        self.name.as_deref().unwrap_or(self.action.name())
    }

    /// Whether size, access rate and age are those that it is for.
    #[must_use]
    pub fn fits(&self, bytes: u64, access: f64, age: Span) -> bool {
        self.size.hold(&Size(bytes)) && self.access.hold(&Share(access)) && self.age.hold(&age)
    }

    /// Whether the parts go together; else what would be right.
    fn check(&self) -> Result<(), String> {
        let node = self.target_node.is_some() || !self.destinations.is_empty();
        if self.action.migrates() != node {
            return Err(match (node, self.action.name()) {
                (false, action) => format!("{action} moves memory, but not whereto: add target_node = N"),
                (true, action) => {
                    format!("target_node and destinations are for migrate_hot and migrate_cold, not {action}")
                }
            });
        }
        if let Some(most) = self.access.max.or(self.access.min).filter(|share| share.0 > 1.0) {
            return Err(format!("an access rate of {most} is more than all samples: give a share up to 100%"));
        }
        if self.apply_interval.is_some_and(|interval| interval.0.is_zero()) {
            return Err("an apply_interval of 0 is no time: leave it out for every aggregation".to_owned());
        }
        Ok(())
    }
}

/// One of several nodes that memory is moved to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// The node.
    pub node: u32,
    /// Its part of all weights.
    pub weight: u32,
}

/// When a scheme is active, by the share of the system's memory that is free: not above `high` (no need) nor below `low`
/// (too late); it begins below `mid`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, expecting = "a table with every, high, mid and low")]
pub struct Watermarks {
    /// How often that is read.
    pub every: Span,
    /// Inactive above.
    pub high: Share,
    /// Active from here on.
    pub mid: Share,
    /// Inactive below.
    pub low: Share,
}

impl Watermarks {
    fn check(&self) -> Result<(), String> {
        let Self { high, mid, low, .. } = self;
        if high.0 > 1.0 || !(high >= mid && mid >= low) {
            return Err(format!("high {high}, mid {mid} and low {low} must descend, from at most 100%"));
        }
        Ok(())
    }
}
