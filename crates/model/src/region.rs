//! Regions with access rate and age, and snapshots of them: what every map, recorded or live, is turned into.

use crate::units::float;

/// A range of addresses accessed alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Share of the samples that found an access, 0..=1.
    pub access_rate: f64,
    /// Seconds for which the rate has been like this.
    pub age_s: f64,
}

/// All regions of one target at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Seconds since the start of the record, at the end of the aggregation.
    pub t_s: f64,
    /// The process whose addresses these are; 0 for physical addresses.
    pub pid: u32,
    /// Ascending, not overlapping.
    pub regions: Vec<Region>,
}

/// A stretch of a process' memory that lies in one piece of physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The process.
    pub pid: u32,
    /// First byte, virtual.
    pub virt: u64,
    /// First byte, physical.
    pub phys: u64,
    /// Bytes.
    pub len: u64,
}

/// Physical ranges that cover `extents` with at most `limit` pieces: the smallest gaps are bridged first. Bridging a
/// gap brings foreign pages under watch, so `limit` is the trade of cost against sharpness.
#[must_use]
pub fn coalesce(extents: &[Extent], limit: usize) -> Vec<(u64, u64)> {
    bridge(extents.iter().map(|e| (e.phys, e.phys + e.len)).collect(), limit)
}

/// Ranges that cover these with at most `limit` pieces, ascending: the smallest gaps are bridged first.
#[must_use]
pub fn bridge(mut ranges: Vec<(u64, u64)>, limit: usize) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    let excess = merged.len().saturating_sub(limit.max(1));
    if excess == 0 {
        return merged;
    }
    let mut gaps: Vec<u64> = merged.windows(2).map(|pair| pair[1].0 - pair[0].1).collect();
    gaps.sort_unstable();
    let bridge = gaps[excess - 1];
    let mut left = excess;
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(limit);
    for (start, end) in merged {
        match out.last_mut() {
            Some(last) if left > 0 && start - last.1 <= bridge => {
                last.1 = end;
                left -= 1;
            }
            _ => out.push((start, end)),
        }
    }
    out
}

/// Physical regions as regions of the processes' addresses, one snapshot per process. `extents` sorted by `phys`.
/// Neighbours with the same rate and age are joined.
#[must_use]
pub fn to_virtual(t_s: f64, physical: &[Region], extents: &[Extent]) -> Vec<Snapshot> {
    let mut pieces: Vec<(u32, Region)> = Vec::new();
    for extent in extents {
        let end = extent.phys + extent.len;
        let first = physical.partition_point(|region| region.end <= extent.phys);
        for region in physical[first..].iter().take_while(|region| region.start < end) {
            let (from, to) = (region.start.max(extent.phys), region.end.min(end));
            let start = extent.virt + (from - extent.phys);
            pieces.push((extent.pid, Region { start, end: start + (to - from), ..*region }));
        }
    }
    pieces.sort_unstable_by_key(|(pid, region)| (*pid, region.start));
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for (pid, region) in pieces {
        if snapshots.last().is_none_or(|last| last.pid != pid) {
            snapshots.push(Snapshot { t_s, pid, regions: Vec::new() });
        }
        let Some(snapshot) = snapshots.last_mut() else { continue };
        match snapshot.regions.last_mut() {
            Some(last) if last.end == region.start && alike(last, &region) => last.end = region.end,
            _ => snapshot.regions.push(region),
        }
    }
    snapshots
}

/// Rates that differ by less are as good as the same.
const SAME_RATE: f64 = 0.05;

/// The same picture in at most about `limit` regions: where there are more, neighbours of like rates are joined first,
/// then blocks of the smallest power-of-two size that suffices are averaged, weighted by bytes.
#[must_use]
pub fn coarsen(regions: Vec<Region>, limit: usize) -> Vec<Region> {
    let like = |a: &Region, b: &Region| {
        (a.access_rate - b.access_rate).abs() < SAME_RATE && (a.access_rate > 0.0) == (b.access_rate > 0.0)
    };
    let mut shift = 16;
    let mut coarse = if regions.len() > limit { join_if(&regions, like) } else { regions };
    while coarse.len() > limit && shift < 48 {
        coarse = join_if(&coarse, |last, next| (last.start >> shift) == ((next.end - 1) >> shift));
        shift += 1;
    }
    coarse
}

