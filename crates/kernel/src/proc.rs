//! `/proc/PID`: what a process is, what it uses, where its memory is mapped.

use lowtide_model::units::float;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::root::{Error, Kernel, Result, keyed};

/// A process, distinguished by its start time from later ones with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Process id.
    pub pid: u32,
    /// Start, clock ticks since boot.
    pub start_ticks: u64,
}

/// A counter of a process, and the sum of the same counter over the children that it has waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "what the names say")]
pub struct WithChildren {
    pub own: u64,
    pub children: u64,
}

/// The fields of `/proc/PID/stat` that lowtide reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Which process.
    pub id: ProcessId,
    /// Name, at most 15 bytes.
    pub comm: String,
    /// `R S D Z T ...`; `Z` has no memory.
    pub state: char,
    /// Parent's pid.
    pub ppid: u32,
    /// Faults without I/O.
    pub minor_faults: WithChildren,
    /// Faults with I/O.
    pub major_faults: WithChildren,
    /// User plus system CPU, clock ticks.
    pub cpu_ticks: WithChildren,
    /// Of its own, those in the kernel.
    pub system_ticks: u64,
    /// Threads.
    pub threads: u64,
    /// Resident pages.
    pub rss_pages: u64,
}

/// Parses `/proc/PID/stat`. The name is in parentheses and may itself hold parentheses and spaces.
pub fn parse_stat(text: &str) -> Option<Stat> {
    let (pid, rest) = text.split_once(" (")?;
    let (comm, rest) = rest.rsplit_once(") ")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    // Fields are numbered from 1 in proc(5); `state` is field 3 and the first word here.
    let field = |number: usize| words.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        id: ProcessId { pid: pid.trim().parse().ok()?, start_ticks: field(22)? },
        comm: comm.to_owned(),
        state: words.first()?.chars().next()?,
        ppid: words.get(1)?.parse().ok()?,
        minor_faults: WithChildren { own: field(10)?, children: field(11)? },
        major_faults: WithChildren { own: field(12)?, children: field(13)? },
        cpu_ticks: WithChildren {
            own: field(14)?.saturating_add(field(15)?),
            children: field(16)?.saturating_add(field(17)?),
        },
        system_ticks: field(15)?,
        threads: field(20)?,
        rss_pages: field(24)?,
    })
}

/// Reads `/proc/PID/stat`.
pub fn stat(kernel: &Kernel, pid: u32) -> Result<Stat> {
    let path = format!("/proc/{pid}/stat");
    let text = kernel.read_text(&path)?;
    parse_stat(&text).ok_or_else(|| Error::unexpected(path, "not the fields of proc(5)"))
}

/// Seconds that a process has spent in the kernel.
pub fn system_s(kernel: &Kernel, pid: u32) -> Result<f64> {
    Ok(float(stat(kernel, pid)?.system_ticks) / float(rustix::param::clock_ticks_per_second()))
}

/// The fields of this very process; an error if it has ended, even if another has its pid by now.
pub fn check(kernel: &Kernel, id: ProcessId) -> Result<Stat> {
    let stat = stat(kernel, id.pid)?;
    let gone = || Error::os("find", format!("/proc/{}", id.pid), libc::ESRCH);
    if stat.id == id { Ok(stat) } else { Err(gone()) }
}

/// Sends a signal to this very process, never to another that has its pid by now.
pub fn signal(kernel: &Kernel, id: ProcessId, signal: Signal) -> Result<()> {
    let path = format!("/proc/{}", id.pid);
    let fail = |error: std::io::Error| Error::new("signal", &path, error);
    // Processes of a captured tree are not those of this machine.
    if !kernel.is_running() {
        return Err(fail(std::io::Error::other("not the kernel that runs here")));
    }
    let gone = || fail(std::io::Error::from_raw_os_error(libc::ESRCH));
    let pid = i32::try_from(id.pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
    let held = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| fail(error.into()))?;
    check(kernel, id)?;
    pidfd_send_signal(&held, signal).map_err(|error| fail(error.into()))
}

/// The state of a process, as the letter of `/proc/PID/stat`: R running, S asleep, T stopped, Z ended and not waited for.
pub fn state(kernel: &Kernel, pid: u32) -> Result<char> {
    let path = format!("/proc/{pid}/stat");
    let text = kernel.read_text(&path)?;
    // The name before it may hold anything, brackets too.
    let letter = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    letter.ok_or_else(|| Error::unexpected(path, "not the fields of proc(5)"))
}

/// The user that a process belongs to, as the kernel decides about access: root where it may not be inspected.
pub fn owner(kernel: &Kernel, pid: u32) -> Result<u32> {
    let path = format!("/proc/{pid}");
    let meta = std::fs::metadata(kernel.path(&path)).map_err(|error| Error::new("inspect", path, error))?;
    Ok(std::os::unix::fs::MetadataExt::uid(&meta))
}

/// Levels of `/proc/PID/status`, bytes. Zero for a kernel thread or a zombie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Status {
    /// Resident, anonymous.
    pub rss_anon: u64,
    /// Resident, file.
    pub rss_file: u64,
    /// Resident, shared memory.
    pub rss_shmem: u64,
    /// Swapped out.
    pub swap: u64,
    /// Page tables.
    pub page_tables: u64,
    /// Highest resident set.
    pub peak_rss: u64,
}

impl Status {
    /// The resident set.
    pub fn rss(&self) -> u64 {
        self.rss_anon + self.rss_file + self.rss_shmem
    }
}

