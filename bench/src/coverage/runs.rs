//! Intervals from a few runs, pairs of runs, or hosts.

use lowtide_model::budget::trials::{Slowdown, planned_tests};
use lowtide_model::interval::{Change, mean_interval, of_sums};
use lowtide_model::random::Random;
use lowtide_model::units::float;

use super::{CoverageArgs, Line};

/// How the times of a program's runs differ.
#[derive(Debug, Clone, Copy)]
enum Noise {
    /// By 3 %, independently.
    Steady,
    /// The machine gets slower from run to run, by up to two fifths in all.
    Drifting,
    /// One run in five meets other load and takes up to 30 % longer.
    Bursty,
}

const NOISES: [(&str, Noise); 3] =
    [("steady", Noise::Steady), ("drifting", Noise::Drifting), ("bursty", Noise::Bursty)];

/// What a program loses under a limit, as a share.
const LOST: f64 = 0.02;
/// `lowtide budget --verify` makes no more rounds.
const MOST_ROUNDS: usize = 60;

impl Noise {
    /// Factor of the run at `place` (0..1) of the series, on a machine that gets slower by `slow` in all.
    fn drift(self, slow: f64, place: f64) -> f64 {
        if matches!(self, Self::Drifting) { 1.0 + slow * place } else { 1.0 }
    }

    /// Random factor of a run.
    fn factor(self, random: &mut Random) -> f64 {
        let own = (0.03 * random.normal()).exp();
        let met = matches!(self, Self::Bursty) && random.chance() < 0.2;
        if met { own * (1.0 + 0.3 * random.chance()) } else { own }
    }

    /// Mean of the random factor.
    fn mean_factor(self) -> f64 {
        let own = (0.5 * 0.03f64 * 0.03).exp();
        if matches!(self, Self::Bursty) { own * (1.0 + 0.2 * 0.15) } else { own }
    }
}

fn place(at: usize, length: usize) -> f64 {
    (float(at) + 0.5) / float(length)
}

/// Pairs of runs, under a limit and without, that follow each other on a machine that changes.
fn pairs(noise: Noise, random: &mut Random, length: usize) -> Vec<(f64, f64)> {
    let slow = 0.4 * random.chance();
    (0..length)
        .map(|at| {
            let machine = noise.drift(slow, place(at, length));
            ((1.0 + LOST) * machine * noise.factor(random), machine * noise.factor(random))
        })
        .collect()
}

fn holds([low, high]: [f64; 2], truth: f64) -> bool {
    low <= truth && truth <= high
}

/// After how many of the pairs the trials end, by the rule of `lowtide budget --verify`.
fn ends_after(pairs: &[(f64, f64)], tests: usize) -> Option<usize> {
    (1..=pairs.len()).find(|made| Slowdown::of(&pairs[..*made]).is_some_and(|of| of.is_certain(LOST, tests)))
}

/// A line for each kind of noise.
fn each(
    args: &CoverageArgs,
    interval: &'static str,
    longest: usize,
    one: impl Fn(Noise, &mut Random, usize) -> Option<bool> + Sync,
) -> Vec<Line> {
    let line = |(name, noise)| args.line((interval, name), longest, |random, length| one(noise, random, length));
    NOISES.into_iter().map(line).collect()
}

pub fn lines(args: &CoverageArgs) -> Vec<Line> {
    let mut lines = each(args, "mean of runs, not in pairs (not printed)", 300, |noise, random, length| {
        let slow = 0.4 * random.chance();
        let run = |at| noise.drift(slow, place(at, length)) * noise.factor(random);
        let values: Vec<f64> = (0..length).map(run).collect();
        Some(holds(mean_interval(&values)?.ends(), (1.0 + slow_mean(noise, slow)) * noise.mean_factor()))
    });
    lines.extend(each(args, "change of pairs (compare, cost)", 300, |noise, random, length| {
        Some(holds(Change::of(&pairs(noise, random, length))?.interval?, LOST))
    }));
    lines.extend(each(args, "slowdown at the end of trials", MOST_ROUNDS, |noise, random, length| {
        let pairs = pairs(noise, random, length);
        let made = ends_after(&pairs, planned_tests(length)).unwrap_or(length);
        Some(holds(Slowdown::of(&pairs[..made])?.interval?, LOST))
    }));
    for (name, spread) in [("hosts alike", 0.1), ("hosts of all sizes", 1.0)] {
        lines.push(args.line(("share saved in a fleet", name), 300, |random, length| {
            let hosts: Vec<(f64, f64)> = (0..length).map(|_| host(spread, random)).collect();
            Some(holds(of_sums(&hosts)?.ends(), 0.2))
        }));
    }
    lines
}

/// Slowdown of the mean of all runs against the first.
fn slow_mean(noise: Noise, slow: f64) -> f64 {
    if matches!(noise, Noise::Drifting) { 0.5 * slow } else { 0.0 }
}

/// Bytes evicted from a host and bytes that it had: a fifth on average.
fn host(spread: f64, random: &mut Random) -> (f64, f64) {
    let had = (spread * random.normal()).exp();
    (had * 0.4 * random.chance(), had)
}

/// Trials that stop early: with an interval that allows for all stops, and one that does not.
pub fn mistakes(args: &CoverageArgs) -> Vec<Line> {
    let mut lines = each(args, "each answer allows for all", MOST_ROUNDS, |noise, random, length| {
        Some(ends_after(&pairs(noise, random, length), planned_tests(length)).is_some())
    });
    lines.extend(each(args, "each by itself, for comparison", MOST_ROUNDS, |noise, random, length| {
        Some(ends_after(&pairs(noise, random, length), 1).is_some())
    }));
    lines
}
