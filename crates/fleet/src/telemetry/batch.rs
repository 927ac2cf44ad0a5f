//! Telemetry as it is read: columns of a batch, whoever wrote them, as minutes.

use std::collections::HashMap;
use std::sync::LazyLock;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, PrimitiveArray, RecordBatch};
use arrow_schema::DataType;
use lowtide_model::AGE_EDGES_S;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::{float, signed};
use lowtide_policy::replay::{BURSTS, Minute};

use super::{Column, columns};

/// Why a batch cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// A required column is not there.
    #[error("no column {0}: not telemetry of lowtide's")]
    Lacks(String),
    /// A column cannot be what it should.
    #[error("column {0} cannot be read as {1}")]
    Type(String, String),
}

/// Integers numbers that may be missing.
#[derive(Default)]
struct Integers(Option<Int64Array>);

impl Integers {
    /// Of whatever numbers another writer has put there.
    fn of(array: &ArrayRef) -> Option<Int64Array> {
        Some(match array.data_type() {
            DataType::Int64 => array.as_primitive::<Int64Type>().clone(),
            DataType::Int32 => array.as_primitive::<Int32Type>().unary(i64::from),
            DataType::UInt32 => array.as_primitive::<UInt32Type>().unary(i64::from),
            DataType::UInt64 => {
                array.as_primitive::<UInt64Type>().unary(|value| i64::try_from(value).unwrap_or(i64::MAX))
            }
            DataType::Float64 => array.as_primitive::<Float64Type>().unary(|value: f64| signed(value.trunc())),
            DataType::Float32 => array.as_primitive::<Float32Type>().unary(|value| signed(f64::from(value).trunc())),
            _ => return None,
        })
    }

    fn get(&self, at: usize) -> Option<f64> {
        let array = self.0.as_ref()?;
        array.is_valid(at).then(|| float(array.value(at)))
    }

    fn or_nothing(&self, at: usize) -> f64 {
        self.get(at).unwrap_or(0.0)
    }
}

/// Shares and times that may be missing.
#[derive(Default)]
struct Shares(Option<Float64Array>);

impl Shares {
    fn of(array: &ArrayRef) -> Option<Float64Array> {
        Some(match array.data_type() {
            DataType::Float64 => array.as_primitive::<Float64Type>().clone(),
            DataType::Float32 => array.as_primitive::<Float32Type>().unary(f64::from),
            _ => Integers::of(array)?.unary(float),
        })
    }

    fn get(&self, at: usize) -> Option<f64> {
        let array = self.0.as_ref()?;
        array.is_valid(at).then(|| array.value(at)).filter(|value| value.is_finite())
    }
}

/// Texts, each once, and which of them a row has.
struct Texts {
    keys: PrimitiveArray<Int32Type>,
    values: Vec<String>,
}

impl Texts {
    fn of(array: &ArrayRef) -> Option<Self> {
        if let Some(dictionary) = array.as_dictionary_opt::<Int32Type>() {
            let values = plain(dictionary.values())?;
            let values = values.into_iter().map(Option::unwrap_or_default).map(str::to_owned);
            return Some(Self { keys: dictionary.keys().clone(), values: values.collect() });
        }
        let mut places: HashMap<&str, i32> = HashMap::new();
        let mut values = Vec::new();
        let mut keys = Vec::new();
        for text in plain(array)? {
            let key = text.map(|text| {
                *places.entry(text).or_insert_with(|| {
                    values.push(text.to_owned());
                    // Batches have a few thousand rows.
                    i32::try_from(values.len() - 1).unwrap_or(i32::MAX)
                })
            });
            keys.push(key);
        }
        Some(Self { keys: keys.into_iter().collect(), values })
    }

    /// The place of a row's text; `None` = it has none.
    fn place(&self, at: usize) -> Option<usize> {
        let key = self.keys.is_valid(at).then(|| self.keys.value(at))?;
        usize::try_from(key).ok().filter(|key| *key < self.values.len())
    }
}

/// Texts of an array, whatever its kind of text.
fn plain(array: &ArrayRef) -> Option<Vec<Option<&str>>> {
    Some(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().iter().collect(),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().collect(),
        DataType::Utf8View => array.as_string_view().iter().collect(),
        _ => return None,
    })
}

