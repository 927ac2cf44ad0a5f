//! `lowtide-bench cost`: slowdown of a watched program, and what lowtide itself uses.

mod long;
mod pairs;

use serde::Serialize;

use crate::grid;
use crate::tools::Tools;

#[derive(Debug, clap::Args)]
pub struct CostArgs {
    #[command(flatten)]
    tools: Tools,
    /// Pairs of runs, one without and one with lowtide, for each program
    #[arg(long, value_name = "N", default_value_t = 10)]
    pairs: u32,
    /// Seconds of a run without lowtide, about
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    seconds_per_run: f64,
    /// Also watch the 2 GiB pattern for so many minutes: lowtide's own memory and the record's size minute by minute
    #[arg(long, value_name = "N")]
    minutes: Option<f64>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    cost: Option<pairs::Pairs>,
    long: Option<long::Long>,
}

/// Runs everything and prints the figures. What cannot run here is skipped, with the reason.
pub fn run(args: &CostArgs) -> anyhow::Result<()> {
    let cost = (args.pairs > 0).then(|| pairs::run(&args.tools, args.pairs, args.seconds_per_run)).transpose()?;
    let long = args.minutes.map(|minutes| long::run(&args.tools, minutes)).transpose()?;
    let report = Report { cost, long };
    grid::print(args.json, &report, || {
        let cost = report.cost.as_ref().map_or_else(String::new, pairs::text);
        cost + &report.long.as_ref().map_or_else(String::new, long::text)
    })
}
