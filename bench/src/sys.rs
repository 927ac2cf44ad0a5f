//! The one file with `unsafe`: system calls that neither std nor rustix wraps safely.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use lowtide_model::units::float;

/// A child that ended, and what its tree used (as far as the tree was waited for).
#[derive(Debug, Clone, Copy)]
pub struct ChildEnd {
    /// The exit code a shell would report.
    pub code: i32,
    /// CPU seconds of the child and all descendants it waited for.
    pub cpu_s: f64,
    /// Largest resident set of any one of them, bytes.
    pub peak_rss_bytes: u64,
}

/// Collects that child if it has ended. Fails if there is no such child.
pub fn collect(pid: u32) -> io::Result<Option<ChildEnd>> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value of that plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable locals for the length of the call.
    let ended = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
    match ended {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Some(ChildEnd {
            code: if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) },
            cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            peak_rss_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
        })),
    }
}

fn seconds(time: libc::timeval) -> f64 {
    float(time.tv_sec) + float(time.tv_usec) / 1e6
}

/// The program gets SIGTERM when this one is killed: monitors and 2 GiB of memory must not stay behind.
pub fn end_with_this(command: &mut Command) {
    let own = rustix::process::getpid();
    let tie = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
        // This program was killed before the call.
        if rustix::process::getppid() != Some(own) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made; nothing allocates or takes a lock.
    unsafe { command.pre_exec(tie) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_collected_with_its_code() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exit 3"]);
        end_with_this(&mut command);
        #[expect(clippy::zombie_processes, reason = "collected by what is tested")]
        let child = command.spawn().unwrap();
        let ended = loop {
            if let Some(ended) = collect(child.id()).unwrap() {
                break ended;
            }
            std::thread::yield_now();
        };
        assert_eq!(ended.code, 3);
        assert!(ended.peak_rss_bytes > 100_000);
        assert!(collect(child.id()).is_err(), "it is gone");
    }
}
