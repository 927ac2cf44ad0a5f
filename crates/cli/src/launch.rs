//! Starting a program so that nothing of it escapes: in a cgroup of its own, with lowtide as reaper of its orphans.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use lowtide_engine::failure::{Failure, code};
use lowtide_kernel::sys::{self, Signals};
use rustix::process::Signal;

/// Signals that are passed on to the program when a process sends them to lowtide.
pub const PASSED_ON: [Signal; 9] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::CONT,
    Signal::ALARM,
];

/// Starts `command`; in the cgroup whose `cgroup.procs` is given, if any. Returns its pid.
///
/// # Errors
/// If a signal came that ends lowtide, with 128 and its number. With the shell's exit codes: 127 where there is no such
/// command, 126 where it cannot be executed.
pub fn start(command: &[String], procs: Option<&Path>, signals: &Signals) -> anyhow::Result<u32> {
    interrupted(signals)?;
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).context("lowtide cannot take in the program's orphans")?;
    let (program, arguments) = command.split_first().ok_or_else(|| Failure::new(code::USAGE, "no command given"))?;
    let mut process = Command::new(program);
    process.args(arguments);
    let open = |path: &Path| OpenOptions::new().write(true).open(path).with_context(|| path.display().to_string());
    let procs = procs.map(open).transpose()?;
    sys::prepare_child(&mut process, signals, procs);
    let child = process.spawn().map_err(|error| {
        let (code, why) = match error.kind() {
            io::ErrorKind::NotFound => (code::NOT_FOUND, "command not found; check the name and PATH".to_owned()),
            io::ErrorKind::PermissionDenied => {
                (code::NOT_EXECUTABLE, "permission denied; make it executable (chmod +x)".to_owned())
            }
            _ => (code::NOT_EXECUTABLE, format!("cannot be executed: {error}")),
        };
        Failure::new(code, format!("{program}: {why}"))
    })?;
    // `sys::reap` collects all children, this one too.
    Ok(child.id())
}

/// Fails if a signal came that ends lowtide before there is a program to pass it on to.
fn interrupted(signals: &Signals) -> anyhow::Result<()> {
    while let Some(signal) = signals.next()? {
        if [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].iter().any(|end| end.as_raw() == signal.number) {
            let message = format!("signal {} came before the program was started", signal.number);
            return Err(Failure::new(128 + signal.number, message).into());
        }
    }
    Ok(())
}
