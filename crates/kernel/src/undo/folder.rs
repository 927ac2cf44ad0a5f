//! Where journals are kept: in a folder that nobody else may enter.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::root::{Error, Result};

/// Folder of what lowtide keeps while it runs: `/run/lowtide` for root; for others below `$XDG_RUNTIME_DIR` or `~/.local/state`, if
/// that is their own, else one of their own in the temporary directory.
pub fn run_folder() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return "/run/lowtide".into();
    }
    let own = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from)?;
        let is_own = std::fs::metadata(&path).is_ok_and(|meta| meta.is_dir() && meta.uid() == user.as_raw());
        is_own.then_some(path)
    };
    let runtime = own("XDG_RUNTIME_DIR").or_else(|| Some(own("HOME")?.join(".local/state")));
    match runtime {
        Some(runtime) => runtime.join("lowtide"),
        None => std::env::temp_dir().join(format!("lowtide-{}", user.as_raw())),
    }
}

/// Folder of the journals, which nobody else may enter.
pub fn folder() -> PathBuf {
    run_folder().join("undo")
}

/// Makes a folder that nobody else may enter, or checks that it is one: another user's could be read and changed by them, and
/// its lock be held. Fails with what to do.
pub fn make_private(folder: &Path) -> Result<()> {
    let fail = |error| Error::new("make", folder, error);
    if let Some(above) = folder.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(above).map_err(fail)?;
        // As root made it under another umask.
        let meta = std::fs::symlink_metadata(above).map_err(fail)?;
        if meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 != 0 {
            std::fs::set_permissions(above, std::fs::Permissions::from_mode(0o755)).map_err(fail)?;
        }
    }
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(fail(error)),
        _ => {}
    }
    check_private(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).map_err(fail)
}

/// That a folder is one, and this user's, and that nobody but root can put another in its place.
pub(super) fn check_private(folder: &Path) -> Result<()> {
    let find = |path: &Path| std::fs::symlink_metadata(path).map_err(|error| Error::new("find", path, error));
    let meta = find(folder)?;
    let user = rustix::process::geteuid().as_raw();
    let above = folder.parent().map(find).transpose()?;
    let is_safe = above.is_none_or(|above| above.is_dir() && [0, user].contains(&above.uid()));
    if meta.is_dir() && meta.uid() == user && is_safe {
        return Ok(());
    }
    let why =
        format!("it, or the folder it is in, is not a folder of user {user}, but of user {}; remove it", meta.uid());
    Err(Error::new("use", folder, std::io::Error::new(std::io::ErrorKind::PermissionDenied, why)))
}
