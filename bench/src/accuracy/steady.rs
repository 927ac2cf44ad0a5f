//! The steady state of a run's bottom line against the truth.

use lowtide_model::bottom_line::BottomLine;
use lowtide_model::phase::PhaseKind;
use lowtide_model::stats::mean;
use lowtide_model::units::float;
use serde::Serialize;

use crate::truth::Truth;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SteadyScore {
    pub window_s: Option<u32>,
    /// Readings that do not overlap.
    pub readings: u64,
    /// Mean of the truth over the stretches that lowtide calls steady, bytes.
    pub truth_bytes: Option<f64>,
    /// lowtide's figure, bytes.
    pub used_bytes: Option<u64>,
    /// (used - truth) / truth.
    pub error_percent: Option<f64>,
    /// lowtide's interval, bytes; `None` where it gives none.
    pub interval_bytes: Option<[u64; 2]>,
    pub holds: Option<bool>,
}

/// Compares the steady state of a record that began at `epoch_s`, `CLOCK_MONOTONIC`.
pub fn score(answer: &BottomLine, epoch_s: f64, truth: &Truth) -> SteadyScore {
    let used = &answer.steady.used;
    let Some(window_s) = used.window_s else { return SteadyScore::default() };
    let window = f64::from(window_s);
    let steady = answer.phases.iter().map(|of| of.phase).filter(|phase| phase.kind == PhaseKind::Steady);
    let spans: Vec<(f64, f64)> = steady
        .map(|phase| ((epoch_s + phase.from_s).max(truth.header.start_s) + window, epoch_s + phase.to_s))
        .collect();
    let inside = truth.lines.iter().filter(|line| spans.iter().any(|(from, to)| line.t_s >= *from && line.t_s <= *to));
    let all: Vec<f64> = inside.filter_map(|line| line.working_set.get(&window_s).copied()).collect();
    let truth_bytes = mean(&all).map(|bytes| bytes + truth.header.own_bytes());
    let interval_bytes = used.used_low_bytes.zip(used.used_high_bytes).map(|(low, high)| [low, high]);
    let holds = |(truth, [low, high]): (f64, [u64; 2])| float(low) <= truth && truth <= float(high);
    SteadyScore {
        window_s: used.window_s,
        readings: used.readings,
        truth_bytes,
        used_bytes: used.used_bytes,
        error_percent: truth_bytes.zip(used.used_bytes).map(|(truth, used)| 100.0 * (float(used) / truth - 1.0)),
        interval_bytes,
        holds: truth_bytes.zip(interval_bytes).map(holds),
    }
}

#[cfg(test)]
mod tests {
    use lowtide_model::bottom_line::{PhaseUse, Steady, Use};
    use lowtide_model::phase::Phase;

    use super::*;

    #[test]
    fn only_what_lowtide_calls_steady_is_compared() {
        let mut log = r#"{"header":true,"pid":7,"areas":[],"start_s":1000}"#.to_owned();
        for second in 1..=30 {
            // Populating is in the window for five seconds, and lowtide began 10 s before.
            let used = if second < 5 { 500 } else { 100 };
            log += &format!(
                "\n{{\"t_s\":{},\"resident_bytes\":500,\"ws\":{{\"5\":{used}}},\"cold\":[],\"hot\":null}}",
                1000 + second
            );
        }
        let truth = Truth::parse(&log).unwrap();
        let phase = |kind, from_s, to_s| PhaseUse {
            phase: Phase { kind, from_s, to_s },
            resident_bytes: None,
            first_touched_bytes: None,
            used: Use::default(),
        };
        let used = Use { used_bytes: Some(110), window_s: Some(5), readings: 4, ..Use::default() };
        let phases = vec![phase(PhaseKind::StartUp, 0.0, 8.0), phase(PhaseKind::Steady, 8.0, 40.0)];
        let mut answer = BottomLine { phases, steady: Steady { used, ..Steady::default() }, ..BottomLine::default() };
        let few = score(&answer, 990.0, &truth);
        assert_eq!((few.truth_bytes, few.readings, few.holds), (Some(100.0), 4, None));
        assert!((few.error_percent.unwrap() - 10.0).abs() < 1e-9);
        for (low, holds) in [(101, false), (100, true)] {
            (answer.steady.used.used_low_bytes, answer.steady.used.used_high_bytes) = (Some(low), Some(120));
            assert_eq!(score(&answer, 990.0, &truth).holds, Some(holds));
        }
        assert_eq!(score(&BottomLine::default(), 990.0, &truth), SteadyScore::default());
    }
}
