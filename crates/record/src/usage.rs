//! `usage.parquet`: one row a tick, one column per row of the model's field table.

use arrow_array::Array;
use arrow_schema::DataType;
use lowtide_model::usage::{FIELDS, Field, Unit, Usage};

use super::columns::{Bytes, Column, Plain, Storage};
use super::table::Table;

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
        name: field.name.into(),
        doc: field.doc.into(),
        kind: if seconds { DataType::Float64 } else { DataType::Int64 },
        nullable: true,
        optional: field.name != "t_s",
        write: Box::new(move |rows| {
            let values: Vec<Option<f64>> = rows.iter().map(field.get).collect();
            if seconds { Plain::array(values.iter()) } else { Bytes::array(values.iter()) }
        }),
        // Records may hold the same field in either type.
        read: Box::new(move |array: &dyn Array, rows| {
            let mut set = |at: usize, value| (field.set)(&mut rows[at], value);
            Plain::read(array, &mut set) || Bytes::read(array, &mut set)
        }),
    }
}
