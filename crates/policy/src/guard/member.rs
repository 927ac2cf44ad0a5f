//! A workload that takes part in turns, and what it needs as far as that is known.

use super::detect::{CALM, Progress};

/// A workload that takes part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    /// Bytes that it needs, as far as that is known: at most what it asked for.
    pub need: f64,
    /// Bytes that it asked for, those in memory, and those that are protected anyway.
    pub demand: f64,
    pub resident: f64,
    pub floor: f64,
    pub priority: i32,
    /// The need is what it was observed to do with.
    learnt: bool,
    /// When its last turn began, and when it ran last.
    pub turn_s: f64,
    pub ran_s: f64,
    /// Since when it has run without losing time.
    calm_since_s: Option<f64>,
    /// When it joined, and seconds of progress since: what it ran without what it lost.
    pub joined_s: f64,
    pub progress_s: f64,
}

/// For how long, seconds, one has to run without losing time before that counts; and the loss with which what was learnt of it
/// is forgotten.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    pub calm_s: f64,
    pub lost: f64,
}

impl Member {
    /// One that joins now.
    pub fn new(of: &Progress, now_s: f64) -> Self {
        let Progress { demand, resident, floor, priority, .. } = *of;
        Self {
            need: demand,
            demand,
            resident,
            floor,
            priority,
            learnt: false,
            turn_s: f64::NEG_INFINITY,
            ran_s: now_s,
            calm_since_s: None,
            joined_s: now_s,
            progress_s: 0.0,
        }
    }

    /// Bytes that it needs and has not.
    pub fn lacks(&self) -> f64 {
        (self.need - self.resident).max(0.0)
    }

    /// What it has now; if it runs, also what it needs.
    pub fn observe(&mut self, of: &Progress, now_s: f64, runs: bool, patience: Patience) {
        (self.demand, self.resident) = (of.demand, of.resident);
        (self.floor, self.priority) = (of.floor, of.priority);
        // A clock that was set back begins again.
        self.calm_since_s = self.calm_since_s.filter(|since_s| runs && of.lost < CALM && *since_s <= now_s);
        if runs && of.lost < CALM {
            let since_s = *self.calm_since_s.get_or_insert(now_s);
            if now_s - since_s >= patience.calm_s {
                let before = if self.learnt { self.need } else { f64::INFINITY };
                (self.need, self.learnt) = (before.min(of.used), true);
            }
        } else if runs {
            self.learnt &= of.lost < patience.lost;
        }
    }

    /// It needs no more than this; so much, as long as nothing else was learnt.
    pub fn needs_at_most(&mut self, bytes: f64) {
        self.need = if self.learnt { self.need.min(bytes) } else { bytes };
    }
}
