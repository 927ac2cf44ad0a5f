//! Records on disk, and recordings of other tools. Only this crate knows Parquet.
//!
//! Problem: a record must survive a recorder that is killed and a disk that fills, open with any Parquet reader, and cost little
//! while it is written. Approach: small complete files while recording, united once recording has ended. The tables are in one
//! registry (`table.rs`): a new table is one file with its columns, and one line there. Other crates write and read Parquet by
//! [`file`] and [`values`].
//!
//! May import: the model.
//!
//! While recording, rows go out every few seconds as small complete files, `parts/usage-000001.parquet` and so on,
//! written under a temporary name and then renamed: a recorder that is killed loses what it had not flushed, and
//! everything before that opens with any Parquet reader. *Finishing* a record streams the parts into one file per
//! table, writes `summary.json`, and only then takes the parts away:
//!
//! 1. `usage.parquet`, `regions.parquet`, ... and `summary.json` are written beside the parts, synced, and renamed;
//! 2. `parts/` is renamed to `parts.done/`, which is the moment the record counts as finished;
//! 3. `parts.done/` and the lock file are removed.
//!
//! Where `parts/` exists it holds every row, whatever else lies beside it; so finishing may be killed anywhere and
//! simply begins again. A live recorder holds `recording.lock`, and finishing leaves a locked record alone.

mod actions;
mod ages;
pub mod atomic;
mod cgroups;
mod cohort;
mod columns;
mod error;
pub mod file;
mod finish;
pub mod limit;
mod lock;
mod nodes;
mod read;
mod regions;
mod table;
mod usage;
pub mod values;
mod write;

pub mod interchange;

pub use actions::ActionRow;
pub use cgroups::CgroupRow;
pub use error::StoreError;
pub use finish::{Finished, finish};
pub use lowtide_model::cohort::AgeRow;
pub use read::{Batches, Record};
pub use regions::RegionRow;
pub use table::Table;
pub use write::{Writer, check_owner};

/// Rows while recording.
const PARTS: &str = "parts";
/// Rows that are in the main files and can go.
const PARTS_DONE: &str = "parts.done";
/// Held by the recorder while it lives, and by the process that finishes the record.
const LOCK: &str = "recording.lock";
/// The instruments, the machine, and how recording ended.
const META: &str = "meta.json";
/// The figures of the run.
const SUMMARY: &str = "summary.json";

/// Whether there is a record in this folder, whatever state it is in.
#[must_use]
pub fn is_record(dir: &std::path::Path) -> bool {
    dir.join(META).is_file()
}
