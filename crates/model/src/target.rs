//! What identifies a target.

use serde::{Deserialize, Serialize};

/// A cgroup or a process, by what is not used again within a boot. Paths and pids are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TargetId {
    /// A cgroup, by the inode of its directory.
    Cgroup(u64),
    /// A process with its descendants, by pid and start time, clock ticks since the boot.
    Process(u32, u64),
}
