//! `summary.json`: a pure function of a record's `meta.json` and usage rows. Field names are the contract.

use serde::{Deserialize, Serialize};

use crate::bottom_line::{BottomLine, independent};
use crate::budget::{self, Known, Mechanism, OwnBudgets};
use crate::cohort::AgeRow;
use crate::ledger::{self, Ledger};
use crate::meta::{Host, IMPORTED};
use crate::numa::{self, NodeRow, NodeSummary};
use crate::stats;
use crate::units::{count, rounded};
use crate::usage::{Usage, rise};
use crate::{AGE_EDGES_S, WINDOWS_S};

/// A level over the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Highest.
    pub peak_bytes: Option<u64>,
    /// Mean over the ticks.
    pub avg_bytes: Option<u64>,
}

impl Level {
    /// Of values in bytes.
    pub(crate) fn of(values: &[f64]) -> Self {
        Self { peak_bytes: stats::max(values).map(rounded), avg_bytes: stats::mean(values).map(rounded) }
    }
}

/// What measured, and what it cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MonitorSummary {
    /// `damon-vaddr`, `damon-paddr`, `mglru`, `smaps` or `none`.
    pub backend: String,
    /// Seconds between two samples of a page.
    pub sampling_s: Option<f64>,
    /// Seconds over which the map counts accesses.
    pub aggregation_s: Option<f64>,
    /// Ticks with a picture of the working set.
    pub snapshots: u64,
    /// Share of resident bytes that the sample stands for, mean over ticks.
    pub coverage_percent: Option<f64>,
    /// CPU seconds of lowtide and its kernel threads.
    pub cpu_s: Option<f64>,
    /// The same as percent of one CPU over the run.
    pub cpu_percent: Option<f64>,
    /// lowtide's own highest resident set.
    pub own_peak_rss_bytes: Option<u64>,
}

/// Levels by type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named after the rows of the field table")]
pub struct MemorySummary {
    pub rss: Level,
    pub pss: Level,
    pub demand: Level,
    pub swap: Level,
    pub anon: Level,
    pub file: Level,
    pub kernel: Level,
    pub cgroup: Level,
    pub system_used: Level,
}

/// Faults over the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named after the rows of the field table")]
pub struct Faults {
    pub minor: Option<u64>,
    pub major: Option<u64>,
    pub refault_anon: Option<u64>,
    pub refault_file: Option<u64>,
}

/// Stalls over the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "named after the rows of the field table")]
pub struct Pressure {
    pub memory_some_s: Option<f64>,
    pub memory_full_s: Option<f64>,
    pub io_some_s: Option<f64>,
}

/// The working set of one window over the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowSummary {
    /// The window.
    pub window_s: u32,
    /// Readings that do not overlap.
    #[serde(default)]
    pub readings: u64,
    /// Median over the readings; null of fewer than [`FEWEST_FOR_PERCENTILES`].
    pub p50_bytes: Option<u64>,
    /// 95th percentile.
    pub p95_bytes: Option<u64>,
    /// Largest; no less than that of a shorter window, as a longer one holds it.
    pub max_bytes: Option<u64>,
    /// Mean.
    pub avg_bytes: Option<u64>,
    /// Half-width of one reading's 95 % interval in percent of its estimate, median over the readings; null where readings have
    /// no sampling error.
    pub ci95_percent: Option<f64>,
}

/// Fewer independent readings have no percentiles, but their number.
pub const FEWEST_FOR_PERCENTILES: u64 = 8;

/// Bytes idle at least so long, mean over ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ColdSummary {
    /// Idle at least so many seconds.
    pub age_s: u32,
    /// Anonymous bytes.
    pub anon_bytes: Option<u64>,
    /// File bytes, mapped or not.
    pub file_bytes: Option<u64>,
}

