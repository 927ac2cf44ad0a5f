//! The schema of telemetry: a row for each workload and minute, as columns of a Parquet file.
//!
//! Columns that a file has beyond these are left out; of those that it lacks, the required ones make it unreadable, and the
//! others count as not known. So older and newer writers are read alike, as far as they agree.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use lowtide_model::AGE_EDGES_S;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::signed;
use lowtide_policy::replay::{BURSTS, Minute};

mod batch;

pub use batch::{Batch, Foreign};

/// Version of the schema. It grows when a column comes to mean something else; columns that are added do not change it.
pub const VERSION: u32 = 1;
/// The key under which a file's metadata states its version.
pub const VERSION_KEY: &str = "lowtide.telemetry";

/// One workload's minute.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TelemetryRow {
    /// Its name on its host: a cgroup's path, or what the configuration calls it.
    pub workload: String,
    /// What else is known of it, as a JSON object; empty = nothing.
    pub labels: String,
    /// The policy that it was under; empty = none.
    pub policy: String,
    /// What was observed. `now_s` is Unix time.
    pub minute: Minute,
    /// Bytes that what was paged out took where it was kept; `None` = not known, or not in memory.
    pub stored: Option<f64>,
    /// Share of the time in which it did not make progress because of memory.
    pub stalled: Option<f64>,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: DataType,
    /// It is never null, and no file can be read without it.
    pub required: bool,
    /// What it is, with its unit.
    pub doc: String,
}

/// Kinds in words.
const WORDS: PerKind<&str> = PerKind { anon: "Anonymous", file: "File" };

/// All columns, in their order.
pub fn columns() -> Vec<Column> {
    let text = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let column = |name: &str, kind: DataType, required: bool, doc: &str| Column {
        name: name.to_owned(),
        kind,
        required,
        doc: doc.to_owned(),
    };
    let bytes = |name: &str, required: bool, doc: &str| column(name, DataType::Int64, required, doc);
    let mut all = vec![
        column(
            "time_s",
            DataType::Int64,
            true,
            "When the interval ended: seconds since 1970, UTC, by the host's clock.",
        ),
        column("interval_s", DataType::Float64, true, "Seconds that the row stands for: 60, or until ages were told."),
        column("workload", text(), true, "Its name on its host: the cgroup's path."),
        column("labels", text(), false, "What else is known of it: a JSON object."),
        column("policy", text(), false, "The policy that it was under; null = none."),
        bytes("anon_bytes", true, "Anonymous memory in memory, mean."),
        bytes("file_bytes", true, "File memory in memory, mean."),
        bytes("swapped_bytes", false, "Paged out, mean."),
        bytes("stored_bytes", false, "What that took where it was kept in memory; null = not known, or on a disk."),
        bytes("floor_bytes", false, "Protected from reclaim: memory.min or memory.low, whichever is higher."),
        column("pressure_some", DataType::Float64, false, "Share of the time that some task stalled on memory."),
        column("stalled", DataType::Float64, false, "Share of the time in which it did not get on because of memory."),
    ];
    for (kind, words) in WORDS.iter() {
        let name = |what: &str| format!("{}_{what}_bytes", kind.name());
        all.push(bytes(
            &name("used"),
            false,
            &format!("{words} memory used within the longest window that is known, without new memory."),
        ));
        all.push(bytes(&name("refault"), false, &format!("{words} memory that came back in the interval.")));
        for age_s in BURSTS {
            let doc = format!(
                "{words} memory that came into use at once, from one look to the next, having been idle for {age_s} s: mean over its bytes; null = not known."
            );
            all.push(bytes(&name(&format!("burst_{age_s}s")), false, &doc));
        }
    }
    for (kind, words) in WORDS.iter() {
        let side = kind.name();
        for edge in &AGE_EDGES_S[1..] {
            let doc = format!("{words} memory that had been idle for at least {edge} s, mean; null = not known.");
            all.push(bytes(&format!("{side}_idle_{edge}s_bytes"), false, &doc));
        }
    }
    for (kind, words) in WORDS.iter() {
        let side = kind.name();
        for edge in &AGE_EDGES_S[1..] {
            let doc = format!(
                "{words} memory that would have come back in the interval, had all gone that was idle for {edge} s; null = not known."
            );
            all.push(bytes(&format!("{side}_back_{edge}s_bytes"), false, &doc));
        }
    }
    all
}

/// The schema of a file, with what each column is.
pub fn schema() -> Schema {
    let field = |column: Column| {
        let doc = HashMap::from([("doc".to_owned(), column.doc)]);
        Field::new(column.name, column.kind, !column.required).with_metadata(doc)
    };
    let version = HashMap::from([(VERSION_KEY.to_owned(), VERSION.to_string())]);
    Schema::new_with_metadata(columns().into_iter().map(field).collect::<Vec<_>>(), version)
}

/// Rows as a batch.
///
/// # Errors
/// None that these rows can cause; as Arrow reports.
pub fn encode(rows: &[TelemetryRow]) -> Result<RecordBatch, ArrowError> {
    let bytes = |get: &dyn Fn(&TelemetryRow) -> f64| -> ArrayRef {
        Arc::new(rows.iter().map(|row| Some(signed(get(row)))).collect::<Int64Array>())
    };
    let maybe = |get: &dyn Fn(&TelemetryRow) -> Option<f64>| -> ArrayRef {
        Arc::new(rows.iter().map(|row| get(row).map(signed)).collect::<Int64Array>())
    };
    let share = |get: &dyn Fn(&TelemetryRow) -> Option<f64>| -> ArrayRef {
        Arc::new(rows.iter().map(get).collect::<Float64Array>())
    };
    let text = |get: &dyn Fn(&TelemetryRow) -> &str, empty: bool| -> ArrayRef {
        let mut texts = StringDictionaryBuilder::<Int32Type>::new();
        for text in rows.iter().map(get) {
            texts.append_option(Some(text).filter(|text| empty || !text.is_empty()));
        }
        Arc::new(texts.finish())
    };
    let mut arrays = vec![
        bytes(&|row| row.minute.now_s),
        share(&|row| Some(row.minute.lasts_s)),
        text(&|row| &row.workload, true),
        text(&|row| &row.labels, false),
        text(&|row| &row.policy, false),
        bytes(&|row| row.minute.resident.anon),
        bytes(&|row| row.minute.resident.file),
        bytes(&|row| row.minute.swapped),
        maybe(&|row| row.stored),
        bytes(&|row| row.minute.floor),
        share(&|row| row.minute.pressure),
        share(&|row| row.stalled),
    ];
    for kind in Kind::ALL {
        arrays.push(bytes(&|row| row.minute.returned[kind].used));
        arrays.push(bytes(&|row| row.minute.returned[kind].refaulted * row.minute.lasts_s));
        arrays.extend((0..BURSTS.len()).map(|at| maybe(&|row| row.minute.burst[kind][at])));
    }
    for kind in Kind::ALL {
        arrays.extend((1..AGE_EDGES_S.len()).map(|edge| maybe(&|row| row.minute.idle[kind][edge])));
    }
    for kind in Kind::ALL {
        let back = |row: &TelemetryRow, edge: usize| {
            row.minute.returned[kind].back[edge - 1].map(|rate| rate * row.minute.lasts_s)
        };
        arrays.extend((1..AGE_EDGES_S.len()).map(|edge| maybe(&|row| back(row, edge))));
    }
    RecordBatch::try_new(Arc::new(schema()), arrays)
}
