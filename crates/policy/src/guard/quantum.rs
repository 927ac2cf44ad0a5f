//! How long turns are: by what it costs to switch from one to the next.

use lowtide_model::units::float;

use super::GuardSettings;
use super::detect::CALM;

/// A turn lasts so many times as long, on average, as what a switch loses, so that switches lose some three percent of the time.
const SWITCHES: f64 = 30.0;

/// A turn of one that is not the favourite is no shorter, seconds, once its memory has come.
pub const SHORTEST_S: f64 = 3.0;

/// What a new measurement of the cost of a switch counts, beside those before it.
const NEW: f64 = 0.5;

/// The length of turns.
#[derive(Debug, Clone)]
pub struct Quantum {
    share: f64,
    longest_s: f64,
    /// Seconds that a switch loses: measured, or estimated while none was.
    switch_s: Option<f64>,
    /// What the turn that has just begun has lost so far, seconds; `None` once whoever has it loses nothing any more.
    lost_s: Option<f64>,
}

impl Quantum {
    /// By these settings.
    pub fn new(settings: &GuardSettings) -> Self {
        Self {
            share: settings.share.0.clamp(0.1, 0.99),
            longest_s: settings.cycle.0.as_secs_f64(),
            switch_s: None,
            lost_s: None,
        }
    }

    /// A turn begins; fetching what its holder lacks is estimated to take so long.
    pub fn begin(&mut self, fetch_s: f64) {
        self.switch_s = self.switch_s.or(Some(fetch_s));
        self.measured();
        self.lost_s = Some(0.0);
    }

    /// The holder lost this share of so many seconds.
    pub fn observe(&mut self, elapsed_s: f64, lost: f64) {
        if lost < CALM {
            self.measured();
        } else if let Some(lost_s) = &mut self.lost_s {
            *lost_s += elapsed_s * lost;
        }
    }

    fn measured(&mut self) {
        // One that is calm before it could lose anything was not observed to switch.
        if let (Some(lost_s), Some(switch_s)) = (self.lost_s.take().filter(|s| *s > 0.0), &mut self.switch_s) {
            *switch_s += NEW * (lost_s - *switch_s);
        }
    }

    /// Seconds of the favourite's turn, and of each of the others, of which there are so many.
    pub fn turns_s(&self, others: usize) -> (f64, f64) {
        let others = float(others.max(1));
        let (theirs, switches_s) = (1.0 - self.share, (1.0 + others) * self.switch_s.unwrap_or(0.0));
        let cycle_s = (SWITCHES * switches_s).max(SHORTEST_S * others / theirs).min(self.longest_s);
        (self.share * cycle_s, (theirs * cycle_s / others).max(SHORTEST_S))
    }

    /// No workload waits for longer than this, seconds.
    pub fn longest_s(&self) -> f64 {
        self.longest_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_as_long_as_its_switches_cost() {
        let mut quantum = Quantum::new(&GuardSettings::default());
        // As short as can be: the other has three seconds, the favourite its share beside that. Then two switches of half a
        // second. And so expensive that it is as long as it may be.
        for (switch_s, cycle_s) in [(0.01, 20.0), (0.5, 30.0), (5.0, 50.0)] {
            quantum.switch_s = Some(switch_s);
            let (favourite_s, other_s) = quantum.turns_s(1);
            assert!(
                (favourite_s - 0.85 * cycle_s).abs() < 1e-9 && (other_s - 0.15 * cycle_s).abs() < 1e-9,
                "{switch_s}"
            );
        }
    }

    #[test]
    fn what_a_switch_costs_is_what_is_lost_until_its_holder_is_calm() {
        let mut quantum = Quantum::new(&GuardSettings::default());
        quantum.begin(1.0);
        (0..4).for_each(|_| quantum.observe(0.25, 0.8));
        quantum.observe(0.25, 0.0);
        // Later losses are none of the switch.
        quantum.observe(1.0, 1.0);
        assert!((quantum.switch_s.unwrap() - 0.9).abs() < 1e-9, "{quantum:?}");
        // One that is never calm counts as soon as its turn ends.
        quantum.begin(0.0);
        quantum.observe(1.0, 0.5);
        quantum.begin(0.0);
        assert!((quantum.switch_s.unwrap() - 0.7).abs() < 1e-9, "{quantum:?}");
    }
}
