//! Histograms of idle ages from snapshots of regions, for records that have nothing finer.

use crate::AGE_EDGES_S;
use crate::cohort::{AgeBin, AgeRow, Estimate};
use crate::region::Region;
use crate::units::float;

/// The histogram of one snapshot. A region that was sampled in use is in use entirely, and one that was not has been idle for
/// as long as it has been like this; `true` beside a region is a file's. Where memory is only reserved it counts as well, as
/// regions do not show it.
#[must_use]
pub fn histogram(t_s: f64, regions: impl Iterator<Item = (Region, bool)>) -> Vec<AgeRow> {
    let mut bytes = [[0.0; AGE_EDGES_S.len()]; 2];
    for (region, file) in regions {
        let idle_s = if region.access_rate > 0.0 { 0.0 } else { region.age_s };
        let bin = AGE_EDGES_S.iter().rposition(|edge| f64::from(*edge) <= idle_s).unwrap_or(0);
        bytes[usize::from(file)][bin] += float(region.end.saturating_sub(region.start));
    }
    let row = |side: usize, bin: usize| AgeRow {
        t_s,
        bin: AgeBin {
            anon: side == 0,
            min_s: f64::from(AGE_EDGES_S[bin]),
            max_s: AGE_EDGES_S.get(bin + 1).map(|edge| f64::from(*edge)),
            size: Estimate { bytes: bytes[side][bin], ci95: 0.0 },
            first_touched: None,
        },
    };
    (0..2)
        .flat_map(|side| (0..AGE_EDGES_S.len()).map(move |bin| (side, bin)))
        .map(|(side, bin)| row(side, bin))
        .collect()
}