/// Joins each region to the one before where they touch and `together` says so.
fn join_if(regions: &[Region], together: impl Fn(&Region, &Region) -> bool) -> Vec<Region> {
    let mut out: Vec<Region> = Vec::new();
    for region in regions {
        match out.last_mut() {
            Some(last) if last.end == region.start && together(last, region) => join(last, region),
            _ => out.push(*region),
        }
    }
    out
}

/// Appends `next` to `last`, averaging by bytes.
fn join(last: &mut Region, next: &Region) {
    let (a, b) = (float(last.end - last.start), float(next.end - next.start));
    last.access_rate = (last.access_rate * a + next.access_rate * b) / (a + b);
    last.age_s = (last.age_s * a + next.age_s * b) / (a + b);
    last.end = next.end;
}

/// Rates come from the same counter, so equal counts are equal bits.
fn alike(a: &Region, b: &Region) -> bool {
    a.access_rate.to_bits() == b.access_rate.to_bits() && a.age_s.to_bits() == b.age_s.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extents_strategy() -> impl Strategy<Value = Vec<Extent>> {
        prop::collection::vec((0u64..50, 1u64..20), 1..60).prop_map(|list| {
            let (mut phys, mut virt) = (0, 1 << 30);
            let mut out = Vec::new();
            for (gap, pages) in list {
                phys += gap * 4096;
                out.push(Extent { pid: 1, virt, phys, len: pages * 4096 });
                phys += pages * 4096;
                virt += pages * 4096;
            }
            out
        })
    }

    proptest! {
        #[test]
        fn coalescing_covers_everything_within_the_limit(extents in extents_strategy(), limit in 1usize..40) {
            let ranges = coalesce(&extents, limit);
            prop_assert!(ranges.len() <= limit);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0 || pair[0].1 <= pair[1].0));
            for e in &extents {
                prop_assert!(ranges.iter().any(|(start, end)| *start <= e.phys && e.phys + e.len <= *end));
            }
        }

        #[test]
        fn coarsening_keeps_bytes_and_their_mean_rate(sizes in prop::collection::vec((1u64..40, 0u8..=10), 1..300), limit in 8usize..100) {
            let mut at = 0x7000_0000u64;
            let regions: Vec<Region> = sizes.iter().map(|(pages, rate)| {
                let start = at;
                at += pages * 4096;
                Region { start, end: at, access_rate: f64::from(*rate) / 10.0, age_s: 1.0 }
            }).collect();
            #[expect(clippy::cast_precision_loss)]
            let sum = |list: &[Region]| list.iter().map(|r| r.access_rate * (r.end - r.start) as f64).sum::<f64>();
            let coarse = coarsen(regions.clone(), limit);
            prop_assert!(coarse.len() <= limit.max(1));
            prop_assert!((sum(&coarse) - sum(&regions)).abs() < 1.0);
            prop_assert_eq!(coarse.last().unwrap().end, at);
        }

        #[test]
        fn mapping_back_conserves_bytes(extents in extents_strategy(), limit in 1usize..40) {
            let regions: Vec<Region> = coalesce(&extents, limit).into_iter()
                .map(|(start, end)| Region { start, end, access_rate: 0.5, age_s: 1.0 }).collect();
            let snapshots = to_virtual(3.0, &regions, &extents);
            let bytes: u64 = snapshots.iter().flat_map(|s| &s.regions).map(|r| r.end - r.start).sum();
            prop_assert_eq!(bytes, extents.iter().map(|e| e.len).sum::<u64>());
            // One pid, contiguous addresses, one rate: one region.
            prop_assert_eq!(snapshots[0].regions.len(), 1);
        }
    }
}
