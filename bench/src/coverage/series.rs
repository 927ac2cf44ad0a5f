//! Intervals of a mean over time, of values that depend on those before.

use lowtide_model::interval::series_interval;
use lowtide_model::random::Random;
use lowtide_model::units::float;

use super::{CoverageArgs, Line};

const NAME: &str = "mean over time";
/// Seconds that a burst lasts, at least and at most.
const BURST_S: [f64; 2] = [5.0, 20.0];
/// Seconds between two bursts, mean.
const LULL_S: f64 = 12.5;

/// So many values, and their true mean.
pub type Series = fn(&mut Random, usize) -> (Vec<f64>, f64);

pub const SERIES: [(&str, Series); 4] =
    [("steady", steady), ("drifting", drifting), ("bursty", bursty), ("bursty, fading", fading)];

pub fn lines(args: &CoverageArgs) -> Vec<Line> {
    let line = |(program, series): (_, Series)| {
        args.line((NAME, program), 300, move |random, length| {
            let (values, truth) = series(random, length);
            let [low, high] = series_interval(&values)?.ends();
            Some(low <= truth && truth <= high)
        })
    };
    SERIES.into_iter().map(line).collect()
}

fn steady(random: &mut Random, length: usize) -> (Vec<f64>, f64) {
    ((0..length).map(|_| random.normal()).collect(), 0.0)
}

/// Rises or falls by up to six standard deviations of the noise; the truth is the mean over the run.
fn drifting(random: &mut Random, length: usize) -> (Vec<f64>, f64) {
    let rise = 12.0 * (random.chance() - 0.5);
    let at = |second| rise * ((float(second) + 0.5) / float(length) - 0.5) + random.normal();
    ((0..length).map(at).collect(), 0.0)
}

/// Bursts of 5 to 20 seconds that begin at random; the truth is the share of time in them.
fn bursty(random: &mut Random, length: usize) -> (Vec<f64>, f64) {
    let lasts = |in_burst: bool, random: &mut Random| {
        let [least, most] = BURST_S;
        if in_burst { least + (most - least) * random.chance() } else { -LULL_S * (1.0 - random.chance()).ln() }
    };
    let mut in_burst = false;
    let mut left_s = lasts(in_burst, random);
    let mut second = |random: &mut Random| {
        left_s -= 1.0;
        while left_s <= 0.0 {
            in_burst = !in_burst;
            left_s += lasts(in_burst, random);
        }
        f64::from(u8::from(in_burst)) + 0.1 * random.normal()
    };
    // Until the start no longer matters.
    for _ in 0..200 {
        second(random);
    }
    let mean_s = 0.5 * (BURST_S[0] + BURST_S[1]);
    ((0..length).map(|_| second(random)).collect(), mean_s / (mean_s + LULL_S))
}

/// AR(1) with a memory of 2.5 to 10 seconds.
fn fading(random: &mut Random, length: usize) -> (Vec<f64>, f64) {
    let keeps = 1.0 - 1.0 / (2.5 + 7.5 * random.chance());
    let fresh = (1.0 - keeps * keeps).sqrt();
    let mut value = random.normal();
    let next = |_| {
        value = keeps * value + fresh * random.normal();
        value
    };
    ((0..length).map(next).collect(), 0.0)
}
