//! What the tide curve predicted against what happened: a comparison's records of a program left alone, and of the same
//! program while everything idle for some seconds was paged out.

use std::path::PathBuf;

use anyhow::Context;
use lowtide::compare::outcome::{Outcome, Outcomes};
use lowtide::compare::tables::counting;
use lowtide::store::Record;
use lowtide_model::PAGE;
use lowtide_model::curve::{Curve, MeasuredCosts};
use lowtide_model::stats;
use lowtide_model::usage::Usage;

use crate::grid::{size, table};

/// `lowtide-bench fidelity`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of a comparison with records: `lowtide compare --keep --configs orig,watch,age-5s,age-10s`
    folder: PathBuf,
    /// What a page costs that comes back, in microseconds; as calibrated if not given
    #[arg(long)]
    refault_us: Option<f64>,
}

/// Configurations that page out what was idle for so many seconds.
const CONFIGS: [(&str, f64); 2] = [("age-5s", 5.0), ("age-10s", 10.0)];
/// The configuration that only looks.
const WATCHED: &str = "watch";

/// What is gone, and what comes back.
#[derive(Debug, Clone, Copy)]
struct Effect {
    /// Bytes gone, mean over the second half of the run: at first there is nothing old, and then it has to be found.
    gone: f64,
    /// Pages a second that come back in that half.
    back: Option<f64>,
    /// Share of the whole run's time that is lost.
    slowdown: Option<f64>,
}

/// Prints prediction and outcome of each program and age.
///
/// # Errors
/// If the folder is not a comparison's.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let path = args.folder.join("runs.jsonl");
    anyhow::ensure!(path.exists(), "{}: no comparison there", args.folder.display());
    let runs = Outcomes::open(&path)?.all;
    let mut programs: Vec<&str> = runs.iter().map(|run| run.program.as_str()).collect();
    programs.sort_unstable();
    programs.dedup();
    let mut rows = Vec::new();
    for program in programs {
        for (config, age_s) in CONFIGS {
            rows.extend(row(args, &runs, program, config, age_s)?);
        }
    }
    let head = [
        "program",
        "idle for",
        "gone, predicted",
        "gone, measured",
        "off",
        "back/s, predicted",
        "back/s, measured",
        "slowdown, predicted",
        "slowdown, measured",
    ];
    print!("{}", table("What the curve of a run left alone predicted for one without what was idle", &head, &rows));
    Ok(())
}

fn row(args: &Args, runs: &[Outcome], program: &str, config: &str, age_s: f64) -> anyhow::Result<Option<Vec<String>>> {
    let records = |config: &'static str| counting(runs, program, config).map(move |run| (config, run));
    let open = |(config, run): (&str, &Outcome)| {
        let folder = args.folder.join(format!("{program}-{config}-{}", run.round));
        Record::open(&folder).with_context(|| format!("{}: compare with --keep", folder.display()))
    };
    let config = CONFIGS.iter().map(|(name, _)| *name).find(|name| *name == config).unwrap_or(WATCHED);
    let mut predicted = Vec::new();
    for run in records(WATCHED) {
        predicted.extend(prediction(args, &open(run)?, age_s));
    }
    let mut measured = Vec::new();
    for run in records(config) {
        measured.extend(outcome(&open(run)?));
    }
    let runtime = |config| stats::mean(&records(config).map(|(_, run)| run.runtime_s).collect::<Vec<f64>>());
    let slower = runtime(config).zip(runtime("orig")).map(|(taken, original)| taken / original - 1.0);
    let (Some(predicted), Some(measured)) = (mean(&predicted), mean(&measured)) else { return Ok(None) };
    let percent = |share: Option<f64>| share.map_or_else(|| "–".to_owned(), |share| format!("{:.2} %", 100.0 * share));
    let rate = |pages: Option<f64>| pages.map_or_else(|| "–".to_owned(), |pages| format!("{pages:.0}"));
    Ok(Some(vec![
        program.to_owned(),
        format!("{age_s:.0} s"),
        size(Some(predicted.gone)),
        size(Some(measured.gone)),
        percent((predicted.gone > 0.0).then(|| measured.gone / predicted.gone - 1.0)),
        rate(predicted.back),
        rate(measured.back),
        percent(predicted.slowdown),
        percent(slower),
    ]))
}

fn mean(effects: &[Effect]) -> Option<Effect> {
    let of = |get: fn(&Effect) -> Option<f64>| stats::mean(&effects.iter().filter_map(get).collect::<Vec<f64>>());
    Some(Effect {
        gone: of(|effect| Some(effect.gone))?,
        back: of(|effect| effect.back),
        slowdown: of(|effect| effect.slowdown),
    })
}

/// What the curve of a record says of an age.
fn prediction(args: &Args, record: &Record, age_s: f64) -> Option<Effect> {
    let (ages, meta) = (record.ages(), record.meta());
    let half_s = 0.5 * ages.last()?.t_s;
    let late = Curve::since(half_s, &ages, &record.lives(), record.tick_s())?.at(age_s)?;
    let swap_s = args.refault_us.map(|micros| micros * 1e-6).or(meta.refault_costs.swap_s);
    let costs = MeasuredCosts { swap_s, ..meta.refault_costs }.or_usual();
    let whole = record.curve(&ages)?.at(age_s)?;
    #[expect(clippy::cast_precision_loss, reason = "4096")]
    let back = (late.back[0].at + late.back[1].at) / PAGE as f64;
    Some(Effect { gone: late.gone().at, back: Some(back), slowdown: Some(whole.slowdown(&costs).at) })
}

/// What happened in a run from which memory was taken.
fn outcome(record: &Record) -> Option<Effect> {
    let usage = record.usage();
    let half_s = 0.5 * usage.last()?.t_s?;
    let late: Vec<&Usage> = usage.iter().filter(|row| row.t_s > Some(half_s)).collect();
    let gone = |row: &&Usage| Some(row.swap_bytes? + row.taken_file_bytes.unwrap_or(0.0));
    let came = |row: &&Usage| Some(row.refault_anon? + row.refault_file.unwrap_or(0.0));
    let (first, last) = (late.first()?, late.last()?);
    let back = came(last).zip(came(first)).map(|(last, first)| last - first);
    let seconds = last.t_s? - first.t_s?;
    Some(Effect {
        gone: stats::mean(&late.iter().filter_map(gone).collect::<Vec<f64>>())?,
        back: back.filter(|_| seconds > 0.0).map(|pages| pages / seconds),
        slowdown: None,
    })
}
