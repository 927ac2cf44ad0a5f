//! Writing a record while it is made.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use lowtide_model::cohort::AgeBin;
use lowtide_model::episode::Episode;
use lowtide_model::generations::CgroupUse;
use lowtide_model::meta::Meta;
use lowtide_model::numa::{NodeRow, NodeUse};
use lowtide_model::usage::Usage;

use super::actions::{ActionRow, Actions};
use super::ages::{AgeRow, Ages};
use super::cgroups::{CgroupRow, Cgroups};
use super::cohort::Cohort;
use super::error::{Result, StoreError};
use super::file::{encode_part, replace};
use super::lock::Lock;
use super::nodes::Nodes;
use super::regions::{RegionRow, Regions};
use super::table::Table;
use super::usage::UsageTable;
use super::{META, PARTS};

/// Rows of one table kept while they cannot be written. A minute's worth of the busiest table; the recorder must not
/// grow because a disk is full.
const KEPT_ROWS: usize = 60_000;

/// Rows of one table on their way to disk.
struct Buffer<T: Table> {
    rows: Vec<T::Row>,
}

impl<T: Table> Default for Buffer<T> {
    fn default() -> Self {
        Self { rows: Vec::new() }
    }
}

impl<T: Table> Buffer<T> {
    /// Writes the rows as one part. On failure they are kept for the next try, the oldest given up beyond
    /// [`KEPT_ROWS`]; returns how many were given up.
    fn flush(&mut self, parts: &Path, number: u64, dropped: &mut u64) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let path = parts.join(format!("{}-{number:06}.parquet", T::NAME));
        let written = encode_part::<T>(&self.rows)
            .map_err(|error| StoreError::parquet(&path, error))
            .and_then(|bytes| replace(&path, &bytes, false));
        if written.is_ok() {
            // A burst (the last rows of a long watch) must not stay resident for the rest of the run.
            let usual = self.rows.len();
            self.rows.clear();
            self.rows.shrink_to(2 * usual);
        } else {
            let excess = self.rows.len().saturating_sub(KEPT_ROWS);
            self.rows.drain(..excess);
            *dropped += excess as u64;
        }
        written
    }
}

/// A record being made. Rows are buffered until [`Writer::flush`]; dropping it without [`Writer::close`] leaves what
/// was flushed, as after a crash.
pub struct Writer {
    dir: PathBuf,
    usage: Buffer<UsageTable>,
    regions: Buffer<Regions>,
    cohort: Buffer<Cohort>,
    ages: Buffer<Ages>,
    cgroups: Buffer<Cgroups>,
    nodes: Buffer<Nodes>,
    actions: Buffer<Actions>,
    part: u64,
    dropped: u64,
    _lock: Lock,
}

impl Writer {
    /// Begins a record in `dir`, which must be empty or not exist.
    ///
    /// # Errors
    /// If it is not empty, cannot be written, or there is no space.
    pub fn create(dir: &Path, meta: &Meta) -> Result<Self> {
        fs::create_dir_all(dir).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                StoreError::NotWritable { path: dir.to_path_buf(), source: error }
            }
            _ => StoreError::write(dir, error),
        })?;
        let mut entries = fs::read_dir(dir).map_err(|error| StoreError::read(dir, error))?;
        if entries.next().is_some() {
            return Err(StoreError::NotEmpty(dir.to_path_buf()));
        }
        let lock = Lock::record(dir)?;
        let parts = dir.join(PARTS);
        fs::create_dir(&parts).map_err(|error| StoreError::write(&parts, error))?;
        let writer = Self {
            dir: dir.to_path_buf(),
            usage: Buffer::default(),
            regions: Buffer::default(),
            cohort: Buffer::default(),
            ages: Buffer::default(),
            cgroups: Buffer::default(),
            nodes: Buffer::default(),
            actions: Buffer::default(),
            part: 0,
            dropped: 0,
            _lock: lock,
        };
        writer.meta(meta)?;
        Ok(writer)
    }

    /// The record's folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Adds one tick.
    pub fn usage(&mut self, row: Usage) {
        self.usage.rows.push(row);
    }

    /// Adds regions of the map.
    pub fn regions(&mut self, rows: impl IntoIterator<Item = RegionRow>) {
        self.regions.rows.extend(rows);
    }

    /// Adds what was seen of sampled pages.
    pub fn episodes(&mut self, rows: impl IntoIterator<Item = Episode>) {
        self.cohort.rows.extend(rows);
    }

    /// Adds the idle-age histogram of one tick.
    pub fn ages(&mut self, t_s: f64, bins: &[AgeBin]) {
        self.ages.rows.extend(bins.iter().map(|bin| AgeRow { t_s, bin: *bin }));
    }

    /// Adds the use of each cgroup.
    pub fn cgroups(&mut self, t_s: f64, rows: Vec<CgroupUse>) {
        self.cgroups.rows.extend(rows.into_iter().map(|seen| CgroupRow { t_s, seen }));
    }

    /// Adds what lies on each NUMA node.
    pub fn nodes(&mut self, t_s: f64, rows: Vec<NodeUse>) {
        self.nodes.rows.extend(rows.into_iter().map(|seen| NodeRow { t_s, seen }));
    }

    /// Adds what was done to the target.
    pub fn actions(&mut self, rows: impl IntoIterator<Item = ActionRow>) {
        self.actions.rows.extend(rows);
    }

    /// Rows of any table waiting for [`Writer::flush`].
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.usage.rows.len()
            + self.regions.rows.len()
            + self.cohort.rows.len()
            + self.ages.rows.len()
            + self.cgroups.rows.len()
            + self.nodes.rows.len()
            + self.actions.rows.len()
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
        let (parts, part, dropped) = (self.dir.join(PARTS), self.part, &mut self.dropped);
        // Every table is tried, so that a full disk costs the large tables and still takes the small one.
        let results = [
            self.usage.flush(&parts, part, dropped),
            self.ages.flush(&parts, part, dropped),
            self.cgroups.flush(&parts, part, dropped),
            self.nodes.flush(&parts, part, dropped),
            self.actions.flush(&parts, part, dropped),
            self.regions.flush(&parts, part, dropped),
            self.cohort.flush(&parts, part, dropped),
        ];
        results.into_iter().collect()
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
