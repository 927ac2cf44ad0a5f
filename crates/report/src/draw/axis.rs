//! Axes: round steps, their labels, and the frame of a chart.

use lowtide_model::units::human_bytes;

use super::{Anchor, Ink, Page, Point, Scene};

/// A rectangle with a scale along each side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
    /// Values at the left and right edge.
    pub x: (f64, f64),
    /// Values at the bottom and top edge.
    pub y: (f64, f64),
}

/// A place on an axis and what is written there.
pub(crate) type Tick = (f64, String);

impl Frame {
    /// A frame over the full width of a page, with room for labels left and right.
    pub(crate) fn on(page: Page, top: f64, height: f64, x: (f64, f64), y_max: f64) -> Self {
        let left = LABELS;
        Self { left, top, width: page.width() - left - page.label_room(), height, x, y: (0.0, y_max) }
    }

    pub(crate) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Where a pair of values lies; values beyond the scale lie on the edge.
    pub(crate) fn at(&self, x: f64, y: f64) -> Point {
        let share = |value: f64, (from, to): (f64, f64)| {
            if to > from { ((value - from) / (to - from)).clamp(0.0, 1.0) } else { 0.0 }
        };
        (self.left + self.width * share(x, self.x), self.bottom() - self.height * share(y, self.y))
    }

    /// Horizontal lines with labels at the left.
    pub(crate) fn rules(&self, scene: &mut Scene, ticks: &[Tick]) {
        for (value, label) in ticks {
            let (x, y) = self.at(self.x.0, *value);
            let ink = if *value == self.y.0 { Ink::Axis } else { Ink::Grid };
            scene.line(vec![(x, y), (self.right(), y)], ink, 1.0);
            scene.text((x - 7.0, y), label.as_str(), Ink::Muted, Anchor::End);
        }
    }

    /// Marks and labels below.
    pub(crate) fn marks(&self, scene: &mut Scene, ticks: &[Tick]) {
        // A chart may begin late: what lies before it has no place, but the mark next to its edge has.
        let early = self.x.0 - 0.02 * (self.x.1 - self.x.0);
        for (value, label) in ticks.iter().filter(|(value, _)| *value >= early) {
            let (x, y) = self.at(*value, self.y.0);
            scene.line(vec![(x, y), (x, y + 4.0)], Ink::Axis, 1.0);
            let half = super::text_width(label) / 2.0;
            let x = x.min(scene.width - half).max(half);
            scene.text((x, y + 14.0), label.as_str(), Ink::Muted, Anchor::Middle);
        }
    }
}

/// Room left of a chart for the labels of its rules.
pub(crate) const LABELS: f64 = 62.0;

/// Room below a chart for the labels of its marks.
pub(crate) const MARKS: f64 = 24.0;

/// Multiples of `step` from 0 up to `max`.
fn multiples(step: f64, max: f64) -> impl Iterator<Item = f64> {
    (0u32..=1000).map(move |n| f64::from(n) * step).take_while(move |value| *value <= max * (1.0 + 1e-9))
}

/// At most about `count` steps of whole binary units.
pub(crate) fn byte_ticks(max: f64, count: u32) -> Vec<Tick> {
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
pub(crate) fn time_ticks(max: f64, count: u32) -> Vec<Tick> {
    let steps =
        [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21_600.0, 86_400.0];
    let step =
        steps.into_iter().find(|step| max / step <= f64::from(count)).unwrap_or((max / f64::from(count)).max(1.0));
    multiples(step, max).map(|value| (value, clock(value))).collect()
}

/// Seconds as m:ss, or h:mm:ss from an hour on.
pub(crate) fn clock(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; saturates")]
    let whole = seconds.max(0.0).round() as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// At most `count` steps of 1, 2 or 5 times a power of ten.
pub(crate) fn count_ticks(max: f64, count: u32) -> Vec<Tick> {
    let raw = (max / f64::from(count)).max(1e-3);
    let power = 10f64.powf(raw.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= raw * (1.0 - 1e-9)).unwrap_or(raw);
    multiples(step, max).map(|value| (value, short_count(value))).collect()
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
        assert_eq!(labels(&count_ticks(1234.0, 3)), ["0", "500", "1k"]);
        assert_eq!(labels(&count_ticks(0.3, 3)), ["0", "0.10", "0.20", "0.30"]);
    }
}