/// Budgets in the sense of Garg et al., MEMSYS'20, and lowtide's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BudgetSummary {
    /// Largest resident set of one process.
    pub app_max_rss_bytes: Option<u64>,
    /// Highest active plus inactive memory of all kinds that served it.
    pub sys_max_rss_bytes: Option<u64>,
    /// Highest rise of the system's memory in use.
    pub unlimited_bytes: Option<u64>,
    /// Smallest memory within the stated slowdown, on the machine of the record: with the swap that was active there.
    pub lowtide_bytes: Option<u64>,
    /// The stated slowdown.
    pub slowdown_percent: f64,
}

/// `summary.json`. All keys are always there; null = not measurable here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the sections are the documented types")]
pub struct Summary {
    pub schema: u32,
    pub command: Vec<String>,
    pub exit_code: Option<i32>,
    pub runtime_s: f64,
    pub host: Host,
    /// The bottom line.
    #[serde(default)]
    pub answer: BottomLine,
    pub monitor: MonitorSummary,
    pub memory: MemorySummary,
    /// By NUMA node; empty where there is but one.
    #[serde(default)]
    pub nodes: Vec<NodeSummary>,
    pub faults: Faults,
    pub io_wait_percent: Option<f64>,
    pub cpu_utilisation_percent: Option<f64>,
    pub pressure: Pressure,
    pub working_set: Vec<WindowSummary>,
    pub cold: Vec<ColdSummary>,
    pub budget: BudgetSummary,
    /// `None` where no schemes were at work.
    pub ledger: Option<Ledger>,
}

/// The slowdown that `budget` allows.
const SLOWDOWN: f64 = 0.02;

/// Idle bytes of one tick: for each of [`AGE_EDGES_S`] bytes idle at least so long, anonymous and file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ColdRow {
    /// Time of the tick.
    pub t_s: f64,
    /// Anonymous; `None` where the edge was not reached yet.
    pub anon: [Option<f64>; AGE_EDGES_S.len()],
    /// File.
    pub file: [Option<f64>; AGE_EDGES_S.len()],
}

/// The histograms of every tick as bytes idle at least so long. An edge inside a bin is not known.
#[must_use]
pub fn cold_rows(rows: &[AgeRow]) -> Vec<ColdRow> {
    let mut list: Vec<ColdRow> = Vec::new();
    for tick in rows.chunk_by(|a, b| a.t_s.to_bits() == b.t_s.to_bits()) {
        let idle_for = |anon: bool, edge: f64| {
            let side = || tick.iter().map(|row| row.bin).filter(move |bin| bin.anon == anon);
            let known = side().any(|bin| (bin.min_s - edge).abs() < 1e-9);
            known.then(|| side().filter(|bin| bin.min_s >= edge - 1e-9).map(|bin| bin.size.bytes).sum::<f64>())
        };
        let edges = AGE_EDGES_S.map(f64::from);
        list.push(ColdRow {
            t_s: tick.first().map_or(0.0, |row| row.t_s),
            anon: edges.map(|edge| idle_for(true, edge)),
            file: edges.map(|edge| idle_for(false, edge)),
        });
    }
    list
}

fn column(rows: &[Usage], get: impl Fn(&Usage) -> Option<f64>) -> Vec<f64> {
    rows.iter().filter_map(get).collect()
}

fn level(rows: &[Usage], get: impl Fn(&Usage) -> Option<f64>) -> Level {
    Level::of(&column(rows, get))
}

