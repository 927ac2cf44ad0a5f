//! The log of a pattern program: what it really touched, at any moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use lowtide_model::units::float;
use serde::Deserialize;

use crate::ranges::{Range, bytes, normal};

/// Lines are at most a second apart. Nothing is interpolated over a longer gap, in which the program was held up.
const GAP_S: f64 = 2.5;
/// In a gap, a line is still valid for a moment so near to it.
const NEAR_S: f64 = 0.5;

/// The first line: the program and its memory.
#[derive(Debug, Clone, Deserialize)]
pub struct Header {
    pub pid: u32,
    pub areas: Vec<LoggedArea>,
    /// Its own tables, from which every line is made.
    #[serde(default)]
    own: Vec<Range>,
    /// Start of the first phase, after populating. `CLOCK_MONOTONIC`, seconds.
    pub start_s: f64,
}

impl Header {
    /// Bytes of the program's own tables, which it reads completely for every line.
    pub fn own_bytes(&self) -> f64 {
        float(bytes(&normal(self.own.clone())))
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct LoggedArea {
    /// First byte; for `read` areas offsets in the file.
    pub start: u64,
    pub end: u64,
    /// `anon`, `huge`, `file` or `read`.
    pub backing: String,
}

#[derive(Debug, Clone)]
pub struct TruthLine {
    /// `CLOCK_MONOTONIC`, seconds.
    pub t_s: f64,
    /// Bytes of the areas ever touched.
    pub resident: f64,
    /// Bytes touched within so many seconds.
    pub working_set: BTreeMap<u32, f64>,
    /// Bytes idle for at least so many seconds.
    pub cold: BTreeMap<u32, f64>,
    /// Addresses touched within the last second; `None` where there were too many ranges to log.
    pub hot: Option<Arc<Vec<Range>>>,
}

#[derive(Debug, Clone)]
pub struct Truth {
    pub header: Header,
    /// The others, ascending in time.
    pub lines: Vec<TruthLine>,
}

#[derive(Deserialize)]
struct RawLine {
    t_s: f64,
    resident_bytes: f64,
    ws: BTreeMap<u32, f64>,
    cold: Vec<RawCold>,
    hot: Option<Hot>,
}

#[derive(Deserialize)]
struct RawCold {
    age_s: u32,
    bytes: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Hot {
    Ranges(Vec<Range>),
    /// `"same"`: as in the line before.
    Word(String),
}

impl Truth {
    /// Reads the log of a program that ended, or has at least begun its first phase.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    /// Parses a log. The last line may be incomplete, if the program was killed.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut rows = text.lines();
        let header = serde_json::from_str(rows.next().context("no header")?).context("header")?;
        let mut lines: Vec<TruthLine> = Vec::new();
        for row in rows {
            let Ok(raw) = serde_json::from_str::<RawLine>(row) else { break };
            let hot = match raw.hot {
                None => None,
                Some(Hot::Ranges(ranges)) => Some(Arc::new(normal(ranges))),
                Some(Hot::Word(word)) => lines.last().filter(|_| word == "same").and_then(|last| last.hot.clone()),
            };
            lines.push(TruthLine {
                t_s: raw.t_s,
                resident: raw.resident_bytes,
                working_set: raw.ws,
                cold: raw.cold.iter().map(|cold| (cold.age_s, cold.bytes)).collect(),
                hot,
            });
        }
        Ok(Self { header, lines })
    }

    /// A figure at a moment, interpolated linearly between two lines.
    pub fn at(&self, t_s: f64, figure: impl Fn(&TruthLine) -> Option<f64>) -> Option<f64> {
        let points: Vec<(f64, f64)> = self.lines.iter().filter_map(|line| Some((line.t_s, figure(line)?))).collect();
        interpolate(&points, t_s)
    }

    /// Everything touched in `from_s..=to_s`, from the lines of that time (each covers the second before it) or else the
    /// nearest one. `None` where ranges were not logged, and after the last line.
    pub fn hot_within(&self, from_s: f64, to_s: f64) -> Option<Vec<Range>> {
        if self.lines.last().is_none_or(|last| last.t_s < to_s) {
            return None;
        }
        let mut inside: Vec<&TruthLine> = self.lines.iter().filter(|l| l.t_s > from_s && l.t_s <= to_s).collect();
        if inside.is_empty() {
            let nearest = self.lines.iter().min_by(|a, b| (a.t_s - to_s).abs().total_cmp(&(b.t_s - to_s).abs()))?;
            if (nearest.t_s - to_s).abs() > GAP_S / 2.0 {
                return None;
            }
            inside.push(nearest);
        }
        let mut all = Vec::new();
        let mut before: Option<&Arc<Vec<Range>>> = None;
        for line in inside {
            let hot = line.hot.as_ref()?;
            // Lines that say "same" share one list.
            if before.is_none_or(|before| !Arc::ptr_eq(before, hot)) {
                all.extend_from_slice(hot);
            }
            before = Some(hot);
        }
        Some(normal(all))
    }
}

/// The value at `t` of points ascending in time; `None` in a gap and beyond the ends, where it is not known.
pub fn interpolate(points: &[(f64, f64)], t: f64) -> Option<f64> {
    let after = points.partition_point(|point| point.0 < t);
    let b = points.get(after)?;
    let Some(a) = after.checked_sub(1).and_then(|at| points.get(at)) else {
        return (b.0 <= t).then_some(b.1);
    };
    if b.0 - a.0 > GAP_S {
        return [a, b].into_iter().find(|point| (point.0 - t).abs() <= NEAR_S).map(|point| point.1);
    }
    Some(a.1 + (b.1 - a.1) * (t - a.0) / (b.0 - a.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOG: &str = concat!(
        r#"{"header":true,"pid":7,"name":"x","description":"","page":4096,"areas":[{"name":"heap","start":4096,"end":40960,"backing":"anon","granule_bytes":4096,"huge_bytes":0,"path":null}],"own":[[1,2]],"start_s":10.0}"#,
        "\n",
        r#"{"t_s":11.0,"phase":0,"resident_bytes":36864,"ws":{"1":4096,"5":8192},"cold":[{"age_s":1,"bytes":8192}],"hot":[[4096,8192],[12288,16384]],"scan_us":1}"#,
        "\n",
        r#"{"t_s":12.0,"phase":0,"resident_bytes":36864,"ws":{"1":8192,"5":8192},"cold":[{"age_s":1,"bytes":4096}],"hot":"same","scan_us":1}"#,
        "\n",
        r#"{"t_s":13.0,"phase":0,"resident_bytes":36864,"ws":{"1":8192,"5":8192},"cold":[],"hot":[[8192,12288]],"scan_us":1}"#,
        "\n",
        r#"{"t_s":14.0,"phase":0,"resident_bytes":36864,"ws":{"1":8192,"5":8192},"cold":[],"hot":null,"scan_us":1}"#,
        "\n",
        r#"{"t_s":15.0,"pha"#,
    );

    #[test]
    fn a_log_is_read_and_asked() {
        let truth = Truth::parse(LOG).unwrap();
        assert_eq!(truth.lines.len(), 4, "the line that was cut short is left out");
        let ws = |t: f64| truth.at(t, |line| line.working_set.get(&1).copied());
        assert_eq!((ws(11.0), ws(11.5), ws(12.5)), (Some(4096.0), Some(6144.0), Some(8192.0)));
        assert_eq!((ws(10.9), ws(14.0), ws(14.1)), (None, Some(8192.0), None));
        assert_eq!(interpolate(&[(0.0, 5.0), (9.0, 7.0)], 8.7), Some(7.0), "near the end of a gap");
        assert_eq!(interpolate(&[(0.0, 5.0), (9.0, 7.0)], 4.0), None);
        assert_eq!(truth.hot_within(10.5, 12.0), Some(vec![(4096, 8192), (12288, 16384)]));
        assert_eq!(truth.hot_within(11.5, 13.0), Some(vec![(4096, 16384)]));
        assert_eq!(truth.hot_within(12.3, 12.7), Some(vec![(8192, 12288)]), "the nearest line counts");
        assert_eq!(truth.hot_within(12.5, 14.0), None, "one line has no ranges");
        assert_eq!(truth.hot_within(14.5, 15.5), None, "the program has ended");
    }

    #[test]
    fn a_program_that_has_not_begun_has_no_log() {
        assert!(Truth::parse("").is_err());
    }

    fn points() -> impl Strategy<Value = Vec<(f64, f64)>> {
        prop::collection::vec((0.1f64..4.0, 0.0f64..1e9), 1..20).prop_map(|steps| {
            let mut t = 0.0;
            steps
                .into_iter()
                .map(|(step, value)| {
                    t += step;
                    (t, value)
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn interpolation_hits_the_points_and_stays_between_their_extremes(points in points(), t in 0.0f64..80.0) {
            for (at, value) in &points {
                let hit = interpolate(&points, *at).unwrap();
                prop_assert!((hit - value).abs() <= 1e-6 * value.max(1.0));
            }
            if let Some(value) = interpolate(&points, t) {
                let low = points.iter().map(|p| p.1).fold(f64::INFINITY, f64::min);
                let high = points.iter().map(|p| p.1).fold(0.0, f64::max);
                prop_assert!(value >= low - 1e-3 && value <= high + 1e-3);
            }
        }

        #[test]
        fn a_straight_line_is_interpolated_exactly(slope in -100.0f64..100.0, offset in 0.0f64..1e6, t in 1.0f64..19.0) {
            let points: Vec<(f64, f64)> = (0..21).map(|i| (f64::from(i), offset + slope * f64::from(i))).collect();
            let value = interpolate(&points, t).unwrap();
            prop_assert!((value - (offset + slope * t)).abs() < 1e-6);
        }
    }
}
