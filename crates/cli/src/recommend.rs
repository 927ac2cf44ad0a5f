//! `lowtide budget --watch`: a recommendation for cgroups that run, kept current.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::session;
use lowtide_engine::failure::{Failure, code};
use lowtide_engine::recommender::{OBSERVE_S, RecommendOptions, Recommended, Recommender, unix_s};
use lowtide_engine::{metrics, scheduler};
use lowtide_kernel::root::Kernel;
use lowtide_model::units::{Share, Span, human_bytes};

/// How cgroups are watched.
#[derive(Debug, Clone, clap::Args)]
pub struct WatchArgs {
    /// Keep a recommendation for running cgroups current, until a signal ends it
    #[arg(long, requires = "cgroup", conflicts_with_all = ["records", "command", "emit", "verify"])]
    pub watch: bool,
    /// Cgroups to watch: a path below the memory cgroup mount, `*` for one part of it, `**` for any number
    #[arg(long, value_name = "PATTERN", requires = "watch")]
    pub cgroup: Vec<String>,
    /// Time from one recommendation to the next
    #[arg(long, value_name = "TIME", default_value = "1m", requires = "watch")]
    pub every: Span,
    /// A need of this long ago counts half
    #[arg(long, value_name = "TIME", default_value = "24h", requires = "watch")]
    pub half_life: Span,
    /// Serve OpenMetrics at this address, under /metrics
    #[arg(long, value_name = "ADDRESS:PORT", requires = "watch")]
    pub listen: Option<SocketAddr>,
    /// Keep the state in this file, and continue from it
    #[arg(long, value_name = "FILE", requires = "watch")]
    pub state: Option<PathBuf>,
}

/// Recommends until a signal ends it.
///
/// # Errors
/// If a pattern makes no sense, or an address or file cannot be used.
pub fn watch(args: &WatchArgs, slowdown: Share, swap: u64, json: bool) -> anyhow::Result<i32> {
    let (every_s, half_life_s) = (args.every.0.as_secs_f64(), args.half_life.0.as_secs_f64());
    if every_s < OBSERVE_S || half_life_s < every_s {
        let message = format!(
            "--every {}: give 5s or more, and no more than --half-life ({}), for example 1m",
            args.every, args.half_life
        );
        return Err(Failure::new(code::USAGE, message).into());
    }
    let kernel = Kernel::default();
    let state = args.state.clone();
    let options =
        RecommendOptions { cgroups: args.cgroup.clone(), every_s, half_life_s, slowdown: slowdown.0, swap, state };
    let mut report = |all: &[Recommended]| print(all, json);
    let mut recommender = Recommender::new(&kernel, options, &mut report)?;
    let signals = session::ending_signals()?;
    // After the signals: a thread that was started before would die of them.
    if let Some(address) = args.listen {
        lowtide_kernel::message!(
            "listening address=http://{}/metrics",
            metrics::start(address, recommender.metrics())?
        );
    }
    scheduler::run(&kernel, &signals, &mut recommender)?;
    Ok(0)
}

fn print(all: &[Recommended], json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        let line = serde_json::json!({ "schema": 1, "t_unix_s": unix_s(), "cgroups": all });
        writeln!(out, "{line}")?;
    } else {
        for one in all {
            let [budget, need, held] = [one.budget_bytes, one.need_bytes, one.held_bytes].map(human_bytes);
            writeln!(out, "{}: give {budget}; needs {need}, has {held}", one.cgroup)?;
        }
    }
    Ok(out.flush()?)
}
