//! A mean over time that forgets.

use serde::{Deserialize, Serialize};

/// An amount a second, of which the past counts less and less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mean {
    seconds: f64,
    sum: f64,
}

impl Mean {
    /// Adds an amount of so many seconds; what was there before counts half after others.
    pub fn add(&mut self, amount: f64, lasted_s: f64, half_s: f64) {
        let kept = 0.5f64.powf(lasted_s / half_s);
        *self = Self { seconds: self.seconds * kept + lasted_s, sum: self.sum * kept + amount };
    }

    /// `None` before anything was added.
    pub fn get(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.sum / self.seconds)
    }

    /// Whether a file can hold it.
    pub fn is_sound(&self) -> bool {
        [self.seconds, self.sum].iter().all(|of| of.is_finite() && *of >= 0.0)
    }
}
