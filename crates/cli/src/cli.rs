//! The command line's grammar: what is parsed, and which command takes it.

use clap::Parser;

use crate::cmd;
use crate::output::StyleArgs;
use lowtide_model::units::Size;
use lowtide_record::limit;

/// Finds out how much memory a workload really needs
#[derive(Debug, Parser)]
#[command(name = "lowtide", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    style: StyleArgs,
    /// Memory that a table of a record, or a recording of another tool, may take when it is read
    #[arg(long, global = true, value_name = "SIZE", default_value_t = Size(limit::USUAL), hide = true)]
    max_input: Size,
}

/// The commands; each is described where its arguments are.
#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(cmd::run::RunArgs),
    Record(cmd::record::RecordArgs),
    Watch(cmd::watch::LiveArgs),
    Report(cmd::report::ReportArgs),
    Import(cmd::import::ImportArgs),
    Export(cmd::export::ExportArgs),
    Schemes(cmd::schemes::SchemesArgs),
    Budget(cmd::budget::BudgetArgs),
    Compare(cmd::compare::CompareArgs),
    Simulate(cmd::simulate::SimulateArgs),
    Agent(cmd::agent::AgentArgs),
    Guard(cmd::guard::GuardArgs),
    Fleet(cmd::fleet::FleetArgs),
    Top(cmd::top::TopArgs),
    Hint(cmd::hint::HintArgs),
    Seff(cmd::seff::SeffArgs),
    Doctor(cmd::doctor::DoctorArgs),
    Recover(cmd::recover::RecoverArgs),
    Completions(cmd::completions::CompletionsArgs),
    /// The program that `doctor --calibrate` measures
    #[command(hide = true)]
    CalibrationProgram,
}

impl Cli {
    /// Runs the command. Its exit code.
    ///
    /// # Errors
    /// As the command.
    pub fn run(self) -> anyhow::Result<i32> {
        self.style.set();
        limit::set(self.max_input.0);
        match self.command {
            Command::Run(args) => cmd::run::run(&args),
            Command::Record(args) => cmd::record::run(&args),
            Command::Watch(args) => cmd::watch::run(&args),
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
            Command::Seff(args) => cmd::seff::run(&args),
            Command::Completions(args) => cmd::completions::run(&args),
            Command::Doctor(args) => cmd::doctor::run(&args),
            Command::Recover(args) => cmd::recover::run(&args),
            Command::CalibrationProgram => cmd::calibrate::pattern(),
        }
    }
}
