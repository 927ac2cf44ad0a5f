//! The summary: what a person needs first.

use std::io::{self, Write};

use lowtide_model::summary::{Level, Summary, WindowSummary};
use lowtide_model::units::human_seconds;

use super::text::{Grid, count, figure, whole_bytes};
use super::{Entry, Report, Source, TABLES, View};

pub(super) const ENTRY: Entry = Entry {
    view: View::Summary,
    name: "summary",
    title: "What it needs",
    meaning: "",
    formats: TABLES,
    take: |source, _| Ok(Box::new(Overview::of(source))),
};

/// The window whose 95th percentile is called what a workload needs: long enough to hold what it comes back to, short
/// enough to follow its phases.
const NEED_WINDOW_S: u32 = 10;

/// Idle for so long counts as cold in the headline.
const COLD_S: u32 = 60;

/// The view.
pub(super) struct Overview {
    summary: Summary,
    command: String,
    ending: Option<String>,
    notes: Vec<String>,
    why: String,
}

/// The largest figure worth a headline.
struct Headline {
    /// What it touches at most half of the time.
    usual: Option<u64>,
    /// What it touches at most nearly all of the time.
    need: Option<u64>,
    /// Half-width of its interval in percent.
    ci95_percent: Option<f64>,
    /// Highest resident set.
    peak: Option<u64>,
    /// Cold on average.
    cold: Option<u64>,
}

fn headline(summary: &Summary) -> Headline {
    let window = summary.working_set.iter().find(|set| set.window_s == NEED_WINDOW_S);
    let cold = summary.cold.iter().find(|cold| cold.age_s == COLD_S);
    Headline {
        usual: window.and_then(|set| set.p50_bytes),
        need: window.and_then(|set| set.p95_bytes),
        ci95_percent: window.and_then(|set| set.ci95_percent),
        peak: summary.memory.rss.peak_bytes,
        cold: cold.and_then(|cold| Some(cold.anon_bytes? + cold.file_bytes?)),
    }
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
        Self { summary, command: source.command(), ending, notes, why: source.why_unmeasured() }
    }

    /// What could not be seen, one sentence each.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The sentence that answers the question.
    pub(super) fn sentence(&self) -> String {
        let line = headline(&self.summary);
        let peak = line.peak.map_or_else(String::new, |_| format!("; peak RSS {}", whole_bytes(line.peak)));
        let cold = line.cold.map_or_else(String::new, |_| {
            format!("; on average {} were cold for {COLD_S} s or longer", whole_bytes(line.cold))
        });
        let saved = self.summary.ledger.as_ref().map_or_else(String::new, super::ledger::sentence);
        match line.need {
            Some(_) => format!(
                "Touched at most {} within {NEED_WINDOW_S} s half of the time, {} 95 % of the time{peak}{cold}.{}",
                whole_bytes(line.usual),
                whole_bytes(line.need),
                if saved.is_empty() { saved } else { format!("{saved}.") }
            ),
            // Schemes look as far back as they act, and no further.
            None if !saved.is_empty() => format!("{}{peak}.", saved.trim()),
            None => format!("How much it needs was not measured: {}{peak}.", self.why),
        }
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
        let mut grid = Grid::new("Working set", &["touched within", "median", "95 %", "highest", "average", "±"]);
        for set in &self.summary.working_set {
            let WindowSummary { window_s, p50_bytes, p95_bytes, max_bytes, avg_bytes, ci95_percent } = *set;
            if p50_bytes.is_some() {
                let columns = [p50_bytes, p95_bytes, max_bytes, avg_bytes].map(whole_bytes);
                let width = figure(ci95_percent, 0, " %");
                grid.row([format!("{window_s} s")].into_iter().chain(columns).chain([width]));
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
        let all = [self.memory(), self.budgets(), self.stalls(), self.cost()];
        all.into_iter().chain(self.ledger()).filter(|grid| !grid.rows.is_empty()).collect()
    }
}

impl Report for Overview {
    fn lead(&self) -> String {
        format!("{}\n{}\n\n{}", self.command, self.ran(), self.sentence())
    }

    fn grids(&self) -> Vec<Grid> {
        let always = [self.memory(), self.budgets()];
        let more = [Some(self.stalls()), Some(self.cost()), self.noted()];
        let measured = [self.working_set(), self.idle()].into_iter().flatten();
        let all = measured.chain(always).chain(self.ledger()).chain(more.into_iter().flatten());
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

/// The headline's figures as tiles of a page: value, what it is, and beside what it stands.
pub(super) fn tiles(overview: &Overview) -> Vec<(String, String, String)> {
    let summary = &overview.summary;
    let line = headline(summary);
    let share = |part: Option<u64>| {
        let (part, whole) = (part?, line.peak.filter(|peak| *peak > 0)?);
        #[expect(clippy::cast_precision_loss, reason = "a percentage is shown")]
        let percent = 100.0 * part as f64 / whole as f64;
        Some(format!("{percent:.0} % of the peak"))
    };
    let interval = line.ci95_percent.map(|percent| format!("± {percent:.0} %"));
    let need_under = [interval, share(line.need)].into_iter().flatten().collect::<Vec<_>>().join(", ");
    let tile =
        |value: Option<u64>, name: &str, under: String| value.map(|_| (whole_bytes(value), name.to_owned(), under));
    let major = summary
        .faults
        .major
        .map(|_| (count(summary.faults.major), "major faults".to_owned(), "waited for I/O".to_owned()));
    [
        tile(line.need, &format!("needed within {NEED_WINDOW_S} s"), need_under),
        tile(
            line.peak,
            "peak resident (RSS)",
            summary
                .memory
                .rss
                .avg_bytes
                .map_or_else(String::new, |avg| format!("{} on average", whole_bytes(Some(avg)))),
        ),
        tile(line.cold, &format!("cold for {COLD_S} s or longer"), share(line.cold).unwrap_or_default()),
        tile(summary.budget.sys_max_rss_bytes, "peak with file cache", "Sys-MaxRSS".to_owned()),
        major,
    ]
    .into_iter()
    .flatten()
    .take(4)
    .collect()
}