/// The summary of a record. The first usage row is the baseline taken before the command started; levels leave it out.
#[must_use]
pub fn summarise(known: &Known<'_>, cold: &[ColdRow], nodes: &[NodeRow]) -> Summary {
    let (meta, rows) = (known.meta, known.rows);
    let end = meta.end.clone().unwrap_or_default();
    let last_t = rows.last().and_then(|row| row.t_s).unwrap_or(0.0);
    let runtime_s = if meta.end.is_some() { end.runtime_s } else { last_t };
    let percent_of_run = |seconds: f64| (runtime_s > 0.0).then(|| 100.0 * seconds / runtime_s);
    // What another tool's recording cost is not known.
    let own = meta.end.as_ref().filter(|end| end.reason != IMPORTED);
    let cpu_s = own.map(|end| end.monitor_cpu_s).or(rows.last().and_then(|row| row.monitor_cpu_s));
    let live = rows.get(1..).unwrap_or_default();
    let mut memory = memory(live);
    memory.cgroup.peak_bytes = memory.cgroup.peak_bytes.max(end.cgroup_peak_bytes);
    let own_budgets = OwnBudgets::of(known, SLOWDOWN);
    let budgets = budget::budgets(known, &own_budgets);
    let budgeted = |mechanism| budget::by(mechanism, &budgets).map(|budget| budget.bytes);
    let system_cpu = rise(rows, |row| row.system_cpu_s).filter(|total| *total > 0.0);
    Summary {
        schema: crate::meta::SCHEMA,
        command: meta.command.clone(),
        exit_code: end.exit_code,
        runtime_s,
        host: meta.host.clone(),
        answer: BottomLine::of(known, &own_budgets),
        monitor: MonitorSummary {
            backend: meta.monitor.backend.clone(),
            sampling_s: (meta.monitor.sampling_s > 0.0).then_some(meta.monitor.sampling_s),
            aggregation_s: (meta.monitor.aggregation_s > 0.0).then_some(meta.monitor.aggregation_s),
            snapshots: count(column(live, |row| row.cohort_pages.filter(|pages| *pages > 0.0)).len()),
            coverage_percent: stats::mean(&column(live, coverage)),
            cpu_s,
            cpu_percent: cpu_s.and_then(percent_of_run),
            own_peak_rss_bytes: own.map(|end| end.own_peak_rss_bytes),
        },
        memory,
        nodes: numa::summarise(nodes),
        faults: Faults {
            minor: rise(rows, |row| row.minor_faults).map(rounded),
            major: rise(rows, |row| row.major_faults).map(rounded),
            refault_anon: rise(rows, |row| row.refault_anon).map(rounded),
            refault_file: rise(rows, |row| row.refault_file).map(rounded),
        },
        io_wait_percent: rise(rows, |row| row.system_iowait_s).zip(system_cpu).map(|(wait, all)| 100.0 * wait / all),
        cpu_utilisation_percent: rise(rows, |row| row.cpu_s).and_then(percent_of_run),
        pressure: Pressure {
            memory_some_s: rise(rows, |row| row.memory_some_s),
            memory_full_s: rise(rows, |row| row.memory_full_s),
            io_some_s: rise(rows, |row| row.io_some_s),
        },
        working_set: working_sets(live),
        cold: AGE_EDGES_S.iter().enumerate().skip(1).map(|(edge, age)| cold_summary(cold, edge, *age)).collect(),
        budget: BudgetSummary {
            app_max_rss_bytes: end.app_max_rss_bytes,
            sys_max_rss_bytes: budgeted(Mechanism::SysMaxrss),
            unlimited_bytes: budgeted(Mechanism::Unlimited),
            lowtide_bytes: budgeted(Mechanism::Lowtide),
            slowdown_percent: 100.0 * SLOWDOWN,
        },
        ledger: ledger::ledger(&meta.schemes, rows),
    }
}

fn memory(live: &[Usage]) -> MemorySummary {
    MemorySummary {
        rss: level(live, |row| row.rss_bytes),
        pss: proportional(live),
        demand: level(live, |row| row.demand_bytes),
        swap: level(live, |row| row.swap_bytes),
        anon: level(live, |row| row.anon_bytes),
        file: level(live, |row| row.file_bytes),
        kernel: level(live, |row| row.kernel_bytes),
        cgroup: level(live, |row| row.cgroup_bytes),
        system_used: level(live, |row| row.system_used_bytes),
    }
}

/// Proportional sizes are dear to read, so few rows have one. They speak for the run as far as the resident sizes of
/// those rows do: within a tenth.
fn proportional(live: &[Usage]) -> Level {
    let read: Vec<Usage> = live.iter().filter(|row| row.pss_bytes.is_some()).cloned().collect();
    let (all, sampled) = (level(live, |row| row.rss_bytes), level(&read, |row| row.rss_bytes));
    let pss = level(&read, |row| row.pss_bytes);
    let alike = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| a.abs_diff(b) <= b / 10);
    Level {
        peak_bytes: pss.peak_bytes.filter(|_| alike(sampled.peak_bytes, all.peak_bytes)),
        avg_bytes: pss.avg_bytes.filter(|_| alike(sampled.avg_bytes, all.avg_bytes)),
    }
}

