//! What a recorder read of a target lately, in memory.

use std::cell::{Ref, RefCell};
use std::rc::Rc;

use lowtide_engine::event::{Event, Sink};
use lowtide_model::bottom_line::BottomLine;
use lowtide_model::budget::{Known, OwnBudgets};
use lowtide_model::cohort::{AgeBin, Estimate};
use lowtide_model::meta::Meta;
use lowtide_model::phase::{PhaseKind, phases};
use lowtide_model::units::{count, float};
use lowtide_model::usage::Usage;

use super::map::MapHistory;

/// Ticks that are kept, at most: an hour of one a second.
const MOST_TICKS: usize = 3600;
/// Ticks that are dropped at a time.
const DROPPED: usize = 300;
/// The bottom line is calculated from so many ticks a second of the time, on average: about a thousandth of one CPU.
const ROWS_A_SECOND: f64 = 250.0;
/// A histogram of all windows is not replaced by one of fewer before it is so old, seconds.
const OLD_S: f64 = 150.0;

/// Idle ages, and when they were read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgesRead {
    /// Seconds since the start.
    pub at_s: f64,
    /// The bins.
    pub bins: Vec<AgeBin>,
}

/// The last hour of a target.
#[derive(Debug, Clone, Default)]
pub struct TargetHistory {
    /// Ticks, ascending; the first stands for the time before.
    pub rows: Vec<Usage>,
    /// The newest idle ages.
    pub ages: Option<AgesRead>,
    /// Snapshots of the map.
    pub map: MapHistory,
    /// The backend that samples accesses.
    pub backend: String,
    /// The bottom line, and when it was calculated.
    bottom_line: RefCell<Option<(f64, Option<BottomLine>)>>,
}

impl TargetHistory {
    /// Adds a tick.
    pub fn add(&mut self, row: Usage) {
        if self.rows.is_empty() {
            self.rows.push(Usage { t_s: Some(0.0), ..Usage::default() });
        }
        if self.rows.len() >= MOST_TICKS {
            self.rows.drain(..DROPPED);
        }
        self.rows.push(row);
    }

    /// Takes over idle ages. Sources that read one window after the other first have but a few of them: until the next
    /// complete histogram the last one is shown.
    pub fn take_ages(&mut self, at_s: f64, bins: &[AgeBin], is_partial: bool) {
        let keep = |old: &AgesRead| is_partial && old.bins.len() > bins.len() && at_s - old.at_s < OLD_S;
        if !bins.is_empty() && !self.ages.as_ref().is_some_and(keep) {
            self.ages = Some(AgesRead { at_s, bins: bins.to_vec() });
        }
    }

    /// Time of the newest tick, seconds.
    #[must_use]
    pub fn now_s(&self) -> f64 {
        self.rows.last().and_then(|row| row.t_s).unwrap_or(0.0)
    }

    /// The newest value of a figure that is not read at every tick, and when it was read.
    pub fn newest<T>(&self, get: impl Fn(&Usage) -> Option<T>) -> Option<(f64, T)> {
        self.rows.iter().rev().find_map(|row| Some((row.t_s?, get(row)?)))
    }

    /// The newest working set of a window, and when it was read.
    #[must_use]
    pub fn working_set(&self, window_s: u32) -> Option<(f64, Estimate)> {
        self.newest(|row| row.working_set(window_s))
    }

    /// The bottom line so far, by the rule of all reports; `None` while memory grows. The longer the history, the longer it
    /// takes to calculate and the less it changes, so it is then calculated less often.
    pub fn bottom_line(&self, meta: &Meta) -> Option<BottomLine> {
        let (now_s, every_s) = (self.now_s(), float(count(self.rows.len())) / ROWS_A_SECOND);
        let mut last = self.bottom_line.borrow_mut();
        if last.as_ref().is_none_or(|(at_s, _)| now_s - at_s >= every_s) {
            *last = Some((now_s, bottom_line(&self.rows, meta)));
        }
        last.as_ref().and_then(|(_, line)| line.clone())
    }

    /// How fast a counter rose a second, over the last `over_s`.
    pub fn rate(&self, over_s: f64, get: impl Fn(&Usage) -> Option<f64>) -> Option<f64> {
        let (to_s, to) = self.newest(&get)?;
        // Ticks come a little early or late.
        let earlier = |row: &Usage| Some((row.t_s.filter(|t_s| *t_s <= to_s - 0.9 * over_s)?, get(row)?));
        let first = || self.rows.iter().find_map(|row| Some((row.t_s?, get(row)?)));
        let (from_s, from) = self.rows.iter().rev().find_map(earlier).or_else(first)?;
        (to_s > from_s).then(|| (to - from).max(0.0) / (to_s - from_s))
    }
}

