//! What a workload is granted at the expense of others, for a time: memory that is not reclaimed (`memory.min` along the
//! chain of its cgroups), that others are kept small, or that they wait. Every grant is a lease in the undo journal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use lowtide_model::target::TargetId;

use self::limit::Limit;
use self::pause::Pause;
use crate::cgroup::{Cgroup, Version};
use crate::proc::ProcessId;
use crate::root::{Error, Kernel, Result};
use crate::undo::{Journal, Lease};

mod limit;
mod pause;

pub use limit::can_limit;
pub use pause::Stopped;

/// What of this kind holds for a cgroup now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GrantState {
    /// Bytes that are protected; 0 = none are.
    pub protected: u64,
    /// Bytes below which it is kept; 0 = it is not.
    pub limited: u64,
    /// It waits.
    pub paused: bool,
}

/// Memory of a cgroup that is not reclaimed.
#[derive(Debug)]
struct Protection {
    bytes: u64,
    /// Its `memory.min` and those above.
    files: Vec<PathBuf>,
    until_s: f64,
}

/// A `memory.min` that was raised. Several that are below it may be protected at a time, and end in any order: what it was
/// before the first is written down once, and given back after the last.
#[derive(Debug)]
struct Raised {
    before: u64,
    by: BTreeMap<TargetId, u64>,
    _lease: Lease,
}

