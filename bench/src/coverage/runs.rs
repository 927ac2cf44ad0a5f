//! Intervals that rest on a few runs, pairs of runs, or hosts.

use lowtide_model::budget::trials::{Slowdown, looks};
use lowtide_model::interval::{Change, mean_interval, of_sums};
use lowtide_model::random::Random;

use super::{Args, Line};

/// How the times of a program's runs differ.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// By 3 %, each by itself.
    Steady,
    /// The machine gets slower from run to run, by up to two fifths from the first to the last.
    Drifting,
    /// One run in five meets something else that runs, and takes up to 30 % longer.
    Bursty,
}

const KINDS: [(&str, Kind); 3] = [("steady", Kind::Steady), ("drifting", Kind::Drifting), ("bursty", Kind::Bursty)];

/// What a program loses under a limit, as a share.
const LOST: f64 = 0.02;
/// More rounds cannot be asked for.
const MOST_ROUNDS: usize = 60;

impl Kind {
    /// How much longer than the first run one may take at this place (0..1) of the series, for how slow the machine gets.
    fn drift(self, slow: f64, place: f64) -> f64 {
        if matches!(self, Self::Drifting) { 1.0 + slow * place } else { 1.0 }
    }

    /// What a run takes beyond its own time, as a factor.
    fn noise(self, random: &mut Random) -> f64 {
        let own = (0.03 * random.normal()).exp();
        let met = matches!(self, Self::Bursty) && random.chance() < 0.2;
        if met { own * (1.0 + 0.3 * random.chance()) } else { own }
    }

    /// The mean of that.
    fn mean_noise(self) -> f64 {
        let own = (0.5 * 0.03f64 * 0.03).exp();
        if matches!(self, Self::Bursty) { own * (1.0 + 0.2 * 0.15) } else { own }
    }
}

fn place(at: usize, length: usize) -> f64 {
    (count(at) + 0.5) / count(length)
}

/// Pairs of runs, under a limit and without, that follow each other on a machine that changes.
fn pairs(kind: Kind, random: &mut Random, length: usize) -> Vec<(f64, f64)> {
    let slow = 0.4 * random.chance();
    (0..length)
        .map(|at| {
            let machine = kind.drift(slow, place(at, length));
            ((1.0 + LOST) * machine * kind.noise(random), machine * kind.noise(random))
        })
        .collect()
}

fn holds([low, high]: [f64; 2], truth: f64) -> bool {
    low <= truth && truth <= high
}

/// After how many of the pairs the trials end, as `lowtide budget --verify` has it.
fn ends_after(pairs: &[(f64, f64)], looks: usize) -> Option<usize> {
    (1..=pairs.len()).find(|made| Slowdown::of(&pairs[..*made]).is_some_and(|of| of.is_certain(LOST, looks)))
}

pub fn lines(args: &Args) -> Vec<Line> {
    let mut lines = Vec::new();
    for (name, kind) in KINDS {
        lines.push(args.line(("mean of runs, not in pairs (not printed)", name), 300, |random, length| {
            let slow = 0.4 * random.chance();
            let run = |at| kind.drift(slow, place(at, length)) * kind.noise(random);
            let values: Vec<f64> = (0..length).map(run).collect();
            Some(holds(mean_interval(&values)?.ends(), (1.0 + slow_mean(kind, slow)) * kind.mean_noise()))
        }));
    }
    for (name, kind) in KINDS {
        lines.push(args.line(("change of pairs (compare, cost)", name), 300, |random, length| {
            Some(holds(Change::of(&pairs(kind, random, length))?.interval?, LOST))
        }));
    }
    for (name, kind) in KINDS {
        lines.push(args.line(("slowdown at the end of trials", name), MOST_ROUNDS, |random, length| {
            let pairs = pairs(kind, random, length);
            let made = ends_after(&pairs, looks(length)).unwrap_or(length);
            Some(holds(Slowdown::of(&pairs[..made])?.interval?, LOST))
        }));
    }
    for (name, spread) in [("hosts alike", 0.1), ("hosts of all sizes", 1.0)] {
        lines.push(args.line(("share saved in a fleet", name), 300, |random, length| {
            let hosts: Vec<(f64, f64)> = (0..length).map(|_| host(spread, random)).collect();
            Some(holds(of_sums(&hosts)?.ends(), 0.2))
        }));
    }
    lines
}

/// What the mean of all runs has over the first.
fn slow_mean(kind: Kind, slow: f64) -> f64 {
    if matches!(kind, Kind::Drifting) { 0.5 * slow } else { 0.0 }
}

/// What is gone of what a host has: a fifth, give or take.
fn host(spread: f64, random: &mut Random) -> (f64, f64) {
    let had = (spread * random.normal()).exp();
    (had * 0.4 * random.chance(), had)
}

/// Trials that end as if only one answer were asked for, and those that allow for all.
pub fn mistakes(args: &Args) -> Vec<Line> {
    let mut lines = Vec::new();
    for (name, kind) in KINDS {
        lines.push(args.line(("each answer allows for all", name), MOST_ROUNDS, |random, length| {
            Some(ends_after(&pairs(kind, random, length), looks(length)).is_some())
        }));
    }
    for (name, kind) in KINDS {
        lines.push(args.line(("each by itself, for comparison", name), MOST_ROUNDS, |random, length| {
            Some(ends_after(&pairs(kind, random, length), 1).is_some())
        }));
    }
    lines
}

#[expect(clippy::cast_precision_loss, reason = "a few hundred")]
fn count(value: usize) -> f64 {
    value as f64
}
