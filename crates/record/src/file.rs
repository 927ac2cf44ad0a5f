//! Parquet files: how they are encoded, written completely or not at all, and read back without trusting them.

use std::fs::File;
use std::io::{Read, Write};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use lowtide_model::units::count;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};

use super::atomic::{self, Care};
use super::error::{Result, StoreError};
use super::table::{Table, decode, encode, specs};
use super::values::{ColumnSpec, ColumnValues, ValueType};

/// Rows held at once while reading or rewriting.
const BATCH_ROWS: usize = 8192;

/// Memory for the rows of a row group of a main file, which are held while a record is finished, and most of these rows.
const GROUP_BYTES: usize = 2 << 20;
const GROUP_ROWS: usize = 16_384;

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

/// Parts are small and read once or twice: no statistics, no indexes, no docs.
fn part_properties<T: Table>() -> WriterProperties {
    let compression = if T::COMPRESS_PARTS { zstd(PART_LEVEL) } else { Compression::UNCOMPRESSED };
    properties::<T>(compression, T::COMPRESS_PARTS).set_statistics_enabled(EnabledStatistics::None).build()
}

fn main_properties<T: Table>() -> WriterProperties {
    properties::<T>(zstd(MAIN_LEVEL), true)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(docs(&specs::<T>())))
        .set_created_by(format!("lowtide {}", env!("CARGO_PKG_VERSION")))
        .build()
}

/// What each column is, as `doc.COLUMN` of the metadata of a file.
#[must_use]
pub fn docs(columns: &[ColumnSpec]) -> Vec<KeyValue> {
    columns.iter().map(|column| KeyValue::new(format!("doc.{}", column.name), column.doc.to_string())).collect()
}

/// A Parquet file being written, to whatever takes bytes.
pub type ParquetWriter<'a> = SerializedFileWriter<&'a mut (dyn Write + Send)>;

/// Begins a Parquet file.
///
/// # Errors
/// If it cannot be written.
pub fn create<'a>(
    sink: &'a mut (dyn Write + Send),
    columns: &[ColumnSpec],
    properties: WriterProperties,
) -> std::result::Result<ParquetWriter<'a>, ParquetError> {
    let fields = columns.iter().map(|column| column.schema().map(Arc::new)).collect::<std::result::Result<_, _>>()?;
    let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
    SerializedFileWriter::new(sink, Arc::new(schema), Arc::new(properties))
}

/// Writes rows as a row group, one column after another.
///
/// # Errors
/// If they cannot be written, or the columns are not those of the file.
pub fn write_group(
    writer: &mut ParquetWriter<'_>,
    columns: impl Iterator<Item = ColumnValues>,
) -> std::result::Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for values in columns {
        let mut column =
            group.next_column()?.ok_or_else(|| ParquetError::General("more columns than declared".to_owned()))?;
        values.write(column.untyped())?;
        column.close()?;
    }
    group.close().map(drop)
}

/// Rows as a complete Parquet file in memory.
pub(super) fn encode_part<T: Table>(rows: &[T]) -> std::result::Result<Vec<u8>, ParquetError> {
    let mut bytes = Vec::new();
    let mut writer = create(&mut bytes, &specs::<T>(), part_properties::<T>())?;
    write_group(&mut writer, encode(&T::columns(), rows))?;
    writer.close()?;
    Ok(bytes)
}

/// Streams rows into a main file. Nothing is visible under its name until all are written.
pub(super) fn write_main<T: Table>(path: &Path, rows: impl FnOnce(&mut MainFile<'_, T>) -> Result<()>) -> Result<()> {
    atomic::write_by(path, Care { sync: true, ..Care::default() }, |mut file| {
        let writer = create(&mut file, &specs::<T>(), main_properties::<T>());
        let writer = writer.map_err(|error| StoreError::parquet(path, error))?;
        let mut main = MainFile { path, writer, waiting: Vec::new() };
        rows(&mut main)?;
        main.close()?;
        Ok((file, ()))
    })
    .map_err(|error: StoreError| error.on(path))
}

/// A main file being written.
pub(super) struct MainFile<'a, T> {
    path: &'a Path,
    writer: ParquetWriter<'a>,
    /// Rows of the next row group.
    waiting: Vec<T>,
}

impl<T: Table> MainFile<'_, T> {
    const GROUP_ROWS: usize = {
        let rows = GROUP_BYTES / size_of::<T>();
        if rows < GROUP_ROWS { rows } else { GROUP_ROWS }
    };

    pub(super) fn write(&mut self, rows: Vec<T>) -> Result<()> {
        self.waiting.extend(rows);
        self.write_groups(Self::GROUP_ROWS)
    }

    fn close(mut self) -> Result<()> {
        self.write_groups(1)?;
        self.writer.close().map(drop).map_err(|error| StoreError::parquet(self.path, error))
    }

    /// Writes row groups as long as this many rows are waiting.
    fn write_groups(&mut self, least: usize) -> Result<()> {
        while self.waiting.len() >= least {
            let rows = self.waiting.len().min(Self::GROUP_ROWS);
            let written = write_group(&mut self.writer, encode(&T::columns(), &self.waiting[..rows]));
            written.map_err(|error| StoreError::parquet(self.path, error))?;
            self.waiting.drain(..rows);
        }
        Ok(())
    }
}

/// Writes a small file.
pub(super) fn replace(path: &Path, content: &[u8], sync: bool) -> Result<()> {
    atomic::write(path, Care { sync, ..Care::default() }, content).map_err(|error| StoreError::write(path, error))
}

/// The next rows of a file, column by column.
#[derive(Debug)]
pub struct ColumnBatch {
    /// Number of rows.
    pub rows: usize,
    /// The columns asked for, in the order of their names; `None` = the file has no such column.
    pub columns: Vec<Option<ColumnValues>>,
}

