//! Quotas of schemes: how much at most, and what comes first.

use crate::named::named;
use serde::{Deserialize, Serialize};

use crate::units::{Size, Span};

/// How much at most, in every interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table with the keys of a quota")]
pub struct Quota {
    /// CPU time for trying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
    /// Bytes tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// The interval.
    pub every: Span,
    /// What decides which memory comes first where not all may.
    #[serde(skip_serializing_if = "Weights::is_default")]
    pub weights: Weights,
    /// What the size is tuned for.
    #[serde(rename = "goal", skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<Goal>,
}

impl Default for Quota {
    fn default() -> Self {
        let every = Span(std::time::Duration::from_secs(1));
        Self { time: None, size: None, every, weights: Weights::default(), goals: Vec::new() }
    }
}

impl Quota {
    /// Whether it bounds anything.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        self.time.is_some() || self.size.is_some() || !self.goals.is_empty()
    }

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether anything is limited.
    #[must_use]
    pub fn limits(&self) -> bool {
        self.time.is_some() || self.size.is_some() || !self.goals.is_empty()
    }
}

/// What makes one region more urgent than another, each as a part of all three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table with size, access and age")]
pub struct Weights {
    /// Being large.
    pub size: u32,
    /// Being used much, or little, as the action wants it.
    pub access: u32,
    /// Having been like this for long.
    pub age: u32,
}

impl Default for Weights {
    /// As the kernel's own users of schemes have it: size does not matter (`DAMON_RECLAIM`).
    fn default() -> Self {
        Self { size: 0, access: 1, age: 1 }
    }
}

impl Weights {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A metric that the kernel brings to its target by tuning the quota.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Which figure.
    pub metric: GoalMetric,
    /// Its target value: microseconds for pressure, ten-thousandths for memory, anything for `user_input`.
    pub target: u64,
    /// What it is, for `user_input`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
    /// The memory node, for the metrics of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// The cgroup, for the metrics of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
}

named! {
    /// Figures that a quota can be tuned for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum GoalMetric {
        /// Whatever was written to the goal.
        UserInput = "user_input",
        /// Time for which some task of the system stalled on memory.
        SomeMemPsiUs = "some_mem_psi_us",
        /// Memory in use on a node.
        NodeMemUsedBp = "node_mem_used_bp",
        /// Memory free on a node.
        NodeMemFreeBp = "node_mem_free_bp",
        /// Memory of a node that a cgroup uses.
        NodeMemcgUsedBp = "node_memcg_used_bp",
        /// Memory of a node that a cgroup does not use.
        NodeMemcgFreeBp = "node_memcg_free_bp",
        /// Active memory, as part of active and inactive.
        ActiveMemBp = "active_mem_bp",
        /// Inactive memory, as part of active and inactive.
        InactiveMemBp = "inactive_mem_bp",
    }
}
