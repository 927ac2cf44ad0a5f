//! Columns: how values of rows are stored, and read back by name, so that newer and older records read alike.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, DictionaryArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field};
use lowtide_model::units::{float, signed, single};
use lowtide_model::{PAGE, episode};

/// One column of a table with rows of type `R`.
pub struct Column<R> {
    pub(super) name: Cow<'static, str>,
    pub(super) doc: Cow<'static, str>,
    pub(super) kind: DataType,
    pub(super) nullable: bool,
    /// Records of older versions have no such column; the value is the default one then.
    pub(super) optional: bool,
    pub(super) write: Write<R>,
    pub(super) read: Read<R>,
}

type Write<R> = Box<dyn Fn(&[R]) -> ArrayRef>;
/// Sets the value of every row; false where the column is of another type.
type Read<R> = Box<dyn Fn(&dyn Array, &mut [R]) -> bool>;

impl<R: 'static> Column<R> {
    /// A column of a value that rows hold, stored as `S` says.
    pub(super) fn new<S: Storage<V>, V: 'static>(
        name: impl Into<Cow<'static, str>>,
        doc: impl Into<Cow<'static, str>>,
        get: impl Fn(&R) -> &V + 'static,
        place: impl Fn(&mut R) -> &mut V + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            doc: doc.into(),
            kind: S::kind(),
            nullable: S::NULLABLE,
            optional: false,
            write: Box::new(move |rows| S::array(rows.iter().map(&get))),
            read: Box::new(move |array, rows| S::read(array, |at, value| *place(&mut rows[at]) = value)),
        }
    }

    /// The same where older records lack it.
    pub(super) fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    pub(super) fn field(&self) -> Field {
        let doc = HashMap::from([("doc".to_owned(), self.doc.to_string())]);
        Field::new(self.name.as_ref(), self.kind.clone(), self.nullable).with_metadata(doc)
    }

    pub(super) fn array(&self, rows: &[R]) -> ArrayRef {
        (self.write)(rows)
    }

    /// Sets the values of these rows, one for each of the batch.
    pub(super) fn read(&self, batch: &RecordBatch, rows: &mut [R]) -> Result<(), String> {
        let read = batch.column_by_name(&self.name).is_some_and(|array| (self.read)(array.as_ref(), rows));
        if read || self.optional { Ok(()) } else { Err(format!("no column {} of type {}", self.name, self.kind)) }
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
    const NULLABLE: bool;
    fn kind() -> DataType;
    fn array<'a>(values: impl Iterator<Item = &'a V>) -> ArrayRef
    where
        V: 'a;
    /// Passes the value of every row; false where the array is of another type.
    fn read(array: &dyn Array, set: impl FnMut(usize, V)) -> bool;
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
/// Text of which there are few different ones.
pub(super) struct Dictionary;
/// What backs memory, as its word.
pub(super) struct Backing;

macro_rules! primitive {
    ($($storage:ident $value:ty: $kind:ty, $to:expr, $from:expr;)*) => {$(
        impl Storage<$value> for $storage {
            const NULLABLE: bool = false;

            fn kind() -> DataType {
                <$kind>::DATA_TYPE
            }

            fn array<'a>(values: impl Iterator<Item = &'a $value>) -> ArrayRef {
                Arc::new(values.copied().map($to).collect::<PrimitiveArray<$kind>>())
            }

            fn read(array: &dyn Array, mut set: impl FnMut(usize, $value)) -> bool {
                let array = array.as_primitive_opt::<$kind>();
                array.map(|array| array.values().iter().enumerate().for_each(|(at, value)| set(at, $from(*value)))).is_some()
            }
        }

        impl Storage<Option<$value>> for $storage {
            const NULLABLE: bool = true;

            fn kind() -> DataType {
                <$kind>::DATA_TYPE
            }

            fn array<'a>(values: impl Iterator<Item = &'a Option<$value>>) -> ArrayRef {
                Arc::new(values.map(|value| value.map($to)).collect::<PrimitiveArray<$kind>>())
            }

            fn read(array: &dyn Array, mut set: impl FnMut(usize, Option<$value>)) -> bool {
                let array = array.as_primitive_opt::<$kind>();
                array.map(|array| array.iter().enumerate().for_each(|(at, value)| set(at, value.map($from)))).is_some()
            }
        }
    )*};
}

primitive! {
    Plain f64: Float64Type, std::convert::identity, std::convert::identity;
    Plain f32: Float32Type, std::convert::identity, std::convert::identity;
    Plain u32: UInt32Type, std::convert::identity, std::convert::identity;
    Plain u64: UInt64Type, std::convert::identity, std::convert::identity;
    Plain i64: Int64Type, std::convert::identity, std::convert::identity;
    Bytes f64: Int64Type, signed, float;
    Bytes u64: Int64Type, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX), |bytes| u64::try_from(bytes).unwrap_or(0);
    Single f64: Float32Type, single, f64::from;
    Node u64: UInt32Type, |node| u32::try_from(node).unwrap_or(u32::MAX), u64::from;
    Address u64: UInt64Type, |page| page * PAGE, |address| address / PAGE;
}

impl Storage<bool> for Plain {
    const NULLABLE: bool = false;

    fn kind() -> DataType {
        DataType::Boolean
    }

    fn array<'a>(values: impl Iterator<Item = &'a bool>) -> ArrayRef {
        Arc::new(values.map(|value| Some(*value)).collect::<BooleanArray>())
    }

    fn read(array: &dyn Array, mut set: impl FnMut(usize, bool)) -> bool {
        let array = array.as_boolean_opt();
        array.map(|array| array.values().iter().enumerate().for_each(|(at, value)| set(at, value))).is_some()
    }
}

macro_rules! text {
    ($($storage:ident $value:ty: $kind:expr, $array:ty, $to:expr, $from:expr;)*) => {$(
        impl Storage<$value> for $storage {
            const NULLABLE: bool = false;

            fn kind() -> DataType {
                $kind
            }

            fn array<'a>(values: impl Iterator<Item = &'a $value>) -> ArrayRef {
                let to: fn(&$value) -> &str = $to;
                Arc::new(values.map(|value| Some(to(value))).collect::<$array>())
            }

            fn read(array: &dyn Array, mut set: impl FnMut(usize, $value)) -> bool {
                texts(array, |at, text| set(at, $from(text)))
            }
        }
    )*};
}

text! {
    Plain String: DataType::Utf8, StringArray, |text| text, str::to_owned;
    Dictionary String: DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        DictionaryArray<Int32Type>, |text| text, str::to_owned;
    Backing bool: DataType::Utf8, StringArray, |anon| if *anon { "anon" } else { "file" }, |text| text == "anon";
    Backing episode::PageKind: DataType::Utf8, StringArray, |kind| kind.name(),
        |text| episode::PageKind::named(text).unwrap_or(episode::PageKind::Anon);
}

/// Passes the text of every row, plain or from a dictionary; empty where it is null.
fn texts(array: &dyn Array, mut set: impl FnMut(usize, &str)) -> bool {
    if let Some(array) = array.as_string_opt::<i32>() {
        array.iter().enumerate().for_each(|(at, text)| set(at, text.unwrap_or_default()));
        return true;
    }
    let dictionary = array.as_dictionary_opt::<Int32Type>();
    let Some(texts) = dictionary.and_then(|array| array.downcast_dict::<StringArray>()) else { return false };
    texts.into_iter().enumerate().for_each(|(at, text)| set(at, text.unwrap_or_default()));
    true
}
