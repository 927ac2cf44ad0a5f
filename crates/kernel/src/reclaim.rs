//! `memory.reclaim` of cgroups, version 2 (Documentation/admin-guide/cgroup-v2.rst): bytes to be evicted now, in the
//! writer's own time.

use crate::cgroup::{Cgroup, Version};
use crate::root::{Error, Kernel, Result};

/// The file.
const FILE: &str = "memory.reclaim";

/// Which memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Anonymous memory: swappiness `max` where the kernel has it, else as much in favour of it as can be said.
    Anon,
    /// File memory: swappiness 0.
    File,
}

/// How this kernel lets itself be told which memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Selects {
    /// `swappiness=max` is anonymous memory alone.
    Exactly,
    /// `swappiness=200` favours it.
    Roughly,
    /// Not at all.
    Never,
}

/// Asks for memory back.
#[derive(Debug, Clone)]
pub struct Reclaimer {
    kernel: Kernel,
    selects: Selects,
}

impl Reclaimer {
    /// For this kernel. What it takes beside the number is found out when it is asked.
    #[must_use]
    pub fn new(kernel: &Kernel) -> Self {
        Self { kernel: kernel.clone(), selects: Selects::Exactly }
    }

    /// Whether a cgroup lets itself be reclaimed from; if not, why.
    pub fn check(kernel: &Kernel, cgroup: &Cgroup) -> Result<()> {
        if cgroup.version == Version::V1 {
            let why = std::io::Error::new(std::io::ErrorKind::Unsupported, "cgroup version 1 has no memory.reclaim");
            return Err(Error::new("reclaim from", &cgroup.path, why));
        }
        kernel.check_writable(cgroup.path.join(FILE))
    }

    /// How exactly anonymous memory can be asked for, for people.
    #[must_use]
    pub fn selects(&self) -> &'static str {
        match self.selects {
            Selects::Exactly => "anonymous and file memory apart",
            Selects::Roughly => "file memory alone, or mostly anonymous memory",
            Selects::Never => "not at all",
        }
    }

    /// Asks for so many bytes; false if the kernel found less. How much went is in the cgroup's counters alone.
    ///
    /// The cgroup is the one whose inode is known: another that has its path by now is left alone.
    pub fn reclaim(&mut self, cgroup: &Cgroup, bytes: u64, side: Side) -> Result<bool> {
        loop {
            let selector = match (self.selects, side) {
                // It would take the other, too, and swap where nothing was to be written.
                (Selects::Never, _) => {
                    let why = "this kernel cannot be told which memory (Linux 6.9 can)";
                    let error = std::io::Error::new(std::io::ErrorKind::Unsupported, why);
                    return Err(Error::new("reclaim from", &cgroup.path, error));
                }
                (_, Side::File) => " swappiness=0",
                (Selects::Exactly, Side::Anon) => " swappiness=max",
                (Selects::Roughly, Side::Anon) => " swappiness=200",
            };
            let asked = self.kernel.write_in(&cgroup.path, cgroup.inode, FILE, &format!("{bytes}{selector}"));
            self.selects = match (asked, self.selects, side) {
                (Ok(()), ..) => return Ok(true),
                (Err(e), ..) if e.is_any_of(&[libc::EAGAIN]) => return Ok(false),
                (Err(e), Selects::Exactly, Side::Anon) if e.is_invalid() => Selects::Roughly,
                (Err(e), Selects::Exactly | Selects::Roughly, _) if e.is_invalid() => Selects::Never,
                (Err(e), ..) => return Err(e),
            };
        }
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
        let mut reclaimer = Reclaimer::new(&kernel);
        Reclaimer::check(&kernel, &cgroup).unwrap();
        let written = || std::fs::read_to_string(dir.path().join("cg/job/memory.reclaim")).unwrap();
        assert!(reclaimer.reclaim(&cgroup, 4096, Side::File).unwrap());
        assert_eq!(written(), "4096 swappiness=0");
        std::fs::write(dir.path().join("cg/job/memory.reclaim"), "").unwrap();
        assert!(reclaimer.reclaim(&cgroup, 8192, Side::Anon).unwrap());
        assert_eq!(written(), "8192 swappiness=max");
        reclaimer.selects = Selects::Never;
        assert!(reclaimer.reclaim(&cgroup, 8192, Side::Anon).unwrap_err().to_string().contains("which memory"));
    }

    #[test]
    fn another_cgroup_of_the_same_path_is_left_alone() {
        let (dir, kernel, cgroup) = tree();
        std::fs::rename(dir.path().join("cg/job"), dir.path().join("cg/old")).unwrap();
        std::fs::create_dir_all(dir.path().join("cg/job")).unwrap();
        std::fs::write(dir.path().join("cg/job/memory.reclaim"), "").unwrap();
        let error = Reclaimer::new(&kernel).reclaim(&cgroup, 4096, Side::File).unwrap_err();
        assert!(error.is_gone(), "{error}");
        assert_eq!(std::fs::read_to_string(dir.path().join("cg/job/memory.reclaim")).unwrap(), "");
        std::fs::remove_dir_all(dir.path().join("cg/job")).unwrap();
        assert!(Reclaimer::new(&kernel).reclaim(&cgroup, 4096, Side::File).unwrap_err().is_gone());
    }

    #[test]
    fn version_1_says_that_it_cannot() {
        let (_dir, kernel, cgroup) = tree();
        let old = Cgroup { version: Version::V1, ..cgroup };
        let error = Reclaimer::check(&kernel, &old).unwrap_err();
        assert!(error.to_string().contains("version 1"), "{error}");
    }
}
