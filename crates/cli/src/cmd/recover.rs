//! `lowtide recover`: take back what killed lowtides left in the kernel, and finish a record that was cut short.

use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lowtide_kernel::root::Kernel;
use lowtide_kernel::undo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use lowtide_engine::agent::SILENCE;
use lowtide_engine::failure::code;

use crate::output;

/// Take back what a killed lowtide left in the kernel
#[derive(Debug, clap::Args)]
pub struct RecoverArgs {
    /// Records to finish
    #[arg(value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Wait until standard input is closed, or silent for 5 s, then take back what the process with this number,
    /// this one's parent, left: a watchdog
    #[arg(long, hide = true, value_name = "PID")]
    when_closed: Option<u32>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Waits until the parent ends or hangs. A parent that hangs is killed, as its leases can only be taken back after its end.
/// True if it was.
fn watch(pid: u32) -> bool {
    let parent = rustix::process::getppid().filter(|parent| u32::try_from(parent.as_raw_pid()) == Ok(pid));
    let parent = parent.and_then(|parent| pidfd_open(parent, PidfdFlags::empty()).ok());
    let mut stdin = std::io::stdin();
    let time = Timespec::try_from(SILENCE).ok();
    loop {
        let ready = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], time.as_ref());
        match ready {
            Ok(0) => {
                return parent.is_some_and(|parent| pidfd_send_signal(parent, Signal::KILL).is_ok());
            }
            Err(rustix::io::Errno::INTR) => {}
            _ if matches!(stdin.read(&mut [0; 64]), Ok(0) | Err(_)) => return false,
            _ => {}
        }
    }
}

/// How long a process that is ending may take to let go of its journal.
const ENDING: Duration = Duration::from_secs(5);

/// Waits until the journals of a process are locked no more: of one that ends, one file is closed before another.
fn wait_for_lock(pid: u32) {
    let start = Instant::now();
    while start.elapsed() < ENDING && undo::is_in_use(&undo::folder(), pid) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Takes everything back.
///
/// # Errors
/// If the journals cannot be read.
pub fn run(args: &RecoverArgs) -> anyhow::Result<i32> {
    let mut hung = None;
    if let Some(pid) = args.when_closed {
        hung = watch(pid).then_some(pid);
        wait_for_lock(pid);
    }
    let (mut lines, mut text) = (Vec::new(), String::new());
    let mut failed = false;
    let recovery = undo::recover(&Kernel::default(), &undo::folder())?;
    for live in &recovery.live {
        let by = format!("{} (pid {})", live.command, live.pid);
        let of = |undo| {
            format!("Not taken back yet by {by}, which runs and tries again: {undo}. End it to have it taken back.\n")
        };
        text.extend(live.owed.iter().map(of));
        failed |= !live.owed.is_empty();
        lines.extend(live.owed.iter().map(|undo| {
            let why = "the process that made it runs, and tries again to take it back";
            serde_json::json!({ "pid": live.pid, "command": live.command, "change": undo, "error": why })
        }));
    }
    for error in recovery.unread {
        failed = true;
        text += &format!("What a killed lowtide left may still be there: {error}. Run it again.\n");
        lines.push(serde_json::json!({ "error": error.to_string() }));
    }
    for recovered in recovery.recovered {
        for (undo, result) in recovered.undone {
            failed |= result.is_err();
            let by = format!("left by {} (pid {})", recovered.command, recovered.pid);
            text += &match &result {
                Ok(()) => format!("Took back {undo}, {by}.\n"),
                Err(error) => format!("Could not take back {undo}, {by}: {error}.\n"),
            };
            lines.push(serde_json::json!({
                "pid": recovered.pid,
                "command": recovered.command,
                "change": undo,
                "error": result.err().map(|error| error.to_string()),
            }));
        }
    }
    // Last: a log that nobody reads must not keep a workload frozen.
    if let Some(pid) = hung {
        lowtide_kernel::message!("lowtide: {pid} has hung for {} s: ended", SILENCE.as_secs());
    }
    for record in &args.records {
        let finished = lowtide_record::finish(record)?;
        let now = if finished.now { "Finished" } else { "Was complete:" };
        text += &format!("{now} {}\n", record.display());
        text.extend(finished.warnings.iter().map(|warning| format!("  {warning}\n")));
        lines.push(serde_json::json!({ "record": record, "finished": finished.now, "warnings": finished.warnings }));
    }
    if args.json {
        text = serde_json::json!({ "schema": 1, "recovered": lines }).to_string() + "\n";
    } else if lines.is_empty() {
        "Nothing was left in the kernel.\n".clone_into(&mut text);
    }
    output::print(text)?;
    Ok(if failed { code::OTHER } else { 0 })
}
