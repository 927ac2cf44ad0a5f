//! The schema of telemetry: a row for each workload and minute, as columns of a Parquet file.
//!
//! Columns that a file has beyond these are left out; of those that it lacks, the required ones make it unreadable, and the
//! others count as not known. So older and newer writers are read alike, as far as they agree.

use std::borrow::Cow;

use lowtide_model::AGE_EDGES_S;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::signed;
use lowtide_policy::replay::{BURSTS, Minute};
use lowtide_record::values::{ByteArray, ColumnSpec, ColumnValues, ValueType, Values};

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
    /// The observation. `now_s` is Unix time.
    pub minute: Minute,
    /// Bytes that what was paged out took where it was kept; `None` = not known, or not in memory.
    pub stored: Option<f64>,
    /// Share of the time in which it did not make progress because of memory.
    pub stalled: Option<f64>,
}

/// A column, and its values of rows.
struct TelemetryColumn {
    spec: ColumnSpec,
    values: Box<Encode>,
}

type Encode = dyn Fn(&[TelemetryRow]) -> ColumnValues;

/// A column that is never null, and without which no file can be read.
fn required(
    name: impl Into<Cow<'static, str>>,
    kind: ValueType,
    doc: impl Into<Cow<'static, str>>,
    values: impl Fn(&[TelemetryRow]) -> ColumnValues + 'static,
) -> TelemetryColumn {
    let spec = ColumnSpec { name: name.into(), doc: doc.into(), kind, nullable: false };
    TelemetryColumn { spec, values: Box::new(values) }
}

/// A column of bytes, or of seconds since 1970. Beyond i64 there is no memory to measure.
fn integers(name: &'static str, doc: &'static str, get: fn(&TelemetryRow) -> f64) -> TelemetryColumn {
    required(name, ValueType::Int64, doc, move |rows| {
        ColumnValues::Int64(Values::required(rows.iter().map(|row| signed(get(row)))))
    })
}

fn bytes(
    name: impl Into<Cow<'static, str>>,
    doc: impl Into<Cow<'static, str>>,
    get: impl Fn(&TelemetryRow) -> Option<f64> + 'static,
) -> TelemetryColumn {
    let column = required(name, ValueType::Int64, doc, move |rows| {
        ColumnValues::Int64(Values::nullable(rows.iter().map(|row| get(row).map(signed))))
    });
    column.nullable()
}

fn share(name: &'static str, doc: &'static str, get: fn(&TelemetryRow) -> Option<f64>) -> TelemetryColumn {
    let column = required(name, ValueType::Float64, doc, move |rows| {
        ColumnValues::Float64(Values::nullable(rows.iter().map(get)))
    });
    column.nullable()
}

/// A column of texts, of which empty ones are null.
fn text(name: &'static str, doc: &'static str, get: fn(&TelemetryRow) -> &str) -> TelemetryColumn {
    let column = required(name, ValueType::Text, doc, move |rows| {
        let texts = rows.iter().map(|row| Some(get(row)).filter(|text| !text.is_empty()).map(ByteArray::from));
        ColumnValues::Text(Values::nullable(texts))
    });
    column.nullable()
}

impl TelemetryColumn {
    /// A column that may be null, or missing in a file.
    fn nullable(mut self) -> Self {
        self.spec.nullable = true;
        self
    }
}

/// Kinds in words.
const WORDS: PerKind<&str> = PerKind { anon: "Anonymous", file: "File" };

/// All columns, in their order.
fn table() -> Vec<TelemetryColumn> {
    let mut all = vec![
        integers("time_s", "When the interval ended: seconds since 1970, UTC, by the host's clock.", |row| {
            row.minute.now_s
        }),
        required(
            "interval_s",
            ValueType::Float64,
            "Seconds that the row stands for: 60, or until ages were reported.",
            |rows| ColumnValues::Float64(Values::required(rows.iter().map(|row| row.minute.lasts_s))),
        ),
        required("workload", ValueType::Text, "Its name on its host: the cgroup's path.", |rows| {
            ColumnValues::Text(Values::required(rows.iter().map(|row| ByteArray::from(row.workload.as_str()))))
        }),
        text("labels", "What else is known of it: a JSON object.", |row| &row.labels),
        text("policy", "The policy that it was under; null = none.", |row| &row.policy),
        integers("anon_bytes", "Anonymous memory in memory, mean.", |row| row.minute.resident.anon),
        integers("file_bytes", "File memory in memory, mean.", |row| row.minute.resident.file),
        bytes("swapped_bytes", "Paged out, mean.", |row| Some(row.minute.swapped)),
        bytes("stored_bytes", "What that took where it was kept in memory; null = not known, or on a disk.", |row| {
            row.stored
        }),
        bytes("floor_bytes", "Protected from reclaim: memory.min or memory.low, whichever is higher.", |row| {
            Some(row.minute.floor)
        }),
        share("pressure_some", "Share of the time that some task stalled on memory.", |row| row.minute.pressure),
        share("stalled", "Share of the time in which it did not make progress because of memory.", |row| row.stalled),
    ];
    for kind in Kind::ALL {
        all.extend(of_kind(kind));
    }
    let ages = || Kind::ALL.into_iter().flat_map(|kind| (1..AGE_EDGES_S.len()).map(move |edge| (kind, edge)));
    all.extend(ages().map(|(kind, edge)| {
        let (words, age_s) = (WORDS[kind], AGE_EDGES_S[edge]);
        let doc = format!("{words} memory that had been idle for at least {age_s} s, mean; null = not known.");
        bytes(format!("{}_idle_{age_s}s_bytes", kind.name()), doc, move |row| row.minute.idle[kind][edge])
    }));
    all.extend(ages().map(|(kind, edge)| {
        let (words, age_s) = (WORDS[kind], AGE_EDGES_S[edge]);
        let doc = format!(
            "{words} memory that would have come back in the interval, had all gone that was idle for {age_s} s; null = not known."
        );
        bytes(format!("{}_back_{age_s}s_bytes", kind.name()), doc, move |row| {
            row.minute.returned[kind].back[edge - 1].map(|rate| rate * row.minute.lasts_s)
        })
    }));
    all
}

/// Columns of one kind of memory that are not by age.
fn of_kind(kind: Kind) -> Vec<TelemetryColumn> {
    let words = WORDS[kind];
    let name = |what: &str| format!("{}_{what}_bytes", kind.name());
    let used = format!("{words} memory used within the longest window that is known, without new memory.");
    let refault = format!("{words} memory that came back in the interval.");
    let mut columns = vec![
        bytes(name("used"), used, move |row| Some(row.minute.returned[kind].used)),
        bytes(name("refault"), refault, move |row| Some(row.minute.returned[kind].refaulted * row.minute.lasts_s)),
    ];
    columns.extend(BURSTS.iter().enumerate().map(|(at, age_s)| {
        let doc = format!(
            "{words} memory that came into use at once, from one reading to the next, having been idle for {age_s} s: mean over its bytes; null = not known."
        );
        bytes(name(&format!("burst_{age_s}s")), doc, move |row| row.minute.burst[kind][at])
    }));
    columns
}

/// All columns as a file declares them, in their order.
#[must_use]
pub fn columns() -> Vec<ColumnSpec> {
    table().into_iter().map(|column| column.spec).collect()
}

/// Rows, column by column.
pub fn encode(rows: &[TelemetryRow]) -> impl Iterator<Item = ColumnValues> {
    table().into_iter().map(|column| (column.values)(rows))
}
