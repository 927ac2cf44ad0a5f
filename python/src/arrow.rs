//! Columns of Arrow batches as the columns of telemetry.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use lowtide_fleet::telemetry::{Batch, Foreign};
use lowtide_record::values::{ByteArray, ColumnValues, Values};

/// A batch of telemetry.
pub fn batch(batch: &RecordBatch) -> Result<Batch, Foreign> {
    Batch::new(batch.num_rows(), |name| Some(values(batch.column_by_name(name)?.as_ref())))
}

fn values(array: &dyn Array) -> ColumnValues {
    macro_rules! primitive {
        ($kind:ident $of:ty) => {
            ColumnValues::$kind(Values::nullable(array.as_primitive::<$of>().iter()))
        };
    }
    match array.data_type() {
        DataType::Int32 => primitive!(Int32 Int32Type),
        DataType::Int64 => primitive!(Int64 Int64Type),
        DataType::UInt32 => primitive!(UInt32 UInt32Type),
        DataType::UInt64 => primitive!(UInt64 UInt64Type),
        DataType::Float32 => primitive!(Float32 Float32Type),
        DataType::Float64 => primitive!(Float64 Float64Type),
        _ => texts(array).map_or(ColumnValues::Foreign, |texts| {
            ColumnValues::Text(Values::nullable(texts.into_iter().map(|text| text.map(ByteArray::from))))
        }),
    }
}

/// Texts of an array, whatever its kind of text.
fn texts(array: &dyn Array) -> Option<Vec<Option<&str>>> {
    Some(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().iter().collect(),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().collect(),
        DataType::Utf8View => array.as_string_view().iter().collect(),
        _ => {
            let dictionary = array.as_dictionary_opt::<Int32Type>()?;
            let texts = texts(dictionary.values().as_ref())?;
            let text = |key: Option<i32>| *texts.get(usize::try_from(key?).ok()?)?;
            dictionary.keys().iter().map(text).collect()
        }
    })
}
