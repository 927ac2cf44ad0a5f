//! What is charged to a cgroup and its descendants, in the words of either version.

use super::{Cgroup, Version};
use crate::root::{Kernel, Result, keyed, value_of};

/// What is charged to a cgroup and its descendants: bytes, and counts since the cgroup was made. `None` = this version
/// does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the rows of the field table")]
pub struct Charges {
    pub anon: u64,
    pub file: u64,
    pub shmem: u64,
    pub mapped_file: u64,
    pub swap: u64,
    pub zswap: Option<u64>,
    pub zswapped: Option<u64>,
    pub huge: Option<u64>,
    pub lru: u64,
    pub inactive_file: u64,
    pub unevictable: u64,
    pub kernel: Option<u64>,
    pub slab: Option<u64>,
    pub page_tables: Option<u64>,
    pub stacks: Option<u64>,
    pub sockets: Option<u64>,
    pub current: Option<u64>,
    pub faults: u64,
    pub major_faults: u64,
    pub refault_anon: Option<u64>,
    pub refault_file: Option<u64>,
    pub high_events: Option<u64>,
    pub max_events: Option<u64>,
    pub oom_kills: Option<u64>,
    pub cpu_us: Option<u64>,
    pub threads: Option<u64>,
}

/// A figure of several cgroups together: known if any of them tells it.
fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    }
}

impl std::ops::AddAssign for Charges {
    fn add_assign(&mut self, of: Self) {
        self.anon += of.anon;
        self.file += of.file;
        self.shmem += of.shmem;
        self.mapped_file += of.mapped_file;
        self.swap += of.swap;
        self.lru += of.lru;
        self.inactive_file += of.inactive_file;
        self.unevictable += of.unevictable;
        self.faults += of.faults;
        self.major_faults += of.major_faults;
        for (all, one) in [
            (&mut self.zswap, of.zswap),
            (&mut self.zswapped, of.zswapped),
            (&mut self.huge, of.huge),
            (&mut self.kernel, of.kernel),
            (&mut self.slab, of.slab),
            (&mut self.page_tables, of.page_tables),
            (&mut self.stacks, of.stacks),
            (&mut self.sockets, of.sockets),
            (&mut self.current, of.current),
            (&mut self.refault_anon, of.refault_anon),
            (&mut self.refault_file, of.refault_file),
            (&mut self.high_events, of.high_events),
            (&mut self.max_events, of.max_events),
            (&mut self.oom_kills, of.oom_kills),
            (&mut self.cpu_us, of.cpu_us),
            (&mut self.threads, of.threads),
        ] {
            *all = sum(*all, one);
        }
    }
}

impl Cgroup {
    /// What is charged to it and its descendants.
    pub fn charges(&self, kernel: &Kernel) -> Result<Charges> {
        let number = |name: &str| kernel.read_number(self.path.join(name)).ok();
        let text = kernel.read_text(self.path.join("memory.stat"))?;
        let keyed = |name: &str| kernel.read_text(self.path.join(name)).ok();
        let value = |text: &Option<String>, key: &str| value_of(text.as_deref()?, key);
        Ok(match self.version {
            Version::V1 => Charges {
                kernel: number("memory.kmem.usage_in_bytes"),
                sockets: number("memory.kmem.tcp.usage_in_bytes"),
                current: number("memory.usage_in_bytes"),
                max_events: number("memory.failcnt"),
                oom_kills: value(&keyed("memory.oom_control"), "oom_kill"),
                ..parse_v1(&text)
            },
            Version::V2 => {
                let events = keyed("memory.events");
                Charges {
                    swap: number("memory.swap.current").unwrap_or(0),
                    current: number("memory.current"),
                    high_events: value(&events, "high"),
                    max_events: value(&events, "max"),
                    oom_kills: value(&events, "oom_kill"),
                    cpu_us: value(&keyed("cpu.stat"), "usage_usec"),
                    threads: number("pids.current"),
                    ..parse_v2(&text)
                }
            }
        })
    }
}

