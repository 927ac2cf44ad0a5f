//! `lowtide hint`: gives the agent a hint on what is in the background, and what is in use again.

use std::path::PathBuf;

use lowtide_engine::agent::config::SOCKET;
use lowtide_engine::agent::socket::{self, Answer, Hint, HintTarget};
use lowtide_engine::failure::{Failure, code};

/// Give the agent a hint: what is in the background, or in use again
#[derive(Debug, clap::Args)]
pub struct HintArgs {
    /// Its new state
    #[arg(value_enum)]
    place: Place,
    #[command(flatten)]
    target: TargetArgs,
    /// Where the agent listens
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
}

/// The new state of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Place {
    /// Nobody waits for it: its memory may be paged out
    Background,
    /// It is in use again
    Foreground,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct TargetArgs {
    /// A process and all its descendants
    #[arg(long, value_name = "N")]
    pid: Option<u32>,
    /// A cgroup of the agent's workloads
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
}

/// Gives the hint.
///
/// # Errors
/// If no agent listens, or it refuses this user's hints about the target.
pub fn run(args: &HintArgs) -> anyhow::Result<i32> {
    let target = match (&args.target.cgroup, args.target.pid) {
        (Some(path), _) => HintTarget::Cgroup(path.clone()),
        (None, pid) => HintTarget::Pid(pid.unwrap_or_default()),
    };
    let hint = Hint { background: args.place == Place::Background, target };
    let answer = socket::give(&args.socket, &hint).map_err(|error| {
        let fix = "is `lowtide agent` running, with [lifecycle] in its file?";
        Failure::new(code::OTHER, format!("hint: {}: {error}; {fix}", args.socket.display()))
    })?;
    match answer {
        Answer::Taken => Ok(0),
        Answer::Refused(code, why) => Err(Failure::new(code, format!("hint: {why}")).into()),
    }
}
