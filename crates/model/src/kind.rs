//! Anonymous and file memory: what a number is of, and the same number of both.

use crate::named::named;
use std::ops::{Add, AddAssign, Index, IndexMut};

use serde::{Deserialize, Serialize};

named! {
    /// What backs memory, as the kernel accounts, ages and evicts it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Kind {
        /// Anonymous memory: heap, stacks, private copies. Evicted to swap.
        Anon = "anon",
        /// File memory: page cache, mapped or not. Evicted by dropping it, or by writing it back.
        File = "file",
    }
}

impl Kind {
    /// Of memory that is anonymous, or else a file's.
    #[must_use]
    pub fn of(anon: bool) -> Self {
        if anon { Self::Anon } else { Self::File }
    }
}

/// A value for anonymous and one for file memory. Serialised as a list of two, anonymous first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "[T; 2]", into = "[T; 2]", bound(serialize = "T: Clone + Serialize"))]
pub struct PerKind<T> {
    /// Of anonymous memory.
    pub anon: T,
    /// Of file memory.
    pub file: T,
}

impl<T> PerKind<T> {
    /// A value for each kind.
    pub fn from_fn(mut value: impl FnMut(Kind) -> T) -> Self {
        Self { anon: value(Kind::Anon), file: value(Kind::File) }
    }

    /// The same value for both.
    pub fn both(value: T) -> Self
    where
        T: Clone,
    {
        Self { anon: value.clone(), file: value }
    }

    /// A function of each value.
    pub fn map<U>(self, mut of: impl FnMut(T) -> U) -> PerKind<U> {
        PerKind { anon: of(self.anon), file: of(self.file) }
    }

    /// The pairs of two.
    pub fn zip<U>(self, other: PerKind<U>) -> PerKind<(T, U)> {
        PerKind { anon: (self.anon, other.anon), file: (self.file, other.file) }
    }

    /// Each kind with its value.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, &T)> {
        Kind::ALL.into_iter().map(|kind| (kind, &self[kind]))
    }

    /// Anonymous and file memory together.
    pub fn total(self) -> T
    where
        T: Add<Output = T>,
    {
        self.anon + self.file
    }
}

impl<T> Index<Kind> for PerKind<T> {
    type Output = T;

    fn index(&self, kind: Kind) -> &T {
        match kind {
            Kind::Anon => &self.anon,
            Kind::File => &self.file,
        }
    }
}

impl<T> IndexMut<Kind> for PerKind<T> {
    fn index_mut(&mut self, kind: Kind) -> &mut T {
        match kind {
            Kind::Anon => &mut self.anon,
            Kind::File => &mut self.file,
        }
    }
}

impl<T: Add<Output = T>> Add for PerKind<T> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other).map(|(one, two)| one + two)
    }
}

impl<T: AddAssign> AddAssign for PerKind<T> {
    fn add_assign(&mut self, other: Self) {
        self.anon += other.anon;
        self.file += other.file;
    }
}

impl<T> From<[T; 2]> for PerKind<T> {
    fn from([anon, file]: [T; 2]) -> Self {
        Self { anon, file }
    }
}

impl<T> From<PerKind<T>> for [T; 2] {
    fn from(of: PerKind<T>) -> Self {
        [of.anon, of.file]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_keep_apart_and_add_up() {
        let mut bytes = PerKind::from_fn(|kind| if kind == Kind::Anon { 3 } else { 4 });
        bytes[Kind::File] += 1;
        assert_eq!(bytes + PerKind::both(1), PerKind { anon: 4, file: 6 });
        assert_eq!(bytes.total(), 8);
        assert_eq!(serde_json::to_string(&bytes).unwrap(), "[3,5]");
        assert_eq!(serde_json::from_str::<PerKind<i32>>("[3,5]").unwrap(), bytes);
    }
}
