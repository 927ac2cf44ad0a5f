//! The settings with which a policy would have saved most, as long as little enough would have been refaulted.
//!
//! The search is that of a library (a tree-structured Parzen estimator, Bergstra et al., NIPS'11), a few candidates at a
//! time, so that each pass over the telemetry serves them all. After some, five times of six it is asked for what lies
//! around the best so far, with smaller steps where nothing better is found (an evolution strategy; Beyer and Schwefel, Natural
//! Computing 2002): settings depend on each other, and the best lie at the limit and at the ends of ranges, where sampling hardly
//! comes. They are judged on one half of the hosts; what the best is
//! expected to do is estimated from the other half, which had no say in its choice, with an interval from how its hosts differ.

use std::collections::{BTreeMap, HashMap};

use lowtide_model::curve::RefaultCosts;
use lowtide_model::interval::of_sums;
use lowtide_model::random::Random;
use lowtide_model::units::index;
use lowtide_policy::policies::{Policies, Spec};
use lowtide_policy::replay::Replay;
use optimizer::parameter::{FloatParam, ParamValue, Parameter};
use optimizer::sampler::tpe::TpeSampler;
use optimizer::{Direction, Study, Trial};

use crate::replay::{Named, OfFleet};
use crate::tally::PolicyTally;

/// One setting, and within what it is searched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Its name in a policy's table.
    pub name: &'static str,
    /// The least and the most.
    pub range: (f64, f64),
    /// How it is written.
    pub unit: SettingUnit,
}

/// How a setting is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingUnit {
    /// A share, as percent.
    Percent,
    /// A share close to all, as percent; what is searched is how much is left.
    PercentLeft,
    /// A time, as seconds.
    Seconds,
}

/// The settings of a policy that are searched; empty = none.
pub fn space(policy: &str) -> &'static [Setting] {
    const fn percent(name: &'static str, least: f64, most: f64) -> Setting {
        Setting { name, range: (least, most), unit: SettingUnit::Percent }
    }
    const fn seconds(name: &'static str, least: f64, most: f64) -> Setting {
        Setting { name, range: (least, most), unit: SettingUnit::Seconds }
    }
    // Shares and times are searched by their logarithm.
    const PROMOTION: [Setting; 4] = [
        percent("limit", 0.001, 5.0),
        Setting { name: "percentile", range: (0.1, 50.0), unit: SettingUnit::PercentLeft },
        seconds("history", 600.0, 43_200.0),
        seconds("warm_up", 60.0, 3600.0),
    ];
    const AGE: [Setting; 3] = [seconds("anon", 1.0, 120.0), seconds("file", 1.0, 120.0), seconds("every", 5.0, 300.0)];
    const AUTO: [Setting; 2] = [percent("slowdown", 0.001, 1.0), seconds("history", 60.0, 7200.0)];
    match policy {
        "promotion" => &PROMOTION,
        "age" => &AGE,
        "auto" => &AUTO,
        _ => &[],
    }
}

/// Goal of the search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TuneGoal {
    /// Share of the memory in use that may be refaulted in a minute, at the 98th percentile of rows.
    pub rate: f64,
    /// Costs of a refault.
    pub costs: RefaultCosts,
}

/// Candidates tried before the search concentrates around the best.
const AT_RANDOM: usize = 24;
/// First step of the search around the best: a standard deviation, as a share of the logarithm of the range.
const FIRST_STEP: f64 = 0.15;
/// Factor of the step after a pass that found something better, and after one that did not.
const STEPS: (f64, f64) = (1.5, 0.7);
/// The smallest step, and the step that follows it: by then the neighbourhood has been searched.
const NARROW: (f64, f64) = (0.02, 0.4);
/// Every so many passes the library chooses the candidates instead.
const GLOBAL: usize = 6;
/// Probability that a setting changes; one always does.
const CHANGED: f64 = 0.5;

/// With at least so many hosts, some are left out of the search to estimate the expected saving.
pub const ENOUGH_HOSTS: usize = 10;
/// Candidates tried by default.
pub const TRIES: usize = 240;
/// Candidates evaluated in one pass over the telemetry.
pub const AT_A_TIME: usize = 8;

/// The percentile of the promotion rate that is limited (Lagar-Cavilla et al.: the 98th).
pub const PERCENTILE: f64 = 0.98;

/// One candidate, as it stands in a file, and what it did.
#[derive(Debug, Clone, PartialEq)]
pub struct TriedSettings {
    /// A table of a policy's file.
    pub toml: String,
    /// Share of the workloads' memory that was evicted.
    pub saved: f64,
    /// The promotion rate at [`PERCENTILE`].
    pub rate: f64,
}

