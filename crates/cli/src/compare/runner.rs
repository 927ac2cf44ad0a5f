//! One run of one program, or of some together, in one configuration.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{self, Signals};
use lowtide_kernel::undo::{Journal, Lease};
use lowtide_model::summary::Summary;
use lowtide_model::units::Span;
use rustix::process::{Pid, Signal};

use super::outcome::Outcome;
use super::scope;
use super::suite::{Config, Program};
use lowtide_engine::failure;
use lowtide_record::Record;

const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const MIN_TTL: &str = "/sys/kernel/mm/lru_gen/min_ttl_ms";

/// What is run at a time.
#[derive(Debug, Clone)]
pub struct Work<'a> {
    /// What it is called in tables.
    pub name: &'a str,
    /// One program, or several at the same time.
    pub programs: Vec<&'a Program>,
    /// Bytes that they have together; `None` = as much as there is.
    pub limit: Option<u64>,
}

impl Work<'_> {
    /// Each program with what its files are called after.
    fn parts(&self, name: &str) -> Vec<(&Program, String)> {
        let whole = self.limit.is_none();
        let of = |index: usize, program: &str| format!("{name}-{index}-{}", file_name(program));
        let name = |(index, program): (usize, &Program)| if whole { name.to_owned() } else { of(index, &program.name) };
        self.programs.iter().enumerate().map(|(index, program)| (*program, name((index, program)))).collect()
    }
}

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
    pub fn run(&self, work: &Work<'_>, config: &Config, round: u32) -> Result<Outcome, Stop> {
        let name = format!("{}-{}-{round}", file_name(work.name), file_name(&config.name));
        let (program, config_name) = (work.name.to_owned(), config.name.clone());
        let mut outcome = Outcome { program, config: config_name, round, ..Outcome::default() };
        let parts = work.parts(&name);
        let mut result = self.set_up_and_run(work.limit, &parts, config, &name, &mut outcome);
        for (program, name) in &parts {
            let cleared = program.teardown.as_ref().map_or(Ok(()), |line| self.shell(line, name, program.timeout));
            result = result.and(cleared);
        }
        match result {
            Ok(()) => {}
            Err(Stop::Interrupted) => return Err(Stop::Interrupted),
            Err(Stop::Impossible(error)) => return Err(Stop::Impossible(error)),
            Err(stop) => {
                let logs: Vec<String> = parts.iter().map(|(_, name)| self.log(name).display().to_string()).collect();
                outcome.failure = Some(format!("{stop}; see {}", logs.join(", ")));
            }
        }
        Ok(outcome)
    }

    fn set_up_and_run(
        &self,
        limit: Option<u64>,
        parts: &[(&Program, String)],
        config: &Config,
        name: &str,
        outcome: &mut Outcome,
    ) -> Result<(), Stop> {
        let huge = self.kernel.exists(THP).then(|| self.journal.write(Path::new(THP), config.thp.name()));
        let _huge = huge.transpose().map_err(anyhow::Error::from)?;
        let kept = config.min_ttl.map(|ttl| self.journal.write(Path::new(MIN_TTL), &ttl.0.as_millis().to_string()));
        let _kept = kept.transpose().map_err(anyhow::Error::from)?;
        for (program, name) in parts {
            if let Some(line) = &program.setup {
                self.shell(line, name, program.timeout)?;
            }
        }
        if parts.iter().any(|(program, _)| program.drop_caches) {
            self.kernel.write("/proc/sys/vm/drop_caches", "3").map_err(anyhow::Error::from)?;
        }
        let shared = limit.map(|limit| self.shared(limit)).transpose()?;
        let cgroup = shared.as_ref().map(|(cgroup, _)| cgroup);
        let agent = config.agent.as_ref().map(|file| {
            let mut command = Command::new("/proc/self/exe");
            command.arg("agent").arg("--config").arg(file);
            self.beside(command, "the agent", name)
        });
        let other = config.beside.as_ref().map(|line| {
            let mut command = Command::new("sh");
            command.args(["-c", line]).envs(cgroup.map(|cgroup| ("LOWTIDE_CGROUP", &cgroup.path)));
            self.beside(command, "what is to run beside it", name)
        });
        let helpers: Vec<Helper> = agent.into_iter().chain(other).collect::<Result<_, Stop>>()?;
        let commands: Vec<Command> = parts
            .iter()
            .map(|(program, name)| self.command(program, name, config, cgroup))
            .collect::<Result<_, Stop>>()?;
        let timeout = Span(parts.iter().map(|(program, _)| program.timeout.0).sum());
        let started = Instant::now();
        let codes = self.wait(commands, timeout)?;
        let took_s = started.elapsed().as_secs_f64();
        for mut helper in helpers {
            helper.check()?;
        }
        drop(shared);
        outcome.runtime_s = took_s;
        for ((program, name), code) in parts.iter().zip(&codes) {
            let part = Outcome { program: program.name.clone(), config: config.name.clone(), ..Outcome::default() };
            let mut part = Outcome { round: outcome.round, failure: failure::ended(*code), ..part };
            // What was killed leaves a record, too; how far it came says something.
            let collected = self.collect(program, name, limit.is_some(), &mut part);
            if part.failure.is_none() {
                collected?;
            }
            outcome.parts.push(part);
        }
        let failures =
            outcome.parts.iter().filter_map(|part| Some(format!("{} {}", part.program, part.failure.as_ref()?)));
        let failures: Vec<String> = failures.collect();
        if !failures.is_empty() {
            return Err(Stop::Failed(failures.join(", ")));
        }
        if limit.is_none()
            && let Some(only) = outcome.parts.pop()
        {
            *outcome = only;
        }
        Ok(())
    }

    /// `lowtide run` of a program.
    fn command(&self, program: &Program, name: &str, config: &Config, below: Option<&Cgroup>) -> Result<Command, Stop> {
        let record = self.folder.join(name);
        // One that is there was cut short.
        let _ = std::fs::remove_dir_all(&record);
        let mut command = Command::new("/proc/self/exe");
        command.arg("run").arg("--out").arg(&record).args(options(config));
        if let Some(cgroup) = below {
            command.arg("--below").arg(&cgroup.path);
        }
        command.arg("--");
        if let (true, Some(limit)) = (config.scope, config.limit) {
            command.args(scope::words(limit.0, config.no_swap));
        }
        command.args(program.command.words());
        command.stdout(create(&self.printed(name))?).stderr(create(&self.log(name))?).stdin(Stdio::null());
        Ok(command)
    }

    /// A cgroup for programs that share so much memory.
    fn shared(&self, limit: u64) -> Result<(Cgroup, Lease), Stop> {
        let name = format!("lowtide-mix-{}", std::process::id());
        let made = Cgroup::create_own(self.kernel, self.journal, &name).map_err(anyhow::Error::from)?;
        let none = || anyhow::anyhow!("programs cannot share a limit: no memory cgroup is mounted");
        let (cgroup, lease) = made.ok_or_else(none)?;
        cgroup.hand_down(self.kernel).map_err(anyhow::Error::from)?;
        cgroup.set_limit(self.kernel, limit).map_err(anyhow::Error::from)?;
        Ok((cgroup, lease))
    }

    /// What a run left.
    fn collect(&self, program: &Program, name: &str, together: bool, outcome: &mut Outcome) -> Result<(), Stop> {
        let (record, printed) = (self.folder.join(name), self.printed(name));
        let text = std::fs::read_to_string(record.join("summary.json")).map_err(anyhow::Error::from)?;
        let summary: Summary = serde_json::from_str(&text).map_err(anyhow::Error::from)?;
        outcome.take(&summary);
        if together {
            outcome.take_times(&Record::open(&record).map_err(anyhow::Error::from)?.usage());
        }
        if let Some(pattern) = &program.figure {
            let text = String::from_utf8_lossy(&std::fs::read(&printed).map_err(anyhow::Error::from)?).into_owned();
            outcome.figure = figure(pattern, &text);
            if outcome.figure.is_none() {
                return Err(Stop::Failed(format!("printed nothing that matches '{pattern}'")));
            }
        }
        if !self.keep && outcome.failure.is_none() {
            let _ = std::fs::remove_dir_all(&record);
            let _ = std::fs::remove_file(&printed);
            let _ = std::fs::remove_file(self.log(name));
        }
        Ok(())
    }

    /// Starts a helper, which ends with what is returned.
    fn beside(&self, mut command: Command, what: &'static str, name: &str) -> Result<Helper, Stop> {
        let log = self.folder.join(format!("{name}.agent"));
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(create(&log)?);
        sys::prepare_child(&mut command, self.signals, None);
        Ok(Helper { process: Beside(command.spawn().map_err(anyhow::Error::from)?), what, log })
    }

    fn printed(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.out"))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    fn shell(&self, line: &str, name: &str, timeout: Span) -> Result<(), Stop> {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null());
        let log = File::options().create(true).append(true).open(self.log(name)).map_err(anyhow::Error::from)?;
        command.stdout(log.try_clone().map_err(anyhow::Error::from)?).stderr(log);
        match self.wait(vec![command], timeout)?[..] {
            [Some(0)] => Ok(()),
            _ => Err(Stop::Failed(format!("'{line}' failed"))),
        }
    }

    /// Runs commands at the same time, each in a process group of its own, until all have ended, are to end, or have taken
    /// too long. Their exit codes; `None` if one was killed.
    fn wait(&self, commands: Vec<Command>, timeout: Span) -> Result<Vec<Option<i32>>, Stop> {
        let mut running: Vec<Beside> = Vec::new();
        for mut command in commands {
            command.process_group(0);
            sys::prepare_child(&mut command, self.signals, None);
            running.push(Beside(command.spawn().map_err(anyhow::Error::from)?));
        }
        let started = Instant::now();
        loop {
            let ended: Vec<Option<ExitStatus>> = running
                .iter_mut()
                .map(|one| one.0.try_wait())
                .collect::<Result<_, _>>()
                .map_err(anyhow::Error::from)?;
            if let Some(ended) = ended.into_iter().collect::<Option<Vec<ExitStatus>>>() {
                return Ok(ended.iter().map(ExitStatus::code).collect());
            }
            if self.signals.next().map_err(anyhow::Error::from)?.is_some() {
                return Err(Stop::Interrupted);
            }
            if started.elapsed() > timeout.0 {
                return Err(Stop::TooLong(timeout));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A process that ends with what holds it.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// What is at work beside what is compared.
struct Helper {
    process: Beside,
    what: &'static str,
    log: PathBuf,
}

impl Helper {
    /// That it is still at work: without it, the run was another configuration's.
    fn check(&mut self) -> Result<(), Stop> {
        match self.process.0.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(Stop::Failed(format!("{} has ended; see {}", self.what, self.log.display()))),
        }
    }
}

/// Ends a process group: it may tidy up for ten seconds. What has ended is left: its number may be another's by now.
fn end(child: &mut Child) {
    if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
        return;
    }
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
    if let Some(limit) = config.limit.filter(|_| !config.scope) {
        options.extend(["--limit".to_owned(), limit.to_string()]);
    }
    if config.no_swap && !config.scope {
        options.push("--no-swap".to_owned());
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
