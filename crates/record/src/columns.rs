//! Typed access to the columns of a batch that was read: by name, so that newer and older records read alike.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, BooleanArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::DataType;

/// A column that is not there or is of another type.
#[derive(Debug, thiserror::Error)]
#[error("no column {name} of type {kind}")]
pub struct Missing {
    name: String,
    kind: &'static str,
}

/// The columns of one batch.
#[derive(Debug)]
pub struct Columns<'a>(pub(super) &'a RecordBatch);

/// A text column, plain or as a dictionary.
pub(super) enum Text<'a> {
    Plain(&'a StringArray),
    Dictionary(&'a PrimitiveArray<Int32Type>, &'a StringArray),
}

impl Text<'_> {
    /// The text of a row; empty where it is null.
    pub(super) fn get(&self, row: usize) -> &str {
        match self {
            Self::Plain(array) if array.is_valid(row) => array.value(row),
            Self::Dictionary(keys, values) if keys.is_valid(row) => usize::try_from(keys.value(row))
                .ok()
                .filter(|key| *key < values.len())
                .map_or("", |key| values.value(key)),
            _ => "",
        }
    }
}

macro_rules! typed {
    ($($method:ident $kind:ty;)*) => {$(
        pub(super) fn $method(&self, name: &str) -> Result<&PrimitiveArray<$kind>, Missing> {
            self.0
                .column_by_name(name)
                .and_then(|array| array.as_primitive_opt::<$kind>())
                .ok_or_else(|| Missing { name: name.to_owned(), kind: stringify!($kind) })
        }
    )*};
}

impl Columns<'_> {
    typed! { f64 Float64Type; f32 Float32Type; i64 Int64Type; u32 UInt32Type; u64 UInt64Type; }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.0.num_rows()
    }

    pub(super) fn bool(&self, name: &str) -> Result<&BooleanArray, Missing> {
        let array = self.0.column_by_name(name).and_then(|array| array.as_boolean_opt());
        array.ok_or_else(|| Missing { name: name.to_owned(), kind: "Boolean" })
    }

    pub(super) fn text(&self, name: &str) -> Result<Text<'_>, Missing> {
        let array = self.0.column_by_name(name);
        let text = array.and_then(|array| match array.data_type() {
            DataType::Utf8 => array.as_string_opt::<i32>().map(Text::Plain),
            DataType::Dictionary(_, _) => {
                let dictionary = array.as_dictionary_opt::<Int32Type>()?;
                Some(Text::Dictionary(dictionary.keys(), dictionary.values().as_string_opt::<i32>()?))
            }
            _ => None,
        });
        text.ok_or_else(|| Missing { name: name.to_owned(), kind: "Utf8" })
    }
}

/// Bytes as the Int64 of a column. Beyond i64 there is no memory to measure.
pub(super) fn whole(value: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "saturates, and sizes stay far below 2^63")]
    let whole = value.round() as i64;
    whole
}

/// An Int64 as a figure.
pub(super) fn figure(value: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53; beyond it a byte does not matter")]
    let figure = value as f64;
    figure
}
