//! One run of one program, or of several together, in one configuration.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use lowtide_engine::failure;
use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{self, Signals};
use lowtide_kernel::undo::{Journal, Lease};
use lowtide_model::ledger;
use lowtide_model::summary::Summary;
use lowtide_model::units::Span;
use lowtide_record::Record;
use rustix::process::{Pid, Signal};

use super::outcome::RunOutcome;
use super::scope;
use super::suite::{Configuration, Program};
use crate::session::file_name;

const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const MIN_TTL: &str = "/sys/kernel/mm/lru_gen/min_ttl_ms";
/// An agent starts within this time.
const STARTS: Duration = Duration::from_secs(30);

/// What runs at a time.
#[derive(Debug, Clone)]
pub struct RunSpec<'a> {
    /// Its name in tables.
    pub name: &'a str,
    /// One program, or several at the same time.
    pub programs: Vec<&'a Program>,
    /// The memory limit that several share, bytes; `None` of one.
    pub limit: Option<u64>,
}

/// A program with the name of its files.
struct Member<'a> {
    program: &'a Program,
    name: String,
}

impl RunSpec<'_> {
    fn members(&self, name: &str) -> Vec<Member<'_>> {
        let file = |index: usize, program: &str| match self.limit {
            None => name.to_owned(),
            Some(_) => format!("{name}-{index}-{}", file_name(program)),
        };
        let programs = self.programs.iter().enumerate();
        programs.map(|(index, program)| Member { program, name: file(index, &program.name) }).collect()
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

/// Why a run was not completed, where its setup did not fail.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// A signal ends the comparison.
    #[error("interrupted")]
    Interrupted,
    /// It took longer than its timeout.
    #[error("did not end within {0}")]
    TooLong(Span),
    /// It failed.
    #[error("{0}")]
    Failed(String),
}

impl Stop {
    /// Whether an error is a signal that ends the comparison.
    #[must_use]
    pub fn is_interrupted(error: &anyhow::Error) -> bool {
        matches!(error.downcast_ref(), Some(Self::Interrupted))
    }
}

