//! Writing a record while it is made.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lowtide_model::meta::Meta;
use lowtide_model::units::count;

use super::error::{Result, StoreError};
use super::file::{encode_part, replace};
use super::lock::Lock;
use super::table::{Buffers, Table};
use super::{META, PARTS};

/// Rows of one table kept while they cannot be written. A minute's worth of the busiest table; the recorder must not
/// grow because a disk is full.
const KEPT_ROWS: usize = 60_000;

/// Writes the rows as one part. On failure they are kept for the next try, the oldest given up beyond [`KEPT_ROWS`];
/// adds how many were given up to `dropped`.
pub(super) fn flush<T: Table>(rows: &mut Vec<T>, part: &Path, dropped: &mut u64) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let written = encode_part(rows)
        .map_err(|error| StoreError::parquet(part, error))
        .and_then(|bytes| replace(part, &bytes, false));
    if written.is_ok() {
        // A burst (the last rows of a long watch) must not stay resident for the rest of the run.
        let usual = rows.len();
        rows.clear();
        rows.shrink_to(2 * usual);
    } else {
        let excess = rows.drain(..rows.len().saturating_sub(KEPT_ROWS)).len();
        *dropped += count(excess);
    }
    written
}

/// Refuses a folder of another user to root: its owner can put links into it at any time. One that does not exist yet is right.
///
/// # Errors
/// [`StoreError::Foreign`].
pub fn check_owner(dir: &Path) -> Result<()> {
    let own = rustix::process::geteuid();
    match fs::metadata(dir) {
        Ok(meta) if own.is_root() && meta.uid() != own.as_raw() => {
            Err(StoreError::Foreign { dir: dir.to_path_buf(), uid: meta.uid() })
        }
        _ => Ok(()),
    }
}

/// A record being made. Rows are buffered until [`Writer::flush`]; dropping it without [`Writer::close`] leaves what
/// was flushed, as after a crash.
pub struct Writer {
    dir: PathBuf,
    buffers: Buffers,
    part: u64,
    dropped: u64,
    _lock: Lock,
}

impl Writer {
    /// Begins a record in `dir`, which must be empty or not exist.
    ///
    /// # Errors
    /// If it is not empty, another user's, cannot be written, or there is no space.
    pub fn create(dir: &Path, meta: &Meta) -> Result<Self> {
        check_owner(dir)?;
        fs::create_dir_all(dir).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                StoreError::NotWritable { path: dir.to_path_buf(), source: error }
            }
            _ => StoreError::write(dir, error),
        })?;
        let mut entries = fs::read_dir(dir).map_err(|error| StoreError::write(dir, error))?;
        if entries.next().transpose().map_err(|error| StoreError::write(dir, error))?.is_some() {
            return Err(StoreError::NotEmpty(dir.to_path_buf()));
        }
        let lock = Lock::record(dir)?;
        let parts = dir.join(PARTS);
        fs::create_dir(&parts).map_err(|error| StoreError::write(&parts, error))?;
        let writer = Self { dir: dir.to_path_buf(), buffers: Buffers::default(), part: 0, dropped: 0, _lock: lock };
        writer.meta(meta)?;
        Ok(writer)
    }

    /// The record's folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Adds rows to their table.
    pub fn add<T: Table>(&mut self, rows: impl IntoIterator<Item = T>) {
        T::waiting(&mut self.buffers).extend(rows);
    }

    /// Rows of any table waiting for [`Writer::flush`].
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffers.len()
    }

    /// Rows given up because they could not be written for too long.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Writes everything buffered as complete files.
    ///
    /// # Errors
    /// If a file could not be written. Its rows are kept for the next try (up to a bound), those of other tables are
    /// out, and everything flushed before stays readable.
    pub fn flush(&mut self) -> Result<()> {
        self.part += 1;
        self.buffers.flush(&self.dir.join(PARTS), self.part, &mut self.dropped)
    }

    /// Rewrites `meta.json`.
    ///
    /// # Errors
    /// If it could not be written; the old one is still there.
    pub fn meta(&self, meta: &Meta) -> Result<()> {
        let path = self.dir.join(META);
        let json = serde_json::to_vec_pretty(meta).map_err(|error| StoreError::malformed(&path, error))?;
        replace(&path, &json, false)
    }

    /// Ends recording: everything is written and the record may be finished by [`super::finish`].
    ///
    /// # Errors
    /// If something could not be written; what was, stays readable.
    pub fn close(mut self, meta: &Meta) -> Result<()> {
        let rows = self.flush();
        // How the record ended matters even where the last rows did not fit.
        self.meta(meta).and(rows)
    }
}