/// Share of anonymous and file bytes that the sample stands for.
fn coverage(row: &Usage) -> Option<f64> {
    let total = row.anon_bytes? + row.file_bytes?;
    (total > 0.0).then_some(100.0 * (row.watched_bytes? / total).min(1.0))
}

/// All windows. A longer window that was read at other times than a shorter one may have held less then; its mean and largest
/// are no less over the run all the same.
fn working_sets(live: &[Usage]) -> Vec<WindowSummary> {
    let mut sets: Vec<WindowSummary> = WINDOWS_S.iter().map(|window| window_summary(live, *window)).collect();
    let (mut most, mut mean) = (None, None);
    for set in sets.iter_mut().filter(|set| set.readings > 0) {
        (most, mean) = (most.max(set.max_bytes), mean.max(set.avg_bytes));
        (set.max_bytes, set.avg_bytes) = (most, mean);
    }
    sets
}

fn window_summary(live: &[Usage], window_s: u32) -> WindowSummary {
    let sets = column(live, |row| row.working_set(window_s).map(|set| set.bytes));
    let widths = column(live, |row| {
        row.working_set(window_s)
            .filter(|set| set.bytes > 0.0 && set.ci95 > 0.0)
            .map(|set| 100.0 * set.ci95 / set.bytes)
    });
    let ends_s = live.iter().filter(|row| row.working_set(window_s).is_some()).filter_map(|row| row.t_s);
    let readings = count(independent(ends_s, f64::from(window_s)));
    let percentile = |q: f64| stats::quantile(&sets, q).filter(|_| readings >= FEWEST_FOR_PERCENTILES).map(rounded);
    WindowSummary {
        window_s,
        readings,
        p50_bytes: percentile(0.5),
        p95_bytes: percentile(0.95),
        max_bytes: stats::max(&sets).map(rounded),
        avg_bytes: stats::mean(&sets).map(rounded),
        ci95_percent: stats::quantile(&widths, 0.5),
    }
}

