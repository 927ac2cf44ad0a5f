//! What the tide curve predicted against what happened: a comparison's records of a program left alone, and of the same
//! program while everything idle for some seconds was paged out.

use std::path::{Path, PathBuf};

use anyhow::Context;
use lowtide::compare::outcome::{Outcome, Outcomes};
use lowtide::compare::tables::counting;
use lowtide::store::Record;
use lowtide_model::curve::MeasuredCosts;
use lowtide_model::stats;

use crate::grid::{size, table};

/// `lowtide-bench fidelity`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of a comparison with records: `lowtide compare --keep --configs orig,rec,age-5s,age-10s`
    folder: PathBuf,
    /// What a page costs that comes back, in microseconds; as calibrated if not given
    #[arg(long)]
    refault_us: Option<f64>,
}

/// Configurations that page out what was idle for so many seconds.
const CONFIGS: [(&str, f64); 2] = [("age-5s", 5.0), ("age-10s", 10.0)];

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
        "slowdown, predicted",
        "slowdown, measured",
    ];
    print!("{}", table("What the curve of a run left alone predicted for one without what was idle", &head, &rows));
    Ok(())
}

fn row(args: &Args, runs: &[Outcome], program: &str, config: &str, age_s: f64) -> anyhow::Result<Option<Vec<String>>> {
    let of = |config: &str| -> Vec<&Outcome> { counting(runs, program, config).collect() };
    let (left_alone, taken, original) = (of("rec"), of(config), of("orig"));
    let mut gone = Vec::new();
    let mut slowdown = Vec::new();
    for run in &left_alone {
        let folder = args.folder.join(format!("{program}-rec-{}", run.round));
        let Some((bytes, share)) = predicted(args, &folder, age_s)? else { continue };
        gone.push(bytes);
        slowdown.push(share);
    }
    let ledgers = taken.iter().filter_map(|run| run.ledger.as_ref());
    #[expect(clippy::cast_precision_loss, reason = "sizes of memory")]
    let saved: Vec<f64> = ledgers
        .filter_map(|ledger| Some((ledger.saved_anon_bytes? + ledger.saved_file_bytes.unwrap_or(0)) as f64))
        .collect();
    let runtime = |runs: &[&Outcome]| stats::mean(&runs.iter().map(|run| run.runtime_s).collect::<Vec<f64>>());
    let (Some(gone), Some(saved)) = (stats::mean(&gone), stats::mean(&saved)) else { return Ok(None) };
    let measured = runtime(&taken).zip(runtime(&original)).map(|(taken, original)| 100.0 * (taken / original - 1.0));
    let figure = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2} %"));
    Ok(Some(vec![
        program.to_owned(),
        format!("{age_s:.0} s"),
        size(Some(gone)),
        size(Some(saved)),
        figure((gone > 0.0).then(|| 100.0 * (saved / gone - 1.0))),
        figure(stats::mean(&slowdown).map(|share| 100.0 * share)),
        figure(measured),
    ]))
}

/// Bytes that would be gone and the share of the time that would be lost, by the curve of a record.
fn predicted(args: &Args, folder: &Path, age_s: f64) -> anyhow::Result<Option<(f64, f64)>> {
    let record = Record::open(folder).with_context(|| format!("{}: compare with --keep", folder.display()))?;
    let meta = record.meta();
    let Some(curve) = record.curve(&record.ages()) else { return Ok(None) };
    let swap_s = args.refault_us.map(|micros| micros * 1e-6).or(meta.refault_costs.swap_s);
    let costs = MeasuredCosts { swap_s, ..meta.refault_costs }.or_usual();
    let point = curve.points.iter().min_by(|a, b| (a.age_s - age_s).abs().total_cmp(&(b.age_s - age_s).abs()));
    Ok(point.map(|point| (point.gone().at, point.slowdown(&costs).at)))
}
