//! Memory cgroups, version 2 and version 1: where a process is, a child of one's own, what is charged.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::mounts::MountLine;
use crate::root::{Error, Kernel, Result, UnlessGone, value_of, while_busy};
use crate::undo::{Journal, KernelChange, Lease};

mod charges;
mod select;
mod vitals;

pub(crate) use charges::sum;
pub use select::Selection;
pub use vitals::Vitals;

/// Which of the two interfaces carries the memory controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The memory controller on a hierarchy of its own: accounting and limits only.
    V1,
    /// The unified hierarchy.
    V2,
}

/// A memory cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Its interface.
    pub version: Version,
    /// Its folder, mount point included.
    pub path: PathBuf,
    /// Its inode: the identity, since paths are used again. `/proc/kpagecgroup` holds it, too.
    pub inode: u64,
}

/// A cgroup that was made: it is removed, and processes that are still in it go to its parent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Made {
    /// The cgroup.
    pub path: PathBuf,
    /// Where its processes go.
    pub parent: PathBuf,
    /// Its inode: another one may have its path later. `None` before it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
}

impl Made {
    /// Makes a cgroup, under lease. Fails if there is one already: it is somebody else's.
    pub(crate) fn make(kernel: &Kernel, journal: &Journal, path: &Path, parent: &Path) -> Result<Lease> {
        let mut made = Self { path: path.to_path_buf(), parent: parent.to_path_buf(), inode: None };
        let mut lease = journal.lease(&made)?;
        if let Err(error) = kernel.make_dir(path) {
            lease.withdraw();
            return Err(error);
        }
        made.inode = inode(kernel, path)?;
        lease.identify(&made)?;
        Ok(lease)
    }
}

/// The inode of a cgroup; `None` if there is none of that path.
fn inode(kernel: &Kernel, path: &Path) -> Result<Option<u64>> {
    let meta = std::fs::symlink_metadata(kernel.path(path)).map_err(|error| Error::new("find", path, error));
    Ok(meta.unless_gone()?.map(|meta| meta.ino()))
}

impl KernelChange for Made {
    const KIND: &'static str = "cgroup";

    fn describe(&self) -> String {
        format!("the cgroup {}", self.path.display())
    }

    fn take_back(&self, kernel: &Kernel) -> Result<()> {
        match (inode(kernel, &self.path)?, self.inode) {
            (Some(now), Some(made)) if now == made => remove(kernel, &self.path, &self.parent),
            // It is gone, and what has its path by now is another.
            (None, _) | (_, Some(_)) => Ok(()),
            // Killed as it was being made: if it is its own, nothing is in it.
            (Some(_), None) => kernel.remove_dir(&self.path),
        }
    }
}

/// Removes a cgroup. The kernel may need a moment after the last process left before it agrees.
fn remove(kernel: &Kernel, path: &Path, parent: &Path) -> Result<()> {
    while_busy(50, Duration::from_millis(20), || {
        let procs = kernel.read_text(path.join("cgroup.procs")).unless_gone()?.unwrap_or_default();
        for pid in procs.lines() {
            kernel.write(parent.join("cgroup.procs"), pid).unless_gone()?;
        }
        // The program may have made cgroups below; they go with it when they are empty, deepest first.
        let names = kernel.list(path).unless_gone()?.unwrap_or_default();
        for child in names.iter().map(|name| path.join(name)).filter(|p| kernel.path(p).is_dir()) {
            remove(kernel, &child, parent)?;
        }
        kernel.if_there(path, kernel.remove_dir(path)).map(drop)
    })
}

const NOT_MOUNTED: &str = "no memory cgroup is mounted";

/// A mount of the memory controller.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    version: Version,
    point: PathBuf,
    /// The cgroup that the mount point shows (not `/` inside a container).
    shows: String,
}

/// Finds the memory controller in `/proc/self/mountinfo`: a v1 mount of it, or else the unified hierarchy that has it.
fn mount(kernel: &Kernel) -> Result<Option<Mount>> {
    let text = kernel.read_text("/proc/self/mountinfo")?;
    let mounts = parse_mounts(&text);
    if let Some(v1) = mounts.iter().find(|mount| mount.version == Version::V1) {
        return Ok(Some(v1.clone()));
    }
    Ok(mounts.into_iter().find(|mount| lists_memory(kernel, &mount.point.join("cgroup.controllers"))))
}

