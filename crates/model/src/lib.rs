//! What is known about memory, and what follows from it by calculation alone.
//!
//! Problem: measurements come from many sources (DAMON, MGLRU, smaps, recordings, a simulated machine), and what is concluded from
//! them must not depend on which. Approach: every source is turned into the same types (usage by the field table, regions, idle-age
//! histograms, episodes of sampled pages), and working sets, the tide curve, budgets, the bottom line and the summary are pure
//! functions of these. Times are seconds since the start of a record; sizes are bytes.
//!
//! May import: nothing of lowtide, and no I/O, clock or `unsafe`. Every other crate may import this one.

#![forbid(unsafe_code)]

pub mod adaptive;
pub mod bottom_line;
pub mod budget;
pub mod capability;
pub mod choice;
pub mod cohort;
pub mod curve;
pub mod episode;
pub mod generations;
pub mod interval;
pub mod kind;
pub mod ledger;
pub mod meta;
mod named;
pub mod numa;
pub mod phase;
pub mod random;
pub mod region;
pub mod scheme;
pub mod sharpen;
pub mod stats;
pub mod summary;
pub mod target;
pub mod task;
pub mod units;
pub mod usage;

/// The windows, in seconds, for which working sets are reported (the contract of `summary.json`).
pub const WINDOWS_S: [u32; 6] = [1, 5, 10, 30, 60, 120];

/// The lower edges, in seconds, of the idle-age histogram; bin `i` holds `[AGE_EDGES_S[i], AGE_EDGES_S[i + 1])`.
/// Every window of [`WINDOWS_S`] is an edge, so a working set is a sum of bins.
pub const AGE_EDGES_S: [u32; 9] = [0, 1, 2, 5, 10, 20, 30, 60, 120];

/// Bytes of a base page. lowtide supports kernels with 4 KiB base pages; `run` and `record` refuse others.
pub const PAGE: u64 = 4096;
/// The same for arithmetic.
pub const PAGE_BYTES: f64 = 4096.0;
