//! The agent's log: one line an event, `name=value`, on stderr.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use lowtide_policy::machine::{Brake, Reclaim};

use super::act::Outcome;
use super::socket::{Answer, Hint, Whom};
use super::watch::Watched;

/// One line of the log: what happened, and its figures.
pub(super) fn line(event: &str, figures: &[(&str, String)]) {
    let mut text = event.to_owned();
    for (name, value) in figures {
        let special = |letter: char| letter.is_control() || [' ', '"', '='].contains(&letter);
        let plain = !value.is_empty() && !value.contains(special);
        let _ = if plain { write!(text, " {name}={value}") } else { write!(text, " {name}={value:?}") };
    }
    // A log that nobody reads any more is no reason to end.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Writes down a hint, and what became of it.
pub(super) fn hint(uid: u32, hint: &Hint, answer: &Answer) {
    let whom = match &hint.target {
        Whom::Pid(pid) => format!("pid {pid}"),
        Whom::Cgroup(path) => path.chars().take(200).collect(),
    };
    let result = match answer {
        Answer::Heard => "heard".to_owned(),
        Answer::Refused(_, why) => why.chars().take(200).collect(),
    };
    let place = if hint.background { "background" } else { "foreground" };
    line("hint", &[("whom", whom), ("place", place.to_owned()), ("uid", uid.to_string()), ("result", result)]);
}

/// Writes down which brakes took hold, and which let go.
pub(super) fn brakes(
    policy: &str,
    before: &[(Option<u64>, Brake)],
    now: &[(Option<u64>, Brake)],
    found: &BTreeMap<u64, Watched>,
) {
    let changed = [("held", now, before), ("let go", before, now)];
    for (event, some, others) in changed {
        for (target, brake) in some.iter().filter(|held| !others.contains(held)) {
            let name = target.map_or(Some("all".to_owned()), |id| found.get(&id).map(|watched| watched.path.clone()));
            let Some(cgroup) = name else { continue };
            line(event, &[("cgroup", cgroup), ("policy", policy.to_owned()), ("by", brake.name().to_owned())]);
        }
    }
}

/// Writes down what was done and why.
pub(super) fn reclaim(watched: &Watched, wanted: &Reclaim, outcome: &Outcome) {
    let whole = |bytes: f64| format!("{bytes:.0}");
    let mut figures = vec![
        ("cgroup", watched.path.clone()),
        ("policy", watched.policy.clone()),
        ("asked_anon_bytes", whole(wanted.bytes[0])),
        ("asked_file_bytes", whole(wanted.bytes[1])),
        ("anon_bytes", whole(outcome.reclaimed.bytes[0])),
        ("file_bytes", whole(outcome.reclaimed.bytes[1])),
        ("took_s", format!("{:.3}", outcome.took_s)),
        ("reason", wanted.reason.clone()),
    ];
    figures.extend(outcome.stopped.clone().map(|why| ("stopped", why)));
    line("reclaim", &figures);
}
