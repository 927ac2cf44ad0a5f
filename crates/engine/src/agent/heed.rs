//! Who may give which hint.

use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;

use super::lifecycle::Phases;
use super::socket::{Answer, Hint, Whom};
use super::watch::Watch;
use crate::failure::code;

/// What becomes of a hint. One who may not give it does not learn what there is.
pub(super) fn heed(kernel: &Kernel, watch: &Watch, phases: &mut Phases, uid: u32, hint: &Hint) -> Answer {
    let refused = |what: &str, why: &str| {
        let code = if uid == 0 { code::GONE } else { code::PERMISSION };
        Answer::Refused(code, format!("{what}: {why}"))
    };
    match &hint.target {
        Whom::Cgroup(path) => {
            // By name among those that are watched: what a peer says is never opened.
            let path = format!("/{}", path.trim_matches('/'));
            let watched = watch.found().values().find(|watched| watched.path == path);
            let Some(watched) = watched.filter(|of| uid == 0 || of.cgroup.owner(kernel) == Some(uid)) else {
                return refused(&path, "no workload of the agent's file, or not yours");
            };
            phases.hint_cgroup(&watched.cgroup, hint.background);
        }
        Whom::Pid(pid) => {
            let name = format!("process {pid}");
            let owner = proc::owner(kernel, *pid).ok();
            if owner.is_none() || (uid != 0 && owner != Some(uid)) {
                return refused(&name, "there is none, or it is not yours");
            }
            let of = Cgroup::of(kernel, *pid).ok().flatten().and_then(|cgroup| cgroup.hierarchy_path(kernel).ok());
            if of.is_none_or(|path| watch.is_excluded(&path)) {
                return refused(&name, "it is in a cgroup that is left alone");
            }
            if let Err(error) = phases.hint_process(*pid, hint.background, uid) {
                return refused(&name, &error.to_string());
            }
        }
    }
    Answer::Heard
}
