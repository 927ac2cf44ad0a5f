//! `lowtide-bench cost`: what watching costs the watched program, and what lowtide itself uses.

mod long;
mod pairs;

use serde::Serialize;

use crate::tools::Tools;

/// `cost`
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    tools: Tools,
    /// Pairs of runs, one without and one with lowtide, for each program
    #[arg(long, value_name = "N", default_value_t = 10)]
    pairs: u32,
    /// Each run takes about so long without lowtide
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    seconds_per_run: f64,
    /// Also watch the 2 GiB pattern for so long: lowtide's own memory and the record's size minute by minute
    #[arg(long, value_name = "N")]
    minutes: Option<f64>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct Report {
    cost: Option<pairs::Pairs>,
    long: Option<long::Long>,
}

/// Runs everything and prints what came of it.
///
/// # Errors
/// If a program or a pattern is not found, or the long watch fails. What cannot run here is skipped, with the reason.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let cost = (args.pairs > 0).then(|| pairs::run(&args.tools, args.pairs, args.seconds_per_run)).transpose()?;
    let long = args.minutes.map(|minutes| long::run(&args.tools, minutes)).transpose()?;
    let report = Report { cost, long };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    print!("{}", report.cost.as_ref().map_or_else(String::new, pairs::text));
    print!("{}", report.long.as_ref().map_or_else(String::new, long::text));
    Ok(())
}
