//! One run of one program in one configuration.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{self, Signals};
use lowtide_kernel::undo::Journal;
use lowtide_model::summary::Summary;
use lowtide_model::units::Span;
use rustix::process::{Pid, Signal};

use super::outcome::Outcome;
use super::suite::{Config, Program};

const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Makes runs.
pub struct Runner<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// What is changed for a run is taken back after it.
    pub journal: &'a Journal,
    /// Signals that end the comparison.
    pub signals: &'a Signals,
    /// Folder for what programs print and for records.
    pub folder: PathBuf,
    /// Whether records are kept.
    pub keep: bool,
}

/// Why a run was not made.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// Ctrl-C, or a signal to end.
    #[error("interrupted")]
    Interrupted,
    /// It did not end in time.
    #[error("did not end within {0}")]
    TooLong(Span),
    /// It ended otherwise than well.
    #[error("{0}")]
    Failed(String),
    /// It could not be started, or not be set up.
    #[error(transparent)]
    Impossible(#[from] anyhow::Error),
}

impl Runner<'_> {
    /// Makes one run. A run that fails is an outcome, too; only what ends the comparison is an error.
    ///
    /// # Errors
    /// If the comparison shall end.
    pub fn run(&self, program: &Program, config: &Config, round: u32) -> Result<Outcome, Stop> {
        let name = format!("{}-{}-{round}", file_name(&program.name), file_name(&config.name));
        let mut outcome =
            Outcome { program: program.name.clone(), config: config.name.clone(), round, ..Outcome::default() };
        let result = self.set_up_and_run(program, config, &name, &mut outcome);
        let cleared = program.teardown.as_ref().map_or(Ok(()), |line| self.shell(line, &name, program.timeout));
        match result.and(cleared) {
            Ok(()) => {}
            Err(Stop::Interrupted) => return Err(Stop::Interrupted),
            Err(Stop::Impossible(error)) => return Err(Stop::Impossible(error)),
            Err(stop) => outcome.failure = Some(format!("{stop}; see {}", self.log(&name).display())),
        }
        Ok(outcome)
    }

    fn set_up_and_run(
        &self,
        program: &Program,
        config: &Config,
        name: &str,
        outcome: &mut Outcome,
    ) -> Result<(), Stop> {
        let huge = self.kernel.exists(THP).then(|| self.journal.write(Path::new(THP), config.thp.name()));
        let _huge = huge.transpose().map_err(anyhow::Error::from)?;
        if let Some(line) = &program.setup {
            self.shell(line, name, program.timeout)?;
        }
        if program.drop_caches {
            self.kernel.write("/proc/sys/vm/drop_caches", "3").map_err(anyhow::Error::from)?;
        }
        let record = self.folder.join(name);
        // One that is there was cut short.
        let _ = std::fs::remove_dir_all(&record);
        let printed = self.folder.join(format!("{name}.out"));
        let mut command = Command::new("/proc/self/exe");
        command.arg("run").arg("--out").arg(&record).args(options(config)).arg("--").args(program.command.words());
        command.stdout(create(&printed)?).stderr(create(&self.log(name))?).stdin(Stdio::null());
        let agent = config.agent.as_ref().map(|file| self.agent(file, name)).transpose()?;
        let code = self.wait(command, program.timeout)?;
        if let Some(mut agent) = agent {
            agent.check()?;
        }
        if code != Some(0) {
            let how = code.map_or_else(|| "was killed".to_owned(), |code| format!("ended with exit code {code}"));
            return Err(Stop::Failed(how));
        }
        let text = std::fs::read_to_string(record.join("summary.json")).map_err(anyhow::Error::from)?;
        let summary: Summary = serde_json::from_str(&text).map_err(anyhow::Error::from)?;
        outcome.take(&summary);
        if let Some(pattern) = &program.figure {
            let text = String::from_utf8_lossy(&std::fs::read(&printed).map_err(anyhow::Error::from)?).into_owned();
            outcome.figure = figure(pattern, &text);
            if outcome.figure.is_none() {
                return Err(Stop::Failed(format!("printed nothing that matches '{pattern}'")));
            }
        }
        if !self.keep {
            let _ = std::fs::remove_dir_all(&record);
            let _ = std::fs::remove_file(&printed);
            let _ = std::fs::remove_file(self.log(name));
        }
        Ok(())
    }

    /// Starts an agent, which ends with what is returned.
    fn agent(&self, file: &Path, name: &str) -> Result<Beside, Stop> {
        let log = self.folder.join(format!("{name}.agent"));
        let mut command = Command::new("/proc/self/exe");
        command.arg("agent").arg("--config").arg(file).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(create(&log)?);
        sys::before_exec(&mut command, self.signals.unblock_in_child());
        Ok(Beside { child: command.spawn().map_err(anyhow::Error::from)?, log })
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    fn shell(&self, line: &str, name: &str, timeout: Span) -> Result<(), Stop> {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null());
        let log = File::options().create(true).append(true).open(self.log(name)).map_err(anyhow::Error::from)?;
        command.stdout(log.try_clone().map_err(anyhow::Error::from)?).stderr(log);
        match self.wait(command, timeout)? {
            Some(0) => Ok(()),
            _ => Err(Stop::Failed(format!("'{line}' failed"))),
        }
    }

    /// Runs a command in a process group of its own until it ends, is to end, or has taken too long. Its exit code;
    /// `None` if it was killed.
    fn wait(&self, mut command: Command, timeout: Span) -> Result<Option<i32>, Stop> {
        command.process_group(0);
        sys::before_exec(&mut command, self.signals.unblock_in_child());
        let mut child = command.spawn().map_err(anyhow::Error::from)?;
        let started = Instant::now();
        loop {
            if let Some(status) = child.try_wait().map_err(anyhow::Error::from)? {
                return Ok(status.code());
            }
            let stop = if self.signals.next().map_err(anyhow::Error::from)?.is_some() {
                Some(Stop::Interrupted)
            } else {
                (started.elapsed() > timeout.0).then_some(Stop::TooLong(timeout))
            };
            if let Some(stop) = stop {
                end(&mut child);
                return Err(stop);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A program that runs beside the one that is compared.
struct Beside {
    child: Child,
    log: PathBuf,
}

impl Beside {
    /// That it is still at work: without it, the run was another configuration's.
    fn check(&mut self) -> Result<(), Stop> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(Stop::Failed(format!("the agent has ended; see {}", self.log.display()))),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends a process group: it may tidy up for ten seconds.
fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    for signal in [Signal::TERM, Signal::KILL] {
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, signal);
        }
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_secs(10) {
            if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn create(path: &Path) -> Result<File, Stop> {
    Ok(File::create(path).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?)
}

/// Options of `lowtide run` for a configuration.
fn options(config: &Config) -> Vec<String> {
    let mut options = Vec::new();
    let default = if config.schemes.is_empty() { "none" } else { "auto" };
    options.extend(["--monitor".to_owned(), config.monitor.clone().unwrap_or_else(|| default.to_owned())]);
    for scheme in &config.schemes {
        options.extend(["--scheme".to_owned(), scheme.clone()]);
    }
    if let Some(limit) = config.limit {
        options.extend(["--limit".to_owned(), limit.to_string()]);
    }
    if let Some(most) = &config.max_overhead {
        options.extend(["--max-overhead".to_owned(), most.clone()]);
    }
    options
}

/// The last match of a pattern's group that is a number.
fn figure(pattern: &str, text: &str) -> Option<f64> {
    let regex = regex::Regex::new(pattern).ok()?;
    regex.captures_iter(text).filter_map(|found| found.get(1)?.as_str().replace(',', "").parse().ok()).last()
}

/// A name as part of a file name.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::suite;

    #[test]
    fn the_last_figure_counts() {
        assert_eq!(figure("rate ([0-9.,]+)", "rate 1.5\nrate 2,000.5\n"), Some(2000.5));
        assert_eq!(figure("rate ([0-9.,]+)", "none"), None);
    }

    #[test]
    fn configurations_become_options() {
        let of = |name: &str| options(&suite::builtin(name).unwrap()).join(" ");
        assert_eq!(of("orig"), "--monitor none");
        assert_eq!(of("rec"), "--monitor auto");
        assert_eq!(of("prcl"), "--monitor auto --scheme prcl");
    }
}