fn bottom_line(rows: &[Usage], meta: &Meta) -> Option<BottomLine> {
    let phases = phases(rows, true);
    if phases.last().is_none_or(|phase| phase.kind != PhaseKind::Steady) {
        return None;
    }
    let known = Known { phases: &phases, ..Known::of(meta, rows) };
    Some(BottomLine::of(&known, &OwnBudgets { without_swap: None, with_swap: None, chosen: None }))
}

/// The sink: the recorder writes into it, and the command reads.
#[derive(Debug, Clone, Default)]
pub struct SharedHistory(Rc<RefCell<TargetHistory>>);

impl SharedHistory {
    /// What is known.
    #[must_use]
    pub fn read(&self) -> Ref<'_, TargetHistory> {
        self.0.borrow()
    }
}

impl Sink for SharedHistory {
    fn take(&mut self, _: f64, event: &Event<'_>) {
        let mut history = self.0.borrow_mut();
        match event {
            Event::Usage(usage, backend) => {
                (*backend).clone_into(&mut history.backend);
                history.add((*usage).clone());
            }
            Event::Frame(frame) => {
                if let Some((at_s, picture)) = &frame.picture {
                    let at_s = picture.ages_read_s.unwrap_or(*at_s);
                    history.take_ages(at_s, &picture.ages, picture.is_partial);
                }
                history.map.add(&frame.regions);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(t_s: f64, count: Option<f64>) -> Usage {
        Usage { t_s: Some(t_s), minor_faults: count, ..Usage::default() }
    }

    #[test]
    fn rates_are_of_the_last_interval_and_pass_over_gaps() {
        let mut history = TargetHistory::default();
        assert_eq!(history.rate(1.0, |row| row.minor_faults), None);
        for (t_s, count) in [(1.0, 100.0), (2.0, 100.0), (3.0, 160.0)] {
            history.add(faults(t_s, Some(count)));
        }
        assert_eq!(history.rate(1.0, |row| row.minor_faults), Some(60.0));
        assert_eq!(history.rate(2.0, |row| row.minor_faults), Some(30.0));
        assert_eq!(history.rate(60.0, |row| row.minor_faults), Some(30.0), "as far as it was watched");
        history.add(faults(4.0, None));
        history.add(faults(5.0, Some(180.0)));
        assert_eq!(history.rate(1.0, |row| row.minor_faults), Some(10.0), "not counted in the tick between");
    }

    #[test]
    fn the_bottom_line_of_a_long_history_is_calculated_less_often() {
        let mut history = TargetHistory::default();
        let row = |t_s: u32, mib: f64| Usage { rss_bytes: Some(mib * 1_048_576.0), ..faults(f64::from(t_s), None) };
        let resident = |history: &TargetHistory| history.bottom_line(&Meta::default()).unwrap().steady.resident_bytes;
        (0..1000).for_each(|t_s| history.add(row(t_s, 100.0)));
        assert_eq!(resident(&history), Some(100 << 20));
        (1000..1003).for_each(|t_s| history.add(row(t_s, 101.0)));
        assert_eq!(resident(&history), Some(100 << 20), "as it was seconds ago");
        (1003..1006).for_each(|t_s| history.add(row(t_s, 101.0)));
        assert_eq!(resident(&history), Some(101 << 20));
    }

    #[test]
    fn an_hour_is_kept() {
        let mut history = TargetHistory::default();
        (0..10_000).for_each(|t_s| history.add(faults(f64::from(t_s), Some(0.0))));
        assert!(history.rows.len() <= MOST_TICKS && history.now_s() == 9999.0);
    }

    #[test]
    fn a_complete_histogram_stands_until_the_next() {
        let bins = |count: usize| vec![AgeBin::default(); count];
        let mut history = TargetHistory::default();
        history.take_ages(1.0, &bins(2), true);
        assert_eq!(history.ages.as_ref().unwrap().bins.len(), 2, "better than none");
        history.take_ages(20.0, &bins(6), false);
        history.take_ages(21.0, &bins(2), true);
        assert_eq!(history.ages.as_ref().unwrap().at_s, 20.0);
        history.take_ages(40.0, &bins(5), false);
        assert_eq!(history.ages.as_ref().unwrap().at_s, 40.0);
        history.take_ages(400.0, &bins(2), true);
        assert_eq!(history.ages.as_ref().unwrap().at_s, 400.0, "minutes later a few windows say more");
    }
}
