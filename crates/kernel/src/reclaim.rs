//! `memory.reclaim` of cgroups, version 2 (Documentation/admin-guide/cgroup-v2.rst): bytes to be evicted now, in the
//! writer's own time. Before Linux 6.9 it does not take which memory to evict; generations are evicted instead.

use lowtide_model::PAGE;
use lowtide_model::kind::Kind;
use lowtide_model::units::{float, integer};

use crate::cgroup::{Cgroup, Version, is_below};
use crate::lru_gen::{LruGen, Lruvec};
use crate::root::{Error, Kernel, Result};

const FILE: &str = "memory.reclaim";

/// Bytes that the kernel takes at once, however few it is asked for (mm/vmscan.c, `MAX_LRU_BATCH` pages).
pub const BATCH: u64 = 64 * PAGE;

/// How this kernel takes which memory to evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Selects {
    /// `swappiness=max` is anonymous memory alone.
    Exactly,
    /// `swappiness=200` favours it.
    Roughly,
    /// Not at all: it would take the other, too, and swap where nothing was to be written.
    Never,
}

/// Asks for memory back.
#[derive(Debug)]
pub struct CgroupReclaimer {
    kernel: Kernel,
    selects: Selects,
    generations: Option<LruGen>,
}

impl CgroupReclaimer {
    /// For this kernel. What it takes beside the number is found out when it is asked.
    pub fn new(kernel: &Kernel) -> Self {
        Self { kernel: kernel.clone(), selects: Selects::Exactly, generations: None }
    }

    /// Whether a cgroup lets itself be reclaimed from; if not, why.
    pub fn check(kernel: &Kernel, cgroup: &Cgroup) -> Result<()> {
        if cgroup.version == Version::V1 {
            return Err(Error::missing("reclaim from", &cgroup.path, "cgroup version 1 has no memory.reclaim"));
        }
        kernel.check_writable(cgroup.path.join(FILE))
    }

