//! `lowtide recover`: take back what killed lowtides left in the kernel, and finish a record that was cut short.

use std::path::PathBuf;

use lowtide_kernel::root::Kernel;
use lowtide_kernel::undo;

use crate::failure::code;
use crate::store;

/// `lowtide recover`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Records to finish
    #[arg(value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Wait until standard input is closed, then take everything back: a watchdog
    #[arg(long, hide = true)]
    when_closed: bool,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// Takes everything back.
///
/// # Errors
/// If the journals cannot be read.
pub fn run(args: &Args) -> anyhow::Result<i32> {
    if args.when_closed {
        // Whoever holds the other end is gone, however that came about.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    }
    let mut lines = Vec::new();
    let mut failed = false;
    for recovered in undo::recover(&Kernel::default(), &undo::folder())? {
        for (undo, result) in recovered.undone {
            failed |= result.is_err();
            lines.push(serde_json::json!({
                "pid": recovered.pid,
                "command": recovered.command,
                "change": undo,
                "error": result.err().map(|error| error.to_string()),
            }));
        }
    }
    for record in &args.records {
        let finished = store::finish(record)?;
        lines.push(serde_json::json!({ "record": record, "finished": finished.now, "warnings": finished.warnings }));
    }
    if args.json {
        println!("{}", serde_json::json!({ "schema": 1, "recovered": lines }));
    } else if lines.is_empty() {
        println!("Nothing was left in the kernel.");
    } else {
        for line in &lines {
            println!("{line}");
        }
    }
    Ok(if failed { code::OTHER } else { 0 })
}
