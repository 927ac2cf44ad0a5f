//! Finishing a record: many small files become one per table, and the summary is written.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use lowtide_model::summary::Summary;

use super::error::{Result, StoreError};
use super::file::{replace, write_main};
use super::lock::{Lock, Try};
use super::read::{Record, is_folder};
use super::table::{Table, merge_all};
use super::{LOCK, PARTS, PARTS_DONE, SUMMARY};

/// A record that is finished.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// Its summary.
    pub summary: Summary,
    /// Whether it was this call that finished it.
    pub now: bool,
    /// What could not be read and is lost.
    pub warnings: Vec<String>,
}

/// Finishes the record in `dir`; does nothing where that is done already. May be killed at any point and run again.
///
/// # Errors
/// [`StoreError::Live`] while it is being recorded; or what stood in the way of writing, in which case the record
/// still reads as it is.
pub fn finish(dir: &Path) -> Result<Finished> {
    if is_finished(dir) {
        let record = Record::open(dir)?;
        return Ok(Finished { summary: record.summary(), now: false, warnings: record.warnings() });
    }
    // Before the lock file is made in a folder that is no record.
    Record::open_locked(dir)?;
    let _lock = match Lock::finish(dir)? {
        Try::Held(lock) => lock,
        Try::Recording => return Err(StoreError::Live(dir.to_path_buf())),
        Try::Unlockable => {
            let source = ErrorKind::PermissionDenied.into();
            return Err(StoreError::NotWritable { path: dir.join(LOCK), source });
        }
    };
    // Read again under the lock: its holder may have changed or finished the record.
    let record = Record::open_locked(dir)?;
    if is_finished(dir) {
        unlock(dir)?;
        return Ok(Finished { summary: record.summary(), now: false, warnings: record.warnings() });
    }
    let parts = dir.join(PARTS);
    if is_folder(&parts) {
        merge_all(&record)?;
    }
    let summary = record.summary();
    let path = dir.join(SUMMARY);
    let json = serde_json::to_vec_pretty(&summary).map_err(|error| StoreError::malformed(&path, error))?;
    replace(&path, &json, true)?;
    let done = dir.join(PARTS_DONE);
    remove(&done)?;
    if is_folder(&parts) {
        sync(dir)?;
        fs::rename(&parts, &done).map_err(|error| StoreError::write(&parts, error))?;
        remove(&done)?;
    }
    unlock(dir)?;
    let mut warnings = record.warnings();
    // The summary reads some tables a second time.
    warnings.sort();
    warnings.dedup();
    Ok(Finished { summary, now: true, warnings })
}

fn is_finished(dir: &Path) -> bool {
    !is_folder(&dir.join(PARTS)) && !is_folder(&dir.join(PARTS_DONE)) && dir.join(SUMMARY).exists()
}

/// Removes the lock file; another process may have done so already.
fn unlock(dir: &Path) -> Result<()> {
    let lock = dir.join(LOCK);
    match fs::remove_file(&lock) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(StoreError::write(&lock, error)),
        _ => Ok(()),
    }
}

/// Streams the parts of a table into its main file.
pub(super) fn merge<T: Table>(record: &Record) -> Result<()> {
    let path = record.dir().join(format!("{}.parquet", T::NAME));
    write_main::<T>(&path, |file| {
        for rows in record.read::<T>() {
            file.write(rows)?;
        }
        // Rows that are damaged are lost; rows that could not be read this time are not given up.
        record.failed().map_or(Ok(()), Err)
    })
}

/// Makes renames in `dir` last through a power cut before the parts go.
fn sync(dir: &Path) -> Result<()> {
    fs::File::open(dir).and_then(|folder| folder.sync_all()).map_err(|error| StoreError::write(dir, error))
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(StoreError::write(dir, error)),
        _ => Ok(()),
    }
}