/// Why nothing can be searched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TuneError {
    /// The policy has nothing that could be searched.
    #[error("{0} has no settings to search; promotion, age and auto have")]
    Nothing(String),
    /// The search itself failed.
    #[error("{0}")]
    Search(String),
}

/// A search that proposes candidates and takes their results; it does not evaluate them itself.
pub struct Search {
    policy: String,
    goal: TuneGoal,
    parameters: Vec<(Setting, FloatParam)>,
    study: Study<f64>,
    /// The candidates proposed last, with their values in the order of the parameters.
    asked: Vec<(Trial, Vec<f64>)>,
    /// The best score so far, and the values that had it.
    best: Option<(f64, Vec<f64>)>,
    /// Step of the search around the best.
    step: f64,
    /// Whether the last candidates were taken from around the best.
    near: bool,
    passes: usize,
    random: Random,
    /// All candidates that were evaluated.
    pub tried: Vec<TriedSettings>,
}

impl Search {
    /// A search among settings of a policy. The same seed finds the same.
    ///
    /// # Errors
    /// If the policy has nothing that could be searched.
    pub fn new(policy: &str, goal: TuneGoal, seed: u64) -> Result<Self, TuneError> {
        let space = space(policy);
        if space.is_empty() {
            return Err(TuneError::Nothing(policy.to_owned()));
        }
        let sampler = TpeSampler::builder().seed(seed).n_startup_trials(16).build();
        let sampler = sampler.map_err(|error| TuneError::Search(error.to_string()))?;
        let parameter = |setting: &Setting| {
            let (least, most) = setting.range;
            (*setting, FloatParam::new(least, most).log_scale().name(setting.name))
        };
        Ok(Self {
            policy: policy.to_owned(),
            goal,
            parameters: space.iter().map(parameter).collect(),
            study: Study::with_sampler(Direction::Maximize, sampler),
            asked: Vec::new(),
            best: None,
            step: FIRST_STEP,
            near: false,
            passes: 0,
            random: Random::new(lowtide_model::random::mix(seed)),
            tried: Vec::new(),
        })
    }

    /// The next candidates.
    ///
    /// # Errors
    /// If the search cannot go on.
    pub fn ask(&mut self, count: usize) -> Result<Vec<String>, TuneError> {
        self.asked.clear();
        self.passes += 1;
        self.near = self.tried.len() >= AT_RANDOM && !self.passes.is_multiple_of(GLOBAL);
        if self.near {
            self.search_around(count);
        }
        let mut candidates = Vec::new();
        for _ in 0..count {
            let mut trial = self.study.ask();
            let mut values = Vec::new();
            for (setting, parameter) in &self.parameters {
                let value = parameter.suggest(&mut trial).map_err(|error| TuneError::Search(error.to_string()))?;
                values.push((*setting, value));
            }
            candidates.push(toml(&self.policy, &values));
            self.asked.push((trial, values.into_iter().map(|(_, value)| value).collect()));
        }
        Ok(candidates)
    }

    /// Queues so many candidates near the best so far.
    fn search_around(&mut self, count: usize) {
        let Some((_, best)) = &self.best else { return };
        for _ in 0..count {
            let one = self.random.index(best.len());
            let mut around = HashMap::new();
            for (at, ((setting, parameter), value)) in self.parameters.iter().zip(best).enumerate() {
                let (least, most) = setting.range;
                let moved = self.step * (most / least).ln() * self.random.normal();
                let changes = self.random.chance() < CHANGED || at == one;
                let value = if changes { (value * moved.exp()).clamp(least, most) } else { *value };
                around.insert(parameter.id(), ParamValue::Float(value));
            }
            self.study.enqueue(around);
        }
    }

    /// Takes the results of the candidates proposed last, in their order.
    pub fn report(&mut self, candidates: Vec<String>, tallies: &[PolicyTally]) {
        let before = self.best.as_ref().map(|(score, _)| *score);
        for (((trial, values), toml), tally) in self.asked.drain(..).zip(candidates).zip(tallies) {
            let tried = TriedSettings { toml, saved: tally.saved().unwrap_or(0.0), rate: rate(tally) };
            // Beyond the limit, the less the better, and all are worse than any within.
            let score =
                if tried.rate <= self.goal.rate { tried.saved } else { -tried.rate / self.goal.rate.max(1e-12) };
            self.study.tell(trial, Ok::<f64, String>(score));
            if self.best.as_ref().is_none_or(|(best, _)| score > *best) {
                self.best = Some((score, values));
            }
            self.tried.push(tried);
        }
        if self.near {
            let better = self.best.as_ref().map(|(score, _)| *score) != before;
            self.step *= if better { STEPS.0 } else { STEPS.1 };
            self.step = if self.step < NARROW.0 { NARROW.1 } else { self.step.min(NARROW.1) };
        }
    }

