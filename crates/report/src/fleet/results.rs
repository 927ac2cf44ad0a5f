//! What a replay adds up to: saving, price, and how sure that is.

use std::path::Path;

use jiff::Timestamp;
use lowtide_fleet::replay::{OfFleet, Trouble};
use lowtide_fleet::tally::{PolicyTally, Quantiles};
use lowtide_fleet::tune;
use lowtide_model::units::{float, integer};
use serde::Serialize;

/// What a saving is worth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Money {
    /// What paged out memory takes where it is kept, as a share of its size.
    pub kept: f64,
    /// What 10^9 bytes cost for a month; `None` = not given.
    pub price: Option<f64>,
}

/// Percentiles, in percent of what is meant by each.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RatePercentiles {
    pub(super) p50: Option<f64>,
    pub(super) p90: Option<f64>,
    pub(super) p98: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) max: Option<f64>,
}

impl RatePercentiles {
    fn of(sampled: &Quantiles) -> Self {
        let at = |share: f64| sampled.at(share).map(|value| 100.0 * value);
        Self { p50: at(0.5), p90: at(0.9), p98: at(0.98), p99: at(0.99), max: at(1.0) }
    }
}

/// What one policy would have done. Bytes are means over the time of the telemetry, of all hosts together.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyResult {
    pub(super) policy: String,
    /// What workloads had.
    pub(super) had_bytes: f64,
    /// Of it, what had been idle for two minutes, or was paged out.
    pub(super) cold_bytes: f64,
    pub(super) anon_gone_bytes: f64,
    pub(super) file_gone_bytes: f64,
    /// What would be free: what is gone, less what keeps it.
    pub(super) net_bytes: f64,
    /// What is gone, of what workloads had.
    pub(super) saved_percent: Option<f64>,
    /// 95 % interval of that, from how hosts differ; null for fewer than three, or where a few are most of the fleet.
    pub(super) saved_interval_percent: Option<(f64, f64)>,
    /// What is gone, of what was cold.
    pub(super) coverage_percent: Option<f64>,
    pub(super) net_percent: Option<f64>,
    pub(super) back_bytes_per_s: f64,
    /// Share of what is used that came back in a minute, of minutes in which something was gone.
    pub(super) promotion_rate_percent: RatePercentiles,
    /// Time lost, of all time of all workloads.
    pub(super) lost_percent: Option<f64>,
    /// Of minutes in which something was gone.
    pub(super) lost_of_minutes_percent: RatePercentiles,
    /// Minutes in which a brake held.
    pub(super) held_percent: Option<f64>,
    pub(super) money_per_month: Option<f64>,
    #[serde(skip)]
    pub(super) rates: Quantiles,
}

/// What policies would have done to a fleet.
#[derive(Debug, Clone, Serialize)]
pub struct ReplayResult {
    pub(super) dir: String,
    pub(super) from: Option<String>,
    pub(super) until: Option<String>,
    pub(super) hosts: usize,
    pub(super) workloads: u64,
    pub(super) rows: u64,
    pub(super) files: u64,
    pub(super) kept_percent: f64,
    pub(super) policies: Vec<PolicyResult>,
    /// The same by what a label says, where one was asked for.
    pub(super) by: Option<By>,
    pub(super) trouble: Troubles,
}

/// What policies would have done to the workloads of each value of a label.
#[derive(Debug, Clone, Serialize)]
pub(super) struct By {
    pub(super) label: String,
    /// Workloads that have no such label; they are in the sum alone.
    pub(super) without: u64,
    pub(super) values: Vec<OfLabel>,
}

/// Those of one value.
#[derive(Debug, Clone, Serialize)]
pub(super) struct OfLabel {
    pub(super) value: String,
    pub(super) workloads: u64,
    pub(super) policies: Vec<PolicyResult>,
}

/// What of the telemetry is in no figure.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Troubles {
    pub(super) files: u64,
    pub(super) first: Vec<String>,
    pub(super) senseless_rows: u64,
    pub(super) repeated_rows: u64,
    pub(super) missing_minutes: u64,
    pub(super) rows_without_ages: u64,
}

impl PolicyResult {
    fn new(name: &str, tally: &PolicyTally, lasts_s: f64, money: Money) -> Self {
        // Means over the time of all telemetry, so that hosts and workloads that were not always there count for what they were.
        let ms = (1e3 * lasts_s).max(1.0);
        let mean = |sum: u128| float(sum) / ms;
        let gone = tally.gone.map(mean);
        let net_bytes = gone.anon * (1.0 - money.kept) + gone.file;
        let percent = |share: Option<f64>| share.map(|share| 100.0 * share);
        let rows = (tally.rows > 0).then(|| float(tally.held) / float(tally.rows));
        Self {
            policy: name.to_owned(),
            had_bytes: mean(tally.had),
            cold_bytes: mean(tally.cold),
            anon_gone_bytes: gone.anon,
            file_gone_bytes: gone.file,
            net_bytes,
            saved_percent: percent(tally.saved()),
            saved_interval_percent: None,
            coverage_percent: percent(tally.coverage()),
            net_percent: (tally.had > 0).then(|| 100.0 * net_bytes / mean(tally.had)),
            back_bytes_per_s: float(tally.back.total()) / lasts_s.max(1e-3),
            promotion_rate_percent: RatePercentiles::of(&tally.rates),
            lost_percent: percent(tally.lost()),
            lost_of_minutes_percent: RatePercentiles::of(&tally.losses),
            held_percent: percent(rows),
            money_per_month: money.price.map(|price| price * net_bytes / 1e9),
            rates: tally.rates.clone(),
        }
    }
}

