//! The tables of a record: one file each, and a line in the registry at the end of this file.

use std::path::Path;

use super::columns::Column;
use super::error::Result;
use super::file::ColumnBatch;
use super::finish::merge;
use super::read::Record;
use super::values::{ColumnSpec, ColumnValues};
use super::write::flush;
use super::{ActionRow, CgroupRow, RegionRow};
use lowtide_model::cohort::AgeRow;
use lowtide_model::episode::Episode;
use lowtide_model::numa::NodeRow;
use lowtide_model::usage::Usage;

/// A row of one of the tables of a record.
pub trait Table: Clone + Default + Registered + 'static {
    /// Name of its files.
    const NAME: &'static str;
    /// Columns with few different values: worth a dictionary.
    const REPEATED: &'static [&'static str];
    /// Whether parts are worth compressing; the others' parts hold a handful of rows.
    const COMPRESS_PARTS: bool;

    /// Its columns, in their order.
    fn columns() -> Vec<Column<Self>>;
}

/// The columns of a table as a file declares them.
pub(super) fn specs<T: Table>() -> Vec<ColumnSpec> {
    T::columns().into_iter().map(|column| column.spec).collect()
}

/// Rows, column by column.
pub(super) fn encode<T: Table>(columns: &[Column<T>], rows: &[T]) -> impl Iterator<Item = ColumnValues> {
    columns.iter().map(|column| (column.write)(rows))
}

/// All columns of a table as rows.
pub(super) fn decode<T: Table>(batch: &ColumnBatch) -> std::result::Result<Vec<T>, String> {
    let mut rows = vec![T::default(); batch.rows];
    T::columns().iter().zip(&batch.columns).try_for_each(|(column, values)| column.read(values.as_ref(), &mut rows))?;
    Ok(rows)
}

/// A row whose table is in the registry.
pub trait Registered: Sized {
    /// The rows of the table that wait to be written.
    #[doc(hidden)]
    fn waiting(buffers: &mut Buffers) -> &mut Vec<Self>;
}

macro_rules! registry {
    ($($name:ident $row:ty;)*) => {
        /// Rows of all tables on their way to disk.
        #[derive(Default)]
        pub struct Buffers {
            $($name: Vec<$row>,)*
        }

        $(impl Registered for $row {
            fn waiting(buffers: &mut Buffers) -> &mut Vec<Self> {
                &mut buffers.$name
            }
        })*

        impl Buffers {
            /// Number of rows.
            pub(super) fn len(&self) -> usize {
                0 $(+ self.$name.len())*
            }

            /// Writes the rows of every table as one part each; see [`flush`].
            pub(super) fn flush(&mut self, parts: &Path, number: u64, dropped: &mut u64) -> Result<()> {
                // Every table is tried, so that a full disk costs the large tables and still takes the small one.
                let results = [$(flush(&mut self.$name, &parts.join(part_name::<$row>(number)), dropped)),*];
                results.into_iter().collect()
            }
        }

        /// Streams the parts of every table into its main file.
        pub(super) fn merge_all(record: &Record) -> Result<()> {
            $(merge::<$row>(record)?;)*
            Ok(())
        }
    };
}

fn part_name<T: Table>(number: u64) -> String {
    format!("{}-{number:06}.parquet", T::NAME)
}

// The small ones first.
registry! {
    usage Usage;
    ages AgeRow;
    cgroups CgroupRow;
    nodes NodeRow;
    actions ActionRow;
    regions RegionRow;
    cohort Episode;
}