    /// The interface that evicts here, as far as is known from what was asked.
    pub fn interface(&self) -> &'static str {
        if self.selects == Selects::Never { "lru_gen" } else { FILE }
    }

    /// Asks for so many bytes; false if the kernel found less. How much was evicted is in the cgroup's counters alone. Where
    /// generations are evicted, only memory idle for `older_s` is; else the kernel takes the coldest.
    ///
    /// The cgroup is the one whose inode is known: another that has its path by now is left alone.
    pub fn reclaim(&mut self, cgroup: &Cgroup, bytes: u64, kind: Kind, older_s: f64) -> Result<bool> {
        loop {
            let selector = match (self.selects, kind) {
                (Selects::Never, _) => return self.evict(cgroup, bytes, kind, older_s),
                (_, Kind::File) => " swappiness=0",
                (Selects::Exactly, Kind::Anon) => " swappiness=max",
                (Selects::Roughly, Kind::Anon) => " swappiness=200",
            };
            let asked = self.kernel.write_in(&cgroup.path, cgroup.inode, FILE, &format!("{bytes}{selector}"));
            self.selects = match (asked, self.selects, kind) {
                (Ok(()), ..) => return Ok(true),
                (Err(e), ..) if e.is_any_of(&[libc::EAGAIN]) => return Ok(false),
                (Err(e), Selects::Exactly, Kind::Anon) if e.is_invalid() => Selects::Roughly,
                (Err(e), Selects::Exactly | Selects::Roughly, _) if e.is_invalid() => Selects::Never,
                (Err(e), ..) => return Err(e),
            };
        }
    }

    /// The same by generations, from those of its descendants, too; each gives in proportion to what it has.
    fn evict(&mut self, cgroup: &Cgroup, bytes: u64, kind: Kind, older_s: f64) -> Result<bool> {
        if self.generations.is_none() {
            self.generations = Some(LruGen::open(&self.kernel).map_err(|error| {
                let why = format!("this kernel does not take which memory to evict (Linux 6.9 does); {error}");
                Error::missing("reclaim from", &cgroup.path, why)
            })?);
        }
        let Some(lru) = &self.generations else { return Ok(false) };
        let path = cgroup.hierarchy_path(&self.kernel)?;
        let all = lru.read()?;
        if !cgroup.is_alive(&self.kernel) {
            return Err(Error::os("reclaim from", &cgroup.path, libc::ENODEV));
        }
        let old = |lruvec: &&Lruvec| is_below(&lruvec.path, &path) && lruvec.idle_for(older_s).is_some();
        let each = all.iter().filter(old).filter_map(|lruvec| Some((lruvec, lruvec.idle_for(older_s)?)));
        let each: Vec<(&Lruvec, u64, f64)> = each.map(|(lruvec, seq)| (lruvec, seq, lruvec.up_to(seq, kind))).collect();
        let total: f64 = each.iter().map(|(_, _, bytes)| bytes).sum();
        let mut complete = total > 0.0;
        for (lruvec, seq, has) in each.into_iter().filter(|(_, _, has)| *has > 0.0) {
            let pages = integer(has / total * float(bytes)).div_ceil(PAGE);
            complete &= lru.evict(lruvec, seq, kind, pages)?;
        }
        Ok(complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, Kernel, Cgroup) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("cg/job")).unwrap();
        std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        std::fs::write(dir.path().join("cg/cgroup.controllers"), "memory\n").unwrap();
        std::fs::write(dir.path().join("cg/job/memory.reclaim"), "").unwrap();
        std::fs::write(dir.path().join("proc/self/mountinfo"), "30 29 0:26 / /cg rw - cgroup2 cgroup2 rw\n").unwrap();
        let kernel = Kernel::at(dir.path());
        let cgroup = Cgroup::named(&kernel, "/job").unwrap();
        (dir, kernel, cgroup)
    }

    #[test]
    fn what_is_asked_for_is_written() {
        let (dir, kernel, cgroup) = tree();
        let mut reclaimer = CgroupReclaimer::new(&kernel);
        CgroupReclaimer::check(&kernel, &cgroup).unwrap();
        let written = || std::fs::read_to_string(dir.path().join("cg/job/memory.reclaim")).unwrap();
        assert!(reclaimer.reclaim(&cgroup, 4096, Kind::File, 0.0).unwrap());
        assert_eq!(written(), "4096 swappiness=0");
        std::fs::write(dir.path().join("cg/job/memory.reclaim"), "").unwrap();
        assert!(reclaimer.reclaim(&cgroup, 8192, Kind::Anon, 0.0).unwrap());
        assert_eq!(written(), "8192 swappiness=max");
        reclaimer.selects = Selects::Never;
        assert!(reclaimer.reclaim(&cgroup, 8192, Kind::Anon, 0.0).unwrap_err().to_string().contains("which memory"));
    }

    #[test]
    fn another_cgroup_of_the_same_path_is_left_alone() {
        let (dir, kernel, cgroup) = tree();
        std::fs::rename(dir.path().join("cg/job"), dir.path().join("cg/old")).unwrap();
        std::fs::create_dir_all(dir.path().join("cg/job")).unwrap();
        std::fs::write(dir.path().join("cg/job/memory.reclaim"), "").unwrap();
        let error = CgroupReclaimer::new(&kernel).reclaim(&cgroup, 4096, Kind::File, 0.0).unwrap_err();
        assert!(error.is_gone(), "{error}");
        assert_eq!(std::fs::read_to_string(dir.path().join("cg/job/memory.reclaim")).unwrap(), "");
        std::fs::remove_dir_all(dir.path().join("cg/job")).unwrap();
        assert!(CgroupReclaimer::new(&kernel).reclaim(&cgroup, 4096, Kind::File, 0.0).unwrap_err().is_gone());
    }

    #[test]
    fn version_1_says_that_it_cannot() {
        let (_dir, kernel, cgroup) = tree();
        let old = Cgroup { version: Version::V1, ..cgroup };
        let error = CgroupReclaimer::check(&kernel, &old).unwrap_err();
        assert!(error.to_string().contains("version 1"), "{error}");
    }
}
