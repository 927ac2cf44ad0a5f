//! Hints about what is in the background: who may give which.

use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;

use super::background::Background;
use super::socket::{Answer, Hint, Whom};
use crate::failure::code;
use crate::workloads::Workloads;

/// What becomes of a hint. One who may not give it does not learn what there is.
pub(super) fn take(
    kernel: &Kernel,
    workloads: &Workloads,
    background: &mut Background,
    (uid, hint): (u32, &Hint),
) -> Answer {
    let refused = |what: &str, why: &str| {
        let code = if uid == 0 { code::GONE } else { code::PERMISSION };
        Answer::Refused(code, format!("{what}: {why}"))
    };
    match &hint.target {
        Whom::Cgroup(path) => {
            // By name among the workloads: what a peer says is never opened.
            let path = format!("/{}", path.trim_matches('/'));
            let workload = workloads.all().values().find(|workload| workload.path == path);
            let Some(workload) = workload.filter(|of| uid == 0 || of.cgroup.owner(kernel) == Some(uid)) else {
                return refused(&path, "no workload of the agent's file, or not yours");
            };
            background.hint_cgroup(&workload.cgroup, hint.background);
        }
        Whom::Pid(pid) => {
            let name = format!("process {pid}");
            let owner = proc::owner(kernel, *pid).ok();
            if owner.is_none() || (uid != 0 && owner != Some(uid)) {
                return refused(&name, "there is none, or it is not yours");
            }
            let of = Cgroup::of(kernel, *pid).ok().flatten().and_then(|cgroup| cgroup.hierarchy_path(kernel).ok());
            if of.is_none_or(|path| workloads.is_excluded(&path)) {
                return refused(&name, "it is in a cgroup that is left alone");
            }
            if let Err(error) = background.hint_process(*pid, hint.background, uid) {
                return refused(&name, &error.to_string());
            }
        }
    }
    Answer::Taken
}

/// A hint, and what became of it, for the log.
pub(super) fn figures(uid: u32, hint: &Hint, answer: &Answer) -> [(&'static str, String); 4] {
    let whom = match &hint.target {
        Whom::Pid(pid) => format!("pid {pid}"),
        Whom::Cgroup(path) => path.chars().take(200).collect(),
    };
    let result = match answer {
        Answer::Taken => "taken".to_owned(),
        Answer::Refused(_, why) => why.chars().take(200).collect(),
    };
    let place = if hint.background { "background" } else { "foreground" };
    [("whom", whom), ("place", place.to_owned()), ("uid", uid.to_string()), ("result", result)]
}
