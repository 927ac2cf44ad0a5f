//! Programs that are run to be measured: never left behind, never waited for without end.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal};

use crate::sys::{self, Ended};

/// Between two looks whether a program has ended. Times are measured by the programs themselves, so this is not in them.
const LOOK: Duration = Duration::from_millis(20);
/// A program that was told to end gets so long.
const GRACE: Duration = Duration::from_secs(10);

/// A running program; told to end when dropped.
#[derive(Debug)]
pub struct Running {
    name: String,
    pid: u32,
    ended: Option<Ended>,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// A program that ended, with what it said.
#[derive(Debug)]
pub struct Finished {
    /// Exit code and what it used.
    pub ended: Ended,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Running {
    /// Starts a program; what it says goes into files in `dir`, as a pipe that nobody reads would stop it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(mut command: Command, dir: &Path) -> anyhow::Result<Self> {
        let program = command.get_program().to_os_string();
        let name = Path::new(&program).file_name().unwrap_or(&program).to_string_lossy().into_owned();
        let (stdout, stderr) = (dir.join(format!("{name}.stdout")), dir.join(format!("{name}.stderr")));
        command.stdin(Stdio::null()).stdout(File::create(&stdout)?).stderr(File::create(&stderr)?);
        sys::dies_with_us(&mut command);
        let child = command.spawn().with_context(|| format!("starting {}", program.to_string_lossy()))?;
        Ok(Self { name, pid: child.id(), ended: None, stdout, stderr })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn is_running(&mut self) -> io::Result<bool> {
        if self.ended.is_none() {
            self.ended = sys::collect(self.pid)?;
        }
        Ok(self.ended.is_none())
    }

    /// Waits until it has ended, at most `limit`; calls `meanwhile` again and again.
    ///
    /// # Errors
    /// If it takes longer (it is ended then).
    pub fn wait(mut self, limit: Duration, mut meanwhile: impl FnMut()) -> anyhow::Result<Finished> {
        let start = Instant::now();
        while self.is_running()? {
            if start.elapsed() > limit {
                bail!("{} did not end within {} s", self.name, limit.as_secs());
            }
            meanwhile();
            std::thread::sleep(LOOK);
        }
        let said = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        let ended = self.ended.context("it has ended")?;
        Ok(Finished { ended, stdout: said(&self.stdout), stderr: said(&self.stderr) })
    }

    /// Tells it to end.
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
                std::thread::sleep(LOOK);
            }
        }
    }
}

impl Finished {
    /// The last line of standard output as JSON, which is how programs to be measured tell their figures.
    ///
    /// # Errors
    /// If it is not JSON; says what the program said instead.
    pub fn json(&self) -> anyhow::Result<serde_json::Value> {
        let last = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last).with_context(|| format!("status {}: {}", self.ended.code, self.complaint()))
    }

    /// The first line of what it complained about.
    #[must_use]
    pub fn complaint(&self) -> String {
        let mut lines = self.stderr.lines().filter(|line| !line.trim().is_empty());
        let own = self.stderr.lines().find(|line| line.starts_with("lowtide: "));
        own.or_else(|| lines.next()).unwrap_or("it said nothing").to_owned()
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
    fn what_a_program_says_is_kept_apart() {
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
        let pid = running.pid();
        assert!(running.wait(Duration::from_millis(50), || ()).is_err());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
