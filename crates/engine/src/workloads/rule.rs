//! Which cgroups are workloads, and their policies.

use std::collections::{BTreeMap, BTreeSet};

use lowtide_kernel::cgroup::Selection;
use lowtide_kernel::root::{Kernel, Result};
use serde::Deserialize;

use crate::agent::metric::Measure;

/// Cgroups, and what is done to them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadRule {
    /// Path below the memory cgroup mount; `*` stands for one part of it, `**` for any number.
    pub cgroup: String,
    /// Name of a policy of the file, or one that is built in; or [`NONE`].
    #[serde(default = "auto")]
    pub policy: String,
    /// A measure of its performance; less is reclaimed where that gets worse.
    pub metric: Option<Measure>,
    /// Of workloads that thrash, the guard protects those with a higher one first.
    #[serde(default)]
    pub priority: i32,
    /// What a workload is; the guard can take each process of a cgroup by itself.
    #[serde(default)]
    pub by: By,
    /// Its labels in telemetry; they replace those of the same names in `[telemetry]`.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// What a workload is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// A cgroup, with all that is in it.
    #[default]
    Cgroup,
    /// A large process of a cgroup.
    Process,
}

/// The policy of workloads that are observed and not reclaimed from: only what holds in the background is done to them.
pub const NONE: &str = "none";

fn auto() -> String {
    "auto".to_owned()
}

/// What a table of workloads is made by.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The first that matches a cgroup counts.
    pub rules: Vec<(Selection, WorkloadRule)>,
    /// Cgroups that are left alone, with all that is below them.
    pub exclude: Vec<Selection>,
    /// Policies that need no idle ages: they do without sampling, which has its price.
    pub without_ages: BTreeSet<String>,
    /// Seconds from one turn to the next.
    pub every_s: f64,
}

impl Rules {
    /// Rules from patterns. Fails if a pattern makes no sense.
    pub fn new(kernel: &Kernel, workloads: &[WorkloadRule], exclude: &[String]) -> Result<Self> {
        let rules = workloads.iter().map(|rule| Ok((Selection::new(kernel, &rule.cgroup)?, rule.clone())));
        Ok(Self {
            rules: rules.collect::<Result<_>>()?,
            exclude: exclude.iter().map(|name| Selection::new(kernel, name)).collect::<Result<_>>()?,
            without_ages: BTreeSet::from([NONE.to_owned()]),
            every_s: 5.0,
        })
    }

    /// Whether idle ages are needed of workloads with that policy.
    pub fn needs_ages(&self, policy: &str) -> bool {
        !self.without_ages.contains(policy)
    }
}
