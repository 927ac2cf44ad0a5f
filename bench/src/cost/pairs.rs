//! Slowdown, in pairs of runs that follow each other, so that other load on the machine affects both.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use lowtide_model::interval::Change;
use lowtide_model::stats::quantile;
use lowtide_model::units::{float, integer};
use lowtide_record::Record;
use serde::{Deserialize, Serialize};

use crate::child::Running;
use crate::fits;
use crate::grid::{counted_size, figure, percent, shown, table};
use crate::machine::Machine;
use crate::tools::Tools;

/// No run takes longer.
const LIMIT: Duration = Duration::from_secs(600);
/// A run this long calibrates how much work a second holds.
const CALIBRATED_S: f64 = 0.5;
/// Rounds of the first calibration run.
const FIRST_ROUNDS: u64 = 200;

const NOTES: &str = "\
time: what the program itself measured for a fixed amount of work, median over the runs; populating memory and the end
of lowtide's own work are not in it. slowdown: geometric mean of the pairs' ratios with its 95 % interval (Student's t
on their logarithms; none of fewer than three pairs). CPU time: the same for the program's user and system time,
populating included; other load on the machine disturbs it less. Runs without and with lowtide follow each other; each
goes first in turn. monitor CPU: share of one, lowtide and its kernel threads, over the run.
";

#[derive(Debug, Default, Serialize)]
pub struct Pairs {
    rows: Vec<Row>,
    /// Programs that cannot run here, and why.
    skipped: Vec<(&'static str, String)>,
    /// Share of all CPUs that other programs used meanwhile.
    others_percent: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Row {
    program: &'static str,
    backend: String,
    rounds: u64,
    pairs: Vec<Pair>,
    time: Slowdown,
    cpu: Slowdown,
    monitor_cpu_percent: Option<f64>,
    own_peak_rss_bytes: Option<u64>,
}

/// How much more of something the program took when it was watched.
#[derive(Debug, Serialize)]
struct Slowdown {
    median_alone_s: Option<f64>,
    median_watched_s: Option<f64>,
    /// Geometric mean over the pairs.
    percent: Option<f64>,
    /// Its 95 % interval.
    interval_percent: Option<[f64; 2]>,
}

/// Two runs of the same work.
#[derive(Debug, Clone, Copy, Serialize)]
struct Pair {
    alone: Took,
    watched: Took,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Took {
    /// As the program measured it.
    seconds: f64,
    /// User and system time of the program.
    cpu_s: f64,
}

/// What lowtide used in one watched run.
struct Own {
    backend: String,
    cpu_percent: f64,
    peak_rss_bytes: u64,
}

/// A program that does a given amount of work and measures its time.
type Load<'a> = Box<dyn Fn(u64, &Path) -> anyhow::Result<Command> + 'a>;

fn loads(tools: &Tools) -> anyhow::Result<[(&'static str, Load<'_>); 3]> {
    let eighth = tools.pattern_file("eighth")?;
    let own = |verb: &'static str| -> Load<'_> {
        Box::new(move |rounds, _| {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(verb).arg(rounds.to_string());
            Ok(command)
        })
    };
    let memory: Load<'_> = Box::new(move |rounds, dir| {
        fits::check(&eighth)?;
        let mut command = tools.pattern(&eighth, dir)?;
        command.arg("--work").arg(rounds.to_string());
        Ok(command)
    });
    Ok([("memory (2 GiB)", memory), ("computing", own("spin")), ("faults and processes", own("churn"))])
}

pub fn run(tools: &Tools, count: u32, seconds: f64) -> anyhow::Result<Pairs> {
    let (machine, mut result) = (Machine::new(), Pairs::default());
    for (name, load) in loads(tools)? {
        match one(tools, (name, &load), count, seconds) {
            Ok(row) => result.rows.push(row),
            Err(error) => result.skipped.push((name, format!("{error:#}"))),
        }
    }
    result.others_percent = machine.others_percent();
    Ok(result)
}

fn one(tools: &Tools, (name, load): (&'static str, &Load<'_>), count: u32, seconds: f64) -> anyhow::Result<Row> {
    let rounds = calibrate(tools, load, seconds)?;
    let (mut pairs, mut owns) = (Vec::new(), Vec::new());
    for number in 0..count {
        eprintln!("cost: {name}, pair {} of {count}", number + 1);
        // Each goes first in turn: effects of the run before are the same for both.
        let before = if number % 2 == 0 { Some(run_alone(tools, load, rounds)?) } else { None };
        let (watched, own) = run_watched(tools, load, rounds)?;
        let alone = before.map_or_else(|| run_alone(tools, load, rounds), Ok)?;
        pairs.push(Pair { alone, watched });
        owns.push(own);
    }
    Ok(row(name, rounds, pairs, &owns))
}

fn row(program: &'static str, rounds: u64, pairs: Vec<Pair>, owns: &[Own]) -> Row {
    Row {
        program,
        backend: owns.first().map_or_else(String::new, |own| own.backend.clone()),
        rounds,
        time: slowdown(&pairs, |took| took.seconds),
        cpu: slowdown(&pairs, |took| took.cpu_s),
        monitor_cpu_percent: quantile(&owns.iter().map(|own| own.cpu_percent).collect::<Vec<f64>>(), 0.5),
        own_peak_rss_bytes: owns.iter().map(|own| own.peak_rss_bytes).max(),
        pairs,
    }
}

fn slowdown(pairs: &[Pair], get: fn(&Took) -> f64) -> Slowdown {
    let alone: Vec<f64> = pairs.iter().map(|pair| get(&pair.alone)).collect();
    let watched: Vec<f64> = pairs.iter().map(|pair| get(&pair.watched)).collect();
    let change = Change::of(&watched.iter().copied().zip(alone.iter().copied()).collect::<Vec<_>>());
    Slowdown {
        median_alone_s: quantile(&alone, 0.5),
        median_watched_s: quantile(&watched, 0.5),
        percent: change.map(|change| 100.0 * change.mean),
        interval_percent: change.and_then(|change| change.interval).map(|ends| ends.map(|share| 100.0 * share)),
    }
}

/// How many rounds take about so long.
fn calibrate(tools: &Tools, load: &Load<'_>, seconds: f64) -> anyhow::Result<u64> {
    let mut rounds = FIRST_ROUNDS;
    loop {
        let took_s = run_alone(tools, load, rounds)?.seconds;
        if took_s >= CALIBRATED_S {
            return Ok(scaled(rounds, seconds / took_s));
        }
        rounds = scaled(rounds, (1.5 * CALIBRATED_S / took_s.max(1e-9)).clamp(2.0, 1000.0));
    }
}

fn scaled(rounds: u64, factor: f64) -> u64 {
    integer(float(rounds) * factor).max(1)
}

/// The program under `timed`, which adds its CPU time.
fn timed(program: &Command) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("timed").arg(program.get_program()).args(program.get_args());
    Ok(command)
}

