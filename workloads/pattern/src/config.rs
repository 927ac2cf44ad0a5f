//! The pattern file as it is written; [`crate::pattern`] checks it and turns it into what is run.

use serde::Deserialize;

use crate::units::{Rate, Size, Time};

/// A whole pattern file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPattern {
    /// What the pattern is called.
    pub name: String,
    /// One line about it.
    #[serde(default)]
    pub description: String,
    /// The memory.
    #[serde(default)]
    pub area: Vec<RawArea>,
    /// What is done with it, one after another.
    #[serde(default)]
    pub phase: Vec<RawPhase>,
}

/// One stretch of memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawArea {
    /// What accesses call it.
    pub name: String,
    /// How large it is.
    pub size: Size,
    /// What kind of memory it is.
    #[serde(default)]
    pub backing: Backing,
    /// Whether every page is touched before the first phase.
    #[serde(default = "yes")]
    pub populate: bool,
}

/// What an area is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backing {
    /// Private memory in 4 KiB pages.
    #[default]
    Anon,
    /// Private memory in 2 MiB pages.
    Huge,
    /// A file, mapped shared.
    File,
    /// A file that is read and written by system calls.
    Read,
}

impl Backing {
    /// The word used for it in pattern files and logs.
    pub fn word(self) -> &'static str {
        match self {
            Backing::Anon => "anon",
            Backing::Huge => "huge",
            Backing::File => "file",
            Backing::Read => "read",
        }
    }
}

/// A stretch of time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPhase {
    /// How long it lasts.
    pub seconds: f64,
    /// What is touched during it, side by side.
    #[serde(default)]
    pub access: Vec<RawAccess>,
}

/// One stream of touches.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawAccess {
    /// The name of the area touched.
    pub area: String,
    /// Which part of it; all of it when left out.
    pub hot: Option<RawHot>,
    /// In which order.
    #[serde(default)]
    pub order: Order,
    /// The distance from one touch to the next.
    pub stride: Option<Size>,
    /// How.
    #[serde(default)]
    pub mode: Mode,
    /// How often the whole hot set is swept.
    pub passes_per_second: Rate,
}

/// The order in which a hot set is touched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// From its first byte to its last.
    #[default]
    Sequential,
    /// Independent random draws, with replacement.
    Random,
}

/// How memory is touched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By loads.
    #[default]
    Read,
    /// By stores.
    Write,
}

/// All keys of the five kinds of hot set; [`crate::pattern`] tells them apart.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawHot {
    /// Start of a contiguous range.
    pub offset: Option<Size>,
    /// Length of a contiguous range or of a moving window.
    pub size: Option<Size>,
    /// Number of scattered pieces.
    pub pieces: Option<usize>,
    /// Length of each piece.
    pub piece_size: Option<Size>,
    /// Share of pages in a random subset.
    pub random_share: Option<f64>,
    /// Which random subset.
    pub seed: Option<u64>,
    /// Growth per second of a prefix.
    pub grow_per_second: Option<Size>,
    /// Whether only new bytes are touched as the prefix grows.
    pub only_new: Option<bool>,
    /// How much of the prefix's end is touched.
    pub window: Option<Size>,
    /// How far a moving window moves.
    pub step: Option<Size>,
    /// How often it moves.
    pub every: Option<Time>,
    /// Whether it turns round at the ends rather than starting over.
    pub bounce: Option<bool>,
}

fn yes() -> bool {
    true
}
