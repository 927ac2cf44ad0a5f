//! Axes: round steps and their labels.

use lowtide_model::units::{human_bytes, integer};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;

/// A place on an axis and its label.
pub(crate) type Tick = (f64, String);

/// The scale along a side of a chart.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    from: f64,
    to: f64,
    pub ticks: Vec<Tick>,
}

impl Axis {
    /// Ticks outside of the range are left out.
    pub(crate) fn new(from: f64, to: f64, ticks: impl IntoIterator<Item = Tick>) -> Self {
        let to = to.max(from + 1e-3);
        Self { from, to, ticks: ticks.into_iter().filter(|(at, _)| (from..=to).contains(at)).collect() }
    }

    /// Bytes from 0, with at most about `count` steps.
    pub(crate) fn bytes(max: f64, count: u32) -> Self {
        Self::new(0.0, max, byte_ticks(max, count))
    }

    /// Seconds, with at most `count` steps of those from 0. The tick next to a late beginning is kept.
    pub(crate) fn time(from: f64, to: f64, count: u32) -> Self {
        let early = from - 0.02 * (to - from);
        let ticks = time_ticks(to, count).into_iter().filter(|(at, _)| *at >= early);
        Self::new(from, to, ticks.map(|(at, label)| (at.max(from), label)))
    }

    /// What a time axis is called.
    pub(crate) fn time_name(&self) -> &'static str {
        if self.to < 3600.0 { "time, min:s" } else { "time, h:min:s" }
    }

    /// Numbers with a unit, with at most `count` steps.
    pub(crate) fn numbers(from: f64, to: f64, count: usize, label: impl Fn(f64) -> String) -> Self {
        Self::new(from, to, number_ticks(from, to, count).into_iter().map(|at| (at, label(at))))
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, pixels: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.from..self.to).map(value, pixels)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let light = hint.weight().allow_light_points();
        self.ticks.iter().filter(|_| !light).map(|(at, _)| *at).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(place: &f64) -> String {
        place.to_string()
    }

    fn format_ext(&self, place: &f64) -> String {
        self.ticks.iter().find(|(at, _)| at.total_cmp(place).is_eq()).map_or_else(String::new, |tick| tick.1.clone())
    }
}

/// Round steps as plotters chooses them.
fn number_ticks(from: f64, to: f64, count: usize) -> Vec<f64> {
    RangedCoordf64::from(from..to.max(from + 1e-3)).key_points(count)
}

/// Multiples of `step` from 0 up to `max`.
fn multiples(step: f64, max: f64) -> impl Iterator<Item = f64> {
    (0u32..=1000).map(move |n| f64::from(n) * step).take_while(move |value| *value <= max * (1.0 + 1e-9))
}

/// At most about `count` steps, multiples of a binary unit.
fn byte_ticks(max: f64, count: u32) -> Vec<Tick> {
    let mut step = 1.0;
    while max / step > f64::from(count) {
        step *= 2.0;
    }
    multiples(step, max).map(|value| (value, round_bytes(value))).collect()
}

/// A multiple of a power of two without needless digits: `256 MiB`, `1.5 GiB`.
fn round_bytes(value: f64) -> String {
    let text = human_bytes(value);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// At most `count` round steps of a time axis in seconds, as m:ss or h:mm.
fn time_ticks(max: f64, count: u32) -> Vec<Tick> {
    let steps =
        [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21_600.0, 86_400.0];
    let step =
        steps.into_iter().find(|step| max / step <= f64::from(count)).unwrap_or((max / f64::from(count)).max(1.0));
    multiples(step, max).map(|value| (value, clock(value))).collect()
}

/// Seconds as m:ss, or h:mm:ss from an hour on.
pub(crate) fn clock(seconds: f64) -> String {
    let total = integer(seconds.round());
    let (hours, minutes, seconds) = (total / 3600, total / 60 % 60, total % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// A number with `k` and `M` beyond thousands.
pub(crate) fn short_count(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = if (scaled - scaled.round()).abs() < 0.005 || scaled.abs() >= 100.0 {
        0
    } else {
        1 + usize::from(scaled.abs() < 1.0)
    };
    format!("{scaled:.digits$}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn steps_are_round_in_their_unit() {
        let mib = 1_048_576.0;
        assert_eq!(labels(&byte_ticks(900.0 * mib, 4)), ["0 B", "256 MiB", "512 MiB", "768 MiB"]);
        assert_eq!(labels(&byte_ticks(1700.0 * mib, 4)), ["0 B", "512 MiB", "1 GiB", "1.5 GiB"]);
        assert_eq!(labels(&time_ticks(600.0, 6)), ["0:00", "2:00", "4:00", "6:00", "8:00", "10:00"]);
        assert_eq!(labels(&time_ticks(3.0, 6)), ["0:00", "0:01", "0:02", "0:03"]);
        let numbers = |max| Axis::numbers(0.0, max, 3, short_count).ticks;
        assert_eq!(labels(&numbers(1234.0)), ["0", "500", "1k"]);
        assert_eq!(labels(&numbers(0.5)), ["0", "0.20", "0.40"]);
    }
}
