//! Which monitor `--monitor auto` means here.

use lowtide_model::capability::{Capability, State};
use serde::Serialize;

/// Monitors from the best to the least, and the capabilities each cannot do without.
const MONITORS: [(&str, &[&str]); 2] =
    [("damon", &["damon-paddr", "damon-tracepoint", "pagemap-frames", "kpageflags"]), ("smaps", &["referenced"])];

/// The monitor that will be used, and why not a better one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// `damon-vaddr`, `damon-paddr`, `smaps` or `none`: the backend a record will name.
    pub backend: &'static str,
    /// What was better but cannot serve, and why.
    pub passed_over: Vec<PassedOver>,
}

/// A monitor that cannot serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PassedOver {
    /// Its backend.
    pub backend: &'static str,
    /// What is missing, and what was found in its place.
    pub why: String,
}

/// The monitor for a kernel that was probed.
#[must_use]
pub fn auto(capabilities: &[Capability]) -> Choice {
    let mut passed_over = Vec::new();
    for (monitor, needs) in MONITORS {
        let missing: Vec<String> = needs.iter().filter_map(|name| missing(capabilities, name)).collect();
        if !missing.is_empty() {
            passed_over.push(PassedOver { backend: monitor, why: missing.join("; ") });
        } else if monitor != "damon" {
            return Choice { backend: monitor, passed_over };
        } else if let Some(why) = self::missing(capabilities, "damon-vaddr") {
            // The cohort is on frames either way; without vaddr the map is too.
            passed_over.push(PassedOver { backend: "damon-vaddr", why });
            return Choice { backend: "damon-paddr", passed_over };
        } else {
            return Choice { backend: "damon-vaddr", passed_over };
        }
    }
    Choice { backend: "none", passed_over }
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
        let table: [(&[&str], &str, &[&str]); 5] = [
            (&[], "damon-vaddr", &[]),
            (&["damon-vaddr"], "damon-paddr", &["damon-vaddr"]),
            (&["damon-paddr"], "smaps", &["damon"]),
            (&["kpageflags", "pagemap-frames"], "smaps", &["damon"]),
            (&["damon-tracepoint", "referenced"], "none", &["damon", "smaps"]),
        ];
        for (missing, backend, passed_over) in table {
            let choice = auto(&without(missing));
            assert_eq!(choice.backend, backend, "without {missing:?}");
            assert_eq!(choice.passed_over.iter().map(|passed| passed.backend).collect::<Vec<_>>(), passed_over);
        }
    }

    #[test]
    fn every_need_is_a_capability_that_is_probed() {
        for name in MONITORS.iter().flat_map(|(_, needs)| needs.iter()) {
            assert!(crate::caps::purpose(name).is_some(), "{name}");
        }
    }
}
