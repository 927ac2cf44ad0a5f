//! Where journals are kept: in a folder that nobody else may enter.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::root::{Error, Result};

/// Folder of what lowtide keeps while it runs: `/run/lowtide` for root, else below `$XDG_RUNTIME_DIR`, or `~/.local/state` where
/// there is none. Never below a folder that others may write to.
pub fn run_folder() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return "/run/lowtide".into();
    }
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = || Some(set("HOME")?.join(".local/state"));
    let none = || format!("/run/user/{}", user.as_raw()).into();
    set("XDG_RUNTIME_DIR").or_else(state).unwrap_or_else(none).join("lowtide")
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
    }
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(fail(error)),
        _ => {}
    }
    check_private(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).map_err(fail)
}

/// That a folder is one, and this user's.
pub(super) fn check_private(folder: &Path) -> Result<()> {
    let meta = std::fs::symlink_metadata(folder).map_err(|error| Error::new("find", folder, error))?;
    let user = rustix::process::geteuid().as_raw();
    if meta.is_dir() && meta.uid() == user {
        return Ok(());
    }
    let why = format!("it is not a folder of user {user}, but of user {}; remove it", meta.uid());
    Err(Error::new("use", folder, std::io::Error::new(std::io::ErrorKind::PermissionDenied, why)))
}