fn lists_memory(kernel: &Kernel, file: &Path) -> bool {
    kernel.read_text(file).is_ok_and(|text| text.split_whitespace().any(|word| word == "memory"))
}

fn parse_mounts(mountinfo: &str) -> Vec<Mount> {
    let mount = |line: MountLine<'_>| {
        let version = match line.kind {
            "cgroup2" => Version::V2,
            _ if line.has_controller("memory") => Version::V1,
            _ => return None,
        };
        Some(Mount { version, point: line.point, shows: line.shows.to_owned() })
    };
    MountLine::parse(mountinfo).filter_map(mount).collect()
}

/// The path of a process' cgroup in the version 1 hierarchy of a controller, or with `""` in that of version 2, from
/// `/proc/PID/cgroup`.
pub(crate) fn membership<'a>(text: &'a str, controller: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

/// Whether a path of the hierarchy is another one, or below it.
pub fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Cgroup {
    /// The memory cgroup of a process; `None` where the kernel has no memory controller.
    pub fn of(kernel: &Kernel, pid: u32) -> Result<Option<Self>> {
        let Some(mount) = mount(kernel)? else { return Ok(None) };
        let text = kernel.read_text(format!("/proc/{pid}/cgroup"))?;
        let controller = if mount.version == Version::V1 { "memory" } else { "" };
        let Some(path) = membership(&text, controller) else { return Ok(None) };
        let relative = path.strip_prefix(mount.shows.trim_end_matches('/')).unwrap_or(path);
        Self::open(kernel, mount.version, mount.point.join(relative.trim_start_matches('/'))).map(Some)
    }

    /// The cgroup a user names: a full path below the mount, or a path relative to it.
    pub fn named(kernel: &Kernel, name: &str) -> Result<Self> {
        let mount = mount(kernel)?.ok_or_else(|| Error::not_found("find cgroup", name, NOT_MOUNTED))?;
        let path = Path::new(name);
        let full = if path.starts_with(&mount.point) {
            path.to_path_buf()
        } else {
            mount.point.join(name.trim_start_matches('/'))
        };
        Self::open(kernel, mount.version, full)
    }

    /// Where the memory controller is mounted.
    pub fn mount_point(kernel: &Kernel) -> Result<PathBuf> {
        let none = || Error::not_found("find", "the memory controller", NOT_MOUNTED);
        mount(kernel)?.map(|mount| mount.point).ok_or_else(none)
    }

    fn open(kernel: &Kernel, version: Version, path: PathBuf) -> Result<Self> {
        let meta = std::fs::metadata(kernel.path(&path)).map_err(|e| Error::new("open cgroup", &path, e))?;
        Ok(Self { version, path, inode: meta.ino() })
    }

    /// Whether the folder still is this cgroup.
    pub fn is_alive(&self, kernel: &Kernel) -> bool {
        std::fs::metadata(kernel.path(&self.path)).is_ok_and(|meta| meta.ino() == self.inode)
    }

    /// Makes a cgroup of lowtide's own next to or below the calling process' one, under lease.
    pub fn create_own(kernel: &Kernel, journal: &Journal, name: &str) -> Result<Option<(Self, Lease)>> {
        let Some(here) = Self::of(kernel, std::process::id())? else { return Ok(None) };
        let parent = here.parent_of_own(kernel).ok_or_else(|| {
            let why = "no ancestor hands the memory controller down (cgroup.subtree_control lacks memory)";
            Error::missing("make a cgroup near", &here.path, why)
        })?;
        Self { path: parent, ..here }.create_below(kernel, journal, name).map(Some)
    }

    /// The folder in which [`Self::create_own`] makes a cgroup: version 2 forbids controllers below a cgroup that holds
    /// processes, so there it is the nearest ancestor that hands the memory controller down.
    pub(crate) fn parent_of_own(&self, kernel: &Kernel) -> Option<PathBuf> {
        let hands_down = |folder: &&Path| lists_memory(kernel, &folder.join("cgroup.subtree_control"));
        match self.version {
            Version::V1 => Some(self.path.clone()),
            Version::V2 => self.path.ancestors().find(hands_down).map(Path::to_path_buf),
        }
    }

    /// Makes a cgroup below this one, under lease. It has the memory controller if this one [hands it
    /// down](Self::hand_down).
    pub fn create_below(&self, kernel: &Kernel, journal: &Journal, name: &str) -> Result<(Self, Lease)> {
        let path = self.path.join(name);
        let lease = Made::make(kernel, journal, &path, &self.path)?;
        Ok((Self::open(kernel, self.version, path)?, lease))
    }

    /// Lets cgroups below have limits and accounts of their own, which version 1 always does. No process may be in this one.
    pub fn hand_down(&self, kernel: &Kernel) -> Result<()> {
        match self.version {
            Version::V1 => Ok(()),
            Version::V2 => kernel.write(self.path.join("cgroup.subtree_control"), "+memory"),
        }
    }

    /// Its path in the hierarchy, as the kernel prints it.
    pub fn hierarchy_path(&self, kernel: &Kernel) -> Result<String> {
        Ok(self.path_below(&Self::mount_point(kernel)?))
    }

    /// The same for a known [mount point](Self::mount_point), which is looked up once for thousands of cgroups.
    pub fn path_below(&self, mount_point: &Path) -> String {
        format!("/{}", self.path.strip_prefix(mount_point).unwrap_or(&self.path).display())
    }

    /// The file by which a process moves itself (by writing `0`) or others in.
    pub fn procs_file(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// The processes in it and in its descendants.
    pub fn pids(&self, kernel: &Kernel) -> Result<Vec<u32>> {
        let mut pids = Vec::new();
        for folder in self.folders(kernel) {
            match kernel.read_text(folder.join("cgroup.procs")) {
                Ok(text) => pids.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok())),
                Err(e) if e.is_gone() && folder != self.path => {}
                Err(e) => return Err(e),
            }
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Its folder and those of its descendants.
    fn folders(&self, kernel: &Kernel) -> Vec<PathBuf> {
        let mut folders = vec![self.path.clone()];
        let mut at = 0;
        while let Some(folder) = folders.get(at).cloned() {
            let entries = std::fs::read_dir(kernel.path(&folder)).into_iter().flatten().flatten();
            let children = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            folders.extend(children.map(|entry| folder.join(entry.file_name())));
            at += 1;
        }
        folders
    }

    /// Inodes of it and its descendants, by which `/proc/kpagecgroup` names them.
    pub fn inodes(&self, kernel: &Kernel) -> Vec<u64> {
        let folders = self.folders(kernel).into_iter();
        folders.filter_map(|folder| Some(std::fs::metadata(kernel.path(&folder)).ok()?.ino())).collect()
    }

    /// Whether a process lives in it or in a descendant.
    pub fn is_populated(&self, kernel: &Kernel) -> Result<bool> {
        match self.version {
            // Version 1 has no such file.
            Version::V1 => Ok(!self.pids(kernel)?.is_empty()),
            Version::V2 => Ok(value_of(&kernel.read_text(self.path.join("cgroup.events"))?, "populated") != Some(0)),
        }
    }

    /// The name of a file in this version.
    pub(crate) fn by_version(&self, v1: &'static str, v2: &'static str) -> &'static str {
        if self.version == Version::V1 { v1 } else { v2 }
    }

    /// The highest charge so far, as the kernel kept it.
    pub fn peak(&self, kernel: &Kernel) -> Option<u64> {
        kernel.read_number(self.path.join(self.by_version("memory.max_usage_in_bytes", "memory.peak"))).ok()
    }

    /// Path of a pressure file of this cgroup; `None` on version 1, which has none.
    pub fn pressure_file(&self, kernel: &Kernel, resource: &str) -> Option<String> {
        let path = self.path.join(format!("{resource}.pressure"));
        (self.version == Version::V2 && kernel.exists(&path)).then(|| path.to_string_lossy().into_owned())
    }

    /// Has nothing of it paged out to swap.
    pub fn forbid_swap(&self, kernel: &Kernel) -> Result<()> {
        // Version 1: 0 spares anonymous memory altogether (Documentation/admin-guide/cgroup-v1/memory.rst, "swappiness").
        match kernel.write(self.path.join(self.by_version("memory.swappiness", "memory.swap.max")), "0") {
            // A kernel without swap, or with `swapaccount=0`, has no such file, and nothing to forbid if no swap is on.
            Err(error) if error.is_gone() && crate::swap::devices(kernel).is_ok_and(|devices| devices.is_empty()) => {
                Ok(())
            }
            result => result,
        }
    }

    fn limit_file(&self) -> &'static str {
        self.by_version("memory.limit_in_bytes", "memory.max")
    }

    /// The lowest upper limit of it and of its ancestors, bytes; `None` where there is none.
    pub fn lowest_limit(&self, kernel: &Kernel) -> Option<u64> {
        let of = |folder: &Path| kernel.read_number(folder.join(self.limit_file())).ok();
        // Version 1 says "none" with the largest multiple of a page; no machine has that much.
        self.path.ancestors().filter_map(of).min().filter(|bytes| *bytes < 1 << 60)
    }

    /// The lowest limit of swap of it and of what is above it, bytes; `None` where there is none. Version 1 limits memory and swap
    /// together.
    pub fn lowest_swap_limit(&self, kernel: &Kernel) -> Option<u64> {
        let of = |folder: &Path| kernel.read_number(folder.join("memory.swap.max")).ok();
        self.path.ancestors().filter_map(of).min()
    }

    /// Sets an upper limit.
    pub fn set_limit(&self, kernel: &Kernel, bytes: u64) -> Result<()> {
        kernel.write(self.path.join(self.limit_file()), &bytes.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOUNTS: &str = "\
29 25 0:25 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
30 29 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
31 29 0:27 /outer /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 29 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn a_cgroup_that_somebody_else_made_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Kernel::at(dir.path());
        let journal = Journal::open(kernel.clone(), &dir.path().join("run")).unwrap();
        let here = dir.path().join("cg/x");
        let make = |path: &Path| {
            std::fs::create_dir_all(path).unwrap();
            std::fs::write(path.join("cgroup.procs"), "").unwrap();
        };
        let path = Path::new("/cg/x");
        // One that is there already.
        make(&here);
        assert!(Made::make(&kernel, &journal, path, Path::new("/cg")).is_err());
        assert!(here.exists());
        // One of the same path that came later. The first is kept, so that its inode is not given again.
        std::fs::rename(&here, dir.path().join("cg/before")).unwrap();
        let lease = Made::make(&kernel, &journal, path, Path::new("/cg")).unwrap();
        std::fs::rename(&here, dir.path().join("cg/own")).unwrap();
        make(&here);
        lease.give_back().unwrap();
        assert!(here.exists());
        // Killed as it was being made: only one in which nothing is can be its own.
        let unknown = Made { path: path.to_path_buf(), parent: "/cg".into(), inode: None };
        assert!(unknown.take_back(&kernel).is_err());
        std::fs::remove_file(here.join("cgroup.procs")).unwrap();
        unknown.take_back(&kernel).unwrap();
        assert!(!here.exists());
    }

    #[test]
    fn the_memory_mount_is_distinguished_from_the_others() {
        let mounts = parse_mounts(MOUNTS);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].version, mounts[0].shows.as_str()), (Version::V1, "/outer"));
    }

    #[test]
    fn membership_by_version() {
        let text = "9:name=systemd:/\n4:memory:/a/b:c\n0::/u\n";
        assert_eq!(membership(text, "memory"), Some("/a/b:c"));
        assert_eq!(membership(text, ""), Some("/u"));
    }

    #[test]
    fn a_tree_of_cgroups_counts_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Kernel::at(dir.path());
        for (folder, procs) in [("cg/a", "3\n1\n"), ("cg/a/b", "2\n"), ("cg/c", "9\n")] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
            std::fs::write(dir.path().join(folder).join("cgroup.procs"), procs).unwrap();
        }
        let cgroup = Cgroup::open(&kernel, Version::V2, "/cg/a".into()).unwrap();
        assert_eq!(cgroup.pids(&kernel).unwrap(), [1, 2, 3]);
        assert_eq!(cgroup.inodes(&kernel).len(), 2);
        std::fs::rename(dir.path().join("cg/a"), dir.path().join("cg/old")).unwrap();
        std::fs::rename(dir.path().join("cg/c"), dir.path().join("cg/a")).unwrap();
        assert!(!cgroup.is_alive(&kernel), "the path is used again by another cgroup");
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\PC|\\n)*") {
            let _ = parse_mounts(&text);
            let _ = (membership(&text, "memory"), membership(&text, ""));
        }
    }

    #[test]
    fn a_vanished_cgroup_counts_as_removed() {
        let kernel = Kernel::at("/nonexistent");
        remove(&kernel, Path::new("/cg/x"), Path::new("/cg")).unwrap();
    }
}
