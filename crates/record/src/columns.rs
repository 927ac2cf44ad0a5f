//! Columns: how values of rows are stored, and read back by name, so that newer and older records read alike.

use std::borrow::Cow;

use lowtide_model::PAGE;
use lowtide_model::episode::PageKind;
use lowtide_model::units::{float, signed, single};
use parquet::data_type::ByteArray;

use super::values::{ColumnSpec, ColumnValues, ValueType, Values};

/// One column of a table with rows of type `R`.
pub struct Column<R> {
    pub(super) spec: ColumnSpec,
    /// Records of older versions have no such column; the value is the default one then.
    pub(super) optional: bool,
    pub(super) write: Write<R>,
    pub(super) read: Read<R>,
}

type Write<R> = Box<dyn Fn(&[R]) -> ColumnValues>;
/// Sets the value of every row; false where the column is of another type.
type Read<R> = Box<dyn Fn(&ColumnValues, &mut [R]) -> bool>;

impl<R: 'static> Column<R> {
    /// A column of a value that rows hold, stored as `S` says.
    pub(super) fn new<S: Storage<V>, V: 'static>(
        name: impl Into<Cow<'static, str>>,
        doc: impl Into<Cow<'static, str>>,
        get: impl Fn(&R) -> &V + 'static,
        place: impl Fn(&mut R) -> &mut V + 'static,
    ) -> Self {
        Self {
            spec: ColumnSpec { name: name.into(), doc: doc.into(), kind: S::KIND, nullable: S::NULLABLE },
            optional: false,
            write: Box::new(move |rows| S::values(rows.iter().map(&get))),
            read: Box::new(move |column, rows| S::read(column, |at, value| *place(&mut rows[at]) = value)),
        }
    }

    /// The same where older records lack it.
    pub(super) fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// Sets the values of these rows from what a file has under the column's name.
    pub(super) fn read(&self, column: Option<&ColumnValues>, rows: &mut [R]) -> Result<(), String> {
        let read = column.is_some_and(|column| (self.read)(column, rows));
        if read || self.optional {
            Ok(())
        } else {
            Err(format!("no column {} of type {}", self.spec.name, self.spec.kind))
        }
    }
}

/// `column!(Storage row.place, "name", "what it says")`
macro_rules! column {
    ($storage:ident $row:ident$(.$place:tt)+, $name:expr, $doc:expr) => {
        $crate::columns::Column::new::<$crate::columns::$storage, _>(
            $name,
            $doc,
            |$row: &Self| &$row$(.$place)+,
            |$row: &mut Self| &mut $row$(.$place)+,
        )
    };
}
pub(super) use column;

/// A way in which values of type `V` are stored.
pub(super) trait Storage<V> {
    const KIND: ValueType;
    const NULLABLE: bool;
    fn values<'a>(values: impl Iterator<Item = &'a V>) -> ColumnValues
    where
        V: 'a;
    /// Passes the value of every row; false where the column is of another type.
    fn read(column: &ColumnValues, set: impl FnMut(usize, V)) -> bool;
}

/// As the type itself.
pub(super) struct Plain;
/// A number of bytes or of things, as Int64: beyond that there is no memory to measure.
pub(super) struct Bytes;
/// In single precision: a millionth of a reuse time.
pub(super) struct Single;
/// The number of a memory node, as UInt32.
pub(super) struct Node;
/// The number of a page, as the address of its first byte.
pub(super) struct Address;
/// What backs memory, as its word.
pub(super) struct Backing;

macro_rules! storage {
    ($($storage:ident $value:ty: $kind:ident, $to:expr, $from:expr;)*) => {$(
        impl Storage<$value> for $storage {
            const KIND: ValueType = ValueType::$kind;
            const NULLABLE: bool = false;

            fn values<'a>(values: impl Iterator<Item = &'a $value>) -> ColumnValues {
                ColumnValues::$kind(Values::required(values.map($to)))
            }

            fn read(column: &ColumnValues, mut set: impl FnMut(usize, $value)) -> bool {
                let ColumnValues::$kind(values) = column else { return false };
                values.iter().enumerate().for_each(|(at, value)| set(at, value.map($from).unwrap_or_default()));
                true
            }
        }

        impl Storage<Option<$value>> for $storage {
            const KIND: ValueType = ValueType::$kind;
            const NULLABLE: bool = true;

            fn values<'a>(values: impl Iterator<Item = &'a Option<$value>>) -> ColumnValues {
                ColumnValues::$kind(Values::nullable(values.map(|value| value.as_ref().map($to))))
            }

            fn read(column: &ColumnValues, mut set: impl FnMut(usize, Option<$value>)) -> bool {
                let ColumnValues::$kind(values) = column else { return false };
                values.iter().enumerate().for_each(|(at, value)| set(at, value.map($from)));
                true
            }
        }
    )*};
}

storage! {
    Plain f64: Float64, |value| *value, |value| *value;
    Plain f32: Float32, |value| *value, |value| *value;
    Plain u32: UInt32, |value| *value, |value| *value;
    Plain u64: UInt64, |value| *value, |value| *value;
    Plain i64: Int64, |value| *value, |value| *value;
    Plain bool: Boolean, |value| *value, |value| *value;
    Plain String: Text, |text| ByteArray::from(text.as_str()), |bytes| text(bytes).into_owned();
    Bytes f64: Int64, |bytes| signed(*bytes), |bytes| float(*bytes);
    Bytes u64: Int64, |bytes| i64::try_from(*bytes).unwrap_or(i64::MAX), |bytes| u64::try_from(*bytes).unwrap_or(0);
    Single f64: Float32, |value| single(*value), |value| f64::from(*value);
    Node u64: UInt32, |node| u32::try_from(*node).unwrap_or(u32::MAX), |node| u64::from(*node);
    Address u64: UInt64, |page| page * PAGE, |address| address / PAGE;
    Backing bool: Text, |anon| ByteArray::from(if *anon { "anon" } else { "file" }), |bytes| bytes.data() == b"anon";
    Backing PageKind: Text, |kind| ByteArray::from(kind.name()), |bytes| PageKind::named(&text(bytes)).unwrap_or_default();
}

/// Bytes of a text, at most: a path. A file could give every row the same long one, at no cost to itself.
const LONGEST: usize = 4096;

/// The text of these bytes; what is no UTF-8 is replaced.
fn text(bytes: &ByteArray) -> Cow<'_, str> {
    let bytes = bytes.data();
    String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)])
}
