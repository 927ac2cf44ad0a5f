//! Which monitor `--monitor auto` means here.

use lowtide_model::capability::{Capability, State};
use lowtide_model::meta::Refusal;
use serde::Serialize;

/// Monitors from the best to the least, and the capabilities each cannot do without. Generations are told of cgroups, so the
/// program that is run needs one of its own.
pub const MONITORS: [(&str, &[&str]); 4] = [
    ("damon", &["damon-paddr", "damon-tracepoint", "pagemap-frames", "kpageflags"]),
    ("idle", &["idle-page-bitmap", "pagemap-frames", "kpageflags"]),
    ("mglru", &["mglru", "mglru-debugfs", "cgroup-child"]),
    ("smaps", &["referenced"]),
];

/// The monitor that will be used, and why not a better one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// `damon-vaddr`, `damon-paddr`, `idle-bitmap`, `mglru`, `smaps` or `none`: the backend that the record of a run will name.
    pub backend: &'static str,
    /// What was better but cannot serve, and why.
    pub refused: Vec<Refusal>,
}

/// The monitor for a kernel that was probed.
#[must_use]
pub fn auto(capabilities: &[Capability]) -> Choice {
    let mut refused = Vec::new();
    for (monitor, needs) in MONITORS {
        let missing: Vec<String> = needs.iter().filter_map(|name| missing(capabilities, name)).collect();
        if !missing.is_empty() {
            refused.push(Refusal { backend: monitor.to_owned(), why: missing.join("; ") });
        } else if monitor != "damon" {
            return Choice { backend: if monitor == "idle" { "idle-bitmap" } else { monitor }, refused };
        } else if let Some(why) = self::missing(capabilities, "damon-vaddr") {
            // The cohort is on frames either way; without vaddr the map is too.
            refused.push(Refusal { backend: "damon-vaddr".to_owned(), why });
            return Choice { backend: "damon-paddr", refused };
        } else {
            return Choice { backend: "damon-vaddr", refused };
        }
    }
    Choice { backend: "none", refused }
}

/// What stands in the way of a capability; `None` if it is there.
fn missing(capabilities: &[Capability], name: &str) -> Option<String> {
    match capabilities.iter().find(|capability| capability.name == name) {
        Some(Capability { state: State::Yes, .. }) => None,
        Some(Capability { state: State::Blocked, how, .. }) => Some(format!("{name} is blocked: {how}")),
        Some(Capability { state: State::No, how, .. }) => Some(format!("no {name}: {how}")),
        None => Some(format!("{name} was not looked for")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel with all that the monitors need, but for some.
    fn without(names: &[&'static str]) -> Vec<Capability> {
        let all = MONITORS.iter().flat_map(|(_, needs)| needs.iter().copied()).chain(["damon-vaddr"]);
        all.map(|name| {
            let state = if names.contains(&name) { State::Blocked } else { State::Yes };
            Capability { name, state, how: "held".to_owned(), gives: "", enable: String::new() }
        })
        .collect()
    }

    #[test]
    fn the_best_that_can_serve() {
        let table: [(&[&str], &str, &[&str]); 7] = [
            (&[], "damon-vaddr", &[]),
            (&["damon-vaddr"], "damon-paddr", &["damon-vaddr"]),
            (&["damon-paddr"], "idle-bitmap", &["damon"]),
            (&["damon-paddr", "idle-page-bitmap"], "mglru", &["damon", "idle"]),
            (&["kpageflags", "pagemap-frames"], "mglru", &["damon", "idle"]),
            (&["kpageflags", "cgroup-child"], "smaps", &["damon", "idle", "mglru"]),
            (&["kpageflags", "mglru", "referenced"], "none", &["damon", "idle", "mglru", "smaps"]),
        ];
        for (missing, backend, refused) in table {
            let choice = auto(&without(missing));
            assert_eq!(choice.backend, backend, "without {missing:?}");
            assert_eq!(choice.refused.iter().map(|refusal| refusal.backend.as_str()).collect::<Vec<_>>(), refused);
        }
    }

    #[test]
    fn every_need_is_a_capability_that_is_probed() {
        for name in MONITORS.iter().flat_map(|(_, needs)| needs.iter()) {
            assert!(crate::caps::purpose(name).is_some(), "{name}");
        }
    }
}