impl Raised {
    fn total(&self) -> u64 {
        self.by.values().fold(self.before, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// All that is granted.
#[derive(Debug)]
pub struct Grants {
    kernel: Kernel,
    journal: Journal,
    protections: BTreeMap<TargetId, Protection>,
    raised: BTreeMap<PathBuf, Raised>,
    limits: BTreeMap<TargetId, Limit>,
    pauses: BTreeMap<TargetId, Pause>,
}

/// Whether memory of a cgroup can be protected: version 2 only.
pub fn can_protect(kernel: &Kernel, cgroup: &Cgroup) -> bool {
    cgroup.version == Version::V2 && kernel.path(&cgroup.path).join("memory.min").exists()
}

impl Grants {
    /// Nothing is granted yet.
    pub fn new(kernel: &Kernel, journal: Journal) -> Self {
        let (protections, raised) = (BTreeMap::new(), BTreeMap::new());
        let (limits, pauses) = (BTreeMap::new(), BTreeMap::new());
        Self { kernel: kernel.clone(), journal, protections, raised, limits, pauses }
    }

    /// Protects so many bytes of a cgroup until then. True if that is new.
    ///
    /// What is protected is bounded by every cgroup above (Documentation/admin-guide/cgroup-v2.rst, "memory.min"), so each of
    /// them is granted as much more.
    pub fn protect(&mut self, cgroup: &Cgroup, bytes: u64, until_s: f64) -> Result<bool> {
        let id = TargetId::Cgroup(cgroup.inode);
        if let Some(protection) = self.protections.get_mut(&id) {
            protection.until_s = until_s;
            // A little more or less is not worth a write in every cgroup above.
            if protection.bytes.abs_diff(bytes) > protection.bytes / 20 {
                protection.bytes = bytes;
                for path in protection.files.clone() {
                    self.raise(&path, id, bytes)?;
                }
            }
            return Ok(false);
        }
        let point = Cgroup::mount_point(&self.kernel)?;
        let above = cgroup.path.ancestors().take_while(|folder| **folder != *point);
        let files: Vec<PathBuf> = above.map(|folder| folder.join("memory.min")).collect();
        self.protections.insert(id, Protection { bytes, files: files.clone(), until_s });
        // From the top on: below, it has no effect before.
        for path in files.iter().rev() {
            if let Err(error) = self.raise(path, id, bytes) {
                self.release(id);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Raises one `memory.min` for one cgroup.
    fn raise(&mut self, path: &Path, id: TargetId, bytes: u64) -> Result<()> {
        if let Some(raised) = self.raised.get_mut(path) {
            raised.by.insert(id, bytes);
            return self.kernel.write(path, &raised.total().to_string());
        }
        // `max` is as much as there is.
        let Ok(before) = self.kernel.read_text(path)?.trim().parse::<u64>() else { return Ok(()) };
        let lease = self.journal.write(path, &before.saturating_add(bytes).to_string())?;
        self.raised.insert(path.to_owned(), Raised { before, by: BTreeMap::from([(id, bytes)]), _lease: lease });
        Ok(())
    }

    /// Takes back what one cgroup's protection raised.
    fn lower(&mut self, protection: &Protection, id: TargetId) {
        for path in &protection.files {
            let Some(raised) = self.raised.get_mut(path) else { continue };
            raised.by.remove(&id);
            if raised.by.is_empty() {
                self.raised.remove(path);
            } else {
                // If that fails it is gone, or is given back with the last.
                let _ = self.kernel.write(path, &raised.total().to_string());
            }
        }
    }

    /// Keeps a cgroup below so many bytes until then, and kills nothing for that; in steps, as each takes its time. True if that
    /// is new.
    pub fn limit(&mut self, cgroup: &Cgroup, bytes: u64, until_s: f64) -> Result<bool> {
        let id = TargetId::Cgroup(cgroup.inode);
        // Version 1 sets no limit for which it would have to reclaim pages that are used meanwhile: it waits for as long as that takes.
        let reached = self.limits.get(&id).is_some_and(|limit| limit.is(bytes));
        let waits = cgroup.version == Version::V1 && !reached;
        let _waits = waits.then(|| pause::pause(&self.kernel, &self.journal, (cgroup, None), until_s));
        if let Some(limit) = self.limits.get_mut(&id) {
            limit.until_s = until_s;
            limit.set(&self.kernel, bytes)?;
            return Ok(false);
        }
        let limit = Limit::new(&self.kernel, &self.journal, cgroup, (bytes, until_s))?;
        Ok(limit.map(|limit| self.limits.insert(id, limit)).is_some())
    }

    /// Has the processes of a cgroup, or one of them, wait until then. True if that is new.
    ///
    /// # Errors
    /// If one of them must not wait, or cannot be made to.
    pub fn pause(&mut self, id: TargetId, of: (&Cgroup, Option<ProcessId>), until_s: f64) -> Result<bool> {
        if let Some(pause) = self.pauses.get_mut(&id) {
            pause.until_s = until_s;
            return Ok(false);
        }
        // What should run and does not comes first.
        if self.journal.retry() > 0 {
            let why = "another pause or protection could not be taken back yet; it is tried again";
            return Err(Error::new("pause", &of.0.path, std::io::Error::other(why)));
        }
        self.pauses.insert(id, pause::pause(&self.kernel, &self.journal, of, until_s)?);
        Ok(true)
    }

    /// Takes back whatever a cgroup was granted. True if that was something.
    pub fn release(&mut self, id: TargetId) -> bool {
        let (protected, paused) = (self.protections.remove(&id), self.pauses.remove(&id));
        let limited = self.limits.remove(&id);
        if let Some(protection) = &protected {
            self.lower(protection, id);
        }
        protected.is_some() || limited.is_some() || paused.is_some()
    }

    /// Takes back what was not granted again in time: of which cgroups.
    pub fn expire(&mut self, now_s: f64) -> BTreeSet<TargetId> {
        self.journal.retry();
        let protected = self.protections.iter().filter(|(_, of)| of.until_s < now_s).map(|(id, _)| *id);
        let paused = self.pauses.iter().filter(|(_, of)| of.until_s < now_s).map(|(id, _)| *id);
        let limited = self.limits.iter().filter(|(_, of)| of.until_s < now_s).map(|(id, _)| *id);
        let over: BTreeSet<TargetId> = protected.chain(paused).chain(limited).collect();
        for id in &over {
            self.release(*id);
        }
        over
    }

    /// Whether nothing is granted, and everything that was is taken back.
    pub fn is_empty(&self) -> bool {
        self.protections.is_empty() && self.limits.is_empty() && self.pauses.is_empty() && !self.journal.owes()
    }

    /// Why one that waits is stopped by a signal rather than frozen.
    pub fn stopped(&self, id: TargetId) -> Option<&str> {
        self.pauses.get(&id)?.stopped.as_deref()
    }

    /// What holds for a cgroup now.
    pub fn of(&self, id: TargetId) -> GrantState {
        GrantState {
            protected: self.protections.get(&id).map_or(0, |of| of.bytes),
            limited: self.limits.get(&id).map_or(0, |of| of.bytes),
            paused: self.pauses.contains_key(&id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Grants) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let kernel = Kernel::at(dir.path());
        let journal = Journal::open(kernel.clone(), &dir.path().join("run")).unwrap();
        let grants = Grants::new(&kernel, journal);
        (dir, grants)
    }

    const V2: (&str, &str) = ("proc/self/mountinfo", "30 29 0:26 / /cg rw - cgroup2 cgroup2 rw\n");

    #[test]
    fn protection_reaches_down_from_the_top_and_goes_again() {
        let (dir, mut grants) = tree(&[
            V2,
            ("cg/cgroup.controllers", "memory\n"),
            ("cg/a/memory.min", "100\n"),
            ("cg/a/b/memory.min", "0\n"),
        ]);
        let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap().trim_end().to_owned();
        let cgroup = Cgroup::named(&grants.kernel, "/a/b").unwrap();
        assert!(can_protect(&grants.kernel, &cgroup));
        assert!(grants.protect(&cgroup, 1000, 5.0).unwrap());
        assert_eq!((read("cg/a/memory.min"), read("cg/a/b/memory.min")), ("1100".into(), "1000".into()));
        assert!(!grants.protect(&cgroup, 3000, 6.0).unwrap());
        assert_eq!(
            (read("cg/a/memory.min"), grants.of(TargetId::Cgroup(cgroup.inode))),
            ("3100".into(), GrantState { protected: 3000, ..GrantState::default() })
        );
        assert!(grants.expire(5.5).is_empty());
        assert_eq!(grants.expire(7.0), BTreeSet::from([TargetId::Cgroup(cgroup.inode)]));
        assert_eq!((&read("cg/a/memory.min")[..3], &read("cg/a/b/memory.min")[..1]), ("100", "0"));
    }

    #[test]
    fn protections_that_overlap_leave_nothing_above_whichever_ends_first() {
        for first in [0, 1] {
            let (dir, mut grants) = tree(&[
                V2,
                ("cg/cgroup.controllers", "memory\n"),
                ("cg/a/memory.min", "100\n"),
                ("cg/a/b/memory.min", "0\n"),
                ("cg/a/c/memory.min", "0\n"),
            ]);
            let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap();
            let both = ["/a/b", "/a/c"].map(|name| Cgroup::named(&grants.kernel, name).unwrap());
            assert!(grants.protect(&both[0], 1000, 5.0).unwrap() && grants.protect(&both[1], 500, 5.0).unwrap());
            assert!(!grants.protect(&both[0], 2000, 5.0).unwrap());
            assert_eq!(read("cg/a/memory.min").trim(), "2600");
            assert!(grants.release(TargetId::Cgroup(both[first].inode)));
            // A file that is none of the kernel's keeps what is behind what was written.
            assert!(read("cg/a/memory.min").starts_with(["600", "2100"][first]), "{}", read("cg/a/memory.min"));
            assert!(grants.release(TargetId::Cgroup(both[1 - first].inode)));
            assert!(read("cg/a/memory.min").starts_with("100"), "{}", read("cg/a/memory.min"));
            assert!(grants.raised.is_empty());
        }
    }

    #[test]
    fn limits_are_reached_in_steps_and_go_again_and_are_safe_first() {
        let (v1, v2) = (
            [
                ("proc/self/mountinfo", "30 29 0:26 / /cg rw - cgroup cgroup rw,memory\n"),
                ("cg/a/memory.limit_in_bytes", "9223372036854771712\n"),
                ("cg/a/memory.usage_in_bytes", "200000000\n"),
                ("cg/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
            ],
            [
                V2,
                ("cg/a/memory.high", "max\n"),
                ("cg/a/memory.current", "200000000\n"),
                ("cg/cgroup.controllers", "memory\n"),
            ],
        );
        for (files, file, old) in [(v1, "memory.limit_in_bytes", "9223372036854771712"), (v2, "memory.high", "max")] {
            let (dir, mut grants) = tree(&files);
            // A file that is none of the kernel's keeps what is behind what was written.
            let begins = |name: &str, with: &str| {
                let text = std::fs::read_to_string(dir.path().join("cg/a").join(name)).unwrap();
                assert!(text.starts_with(with), "{name}: {text}");
            };
            let cgroup = Cgroup::named(&grants.kernel, "/a").unwrap();
            assert!(can_limit(&grants.kernel, &cgroup) && grants.limit(&cgroup, 100_000_000, 5.0).unwrap());
            begins(file, "132891136");
            std::fs::write(
                dir.path().join("cg/a").join(file.replace("limit", "usage").replace("high", "current")),
                "132891136",
            )
            .unwrap();
            assert!(!grants.limit(&cgroup, 100_000_000, 6.0).unwrap());
            begins(file, "100000000");
            assert_eq!(grants.of(TargetId::Cgroup(cgroup.inode)).limited, 100_000_000);
            if file != "memory.high" {
                begins("memory.oom_control", "1");
            }
            assert_eq!((grants.expire(5.5).len(), grants.expire(7.0).len()), (0, 1));
            begins(file, old);
            if file != "memory.high" {
                begins("memory.oom_control", "0");
            }
            // One that is lower anyway.
            std::fs::write(dir.path().join("cg/a").join(file), "5000\n").unwrap();
            assert!(!grants.limit(&cgroup, 100_000_000, 5.0).unwrap() && grants.is_empty());
        }
    }

    #[test]
    fn who_is_paused_is_frozen_and_thawed_again() {
        let (dir, mut grants) = tree(&[
            V2,
            ("cg/cgroup.controllers", "memory\n"),
            ("cg/a/cgroup.procs", "7\n"),
            ("cg/a/cgroup.freeze", "0\n"),
            ("proc/7/stat", "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0\n"),
        ]);
        let cgroup = Cgroup::named(&grants.kernel, "/a").unwrap();
        let frozen = || std::fs::read_to_string(dir.path().join("cg/a/cgroup.freeze")).unwrap();
        assert!(
            grants.pause(TargetId::Cgroup(cgroup.inode), (&cgroup, None), 5.0).unwrap()
                && !grants.pause(TargetId::Cgroup(cgroup.inode), (&cgroup, None), 6.0).unwrap()
        );
        let paused = GrantState { paused: true, ..GrantState::default() };
        assert_eq!((frozen().as_str(), grants.of(TargetId::Cgroup(cgroup.inode))), ("1\n", paused));
        assert!(grants.release(TargetId::Cgroup(cgroup.inode)) && !grants.release(TargetId::Cgroup(cgroup.inode)));
        assert!(frozen().starts_with('0'));
        // It is the shell of a terminal.
        std::fs::write(dir.path().join("proc/7/stat"), "7 (bash) S 1 7 7 34816 7 0\n").unwrap();
        let error = grants.pause(TargetId::Cgroup(cgroup.inode), (&cgroup, None), 5.0).unwrap_err();
        assert!(error.to_string().contains("terminal") && frozen().starts_with('0'), "{error}");
    }

    #[test]
    fn on_version_1_they_are_moved_to_a_freezer_of_their_own() {
        let (_dir, mut grants) = tree(&[
            (
                "proc/self/mountinfo",
                "30 29 0:26 / /mem rw - cgroup cgroup rw,memory\n31 29 0:27 / /frz rw - cgroup cgroup rw,freezer\n",
            ),
            ("mem/a/cgroup.procs", "7\n"),
            ("proc/7/stat", "7 (a) S 1 7 7 0 -1 0\n"),
            ("proc/7/cgroup", "6:freezer:/x\n4:memory:/a\n"),
            ("frz/x/cgroup.procs", ""),
        ]);
        let cgroup = Cgroup::named(&grants.kernel, "/a").unwrap();
        assert!(!can_protect(&grants.kernel, &cgroup));
        // The kernel makes this file with the folder; here, it is missing, and no process of this tree can be stopped.
        let error = grants.pause(TargetId::Cgroup(cgroup.inode), (&cgroup, None), 5.0).unwrap_err();
        assert!(error.to_string().contains("no process that could be stopped"), "{error}");
    }
}
