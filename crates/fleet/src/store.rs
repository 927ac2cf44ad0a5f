//! Layout of telemetry: `DIR/day=2026-11-22/host=NAME/FIRST-LAST.parquet`, by the day (UTC) and the seconds of the first and the last row.
//!
//! A file appears complete or not at all: it is written under a hidden name and renamed. Days and hosts are folders as data
//! lakes partition them, so that other tools read all of it as one table with two columns more.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use lowtide_model::units::signed;
use lowtide_record::atomic::{self, Care};
use lowtide_record::file::{ColumnFile, ParquetSource, create, docs, write_group};
use lowtide_record::values::ColumnSpec;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use crate::telemetry::{self, Batch, TelemetryRow, VERSION, VERSION_KEY};

/// Rows that are read at once: few enough that all of their columns stay in a CPU's own cache.
const READ_ROWS: usize = 1024;
/// Rows of a row group, of which one column after another is encoded.
const GROUP_ROWS: usize = 65_536;
/// zstd's.
const LEVEL: i32 = 3;

/// Why telemetry cannot be written or found.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The file system refused.
    #[error("{path}: {error}")]
    Io {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file could not be made.
    #[error("{path}: {error}")]
    Parquet {
        /// Its path.
        path: PathBuf,
        /// Why.
        error: ParquetError,
    },
}

fn at(path: &Path) -> impl Fn(io::Error) -> TelemetryError + '_ {
    move |error| TelemetryError::Io { path: path.to_path_buf(), error }
}

/// The day of a time, as a folder's name.
pub fn day_folder(unix_s: f64) -> String {
    let day = Timestamp::from_second(signed(unix_s.floor())).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("day={}", day.strftime("%Y-%m-%d"))
}

/// A host as a folder's name: without what would leave the folder or hide it, or make another column of it.
pub fn host_folder(host: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let name: String = host.chars().map(plain).collect();
    format!("host={}", if name.is_empty() { "unknown" } else { &name })
}

/// Writes rows of one host, which are in their order of time: a file for each day that they touch. Nothing is written of none.
///
/// # Errors
/// If a file cannot be written; days before it were.
pub fn write(dir: &Path, host: &str, rows: &[TelemetryRow]) -> Result<Vec<PathBuf>, TelemetryError> {
    let mut files = Vec::new();
    for day in rows.chunk_by(|a, b| day_folder(a.minute.now_s) == day_folder(b.minute.now_s)) {
        let folder = dir.join(day_folder(day[0].minute.now_s)).join(host_folder(host));
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        let (first, last) = (day[0].minute.now_s, day[day.len() - 1].minute.now_s);
        let name = format!("{first:.0}-{last:.0}.parquet");
        let path = folder.join(&name);
        let written = atomic::write_by(&path, Care { sync: true, ..Care::default() }, |mut file| {
            let columns = telemetry::columns();
            let mut writer = create(&mut file, &columns, properties(&columns))?;
            for rows in day.chunks(GROUP_ROWS) {
                write_group(&mut writer, telemetry::encode(rows))?;
            }
            writer.close()?;
            Ok((file, ()))
        });
        written.map_err(|error: ParquetError| TelemetryError::Parquet { path: path.clone(), error })?;
        files.push(path);
    }
    Ok(files)
}

fn properties(columns: &[ColumnSpec]) -> WriterProperties {
    let mut metadata = vec![KeyValue::new(VERSION_KEY.to_owned(), VERSION.to_string())];
    metadata.extend(docs(columns));
    let builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL).unwrap_or_default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(metadata))
        .set_created_by(format!("lowtide {}", env!("CARGO_PKG_VERSION")));
    builder.build()
}

/// Days of a folder, the oldest first; what else lies there is left out.
fn days(dir: &Path) -> io::Result<Vec<PathBuf>> {
    folders(dir, "day=")
}

fn folders(dir: &Path, prefix: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) && entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Takes away the oldest files of a host until no more than so many bytes of it are left; how many bytes those took. The
/// newest file stays, however large.
///
/// # Errors
/// If the folder cannot be read, or a file not be removed.
pub fn bound(dir: &Path, host: &str, bytes: u64) -> Result<u64, TelemetryError> {
    let mut files = Vec::new();
    for day in days(dir).map_err(at(dir))? {
        let folder = day.join(host_folder(host));
        for path in files_of(&folder).unwrap_or_default() {
            let size = fs::metadata(&path).map_err(at(&path))?.len();
            files.push((path, size));
        }
    }
    let mut all: u64 = files.iter().map(|(_, size)| size).sum();
    let mut evicted = 0;
    let newest = files.len().saturating_sub(1);
    for (path, size) in files.into_iter().take(newest) {
        if all <= bytes {
            break;
        }
        fs::remove_file(&path).map_err(at(&path))?;
        (all, evicted) = (all - size, evicted + size);
        // Folders that are empty now go too; others stay.
        if let Some(folder) = path.parent()
            && fs::remove_dir(folder).is_ok()
            && let Some(day) = folder.parent()
        {
            let _ = fs::remove_dir(day);
        }
    }
    Ok(evicted)
}

