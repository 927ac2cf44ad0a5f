//! What this kernel offers lowtide: found out from files and errno values, never at the kernel's version.
//!
//! A capability is one function and one line of a registry: [`FILES`] where the kernel's files show it, which also works on
//! a captured tree, and [`CALLS`] where only the running kernel itself can be asked. Everything is left as it was found.

mod cgroups;
mod damon;
mod mglru;
mod pages;
mod reclaim;

use lowtide_model::capability::{Capability, State};
use rustix::fs::{Access, AtFlags, CWD};
use serde::Serialize;

use crate::root::{Error, Kernel, Result};

/// Why this process may not advise the kernel on others' memory, and how it may; `None` if it may.
pub fn why_not_advise(kernel: &Kernel) -> Option<String> {
    let Absent { how, enable, .. } = reclaim::process_madvise(kernel).err()?;
    Some(format!("{how}; {enable}"))
}

/// What a capability is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// To see how much memory is used.
    Measure,
    /// To account memory and to set limits.
    Limit,
    /// To take back what is not needed.
    Reclaim,
    /// To keep what is needed.
    Protect,
}

impl Purpose {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Measure, Self::Limit, Self::Reclaim, Self::Protect];

    /// A heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Measure => "measure",
            Self::Limit => "size / limit",
            Self::Reclaim => "reclaim",
            Self::Protect => "protect",
        }
    }
}

/// How a capability was found, or what is missing.
type Finding = std::result::Result<String, Absent>;

/// What is missing, how that was found out, and how to get it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Absent {
    state: State,
    how: String,
    enable: String,
}

impl Absent {
    fn blocked(how: impl Into<String>, enable: impl Into<String>) -> Self {
        Self { state: State::Blocked, how: how.into(), enable: enable.into() }
    }

    fn no(how: impl Into<String>, enable: impl Into<String>) -> Self {
        Self { state: State::No, how: how.into(), enable: enable.into() }
    }

    /// What a failure means. `enable`: how to get the thing if it is not there.
    fn failed(error: &Error, enable: &str) -> Self {
        if error.is_gone() {
            Self::no(format!("{} is not there", error.path.display()), enable)
        } else if error.is_permission() {
            Self::blocked(error.to_string(), PRIVILEGE)
        } else {
            Self::blocked(error.to_string(), "see the kernel's message; `dmesg` may say more")
        }
    }
}

/// Adds what a failure means.
trait OrAbsent<T> {
    fn or_absent(self, enable: &str) -> std::result::Result<T, Absent>;
}

impl<T> OrAbsent<T> for Result<T> {
    fn or_absent(self, enable: &str) -> std::result::Result<T, Absent> {
        self.map_err(|error| Absent::failed(&error, enable))
    }
}

const PRIVILEGE: &str = "run as root; in a container with CAP_SYS_ADMIN and a writable /sys";

