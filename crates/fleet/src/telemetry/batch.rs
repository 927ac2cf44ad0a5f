//! Reads telemetry: the columns of a batch, of any writer, as minutes.

use std::collections::HashMap;
use std::sync::LazyLock;

use lowtide_model::AGE_EDGES_S;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::float;
use lowtide_policy::replay::{BURSTS, Minute};
use lowtide_record::values::{ColumnSpec, ColumnValues, ValueType};

use super::columns;

/// Why a batch cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// A required column is not there.
    #[error("no column {0}: not telemetry of lowtide's")]
    Lacks(String),
    /// A column cannot be what it should.
    #[error("column {0} cannot be read as {1}")]
    Type(String, ValueType),
}

/// Numbers of rows: NaN = null, and none at all where the file has no such column.
#[derive(Default)]
struct Numbers(Vec<f64>);

impl Numbers {
    /// Of whatever numbers another writer has put there.
    fn of(values: &ColumnValues) -> Option<Self> {
        let null = f64::NAN;
        Some(Self(match values {
            ColumnValues::Int64(values) => values.or(null, |value| float(*value)),
            ColumnValues::Float64(values) => values.or(null, |value| *value),
            ColumnValues::Int32(values) => values.or(null, |value| f64::from(*value)),
            ColumnValues::UInt32(values) => values.or(null, |value| f64::from(*value)),
            ColumnValues::UInt64(values) => values.or(null, |value| float(*value)),
            ColumnValues::Float32(values) => values.or(null, |value| f64::from(*value)),
            _ => return None,
        }))
    }

    fn get(&self, at: usize) -> Option<f64> {
        self.0.get(at).copied().filter(|value| value.is_finite())
    }

    fn or_nothing(&self, at: usize) -> f64 {
        self.get(at).unwrap_or(0.0)
    }
}

/// Texts, each once, and which of them a row has.
#[derive(Default)]
struct Texts {
    places: Vec<Option<usize>>,
    values: Vec<String>,
}

impl Texts {
    fn of(values: &ColumnValues) -> Option<Self> {
        let ColumnValues::Text(texts) = values else { return None };
        let (mut known, mut values) = (HashMap::new(), Vec::new());
        let mut place = |text| {
            *known.entry(text).or_insert_with(|| {
                values.push(String::from_utf8_lossy(text).into_owned());
                values.len() - 1
            })
        };
        let places = texts.iter().map(|text| text.map(|text| place(text.data()))).collect();
        Some(Self { places, values })
    }

    /// The place of a row's text; `None` = it has none.
    fn place(&self, at: usize) -> Option<usize> {
        self.places.get(at).copied().flatten()
    }
}

/// Unix times that a row may have, seconds: until the year 5138. Counts of days and steps between others have no meaning.
const TIMES_S: std::ops::RangeInclusive<f64> = 0.0..=1e11;

/// Ages that columns exist for: all edges of a histogram but the first.
const EDGES: [u32; AGE_EDGES_S.len() - 1] = {
    let [_, edges @ ..] = AGE_EDGES_S;
    edges
};

/// A batch, to be read row by row.
pub struct Batch {
    len: usize,
    time_s: Numbers,
    interval_s: Numbers,
    workload: Texts,
    labels: Texts,
    resident: PerKind<Numbers>,
    swapped: Numbers,
    floor: Numbers,
    pressure: Numbers,
    used: PerKind<Numbers>,
    refault: PerKind<Numbers>,
    burst: PerKind<[Numbers; BURSTS.len()]>,
    idle: PerKind<[Numbers; AGE_EDGES_S.len() - 1]>,
    back: PerKind<[Numbers; AGE_EDGES_S.len() - 1]>,
}

/// Finds columns by name.
struct Columns<F>(F);

impl<F: FnMut(&str) -> Option<ColumnValues>> Columns<F> {
    /// A column as `read` understands it; the default where it may be missing, and is.
    fn find<T: Default>(&mut self, name: &str, read: impl Fn(&ColumnValues) -> Option<T>) -> Result<T, Foreign> {
        // Built once: every batch looks columns up.
        static KNOWN: LazyLock<Vec<ColumnSpec>> = LazyLock::new(columns);
        let Some(spec) = KNOWN.iter().find(|spec| spec.name == name) else { return Ok(T::default()) };
        match self.0(name) {
            Some(values) => read(&values).ok_or_else(|| Foreign::Type(name.to_owned(), spec.kind)),
            None if spec.nullable => Ok(T::default()),
            None => Err(Foreign::Lacks(name.to_owned())),
        }
    }

    fn numbers(&mut self, name: &str) -> Result<Numbers, Foreign> {
        self.find(name, Numbers::of)
    }

