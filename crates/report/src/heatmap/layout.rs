//! From a sparse address space to rows: what was never mapped is cut out, the rest is divided by size.

use std::collections::BTreeMap;

use lowtide_model::units::count;

/// Ranges of addresses, disjoint and not touching.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Cover {
    ranges: BTreeMap<u64, u64>,
}

impl Cover {
    /// Adds a range, joining what it touches.
    pub(super) fn add(&mut self, mut start: u64, mut end: u64) {
        if end <= start {
            return;
        }
        if let Some((&before, &until)) = self.ranges.range(..=start).next_back()
            && until >= start
        {
            if until >= end {
                return;
            }
            start = before;
        }
        while let Some((&next, &until)) = self.ranges.range(start..=end).next() {
            end = end.max(until);
            self.ranges.remove(&next);
        }
        self.ranges.insert(start, end);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    pub(super) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().map(|(start, end)| (*start, *end))
    }

    /// The ranges with gaps of up to `gap` bytes bridged.
    fn bridged(&self, gap: u64) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        for (start, end) in self.ranges() {
            match out.last_mut() {
                Some(last) if start - last.1 <= gap => last.1 = end,
                _ => out.push((start, end)),
            }
        }
        out
    }
}

/// A contiguous piece of the address space and the rows it is shown in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Section {
    pub start: u64,
    pub end: u64,
    pub first_row: usize,
    pub rows: usize,
}

impl Section {
    /// The addresses of one of its rows, counted from the section's first.
    fn row(&self, row: usize) -> (u64, u64) {
        let at = |row: usize| self.start + share(self.end - self.start, row, self.rows);
        (at(row), at(row + 1))
    }
}

/// `part / of` of `bytes`, rounded down, without overflow.
fn share(bytes: u64, part: usize, of: usize) -> u64 {
    let product = u128::from(bytes) * u128::from(count(part)) / u128::from(count(of.max(1)));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// All sections, ascending by address; row 0 holds the lowest.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Layout {
    pub sections: Vec<Section>,
    pub rows: usize,
}

/// Every section gets so many rows at least, so that a stack is visible beside a heap.
const LEAST_ROWS: usize = 4;

/// A gap larger than this share of all that is mapped is cut out.
const GAP_SHARE: u64 = 48;

/// A section without any access counts as this share of the rest at most: reserved address space is not worth rows.
const IDLE_SHARE: u64 = 6;

impl Layout {
    /// Divides about `rows` rows among what is covered; `used` says whether a range saw any access.
    pub(super) fn of(cover: &Cover, used: impl Fn(u64, u64) -> bool, rows: usize) -> Self {
        let mut pieces = cover.bridged(cover.bytes() / GAP_SHARE);
        // More pieces than can be shown: bridge ever larger gaps.
        let mut gap = cover.bytes() / GAP_SHARE;
        while pieces.len() > (rows / LEAST_ROWS).max(1) {
            gap = gap.saturating_mul(2).max(4096);
            pieces = cover.bridged(gap);
        }
        let active: u64 = pieces.iter().filter(|(start, end)| used(*start, *end)).map(|(start, end)| end - start).sum();
        let limit = if active > 0 { active / IDLE_SHARE } else { u64::MAX };
        let weights: Vec<u64> = pieces
            .iter()
            .map(|&(start, end)| if used(start, end) { end - start } else { (end - start).min(limit) })
            .collect();
        let total: u64 = weights.iter().sum();
        let spare = rows.saturating_sub(LEAST_ROWS * pieces.len());
        let mut first_row = 0;
        let sections = pieces
            .iter()
            .zip(weights)
            .map(|(&(start, end), weight)| {
                let extra = u128::from(weight) * u128::from(count(spare)) / u128::from(total.max(1));
                let rows = LEAST_ROWS + usize::try_from(extra).unwrap_or(0);
                // No row smaller than a page.
                let rows = rows.min(usize::try_from((end - start).div_ceil(4096)).unwrap_or(rows)).max(1);
                let section = Section { start, end, first_row, rows };
                first_row += rows;
                section
            })
            .collect();
        Self { sections, rows: first_row }
    }

    /// The rows a range lies in, with the bytes of it in each.
    pub(super) fn rows_of(&self, start: u64, end: u64) -> impl Iterator<Item = (usize, u64)> {
        let first = self.sections.partition_point(|section| section.end <= start);
        self.sections[first..].iter().take_while(move |section| section.start < end).flat_map(move |section| {
            let bytes = section.end - section.start;
            let row_at = |address: u64| {
                let inside = address.clamp(section.start, section.end) - section.start;
                usize::try_from(u128::from(inside) * u128::from(count(section.rows)) / u128::from(bytes.max(1)))
                    .unwrap_or(0)
            };
            let (from, to) = (row_at(start), row_at(end.saturating_sub(1)).min(section.rows - 1));
            // Rounding may put an edge a byte into the neighbour.
            (from.saturating_sub(1)..=(to + 1).min(section.rows - 1)).filter_map(move |row| {
                let (low, high) = section.row(row);
                let bytes = end.min(high).saturating_sub(start.max(low));
                (bytes > 0).then_some((section.first_row + row, bytes))
            })
        })
    }

    /// The addresses of a row.
    pub(super) fn addresses(&self, row: usize) -> (u64, u64) {
        let at = self.sections.partition_point(|section| section.first_row + section.rows <= row);
        self.sections.get(at).map_or((0, 0), |section| section.row(row - section.first_row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cover_is_the_union(ranges in prop::collection::vec((0u64..200, 1u64..30), 0..30)) {
            let mut cover = Cover::default();
            let mut bits = [false; 256];
            for (start, len) in ranges {
                cover.add(start, start + len);
                for at in start..start + len {
                    bits[usize::try_from(at).unwrap()] = true;
                }
            }
            prop_assert_eq!(cover.bytes(), bits.iter().filter(|bit| **bit).count() as u64);
            let ranges: Vec<_> = cover.ranges().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }

        #[test]
        fn every_covered_byte_lies_in_exactly_one_row(
            ranges in prop::collection::vec((0u64..1 << 20, 1u64..300), 1..40),
            rows in 10usize..400,
        ) {
            let mut cover = Cover::default();
            for (start, len) in &ranges {
                cover.add(start * 4096, (start + len) * 4096);
            }
            let layout = Layout::of(&cover, |start, _| start % 8192 == 0, rows);
            prop_assert!(layout.rows <= rows.max(layout.sections.len() * LEAST_ROWS));
            for (start, end) in cover.ranges() {
                let bytes: u64 = layout.rows_of(start, end).map(|(_, bytes)| bytes).sum();
                prop_assert_eq!(bytes, end - start);
            }
            for row in 0..layout.rows {
                let (low, high) = layout.addresses(row);
                prop_assert!(low < high);
                let inside: Vec<_> = layout.rows_of(low, high).collect();
                prop_assert_eq!(inside, vec![(row, high - low)]);
            }
        }
    }
}
