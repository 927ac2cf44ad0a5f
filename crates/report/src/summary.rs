//! The summary: what a person needs first.

use std::io::{self, Write};

use lowtide_model::summary::Summary;
use lowtide_model::units::human_seconds;

use super::data::RecordData;
use super::text::{Grid, count, figure, whole_bytes};
use super::{Report, TABLES, View, bottom_line, ledger, pretty};

pub(super) const VIEW: View = View {
    name: "summary",
    help: "What it needs, in a few figures",
    title: "What it needs",
    meaning: "",
    formats: TABLES,
    damo: false,
    optional: false,
    make: |data, _| Ok(Box::new(Overview::of(data))),
};

/// A figure of the bottom line, drawn as a bar.
pub(super) struct Bar {
    pub value: String,
    pub name: String,
    pub under: String,
    /// Its class of style.
    pub kind: &'static str,
    /// Its length in percent of the longest.
    pub percent: String,
}

/// The view.
pub(super) struct Overview {
    summary: Summary,
    command: String,
    ending: Option<String>,
    /// What could not be measured, one sentence each.
    pub notes: Vec<String>,
}

impl Overview {
    pub(super) fn of(data: &RecordData) -> Self {
        let meta = data.meta();
        let mut notes = meta.notes.clone();
        let refused = meta.monitor.refused.iter();
        notes.extend(refused.map(|no| format!("{} could not serve: {}.", no.backend, no.why.trim_end_matches('.'))));
        if data.record.is_live() {
            notes.push("The record is still being made; these are the figures so far.".to_owned());
        } else if meta.end.is_none() {
            notes.push("The recorder was stopped before the end; the last seconds are missing.".to_owned());
        }
        let summary = data.summary();
        notes.extend(data.record.warnings());
        Self { summary, command: data.command(), ending: meta.end.as_ref().map(|end| end.reason.clone()), notes }
    }

    /// The bottom line, and what the schemes saved.
    pub(super) fn sentence(&self) -> String {
        let saved = self.summary.ledger.as_ref().and_then(ledger::sentence).unwrap_or_default();
        bottom_line::sentences(&self.summary.answer) + &saved
    }

    /// How long, where, and how it ended.
    pub(super) fn ran(&self) -> String {
        let summary = &self.summary;
        let host = &summary.host;
        let exit = match (summary.exit_code, &self.ending) {
            (Some(code), _) => format!(", exit code {code}"),
            (None, Some(reason)) if reason != "ended" => format!(", {reason}"),
            _ => String::new(),
        };
        let runtime = human_seconds(summary.runtime_s);
        // Recordings of other tools do not name the machine.
        if host.kernel.is_empty() {
            return format!("{runtime}{exit}");
        }
        let memory = whole_bytes(Some(host.memory_bytes));
        format!("{runtime} on Linux {} ({} CPUs, {memory}){exit}", host.kernel, host.cpus)
    }

    fn memory(&self) -> Grid {
        let memory = &self.summary.memory;
        let rows = [
            ("resident (RSS)", memory.rss),
            ("proportional (PSS)", memory.pss),
            ("demand (resident or swapped)", memory.demand),
            ("swapped out", memory.swap),
            ("anonymous", memory.anon),
            ("file", memory.file),
            ("kernel", memory.kernel),
            ("charged to the cgroup", memory.cgroup),
            ("in use on the system", memory.system_used),
        ];
        let measured = rows.into_iter().filter(|(_, level)| level.peak_bytes.is_some());
        Grid::of(
            "Memory",
            &["", "peak", "average"],
            measured
                .map(|(name, level)| [name.to_owned(), whole_bytes(level.peak_bytes), whole_bytes(level.avg_bytes)]),
        )
    }

    fn working_set(&self) -> Grid {
        let head = ["touched within", "readings", "average", "median", "95 %", "highest", "±"];
        let sets = self.summary.working_set.iter().filter(|set| set.readings > 0);
        Grid::of(
            "Working set over the run",
            &head,
            sets.map(|set| {
                let [avg, p50, p95, max] =
                    [set.avg_bytes, set.p50_bytes, set.p95_bytes, set.max_bytes].map(whole_bytes);
                let width = figure(set.ci95_percent, 0, " %");
                [format!("{} s", set.window_s), set.readings.to_string(), avg, p50, p95, max, width]
            }),
        )
    }

    fn idle(&self) -> Grid {
        let rows = self.summary.cold.iter().filter(|cold| cold.anon_bytes.is_some() || cold.file_bytes.is_some());
        Grid::of(
            "Idle memory, on average",
            &["untouched for", "anonymous", "file", "together"],
            rows.map(|cold| {
                let both = cold.anon_bytes.zip(cold.file_bytes).map(|(anon, file)| anon + file);
                let [anon, file, both] = [cold.anon_bytes, cold.file_bytes, both].map(whole_bytes);
                [format!("{} s or longer", cold.age_s), anon, file, both]
            }),
        )
    }

