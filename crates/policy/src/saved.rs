//! What a policy remembers, as it stands in a file: one that was killed is followed by one that knows as much.
//!
//! Times are counted from the moment of saving, as the clock of whoever comes next starts anew. What was done since then
//! nobody knows, so what may be done every so often is waited for anew, and what may be spent counts as spent: however often
//! a policy is killed, it takes no more than one that lives.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a policy remembers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Of all targets together.
    #[serde(default)]
    pub whole: Value,
    /// Of each target.
    #[serde(default)]
    pub targets: BTreeMap<u64, Value>,
}

/// Something that is remembered.
pub trait Kept: Default + Clone + Serialize + DeserializeOwned {
    /// Moves all its times by so many seconds.
    fn shift(&mut self, by_s: f64);

    /// Goes on at this time. False if no policy can ever have remembered this.
    fn resume(&mut self, now_s: f64) -> bool;
}

/// As it stands in a file that is written now.
pub fn save(kept: &impl Kept, now_s: f64) -> Value {
    let mut kept = kept.clone();
    kept.shift(-now_s);
    serde_json::to_value(kept).unwrap_or_default()
}

/// From a file that was written `away_s` ago; `None` where it makes no sense.
#[must_use]
pub fn restore<K: Kept>(value: &Value, now_s: f64, away_s: f64) -> Option<K> {
    let mut kept: K = serde_json::from_value(value.clone()).ok()?;
    kept.shift(now_s - away_s.max(0.0));
    kept.resume(now_s).then_some(kept)
}

/// A time, moved. A millisecond is exact enough, and short in a file.
pub(crate) fn moved(time_s: f64, by_s: f64) -> f64 {
    (1e3 * (time_s + by_s)).round() / 1e3
}

/// Times may be off by their rounding, twice.
pub(crate) const ROUNDED_S: f64 = 0.002;

/// When something was done last; where it was done, it counts as done now.
impl Kept for Option<f64> {
    fn shift(&mut self, by_s: f64) {
        *self = self.map(|time_s| moved(time_s, by_s));
    }

    fn resume(&mut self, now_s: f64) -> bool {
        *self = self.map(|_| now_s);
        true
    }
}
