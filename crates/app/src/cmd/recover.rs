//! `lowtide recover`: take back what killed lowtides left in the kernel, and finish a record that was cut short.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lowtide_kernel::root::Kernel;
use lowtide_kernel::undo;
use rustix::fs::{FlockOperation, flock};

use crate::failure::code;
use crate::store;

/// `lowtide recover`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Records to finish
    #[arg(value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Wait until standard input is closed, then take back what the process with this number left: a watchdog
    #[arg(long, hide = true, value_name = "PID")]
    when_closed: Option<u32>,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

/// How long a process that is ending may take to let go of its journal.
const ENDING: Duration = Duration::from_secs(5);

/// Waits until a journal is locked no more, or not there: of a process that ends, one file is closed before another.
fn wait_for_lock(pid: u32) {
    let path = undo::folder().join(format!("{pid}.journal"));
    let start = Instant::now();
    while start.elapsed() < ENDING {
        match File::open(&path) {
            Ok(file) if flock(&file, FlockOperation::NonBlockingLockShared).is_err() => {}
            _ => return,
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Takes everything back.
///
/// # Errors
/// If the journals cannot be read.
pub fn run(args: &Args) -> anyhow::Result<i32> {
    if let Some(pid) = args.when_closed {
        // Whoever holds the other end is gone, however that came about.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        wait_for_lock(pid);
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