impl Runner<'_> {
    /// Makes one run. A run that fails is an outcome, too; only what ends the comparison is an error.
    ///
    /// # Errors
    /// If a run cannot be set up, or a signal ends the comparison.
    pub fn run(&self, spec: &RunSpec<'_>, config: &Configuration, round: u32) -> anyhow::Result<RunOutcome> {
        let name = format!("{}-{}-{round}", file_name(spec.name), file_name(&config.name));
        let (program, config_name) = (spec.name.to_owned(), config.name.clone());
        let mut outcome = RunOutcome { program, config: config_name, round, ..RunOutcome::default() };
        let mut result = self.measure(spec, config, &name, &mut outcome);
        let members = spec.members(&name);
        for member in &members {
            if let Some(line) = &member.program.teardown {
                result = result.and(self.shell(line, member));
            }
        }
        match result.as_ref().map_err(anyhow::Error::downcast_ref) {
            Ok(()) => Ok(outcome),
            Err(Some(stop @ (Stop::TooLong(_) | Stop::Failed(_)))) => {
                let logs: Vec<String> = members.iter().map(|one| self.log(&one.name).display().to_string()).collect();
                Ok(RunOutcome { failure: Some(format!("{stop}; see {}", logs.join(", "))), ..outcome })
            }
            Err(_) => result.map(|()| outcome),
        }
    }

    /// Sets the machine up for a run; what is changed is taken back with the leases.
    fn set_up(&self, members: &[Member<'_>], config: &Configuration) -> anyhow::Result<Vec<Lease>> {
        let mut leases = Vec::new();
        if self.kernel.exists(THP) {
            leases.push(self.journal.write(Path::new(THP), config.thp.name())?);
        }
        if let Some(ttl) = config.min_ttl {
            leases.push(self.journal.write(Path::new(MIN_TTL), &ttl.0.as_millis().to_string())?);
        }
        for member in members {
            if let Some(line) = &member.program.setup {
                self.shell(line, member)?;
            }
        }
        if members.iter().any(|member| member.program.drop_caches) {
            self.kernel.write("/proc/sys/vm/drop_caches", "3")?;
        }
        Ok(leases)
    }

    fn measure(
        &self,
        spec: &RunSpec<'_>,
        config: &Configuration,
        name: &str,
        outcome: &mut RunOutcome,
    ) -> anyhow::Result<()> {
        let members = spec.members(name);
        let _leases = self.set_up(&members, config)?;
        let shared = spec.limit.map(|limit| self.shared(limit)).transpose()?;
        let cgroup = shared.as_ref().map(|(cgroup, _)| cgroup);
        let mut helpers = self.helpers(config, cgroup, name)?;
        let commands = members.iter().map(|member| self.command(member, config, cgroup));
        let commands = commands.collect::<anyhow::Result<Vec<Command>>>()?;
        let timeout = Span(members.iter().map(|member| member.program.timeout.0).sum());
        let started = Instant::now();
        let codes = self.wait(commands, timeout)?;
        outcome.runtime_s = started.elapsed().as_secs_f64();
        helpers.iter_mut().try_for_each(Helper::check)?;
        drop(helpers);
        drop(shared);
        let mut failures = Vec::new();
        for (member, code) in members.iter().zip(&codes) {
            let mut part = RunOutcome {
                program: member.program.name.clone(),
                config: config.name.clone(),
                round: outcome.round,
                failure: failure::ended(*code),
                ..RunOutcome::default()
            };
            // What was killed leaves a record, too, of what it used until then.
            let collected = self.collect(member, spec.limit.is_some(), &mut part);
            match &part.failure {
                Some(why) => failures.push(format!("{} {why}", part.program)),
                None => collected?,
            }
            outcome.parts.push(part);
        }
        if !failures.is_empty() {
            anyhow::bail!(Stop::Failed(failures.join(", ")));
        }
        if spec.limit.is_none()
            && let Some(only) = outcome.parts.pop()
        {
            *outcome = only;
        }
        Ok(())
    }

    /// `lowtide run` of a program.
    fn command(&self, member: &Member<'_>, config: &Configuration, below: Option<&Cgroup>) -> anyhow::Result<Command> {
        let record = self.folder.join(&member.name);
        // The record of an interrupted run.
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
        command.args(member.program.command.words()).stdin(Stdio::null());
        command.stdout(create(&self.printed(&member.name))?).stderr(create(&self.log(&member.name))?);
        Ok(command)
    }

    /// A cgroup for programs that share a limit.
    fn shared(&self, limit: u64) -> anyhow::Result<(Cgroup, Lease)> {
        let name = format!("lowtide-mix-{}", std::process::id());
        let made = Cgroup::create_own(self.kernel, self.journal, &name)?;
        let (cgroup, lease) = made.context("programs cannot share a limit: no memory cgroup is mounted")?;
        cgroup.hand_down(self.kernel)?;
        cgroup.set_limit(self.kernel, limit)?;
        Ok((cgroup, lease))
    }

    /// Reads what a run left, and removes it where it need not be kept.
    fn collect(&self, member: &Member<'_>, together: bool, outcome: &mut RunOutcome) -> anyhow::Result<()> {
        let (record, printed) = (self.folder.join(&member.name), self.printed(&member.name));
        let summary: Summary = serde_json::from_str(&std::fs::read_to_string(record.join("summary.json"))?)?;
        outcome.take(&summary);
        let usage = Record::open(&record)?.usage();
        outcome.kept_bytes = ledger::kept_bytes(&usage);
        if together {
            outcome.take_times(&usage);
        }
        if let Some(pattern) = &member.program.figure {
            outcome.figure = figure(pattern, &String::from_utf8_lossy(&std::fs::read(&printed)?));
            if outcome.figure.is_none() {
                anyhow::bail!(Stop::Failed(format!("printed nothing that matches '{pattern}'")));
            }
        }
        if !self.keep && outcome.failure.is_none() {
            let _ = std::fs::remove_dir_all(&record);
            let _ = std::fs::remove_file(&printed);
            let _ = std::fs::remove_file(self.log(&member.name));
        }
        Ok(())
    }

    /// Starts what the configuration has beside the programs; each ends with what is returned.
    fn helpers(&self, config: &Configuration, cgroup: Option<&Cgroup>, name: &str) -> anyhow::Result<Vec<Helper>> {
        let agent = config.agent.as_ref().map(|file| {
            let mut command = Command::new("/proc/self/exe");
            command.arg("agent").arg("--config").arg(file);
            ("the agent", command)
        });
        let other = config.beside.as_ref().map(|line| {
            let mut command = Command::new("sh");
            command.args(["-c", line]).envs(cgroup.map(|cgroup| ("LOWTIDE_CGROUP", &cgroup.path)));
            ("what is to run beside it", command)
        });
        let start = |(what, mut command): (&'static str, Command)| {
            let log = self.folder.join(format!("{name}.agent"));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(create(&log)?);
            Ok(Helper { process: self.spawn(command)?, what, log })
        };
        let mut agent = agent.map(start).transpose()?;
        if let Some(agent) = &mut agent {
            self.wait_for(agent)?;
        }
        agent.into_iter().map(Ok).chain(other.map(start)).collect()
    }

    /// Waits until an agent logs that it has started, so that programs start beside one that runs.
    fn wait_for(&self, agent: &mut Helper) -> anyhow::Result<()> {
        let waits = Instant::now();
        while !std::fs::read_to_string(&agent.log)?.lines().any(|line| line.starts_with("started ")) {
            agent.check()?;
            if self.signals.next()?.is_some() {
                anyhow::bail!(Stop::Interrupted);
            }
            if waits.elapsed() > STARTS {
                anyhow::bail!(Stop::Failed(format!("{} did not start; see {}", agent.what, agent.log.display())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn printed(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.out"))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    fn shell(&self, line: &str, member: &Member<'_>) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(self.log(&member.name))?;
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        match self.wait(vec![command], member.program.timeout)?[..] {
            [Some(0)] => Ok(()),
            _ => Err(Stop::Failed(format!("'{line}' failed")).into()),
        }
    }

    fn spawn(&self, mut command: Command) -> anyhow::Result<Beside> {
        command.process_group(0);
        sys::prepare_child(&mut command, self.signals, None);
        Ok(Beside(command.spawn()?))
    }

    /// Runs commands at the same time, each in a process group of its own, until all have ended, a signal comes, or the
    /// timeout is over. Their exit codes; `None` if one was killed.
    fn wait(&self, commands: Vec<Command>, timeout: Span) -> anyhow::Result<Vec<Option<i32>>> {
        let mut running = commands.into_iter().map(|one| self.spawn(one)).collect::<anyhow::Result<Vec<Beside>>>()?;
        let started = Instant::now();
        loop {
            let ended = running.iter_mut().map(|one| one.0.try_wait()).collect::<std::io::Result<Vec<_>>>()?;
            if let Some(ended) = ended.into_iter().collect::<Option<Vec<ExitStatus>>>() {
                return Ok(ended.iter().map(ExitStatus::code).collect());
            }
            if self.signals.next()?.is_some() {
                anyhow::bail!(Stop::Interrupted);
            }
            if started.elapsed() > timeout.0 {
                anyhow::bail!(Stop::TooLong(timeout));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A process group that is ended when this is dropped.
struct Beside(Child);

impl Beside {
    /// Whether it has ended: its number may be another's by now.
    fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Beside {
    /// SIGTERM, and SIGKILL ten seconds later.
    fn drop(&mut self) {
        let group = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        for signal in [Signal::TERM, Signal::KILL] {
            if self.has_ended() {
                return;
            }
            if let Some(group) = group {
                let _ = rustix::process::kill_process_group(group, signal);
            }
            let sent = Instant::now();
            while sent.elapsed() < Duration::from_secs(10) && !self.has_ended() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// What runs beside the programs that are compared.
struct Helper {
    process: Beside,
    what: &'static str,
    log: PathBuf,
}

impl Helper {
    /// That it still runs: without it, the run was another configuration's.
    fn check(&mut self) -> anyhow::Result<()> {
        if self.process.has_ended() {
            anyhow::bail!(Stop::Failed(format!("{} has ended; see {}", self.what, self.log.display())));
        }
        Ok(())
    }
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

/// Options of `lowtide run` for a configuration.
fn options(config: &Configuration) -> Vec<String> {
    let default = if config.schemes.is_empty() { "none" } else { "auto" };
    let mut options = vec!["--monitor", config.monitor.as_deref().unwrap_or(default)];
    options.extend(config.schemes.iter().flat_map(|scheme| ["--scheme", scheme]));
    let limit = config.limit.filter(|_| !config.scope).map(|limit| limit.to_string());
    options.extend(limit.iter().flat_map(|limit| ["--limit", limit]));
    options.extend((config.no_swap && !config.scope).then_some("--no-swap"));
    options.extend(config.max_overhead.iter().flat_map(|most| ["--max-overhead", most]));
    options.into_iter().map(str::to_owned).collect()
}

/// The last match of a pattern's group that is a number.
fn figure(pattern: &str, text: &str) -> Option<f64> {
    let regex = regex_lite::Regex::new(pattern).ok()?;
    regex.captures_iter(text).filter_map(|found| found.get(1)?.as_str().replace(',', "").parse().ok()).last()
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
