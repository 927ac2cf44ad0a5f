//! The keys of a pattern file; [`crate::pattern`] checks them.

use lowtide_model::units::Span;
use serde::{Deserialize, Serialize};

use crate::units::{ByteSize, Rate};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPattern {
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub area: Vec<AreaSpec>,
    /// The phases, one after another.
    #[serde(default)]
    pub phase: Vec<RawPhase>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreaSpec {
    /// The name that accesses use.
    pub name: String,
    /// Length in bytes.
    pub size: ByteSize,
    #[serde(default)]
    pub backing: Backing,
    /// Whether every page is touched before the first phase.
    #[serde(default = "yes")]
    pub populate: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backing {
    /// Private memory in 4 KiB pages.
    #[default]
    Anon,
    /// Private memory in 2 MiB pages.
    Huge,
    /// Private memory in pages that the system chooses.
    System,
    /// A file, mapped shared.
    File,
    /// A file that is read and written by system calls.
    Read,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPhase {
    pub seconds: f64,
    #[serde(default)]
    pub access: Vec<RawAccess>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawAccess {
    pub area: String,
    /// Keys of [`RawHot`]: which part of the area; all of it when left out.
    #[serde(default)]
    pub hot: toml::Table,
    #[serde(default)]
    pub order: TouchOrder,
    /// The distance from one touch to the next, bytes.
    pub stride: Option<ByteSize>,
    #[serde(default)]
    pub mode: Mode,
    /// How often the hot set is swept.
    pub passes_per_second: Rate,
}

/// The order in which a hot set is touched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TouchOrder {
    /// From its first byte to its last.
    #[default]
    Sequential,
    /// Independent random draws, with replacement.
    Random,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    Read,
    Write,
}

/// All keys of the five kinds of hot set; [`crate::shape`] distinguishes them.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawHot {
    /// Start of a contiguous range.
    pub offset: Option<ByteSize>,
    /// Length of a contiguous range or of a moving window.
    pub size: Option<ByteSize>,
    /// Number of scattered pieces.
    pub pieces: Option<usize>,
    pub piece_size: Option<ByteSize>,
    /// Share of pages in a random subset.
    pub random_share: Option<f64>,
    /// Which random subset.
    pub seed: Option<u64>,
    /// Growth per second of a prefix.
    pub grow_per_second: Option<ByteSize>,
    /// Whether only new bytes are touched as the prefix grows.
    pub only_new: bool,
    /// How much of the prefix's end is touched.
    pub window: Option<ByteSize>,
    pub step: Option<ByteSize>,
    pub every: Option<Span>,
    /// Whether it turns back at the ends rather than starting again.
    pub bounce: bool,
}

fn yes() -> bool {
    true
}