/// Files of one host and day, in the order of their times.
fn files_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".parquet") && !name.starts_with('.') {
            let first: Option<i64> = name.split(['-', '.']).next().and_then(|first| first.parse().ok());
            files.push((first, name, path));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, _, path)| path).collect())
}

/// Hosts of a folder, each with the days on which it reported something.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    dir: PathBuf,
    days: Vec<String>,
    /// By the host's folder: places of days.
    hosts: BTreeMap<String, Vec<usize>>,
}

/// One host of a fleet.
#[derive(Debug, Clone)]
pub struct FleetHost<'a> {
    /// Its name.
    pub name: &'a str,
    folders: Vec<PathBuf>,
}

impl Fleet {
    /// Finds hosts and days. Files are not opened yet, so a fleet of millions of files takes little memory.
    ///
    /// # Errors
    /// If the folder, or one of a day, cannot be read.
    pub fn open(dir: &Path) -> Result<Self, TelemetryError> {
        let mut fleet = Self { dir: dir.to_path_buf(), ..Self::default() };
        for (at_day, day) in (0..).zip(days(dir).map_err(at(dir))?) {
            for host in folders(&day, "host=").map_err(at(&day))? {
                let name = host.file_name().unwrap_or_default().to_string_lossy().into_owned();
                fleet.hosts.entry(name).or_default().push(at_day);
            }
            fleet.days.push(day.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        Ok(fleet)
    }

    /// Number of hosts.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Hosts, by name.
    pub fn hosts(&self) -> impl Iterator<Item = FleetHost<'_>> {
        self.hosts.iter().map(|(name, days)| FleetHost {
            name: name.strip_prefix("host=").unwrap_or(name),
            folders: days.iter().map(|day| self.dir.join(&self.days[*day]).join(name)).collect(),
        })
    }
}

impl FleetHost<'_> {
    /// Its files in the order of their times, or why a folder of them cannot be read.
    pub fn files(&self) -> impl Iterator<Item = Result<PathBuf, TelemetryError>> {
        self.folders.iter().flat_map(|folder| match files_of(folder) {
            Ok(files) => files.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(TelemetryError::Io { path: folder.clone(), error })],
        })
    }
}

/// Rows of one file, batch by batch. Ends at the first thing that is wrong, and says so.
pub struct Reader {
    file: Option<ColumnFile>,
    names: Vec<Cow<'static, str>>,
}

impl Reader {
    /// Opens a file, with or without its labels.
    ///
    /// # Errors
    /// If it is no Parquet file, is cut off, or of a version that came after this one.
    pub fn open(path: &Path, labels: bool) -> Result<Self, String> {
        Self::new(File::open(path).map_err(|error| error.to_string())?, labels)
    }

    /// Reads what was a file, wherever it lies.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn new(file: impl Into<ParquetSource>, labels: bool) -> Result<Self, String> {
        let names = telemetry::columns().into_iter().map(|column| column.name);
        let names: Vec<_> = names.filter(|name| Batch::needs(name, labels)).collect();
        let file = ColumnFile::open(file, &names, READ_ROWS)?;
        let version = file.metadata(VERSION_KEY).and_then(|version| version.parse::<u32>().ok());
        if let Some(newer) = version.filter(|version| *version > VERSION) {
            return Err(format!("schema {newer}, and this lowtide knows {VERSION}: read it with a newer one"));
        }
        Ok(Self { file: Some(file), names })
    }

    fn step(&mut self) -> Result<Option<Batch>, String> {
        let Some(file) = &mut self.file else { return Ok(None) };
        let Some(mut batch) = file.next_batch()? else { return Ok(None) };
        let column = |name: &str| batch.columns[self.names.iter().position(|known| known == name)?].take();
        Batch::new(batch.rows, column).map(Some).map_err(|foreign| foreign.to_string())
    }
}

impl Iterator for Reader {
    type Item = Result<Batch, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if !matches!(step, Ok(Some(_))) {
            self.file = None;
        }
        step.transpose()
    }
}
