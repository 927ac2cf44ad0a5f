//! `lowtide-bench cost`: what watching costs the watched program, and what lowtide itself uses.

mod long;
mod pairs;

use crate::machine::Machine;
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

/// Runs everything and prints what came of it.
///
/// # Errors
/// If a program is not found or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let machine = Machine::new();
    let rows = if args.pairs > 0 { pairs::run(&args.tools, args.pairs, args.seconds_per_run)? } else { Vec::new() };
    let others_percent = machine.others_percent();
    let long = args.minutes.map(|minutes| long::run(&args.tools, minutes)).transpose()?;
    if args.json {
        println!(
            "{}",
            serde_json::to_string_pretty(
                &serde_json::json!({ "cost": rows, "others_percent": others_percent, "long": long })
            )?
        );
        return Ok(());
    }
    if !rows.is_empty() {
        print!("{}", pairs::text(&rows, others_percent));
    }
    if let Some(long) = long {
        print!("{}", long::text(&long));
    }
    Ok(())
}