    fn budgets(&self) -> Grid {
        let budget = &self.summary.budget;
        let slowdown = format!("least memory at <= {:.0} % slowdown", budget.slowdown_percent);
        let rows = [
            ("App-MaxRSS", budget.app_max_rss_bytes, "highest RSS of one process"),
            ("Sys-MaxRSS", budget.sys_max_rss_bytes, "peak of all memory charged to it"),
            ("Unlimited", budget.unlimited_bytes, "largest rise of the system's memory in use"),
            ("lowtide", budget.lowtide_bytes, &slowdown),
        ];
        let known = rows.into_iter().filter(|(_, value, _)| value.is_some());
        let rows = known.map(|(name, value, means)| [name.to_owned(), whole_bytes(value), means.to_owned()]);
        Grid { remarks: true, ..Grid::of("Budgets", &["", "", "means"], rows) }
    }

    fn stalls(&self) -> Grid {
        let summary = &self.summary;
        let (faults, pressure) = (&summary.faults, &summary.pressure);
        let counted = |value: Option<u64>| value.map(|value| count(Some(value)));
        Grid::known(
            "Faults and stalls",
            [
                ("minor faults", counted(faults.minor)),
                ("major faults", counted(faults.major)),
                ("refaults, anonymous", counted(faults.refault_anon)),
                ("refaults, file", counted(faults.refault_file)),
                ("stalled on memory, some tasks", pressure.memory_some_s.map(human_seconds)),
                ("stalled on memory, all tasks", pressure.memory_full_s.map(human_seconds)),
                ("stalled on I/O, some tasks", pressure.io_some_s.map(human_seconds)),
                ("CPUs waiting for I/O (system)", summary.io_wait_percent.map(|percent| format!("{percent:.2} %"))),
                ("CPU used, of one CPU", summary.cpu_utilisation_percent.map(|percent| format!("{percent:.0} %"))),
            ],
        )
    }

    fn cost(&self) -> Grid {
        let monitor = &self.summary.monitor;
        Grid::known(
            "What measuring cost",
            [
                ("monitor", Some(monitor.backend.clone())),
                ("CPU time", monitor.cpu_s.map(human_seconds)),
                ("of one CPU", monitor.cpu_percent.map(|percent| format!("{percent:.2} %"))),
                ("own memory, peak", monitor.own_peak_rss_bytes.map(|peak| whole_bytes(Some(peak)))),
                ("samples each page every", monitor.sampling_s.map(human_seconds)),
                ("ticks with a reading", (monitor.snapshots > 0).then(|| count(Some(monitor.snapshots)))),
                ("share of memory sampled", monitor.coverage_percent.map(|percent| format!("{percent:.0} %"))),
            ],
        )
    }

    fn ledger(&self) -> Vec<Grid> {
        let ledger = self.summary.ledger.as_ref();
        ledger.map_or_else(Vec::new, |of| {
            vec![ledger::ledger(of), ledger::schemes(&of.schemes), ledger::held(&of.schemes)]
        })
    }

    /// The tables of a page, where phases, working set and idle memory have sections of their own.
    pub(super) fn figures(&self) -> Vec<Grid> {
        let all = [self.memory(), self.budgets(), self.stalls(), self.cost()].into_iter().chain(self.ledger());
        all.filter(|grid| !grid.rows.is_empty()).collect()
    }

    /// The bottom line's figures as bars of a page.
    pub(super) fn bars(&self) -> Vec<Bar> {
        bottom_line::bars(&self.summary.answer)
    }
}

impl Report for Overview {
    fn lead(&self) -> String {
        format!("{}\n{}\n\n{}", self.command, self.ran(), self.sentence())
    }

    fn grids(&self) -> Vec<Grid> {
        let phases = (self.summary.answer.phases.len() > 1).then(|| bottom_line::phases(&self.summary.answer));
        let notes = self.notes.iter().map(|note| [note.clone()]);
        let mut all: Vec<Grid> = phases.into_iter().collect();
        all.extend([self.working_set(), self.idle(), self.memory(), self.budgets()]);
        all.extend(self.ledger());
        all.extend([self.stalls(), self.cost(), Grid::of("Notes", &[""], notes)]);
        all.retain(|grid| !grid.rows.is_empty());
        all
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        pretty(&self.summary, out)
    }

    /// One figure a line, named by its path in `summary.json`.
    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(["figure", "value"])?;
        let mut rows = Vec::new();
        flatten("", &serde_json::to_value(&self.summary)?, &mut rows);
        for (name, value) in rows {
            csv.write_record([name, value])?;
        }
        csv.flush()
    }
}

/// The leaves of a JSON document with their paths.
fn flatten(path: &str, value: &serde_json::Value, out: &mut Vec<(String, String)>) {
    use serde_json::Value;
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| flatten(&below(name), value, out)),
        Value::Array(list) if list.iter().all(Value::is_string) => {
            let words: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            out.push((path.to_owned(), words.join(" ")));
        }
        Value::Array(list) => {
            for item in list {
                // Rows of windows and ages are named by what they are of, not by their place.
                let of =
                    item.get("window_s").or_else(|| item.get("age_s")).map_or_else(String::new, |of| format!("{of}s"));
                flatten(&below(&of), item, out);
            }
        }
        Value::Null => out.push((path.to_owned(), String::new())),
        Value::String(text) => out.push((path.to_owned(), text.clone())),
        other => out.push((path.to_owned(), other.to_string())),
    }
}
