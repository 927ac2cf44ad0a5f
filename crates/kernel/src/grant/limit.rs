//! Limits: a cgroup is kept small for a time, so that others have the rest, and nothing of it is killed for that.
//!
//! On version 2 this is `memory.high`, beyond which a cgroup reclaims from itself and is never killed. On version 1 it is
//! `memory.limit_in_bytes`, and for as long `memory.oom_control`: whoever finds nothing to reclaim waits until the limit is gone
//! (Documentation/admin-guide/cgroup-v1/memory.rst, "OOM Control").

use std::path::PathBuf;

use crate::cgroup::{Cgroup, Version};
use crate::root::{Kernel, Result};
use crate::undo::{Journal, Lease};

/// A limit is lowered by so many bytes at a time, at most: the kernel reclaims before the write returns.
const STEP: u64 = 64 << 20;
const SMALLEST_STEP: u64 = 1 << 20;

/// A cgroup that is kept small.
#[derive(Debug)]
pub(super) struct Limit {
    pub until_s: f64,
    /// The limit now.
    pub bytes: u64,
    file: PathBuf,
    usage: PathBuf,
    /// Taken back in this order: first the limit, then what made it safe.
    _leases: Vec<Lease>,
}

/// Whether a cgroup can be limited without a kill.
pub fn can_limit(kernel: &Kernel, cgroup: &Cgroup) -> bool {
    kernel.exists(cgroup.path.join(cgroup.by_version("memory.oom_control", "memory.high")))
}

impl Limit {
    /// Begins to keep a cgroup below so many bytes until then. `None` where it has such a limit anyway.
    pub fn new(
        kernel: &Kernel,
        journal: &Journal,
        cgroup: &Cgroup,
        (bytes, until_s): (u64, f64),
    ) -> Result<Option<Self>> {
        let file = cgroup.path.join(cgroup.by_version("memory.limit_in_bytes", "memory.high"));
        let usage = cgroup.path.join(cgroup.by_version("memory.usage_in_bytes", "memory.current"));
        let old = kernel.read_text(&file)?;
        // `max` is as much as there is.
        if old.trim().parse::<u64>().is_ok_and(|limit| limit <= bytes) {
            return Ok(None);
        }
        let mut leases = Vec::new();
        if cgroup.version == Version::V1 {
            let safe = cgroup.path.join("memory.oom_control");
            if !kernel.read_text(&safe)?.starts_with("oom_kill_disable 1") {
                leases.push(journal.keep(&safe, "0")?);
                kernel.write(&safe, "1")?;
            }
        }
        leases.insert(0, journal.keep(&file, old.trim_end())?);
        let mut limit = Self { until_s, bytes: u64::MAX, file, usage, _leases: leases };
        limit.set(kernel, bytes)?;
        Ok(Some(limit))
    }

    /// Whether it is so many bytes. A little more or less is not worth a write.
    pub fn is(&self, bytes: u64) -> bool {
        self.bytes.abs_diff(bytes) <= self.bytes / 50
    }

    /// A step further, or another limit.
    pub fn set(&mut self, kernel: &Kernel, bytes: u64) -> Result<()> {
        let mut step = STEP;
        loop {
            let usage = kernel.read_number(&self.usage)?;
            let next = bytes.max(if step < SMALLEST_STEP { usage + SMALLEST_STEP } else { usage.saturating_sub(step) });
            if self.is(next) {
                return Ok(());
            }
            match kernel.write(&self.file, &next.to_string()) {
                // Version 1 sets no limit below what it could not reclaim at once; some of it is reclaimed.
                Err(error) if error.is_busy() && step >= SMALLEST_STEP => step /= 4,
                Err(error) => return Err(error),
                Ok(()) => {
                    self.bytes = next;
                    return Ok(());
                }
            }
        }
    }
}
