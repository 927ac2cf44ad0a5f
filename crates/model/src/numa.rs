//! Memory by NUMA node: where a target's memory lies on machines with more than one node that has memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::summary::Level;
use crate::units::float;

/// Memory of a target on one node, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeUse {
    /// The node's number.
    pub node: u32,
    /// Anonymous memory.
    pub anon: u64,
    /// File memory.
    pub file: u64,
    /// Kernel memory: slab, page tables, stacks. `None` where the kernel does not report it by node.
    pub kernel: Option<u64>,
}

/// The same at a tick.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NodeRow {
    /// Seconds since the start of the record.
    pub t_s: f64,
    /// Its memory.
    pub memory: NodeUse,
}

/// One node over the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeSummary {
    /// The node's number.
    pub node: u32,
    /// Anonymous memory.
    pub anon: Level,
    /// File memory.
    pub file: Level,
    /// Kernel memory.
    pub kernel: Level,
}

/// Levels by node; empty where there is but one.
#[must_use]
pub fn summarise(rows: &[NodeRow]) -> Vec<NodeSummary> {
    let mut nodes: BTreeMap<u32, Vec<NodeUse>> = BTreeMap::new();
    rows.iter().for_each(|row| nodes.entry(row.memory.node).or_default().push(row.memory));
    let level = |rows: &[NodeUse], get: fn(&NodeUse) -> Option<u64>| {
        let values: Vec<f64> = rows.iter().filter_map(get).map(float).collect();
        Level::of(&values)
    };
    let summary = |(node, rows): (u32, Vec<NodeUse>)| NodeSummary {
        node,
        anon: level(&rows, |row| Some(row.anon)),
        file: level(&rows, |row| Some(row.file)),
        kernel: level(&rows, |row| row.kernel),
    };
    nodes.into_iter().map(summary).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_peak_and_mean() {
        let row = |t_s, node, anon, kernel| NodeRow { t_s, memory: NodeUse { node, anon, file: 5, kernel } };
        let all = summarise(&[row(1.0, 1, 10, None), row(1.0, 0, 7, Some(3)), row(2.0, 1, 30, None)]);
        assert_eq!(all.iter().map(|one| one.node).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(all[1].anon, Level { peak_bytes: Some(30), avg_bytes: Some(20) });
        assert_eq!((all[0].kernel.peak_bytes, all[1].kernel.peak_bytes), (Some(3), None));
        assert_eq!(summarise(&[]), []);
    }
}