fn run_alone(tools: &Tools, load: &Load<'_>, rounds: u64) -> anyhow::Result<Took> {
    let dir = tools.folder()?;
    let command = timed(&load(rounds, dir.path())?)?;
    let figures = Running::start(command, dir.path())?.wait(LIMIT, || ())?.json()?;
    serde_json::from_value(figures).context("the program's figures")
}

fn run_watched(tools: &Tools, load: &Load<'_>, rounds: u64) -> anyhow::Result<(Took, Own)> {
    let dir = tools.folder()?;
    let measured = tools.measure(&timed(&load(rounds, dir.path())?)?, dir.path(), LIMIT)?;
    let record = Record::open(&measured.record)?;
    let end = record.meta().end.clone().context("the record has no end")?;
    let own = Own {
        backend: record.meta().monitor.backend.clone(),
        cpu_percent: 100.0 * end.monitor_cpu_s / end.runtime_s,
        peak_rss_bytes: end.own_peak_rss_bytes,
    };
    Ok((serde_json::from_value(measured.program).context("the program's figures")?, own))
}

pub fn text(pairs: &Pairs) -> String {
    let head = "program | monitor | pairs | alone | watched | slowdown | 95 % interval | CPU time | \
        95 % interval | monitor CPU | own peak RSS";
    let lines: Vec<Vec<String>> = pairs
        .rows
        .iter()
        .map(|row| {
            let [[time, time_interval], [cpu, cpu_interval]] = [&row.time, &row.cpu].map(cells);
            vec![
                row.program.to_owned(),
                row.backend.clone(),
                row.pairs.len().to_string(),
                figure(row.time.median_alone_s, 3, " s"),
                figure(row.time.median_watched_s, 3, " s"),
                time,
                time_interval,
                cpu,
                cpu_interval,
                figure(row.monitor_cpu_percent, 2, " %"),
                counted_size(row.own_peak_rss_bytes),
            ]
        })
        .collect();
    let mut out = table("Cost to the watched program", head, &lines);
    for (program, why) in &pairs.skipped {
        out += &format!("skip - cost on {program}: {why}\n");
    }
    out + &format!("Meanwhile other programs used {} of all CPUs.\n", percent(pairs.others_percent)) + NOTES
}

fn cells(slowdown: &Slowdown) -> [String; 2] {
    [
        shown(slowdown.percent, |value| format!("{value:+.2} %")),
        shown(slowdown.interval_percent, |[low, high]| format!("{low:+.2} .. {high:+.2} %")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdown_is_that_of_the_pairs_not_of_the_runs() {
        // The machine gets three times slower half way: the pairs do not change.
        let pairs = [(1.0, 1.1), (1.0, 1.1), (3.0, 3.3), (3.0, 3.3)];
        let took = |seconds| Took { seconds, cpu_s: 1.0 };
        let pair = |(alone, watched)| Pair { alone: took(alone), watched: took(watched) };
        let row = row("x", 1, pairs.into_iter().map(pair).collect(), &[]);
        assert!((row.time.percent.unwrap() - 10.0).abs() < 1e-9);
        let [low, high] = row.time.interval_percent.unwrap();
        assert!((low - 10.0).abs() < 1e-6 && (high - 10.0).abs() < 1e-6, "{low} {high}");
        assert_eq!((row.cpu.percent, row.cpu.interval_percent), (Some(0.0), Some([0.0, 0.0])));
        assert_eq!(row.own_peak_rss_bytes, None);
        assert_eq!(scaled(200, 2.5), 500);
    }
}
