//! Reading a record, finished or not.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use lowtide_model::budget::Known;
use lowtide_model::cohort::AgeRow;
use lowtide_model::curve::Curve;
use lowtide_model::curve::regions::histogram;
use lowtide_model::episode::{Episode, Lives};
use lowtide_model::meta::{Meta, SCHEMA};
use lowtide_model::phase::{Phase, PhaseKind, phases};
use lowtide_model::summary::{Summary, cold_rows, summarise};
use lowtide_model::usage::Usage;

use super::RegionRow;
use super::error::{Result, StoreError};
use super::file::Reader;
use super::limit;
use super::lock::{Lock, Try};
use super::table::Table;
use super::{META, PARTS};

/// A record that is there to be read.
#[derive(Debug)]
pub struct Record {
    dir: PathBuf,
    meta: Meta,
    live: bool,
    warnings: RefCell<Vec<String>>,
    /// The file system failed, as opposed to a file being damaged: the rows may be there at the next try.
    failed: RefCell<Option<StoreError>>,
    _lock: Option<Lock>,
}

impl Record {
    /// Opens the record in `dir`. Nothing is changed.
    ///
    /// # Errors
    /// If it is not a record, or one of a newer layout.
    pub fn open(dir: &Path) -> Result<Self> {
        let meta = read_meta(dir)?;
        let (live, lock) = match Lock::read(dir)? {
            Try::Held(lock) => (false, Some(lock)),
            Try::Recording => (true, None),
            Try::Unlockable => (false, None),
        };
        Ok(Self::new(dir, meta, live, lock))
    }

    /// Opens it for a caller that holds the lock already.
    pub(super) fn open_locked(dir: &Path) -> Result<Self> {
        let meta = read_meta(dir)?;
        Ok(Self::new(dir, meta, false, None))
    }

    fn new(dir: &Path, meta: Meta, live: bool, lock: Option<Lock>) -> Self {
        let (warnings, failed) = (RefCell::default(), RefCell::default());
        Self { dir: dir.to_path_buf(), meta, live, warnings, failed, _lock: lock }
    }

    /// Whether the file system has failed so far.
    pub(super) fn failed(&self) -> Option<StoreError> {
        self.failed.take()
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What was measured.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Whether a recorder is still at work on it.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// What could not be read so far: one sentence per file.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.borrow().clone()
    }

    /// All ticks.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        self.rows()
    }

    /// All idle-age histograms.
    #[must_use]
    pub fn ages(&self) -> Vec<AgeRow> {
        self.rows()
    }

    /// The map, some thousand rows at a time: it can be large.
    #[must_use]
    pub fn regions(&self) -> Batches<'_, RegionRow> {
        self.read()
    }

    /// All rows of a table.
    #[must_use]
    pub fn rows<T: Table>(&self) -> Vec<T> {
        let mut rows = Vec::new();
        self.hold(|batch| rows.extend(batch));
        rows
    }

    /// Gives the rows of a table to who holds all of them, as far as they may be held.
    fn hold<T: Table>(&self, mut take: impl FnMut(Vec<T>)) {
        let mut rows = 0;
        for batch in self.read() {
            rows += batch.len();
            take(batch);
            if !self.fits::<T>(T::NAME, rows) {
                break;
            }
        }
    }

    /// Whether so many rows may be held; if not, that is a warning of the record.
    fn fits<T>(&self, name: &str, rows: usize) -> bool {
        let too_many = limit::exceeded::<T>(rows);
        if let Some(why) = &too_many {
            self.warnings.borrow_mut().push(format!("{name}: read in part: {why}"));
        }
        too_many.is_none()
    }

    /// The rows of a table, some thousand at a time, in the order in which they were written.
    #[must_use]
    pub fn read<T: Table>(&self) -> Batches<'_, T> {
        Batches { record: self, files: self.files::<T>(), reader: None }
    }

    /// The summary, computed from the rows.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let (rows, ages) = (self.usage(), self.ages());
        let curve = self.curve(&rows, &ages);
        self.summary_of(&rows, &ages, curve.as_ref())
    }

    /// The same from rows that were read before.
    #[must_use]
    pub fn summary_of(&self, rows: &[Usage], ages: &[AgeRow], curve: Option<&Curve>) -> Summary {
        let (episodes, tick_s, phases) = (self.lives(), self.tick_s(), self.phases(rows));
        let known = Known { ages, episodes: &episodes, curve, tick_s, phases: &phases, ..Known::of(&self.meta, rows) };
        summarise(&known, &cold_rows(ages), &self.rows())
    }

    /// The tide curve, from these idle-age histograms if it has them, or else from the map. `None` where
    /// the record has not the measurements for it.
    #[must_use]
    pub fn curve(&self, rows: &[Usage], ages: &[AgeRow]) -> Option<Curve> {
        let phases = self.phases(rows);
        // Recordings of other tools have no accounts to find phases in.
        let all = [Phase { kind: PhaseKind::Steady, from_s: 0.0, to_s: f64::INFINITY }];
        let phases = if phases.is_empty() { &all[..] } else { &phases };
        if ages.is_empty() {
            Curve::of_phases(phases, &self.ages_of_map(), &[], self.tick_s())
        } else {
            Curve::of_phases(phases, ages, &self.lives(), self.tick_s())
        }
    }

    /// The phases of the run.
    #[must_use]
    pub fn phases(&self, rows: &[Usage]) -> Vec<Phase> {
        phases(rows, self.meta.starts_late())
    }

    /// The episodes of the sampled pages, with stretches joined that were cut.
    #[must_use]
    pub fn lives(&self) -> Vec<Episode> {
        let mut lives = Lives::default();
        self.hold(|batch| batch.into_iter().for_each(|row| lives.push(row)));
        lives.rows()
    }

    /// Seconds between two samples of a page; at least one.
    #[must_use]
    pub fn tick_s(&self) -> f64 {
        self.meta.monitor.sampling_s.max(1.0)
    }

    /// Idle-age histograms from the map.
    #[must_use]
    pub fn ages_of_map(&self) -> Vec<AgeRow> {
        let mut ages = Vec::new();
        let mut snapshot: Vec<RegionRow> = Vec::new();
        let take = |snapshot: &mut Vec<RegionRow>, ages: &mut Vec<AgeRow>| {
            if let Some(t_s) = snapshot.first().map(|row| row.t_s) {
                let each = snapshot.drain(..).map(|row| (row.region(), row.mapping.starts_with('/')));
                ages.extend(histogram(t_s, each));
            }
        };
        for row in self.regions().flatten() {
            if snapshot.first().is_some_and(|first| first.t_s.to_bits() != row.t_s.to_bits()) {
                take(&mut snapshot, &mut ages);
                if !self.fits::<AgeRow>("idle ages of regions", ages.len()) {
                    return ages;
                }
            }
            snapshot.push(row);
            if !self.fits::<RegionRow>("a snapshot of regions", snapshot.len()) {
                return ages;
            }
        }
        take(&mut snapshot, &mut ages);
        ages
    }

    /// The files that hold a table: the parts where there are any (they are complete), else the main file.
    fn files<T: Table>(&self) -> VecDeque<PathBuf> {
        let parts = self.dir.join(PARTS);
        if !is_folder(&parts) {
            let main = self.dir.join(format!("{}.parquet", T::NAME));
            return main.exists().then_some(main).into_iter().collect();
        }
        let prefix = format!("{}-", T::NAME);
        let mut files: Vec<(u64, PathBuf)> = match fs::read_dir(&parts) {
            Ok(entries) => entries.filter_map(|entry| numbered(&entry.ok()?.path(), &prefix)).collect(),
            Err(error) => {
                self.warn(&parts, &error.to_string());
                self.failed.replace(Some(StoreError::read(&parts, error)));
                Vec::new()
            }
        };
        files.sort();
        files.into_iter().map(|(_, path)| path).collect()
    }

    fn warn(&self, path: &Path, why: &str) {
        let name = path.strip_prefix(&self.dir).unwrap_or(path);
        self.warnings.borrow_mut().push(format!("{}: skipped what could not be read: {why}", name.display()));
    }
}