impl Charges {
    /// Counts one of the kernel's lists of pages, by the name that both versions give it; nothing else.
    fn add_list(&mut self, list: &str, bytes: u64) {
        match list {
            "active_anon" | "inactive_anon" | "active_file" => {}
            "inactive_file" => self.inactive_file = bytes,
            "unevictable" => self.unevictable = bytes,
            _ => return,
        }
        self.lru += bytes;
    }
}

/// `memory.stat` of version 1: `total_*` lines count descendants too.
fn parse_v1(text: &str) -> Charges {
    let mut charges = Charges::default();
    for (key, number) in keyed(text) {
        match key.strip_prefix("total_").unwrap_or("") {
            "rss" => charges.anon = number,
            "rss_huge" => charges.huge = Some(number),
            "cache" => charges.file = number,
            "shmem" => charges.shmem = number,
            "mapped_file" => charges.mapped_file = number,
            "swap" => charges.swap = number,
            "pgfault" => charges.faults = number,
            "pgmajfault" => charges.major_faults = number,
            "workingset_refault_anon" => charges.refault_anon = Some(number),
            "workingset_refault_file" => charges.refault_file = Some(number),
            list => charges.add_list(list, number),
        }
    }
    charges
}

/// `memory.stat` of version 2: all lines count descendants.
fn parse_v2(text: &str) -> Charges {
    let mut charges = Charges::default();
    for (key, number) in keyed(text) {
        match key {
            "anon" => charges.anon = number,
            "file" => charges.file = number,
            "shmem" => charges.shmem = number,
            "file_mapped" => charges.mapped_file = number,
            "zswap" => charges.zswap = Some(number),
            "zswapped" => charges.zswapped = Some(number),
            "anon_thp" => charges.huge = Some(number),
            "kernel" => charges.kernel = Some(number),
            "slab" => charges.slab = Some(number),
            "pagetables" => charges.page_tables = Some(number),
            "kernel_stack" => charges.stacks = Some(number),
            "sock" => charges.sockets = Some(number),
            "pgfault" => charges.faults = number,
            "pgmajfault" => charges.major_faults = number,
            "workingset_refault_anon" => charges.refault_anon = Some(number),
            "workingset_refault_file" => charges.refault_file = Some(number),
            list => charges.add_list(list, number),
        }
    }
    charges
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_stat_dialects() {
        let v1 = parse_v1(
            "cache 1\ntotal_cache 20\ntotal_rss 30\ntotal_active_anon 4\ntotal_inactive_file 5\ntotal_swap 6\n",
        );
        assert_eq!((v1.file, v1.anon, v1.lru, v1.swap), (20, 30, 9, 6));
        let v2 = parse_v2("anon 7\nfile 8\nslab 9\nworkingset_refault_anon 3\nzswap 100\nzswapped 300\nanon_thp 4\n");
        assert_eq!((v2.anon, v2.file, v2.slab, v2.refault_anon), (7, 8, Some(9), Some(3)));
        assert_eq!((v2.zswap, v2.zswapped, v2.huge), (Some(100), Some(300), Some(4)));
    }

    #[test]
    fn events_and_cpu_time_of_version_2() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Kernel::at(dir.path());
        let folder = dir.path().join("cg/a");
        std::fs::create_dir_all(&folder).unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        put("memory.stat", "anon 7\n");
        put("memory.events", "low 0\nhigh 5\nmax 2\noom 1\noom_kill 1\n");
        put("cpu.stat", "usage_usec 1500\nuser_usec 1000\n");
        let cgroup = Cgroup::open(&kernel, Version::V2, "/cg/a".into()).unwrap();
        let mut charges = cgroup.charges(&kernel).unwrap();
        assert_eq!((charges.high_events, charges.max_events, charges.oom_kills), (Some(5), Some(2), Some(1)));
        assert_eq!((charges.cpu_us, charges.threads), (Some(1500), None));
        charges += charges;
        assert_eq!((charges.anon, charges.cpu_us, charges.threads), (14, Some(3000), None));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\PC|\\n)*") {
            let _ = (parse_v1(&text), parse_v2(&text));
        }
    }
}
