//! Recordings of other tools, read and written: one file per format. What is read becomes a record like any other.

mod bounds;
pub mod counts;
pub mod damo;
mod number;
pub mod perf;
pub mod wmo;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use lowtide_model::cohort::AgeBin;
use lowtide_model::meta::{End, Host, IMPORTED, Meta, Monitor, SCHEMA};
use lowtide_model::region::Snapshot;
use lowtide_model::units::float;
use lowtide_model::usage::Usage;

use crate::{AgeRow, RegionRow, StoreError, Writer};

/// Why a recording could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file could not be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is none that is known.
    #[error(
        "not a recording that lowtide knows; it reads damo's damon.data, `perf script` text with damon_aggregated, and WMO's CSV"
    )]
    Unknown,
    /// It is damaged, or not what it seemed.
    #[error("{0}")]
    Broken(String),
    /// The record could not be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a recording holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// The tool it comes from.
    pub source: &'static str,
    /// `damon-vaddr`, `damon-paddr`, `mglru` or `none`.
    pub backend: &'static str,
    /// Seconds between two samples.
    pub sampling_s: f64,
    /// Seconds over which accesses were counted.
    pub aggregation_s: f64,
    /// Snapshots of the map, ascending in time.
    pub snapshots: Vec<Snapshot>,
    /// Rows of usage, ascending in time.
    pub usage: Vec<Usage>,
    /// Idle-age histograms with their times.
    pub ages: Vec<(f64, Vec<AgeBin>)>,
    /// Seconds since 1970 at which it began; 0 if not known.
    pub started_unix_s: f64,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// Reads a recording of any known format.
///
/// # Errors
/// If it is none, is damaged, or cannot be read.
pub fn read(path: &Path) -> Result<Recording, RecordingError> {
    let mut file = BufReader::with_capacity(65536, File::open(path)?);
    let head = file.fill_buf()?;
    match head {
        // A zlib stream of any window size and level: the first two bytes are a multiple of 31, method 8.
        [first, second, ..] if first & 15 == 8 && u16::from_be_bytes([*first, *second]) % 31 == 0 => {
            damo::read(flate2::bufread::ZlibDecoder::new(file))
        }
        _ if head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') => damo::read(file),
        _ if wmo::knows(head) => wmo::read(file),
        _ => perf::read(file),
    }
}

/// Writes a recording as a record into `dir`, which must be empty or not exist.
///
/// # Errors
/// If it cannot be written.
pub fn to_record(recording: Recording, dir: &Path, command: Vec<String>) -> Result<(), RecordingError> {
    let last = |a: f64, b: f64| a.max(b);
    let times = recording.snapshots.iter().map(|s| s.t_s).chain(recording.usage.iter().filter_map(|row| row.t_s));
    let runtime_s = times.fold(0.0, last);
    let meta = Meta {
        schema: SCHEMA,
        lowtide: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        started_unix_s: recording.started_unix_s,
        interval_s: recording.aggregation_s,
        limit_bytes: None,
        host: Host::default(),
        monitor: Monitor {
            backend: recording.backend.to_owned(),
            sampling_s: recording.sampling_s,
            aggregation_s: recording.aggregation_s,
            refused: Vec::new(),
        },
        notes: [vec![format!("imported from {}", recording.source)], recording.notes].concat(),
        ..Meta::default()
    };
    let mut writer = Writer::create(dir, &meta)?;
    for row in recording.usage {
        writer.add([row]);
        flush_if_full(&mut writer)?;
    }
    for (t_s, bins) in &recording.ages {
        writer.add(bins.iter().map(|bin| AgeRow { t_s: *t_s, bin: *bin }));
        flush_if_full(&mut writer)?;
    }
    for snapshot in &recording.snapshots {
        for regions in snapshot.regions.chunks(BUFFERED) {
            writer.add(regions.iter().map(|region| RegionRow::new(snapshot.t_s, snapshot.pid, region, "")));
            flush_if_full(&mut writer)?;
        }
    }
    let end = End { reason: IMPORTED.to_owned(), runtime_s, ..End::default() };
    writer.close(&Meta { end: Some(end), ..meta })?;
    Ok(())
}

/// Rows that are written at once.
const BUFFERED: usize = 100_000;

fn flush_if_full(writer: &mut Writer) -> Result<(), RecordingError> {
    if writer.buffered() >= BUFFERED {
        writer.flush()?;
    }
    Ok(())
}

/// Numbers targets from 1 on in the order in which they appear: what other tools call them may be a kernel address.
#[derive(Debug, Default)]
struct Targets(Vec<String>);

impl Targets {
    fn number(&mut self, id: String) -> Result<u32, RecordingError> {
        let at = self.0.iter().position(|known| *known == id).unwrap_or_else(|| {
            self.0.push(id);
            self.0.len() - 1
        });
        bounds::within(self.0.len(), bounds::TARGETS, "targets")?;
        Ok(u32::try_from(at + 1).unwrap_or(u32::MAX))
    }

    /// Which number stands for what.
    fn note(&self, word: &str) -> Option<String> {
        let list: Vec<String> = self.0.iter().enumerate().map(|(at, id)| format!("{} is {id}", at + 1)).collect();
        (!list.is_empty())
            .then(|| format!("pid in the tables is the number of a target; by {word}: {}", list.join(", ")))
    }
}

/// Physical or virtual, by the addresses: those of processes reach beyond any machine's memory.
fn backend_of(snapshots: &[Snapshot]) -> &'static str {
    let highest = snapshots.iter().flat_map(|s| &s.regions).map(|region| region.end).max().unwrap_or(0);
    if highest > 1 << 44 { "damon-vaddr" } else { "damon-paddr" }
}

/// Rows of usage for a recording that has only a map: how many regions there were when.
fn counted(snapshots: &[Snapshot]) -> Vec<Usage> {
    let of_time = snapshots.chunk_by(|a, b| a.t_s.to_bits() == b.t_s.to_bits());
    let row = |list: &[Snapshot]| {
        let regions = float(list.iter().map(|snapshot| snapshot.regions.len()).sum::<usize>());
        Usage { t_s: list.first().map(|snapshot| snapshot.t_s), regions: Some(regions), ..Usage::default() }
    };
    of_time.map(row).collect()
}

/// Samples in one aggregation where a recording does not give its intervals: as many as DAMON takes by default (5 ms in
/// 100 ms), or as many as were counted.
fn samples_for(highest: f64) -> f64 {
    highest.max(20.0)
}
