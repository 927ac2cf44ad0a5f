//! `lowtide-bench`: how exact lowtide is, what it costs, and how it compares to other tools on the same programs. It
//! prints figures and has no thresholds: they depend on the machine.

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
mod kdamonds;
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
    /// Compare lowtide's figures to programs whose memory use is known exactly
    Accuracy(accuracy::AccuracyArgs),
    /// Time programs with and without lowtide
    Cost(cost::CostArgs),
    /// Count how often the intervals that lowtide prints hold the truth, on simulated programs
    Coverage(coverage::CoverageArgs),
    /// Watch the same programs by other tools
    Peers(peers::PeersArgs),
    /// Count the instructions of lowtide's work, in a guest whose clock counts them
    Instructions(instructions::InstructionsArgs),
    /// Measure what reading the kernel costs: generations of many cgroups, regions of DAMON
    Reads(reads::ReadsArgs),
    /// Count what a program uses within a time: page all of it out and count what is mapped again
    Recount(recount::RecountArgs),
    /// Compare what the tide curve predicted to what happened
    Fidelity(fidelity::FidelityArgs),
    /// Run the simulated machine: its speed, and how often the tide curve's band holds the truth
    Simulated(simulated::SimulatedArgs),
    /// Replay a simulated fleet: speed, accuracy, and quality of the search
    Fleet(fleet::FleetBenchArgs),
    /// Guard random mixes of programs on simulated machines that are short of memory, and healthy ones
    Mixes(mixes::MixesArgs),
    /// Compute for N rounds (a program for `cost`)
    Spin {
        /// N
        rounds: u64,
    },
    /// Map memory and start processes, N rounds (a program for `cost`)
    Churn {
        /// N
        rounds: u64,
    },
    /// Run a program and add its CPU time to the figures it prints (for `cost`)
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
    let done = match Cli::parse().command {
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
    if let Err(error) = done {
        eprintln!("lowtide-bench: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
