//! What the tide curve predicted, and what happened: a comparison's records of a program alone, and of the same program
//! while everything idle for some seconds was paged out.

use std::path::PathBuf;

use anyhow::Context;
use lowtide::compare::outcome::{Outcomes, RunOutcome};
use lowtide::compare::tables::counting;
use lowtide_model::PAGE;
use lowtide_model::curve::{Curve, MeasuredCosts, Point};
use lowtide_model::kind::Kind;
use lowtide_model::stats;
use lowtide_model::units::float;
use lowtide_model::usage::Usage;
use lowtide_record::Record;

use crate::grid::{figure, size, table};

#[derive(Debug, clap::Args)]
pub struct FidelityArgs {
    /// Folder of a comparison with records: `lowtide compare --keep --configs orig,watch,age-5s,age-10s`
    folder: PathBuf,
    /// The folder is one of scripts/guest-fidelity.sh: `lowtide agent` evicted what was idle
    #[arg(long)]
    agent: bool,
    /// Cost of a refault, in microseconds; as calibrated if not given
    #[arg(long)]
    refault_us: Option<f64>,
}

/// Configurations, and the idle age in seconds from which each pages out.
const CONFIGS: [(&str, f64); 2] = [("age-5s", 5.0), ("age-10s", 10.0)];
/// Seconds between two rounds of the agent, by configuration: generations show these ages so often.
const ROUNDS_S: [f64; 2] = [5.0, 10.0];
/// The mean over the time between two rounds is taken at so many points.
const PARTS: u32 = 20;
/// The configuration that only watches.
const WATCHED: &str = "watch";

#[derive(Debug, Clone, Copy)]
struct Effect {
    /// Bytes evicted, mean over the second half of the run: at first nothing is old, and then it has to be found.
    evicted: f64,
    /// Pages a second that refault in that half.
    refaults: Option<f64>,
    /// Share of the complete run's time that is lost.
    slowdown: Option<f64>,
}

/// Prints prediction and outcome of each program and age.
pub fn run(args: &FidelityArgs) -> anyhow::Result<()> {
    let rows = if args.agent { by_agent(args)? } else { by_comparison(args)? };
    let head = "program | idle for | gone, predicted | gone, measured | off | back/s, predicted | \
        back/s, measured | slowdown, predicted | slowdown, measured";
    print!("{}", table("What the curve of a run left alone predicted for one without what was idle", head, &rows));
    Ok(())
}

fn by_comparison(args: &FidelityArgs) -> anyhow::Result<Vec<Vec<String>>> {
    let path = args.folder.join("runs.jsonl");
    anyhow::ensure!(path.exists(), "{}: no comparison there", args.folder.display());
    let runs = Outcomes::open(&path)?.all;
    let mut programs: Vec<&str> = runs.iter().map(|run| run.program.as_str()).collect();
    programs.sort_unstable();
    programs.dedup();
    let mut rows = Vec::new();
    for program in programs {
        for config in CONFIGS {
            rows.extend(row(args, &runs, program, config)?);
        }
    }
    Ok(rows)
}

