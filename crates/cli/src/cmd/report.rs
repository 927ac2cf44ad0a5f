//! `lowtide report`: shows a record.

use std::path::PathBuf;

use lowtide_model::units::Span;
use lowtide_record::{Record, StoreError};
use lowtide_report::{Choices, Convention, ReportError, ReportOptions, View};

use crate::output::OutputArgs;

/// Show a record
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Folder of the record, as made by `lowtide run` or `lowtide record`
    record: PathBuf,
    /// What to show
    #[arg(value_enum, default_value_t)]
    view: View,
    #[command(flatten)]
    output: OutputArgs,
    /// Only this process (heatmap, regions, workingset by damo's rule)
    #[arg(long)]
    pid: Option<u32>,
    /// By whose rule it is calculated (workingset, heatmap)
    #[arg(long, value_enum, default_value_t = Convention::Lowtide)]
    rule: Convention,
    /// The snapshot at this time since the start, for example 30s or 2m (regions)
    #[arg(long, value_name = "TIME")]
    at: Option<Span>,
    #[command(flatten)]
    damo: Choices,
}

/// Shows the record; finishes it first where its recorder was killed.
///
/// # Errors
/// If there is no record, it does not hold the view, or view and format do not go together.
pub fn run(args: &ReportArgs) -> anyhow::Result<i32> {
    match lowtide_report::conclude(&args.record) {
        Ok(_) => {}
        Err(ReportError::Store(error @ StoreError::NotARecord { .. })) => return Err(error.into()),
        Err(ReportError::Store(StoreError::Live(_))) => {
            lowtide_kernel::message!("lowtide: still being recorded; shown as far as it is")
        }
        // A record on a full or read-only disk can be read all the same.
        Err(error) => lowtide_kernel::message!("lowtide: the record could not be finished: {error}"),
    }
    let record = Record::open(&args.record)?;
    args.output.print(|format, terminal, out| {
        let at_s = args.at.map(|at| at.0.as_secs_f64());
        let options = ReportOptions { pid: args.pid, at_s, rule: args.rule, damo: args.damo.clone(), terminal };
        lowtide_report::write(&record, (args.view, format), &options, out)
    })?;
    record.warnings().iter().for_each(|warning| lowtide_kernel::message!("lowtide: {warning}"));
    Ok(0)
}
