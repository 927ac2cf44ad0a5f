//! What the screen of `lowtide watch` shows, and what a key does: without terminal or clock.

use lowtide_model::meta::Meta;

use super::figures::WatchFigures;
use super::history::TargetHistory;
use super::map::MapHistory;
use crate::screen::keys::{Key, interval};

/// Resident and used memory at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ChartPoint {
    /// Seconds since the start.
    pub t_s: f64,
    /// Resident bytes.
    pub resident: Option<f64>,
    /// Bytes in use within [`CHART_WINDOW_S`], as they were read last.
    pub used: Option<f64>,
}

/// The window of use that is drawn over time, seconds.
pub const CHART_WINDOW_S: u32 = 10;

/// A picture of the target at one moment.
#[derive(Debug, Clone, Default)]
pub struct WatchPicture {
    /// The figures.
    pub figures: WatchFigures,
    /// Memory over time.
    pub chart: Vec<ChartPoint>,
    /// Accesses by address, where the source knows addresses.
    pub map: MapHistory,
    /// What must be known of how it is measured.
    pub notes: Vec<String>,
}

impl WatchPicture {
    /// The picture of a history, with rates over the last `over_s`.
    #[must_use]
    pub fn of(history: &TargetHistory, meta: &Meta, over_s: f64) -> Self {
        let mut used = None;
        let point = |row: &lowtide_model::usage::Usage| {
            used = row.working_set(CHART_WINDOW_S).map(|set| set.bytes).or(used);
            Some(ChartPoint { t_s: row.t_s?, resident: row.held(), used })
        };
        let chart = history.rows.iter().skip(1).filter_map(point).collect();
        let figures = WatchFigures::of(history, meta, over_s);
        Self { figures, chart, map: history.map.clone(), notes: meta.notes.clone() }
    }
}

/// What lies above the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overlay {
    /// Nothing.
    #[default]
    None,
    /// The keys.
    Help,
    /// How it is measured.
    Monitor,
}

/// What is shown.
#[derive(Debug, Clone)]
pub struct WatchBoard {
    /// Name of the target: its program or the last part of its path.
    pub name: String,
    /// Which target, in words.
    pub target: String,
    /// Seconds between two pictures.
    pub every_s: f64,
    /// The picture is held.
    pub is_paused: bool,
    /// What lies above the rest.
    pub overlay: Overlay,
    /// The newest picture.
    pub picture: WatchPicture,
}

impl WatchBoard {
    /// A board without a picture yet.
    #[must_use]
    pub fn new(name: String, target: String, every_s: f64) -> Self {
        let picture = WatchPicture::default();
        Self { name, target, every_s, is_paused: false, overlay: Overlay::None, picture }
    }

    /// Whether a new picture is due.
    #[must_use]
    pub fn is_due(&self, now_s: f64) -> bool {
        // Ticks come a little early or late.
        !self.is_paused && now_s - self.picture.figures.t_s >= 0.9 * self.every_s
    }

    /// Does what a key asks for; true if it ends the command.
    pub fn press(&mut self, key: Key) -> bool {
        let toggled = |to: Overlay| if self.overlay == to { Overlay::None } else { to };
        match key {
            Key::Quit => return true,
            Key::Escape if self.overlay == Overlay::None => return true,
            Key::Escape | Key::Back | Key::Enter => self.overlay = Overlay::None,
            Key::Help => self.overlay = toggled(Overlay::Help),
            Key::Letter('i') => self.overlay = toggled(Overlay::Monitor),
            Key::Pause => self.is_paused = !self.is_paused,
            Key::Slower | Key::Faster | Key::Interval => self.every_s = interval(key, self.every_s),
            _ => {}
        }
        false
    }
}

#[cfg(test)]
pub(super) mod tests {
    use lowtide_model::cohort::{AgeBin, Estimate};
    use lowtide_model::meta::{Monitor, Refusal};
    use lowtide_model::usage::Usage;

    use super::*;

    const MIB: f64 = 1_048_576.0;