    /// The column of each kind.
    fn each(&mut self, what: &str) -> Result<PerKind<Numbers>, Foreign> {
        Ok(PerKind { anon: self.numbers(&format!("anon_{what}"))?, file: self.numbers(&format!("file_{what}"))? })
    }

    /// The columns of each kind by age.
    fn by_age<const AGES: usize>(
        &mut self,
        what: &str,
        ages_s: [u32; AGES],
    ) -> Result<PerKind<[Numbers; AGES]>, Foreign> {
        let mut all = PerKind::from_fn(|_| std::array::from_fn(|_| Numbers::default()));
        for kind in Kind::ALL {
            for (column, age_s) in all[kind].iter_mut().zip(ages_s) {
                *column = self.numbers(&format!("{}_{what}_{age_s}s_bytes", kind.name()))?;
            }
        }
        Ok(all)
    }
}

impl Batch {
    /// Columns that are read: those that replays need, labels only where they are asked for.
    pub fn needs(name: &str, labels: bool) -> bool {
        (labels || name != "labels") && !matches!(name, "policy" | "stalled" | "stored_bytes")
    }

    /// So many rows, of which `column` gives the columns by name; `None` = there is no such column.
    ///
    /// # Errors
    /// If a required one is missing, or one is of another kind.
    pub fn new(len: usize, column: impl FnMut(&str) -> Option<ColumnValues>) -> Result<Self, Foreign> {
        let mut columns = Columns(column);
        Ok(Self {
            len,
            workload: columns.find("workload", Texts::of)?,
            labels: columns.find("labels", Texts::of)?,
            time_s: columns.numbers("time_s")?,
            interval_s: columns.numbers("interval_s")?,
            resident: columns.each("bytes")?,
            swapped: columns.numbers("swapped_bytes")?,
            floor: columns.numbers("floor_bytes")?,
            pressure: columns.numbers("pressure_some")?,
            used: columns.each("used_bytes")?,
            refault: columns.each("refault_bytes")?,
            burst: columns.by_age("burst", BURSTS)?,
            idle: columns.by_age("idle", EDGES)?,
            back: columns.by_age("back", EDGES)?,
        })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Names of workloads, each once.
    pub fn workloads(&self) -> impl Iterator<Item = &str> {
        self.workload.values.iter().map(String::as_str)
    }

    /// The place among [`Batch::workloads`] of a row's; `None` = it has none.
    pub fn workload(&self, at: usize) -> Option<usize> {
        self.workload.place(at)
    }

    /// A label of a row's workload; `None` where it has none of that name, or none are read.
    pub fn label(&self, at: usize, name: &str) -> Option<String> {
        let labels = &self.labels.values[self.labels.place(at)?];
        let known: serde_json::Map<String, serde_json::Value> = serde_json::from_str(labels).ok()?;
        Some(match known.get(name)? {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    }

    /// A row; `None` where it cannot be true.
    pub fn minute(&self, at: usize) -> Option<Minute> {
        let lasts_s = self.interval_s.get(at).filter(|lasts_s| (1e-3..=86_400.0).contains(lasts_s))?;
        let resident = PerKind { anon: self.resident.anon.get(at)?, file: self.resident.file.get(at)? };
        let mut minute = Minute {
            now_s: self.time_s.get(at).filter(|now_s| TIMES_S.contains(now_s))?,
            lasts_s,
            resident,
            swapped: self.swapped.or_nothing(at),
            pressure: self.pressure.get(at),
            floor: self.floor.or_nothing(at),
            ..Minute::default()
        };
        let mut least = minute.swapped.min(minute.floor);
        for kind in Kind::ALL {
            let bytes = resident[kind];
            let returned = &mut minute.returned[kind];
            returned.used = self.used[kind].or_nothing(at);
            returned.refaulted = self.refault[kind].or_nothing(at) / lasts_s;
            least = least.min(returned.used).min(returned.refaulted).min(bytes);
            minute.burst[kind] = self.burst[kind].each_ref().map(|burst| burst.get(at));
            least = minute.burst[kind].into_iter().flatten().fold(least, f64::min);
            minute.idle[kind][0] = Some(bytes);
            for (edge, (idle, back)) in self.idle[kind].iter().zip(&self.back[kind]).enumerate() {
                let (idle, back) = (idle.get(at), back.get(at));
                least = least.min(idle.unwrap_or(0.0)).min(back.unwrap_or(0.0));
                minute.idle[kind][edge + 1] = idle;
                returned.back[edge] = back.map(|bytes| bytes / lasts_s);
            }
        }
        (least >= 0.0).then_some(minute)
    }
}
