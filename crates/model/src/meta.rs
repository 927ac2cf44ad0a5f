//! `meta.json`: what was measured, on what, with which instruments; and, once it has ended, how it ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::curve::MeasuredCosts;
use crate::scheme::Scheme;
use crate::task::Task;

/// Version of the record folder's layout; a change is a changelog entry.
pub const SCHEMA: u32 = 1;

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// CPUs online.
    pub cpus: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// 2, 1, or 0 where there is no memory cgroup.
    pub cgroup_version: u8,
    /// Bytes of swap that were active at the start.
    #[serde(default)]
    pub swap_bytes: u64,
}

/// A monitor that could not serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Which.
    pub backend: String,
    /// Why, and what would help.
    pub why: String,
}

/// Which instruments measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Monitor {
    /// `damon-vaddr`, `damon-paddr`, `mglru`, `smaps` or `none`.
    pub backend: String,
    /// Seconds between two samples of a page of the cohort at the end of the run.
    pub sampling_s: f64,
    /// Seconds over which the map counts accesses at the end of the run.
    pub aggregation_s: f64,
    /// Better monitors that could not serve.
    pub refused: Vec<Refusal>,
}

/// [`End::reason`] of a record that was made of another tool's recording.
pub const IMPORTED: &str = "imported";

/// [`End::reason`] of a record that had been asked for so long.
pub const DURATION: &str = "duration";

/// How the record ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Why recording stopped: `ended`, `interrupted`, [`DURATION`], `disk full` or [`IMPORTED`].
    pub reason: String,
    /// Exit code of the command; 128 + n after signal n.
    pub exit_code: Option<i32>,
    /// Seconds from the start of the command to the end of its tree.
    pub runtime_s: f64,
    /// Largest resident set of any one process of the tree, as `getrusage` and `time -v` report it.
    pub app_max_rss_bytes: Option<u64>,
    /// Highest charge of the cgroup, as the kernel kept it.
    pub cgroup_peak_bytes: Option<u64>,
    /// lowtide's own highest resident set.
    pub own_peak_rss_bytes: u64,
    /// CPU seconds of lowtide and of the kernel threads that worked for it.
    pub monitor_cpu_s: f64,
}

/// The result of one scheme.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SchemeUse {
    /// The scheme.
    pub scheme: Scheme,
    /// The mechanism that carried it out, in words.
    pub by: String,
    /// Nothing was done: what fits was counted.
    pub dry_run: bool,
    /// Bytes that it was tried on.
    pub tried_bytes: u64,
    /// Bytes that something was done to.
    pub applied_bytes: u64,
    /// Bytes that the kernel would not touch: locked, shared, gone. `None` where the kernel does not report it.
    pub refused_bytes: Option<u64>,
    /// Bytes that came back within the age that they had been idle for: they were in use. `None` where not measured.
    pub returned_bytes: Option<u64>,
    /// How often its quota kept it from going on. `None` where not counted.
    pub quota_exceeded: Option<u64>,
    /// CPU seconds that carrying it out took. `None` where kernel threads do it beside monitoring.
    pub cpu_s: Option<f64>,
    /// Seconds for which it was held back, by reason.
    #[serde(default)]
    pub held_s: BTreeMap<String, f64>,
}

/// `meta.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of lowtide that wrote it.
    pub lowtide: String,
    /// The command, or the target's description as one word list.
    pub command: Vec<String>,
    /// Start: seconds since 1970 (UTC).
    pub started_unix_s: f64,
    /// Start on `CLOCK_MONOTONIC`, to line the record up with other logs of the same boot.
    pub started_monotonic_s: f64,
    /// The target ran before: its start was not recorded.
    #[serde(default)]
    pub attached: bool,
    /// Seconds between two ticks.
    pub interval_s: f64,
    /// Upper bound of the price, percent of one CPU.
    pub max_overhead_percent: f64,
    /// The memory limit that the program was given, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// The machine.
    pub host: Host,
    /// Which rank it is of, where a launcher started several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// The instruments.
    pub monitor: Monitor,
    /// What was done to the target by schemes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schemes: Vec<SchemeUse>,
    /// What a page costs that comes back, as measured on the machine before.
    #[serde(default)]
    pub refault_costs: MeasuredCosts,
    /// What could not be measured and why; one sentence each.
    pub notes: Vec<String>,
    /// `None` while recording, and for ever if the recorder was killed.
    pub end: Option<End>,
}

impl Meta {
    /// Whether the start of the target was not recorded.
    #[must_use]
    pub fn starts_late(&self) -> bool {
        self.attached || self.end.as_ref().is_some_and(|end| end.reason == IMPORTED)
    }
}