/// A time for people.
fn time(unix_s: f64) -> Option<String> {
    Timestamp::from_second(i64::try_from(integer(unix_s)).ok()?).ok().map(|time| time.to_string())
}

impl ReplayResult {
    /// From what a replay added up, under these names of policies.
    #[must_use]
    pub fn new(dir: &Path, of: &OfFleet, names: &[&str], money: Money) -> Self {
        let lasts_s = of.lasts_s();
        let policies = names.iter().zip(&of.tallies).enumerate();
        let policies = policies.map(|(at, (name, tally))| PolicyResult {
            saved_interval_percent: tune::interval(of, at).map(|(low, high)| (100.0 * low, 100.0 * high)),
            ..PolicyResult::new(name, tally, lasts_s, money)
        });
        let Trouble { files, first, senseless, repeated, missing, untold } = of.trouble.clone();
        Self {
            dir: dir.display().to_string(),
            from: of.span_s.and_then(|(from_s, _)| time(from_s)),
            until: of.span_s.and_then(|(_, until_s)| time(until_s)),
            hosts: of.hosts.len(),
            workloads: of.workloads,
            rows: of.tallies.first().map_or(0, |tally| tally.rows),
            files: of.files,
            kept_percent: 100.0 * money.kept,
            policies: policies.collect(),
            by: None,
            trouble: Troubles {
                files,
                first,
                senseless_rows: senseless,
                repeated_rows: repeated,
                missing_minutes: missing,
                rows_without_ages: untold,
            },
        }
    }

    /// The same for each value of a label, by which the replay was asked to separate workloads.
    #[must_use]
    pub fn by(mut self, label: Option<&str>, of: &OfFleet, money: Money) -> Self {
        let names: Vec<String> = self.policies.iter().map(|policy| policy.policy.clone()).collect();
        let value = |(value, (workloads, tallies)): (&String, &(u64, Vec<PolicyTally>))| {
            // Hosts were resampled for all of them together only.
            let policies =
                names.iter().zip(tallies).map(|(name, tally)| PolicyResult::new(name, tally, of.lasts_s(), money));
            OfLabel { value: value.clone(), workloads: *workloads, policies: policies.collect() }
        };
        self.by = label.map(|label| {
            let values: Vec<OfLabel> = of.labels.iter().map(value).collect();
            let with: u64 = values.iter().map(|of| of.workloads).sum();
            By { label: label.to_owned(), without: of.workloads - with, values }
        });
        self
    }

    /// What is in no figure, in words; empty = nothing.
    pub(super) fn remarks(&self) -> Vec<String> {
        let trouble = &self.trouble;
        let mut remarks = Vec::new();
        let mut say = |number: u64, what: &str| {
            if number > 0 {
                remarks.push(format!("{number} {what}"));
            }
        };
        say(trouble.files, "files could not be read to their end; their remaining rows do not count");
        say(trouble.senseless_rows, "rows have impossible values and do not count");
        say(trouble.repeated_rows, "rows are repeated, or of a clock that was set back, and do not count");
        say(trouble.missing_minutes, "minutes of workloads are missing between others and do not count");
        say(trouble.rows_without_ages, "rows have no idle ages: none of their memory counts as evicted");
        if let Some(by) = &self.by {
            say(by.without, &format!("workloads have no label {}; they count in the sum only", by.label));
        }
        remarks.extend(trouble.first.iter().cloned());
        remarks
    }
}

#[cfg(test)]
mod tests {
    use lowtide_model::kind::PerKind;

    use super::*;

    #[test]
    fn means_of_more_byte_milliseconds_than_64_bits_hold() {
        // 1 EB for a day: 8.64e25 byte-milliseconds, and 64 bits hold 1.8e19 (18 PB for a second).
        let (bytes, ms) = (1_000_000_000_000_000_000_u128, 86_400_000_u128);
        let tally = PolicyTally {
            rows: 1,
            ms: 86_400_000,
            had: bytes * ms,
            cold: bytes / 2 * ms,
            gone: PerKind { anon: bytes / 4 * ms, file: bytes / 10 * ms },
            ..PolicyTally::default()
        };
        let result = PolicyResult::new("age", &tally, 86_400.0, Money { kept: 0.5, price: None });
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 1e-12;
        assert!(near(result.had_bytes, 1e18), "{}", result.had_bytes);
        assert!(near(result.cold_bytes, 5e17), "{}", result.cold_bytes);
        assert!(near(result.anon_gone_bytes, 2.5e17) && near(result.file_gone_bytes, 1e17));
        assert!(near(result.net_bytes, 2.25e17) && near(result.net_percent.unwrap(), 22.5));
    }
}
