//! `lowtide export`: writes a record in another tool's format.

use std::io::BufWriter;
use std::path::PathBuf;

use super::import::failure;
use crate::output;
use lowtide_engine::failure::{Failure, code};
use lowtide_record::Record;
use lowtide_record::atomic::{self, Care};
use lowtide_record::interchange::counts::Intervals;
use lowtide_record::interchange::damo;

/// `--format`
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportFormat {
    /// damon.data, which `damo report` opens
    Damo,
}

/// Write a record in another tool's format
#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// Folder of the record
    record: PathBuf,
    /// Format of the file
    #[arg(long, value_enum, default_value_t = ExportFormat::Damo)]
    format: ExportFormat,
    /// Write to this file
    #[arg(long, short, value_name = "FILE", default_value = "damon.data")]
    output: PathBuf,
    /// Print what was written as JSON on stdout
    #[arg(long)]
    json: bool,
}

/// Writes the record's map.
///
/// # Errors
/// If there is no record or it has no map, or the file cannot be written.
pub fn run(args: &ExportArgs) -> anyhow::Result<i32> {
    lowtide_report::conclude(&args.record).map_err(output::failure)?;
    let record = Record::open(&args.record)?;
    let shown = args.output.display().to_string();
    if record.regions().next().is_none() {
        let why = "the record has no map of regions; only DAMON's monitors make one";
        return Err(Failure::new(code::OTHER, format!("{}: {why}", args.record.display())).into());
    }
    let ExportFormat::Damo = args.format;
    let count = atomic::write_by(&args.output, Care::default(), |file| {
        let mut out = BufWriter::new(file);
        let count = damo::write(record.regions().flatten(), Intervals::of(&record.meta().monitor), &mut out)?;
        let file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        Ok((file, count))
    })
    .map_err(|error| failure(&shown, error))?;
    if args.json {
        let written = serde_json::json!({ "schema": 1, "file": args.output, "snapshots": count });
        output::print(format_args!("{written}\n"))?;
    } else {
        output::note(format_args!("{count} snapshots: {shown}"));
    }
    Ok(0)
}
