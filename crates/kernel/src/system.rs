//! System-wide accounts: memory, CPU time, faults, pressure.

use std::time::Duration;

use crate::root::{Error, Kernel, Result, keyed, value_of};

/// Levels of `/proc/meminfo`, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Total.
    pub total: u64,
    /// Unused.
    pub free: u64,
    /// What the kernel thinks a new program could have without swapping.
    pub available: u64,
    /// Active, inactive and unevictable lists, anonymous and file.
    pub lru: u64,
    /// Anonymous.
    pub anon: u64,
    /// Page cache, shared memory included.
    pub cache: u64,
    /// Shared memory and tmpfs.
    pub shmem: u64,
    /// Slab caches.
    pub slab: u64,
    /// Page tables.
    pub page_tables: u64,
    /// Kernel stacks.
    pub stacks: u64,
    /// Mapped file pages.
    pub mapped: u64,
    /// Swap in use.
    pub swap_used: u64,
}

/// Parses `/proc/meminfo`.
pub fn parse_meminfo(text: &str) -> Memory {
    let mut memory = Memory::default();
    let mut swap_free = 0;
    for (key, bytes) in keyed(text) {
        match key {
            "MemTotal" => memory.total = bytes,
            "MemFree" => memory.free = bytes,
            "MemAvailable" => memory.available = bytes,
            "Active" | "Inactive" | "Unevictable" => memory.lru += bytes,
            "AnonPages" => memory.anon = bytes,
            "Cached" | "Buffers" => memory.cache += bytes,
            "Shmem" => memory.shmem = bytes,
            "Slab" => memory.slab = bytes,
            "PageTables" => memory.page_tables = bytes,
            "KernelStack" => memory.stacks = bytes,
            "Mapped" => memory.mapped = bytes,
            "SwapTotal" => memory.swap_used = bytes,
            "SwapFree" => swap_free = bytes,
            _ => {}
        }
    }
    memory.swap_used = memory.swap_used.saturating_sub(swap_free);
    memory
}

/// Reads `/proc/meminfo`.
pub fn memory(kernel: &Kernel) -> Result<Memory> {
    Ok(parse_meminfo(&kernel.read_text("/proc/meminfo")?))
}

/// CPU time of the system since boot, clock ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTicks {
    /// All states.
    pub total: u64,
    /// Neither idle nor waiting.
    pub busy: u64,
    /// Idle with I/O outstanding.
    pub iowait: u64,
}

/// Parses the `cpu` line of `/proc/stat`.
pub fn parse_cpu(text: &str) -> Option<CpuTicks> {
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let mut states = line.split_whitespace().skip(1).map(|word| word.parse::<u64>().unwrap_or(0));
    // user nice system idle iowait irq softirq steal; guest time is already in user.
    let states: Vec<u64> = states.by_ref().take(8).collect();
    let total = states.iter().fold(0u64, |sum, ticks| sum.saturating_add(*ticks));
    let (idle, iowait) = (*states.get(3)?, *states.get(4)?);
    Some(CpuTicks { total, busy: total.saturating_sub(idle).saturating_sub(iowait), iowait })
}

/// Reads the `cpu` line of `/proc/stat`.
pub fn cpu(kernel: &Kernel) -> Result<CpuTicks> {
    parse_cpu(&kernel.read_text("/proc/stat")?).ok_or_else(|| Error::unexpected("/proc/stat", "no cpu line"))
}

/// Counters of `/proc/vmstat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VmCounters {
    /// All page faults.
    pub faults: u64,
    /// Those with I/O.
    pub major_faults: u64,
    /// Anonymous pages that came back after reclaim.
    pub refault_anon: Option<u64>,
    /// File pages that came back after reclaim.
    pub refault_file: Option<u64>,
}

/// Reads `/proc/vmstat`.
pub fn vm_counters(kernel: &Kernel) -> Result<VmCounters> {
    let text = kernel.read_text("/proc/vmstat")?;
    Ok(VmCounters {
        faults: value_of(&text, "pgfault").unwrap_or(0),
        major_faults: value_of(&text, "pgmajfault").unwrap_or(0),
        refault_anon: value_of(&text, "workingset_refault_anon"),
        refault_file: value_of(&text, "workingset_refault_file"),
    })
}

