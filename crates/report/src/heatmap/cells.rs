//! A heatmap for a terminal: a few rows of addresses, a column for each snapshot.

use lowtide_model::units::float;

use super::layout::{Cover, Layout};

/// A region of a snapshot: first byte, one past the last, and its access rate.
pub type Stripe = (u64, u64, f64);

/// Cells of a heatmap.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeatCells {
    /// Rows of as many cells as there are snapshots, the lowest addresses first: the mean access rate, 0 to 1; `None` where
    /// nothing was mapped.
    pub rows: Vec<Vec<Option<f64>>>,
    /// Bytes that a row stands for, the largest.
    pub row_bytes: u64,
}

/// Divides about so many rows among the addresses of these snapshots: what was never mapped is left out, and what was never
/// accessed has few rows.
#[must_use]
pub fn cells(snapshots: &[Vec<Stripe>], rows: usize) -> HeatCells {
    let (mut cover, mut used) = (Cover::default(), Cover::default());
    for (start, end, rate) in snapshots.iter().flatten() {
        cover.add(*start, *end);
        if *rate > 0.0 {
            used.add(*start, *end);
        }
    }
    let is_used = |start: u64, end: u64| used.ranges().any(|(from, to)| from < end && to > start);
    let layout = Layout::of(&cover, is_used, rows);
    let mut sums = vec![vec![(0.0, 0.0); snapshots.len()]; layout.rows];
    for (column, snapshot) in snapshots.iter().enumerate() {
        for (start, end, rate) in snapshot {
            for (row, bytes) in layout.rows_of(*start, *end) {
                let (bytes, sum) = (float(bytes), &mut sums[row][column]);
                *sum = (sum.0 + bytes * rate, sum.1 + bytes);
            }
        }
    }
    let mean = |(sum, bytes): (f64, f64)| (bytes > 0.0).then(|| sum / bytes);
    let row_bytes = (0..layout.rows).map(|row| layout.addresses(row)).map(|(start, end)| end - start).max();
    let rows = sums.into_iter().map(|row| row.into_iter().map(mean).collect()).collect();
    HeatCells { rows, row_bytes: row_bytes.unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_divided_by_bytes_and_columns_by_snapshots() {
        const MIB: u64 = 1 << 20;
        let hot = |rate| vec![(0, 4 * MIB, rate), (4 * MIB, 8 * MIB, 0.0)];
        let grid = cells(&[hot(1.0), hot(0.5), Vec::new()], 8);
        assert_eq!((grid.rows.len(), grid.row_bytes), (8, MIB));
        assert_eq!(grid.rows[0], [Some(1.0), Some(0.5), None]);
        assert_eq!(grid.rows[7], [Some(0.0), Some(0.0), None]);
        assert_eq!(cells(&[], 8), HeatCells::default());
    }
}