/// Whether it is a folder, and no link to one: that could be a folder of somebody else.
pub(super) fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

/// The number of a part of that table.
fn numbered(path: &Path, prefix: &str) -> Option<(u64, PathBuf)> {
    let number = path.file_name()?.to_str()?.strip_prefix(prefix)?.strip_suffix(".parquet")?.parse().ok()?;
    Some((number, path.to_path_buf()))
}

fn read_meta(dir: &Path) -> Result<Meta> {
    let not_a_record = |why: String| StoreError::NotARecord { dir: dir.to_path_buf(), why };
    let text = fs::read(dir.join(META)).map_err(|error| not_a_record(format!("{META}: {error}")))?;
    let meta: Meta = serde_json::from_slice(&text).map_err(|error| not_a_record(format!("{META}: {error}")))?;
    if meta.schema > SCHEMA {
        let why = format!("its layout is version {}, this lowtide reads up to {SCHEMA}", meta.schema);
        return Err(not_a_record(why));
    }
    Ok(meta)
}

/// The rows of a table, batch by batch. What cannot be read is skipped and becomes a warning of the record.
pub struct Batches<'a, T: Table> {
    record: &'a Record,
    files: VecDeque<PathBuf>,
    reader: Option<(PathBuf, Reader<T>)>,
}

impl<T: Table> Iterator for Batches<'_, T> {
    type Item = Vec<T>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((path, reader)) = &mut self.reader {
                match reader.next() {
                    Some(Ok(rows)) => return Some(rows),
                    Some(Err(why)) => self.record.warn(path, &why),
                    None => {}
                }
                self.reader = None;
            }
            let path = self.files.pop_front()?;
            match open(&path) {
                Ok(Ok(reader)) => self.reader = Some((path, reader)),
                Ok(Err(why)) => self.record.warn(&path, &why),
                Err(error) => {
                    self.record.warn(&path, &error.to_string());
                    self.record.failed.replace(Some(StoreError::read(&path, error)));
                }
            }
        }
    }
}

/// Parts are read at once: they are small, and their file may be removed meanwhile. Main files are read in place.
fn open<T: Table>(path: &Path) -> std::io::Result<std::result::Result<Reader<T>, String>> {
    if path.parent().is_some_and(|parent| parent.ends_with(PARTS)) {
        Ok(Reader::open(Bytes::from(fs::read(path)?)))
    } else {
        Ok(Reader::open(File::open(path)?))
    }
}
