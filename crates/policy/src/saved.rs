//! What a policy remembers, as it stands in a file: one that was killed is followed by one that knows as much.
//!
//! Times are seconds since the boot, so they mean the same to the next process. What was done since the policy saved is not
//! known, so what may be done every so often is waited for again, and what may be spent counts as spent: however often a
//! policy is killed, it takes no more than one that lives.

use std::collections::BTreeMap;

use lowtide_model::target::TargetId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a policy remembers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Of all targets together.
    #[serde(default)]
    pub common: Value,
    /// Of each target.
    #[serde(default)]
    pub targets: BTreeMap<TargetId, Value>,
}

/// Something that is remembered.
pub trait Resume: Default + Clone + Serialize + DeserializeOwned {
    /// Continues at this time. False if the state is invalid.
    fn resume(&mut self, now_s: f64) -> bool;
}

/// As it stands in a file.
pub fn save(kept: &impl Resume) -> Value {
    serde_json::to_value(kept).unwrap_or_default()
}

/// From a file; `None` where it makes no sense.
pub fn restore<K: Resume>(value: &Value, now_s: f64) -> Option<K> {
    let mut kept: K = serde_json::from_value(value.clone()).ok()?;
    kept.resume(now_s).then_some(kept)
}

/// Whether a time has come. One that was just saved may be off in its last digit.
pub(crate) fn is_past(at_s: f64, now_s: f64) -> bool {
    at_s <= now_s + 1e-3
}

/// When something was done last; where it was done, it counts as done now.
impl Resume for Option<f64> {
    fn resume(&mut self, now_s: f64) -> bool {
        *self = self.map(|_| now_s);
        true
    }
}