/// How a capability is found out.
enum Check {
    Ask(fn(&Kernel) -> Finding),
    /// A file that must be readable; and how to get it.
    Readable(&'static str, &'static str),
    /// A file that must be writable, of which nothing is written; and how to get it.
    Writable(&'static str, &'static str),
    /// A privilege, by its name and bit (include/uapi/linux/capability.h).
    Privilege(&'static str, u32),
}

use Check::{Ask, Privilege, Readable, Writable};

/// One capability: its name, what it is for and gives, and how it is found out.
struct Entry(&'static str, Purpose, &'static str, Check);

/// Capabilities that the kernel's files report.
#[rustfmt::skip]
const FILES: &[Entry] = &[
    Entry("cap-sys-admin", Purpose::Measure, "page frames, DAMON, tracing, swap devices", Privilege("CAP_SYS_ADMIN", 21)),
    Entry("cap-sys-ptrace", Purpose::Measure, "memory maps of other users' processes", Privilege("CAP_SYS_PTRACE", 19)),
    Entry("damon-sysfs", Purpose::Measure, "the kernel samples accesses by itself, at a bounded cost", Ask(damon::sysfs)),
    Entry("damon-paddr", Purpose::Measure, "the cohort: an unbiased sample of pages; maps by page frame", Ask(damon::paddr)),
    Entry("damon-vaddr", Purpose::Measure, "the map: which address ranges of a process are used", Ask(damon::vaddr)),
    Entry("tracefs", Purpose::Measure, "DAMON's results without a file per region", Ask(damon::tracefs)),
    Entry("kpageflags", Purpose::Measure, "which frames are anonymous, shared, page cache or reserved", Ask(pages::kpageflags)),
    Entry("kpagecgroup", Purpose::Measure, "page cache of a cgroup that no process maps", Readable("/proc/kpagecgroup", "a kernel with CONFIG_PROC_PAGE_MONITOR=y and CONFIG_MEMCG=y")),
    Entry("btf", Purpose::Measure, "which features the kernel has, without trying them", Readable(pages::BTF, "a kernel with CONFIG_DEBUG_INFO_BTF=y")),
    Entry("mglru", Purpose::Measure, "pages by generation: working sets of thousands of cgroups", Ask(mglru::core)),
    Entry("mglru-debugfs", Purpose::Measure, "sizes and ages of generations; ageing on demand", Ask(mglru::debugfs)),
    Entry("idle-page-bitmap", Purpose::Measure, "idle pages by frame, without DAMON", Writable("/sys/kernel/mm/page_idle/bitmap", "a kernel with CONFIG_IDLE_PAGE_TRACKING=y")),
    Entry("referenced", Purpose::Measure, "bytes used since they were cleared, on any kernel", Ask(pages::referenced)),
    Entry("memory-cgroup", Purpose::Limit, "accounting and limits of a group of processes", Ask(cgroups::memory)),
    Entry("cgroup-child", Purpose::Limit, "a cgroup of its own for the program that is run", Ask(cgroups::child)),
    Entry("memory-peak", Purpose::Limit, "the exact peak of a cgroup, between samples too", Ask(cgroups::peak)),
    Entry("memory-reclaim", Purpose::Reclaim, "a cgroup is asked to give back some bytes", Ask(cgroups::memory_reclaim)),
    Entry("cap-sys-nice", Purpose::Reclaim, "advice about other processes' memory", Privilege("CAP_SYS_NICE", 23)),
    Entry("damon-filter-young", Purpose::Reclaim, "pages used since the last sample are spared", Ask(damon::filter_young)),
    Entry("node-reclaim", Purpose::Reclaim, "a NUMA node is asked to give back some bytes", Ask(reclaim::node)),
    Entry("swap", Purpose::Reclaim, "a place for anonymous memory that is not used", Ask(reclaim::swap)),
    Entry("zram", Purpose::Reclaim, "swap to compressed memory", Ask(reclaim::zram)),
    Entry("zswap", Purpose::Reclaim, "compressed memory in front of a swap device", Ask(reclaim::zswap)),
    Entry("thp", Purpose::Reclaim, "huge pages where they pay, split where they waste", Ask(reclaim::thp)),
    Entry("memory-low", Purpose::Protect, "a working set is spared while others can give", Ask(cgroups::low)),
    Entry("psi", Purpose::Protect, "time lost to lack of memory: the signal to stop reclaim", Ask(reclaim::psi)),
    Entry("psi-cgroup", Purpose::Protect, "the same signal for each cgroup", Ask(cgroups::psi)),
    Entry("mglru-min-ttl", Purpose::Protect, "what was used within a time is not evicted", Ask(mglru::min_ttl)),
];

/// Capabilities of which only the running kernel can be asked.
#[rustfmt::skip]
const CALLS: &[Entry] = &[
    Entry("damon-tracepoint", Purpose::Measure, "DAMON's results as they come", Ask(damon::tracepoint)),
    Entry("pagemap-frames", Purpose::Measure, "which frame holds which page: DAMON on frames serves a process", Ask(pages::frames)),
    Entry("pagemap-scan", Purpose::Measure, "present pages of large, sparse processes at little cost", Ask(pages::scan)),
    Entry("process-madvise", Purpose::Reclaim, "chosen ranges of a process are paged out", Ask(reclaim::process_madvise)),
];

impl Check {
    fn find(&self, kernel: &Kernel) -> Finding {
        match *self {
            Ask(ask) => ask(kernel),
            Readable(path, enable) => readable(kernel, path, enable),
            Writable(path, enable) => writable(kernel, path, enable),
            Privilege(name, bit) => pages::privilege(kernel, name, bit),
        }
    }
}

/// Checks everything. On a captured tree, what needs system calls is left out.
///
/// Where no DAMON context exists that could be asked, one is made under lease and taken away again; for this a journal
/// is opened, so the caller must not hold this process' own.
pub fn probe(kernel: &Kernel) -> Vec<Capability> {
    let calls = CALLS.iter().filter(|_| kernel.is_running());
    let find = |Entry(name, _, gives, check): &Entry| {
        let yes = |how| Absent { state: State::Yes, how, enable: String::new() };
        let Absent { state, how, enable } = check.find(kernel).map_or_else(|absent| absent, yes);
        Capability { name, state, how, gives, enable }
    };
    FILES.iter().chain(calls).map(find).collect()
}

/// The purpose of a capability, by its name.
pub fn purpose(name: &str) -> Option<Purpose> {
    FILES.iter().chain(CALLS).find(|entry| entry.0 == name).map(|entry| entry.1)
}

fn readable(kernel: &Kernel, path: &str, enable: &str) -> Finding {
    kernel.open(path).or_absent(enable)?;
    Ok(format!("{path} opens"))
}

fn writable(kernel: &Kernel, path: &str, enable: &str) -> Finding {
    may_write(kernel, path).or_absent(enable)?;
    Ok(format!("{path} is writable"))
}

fn may_write(kernel: &Kernel, path: &str) -> Result<()> {
    rustix::fs::accessat(CWD, kernel.path(path), Access::WRITE_OK, AtFlags::EACCESS)
        .map_err(|e| Error::new("write to", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_purpose_has_some() {
        let mut names: Vec<&str> = FILES.iter().chain(CALLS).map(|entry| entry.0).collect();
        assert!(Purpose::ALL.iter().all(|wanted| names.iter().any(|name| purpose(name) == Some(*wanted))));
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert_eq!(purpose("no-such-thing"), None);
    }

    #[test]
    fn an_empty_tree_offers_nothing_and_says_how_to_get_everything() {
        let dir = tempfile::tempdir().unwrap();
        let found = probe(&Kernel::at(dir.path()));
        assert_eq!(found.len(), FILES.len());
        for capability in found {
            assert_ne!(capability.state, State::Yes, "{}", capability.name);
            assert!(!capability.enable.is_empty() && !capability.how.is_empty(), "{}", capability.name);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is made");
    }

    #[test]
    fn errors_become_states() {
        let state = |errno| {
            let error = Error::new("read", "/x", std::io::Error::from_raw_os_error(errno));
            Absent::failed(&error, "get it").state
        };
        assert_eq!(state(libc::ENOENT), State::No);
        assert_eq!(state(libc::EACCES), State::Blocked);
        assert_eq!(state(libc::EROFS), State::Blocked);
        assert_eq!(state(libc::EIO), State::Blocked);
    }
}