/// Ages that columns exist for: all edges of a histogram but the first.
const EDGES: [u32; AGE_EDGES_S.len() - 1] = {
    let [_, edges @ ..] = AGE_EDGES_S;
    edges
};

/// Columns of each kind by age.
fn by_age<const AGES: usize>(
    what: &str,
    ages_s: [u32; AGES],
    integers: &impl Fn(&str) -> Result<Integers, Foreign>,
) -> Result<PerKind<[Integers; AGES]>, Foreign> {
    let mut all = PerKind::from_fn(|_| std::array::from_fn(|_| Integers::default()));
    for kind in Kind::ALL {
        let name = kind.name();
        for (column, age_s) in all[kind].iter_mut().zip(ages_s) {
            *column = integers(&format!("{name}_{what}_{age_s}s_bytes"))?;
        }
    }
    Ok(all)
}

/// A batch, to be read row by row.
pub struct Batch {
    len: usize,
    time_s: Integers,
    interval_s: Shares,
    workload: Texts,
    labels: Option<Texts>,
    resident: PerKind<Integers>,
    swapped: Integers,
    floor: Integers,
    pressure: Shares,
    used: PerKind<Integers>,
    refault: PerKind<Integers>,
    burst: PerKind<[Integers; BURSTS.len()]>,
    idle: PerKind<[Integers; AGE_EDGES_S.len() - 1]>,
    back: PerKind<[Integers; AGE_EDGES_S.len() - 1]>,
}

impl Batch {
    /// Columns that are read: those that replays need, labels only where somebody asks for them.
    pub fn needs(name: &str, labels: bool) -> bool {
        (labels || name != "labels") && !matches!(name, "policy" | "stalled" | "stored_bytes")
    }

    /// Finds the columns.
    ///
    /// # Errors
    /// If a required one is missing, or one is of another kind.
    pub fn new(batch: &RecordBatch) -> Result<Self, Foreign> {
        // They are looked up for every batch.
        static KNOWN: LazyLock<Vec<Column>> = LazyLock::new(columns);
        let known = &*KNOWN;
        let find = |name: &str| -> Result<Option<(&ArrayRef, DataType)>, Foreign> {
            let Some(wanted) = known.iter().find(|column| column.name == name) else { return Ok(None) };
            match batch.column_by_name(name) {
                Some(array) => Ok(Some((array, wanted.kind.clone()))),
                None if wanted.required => Err(Foreign::Lacks(name.to_owned())),
                None => Ok(None),
            }
        };
        let wrong = |name: &str, kind: &DataType| Foreign::Type(name.to_owned(), kind.to_string());
        let integers = |name: &str| -> Result<Integers, Foreign> {
            let Some((array, kind)) = find(name)? else { return Ok(Integers(None)) };
            Ok(Integers(Some(Integers::of(array).ok_or_else(|| wrong(name, &kind))?)))
        };
        let share = |name: &str| -> Result<Shares, Foreign> {
            let Some((array, kind)) = find(name)? else { return Ok(Shares(None)) };
            Ok(Shares(Some(Shares::of(array).ok_or_else(|| wrong(name, &kind))?)))
        };
        let each = |what: &str| -> Result<PerKind<Integers>, Foreign> {
            Ok(PerKind { anon: integers(&format!("anon_{what}"))?, file: integers(&format!("file_{what}"))? })
        };
        let (names, kind) = find("workload")?.ok_or_else(|| Foreign::Lacks("workload".to_owned()))?;
        let labels = match find("labels")? {
            Some((labels, kind)) => Some(Texts::of(labels).ok_or_else(|| wrong("labels", &kind))?),
            None => None,
        };
        Ok(Self {
            labels,
            len: batch.num_rows(),
            time_s: integers("time_s")?,
            interval_s: share("interval_s")?,
            workload: Texts::of(names).ok_or_else(|| wrong("workload", &kind))?,
            resident: each("bytes")?,
            swapped: integers("swapped_bytes")?,
            floor: integers("floor_bytes")?,
            pressure: share("pressure_some")?,
            used: each("used_bytes")?,
            refault: each("refault_bytes")?,
            burst: by_age("burst", BURSTS, &integers)?,
            idle: by_age("idle", EDGES, &integers)?,
            back: by_age("back", EDGES, &integers)?,
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
        let labels = self.labels.as_ref()?;
        let known: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&labels.values[labels.place(at)?]).ok()?;
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
            now_s: self.time_s.get(at)?,
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
