//! What a table is: its name, its columns, and how rows become columns and come back.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::columns::{Columns, Missing};

/// One table of a record.
pub trait Table {
    /// Name of its files.
    const NAME: &'static str;
    /// Columns with few different values: worth a dictionary.
    const REPEATED: &'static [&'static str];
    /// Rows worth compressing part by part; the others' parts hold a handful of rows.
    const COMPRESS_PARTS: bool;
    /// One row.
    type Row;

    /// Column names, types and documentation.
    fn fields() -> Vec<Field>;
    /// Rows as columns, in the order of [`Table::fields`].
    fn columns(rows: &[Self::Row]) -> Vec<ArrayRef>;
    /// Columns as rows.
    ///
    /// # Errors
    /// If a column is not there or is of another type.
    fn rows(columns: &Columns) -> Result<Vec<Self::Row>, Missing>;
}

/// The schema of a table.
pub(super) fn schema<T: Table>() -> Arc<Schema> {
    Arc::new(Schema::new(T::fields()))
}

/// Rows as a batch.
pub(super) fn batch<T: Table>(rows: &[T::Row]) -> Result<RecordBatch, arrow_schema::ArrowError> {
    RecordBatch::try_new(schema::<T>(), T::columns(rows))
}

/// A documented column.
pub(super) fn column(name: &str, kind: DataType, doc: &str) -> Field {
    let doc = HashMap::from([("doc".to_owned(), doc.to_owned())]);
    Field::new(name, kind, false).with_metadata(doc)
}

/// A documented column that may be null.
pub(super) fn nullable(name: &str, kind: DataType, doc: &str) -> Field {
    column(name, kind, doc).with_nullable(true)
}