    /// A minute of a target of 670 MiB that uses 60 of them and grew before.
    pub fn history() -> TargetHistory {
        let mut history = TargetHistory::default();
        history.backend = "smaps".to_owned();
        for second in 1..=60 {
            let t_s = f64::from(second);
            let set = |bytes: f64, ci95: f64| Some(Estimate { bytes: bytes * MIB, ci95: ci95 * MIB });
            let mut row = Usage {
                t_s: Some(t_s),
                rss_bytes: Some((670.0 * (t_s / 20.0).min(1.0)).floor() * MIB),
                anon_bytes: Some(650.0 * MIB),
                file_bytes: Some(20.0 * MIB),
                swap_bytes: Some(12.0 * MIB),
                minor_faults: Some(1234.0 * t_s),
                major_faults: Some(2.0 * t_s),
                refault_anon: Some(3.0 * t_s),
                refault_file: Some(4.0 * t_s),
                memory_some_s: Some(0.015 * t_s),
                memory_full_s: Some(0.002 * t_s),
                monitor_cpu_s: Some(0.004 * t_s),
                ..Usage::default()
            };
            if second > 30 && second % 10 == 0 {
                let near = if second == 60 { 4.0 } else { 0.0 };
                row.set_working_sets(&[set(48.2, 0.0), None, set(58.9, near), None, None, None]);
            }
            history.add(row);
        }
        let bin = |anon, min_s, max_s, mib: f64| AgeBin {
            anon,
            min_s,
            max_s,
            size: Estimate { bytes: mib * MIB, ci95: 0.0 },
            first_touched: None,
        };
        let bins = [
            bin(true, 0.0, Some(1.0), 40.0),
            bin(true, 1.0, Some(5.0), 9.0),
            bin(true, 5.0, Some(20.0), 1.0),
            bin(true, 20.0, None, 600.0),
            bin(false, 0.0, Some(1.0), 8.2),
            bin(false, 1.0, Some(5.0), 0.0),
            bin(false, 5.0, Some(20.0), 0.7),
            bin(false, 20.0, None, 11.1),
        ];
        history.take_ages(50.0, &bins, false);
        history
    }

    pub fn meta() -> Meta {
        let refused = |backend: &str, why: &str| Refusal { backend: backend.to_owned(), why: why.to_owned() };
        let refused = vec![
            refused("damon", "DAMON is held by someone: kdamond 4242 is on (`damo stop`, or echo off to its state)"),
            refused("mglru", "this kernel has no multi-generational LRU (CONFIG_LRU_GEN), or no debugfs"),
        ];
        let monitor = Monitor { backend: "smaps".to_owned(), refused, ..Monitor::default() };
        let notes = vec!["the process shares its cgroup with others".to_owned()];
        Meta { monitor, notes, attached: true, ..Meta::default() }
    }

    pub fn figures() -> WatchFigures {
        WatchFigures::of(&history(), &meta(), 1.0)
    }

    pub fn board() -> WatchBoard {
        let picture = WatchPicture::of(&history(), &meta(), 1.0);
        WatchBoard { picture, ..WatchBoard::new("redis-server".to_owned(), "pid 4711".to_owned(), 1.0) }
    }

    #[test]
    fn keys_pause_help_and_end() {
        let mut board = board();
        assert!(!board.is_due(60.5) && board.is_due(61.0));
        assert!(!board.press(Key::Pause));
        assert!(!board.is_due(100.0), "the picture is held");
        board.press(Key::Pause);
        board.press(Key::Slower);
        assert!(!board.is_due(61.0) && board.is_due(62.0));
        board.press(Key::Help);
        assert_eq!(board.overlay, Overlay::Help);
        board.press(Key::Letter('i'));
        assert_eq!(board.overlay, Overlay::Monitor);
        assert!(!board.press(Key::Escape), "first out of what is open");
        assert_eq!(board.overlay, Overlay::None);
        assert!(board.press(Key::Escape) && board.press(Key::Quit));
    }

    #[test]
    fn figures_are_the_newest_and_the_bottom_line_is_of_the_steady_state() {
        let of = figures();
        assert_eq!(of.resident_bytes, Some(670 << 20));
        assert_eq!(of.used_within(10).ci95_bytes, Some(4 << 20));
        assert_eq!((of.used_within(60).bytes, of.used_within(60).t_s), (None, None));
        assert_eq!(of.refaults_per_s.map(f64::round), Some(7.0));
        assert_eq!(of.ages.len(), 4);
        assert!(of.bottom_line.as_ref().unwrap().ends_with("of 670 MiB resident"), "{:?}", of.bottom_line);
    }
}
