//! Files that are complete or absent: written under a hidden name, and then renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file's permissions and durability.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Care {
    /// Only its owner may read it.
    pub is_private: bool,
    /// It survives a crash of the machine.
    pub sync: bool,
}

/// The hidden name under which a file is written, so that `*.parquet` does not match it.
#[must_use]
pub fn hidden(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp"))
}

/// A new file under that name. What a killed process left there is removed first: it may be a link of another user.
fn create(hidden: &Path, care: Care) -> io::Result<File> {
    match fs::remove_file(hidden) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mode = if care.is_private { 0o600 } else { 0o666 };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(hidden)
}

/// Writes a file by a function. Under its name there is the old content or the new, never a part; on failure the old.
///
/// # Errors
/// The function's, or that it cannot be written there.
pub fn write_by<T, E: From<io::Error>>(
    path: &Path,
    care: Care,
    write: impl FnOnce(File) -> Result<(File, T), E>,
) -> Result<T, E> {
    let hidden = hidden(path);
    let written = create(&hidden, care).map_err(E::from).and_then(write).and_then(|(file, result)| {
        if care.sync {
            file.sync_all()?;
        }
        fs::rename(&hidden, path)?;
        Ok(result)
    });
    if written.is_err() {
        // A part of a file would only hold space that may be scarce.
        let _ = fs::remove_file(&hidden);
    } else if let Some(folder) = path.parent().filter(|_| care.sync) {
        // The name, too, should survive; where that cannot be had, the old file does.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    written
}

/// Writes a file of this content.
///
/// # Errors
/// If it cannot be written there.
pub fn write(path: &Path, care: Care, content: &[u8]) -> io::Result<()> {
    write_by(path, care, |mut file| file.write_all(content).map(|()| (file, ())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_as_it_was_or_new() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write(&path, Care::default(), b"old").unwrap();
        // What a killed process left is no hindrance.
        fs::write(hidden(&path), "half").unwrap();
        write(&path, Care { is_private: true, sync: true }, b"new").unwrap();
        assert_eq!((fs::read(&path).unwrap(), hidden(&path).exists()), (b"new".to_vec(), false));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let failed: io::Result<()> = write_by(&path, Care::default(), |mut file| {
            file.write_all(b"half")?;
            Err(io::Error::other("no more"))
        });
        assert!(failed.is_err() && !hidden(&path).exists());
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn what_a_link_leads_to_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let (path, precious) = (dir.path().join("file"), dir.path().join("precious"));
        fs::write(&precious, "mine").unwrap();
        for link in [path.clone(), hidden(&path)] {
            std::os::unix::fs::symlink(&precious, &link).unwrap();
        }
        write(&path, Care::default(), b"new").unwrap();
        assert_eq!((fs::read(&precious).unwrap(), fs::read(&path).unwrap()), (b"mine".to_vec(), b"new".to_vec()));
    }

    #[test]
    fn a_full_disk_leaves_what_was_there() {
        assert!(write(Path::new("/dev/full/file"), Care::default(), b"x").is_err());
        assert!(write(Path::new("/proc/lowtide/file"), Care::default(), b"x").is_err());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write(&path, Care::default(), b"old").unwrap();
        fs::create_dir(hidden(&path)).unwrap();
        assert!(write(&path, Care::default(), b"new").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }
}
