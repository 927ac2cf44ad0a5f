//! Hints about what is in the background: which users may give which.

use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;
use lowtide_model::target::TargetId;

use super::background::Background;
use super::socket::{Answer, Hint, HintTarget};
use crate::failure::code;
use crate::workloads::Workloads;

/// Takes a hint, or refuses it. A peer that may not give it does not learn what exists.
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
        HintTarget::Cgroup(path) => {
            // By name among the workloads: a path from a peer is never opened.
            let path = format!("/{}", path.trim_matches('/'));
            let workload = workloads.all.values().find(|workload| workload.path == path);
            let Some(workload) = workload.filter(|of| uid == 0 || of.cgroup.owner(kernel) == Some(uid)) else {
                return refused(&path, "no workload of the agent's file, or not yours");
            };
            background.hints.insert(TargetId::Cgroup(workload.cgroup.inode), hint.background);
        }
        HintTarget::Pid(pid) => {
            let name = format!("process {pid}");
            let owner = proc::owner(kernel, *pid).ok();
            if owner.is_none() || (uid != 0 && owner != Some(uid)) {
                return refused(&name, "there is none, or it is not yours");
            }
            let cgroup = Cgroup::of(kernel, *pid);
            match cgroup.and_then(|cgroup| cgroup.map(|cgroup| cgroup.hierarchy_path(kernel)).transpose()) {
                Ok(path) if path.as_ref().is_some_and(|path| !workloads.is_excluded(path)) => {}
                Ok(_) => return refused(&name, "it is in a cgroup that is left alone"),
                Err(error) => return refused(&name, &error.to_string()),
            }
            if let Err(error) = background.hint_process(*pid, hint.background, uid) {
                return refused(&name, &error.to_string());
            }
        }
    }
    Answer::Taken
}

/// A hint and its result, for the log.
pub(super) fn figures(uid: u32, hint: &Hint, answer: &Answer) -> [(&'static str, String); 4] {
    let target = match &hint.target {
        HintTarget::Pid(pid) => format!("pid {pid}"),
        HintTarget::Cgroup(path) => path.chars().take(200).collect(),
    };
    let result = match answer {
        Answer::Taken => "taken".to_owned(),
        Answer::Refused(_, why) => why.chars().take(200).collect(),
    };
    let place = if hint.background { "background" } else { "foreground" };
    [("whom", target), ("place", place.to_owned()), ("uid", uid.to_string()), ("result", result)]
}