/// A file, or its bytes: one type, so that the binary has one reader of columns.
pub enum ParquetSource {
    /// Read in place.
    File(File),
    /// Read already.
    Bytes(Bytes),
}

impl From<File> for ParquetSource {
    fn from(file: File) -> Self {
        Self::File(file)
    }
}

impl From<Bytes> for ParquetSource {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl Length for ParquetSource {
    fn len(&self) -> u64 {
        match self {
            Self::File(file) => Length::len(file),
            Self::Bytes(bytes) => Length::len(bytes),
        }
    }
}

impl ChunkReader for ParquetSource {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> std::result::Result<Self::T, ParquetError> {
        Ok(match self {
            Self::File(file) => Box::new(file.get_read(start)?),
            Self::Bytes(bytes) => Box::new(bytes.get_read(start)?),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> std::result::Result<Bytes, ParquetError> {
        match self {
            // Memory for them is taken before they are read.
            Self::File(file) if count(length) <= Length::len(file) => file.get_bytes(start, length),
            Self::File(_) => Err(ParquetError::EOF(format!("{length} bytes are more than the file has"))),
            Self::Bytes(bytes) => bytes.get_bytes(start, length),
        }
    }
}

/// A column that a file has.
#[derive(Clone, Copy)]
struct Found {
    at: usize,
    kind: Option<ValueType>,
    nullable: bool,
}

/// Columns of a Parquet file, some rows at a time.
pub struct ColumnFile {
    source: Arc<ParquetSource>,
    metadata: ParquetMetaData,
    batch_rows: usize,
    /// The columns asked for.
    found: Vec<Option<Found>>,
    /// The next row group, the rows left of the present one, and its columns.
    group: usize,
    left: usize,
    readers: Vec<Option<ColumnReader>>,
}

impl ColumnFile {
    /// Opens a file to read these columns in batches of so many rows.
    ///
    /// # Errors
    /// If it is no Parquet file, or damaged.
    pub fn open<N: AsRef<str>>(
        source: impl Into<ParquetSource>,
        names: impl IntoIterator<Item = N>,
        batch_rows: usize,
    ) -> std::result::Result<Self, String> {
        let source = Arc::new(source.into());
        survive(|| {
            let metadata =
                ParquetMetaDataReader::new().parse_and_finish(&*source).map_err(|error| error.to_string())?;
            let schema = metadata.file_metadata().schema_descr();
            let find = |name: N| {
                let at = schema.columns().iter().position(|column| column.path().parts() == [name.as_ref()])?;
                let column = schema.column(at);
                Some(Found { at, kind: ValueType::of(&column), nullable: column.max_def_level() > 0 })
            };
            let found = names.into_iter().map(find).collect();
            Ok(Self { source, metadata, batch_rows, found, group: 0, left: 0, readers: Vec::new() })
        })
    }

    /// A value of the file's metadata.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<&str> {
        let pairs = self.metadata.file_metadata().key_value_metadata()?;
        pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
    }

    /// The next rows; `None` = there are no more.
    ///
    /// # Errors
    /// If the file is damaged. It should not be read further then.
    pub fn next_batch(&mut self) -> std::result::Result<Option<ColumnBatch>, String> {
        survive(|| self.step().map_err(|error| error.to_string()))
    }

    fn step(&mut self) -> std::result::Result<Option<ColumnBatch>, ParquetError> {
        while self.left == 0 {
            let Some(group) = self.metadata.row_groups().get(self.group) else { return Ok(None) };
            self.left = usize::try_from(group.num_rows())?;
            let open = |column: &Option<Found>| column.map(|column| self.reader(group, column.at)).transpose();
            self.readers = self.found.iter().map(open).collect::<std::result::Result<_, _>>()?;
            self.group += 1;
        }
        let rows = self.left.min(self.batch_rows);
        self.left -= rows;
        let read = |(column, reader): (&Option<Found>, &mut Option<ColumnReader>)| match (column, reader) {
            (Some(Found { kind: Some(kind), nullable, .. }), Some(reader)) => {
                ColumnValues::read(reader, *kind, (rows, *nullable)).map(Some)
            }
            (Some(_), _) => Ok(Some(ColumnValues::Foreign)),
            (None, _) => Ok(None),
        };
        let columns = self.found.iter().zip(&mut self.readers).map(read).collect::<std::result::Result<_, _>>()?;
        Ok(Some(ColumnBatch { rows, columns }))
    }

    /// Reader of one column of a row group.
    fn reader(&self, group: &RowGroupMetaData, at: usize) -> std::result::Result<ColumnReader, ParquetError> {
        let rows = usize::try_from(group.num_rows())?;
        let pages = SerializedPageReader::new(self.source.clone(), group.column(at), rows, None)?;
        Ok(get_column_reader(group.schema_descr().column(at), Box::new(pages)))
    }
}

/// Rows of one file, batch by batch. Ends at the first thing that is wrong, and says so.
pub(super) struct Reader<T> {
    file: Option<ColumnFile>,
    rows: PhantomData<T>,
}

impl<T: Table> Reader<T> {
    pub(super) fn open(source: impl Into<ParquetSource>) -> std::result::Result<Self, String> {
        let file = ColumnFile::open(source, specs::<T>().iter().map(|column| &column.name), BATCH_ROWS)?;
        Ok(Self { file: Some(file), rows: PhantomData })
    }
}

impl<T: Table> Iterator for Reader<T> {
    type Item = std::result::Result<Vec<T>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.file.as_mut()?.next_batch();
        let rows = batch.and_then(|batch| batch.map(|batch| decode(&batch)).transpose());
        if !matches!(rows, Ok(Some(_))) {
            self.file = None;
        }
        rows.transpose()
    }
}
