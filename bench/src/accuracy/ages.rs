//! The estimated idle-age histogram against the true one.

use lowtide_model::stats::quantile;
use lowtide_model::units::float;
use lowtide_record::AgeRow;
use serde::Serialize;

use super::SETTLING_S;
use crate::histogram::{distance, estimated, real};
use crate::truth::Truth;

#[derive(Debug, Default, Serialize)]
pub struct AgeScore {
    pub ticks: usize,
    /// Bins on common edges, median.
    pub bins: Option<f64>,
    /// Share of the bytes in the wrong bin, median.
    pub distance_median_percent: Option<f64>,
    /// 90th percentile of it.
    pub distance_p90_percent: Option<f64>,
}

/// Compares every tick's histogram. `epoch_s`: when the record began, `CLOCK_MONOTONIC`.
pub fn score(rows: &[AgeRow], epoch_s: f64, truth: &Truth) -> AgeScore {
    let (mut bins, mut distances) = (Vec::new(), Vec::new());
    for tick in rows.chunk_by(|a, b| a.t_s.to_bits() == b.t_s.to_bits()) {
        let Some(first) = tick.first() else { continue };
        let t_s = epoch_s + first.t_s;
        if t_s < truth.header.start_s + SETTLING_S {
            continue;
        }
        let idle = estimated(&tick.iter().map(|row| row.bin).collect::<Vec<_>>());
        let Some(apart) = real(truth, t_s).and_then(|real| distance(&idle, &real)) else { continue };
        bins.push(float(idle.len()));
        distances.push(apart);
    }
    AgeScore {
        ticks: distances.len(),
        bins: quantile(&bins, 0.5),
        distance_median_percent: quantile(&distances, 0.5),
        distance_p90_percent: quantile(&distances, 0.9),
    }
}
