//! Parquet files: how they are encoded, written completely or not at all, and read back without trusting them.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::reader::ChunkReader;
use parquet::schema::types::ColumnPath;

use super::atomic::{self, Care};
use super::error::{Result, StoreError};
use super::table::{Table, decode, encode, schema};

/// Rows held at once while reading or rewriting.
const BATCH_ROWS: usize = 8192;

/// Rows of a row group of a main file: what is buffered, column by column, while finishing.
const GROUP_ROWS: usize = 65_536;

/// Runs a step of the Parquet reader. It is not written for hostile bytes, and a damaged file must cost its own rows and
/// nothing else.
///
/// # Errors
/// The step's own, or that it panicked.
pub fn survive<R>(step: impl FnOnce() -> std::result::Result<R, String>) -> std::result::Result<R, String> {
    catch_unwind(AssertUnwindSafe(step))
        .unwrap_or_else(|_| Err("damaged in a way the reader does not survive".to_owned()))
}

/// zstd levels: the recorder pays for one, the end of the run for the other.
const PART_LEVEL: i32 = 1;
const MAIN_LEVEL: i32 = 9;

fn zstd(level: i32) -> Compression {
    Compression::ZSTD(ZstdLevel::try_new(level).unwrap_or_default())
}

fn properties<T: Table>(compression: Compression, dictionaries: bool) -> WriterPropertiesBuilder {
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(false)
        .set_offset_index_disabled(true);
    let repeated = if dictionaries { T::REPEATED } else { &[] };
    repeated
        .iter()
        .fold(properties, |properties, name| properties.set_column_dictionary_enabled(ColumnPath::from(*name), true))
}

/// Parts are small and read once or twice: no statistics, no indexes, no embedded Arrow schema.
fn part_options<T: Table>() -> ArrowWriterOptions {
    let compression = if T::COMPRESS_PARTS { zstd(PART_LEVEL) } else { Compression::UNCOMPRESSED };
    let properties =
        properties::<T>(compression, T::COMPRESS_PARTS).set_statistics_enabled(EnabledStatistics::None).build();
    ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true)
}

fn main_options<T: Table>() -> ArrowWriterOptions {
    let properties = properties::<T>(zstd(MAIN_LEVEL), true)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_created_by(format!("lowtide {}", env!("CARGO_PKG_VERSION")));
    ArrowWriterOptions::new().with_properties(properties.build())
}

/// Rows as a complete Parquet file in memory.
pub(super) fn encode_part<T: Table>(rows: &[T]) -> std::result::Result<Vec<u8>, ParquetError> {
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), schema::<T>(), part_options::<T>())?;
    writer.write(&encode(rows)?)?;
    writer.into_inner()
}

/// Streams batches of rows into a main file. Nothing is visible under its name until all are written.
pub(super) fn write_main<T: Table>(path: &Path, batches: impl FnOnce(&mut MainFile<'_>) -> Result<()>) -> Result<()> {
    atomic::write_by(path, Care { sync: true, ..Care::default() }, |file| {
        let writer = ArrowWriter::try_new_with_options(file, schema::<T>(), main_options::<T>());
        let mut main = MainFile { path, writer: writer.map_err(|error| StoreError::parquet(path, error))? };
        batches(&mut main)?;
        Ok((main.writer.into_inner().map_err(|error| StoreError::parquet(path, error))?, ()))
    })
    .map_err(|error: StoreError| error.on(path))
}

/// A main file being written.
pub(super) struct MainFile<'a> {
    path: &'a Path,
    writer: ArrowWriter<File>,
}

impl MainFile<'_> {
    pub(super) fn write<T: Table>(&mut self, rows: &[T]) -> Result<()> {
        let batch = encode(rows).map_err(|error| StoreError::malformed(self.path, error))?;
        self.writer.write(&batch).map_err(|error| StoreError::parquet(self.path, error))
    }
}

/// Writes a small file.
pub(super) fn replace(path: &Path, content: &[u8], sync: bool) -> Result<()> {
    atomic::write(path, Care { sync, ..Care::default() }, content).map_err(|error| StoreError::write(path, error))
}

/// Rows of one file, batch by batch. Ends at the first thing that is wrong, and says so.
pub(super) struct Reader {
    batches: Option<ParquetRecordBatchReader>,
}

impl Reader {
    pub(super) fn open<R: ChunkReader + 'static>(source: R) -> std::result::Result<Self, String> {
        survive(|| {
            let builder = ParquetRecordBatchReaderBuilder::try_new(source).map_err(|error| error.to_string())?;
            let batches = builder.with_batch_size(BATCH_ROWS).build().map_err(|error| error.to_string())?;
            Ok(Self { batches: Some(batches) })
        })
    }

    pub(super) fn next<T: Table>(&mut self) -> Option<std::result::Result<Vec<T>, String>> {
        let batches = self.batches.as_mut()?;
        let step = survive(|| match batches.next() {
            None => Ok(None),
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(batch)) => decode(&batch).map(Some),
        });
        if !matches!(step, Ok(Some(_))) {
            self.batches = None;
        }
        step.transpose()
    }
}
