//! The summary: what a person needs first.

use std::io::{self, Write};

use lowtide_model::summary::{Level, Summary, WindowSummary};
use lowtide_model::units::human_seconds;

use super::text::{Grid, count, figure, whole_bytes};
use super::{Entry, Report, Source, TABLES, View, bottom_line};

pub(super) const ENTRY: Entry = Entry {
    view: View::Summary,
    name: "summary",
    title: "What it needs",
    meaning: "",
    formats: TABLES,
    take: |source, _| Ok(Box::new(Overview::of(source))),
};

/// The view.
pub(super) struct Overview {
    summary: Summary,
    command: String,
    ending: Option<String>,
    notes: Vec<String>,
}

impl Overview {
    pub(super) fn of(source: &Source) -> Self {
        let meta = source.meta();
        let mut notes = meta.notes.clone();
        let refused = meta.monitor.refused.iter();
        notes.extend(refused.map(|no| format!("{} could not serve: {}.", no.backend, no.why.trim_end_matches('.'))));
        if source.record().is_live() {
            notes.push("The record is still being made; these are the figures so far.".to_owned());
        } else if meta.end.is_none() {
            notes.push("The recorder was stopped before the end; the last seconds are missing.".to_owned());
        }
        let summary = source.summary();
        notes.extend(source.record().warnings());
        let ending = meta.end.as_ref().map(|end| end.reason.clone());
        Self { summary, command: source.command(), ending, notes }
    }

    /// What could not be seen, one sentence each.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The bottom line, and what acting on it saved.
    pub(super) fn sentence(&self) -> String {
        let saved = self.summary.ledger.as_ref().map_or_else(String::new, super::ledger::sentence);
        let saved = if saved.is_empty() { saved } else { format!("{saved}.") };
        format!("{}{saved}", bottom_line::sentences(&self.summary.answer))
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
        // Recordings of other tools do not tell the machine.
        if host.kernel.is_empty() {
            return format!("{runtime}{exit}");
        }
        let memory = whole_bytes(Some(host.memory_bytes));
        format!("{runtime} on Linux {} ({} CPUs, {memory}){exit}", host.kernel, host.cpus)
    }

    fn memory(&self) -> Grid {
        let memory = &self.summary.memory;
        let mut grid = Grid::new("Memory", &["", "peak", "average"]);
        let rows = [
            ("resident (RSS)", memory.rss),
            ("proportional (PSS)", memory.pss),
            ("demand (resident or swapped)", memory.demand),
            ("swapped out", memory.swap),
            ("anonymous", memory.anon),
            ("file", memory.file),
            ("kernel", memory.kernel),
            ("charged to the cgroup", memory.cgroup),
            ("in use on the whole system", memory.system_used),
        ];
        for (name, Level { peak_bytes, avg_bytes }) in rows {
            if peak_bytes.is_some() {
                grid.row([name.to_owned(), whole_bytes(peak_bytes), whole_bytes(avg_bytes)]);
            }
        }
        grid
    }

    fn working_set(&self) -> Option<Grid> {
        let head = ["touched within", "readings", "average", "median", "95 %", "highest", "±"];
        let mut grid = Grid::new("Working set over the whole run", &head);
        for set in &self.summary.working_set {
            let WindowSummary { window_s, readings, p50_bytes, p95_bytes, max_bytes, avg_bytes, ci95_percent } = *set;
            if readings > 0 {
                let columns = [avg_bytes, p50_bytes, p95_bytes, max_bytes].map(whole_bytes);
                let width = figure(ci95_percent, 0, " %");
                grid.row([format!("{window_s} s"), readings.to_string()].into_iter().chain(columns).chain([width]));
            }
        }
        (!grid.rows.is_empty()).then_some(grid)
    }

    fn idle(&self) -> Option<Grid> {
        let mut grid = Grid::new("Idle memory, on average", &["untouched for", "anonymous", "file", "together"]);
        for cold in &self.summary.cold {
            let both = cold.anon_bytes.zip(cold.file_bytes).map(|(anon, file)| anon + file);
            if cold.anon_bytes.is_some() || cold.file_bytes.is_some() {
                let columns = [cold.anon_bytes, cold.file_bytes, both].map(whole_bytes);
                grid.row([format!("{} s or longer", cold.age_s)].into_iter().chain(columns));
            }
        }
        (!grid.rows.is_empty()).then_some(grid)
    }

