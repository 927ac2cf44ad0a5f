//! The agent's log: one line an event, `name=value`, on stderr.

use std::fmt::Write as _;

use lowtide_model::kind::PerKind;

use crate::event::{ActionEvent, ActionKind, Event, Sink};

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
    text.push('\n');
    lowtide_kernel::log::write(&text);
}

impl Sink for Log {
    fn take(&mut self, _: f64, event: &Event<'_>) {
        match event {
            Event::Acted(action) => line(action.kind.name(), &figures(action)),
            Event::Advised(workload, scheme, bytes) => {
                let scheme = (*scheme).to_owned();
                let figures = [("cgroup", workload.path.clone()), ("scheme", scheme), ("bytes", format!("{bytes:.0}"))];
                line("advise", &figures);
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

/// What the log has of an action: requests to reclaim with all their bytes, grants with what the workload holds, moves of a
/// target to or from the background with its processes.
fn figures(action: &ActionEvent<'_>) -> Vec<(&'static str, String)> {
    let bytes = |bytes: f64| format!("{bytes:.0}");
    let both = |names: [&'static str; 2], of: PerKind<f64>| [(names[0], bytes(of.anon)), (names[1], bytes(of.file))];
    let took_s = ("took_s", format!("{:.3}", action.took_s));
    let reason = ("reason", action.reason.to_owned());
    let mut stopped = action.stopped.clone().map(|why| ("stopped", why));
    let asked = action.asked.unwrap_or_default();
    let (name, workload) = (action.name.to_owned(), action.workload);
    let mut figures;
    match action.kind {
        ActionKind::Reclaim => {
            figures = vec![("cgroup", name), ("policy", workload.map(|of| of.policy.clone()).unwrap_or_default())];
            figures.extend(both(["asked_anon_bytes", "asked_file_bytes"], asked));
            figures.extend(both(["anon_bytes", "file_bytes"], action.bytes));
            figures.extend([took_s, ("by", action.by.to_owned())]);
        }
        ActionKind::Split => {
            figures = vec![("cgroup", name), ("bytes", bytes(action.bytes.anon)), took_s];
        }
        ActionKind::Protect | ActionKind::Limit | ActionKind::Pause | ActionKind::Release => {
            figures = vec![("cgroup", name)];
            figures.extend(workload.into_iter().flat_map(|of| {
                let resident = of.now.resident.total();
                [("resident_bytes", resident.to_string()), ("swapped_bytes", of.now.swapped.to_string())]
            }));
            figures.extend((asked.anon > 0.0).then(|| ("bytes", bytes(asked.anon))));
        }
        ActionKind::PageOut | ActionKind::Fetch => {
            figures = vec![("target", name)];
            match action.processes {
                Some(processes) => {
                    figures.push(("processes", processes.to_string()));
                    figures.extend(both(["anon_bytes", "file_bytes"], action.bytes));
                }
                None => figures.extend(stopped.take().map(|(_, why)| ("error", why))),
            }
            figures.push(took_s);
        }
    }
    figures.push(reason);
    figures.extend(stopped);
    figures
}
