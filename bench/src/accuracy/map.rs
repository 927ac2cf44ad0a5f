//! The map's regions against the ranges that were really in use.

use lowtide_model::stats::quantile;
use lowtide_model::units::float;
use lowtide_record::{Record, RegionRow};
use serde::Serialize;

use super::MAP_SETTLING_S;
use crate::ranges::{Range, bytes, common, normal};
use crate::truth::Truth;

/// The second definition of a hot region.
const STRICT_RATE: f32 = 0.1;

/// How exact the map is, inside the program's areas; medians over the snapshots.
#[derive(Debug, Serialize)]
pub struct MapScore {
    pub snapshots: usize,
    pub regions: Option<f64>,
    /// A region is hot if any sample found an access.
    pub any: MapFound,
    /// A region is hot if at least a tenth of the samples found one.
    pub tenth: MapFound,
}

#[derive(Debug, Default, Serialize)]
pub struct MapFound {
    /// Share of the truly hot bytes that lie in hot regions.
    pub found_percent: Option<f64>,
    /// Share of the bytes in hot regions that are truly hot.
    pub precise_percent: Option<f64>,
    /// (Bytes in hot regions - truly hot bytes) / truly hot bytes.
    pub working_set_error_percent: Option<f64>,
}

/// Compares every settled snapshot. `None` where there is no map, or no truth.
pub fn score(record: &Record, truth: &Truth) -> Option<MapScore> {
    if truth.header.areas.iter().any(|area| area.backing == "read") {
        return None;
    }
    let areas = normal(truth.header.areas.iter().map(|area| (area.start, area.end)).collect());
    let epoch_s = record.meta().started_monotonic_s;
    let aggregation_s = record.meta().monitor.aggregation_s;
    let (mut any, mut tenth, mut regions) = (Vec::new(), Vec::new(), Vec::new());
    let mut compare = |snapshot: &[RegionRow]| {
        let Some(first) = snapshot.first() else { return };
        let t_s = epoch_s + first.t_s;
        if t_s < truth.header.start_s + MAP_SETTLING_S {
            return;
        }
        let Some(hot) = truth.hot_within(t_s - aggregation_s, t_s) else { return };
        let hot = common(&hot, &areas);
        regions.push(float(snapshot.len()));
        any.push(held(snapshot, &areas, &hot, |rate| rate > 0.0));
        tenth.push(held(snapshot, &areas, &hot, |rate| rate >= STRICT_RATE));
    };
    // A snapshot may begin in one batch and end in the next.
    let mut open: Vec<RegionRow> = Vec::new();
    for row in record.regions().flatten().filter(|row| row.pid == truth.header.pid) {
        if open.first().is_some_and(|first| first.t_s.to_bits() != row.t_s.to_bits()) {
            compare(&open);
            open.clear();
        }
        open.push(row);
    }
    compare(&open);
    let snapshots = regions.len();
    (snapshots > 0).then(|| MapScore {
        snapshots,
        regions: quantile(&regions, 0.5),
        any: medians(&any),
        tenth: medians(&tenth),
    })
}

/// One snapshot: the bytes of the areas in regions that count as hot, against the truth.
fn held(snapshot: &[RegionRow], areas: &[Range], hot: &[Range], is_hot: impl Fn(f32) -> bool) -> MapFound {
    let called =
        normal(snapshot.iter().filter(|row| is_hot(row.access_rate)).map(|row| (row.start, row.end)).collect());
    compare(&common(&called, areas), hot)
}

/// Bytes called hot against bytes that are. Both normal.
fn compare(called: &[Range], hot: &[Range]) -> MapFound {
    let [called_bytes, hot_bytes, both] = [called, hot, &common(called, hot)].map(|ranges| float(bytes(ranges)));
    let percent = |part: f64, total: f64| (total > 0.0).then(|| 100.0 * part / total);
    MapFound {
        found_percent: percent(both, hot_bytes),
        precise_percent: percent(both, called_bytes),
        working_set_error_percent: percent(called_bytes - hot_bytes, hot_bytes),
    }
}

fn medians(list: &[MapFound]) -> MapFound {
    let median = |get: fn(&MapFound) -> Option<f64>| quantile(&list.iter().filter_map(get).collect::<Vec<f64>>(), 0.5);
    MapFound {
        found_percent: median(|found| found.found_percent),
        precise_percent: median(|found| found.precise_percent),
        working_set_error_percent: median(|found| found.working_set_error_percent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(start: u64, end: u64, access_rate: f32) -> RegionRow {
        RegionRow { start, end, access_rate, ..RegionRow::default() }
    }

    #[test]
    fn regions_reach_beyond_areas_and_rates_decide() {
        let snapshot = [row(0, 100, 0.05), row(100, 200, 1.0), row(200, 400, 0.0)];
        let (areas, hot) = ([(50, 300)], [(80, 100), (150, 200), (290, 300)]);
        let any = held(&snapshot, &areas, &hot, |rate| rate > 0.0);
        // Called: 50..200. Hot: 80 bytes, of which 70 are in it.
        assert_eq!(any.found_percent, Some(87.5));
        assert!((any.precise_percent.unwrap() - 100.0 * 70.0 / 150.0).abs() < 1e-9);
        assert_eq!(any.working_set_error_percent, Some(87.5));
        let tenth = held(&snapshot, &areas, &hot, |rate| rate >= STRICT_RATE);
        assert_eq!((tenth.found_percent, tenth.precise_percent), (Some(62.5), Some(50.0)));
    }

    #[test]
    fn nothing_hot_is_no_share() {
        let found = compare(&[(0, 10)], &[]);
        assert_eq!((found.found_percent, found.precise_percent), (None, Some(0.0)));
        assert_eq!(compare(&[], &[(0, 10)]).working_set_error_percent, Some(-100.0));
    }

    fn any_ranges() -> impl Strategy<Value = Vec<Range>> {
        prop::collection::vec((0u64..500, 1u64..40), 1..20)
            .prop_map(|list| normal(list.into_iter().map(|(start, len)| (start, start + len)).collect()))
    }

    proptest! {
        #[test]
        fn calling_more_hot_finds_no_less(called in any_ranges(), more in any_ranges(), hot in any_ranges()) {
            let larger = normal(called.iter().chain(&more).copied().collect());
            let (few, many) = (compare(&called, &hot), compare(&larger, &hot));
            prop_assert!(many.found_percent >= few.found_percent);
            prop_assert!(many.working_set_error_percent >= few.working_set_error_percent);
        }

        #[test]
        fn the_truth_itself_is_perfect(hot in any_ranges()) {
            let found = compare(&hot, &hot);
            prop_assert_eq!((found.found_percent, found.precise_percent), (Some(100.0), Some(100.0)));
            prop_assert_eq!(found.working_set_error_percent, Some(0.0));
        }
    }
}