    fn budgets(&self) -> Grid {
        let budget = &self.summary.budget;
        let mut grid = Grid::new("Budgets", &["", "", "means"]);
        grid.remarks = true;
        let slowdown = format!("smallest within {:.0} % of slowdown", budget.slowdown_percent);
        let rows = [
            ("App-MaxRSS", budget.app_max_rss_bytes, "highest RSS of one process".to_owned()),
            ("Sys-MaxRSS", budget.sys_max_rss_bytes, "most memory of all kinds that served it".to_owned()),
            ("Unlimited", budget.unlimited_bytes, "highest rise of the system's memory in use".to_owned()),
            ("lowtide", budget.lowtide_bytes, slowdown),
        ];
        for (name, value, means) in rows {
            if value.is_some() {
                grid.row([name.to_owned(), whole_bytes(value), means]);
            }
        }
        grid
    }

    fn stalls(&self) -> Grid {
        let summary = &self.summary;
        let (faults, pressure) = (&summary.faults, &summary.pressure);
        let seconds = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), human_seconds);
        let mut grid = Grid::new("Faults and stalls", &["", ""]);
        let rows = [
            ("minor faults", count(faults.minor)),
            ("major faults", count(faults.major)),
            ("refaults, anonymous", count(faults.refault_anon)),
            ("refaults, file", count(faults.refault_file)),
            ("stalled on memory, some tasks", seconds(pressure.memory_some_s)),
            ("stalled on memory, all tasks", seconds(pressure.memory_full_s)),
            ("stalled on I/O, some tasks", seconds(pressure.io_some_s)),
            ("CPUs waiting for I/O (system)", figure(summary.io_wait_percent, 2, " %")),
            ("CPU used, of one CPU", figure(summary.cpu_utilisation_percent, 0, " %")),
        ];
        for (name, value) in rows {
            if value != "-" {
                grid.row([name.to_owned(), value]);
            }
        }
        grid
    }

    fn cost(&self) -> Grid {
        let monitor = &self.summary.monitor;
        let mut grid = Grid::new("What measuring cost", &["", ""]);
        grid.row(["monitor".to_owned(), monitor.backend.clone()]);
        let rows = [
            ("CPU time", monitor.cpu_s.map(human_seconds)),
            ("of one CPU", monitor.cpu_percent.map(|percent| format!("{percent:.2} %"))),
            ("own memory, peak", monitor.own_peak_rss_bytes.map(|peak| whole_bytes(Some(peak)))),
            ("looks at every page each", monitor.sampling_s.map(human_seconds)),
            ("ticks with a picture", (monitor.snapshots > 0).then(|| count(Some(monitor.snapshots)))),
            ("share of memory watched", monitor.coverage_percent.map(|percent| format!("{percent:.0} %"))),
        ];
        for (name, value) in rows {
            if let Some(value) = value {
                grid.row([name.to_owned(), value]);
            }
        }
        grid
    }

    fn noted(&self) -> Option<Grid> {
        let mut grid = Grid::new("What could not be seen", &[""]);
        for note in &self.notes {
            grid.row([note.clone()]);
        }
        (!grid.rows.is_empty()).then_some(grid)
    }
}

impl Overview {
    fn ledger(&self) -> Vec<Grid> {
        let ledger = self.summary.ledger.as_ref();
        ledger.map_or_else(Vec::new, |of| vec![super::ledger::ledger(of), super::ledger::schemes(&of.schemes)])
    }

    /// The tables of a page, where working set and idle memory have sections of their own.
    pub(super) fn figures(&self) -> Vec<Grid> {
        let all =
            [bottom_line::phases(&self.summary.answer), self.memory(), self.budgets(), self.stalls(), self.cost()];
        all.into_iter().chain(self.ledger()).filter(|grid| !grid.rows.is_empty()).collect()
    }

    /// The bottom line's figures as tiles of a page: value, what it is, and what stands below.
    pub(super) fn tiles(&self) -> Vec<(String, String, String)> {
        bottom_line::tiles(&self.summary.answer)
    }
}

impl Report for Overview {
    fn lead(&self) -> String {
        format!("{}\n{}\n\n{}", self.command, self.ran(), self.sentence())
    }

    fn grids(&self) -> Vec<Grid> {
        let phases = (self.summary.answer.phases.len() > 1).then(|| bottom_line::phases(&self.summary.answer));
        let always = [self.memory(), self.budgets()];
        let more = [Some(self.stalls()), Some(self.cost()), self.noted()];
        let measured = [self.working_set(), self.idle()].into_iter().flatten();
        let all =
            phases.into_iter().chain(measured).chain(always).chain(self.ledger()).chain(more.into_iter().flatten());
        all.filter(|grid| !grid.rows.is_empty()).collect()
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, &self.summary)?;
        writeln!(out)
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