/// The physical ranges of memory, from the `System RAM` lines of `/proc/iomem`. Without `CAP_SYS_ADMIN` the kernel shows
/// zeros, which is an empty list.
pub fn ram(kernel: &Kernel) -> Result<Vec<(u64, u64)>> {
    Ok(parse_ram(&kernel.read_text("/proc/iomem")?))
}

fn parse_ram(text: &str) -> Vec<(u64, u64)> {
    text.lines()
        .filter_map(|line| {
            let (range, name) = line.split_once(" : ")?;
            let (start, last) = range.split_once('-')?;
            let start = u64::from_str_radix(start, 16).ok()?;
            let end = u64::from_str_radix(last, 16).ok()?.checked_add(1)?;
            (name == "System RAM" && !range.starts_with(' ') && end > start + 1).then_some((start, end))
        })
        .collect()
}

/// Whether this process has a network of its own with nothing but loopback, as systemd's `PrivateNetwork=` gives one: no other
/// process can connect to it. False where that cannot be known.
pub fn is_alone_on_network(kernel: &Kernel) -> bool {
    let space = |pid: &str| std::fs::read_link(kernel.path(format!("/proc/{pid}/ns/net"))).ok();
    let Some((own, first)) = space("self").zip(space("1")) else { return false };
    let devices = kernel.read_text("/proc/self/net/dev").unwrap_or_default();
    own != first && has_only_loopback(&devices)
}

fn has_only_loopback(devices: &str) -> bool {
    let mut names = devices.lines().filter_map(|line| Some(line.split_once(':')?.0.trim()));
    names.next() == Some("lo") && names.next().is_none()
}

/// Nanoseconds on `CLOCK_MONOTONIC`, the clock of trace events.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).ok().and_then(|now| u64::try_from(now.as_nanos()).ok()).unwrap_or(0)
}

/// Which boot of the machine this is: another after every one.
pub fn boot_id(kernel: &Kernel) -> Result<String> {
    Ok(kernel.read_text("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn meminfo_adds_up() {
        let text = "MemTotal: 100 kB\nMemFree: 40 kB\nBuffers: 1 kB\nCached: 9 kB\nActive: 5 kB\nInactive: 6 kB\nActive(anon): 3 kB\nUnevictable: 1 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n";
        let memory = parse_meminfo(text);
        assert_eq!((memory.lru, memory.cache, memory.swap_used), (12 * 1024, 10 * 1024, 6 * 1024));
    }

    #[test]
    fn cpu_states_add_up() {
        let cpu = parse_cpu("cpu  10 0 20 100 5 1 2 3 0 0\ncpu0 1 1\n").unwrap();
        assert_eq!((cpu.total, cpu.busy, cpu.iowait), (141, 36, 5));
    }

    #[test]
    fn a_network_with_nothing_but_loopback_is_private_beside_that_of_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Kernel::at(dir.path());
        assert!(!is_alone_on_network(&kernel));
        for (pid, space) in [("1", "net:[1]"), ("self", "net:[2]")] {
            std::fs::create_dir_all(dir.path().join(format!("proc/{pid}/ns"))).unwrap();
            std::os::unix::fs::symlink(space, dir.path().join(format!("proc/{pid}/ns/net"))).unwrap();
        }
        std::fs::create_dir_all(dir.path().join("proc/self/net")).unwrap();
        let head = "Inter-|   Receive\n face |bytes\n    lo: 0 0\n";
        for (text, alone) in [(head.to_owned(), true), (format!("{head}  eth0: 0 0\n"), false), (String::new(), false)]
        {
            std::fs::write(dir.path().join("proc/self/net/dev"), text).unwrap();
            assert_eq!(is_alone_on_network(&kernel), alone);
        }
    }

    #[test]
    fn ram_is_top_level_only() {
        let text = "00001000-0009fbff : System RAM\n  01000000-0220bb07 : Kernel code\n100000000-63fffffff : System RAM\n00000000-00000000 : System RAM\n";
        assert_eq!(parse_ram(text), [(0x1000, 0x9fc00), (0x1_0000_0000, 0x6_4000_0000)]);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\PC|\\n)*") {
            let _ = (parse_meminfo(&text), parse_cpu(&text), parse_ram(&text), has_only_loopback(&text));
        }
    }
}
