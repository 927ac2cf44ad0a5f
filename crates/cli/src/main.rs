//! The `lowtide` binary.

use std::process::ExitCode;

use clap::Parser;
use lowtide::cmd;
use lowtide_engine::failure;

/// Finds out how much memory a workload really needs
#[derive(Debug, Parser)]
#[command(name = "lowtide", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run a program and record what memory it really uses
    Run(cmd::run::RunArgs),
    /// Record a running process, a cgroup or the whole system
    Record(cmd::record::RecordArgs),
    /// Show a record
    Report(cmd::report::ReportArgs),
    /// Make a record from another tool's recording
    Import(cmd::import::ImportArgs),
    /// Write a record in another tool's format
    Export(cmd::export::ExportArgs),
    /// Check operation schemes, and apply them
    Schemes(cmd::schemes::SchemesArgs),
    /// Show how much memory to give a program
    Budget(cmd::budget::BudgetArgs),
    /// Run programs in several configurations, side by side
    Compare(cmd::compare::CompareArgs),
    /// Try policies on a simulated machine
    Simulate(cmd::simulate::SimulateArgs),
    /// Reclaim from running workloads what they do not need
    Agent(cmd::agent::AgentArgs),
    /// Stop workloads from thrashing: they take turns in memory
    Guard(cmd::guard::GuardArgs),
    /// Replay policies over a fleet's telemetry, and search their settings
    Fleet(cmd::fleet::FleetArgs),
    /// Show what the agent does
    Top(cmd::top::TopArgs),
    /// Tell the agent what is in the background, or in use again
    Hint(cmd::hint::HintArgs),
    /// Show what this machine offers, and how to enable the rest
    Doctor(cmd::doctor::DoctorArgs),
    /// Take back what a killed lowtide left in the kernel
    Recover(cmd::recover::RecoverArgs),
    /// The program that `doctor --calibrate` measures
    #[command(hide = true)]
    CalibrationProgram,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => cmd::run::run(&args),
        Command::Record(args) => cmd::record::run(&args),
        Command::Report(args) => cmd::report::run(&args),
        Command::Import(args) => cmd::import::run(&args),
        Command::Export(args) => cmd::export::run(&args),
        Command::Schemes(args) => cmd::schemes::run(&args),
        Command::Budget(args) => cmd::budget::run(&args),
        Command::Compare(args) => cmd::compare::run(&args),
        Command::Simulate(args) => cmd::simulate::run(&args),
        Command::Agent(args) => cmd::agent::run(&args),
        Command::Guard(args) => cmd::guard::run(&args),
        Command::Fleet(args) => cmd::fleet::run(&args),
        Command::Top(args) => cmd::top::run(&args),
        Command::Hint(args) => cmd::hint::run(&args),
        Command::Doctor(args) => cmd::doctor::run(&args),
        Command::Recover(args) => cmd::recover::run(&args),
        Command::CalibrationProgram => cmd::calibrate::pattern(),
    };
    let code = result.unwrap_or_else(|error| {
        failure::tell(&error);
        failure::exit_code(&error)
    });
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
