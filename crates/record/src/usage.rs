//! `usage.parquet`: one row a tick, one column per row of the model's field table.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, Int64Array};
use arrow_schema::{DataType, Field};
use lowtide_model::usage::{FIELDS, Unit, Usage};

use super::columns::{Columns, Missing, figure, whole};
use super::table::{Table, nullable};

/// The table.
#[derive(Debug)]
pub struct UsageTable;

impl Table for UsageTable {
    const NAME: &'static str = "usage";
    const REPEATED: &'static [&'static str] = &[];
    const COMPRESS_PARTS: bool = false;
    type Row = Usage;

    fn fields() -> Vec<Field> {
        let kind = |unit| if unit == Unit::Seconds { DataType::Float64 } else { DataType::Int64 };
        FIELDS.iter().map(|field| nullable(field.name, kind(field.unit), field.doc)).collect()
    }

    fn columns(rows: &[Usage]) -> Vec<ArrayRef> {
        let each = FIELDS.iter().map(|field| {
            let values = rows.iter().map(field.get);
            match field.unit {
                Unit::Seconds => Arc::new(values.collect::<Float64Array>()) as ArrayRef,
                _ => Arc::new(values.map(|value| value.map(whole)).collect::<Int64Array>()),
            }
        });
        each.collect()
    }

    fn rows(columns: &Columns) -> Result<Vec<Usage>, Missing> {
        columns.f64("t_s")?;
        let mut rows = vec![Usage::default(); columns.len()];
        for field in FIELDS {
            let (seconds, counts) = (columns.f64(field.name), columns.i64(field.name));
            for (at, row) in rows.iter_mut().enumerate() {
                let value = match (&seconds, &counts) {
                    (Ok(array), _) if array.is_valid(at) => Some(array.value(at)),
                    (_, Ok(array)) if array.is_valid(at) => Some(figure(array.value(at))),
                    _ => None,
                };
                (field.set)(row, value);
            }
        }
        Ok(rows)
    }
}
