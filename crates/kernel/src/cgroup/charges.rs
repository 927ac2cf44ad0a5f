//! What is charged to a cgroup and its descendants, as rows of the field table.

use lowtide_model::units::float;
use lowtide_model::usage::{FIELDS, Usage};

use super::{Cgroup, Version};
use crate::root::{Kernel, Result, keyed};

/// A figure of [`Usage`]. Values of several keys add up.
type Slot = fn(&mut Usage) -> &mut Option<f64>;
/// A file of a cgroup, and which key of it is which figure; no key where the file holds one number.
type Source = (&'static str, &'static [(&'static str, Slot)]);

const STAT: &str = "memory.stat";

/// Of version 1 (Documentation/admin-guide/cgroup-v1/memory.rst): `total_*` lines count descendants too.
#[rustfmt::skip]
const V1: &[Source] = &[
    (STAT, &[
        ("total_rss", |usage| &mut usage.anon_bytes),
        ("total_rss_huge", |usage| &mut usage.huge_bytes),
        ("total_cache", |usage| &mut usage.file_bytes),
        ("total_shmem", |usage| &mut usage.shmem_bytes),
        ("total_mapped_file", |usage| &mut usage.mapped_file_bytes),
        ("total_swap", |usage| &mut usage.swap_bytes),
        ("total_active_anon", |usage| &mut usage.cgroup_lru_bytes),
        ("total_inactive_anon", |usage| &mut usage.cgroup_lru_bytes),
        ("total_active_file", |usage| &mut usage.cgroup_lru_bytes),
        ("total_inactive_file", |usage| &mut usage.cgroup_lru_bytes),
        ("total_inactive_file", |usage| &mut usage.cgroup_inactive_file_bytes),
        ("total_unevictable", |usage| &mut usage.cgroup_lru_bytes),
        ("total_unevictable", |usage| &mut usage.unevictable_bytes),
        ("total_pgfault", |usage| &mut usage.minor_faults),
        ("total_pgmajfault", |usage| &mut usage.major_faults),
        ("total_workingset_refault_anon", |usage| &mut usage.refault_anon),
        ("total_workingset_refault_file", |usage| &mut usage.refault_file),
    ]),
    ("memory.oom_control", &[("oom_kill", |usage| &mut usage.oom_kills)]),
    ("memory.kmem.usage_in_bytes", &[("", |usage| &mut usage.kernel_bytes)]),
    ("memory.kmem.tcp.usage_in_bytes", &[("", |usage| &mut usage.socket_bytes)]),
    ("memory.usage_in_bytes", &[("", |usage| &mut usage.cgroup_bytes)]),
    ("memory.failcnt", &[("", |usage| &mut usage.max_events)]),
];

/// Of version 2 (Documentation/admin-guide/cgroup-v2.rst): all lines count descendants.
#[rustfmt::skip]
const V2: &[Source] = &[
    (STAT, &[
        ("anon", |usage| &mut usage.anon_bytes),
        ("anon_thp", |usage| &mut usage.huge_bytes),
        ("file", |usage| &mut usage.file_bytes),
        ("shmem", |usage| &mut usage.shmem_bytes),
        ("file_mapped", |usage| &mut usage.mapped_file_bytes),
        ("zswap", |usage| &mut usage.zswap_bytes),
        ("zswapped", |usage| &mut usage.zswapped_bytes),
        ("kernel", |usage| &mut usage.kernel_bytes),
        ("slab", |usage| &mut usage.slab_bytes),
        ("pagetables", |usage| &mut usage.page_table_bytes),
        ("kernel_stack", |usage| &mut usage.stack_bytes),
        ("sock", |usage| &mut usage.socket_bytes),
        ("active_anon", |usage| &mut usage.cgroup_lru_bytes),
        ("inactive_anon", |usage| &mut usage.cgroup_lru_bytes),
        ("active_file", |usage| &mut usage.cgroup_lru_bytes),
        ("inactive_file", |usage| &mut usage.cgroup_lru_bytes),
        ("inactive_file", |usage| &mut usage.cgroup_inactive_file_bytes),
        ("unevictable", |usage| &mut usage.cgroup_lru_bytes),
        ("unevictable", |usage| &mut usage.unevictable_bytes),
        ("pgfault", |usage| &mut usage.minor_faults),
        ("pgmajfault", |usage| &mut usage.major_faults),
        ("workingset_refault_anon", |usage| &mut usage.refault_anon),
        ("workingset_refault_file", |usage| &mut usage.refault_file),
    ]),
    ("memory.events", &[
        ("high", |usage| &mut usage.high_events),
        ("max", |usage| &mut usage.max_events),
        ("oom_kill", |usage| &mut usage.oom_kills),
    ]),
    ("cpu.stat", &[("usage_usec", |usage| &mut usage.cpu_s)]),
    ("memory.swap.current", &[("", |usage| &mut usage.swap_bytes)]),
    ("memory.current", &[("", |usage| &mut usage.cgroup_bytes)]),
    ("pids.current", &[("", |usage| &mut usage.threads)]),
];

impl Cgroup {
    /// What is charged to it and its descendants; counters count since it was made. `None` = this version does not report it.
    pub fn charges(&self, kernel: &Kernel) -> Result<Usage> {
        let sources = match self.version {
            Version::V1 => V1,
            Version::V2 => V2,
        };
        let zero = Some(0.0);
        // memory.stat of either version reports these.
        let mut usage = Usage {
            anon_bytes: zero,
            file_bytes: zero,
            shmem_bytes: zero,
            mapped_file_bytes: zero,
            swap_bytes: zero,
            cgroup_lru_bytes: zero,
            cgroup_inactive_file_bytes: zero,
            unevictable_bytes: zero,
            minor_faults: zero,
            major_faults: zero,
            ..Usage::default()
        };
        for (file, slots) in sources {
            match kernel.read_text(self.path.join(file)) {
                Ok(text) => add(&mut usage, &text, slots),
                Err(error) if *file == STAT => return Err(error),
                Err(_) => {}
            }
        }
        // The kernel counts all faults, and CPU time in microseconds.
        usage.minor_faults = usage.minor_faults.zip(usage.major_faults).map(|(all, major)| (all - major).max(0.0));
        usage.cpu_s = usage.cpu_s.map(|us| us / 1e6);
        Ok(usage)
    }
}

fn add(usage: &mut Usage, text: &str, slots: &[(&str, Slot)]) {
    let number = text.trim().parse().ok().map(|number| ("", number));
    for (key, number) in keyed(text).chain(number) {
        for (_, slot) in slots.iter().filter(|(name, _)| *name == key) {
            *slot(usage).get_or_insert(0.0) += float(number);
        }
    }
}

/// The charges of several cgroups together: each figure that any of them reports.
pub(crate) fn sum(sum: Usage, of: &Usage) -> Usage {
    FIELDS.iter().fold(sum, |mut sum, field| {
        let values = [(field.get)(&sum), (field.get)(of)];
        (field.set)(&mut sum, values.into_iter().flatten().reduce(|a, b| a + b));
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str, version: &[Source]) -> Usage {
        let mut usage = Usage::default();
        add(&mut usage, text, version[0].1);
        usage
    }

    #[test]
    fn both_stat_dialects() {
        let v1 = parse(
            "cache 1\ntotal_cache 20\ntotal_rss 30\ntotal_active_anon 4\ntotal_inactive_file 5\ntotal_swap 6\n",
            V1,
        );
        assert_eq!((v1.file_bytes, v1.anon_bytes), (Some(20.0), Some(30.0)));
        assert_eq!((v1.cgroup_lru_bytes, v1.swap_bytes), (Some(9.0), Some(6.0)));
        let v2 = parse("anon 7\nfile 8\nslab 9\nworkingset_refault_anon 3\nzswap 100\nzswapped 300\nanon_thp 4\n", V2);
        assert_eq!((v2.anon_bytes, v2.file_bytes, v2.slab_bytes), (Some(7.0), Some(8.0), Some(9.0)));
        assert_eq!((v2.refault_anon, v2.zswap_bytes), (Some(3.0), Some(100.0)));
        assert_eq!((v2.zswapped_bytes, v2.huge_bytes), (Some(300.0), Some(4.0)));
    }

    #[test]
    fn events_and_cpu_time_of_version_2() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Kernel::at(dir.path());
        let folder = dir.path().join("cg/a");
        std::fs::create_dir_all(&folder).unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        put("memory.stat", "anon 7\npgfault 5\npgmajfault 2\n");
        put("memory.current", "4096\n");
        put("memory.events", "low 0\nhigh 5\nmax 2\noom 1\noom_kill 1\n");
        put("cpu.stat", "usage_usec 1500\nuser_usec 1000\n");
        let cgroup = Cgroup::open(&kernel, Version::V2, "/cg/a".into()).unwrap();
        let charges = cgroup.charges(&kernel).unwrap();
        assert_eq!((charges.high_events, charges.max_events, charges.oom_kills), (Some(5.0), Some(2.0), Some(1.0)));
        assert_eq!((charges.cpu_s, charges.threads, charges.cgroup_bytes), (Some(0.0015), None, Some(4096.0)));
        assert_eq!((charges.minor_faults, charges.major_faults, charges.file_bytes), (Some(3.0), Some(2.0), Some(0.0)));
        let twice = sum(charges.clone(), &charges);
        assert_eq!((twice.anon_bytes, twice.cpu_s, twice.threads), (Some(14.0), Some(0.003), None));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\PC|\\n)*") {
            let _ = (parse(&text, V1), parse(&text, V2));
        }
    }
}
