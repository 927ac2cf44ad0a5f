//! Starting a program so that nothing of it escapes: in a cgroup of its own, with lowtide as reaper of its orphans.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::process::Command;

use lowtide_kernel::sys::{self, Signals};

use lowtide_engine::failure::{Failure, code};

/// Signals that are passed on to the program when a process sends them to lowtide.
pub const PASSED_ON: [i32; 9] = [
    libc_signal::SIGINT,
    libc_signal::SIGTERM,
    libc_signal::SIGHUP,
    libc_signal::SIGQUIT,
    libc_signal::SIGUSR1,
    libc_signal::SIGUSR2,
    libc_signal::SIGWINCH,
    libc_signal::SIGCONT,
    libc_signal::SIGALRM,
];

/// Numbers of signals on Linux (signal(7)), as rustix names them.
mod libc_signal {
    use rustix::process::Signal;
    pub const SIGINT: i32 = Signal::INT.as_raw();
    pub const SIGTERM: i32 = Signal::TERM.as_raw();
    pub const SIGHUP: i32 = Signal::HUP.as_raw();
    pub const SIGQUIT: i32 = Signal::QUIT.as_raw();
    pub const SIGUSR1: i32 = Signal::USR1.as_raw();
    pub const SIGUSR2: i32 = Signal::USR2.as_raw();
    pub const SIGWINCH: i32 = Signal::WINCH.as_raw();
    pub const SIGCONT: i32 = Signal::CONT.as_raw();
    pub const SIGALRM: i32 = Signal::ALARM.as_raw();
}

/// Starts `command`; in the cgroup whose `cgroup.procs` is given, if any. Returns its pid.
///
/// # Errors
/// With the shell's exit codes: 127 where there is no such command, 126 where it cannot be executed.
pub fn start(command: &[String], procs: Option<&Path>, signals: &Signals) -> anyhow::Result<u32> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let (program, arguments) = command.split_first().ok_or_else(|| Failure::new(code::USAGE, "no command given"))?;
    let mut process = Command::new(program);
    process.args(arguments);
    let procs = procs.map(|path| OpenOptions::new().write(true).open(path)).transpose()?;
    sys::prepare_child(&mut process, signals, procs);
    let child = process.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::new(code::NOT_FOUND, format!("{program}: command not found; check the name and PATH"))
        }
        io::ErrorKind::PermissionDenied => {
            Failure::new(code::NOT_EXECUTABLE, format!("{program}: permission denied; make it executable (chmod +x)"))
        }
        _ => Failure::new(code::NOT_EXECUTABLE, format!("{program}: cannot be executed: {error}")),
    })?;
    // All children are collected by `sys::reap`, this one among them.
    Ok(child.id())
}
