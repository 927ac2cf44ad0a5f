//! Programs that are run to be measured. They are always ended and collected, and every wait has a limit.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal};

use crate::sys::{self, ChildEnd};

/// Between two checks whether a program has ended. Programs measure their own time, so this is not in it.
const CHECK: Duration = Duration::from_millis(20);
/// Time for a program to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// A running program; ended when dropped.
#[derive(Debug)]
pub struct Running {
    name: String,
    pub pid: u32,
    ended: Option<ChildEnd>,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// A program that ended, with its output.
#[derive(Debug)]
pub struct FinishedChild {
    /// Exit code and what it used.
    pub ended: ChildEnd,
    pub stdout: String,
    pub stderr: String,
}

impl Running {
    /// Starts a program. Its output goes into files in `dir`: a pipe that nobody reads would block it.
    pub fn start(mut command: Command, dir: &Path) -> anyhow::Result<Self> {
        let program = command.get_program().to_os_string();
        let name = Path::new(&program).file_name().unwrap_or(&program).to_string_lossy().into_owned();
        let (stdout, stderr) = (dir.join(format!("{name}.stdout")), dir.join(format!("{name}.stderr")));
        command.stdin(Stdio::null()).stdout(File::create(&stdout)?).stderr(File::create(&stderr)?);
        sys::end_with_this(&mut command);
        let child = command.spawn().with_context(|| format!("starting {}", program.to_string_lossy()))?;
        Ok(Self { name, pid: child.id(), ended: None, stdout, stderr })
    }

    pub fn is_running(&mut self) -> io::Result<bool> {
        if self.ended.is_none() {
            self.ended = sys::collect(self.pid)?;
        }
        Ok(self.ended.is_none())
    }

    /// Waits until it has ended and calls `meanwhile` at every check. Ends it and fails after `limit`.
    pub fn wait(mut self, limit: Duration, mut meanwhile: impl FnMut()) -> anyhow::Result<FinishedChild> {
        let start = Instant::now();
        while self.is_running()? {
            if start.elapsed() > limit {
                bail!("{} did not end within {} s", self.name, limit.as_secs());
            }
            meanwhile();
            std::thread::sleep(CHECK);
        }
        let text = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        let ended = self.ended.context("it has ended")?;
        Ok(FinishedChild { ended, stdout: text(&self.stdout), stderr: text(&self.stderr) })
    }

    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    fn signal(&mut self, signal: Signal) {
        // Not collected yet, so the pid is still its own.
        if let (true, Some(pid)) = (self.ended.is_none(), i32::try_from(self.pid).ok().and_then(Pid::from_raw)) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            self.signal(signal);
            let start = Instant::now();
            while start.elapsed() < GRACE {
                if !self.is_running().unwrap_or(false) {
                    return;
                }
                std::thread::sleep(CHECK);
            }
        }
    }
}

impl FinishedChild {
    /// The last line of standard output as JSON: a measured program's figures. Fails with its complaint if it is not JSON.
    pub fn json(&self) -> anyhow::Result<serde_json::Value> {
        let last = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last).with_context(|| format!("status {}: {}", self.ended.code, self.complaint()))
    }

    /// lowtide's error message, or else the first line of standard error.
    pub fn complaint(&self) -> String {
        let mut lines = self.stderr.lines().filter(|line| !line.trim().is_empty());
        let own = self.stderr.lines().find(|line| line.starts_with("lowtide: "));
        own.or_else(|| lines.next()).unwrap_or("no message").to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn outputs_are_kept_apart() {
        let dir = tempfile::tempdir().unwrap();
        let running = Running::start(shell("echo no; echo '{\"a\":1}'; echo bad >&2"), dir.path()).unwrap();
        let finished = running.wait(Duration::from_secs(20), || ()).unwrap();
        assert_eq!(finished.json().unwrap()["a"], 1);
        assert_eq!(finished.complaint(), "bad");
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let running = Running::start(shell("exec sleep 1000"), dir.path()).unwrap();
        let pid = running.pid;
        assert!(running.wait(Duration::from_millis(50), || ()).is_err());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
