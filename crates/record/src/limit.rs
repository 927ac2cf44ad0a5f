//! How much memory what is read may take. Files come from elsewhere, and a small one can unpack to more than any machine has.

use std::sync::atomic::{AtomicU64, Ordering};

use lowtide_model::units::{Size, count};

/// Bytes by default: 25 days of a row a second.
pub const USUAL: u64 = 1 << 30;

static MOST: AtomicU64 = AtomicU64::new(USUAL);

/// Sets how many bytes the rows of a table, or of a recording of another tool, may take in this process.
pub fn set(bytes: u64) {
    MOST.store(bytes, Ordering::Relaxed);
}

/// Why so many rows of type `T` are too many, if they are.
pub(super) fn exceeded<T>(rows: usize) -> Option<String> {
    let most = MOST.load(Ordering::Relaxed);
    let bytes = count(rows).saturating_mul(count(size_of::<T>()));
    (bytes > most).then(|| format!("its rows take more than {} of memory; --max-input SIZE reads more", Size(most)))
}
