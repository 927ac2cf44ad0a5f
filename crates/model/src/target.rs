//! What identifies a target.

use serde::{Deserialize, Serialize};

/// A cgroup or a process, by what is not used again within a boot. Paths and pids are. Stored and shown as one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub enum TargetId {
    /// A cgroup, by the inode of its directory.
    Cgroup(u64),
    /// A process with its descendants, by pid and start time, clock ticks since the boot.
    Tree(u32, u64),
    /// One process, by the same.
    Process(u32, u64),
}

impl Default for TargetId {
    fn default() -> Self {
        Self::Cgroup(0)
    }
}

/// Bits of a pid (`PID_MAX_LIMIT`). Above it lies the start time; no inode has the two highest bits set.
const PID_BITS: u32 = 22;
const TREE: u64 = 0b10 << 62;
const PROCESS: u64 = 0b11 << 62;

impl From<TargetId> for u64 {
    fn from(id: TargetId) -> Self {
        match id {
            TargetId::Cgroup(inode) => inode,
            TargetId::Tree(pid, start_ticks) => TREE | start_ticks << PID_BITS | Self::from(pid),
            TargetId::Process(pid, start_ticks) => PROCESS | start_ticks << PID_BITS | Self::from(pid),
        }
    }
}

impl From<u64> for TargetId {
    fn from(number: u64) -> Self {
        let pid = u32::try_from(number & ((1 << PID_BITS) - 1)).unwrap_or_default();
        let start_ticks = (number & !PROCESS) >> PID_BITS;
        match number & PROCESS {
            PROCESS => Self::Process(pid, start_ticks),
            TREE => Self::Tree(pid, start_ticks),
            _ => Self::Cgroup(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn identities_are_numbers_outside_and_keys_in_json() {
        for id in [TargetId::Cgroup(7), TargetId::Tree(4_194_303, 12_345), TargetId::Process(1, 99)] {
            assert_eq!(TargetId::from(u64::from(id)), id);
        }
        assert_eq!(u64::from(TargetId::Tree(5, 1)), 1 << 63 | 1 << 22 | 5);
        let map = BTreeMap::from([(TargetId::Process(5, 1), true)]);
        let text = serde_json::to_string(&map).unwrap();
        assert_eq!(text, format!("{{\"{}\":true}}", 3u64 << 62 | 1 << 22 | 5));
        assert_eq!(serde_json::from_str::<BTreeMap<TargetId, bool>>(&text).unwrap(), map);
    }
}