/// Parses `/proc/PID/status`.
pub fn parse_status(text: &str) -> Status {
    let mut status = Status::default();
    for (key, bytes) in keyed(text) {
        match key {
            "RssAnon" => status.rss_anon = bytes,
            "RssFile" => status.rss_file = bytes,
            "RssShmem" => status.rss_shmem = bytes,
            "VmSwap" => status.swap = bytes,
            "VmPTE" => status.page_tables = bytes,
            "VmHWM" => status.peak_rss = bytes,
            _ => {}
        }
    }
    status
}

/// Reads `/proc/PID/status`.
pub fn status(kernel: &Kernel, pid: u32) -> Result<Status> {
    Ok(parse_status(&kernel.read_text(format!("/proc/{pid}/status"))?))
}

/// `Pss` of `/proc/PID/smaps_rollup`, bytes. The kernel walks all pages for it.
pub fn pss(kernel: &Kernel, pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = kernel.read_text(&path)?;
    // A process without memory (a zombie, a kernel thread) has an empty file.
    Ok(crate::root::value_of(&text, "Pss").unwrap_or(0))
}

/// CPU seconds a task ran, from `/proc/PID/schedstat` (nanosecond exact); works for kernel threads too.
pub fn cpu_seconds(kernel: &Kernel, pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/schedstat");
    let text = kernel.read_text(&path)?;
    let ns: u64 = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| Error::unexpected(path, "no run time"))?;
    Ok(float(ns) / 1e9)
}

/// A mapping of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// No access is permitted (`---`): reserved addresses, as a rule without memory.
    pub reserved: bool,
    /// File path, `[heap]`, `[stack]`, …; empty for plain anonymous memory.
    pub name: String,
}

/// Parses one line of `/proc/PID/maps`: `start-end perms offset dev inode   name`.
pub fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        rest = rest.trim_start_matches(' ');
        let (head, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = tail;
        (!head.is_empty()).then_some(head)
    };
    let (start, end) = word()?.split_once('-')?;
    let reserved = word()?.starts_with("---");
    for _ in 0..3 {
        word()?;
    }
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    (start < end).then(|| Mapping { start, end, reserved, name: rest.trim_start_matches(' ').to_owned() })
}

/// The mappings of a process, ascending, without those that never hold pages of its own (`[vvar]`, `[vdso]`, `[vsyscall]`).
pub fn mappings(kernel: &Kernel, pid: u32) -> Result<Vec<Mapping>> {
    let text = kernel.read_text(format!("/proc/{pid}/maps"))?;
    let special = |m: &Mapping| ["[vvar", "[vdso", "[vsyscall"].iter().any(|name| m.name.starts_with(name));
    Ok(text.lines().filter_map(parse_mapping).filter(|mapping| !special(mapping)).collect())
}

/// All processes there are.
pub fn pids(kernel: &Kernel) -> Result<Vec<u32>> {
    Ok(kernel.list("/proc")?.iter().filter_map(|name| name.parse().ok()).collect())
}

/// `root` and everything that descends from it, by parent links.
pub fn descendants(parents: &[(u32, u32)], roots: &[u32]) -> Vec<u32> {
    let mut tree: std::collections::BTreeSet<u32> = roots.iter().copied().collect();
    loop {
        let before = tree.len();
        for (pid, ppid) in parents {
            if tree.contains(ppid) {
                tree.insert(*pid);
            }
        }
        if tree.len() == before {
            return tree.into_iter().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_may_hold_anything() {
        let text = "7 (a) b (c) S 3 7 7 0 -1 4194304 120 5 2 1 10 20 30 40 20 0 3 0 777 1000 42 18446744073709551615 0";
        let stat = parse_stat(text).unwrap();
        assert_eq!(stat.comm, "a) b (c");
        assert_eq!((stat.id.pid, stat.ppid, stat.threads, stat.rss_pages), (7, 3, 3, 42));
        let pair = |of: WithChildren| [of.own, of.children];
        assert_eq!((pair(stat.cpu_ticks), pair(stat.minor_faults), stat.id.start_ticks), ([30, 70], [120, 5], 777));
    }

    #[test]
    fn mappings_with_spaces_and_deleted_files() {
        let line = "7f00-7f10 r--s 00000000 fe:00 12345    /tmp/my file (deleted)";
        assert_eq!(
            parse_mapping(line).unwrap(),
            Mapping { start: 0x7f00, end: 0x7f10, reserved: false, name: "/tmp/my file (deleted)".into() }
        );
        assert_eq!(parse_mapping("7f00-7f10 rw-p 00000000 00:00 0").unwrap().name, "");
        assert!(parse_mapping("7f00-7f10 ---p 00000000 00:00 0").unwrap().reserved);
        assert_eq!(parse_mapping("7f10-7f00 rw-p 00000000 00:00 0"), None);
    }

    #[test]
    fn trees_follow_parents_whatever_their_order() {
        let parents = [(5, 4), (4, 3), (3, 1), (9, 8), (1, 0)];
        assert_eq!(descendants(&parents, &[3]), [3, 4, 5]);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\PC|\\n)*") {
            let _ = (parse_stat(&text), parse_status(&text), parse_mapping(&text));
        }

        #[test]
        fn near_misses_are_survived(cut in 0usize..120, junk in "\\PC{0,3}") {
            let text = "7 (x) S 3 7 7 0 -1 4194304 120 5 2 1 10 20 30 40 20 0 3 0 777 1000 42 18446744073709551615 0";
            let cut = cut.min(text.len());
            let _ = parse_stat(&format!("{}{junk}{}", &text[..cut], &text[cut..]));
        }
    }
}
