//! The figures of a cgroup that reclaim needs, in as few reads as possible.

use std::os::unix::fs::MetadataExt;

use lowtide_model::kind::PerKind;
use lowtide_model::units::float;

use super::{Cgroup, Version};
use crate::pressure;
use crate::proc::{self, ProcessId};
use crate::root::{Kernel, Result, keyed, value_of};

/// What a cgroup holds, with its descendants, and how much it waits for memory.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Vitals {
    /// Bytes in memory. Shared memory counts as anonymous: it is on the same lists.
    pub resident: PerKind<u64>,
    /// Of the anonymous memory, bytes in huge pages.
    pub huge: u64,
    /// Bytes paged out, and not in memory as well.
    pub swapped: u64,
    /// Bytes paged out that zswap holds.
    pub zswapped: u64,
    /// Bytes that zswap takes for them.
    pub zswap: u64,
    /// Pages evicted so far, for any reason.
    pub stolen: u64,
    /// Of them, pages evicted on request (`memory.reclaim` and the like); reported since Linux 6.15.
    pub stolen_on_demand: Option<u64>,
    /// Pages refaulted so far.
    pub refaults: PerKind<u64>,
    /// Protected bytes: the higher of memory.min and memory.low.
    pub floor: u64,
    /// Bytes above which the kernel reclaims by itself (`memory.high`); `u64::MAX` for no limit.
    pub high: Option<u64>,
    /// Seconds so far in which some task stalled on memory.
    pub memory_some_s: Option<f64>,
    /// Seconds so far in which all runnable tasks stalled on memory.
    pub memory_full_s: Option<f64>,
    /// Seconds so far in which some task stalled on I/O.
    pub io_some_s: Option<f64>,
}

impl Cgroup {
    /// Reads them.
    pub fn vitals(&self, kernel: &Kernel) -> Result<Vitals> {
        let stat = kernel.read_text(self.path.join("memory.stat"))?;
        let mut vitals = parse(&stat);
        if self.version == Version::V1 {
            return Ok(vitals);
        }
        let number = |name: &str| match kernel.read_text(self.path.join(name)) {
            Ok(text) if text.trim() == "max" => Some(u64::MAX),
            Ok(text) => text.trim().parse().ok(),
            Err(_) => None,
        };
        // What was read ahead, or only read since it came back, has its place in swap still; version 1 does not count that.
        let cached = value_of(&stat, "swapcached").unwrap_or(0);
        vitals.swapped = number("memory.swap.current").unwrap_or(0).saturating_sub(cached);
        // The root has neither.
        vitals.floor = number("memory.min").unwrap_or(0).max(number("memory.low").unwrap_or(0));
        vitals.high = number("memory.high");
        let stalled = |resource: &str| {
            let path = self.path.join(format!("{resource}.pressure"));
            pressure::read(kernel, &path.to_string_lossy()).ok()
        };
        let memory = stalled("memory");
        vitals.memory_some_s = memory.map(|memory| memory.some_s);
        vitals.memory_full_s = memory.and_then(|memory| memory.full_s);
        vitals.io_some_s = stalled("io").map(|io| io.some_s);
        Ok(vitals)
    }
}

impl Vitals {
    /// Those of one process of a cgroup. The kernel does not report refaults of a process: its major faults stand for them,
    /// as anonymous memory.
    pub fn of_process(kernel: &Kernel, process: ProcessId, cgroup: &Cgroup) -> Result<Self> {
        let status = proc::status(kernel, process.pid)?;
        let stat = proc::check(kernel, process)?;
        let stalled = cgroup.pressure_file(kernel, "memory").and_then(|path| pressure::read(kernel, &path).ok());
        Ok(Self {
            resident: PerKind { anon: status.rss_anon.saturating_add(status.rss_shmem), file: status.rss_file },
            swapped: status.swap,
            refaults: PerKind { anon: stat.major_faults.own, file: 0 },
            // Of two tasks, the time that some stalled and the time that both did add up to what each of them did.
            memory_full_s: stalled.and_then(|of| Some(0.5 * (of.some_s + of.full_s?))),
            ..Self::default()
        })
    }
}

impl Cgroup {
    /// CPU time of all its processes so far, microseconds; `None` where its controller is not on.
    pub fn cpu_us(&self, kernel: &Kernel) -> Option<u64> {
        value_of(&kernel.read_text(self.path.join("cpu.stat")).ok()?, "usage_usec")
    }

    /// Seconds that its tasks have spent in the kernel so far: also on faults, and on compressing for zram, which pressure does
    /// not count. On version 1, where CPU time is another hierarchy's, of the processes that are in it now.
    pub fn system_s(&self, kernel: &Kernel) -> Option<f64> {
        if self.version == Version::V1 {
            return Some(self.pids(kernel).ok()?.into_iter().filter_map(|pid| proc::system_s(kernel, pid).ok()).sum());
        }
        let text = kernel.read_text(self.path.join("cpu.stat")).ok()?;
        value_of(&text, "system_usec").map(|us| float(us) / 1e6)
    }

