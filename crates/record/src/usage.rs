//! `usage.parquet`: one row a tick, one column per row of the model's field table.

use lowtide_model::usage::{FIELDS, Field, Unit, Usage};

use super::columns::{Bytes, Column, Plain, Storage};
use super::table::Table;
use super::values::{ColumnSpec, ColumnValues, ValueType};

impl Table for Usage {
    const NAME: &'static str = "usage";
    const REPEATED: &'static [&'static str] = &[];
    const COMPRESS_PARTS: bool = false;

    fn columns() -> Vec<Column<Self>> {
        FIELDS.iter().map(column).collect()
    }
}

fn column(field: &'static Field) -> Column<Usage> {
    let seconds = field.unit == Unit::Seconds;
    Column {
        spec: ColumnSpec {
            name: field.name.into(),
            doc: field.doc.into(),
            kind: if seconds { ValueType::Float64 } else { ValueType::Int64 },
            nullable: true,
        },
        optional: field.name != "t_s",
        write: Box::new(move |rows| {
            let values: Vec<Option<f64>> = rows.iter().map(field.get).collect();
            if seconds { Plain::values(values.iter()) } else { Bytes::values(values.iter()) }
        }),
        // Records may hold the same field in either type.
        read: Box::new(move |column: &ColumnValues, rows| {
            let mut set = |at: usize, value| (field.set)(&mut rows[at], value);
            Plain::read(column, &mut set) || Bytes::read(column, &mut set)
        }),
    }
}
