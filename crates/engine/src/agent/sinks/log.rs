//! The agent's log: one line an event, `name=value`, on stderr.

use std::fmt::Write as _;
use std::io::Write as _;

use lowtide_policy::machine::Reclaim;

use crate::event::{Event, Granted, Moved, Outcome, Sink};
use crate::workloads::Workload;

/// Writes events to stderr.
#[derive(Debug, Clone, Copy, Default)]
pub struct Log;

/// One line of the log: what happened, and its figures.
pub fn line(event: &str, figures: &[(&str, String)]) {
    let mut text = event.to_owned();
    for (name, value) in figures {
        let special = |letter: char| letter.is_control() || [' ', '"', '='].contains(&letter);
        let plain = !value.is_empty() && !value.contains(special);
        let _ = if plain { write!(text, " {name}={value}") } else { write!(text, " {name}={value:?}") };
    }
    // A log that nobody reads any more is no reason to end.
    let _ = writeln!(std::io::stderr(), "{text}");
}

impl Sink for Log {
    fn take(&mut self, _: f64, event: &Event<'_>) {
        match event {
            Event::Reclaimed(workload, wanted, outcome) => reclaimed(workload, wanted, outcome),
            Event::Granted(workload, granted, reason) => self::granted(workload, granted, reason),
            Event::Moved(moved) => self::moved(moved),
            Event::Advised(workload, scheme, bytes) => {
                let scheme = (*scheme).to_owned();
                line(
                    "advise",
                    &[("cgroup", workload.path.clone()), ("scheme", scheme), ("bytes", format!("{bytes:.0}"))],
                );
            }
            Event::Brake { policy, workload, brake, holds } => {
                let figures = [("cgroup", *workload), ("policy", *policy), ("by", brake.name())];
                line(if *holds { "held" } else { "let go" }, &figures.map(|(name, value)| (name, value.to_owned())));
            }
            Event::Note(text) => line("note", &[("text", (*text).to_owned())]),
            Event::Error(text) => line("error", &[("text", (*text).to_owned())]),
            Event::Logged(event, figures) => line(event, figures),
            _ => {}
        }
    }
}

fn reclaimed(workload: &Workload, wanted: &Reclaim, outcome: &Outcome) {
    let bytes = |bytes: f64| format!("{bytes:.0}");
    let mut figures = vec![
        ("cgroup", workload.path.clone()),
        ("policy", workload.policy.clone()),
        ("asked_anon_bytes", bytes(wanted.bytes.anon)),
        ("asked_file_bytes", bytes(wanted.bytes.file)),
        ("anon_bytes", bytes(outcome.reclaimed.bytes.anon)),
        ("file_bytes", bytes(outcome.reclaimed.bytes.file)),
        ("took_s", format!("{:.3}", outcome.took_s)),
        ("reason", wanted.reason.clone()),
    ];
    figures.extend(outcome.stopped.clone().map(|why| ("stopped", why)));
    line("reclaim", &figures);
}

fn granted(workload: &Workload, granted: &Granted, reason: &str) {
    let mut figures = vec![
        ("cgroup", workload.path.clone()),
        ("resident_bytes", workload.now.resident.total().to_string()),
        ("swapped_bytes", workload.now.swapped.to_string()),
    ];
    if granted.bytes > 0.0 {
        figures.push(("bytes", format!("{:.0}", granted.bytes)));
    }
    figures.push(("reason", reason.to_owned()));
    figures.extend(granted.stopped.clone().map(|why| ("stopped", why)));
    line(granted.deed.name(), &figures);
}

fn moved(moved: &Moved<'_>) {
    let mut figures = vec![("target", moved.name.to_owned())];
    match &moved.error {
        None => figures.extend([
            ("processes", moved.processes.to_string()),
            ("anon_bytes", moved.bytes[0].to_string()),
            ("file_bytes", moved.bytes[1].to_string()),
        ]),
        Some(error) => figures.push(("error", error.clone())),
    }
    figures.push(("took_s", format!("{:.3}", moved.took_s)));
    figures.push(("reason", moved.reason.to_owned()));
    if moved.dry_run {
        figures.push(("stopped", "dry run".to_owned()));
    }
    line(if moved.away { "stow" } else { "fetch" }, &figures);
}
