//! `lowtide agent`: reclaims from the workloads of this machine what they do not need.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::undo;

use crate::{output, session};
use lowtide_engine::agent::config::Config;
use lowtide_engine::agent::daemon::Agent;
use lowtide_engine::agent::{address, serve::http, serve::listen};
use lowtide_engine::failure::{Failure, code};
use lowtide_engine::recording;

/// Reclaim from running workloads what they do not need
#[derive(Debug, clap::Args)]
pub struct AgentArgs {
    /// Configuration file
    #[arg(long, value_name = "FILE.toml", default_value = "/etc/lowtide/agent.toml")]
    config: PathBuf,
    /// Check the file, and end
    #[arg(long)]
    check: bool,
    /// Measure, decide and log, but reclaim nothing
    #[arg(long, conflicts_with = "check")]
    dry_run: bool,
}

/// Runs until a signal ends it. SIGHUP has it read its file again.
///
/// # Errors
/// If the file has a mistake, another agent is at work, or this kernel lets nothing be reclaimed.
pub fn run(args: &AgentArgs) -> anyhow::Result<i32> {
    let kernel = Kernel::default();
    if args.check {
        let config = Config::load(&args.config, &kernel)?;
        let rules = config.workload.len();
        let are = if rules == 1 { "workload rule" } else { "workload rules" };
        output::print(format_args!("{}: OK, {rules} {are}\n", args.config.display()))?;
        return Ok(0);
    }
    let agent = Agent::new(&kernel, &args.config, args.dry_run)?;
    if agent.reclaims() {
        possible(&kernel)?;
    }
    work(&kernel, agent, args.dry_run)
}

/// Has an agent work until a signal ends it.
///
/// # Errors
/// If another one is at work, or something of it cannot be opened.
pub(super) fn work(kernel: &Kernel, mut agent: Agent, dry_run: bool) -> anyhow::Result<i32> {
    let signals = session::ending_signals()?;
    let _lock = lock(&undo::folder())?;
    if !dry_run {
        recording::take_back(kernel, &undo::folder())?;
    }
    agent.listen()?;
    lowtide_kernel::log::in_background()?;
    // After the signals: a thread that was started before would die of them.
    let (listen, serve, view) = agent.served();
    for address in listen::unanswered(listen)? {
        let fix = "systemctl disable --now lowtide-agent.socket";
        lowtide_kernel::message!("lowtide: a socket unit listens on {address}, and `listen` names no address: {fix}");
    }
    let server = listen.map(|listen| http::start(listen, serve, view)).transpose()?;
    if let Some(server) = &server {
        lowtide_kernel::message!("listening address={}", server.name);
    }
    agent.run(&signals)?;
    Ok(0)
}

/// Checks that memory can be reclaimed here: from complete cgroups, or by the addresses of their processes.
fn possible(kernel: &Kernel) -> anyhow::Result<()> {
    let root = lowtide_kernel::cgroup::Cgroup::named(kernel, "/")?;
    let Err(by_cgroup) = lowtide_kernel::reclaim::CgroupReclaimer::check(kernel, &root) else { return Ok(()) };
    let Err(error) = address::check(kernel) else { return Ok(()) };
    if error.is_permission() || by_cgroup.is_permission() {
        return Err(Failure::new(code::PERMISSION, format!("agent: {error}; run it as root")).into());
    }
    let fix = "boot with cgroup version 2 (systemd.unified_cgroup_hierarchy=1) and Linux 5.19 or newer";
    Err(Failure::new(code::IMPOSSIBLE, format!("agent: {by_cgroup}; {error}; {fix}")).into())
}

/// One agent at a time: held as long as the file is open.
fn lock(folder: &Path) -> anyhow::Result<File> {
    undo::make_private(folder)?;
    let path = folder.join("agent.lock");
    let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = open.with_context(|| path.display().to_string())?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let message =
                format!("cannot start: another agent or guard is at work ({} is locked); end it first", path.display());
            Err(Failure::new(code::BUSY, message).into())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}