    /// The user that it belongs to, as it was delegated; `None` if another cgroup has its path by now.
    pub fn owner(&self, kernel: &Kernel) -> Option<u32> {
        let meta = std::fs::symlink_metadata(kernel.path(&self.path)).ok()?;
        (meta.ino() == self.inode).then(|| meta.uid())
    }

    /// Whether it is frozen with all its descendants (version 2).
    pub fn is_frozen(&self, kernel: &Kernel) -> bool {
        let text = kernel.read_text(self.path.join("cgroup.events")).unwrap_or_default();
        value_of(&text, "frozen") == Some(1)
    }
}

fn parse(text: &str) -> Vitals {
    let mut vitals = Vitals::default();
    let (mut anon, mut file, mut shared, mut lists) = (0u64, 0u64, 0u64, [0u64; 2]);
    for (key, number) in keyed(text) {
        match key {
            "anon" | "total_rss" => anon = number,
            "file" | "total_cache" => file = number,
            "shmem" | "total_shmem" => shared = number,
            "inactive_anon" | "total_inactive_anon" => lists[0] = number,
            "active_anon" | "total_active_anon" => lists[1] = number,
            "anon_thp" | "total_rss_huge" => vitals.huge = number,
            "total_swap" => vitals.swapped = number,
            "zswap" => vitals.zswap = number,
            "zswapped" => vitals.zswapped = number,
            "pgsteal" => vitals.stolen = number,
            "pgsteal_proactive" => vitals.stolen_on_demand = Some(number),
            // Version 1 reports itself first, then itself with all descendants.
            "workingset_refault_anon" | "total_workingset_refault_anon" => vitals.refaults.anon = number,
            "workingset_refault_file" | "total_workingset_refault_file" => vitals.refaults.file = number,
            _ => {}
        }
    }
    // What was read ahead from swap and is not mapped yet is on the lists only.
    let listed = lists[0].saturating_add(lists[1]);
    vitals.resident = PerKind { anon: anon.saturating_add(shared).max(listed), file: file.saturating_sub(shared) };
    vitals
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shared_memory_is_with_what_is_paged_out() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        put(
            "memory.stat",
            "anon 100\nanon_thp 8\nfile 50\nshmem 20\nswapcached 10\nworkingset_refault_anon 3\nworkingset_refault_file 4\nzswap 5\npgsteal 9\npgsteal_proactive 6\n",
        );
        put("memory.swap.current", "80\n");
        put("memory.low", "max\n");
        put("memory.min", "0\n");
        put("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n");
        let cgroup = Cgroup { version: Version::V2, path: "/".into(), inode: 0 };
        let vitals = cgroup.vitals(&Kernel::at(dir.path())).unwrap();
        assert_eq!((vitals.resident, vitals.swapped, vitals.refaults), ([120, 30].into(), 70, [3, 4].into()));
        assert_eq!((vitals.floor, vitals.memory_some_s, vitals.zswap), (u64::MAX, Some(1.5), 5));
        assert_eq!((vitals.memory_full_s, vitals.io_some_s), (None, None));
        assert_eq!((vitals.stolen, vitals.stolen_on_demand, vitals.huge), (9, Some(6), 8));
        std::fs::remove_file(dir.path().join("memory.stat")).unwrap();
        assert!(cgroup.vitals(&Kernel::at(dir.path())).unwrap_err().is_gone());
    }

    #[test]
    fn version_1_has_other_names_and_totals_of_its_own() {
        let vitals = parse(
            "rss 1\ncache 1\ntotal_rss 100\ntotal_cache 50\nworkingset_refault_anon 1\ntotal_workingset_refault_anon 4\ntotal_shmem 20\ntotal_swap 7\n",
        );
        assert_eq!((vitals.resident, vitals.swapped, vitals.refaults), ([120, 30].into(), 7, [4, 0].into()));
    }

    #[test]
    fn what_was_read_ahead_is_in_memory() {
        let v2 = parse("anon 100\nshmem 20\nswapcached 40\ninactive_anon 90\nactive_anon 60\n");
        let v1 = parse("inactive_anon 1\nactive_anon 2\ntotal_rss 120\ntotal_inactive_anon 90\ntotal_active_anon 60\n");
        assert_eq!((v2.resident.anon, v1.resident.anon), (150, 150));
        // Memory that is locked is on neither list.
        assert_eq!(parse("anon 100\ninactive_anon 9\n").resident.anon, 100);
    }

    #[test]
    fn a_frozen_cgroup_and_its_cpu_time() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Kernel::at(dir.path());
        let cgroup = Cgroup { version: Version::V2, path: "/".into(), inode: 0 };
        assert!(!cgroup.is_frozen(&kernel) && cgroup.cpu_us(&kernel).is_none());
        std::fs::write(dir.path().join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
        std::fs::write(dir.path().join("cpu.stat"), "usage_usec 123\nuser_usec 100\n").unwrap();
        assert!(cgroup.is_frozen(&kernel));
        assert_eq!(cgroup.cpu_us(&kernel), Some(123));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "((anon|file|shmem|zswap)? ?[0-9]{0,22}|\\PC{0,8}|\\n)*") {
            let _ = parse(&text);
        }
    }
}