fn cold_summary(rows: &[ColdRow], edge: usize, age_s: u32) -> ColdSummary {
    let side = |get: &dyn Fn(&ColdRow) -> Option<f64>| {
        stats::mean(&rows.iter().filter_map(get).collect::<Vec<f64>>()).map(rounded)
    };
    ColdSummary { age_s, anon_bytes: side(&|row| row.anon[edge]), file_bytes: side(&|row| row.file[edge]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cohort::{AgeBin, Estimate};
    use crate::meta::{End, Meta};

    fn row(t_s: f64, used: f64, ws: f64) -> Usage {
        Usage {
            t_s: Some(t_s),
            system_used_bytes: Some(used),
            minor_faults: Some(10.0 * t_s),
            rss_bytes: Some(ws),
            ws_1s_bytes: Some(ws),
            ws_1s_ci95_bytes: Some(ws / 10.0),
            ..Usage::default()
        }
    }

    #[test]
    fn proportional_sizes_speak_only_for_what_they_saw() {
        let with = |t_s: f64, rss: f64, pss: Option<f64>| Usage { pss_bytes: pss, ..row(t_s, 0.0, rss) };
        let rows = [with(1.0, 100.0, Some(50.0)), with(2.0, 900.0, None), with(3.0, 1000.0, None)];
        assert_eq!(proportional(&rows), Level { peak_bytes: None, avg_bytes: None });
        let rows = [with(1.0, 980.0, Some(490.0)), with(2.0, 1000.0, None), with(3.0, 990.0, Some(480.0))];
        assert_eq!(proportional(&rows), Level { peak_bytes: Some(490), avg_bytes: Some(485) });
    }

    #[test]
    fn budgets_and_percentiles_follow_the_rows() {
        let meta = Meta {
            end: Some(End { runtime_s: 3.0, exit_code: Some(7), monitor_cpu_s: 0.03, ..End::default() }),
            ..Meta::default()
        };
        let rows = [row(0.0, 100.0, 0.0), row(1.0, 400.0, 10.0), row(2.0, 300.0, 20.0), row(3.0, 120.0, 30.0)];
        let summary = summarise(&Known::of(&meta, &rows), &[], &[]);
        assert_eq!(summary.exit_code, Some(7));
        assert_eq!(summary.budget.unlimited_bytes, Some(300));
        assert_eq!(summary.faults.minor, Some(30));
        let set = summary.working_set[0];
        assert_eq!((set.readings, set.p50_bytes, set.avg_bytes, set.max_bytes), (3, None, Some(20), Some(30)));
        assert_eq!(summary.working_set[0].ci95_percent, Some(10.0));
        assert_eq!(summary.memory.rss, Level { peak_bytes: Some(30), avg_bytes: Some(20) });
        assert_eq!(summary.monitor.cpu_percent, Some(1.0));
        assert_eq!(summary.faults.major, None, "not measured is null, not zero");
    }

    #[test]
    fn percentiles_are_of_eight_readings_and_more() {
        let of = |seconds: u32| {
            let rows: Vec<Usage> = (0..=seconds).map(|t_s| row(f64::from(t_s), 0.0, f64::from(t_s))).collect();
            window_summary(&rows[1..], 1)
        };
        assert_eq!((of(7).readings, of(7).p50_bytes, of(7).p95_bytes), (7, None, None));
        assert_eq!((of(9).readings, of(9).p50_bytes), (9, Some(5)));
    }

    #[test]
    fn a_longer_window_holds_no_less() {
        let mut rows = [row(0.0, 0.0, 0.0), row(1.0, 0.0, 90.0), row(12.0, 0.0, 10.0)];
        rows[2].ws_10s_bytes = Some(30.0);
        let sets = working_sets(&rows[1..]);
        assert_eq!((sets[0].avg_bytes, sets[0].max_bytes), (Some(50), Some(90)));
        assert_eq!((sets[1].avg_bytes, sets[2].avg_bytes, sets[2].max_bytes), (None, Some(50), Some(90)));
    }

    #[test]
    fn every_key_of_the_contract_is_there_even_when_nothing_was_measured() {
        let json = serde_json::to_value(summarise(&Known::of(&Meta::default(), &[]), &[], &[])).unwrap();
        for key in [
            "schema",
            "command",
            "exit_code",
            "runtime_s",
            "host",
            "answer",
            "monitor",
            "memory",
            "faults",
            "io_wait_percent",
            "cpu_utilisation_percent",
            "pressure",
            "working_set",
            "cold",
            "budget",
            "ledger",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        for key in ["rss", "pss", "demand", "swap", "anon", "file", "kernel", "cgroup", "system_used"] {
            assert!(json["memory"][key].get("peak_bytes").is_some(), "{key}");
        }
        let windows: Vec<_> =
            json["working_set"].as_array().unwrap().iter().map(|w| w["window_s"].as_u64().unwrap()).collect();
        assert_eq!(windows, [1, 5, 10, 30, 60, 120]);
    }

    #[test]
    fn an_edge_is_known_where_a_bin_begins() {
        let bin = |anon, min_s: f64, max_s, bytes| AgeRow {
            t_s: 1.0,
            bin: AgeBin { anon, min_s, max_s, size: Estimate { bytes, ci95: 0.0 }, first_touched: None },
        };
        let rows = [
            bin(true, 0.0, Some(1.0), 10.0),
            bin(true, 1.0, Some(5.0), 20.0),
            bin(true, 5.0, None, 30.0),
            bin(false, 0.0, None, 7.0),
        ];
        let cold = cold_rows(&rows);
        assert_eq!(cold.len(), 1);
        // Edges 0, 1, 2, 5, 10, ...
        assert_eq!(cold[0].anon[..5], [Some(60.0), Some(50.0), None, Some(30.0), None]);
        assert_eq!(cold[0].file[..2], [Some(7.0), None]);
    }
}