    /// The candidate that saved most within the limit.
    pub fn best(&self) -> Option<&TriedSettings> {
        let within = self.tried.iter().filter(|tried| tried.rate <= self.goal.rate);
        within.max_by(|a, b| a.saved.total_cmp(&b.saved).then(b.rate.total_cmp(&a.rate)))
    }

    /// Candidates that no other beats in both saving and rate, by rate.
    pub fn frontier(&self) -> Vec<&TriedSettings> {
        let mut sorted: Vec<&TriedSettings> = self.tried.iter().collect();
        sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate).then(b.saved.total_cmp(&a.saved)));
        let mut most = f64::NEG_INFINITY;
        sorted.retain(|tried| {
            let better = tried.saved > most;
            most = most.max(tried.saved);
            better
        });
        sorted
    }
}

/// The promotion rate that is compared with the limit.
pub fn rate(tally: &PolicyTally) -> f64 {
    tally.rates.at(PERCENTILE).unwrap_or(0.0)
}

/// Settings as a table of a policy's file. Values are rounded before they are evaluated, so the table is exact.
fn toml(policy: &str, values: &[(Setting, f64)]) -> String {
    let mut text = format!("[tuned.{policy}]\n");
    for (setting, value) in values {
        let value = match setting.unit {
            SettingUnit::Percent => format!("{}%", digits(*value)),
            SettingUnit::PercentLeft => format!("{}%", digits(100.0 - value)),
            SettingUnit::Seconds => format!("{:.0}s", value.max(1.0)),
        };
        text.push_str(&format!("{} = \"{value}\"\n", setting.name));
    }
    text
}

/// A number with three significant digits.
fn digits(value: f64) -> String {
    let places = index((2.0 - value.abs().max(1e-9).log10().floor()).clamp(0.0, 9.0));
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Candidates as policies.
///
/// # Errors
/// If a candidate is not a valid policy.
pub fn policies(candidates: &[String], costs: RefaultCosts) -> Result<Vec<Named>, TuneError> {
    let wrong = |why: String| TuneError::Search(why);
    let policy = |toml: &String| {
        let file: Policies = toml::from_str(toml).map_err(|error| wrong(error.to_string()))?;
        let specs: BTreeMap<String, Spec> = file;
        let (name, spec) = specs.into_iter().next().ok_or_else(|| wrong("no policy".to_owned()))?;
        let replay = Replay::new(&spec, costs).map_err(|error| wrong(error.to_string()))?;
        Ok(Named { name, replay })
    };
    candidates.iter().map(policy).collect()
}

/// Whether a host is among those on which candidates are judged; the others show what to expect.
pub fn is_judge(host: &str) -> bool {
    // FNV-1a: the same everywhere.
    let hash = host
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    lowtide_model::random::mix(hash).is_multiple_of(2)
}

/// Evaluates so many candidates with `replay`; `done` gets the number evaluated so far.
///
/// # Errors
/// If the search cannot go on, or trying fails.
pub fn run<E: From<TuneError>>(
    search: &mut Search,
    tries: usize,
    mut replay: impl FnMut(&[String]) -> Result<Vec<PolicyTally>, E>,
    mut done: impl FnMut(usize),
) -> Result<(), E> {
    while search.tried.len() < tries {
        let candidates = search.ask(AT_A_TIME.min(tries - search.tried.len()))?;
        let tallies = replay(&candidates)?;
        search.report(candidates, &tallies);
        done(search.tried.len());
    }
    Ok(())
}

/// The 95 % interval of the share saved by a policy of a replay, from how its hosts differ ([`of_sums`]); `None` for fewer than
/// three, and for more where a few of them are most of the fleet.
pub fn interval(of: &OfFleet, policy: usize) -> Option<(f64, f64)> {
    let hosts = of.hosts.iter().filter_map(|shares| shares.get(policy));
    let hosts: Vec<(f64, f64)> = hosts.map(|share| (share.gone, share.had)).collect();
    let [low, high] = of_sums(&hosts)?.ends();
    Some((low.max(0.0), high.min(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::HostShare;

    #[test]
    fn what_a_fleet_saves_is_as_sure_as_its_hosts_are_alike() {
        let fleet = |gone: &[f64]| OfFleet {
            hosts: gone.iter().map(|gone| vec![HostShare { had: 10.0, gone: *gone }]).collect(),
            ..OfFleet::new(1)
        };
        let (low, high) = interval(&fleet(&[1.0, 2.0, 3.0]), 0).unwrap();
        // 4.303 standard errors of a mean of three.
        assert!(low.abs() < 1e-12 && (high - 0.2 - 0.4303 / 3f64.sqrt()).abs() < 1e-4, "{low} {high}");
        assert_eq!((interval(&fleet(&[1.0, 2.0]), 0), interval(&fleet(&[1.0; 5]), 1)), (None, None));
    }
}