/// The programs of scripts/guest-fidelity.sh: the agent evicts anonymous memory, in rounds.
fn by_agent(args: &FidelityArgs) -> anyhow::Result<Vec<Vec<String>>> {
    let mut rows = Vec::new();
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(&args.folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let Some(program) = name.strip_suffix(&format!("-{WATCHED}")) else { continue };
        let done = |config: &str| -> Option<f64> {
            let path = args.folder.join(format!("{program}-{config}")).join("done");
            std::fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        let watched = Record::open(&folder)?;
        for ((config, age_s), every_s) in CONFIGS.into_iter().zip(ROUNDS_S) {
            let record = Record::open(&args.folder.join(format!("{program}-{config}")))?;
            let predicted = prediction(args, &watched, (age_s, every_s));
            let slower = done("orig").zip(done(config)).map(|(original, done)| original / done - 1.0);
            rows.extend(predicted.zip(outcome(&record)).map(|pair| cells(program, age_s, pair, slower)));
        }
    }
    Ok(rows)
}

fn row(
    args: &FidelityArgs,
    runs: &[RunOutcome],
    program: &str,
    (config, age_s): (&str, f64),
) -> anyhow::Result<Option<Vec<String>>> {
    let mean_of = |config: &str, effect: &dyn Fn(&Record) -> Option<Effect>| -> anyhow::Result<Option<Effect>> {
        let mut effects = Vec::new();
        for run in counting(runs, program, config) {
            let folder = args.folder.join(format!("{program}-{config}-{}", run.round));
            let record = Record::open(&folder).with_context(|| format!("{}: compare with --keep", folder.display()))?;
            effects.extend(effect(&record));
        }
        Ok(mean(&effects))
    };
    let predicted = mean_of(WATCHED, &|record| prediction(args, record, (age_s, 0.0)))?;
    let measured = mean_of(config, &outcome)?;
    // One that runs for a given time reports how much work it did.
    let time = |run: &RunOutcome| run.figure.map_or(run.runtime_s, |figure| 1.0 / figure);
    let runtime = |config| stats::mean(&counting(runs, program, config).map(time).collect::<Vec<f64>>());
    let slower = runtime(config).zip(runtime("orig")).map(|(taken, original)| taken / original - 1.0);
    Ok(predicted.zip(measured).map(|pair| cells(program, age_s, pair, slower)))
}

fn cells(program: &str, age_s: f64, (predicted, measured): (Effect, Effect), slower: Option<f64>) -> Vec<String> {
    let percent = |share: Option<f64>| figure(share.map(|share| 100.0 * share), 2, " %");
    vec![
        program.to_owned(),
        format!("{age_s:.0} s"),
        size(Some(predicted.evicted)),
        size(Some(measured.evicted)),
        percent((predicted.evicted > 0.0).then(|| measured.evicted / predicted.evicted - 1.0)),
        figure(predicted.refaults, 0, ""),
        figure(measured.refaults, 0, ""),
        percent(predicted.slowdown),
        percent(slower),
    ]
}

fn mean(effects: &[Effect]) -> Option<Effect> {
    let of = |get: fn(&Effect) -> Option<f64>| stats::mean(&effects.iter().filter_map(get).collect::<Vec<f64>>());
    Some(Effect {
        evicted: of(|effect| Some(effect.evicted))?,
        refaults: of(|effect| effect.refaults),
        slowdown: of(|effect| effect.slowdown),
    })
}

/// Prediction of a record's curve for an age, with eviction in rounds so many seconds apart (0: at once): pages that were
/// idle for the age at one round stay evicted until the next, so just before that they are idle for both together.
fn prediction(args: &FidelityArgs, record: &Record, (age_s, every_s): (f64, f64)) -> Option<Effect> {
    let (ages, meta) = (record.ages(), record.meta());
    let half_s = 0.5 * ages.last()?.t_s;
    let late = Curve::since(half_s, &ages, &record.lives(), record.tick_s())?;
    let complete = record.curve(&record.usage(), &ages)?;
    let swap_s = args.refault_us.map(|micros| micros * 1e-6).or(meta.refault_costs.swap_s);
    let costs = MeasuredCosts { swap_s, ..meta.refault_costs }.or_usual();
    let mean = |curve: &Curve, of: &dyn Fn(&Point) -> f64| {
        let at = |part: u32| Some(of(&curve.at(age_s + every_s * (f64::from(part) + 0.5) / f64::from(PARTS))?));
        let points: Option<Vec<f64>> = if every_s > 0.0 { (0..PARTS).map(at).collect() } else { None };
        points.map_or_else(|| curve.at(age_s).map(|point| of(&point)), |points| stats::mean(&points))
    };
    let kinds: &[Kind] = if args.agent { &[Kind::Anon] } else { &Kind::ALL };
    let back = |point: &Point| kinds.iter().map(|kind| point.back[*kind].at).sum::<f64>() / float(PAGE);
    let gone = |point: &Point| kinds.iter().map(|kind| point.cold[*kind].at).sum::<f64>();
    let slowdown = |point: &Point| back(point) * costs.swap_s;
    let slowdown: &dyn Fn(&Point) -> f64 = if args.agent { &slowdown } else { &|point| point.slowdown(&costs).at };
    Some(Effect { evicted: mean(&late, &gone)?, refaults: mean(&late, &back), slowdown: mean(&complete, slowdown) })
}

/// Outcome of a run from which memory was evicted.
fn outcome(record: &Record) -> Option<Effect> {
    let usage = record.usage();
    let half_s = 0.5 * usage.last()?.t_s?;
    let late: Vec<&Usage> = usage.iter().filter(|row| row.t_s > Some(half_s)).collect();
    let evicted = |row: &&Usage| Some(row.swap_bytes? + row.taken_file_bytes.unwrap_or(0.0));
    let refaults = |row: &&Usage| Some(row.refault_anon? + row.refault_file.unwrap_or(0.0));
    let (first, last) = (late.first()?, late.last()?);
    let back = refaults(last).zip(refaults(first)).map(|(last, first)| last - first);
    let seconds = last.t_s? - first.t_s?;
    Some(Effect {
        evicted: stats::mean(&late.iter().filter_map(evicted).collect::<Vec<f64>>())?,
        refaults: back.filter(|_| seconds > 0.0).map(|pages| pages / seconds),
        slowdown: None,
    })
}
