//! Columns of Parquet files in memory: their types, and their values for some rows.

use std::borrow::Cow;
use std::fmt;

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
pub use parquet::data_type::ByteArray;
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::schema::types::{ColumnDescriptor, Type};

type Result<T> = std::result::Result<T, ParquetError>;

/// A column as its file declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Name.
    pub name: Cow<'static, str>,
    /// What it is, with its unit.
    pub doc: Cow<'static, str>,
    /// Type of its values.
    pub kind: ValueType,
    /// Whether a row may have no value.
    pub nullable: bool,
}

impl ColumnSpec {
    /// Its place in the schema of a file.
    pub(super) fn schema(&self) -> Result<Type> {
        let (physical, logical) = self.kind.stored();
        Type::primitive_type_builder(&self.name, physical)
            .with_logical_type(logical)
            .with_repetition(if self.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED })
            .build()
    }
}

/// The values of one column for some rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values<T> {
    /// Those that are not null.
    values: Vec<T>,
    /// Of a nullable column, for each row: 1 = it has a value, 0 = null (Parquet's definition levels).
    levels: Option<Vec<i16>>,
}

impl<T> Values<T> {
    /// Values of a column without nulls.
    pub fn required(values: impl Iterator<Item = T>) -> Self {
        Self { values: values.collect(), levels: None }
    }

    /// Values of a column that may have nulls.
    pub fn nullable(values: impl Iterator<Item = Option<T>>) -> Self {
        let mut levels = Vec::with_capacity(values.size_hint().0);
        let values = values.inspect(|value| levels.push(i16::from(value.is_some()))).flatten().collect();
        Self { values, levels: Some(levels) }
    }

    /// The value of every row; `None` = null.
    pub fn iter(&self) -> impl Iterator<Item = Option<&T>> {
        let rows = self.levels.as_ref().map_or(self.values.len(), Vec::len);
        let mut values = self.values.iter();
        (0..rows).map(move |row| match &self.levels {
            Some(levels) if levels[row] == 0 => None,
            _ => values.next(),
        })
    }

    /// The same converted, with a value for null.
    pub fn or<V: Copy>(&self, null: V, convert: impl Fn(&T) -> V) -> Vec<V> {
        match &self.levels {
            Some(levels) if levels.len() != self.values.len() => {
                self.iter().map(|value| value.map_or(null, &convert)).collect()
            }
            _ => self.values.iter().map(convert).collect(),
        }
    }
}

/// Values as Parquet stores them to values of `V`.
fn read<D: DataType, V>(
    reader: &mut ColumnReaderImpl<D>,
    (rows, nullable): (usize, bool),
    convert: fn(D::T) -> V,
) -> Result<Values<V>> {
    let (mut values, mut levels) = (Vec::with_capacity(rows), nullable.then(|| Vec::with_capacity(rows)));
    let (read, ..) = reader.read_records(rows, levels.as_mut(), None, &mut values)?;
    if read != rows {
        return Err(ParquetError::General(format!("a column ends {} rows before the others", rows - read)));
    }
    Ok(Values { values: values.into_iter().map(convert).collect(), levels })
}

fn write<D: DataType, V>(
    writer: &mut ColumnWriterImpl<'_, D>,
    values: Values<V>,
    convert: fn(V) -> D::T,
) -> Result<usize> {
    let stored: Vec<D::T> = values.values.into_iter().map(convert).collect();
    writer.write_batch(&stored, values.levels.as_deref(), None)
}

macro_rules! types {
    ($($kind:ident $value:ty: $physical:ident $logical:expr, $reader:ident $from:expr, $writer:ident $to:expr;)*) => {
        /// A type of values of a column.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ValueType {
            $(
                #[doc = concat!("`", stringify!($value), "`.")]
                $kind,
            )*
        }

        impl ValueType {
            /// The type as Parquet has it.
            fn stored(self) -> (Physical, Option<LogicalType>) {
                match self {
                    $(Self::$kind => (Physical::$physical, $logical),)*
                }
            }
        }

        /// The values of one column for some rows, of whatever type.
        #[derive(Debug, Clone, PartialEq)]
        pub enum ColumnValues {
            $(
                #[doc = concat!("Of `", stringify!($value), "`.")]
                $kind(Values<$value>),
            )*
            /// Of a type that is not used here.
            Foreign,
        }

        impl ColumnValues {
            /// Reads the values of the next rows.
            pub(super) fn read(reader: &mut ColumnReader, kind: ValueType, rows: (usize, bool)) -> Result<Self> {
                Ok(match (kind, reader) {
                    $((ValueType::$kind, ColumnReader::$reader(reader)) => Self::$kind(read(reader, rows, $from)?),)*
                    _ => Self::Foreign,
                })
            }

            /// Writes the values to a column of their type.
            pub(super) fn write(self, writer: &mut ColumnWriter<'_>) -> Result<usize> {
                match (self, writer) {
                    $((Self::$kind(values), ColumnWriter::$writer(writer)) => write(writer, values, $to),)*
                    _ => Err(ParquetError::General("values of another type than their column's".to_owned())),
                }
            }
        }
    };
}

types! {
    Boolean bool: BOOLEAN None, BoolColumnReader same, BoolColumnWriter same;
    Int32 i32: INT32 None, Int32ColumnReader same, Int32ColumnWriter same;
    Int64 i64: INT64 None, Int64ColumnReader same, Int64ColumnWriter same;
    UInt32 u32: INT32 Some(LogicalType::integer(32, false)),
        Int32ColumnReader i32::cast_unsigned, Int32ColumnWriter u32::cast_signed;
    UInt64 u64: INT64 Some(LogicalType::integer(64, false)),
        Int64ColumnReader i64::cast_unsigned, Int64ColumnWriter u64::cast_signed;
    Float32 f32: FLOAT None, FloatColumnReader same, FloatColumnWriter same;
    Float64 f64: DOUBLE None, DoubleColumnReader same, DoubleColumnWriter same;
    Text ByteArray: BYTE_ARRAY Some(LogicalType::String), ByteArrayColumnReader same, ByteArrayColumnWriter same;
}

fn same<T>(value: T) -> T {
    value
}

impl ValueType {
    /// The type of a column of any file; `None` if it is none of these: nested, repeated, or a time, a decimal and so on.
    pub(super) fn of(column: &ColumnDescriptor) -> Option<Self> {
        use ConvertedType as As;
        let flat = column.path().parts().len() == 1 && column.max_rep_level() == 0;
        // Not every logical type has a converted type.
        let known = matches!(column.logical_type_ref(), None | Some(LogicalType::Integer(_) | LogicalType::String));
        if !flat || !known {
            return None;
        }
        Some(match (column.physical_type(), column.converted_type()) {
            (Physical::BOOLEAN, As::NONE) => Self::Boolean,
            (Physical::INT32, As::NONE | As::INT_8 | As::INT_16 | As::INT_32) => Self::Int32,
            (Physical::INT64, As::NONE | As::INT_64) => Self::Int64,
            (Physical::INT32, As::UINT_8 | As::UINT_16 | As::UINT_32) => Self::UInt32,
            (Physical::INT64, As::UINT_64) => Self::UInt64,
            (Physical::FLOAT, As::NONE) => Self::Float32,
            (Physical::DOUBLE, As::NONE) => Self::Float64,
            (Physical::BYTE_ARRAY, As::UTF8) => Self::Text,
            _ => return None,
        })
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
