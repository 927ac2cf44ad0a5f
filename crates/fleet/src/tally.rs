//! Sums of a replay: integers only, so that the order and the number of threads do not matter.

use std::collections::BTreeMap;

use lowtide_model::kind::PerKind;
use lowtide_model::units::{float, integer, rounded};
use lowtide_policy::replay::{Effect, Minute};
use serde::{Deserialize, Serialize};

/// A histogram of observed values, to within [`Quantiles::ERROR`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    counts: BTreeMap<u16, u64>,
}

/// Bits of a value that are kept: 11 of its exponent, and five of its mantissa.
const KEPT_BITS: u32 = 16;

impl Quantiles {
    /// How far a quantile may be above the value that was observed, as a share of it.
    pub const ERROR: f64 = 1.0 / 32.0;

    /// Counts a value, which is not negative.
    pub fn add(&mut self, value: f64) {
        *self.counts.entry(key(value)).or_default() += 1;
    }

    /// Counts what another has counted.
    pub fn merge(&mut self, other: &Self) {
        for (key, count) in &other.counts {
            *self.counts.entry(*key).or_default() += count;
        }
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The value that such a share of all lies at or below, rounded up by at most [`Quantiles::ERROR`]; `None` where there are
    /// none.
    pub fn at(&self, share: f64) -> Option<f64> {
        let rank = integer((float(self.count()) * share).ceil()).max(1);
        let mut below = 0;
        let reached = |(_, count): &(&u16, &u64)| {
            below += **count;
            below >= rank
        };
        self.counts.iter().find(reached).map(|(key, _)| ceiling(*key))
    }

    /// Keys and counts.
    pub fn counts(&self) -> impl Iterator<Item = (u16, u64)> {
        self.counts.iter().map(|(key, count)| (*key, *count))
    }

    /// From keys and counts.
    pub fn from_counts(counts: impl IntoIterator<Item = (u16, u64)>) -> Self {
        Self { counts: counts.into_iter().collect() }
    }
}

/// The least key whose ceiling is no smaller. Bits of a number that is not negative are in its order.
fn key(value: f64) -> u16 {
    let bits = value.max(0.0).to_bits();
    let low = u64::BITS - KEPT_BITS - 1;
    // The sign is 0, so that 17 bits are 16.
    u16::try_from(bits.div_ceil(1 << low)).unwrap_or(u16::MAX)
}

fn ceiling(key: u16) -> f64 {
    f64::from_bits(u64::from(key) << (u64::BITS - KEPT_BITS - 1))
}

/// Results of one policy over a number of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyTally {
    /// Rows.
    pub rows: u64,
    /// Rows in which something was gone.
    pub active: u64,
    /// Rows in which something held the policy.
    pub held: u64,
    /// Milliseconds of all rows.
    pub ms: u64,
    /// Byte-milliseconds that workloads had: in memory and paged out.
    pub had: u128,
    /// Byte-milliseconds of it that had been idle for as long as ages are known (two minutes), or were paged out.
    pub cold: u128,
    /// Byte-milliseconds that would have been gone.
    pub gone: PerKind<u128>,
    /// Bytes that would have been refaulted.
    pub back: PerKind<u64>,
    /// Nanoseconds that workloads would have waited for it.
    pub lost_ns: u128,
    /// Share of what was used that were refaulted in a minute, by row in which something was gone (the normalised promotion rate).
    pub rates: Quantiles,
    /// Share of the time lost, by the same rows.
    pub losses: Quantiles,
}

impl PolicyTally {
    /// Counts a row; `lost_s` are seconds lost in a second.
    pub fn add(&mut self, minute: &Minute, effect: &Effect, lost_s: f64) {
        let ms = rounded(1e3 * minute.lasts_s);
        let had = minute.resident.total() + minute.swapped;
        let cold = minute.idle.map(|idle| idle.into_iter().rev().flatten().next().unwrap_or(0.0)).total();
        self.rows += 1;
        self.ms += ms;
        self.had += u128::from(rounded(had)) * u128::from(ms);
        self.cold += u128::from(rounded(cold + minute.swapped)) * u128::from(ms);
        self.held += u64::from(effect.held.is_some());
        self.gone += effect.gone.map(|bytes| u128::from(rounded(bytes)) * u128::from(ms));
        self.back += effect.back.map(|rate| rounded(rate * minute.lasts_s));
        self.lost_ns += u128::from(rounded(1e9 * lost_s * minute.lasts_s));
        if effect.gone.total() > 0.0 {
            self.active += 1;
            let used = minute.returned.map(|returned| returned.used).total();
            let back = effect.back.total();
            self.rates.add(if back > 0.0 { 60.0 * back / used.max(1.0) } else { 0.0 });
            self.losses.add(lost_s);
        }
    }

    /// Counts what another has counted.
    pub fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        self.active += other.active;
        self.held += other.held;
        self.ms += other.ms;
        self.had += other.had;
        self.cold += other.cold;
        self.gone += other.gone;
        self.back += other.back;
        self.lost_ns += other.lost_ns;
        self.rates.merge(&other.rates);
        self.losses.merge(&other.losses);
    }

    /// Share of what workloads had that would have been gone.
    pub fn saved(&self) -> Option<f64> {
        ratio(self.gone.total(), self.had)
    }

    /// Share of what was cold that would have been gone.
    pub fn coverage(&self) -> Option<f64> {
        ratio(self.gone.total(), self.cold)
    }

    /// Share of the time that workloads would have lost.
    pub fn lost(&self) -> Option<f64> {
        ratio(self.lost_ns, u128::from(self.ms) * 1_000_000)
    }
}

fn ratio(part: u128, all: u128) -> Option<f64> {
    (all > 0).then(|| float(part) / float(all))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_quantile_is_the_value_rounded_up_a_little(mut values in prop::collection::vec(0.0..1e12f64, 1..200), share in 0.0..=1.0f64) {
            let mut counted = Quantiles::default();
            values.iter().for_each(|value| counted.add(*value));
            values.sort_by(f64::total_cmp);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a rank")]
            let rank = ((values.len() as f64 * share).ceil() as usize).max(1) - 1;
            let returned = counted.at(share).unwrap();
            prop_assert!(returned >= values[rank] && returned <= values[rank] * (1.0 + Quantiles::ERROR), "{} {returned}", values[rank]);
            prop_assert_eq!(Quantiles::from_counts(counted.counts()), counted);
        }
    }

    #[test]
    fn nothing_counted_has_no_quantile() {
        assert_eq!(Quantiles::default().at(0.5), None);
        let mut none = Quantiles::default();
        none.add(0.0);
        assert_eq!(none.at(0.98), Some(0.0));
    }
}
