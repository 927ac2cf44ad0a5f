//! Monitors: how the accesses of a target are sampled. Each file is one way; `damon` joins cohort and map.

pub mod bitmap;
pub mod cohort;
pub mod cohorts;
pub mod damon;
pub mod find;
pub mod map;
pub mod mapping_use;
pub mod mglru;
mod sampler;
pub mod smaps;
mod snapshots;

use lowtide_model::cohort::Totals;

use crate::cgroup::{Cgroup, Selection};

/// What is monitored, as it is now.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// Its processes; empty for the entire system.
    pub pids: Vec<u32>,
    /// Its cgroups, none below another, if it has any of its own.
    pub cgroups: Vec<Cgroup>,
    /// The pattern that names them, if one does: they come and go.
    pub selection: Option<Selection>,
    /// Everything: all frames of the system.
    pub system: bool,
    /// What its accounts say, by kind. The page cache is what no process maps.
    pub totals: Totals,
    /// Which of them are the target's exact size; the others count shared pages more than once, and serve only to measure
    /// growth.
    pub exact: [bool; 3],
    /// File memory that is mapped, as charged to its cgroups: shared pages once. `None` without cgroups.
    pub mapped: Option<f64>,
}
