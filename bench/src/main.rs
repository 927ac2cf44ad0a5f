//! `lowtide-bench`: how exact lowtide is, what it costs, and how other tools fare on the same programs. It prints
//! figures and passes no judgement: what a machine is capable of is not a test.

mod accuracy;
mod child;
mod cost;
mod coverage;
mod fidelity;
mod fits;
mod fleet;
mod grid;
mod histogram;
mod instructions;
mod loads;
mod machine;
mod mixes;
mod peers;
mod ranges;
mod reads;
mod recount;
mod simulated;
mod sys;
mod tools;
mod truth;

use std::process::ExitCode;

use clap::Parser;

/// Measures how exact lowtide is and what it costs
#[derive(Debug, Parser)]
#[command(name = "lowtide-bench", version, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Hold lowtide's figures against programs whose memory use is known exactly
    Accuracy(accuracy::Args),
    /// Time programs with and without lowtide
    Cost(cost::Args),
    /// Count how often the intervals that lowtide prints hold the truth, on simulated programs
    Coverage(coverage::Args),
    /// Watch the same programs by other tools
    Peers(peers::Args),
    /// Count instructions of what lowtide does, in a guest whose clock counts them
    Instructions(instructions::Args),
    /// Measure what reading the kernel costs: generations of many cgroups, regions of DAMON
    Reads(reads::Args),
    /// Count what a program uses within a time, by paging all of it out and counting what comes back
    Recount(recount::Args),
    /// Hold what the tide curve predicted against what happened
    Fidelity(fidelity::Args),
    /// Run the simulated machine: how fast it is, how honest the tide curve's band
    Simulated(simulated::Args),
    /// Replay a simulated fleet: how fast, how true, and how good a search is
    Fleet(fleet::Args),
    /// Guard random mixes of programs on simulated machines that are short of memory, and healthy ones
    Mixes(mixes::Args),
    /// Compute for so many rounds (a program for `cost`)
    Spin {
        /// How many
        rounds: u64,
    },
    /// Map memory and start processes, so many rounds (a program for `cost`)
    Churn {
        /// How many
        rounds: u64,
    },
    /// Run a program and add its CPU time to what it tells (for `cost`)
    #[command(hide = true)]
    Timed {
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Do nothing (what `churn` starts)
    #[command(hide = true)]
    Nothing,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Accuracy(args) => accuracy::run(&args),
        Command::Cost(args) => cost::run(&args),
        Command::Coverage(args) => coverage::run(&args),
        Command::Peers(args) => peers::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Reads(args) => reads::run(&args),
        Command::Recount(args) => recount::run(&args),
        Command::Fidelity(args) => fidelity::run(&args),
        Command::Simulated(args) => simulated::run(&args),
        Command::Fleet(args) => fleet::run(&args),
        Command::Mixes(args) => mixes::run(&args),
        Command::Spin { rounds } => loads::spin(rounds),
        Command::Churn { rounds } => loads::churn(rounds),
        Command::Timed { command } => loads::timed(&command),
        Command::Nothing => Ok(()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lowtide-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
