//! File systems of the kernel that may not be mounted: where one is, or a mount of our own that no path leads to and that
//! ends with us.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::root::{Error, Kernel, Result};
use crate::swap::unescape;

/// A line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
#[derive(Debug)]
pub(crate) struct MountLine<'a> {
    /// The folder of the file system that the mount point shows.
    pub shows: &'a str,
    pub point: PathBuf,
    pub kind: &'a str,
    pub source: PathBuf,
    options: &'a str,
}

impl<'a> MountLine<'a> {
    /// Lines of any other form are passed over.
    pub(crate) fn parse(mountinfo: &'a str) -> impl Iterator<Item = Self> {
        mountinfo.lines().filter_map(|line| {
            let (mount, of) = line.split_once(" - ")?;
            let (mut mount, mut of) = (mount.split(' ').skip(3), of.split(' '));
            let (shows, point) = (mount.next()?, unescape(mount.next()?));
            let (kind, source) = (of.next()?, unescape(of.next()?));
            Some(Self { shows, point, kind, source, options: of.next().unwrap_or_default() })
        })
    }

    /// Whether it is a version 1 hierarchy with that controller.
    pub(crate) fn has_controller(&self, name: &str) -> bool {
        self.kind == "cgroup" && self.options.split(',').any(|option| option == name)
    }
}

/// A file system at hand.
#[derive(Debug)]
pub struct Mounted {
    base: PathBuf,
    _own: Option<OwnedFd>,
}

impl Mounted {
    /// The file system `kind`: at one of `places`, known by `mark` being below it, or else mounted for this process alone.
    pub fn open(kernel: &Kernel, kind: &str, places: &[&str], mark: &str) -> Result<Self> {
        let usual = places.iter().find(|base| kernel.exists(Path::new(base).join(mark)));
        if let Some(base) = usual {
            return Ok(Self { base: base.into(), _own: None });
        }
        let mount = || -> rustix::io::Result<OwnedFd> {
            let fs = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
            rustix::mount::fsconfig_create(&fs)?;
            rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        };
        let fd = mount().map_err(|e| Error::new("mount", kind, e))?;
        let base = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        if !kernel.exists(base.join(mark)) {
            let why = "it is empty: the kernel is locked down (kernel_lockdown(7)); boot with lockdown=none";
            return Err(Error::new("use", kind, std::io::Error::new(std::io::ErrorKind::PermissionDenied, why)));
        }
        Ok(Self { base, _own: Some(fd) })
    }

    /// A path in it.
    pub fn path(&self, below: &str) -> PathBuf {
        self.base.join(below)
    }
}
