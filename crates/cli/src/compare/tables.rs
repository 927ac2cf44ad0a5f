//! The tables of the runs: those of the published evaluation, and paired differences with their intervals beside them.

use lowtide_model::interval::Change;
use lowtide_model::ledger::Ledger;
use lowtide_model::stats;
use lowtide_model::units::{float, human_seconds};
use serde::{Serialize, Serializer};
use serde_json::json;

use super::outcome::RunOutcome;
use super::suite::ORIGINAL;
use lowtide_report::text::{Grid, bytes, figure};

/// A figure of a run.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// As the published tables have it.
    pub name: &'static str,
    /// In what tables give it.
    pub unit: &'static str,
    /// What it is, in words.
    pub about: &'static str,
    /// What of a unit 1 is.
    scale: f64,
    /// It is a figure of the machine, not of the program.
    pub is_machine_wide: bool,
    get: fn(&RunOutcome) -> Option<f64>,
}

const MIB: f64 = 1_048_576.0;

/// The metrics of the published evaluation, and the last net of what swap in memory takes.
pub const METRICS: [Metric; 4] = [
    Metric {
        name: "runtime",
        unit: "s",
        about: "Time from start to end",
        scale: 1.0,
        is_machine_wide: false,
        get: |run| Some(run.runtime_s),
    },
    Metric {
        name: "memused.avg",
        unit: "MiB",
        about: "Memory in use on the system, mean over the run",
        scale: MIB,
        is_machine_wide: true,
        get: |run| run.system_used_bytes,
    },
    Metric {
        name: "rss.avg",
        unit: "MiB",
        about: "Memory resident in the program, mean over the run",
        scale: MIB,
        is_machine_wide: false,
        get: |run| run.rss_bytes,
    },
    Metric {
        name: "net.avg",
        unit: "MiB",
        about: "Memory resident in the program and what zram and zswap take for the rest, mean over the run",
        scale: MIB,
        is_machine_wide: false,
        get: RunOutcome::net_bytes,
    },
];

/// What programs print themselves.
pub const FIGURE: Metric = Metric {
    name: "figure",
    unit: "",
    about: "Figure reported by the program; usually, more is better",
    scale: 1.0,
    is_machine_wide: false,
    get: |run| run.figure,
};

impl Metric {
    /// The values of all runs that count of a program in a configuration, by round, in units.
    fn values(&self, runs: &[RunOutcome], program: &str, config: &str) -> Vec<(u32, f64)> {
        counting(runs, program, config).filter_map(|run| Some((run.round, (self.get)(run)? / self.scale))).collect()
    }
}

/// The runs of a program in a configuration that count: not the warm-up, and none that failed.
pub fn counting<'a>(runs: &'a [RunOutcome], program: &str, config: &str) -> impl Iterator<Item = &'a RunOutcome> {
    let counts = move |run: &&RunOutcome| {
        run.round > 0 && run.failure.is_none() && run.program == program && run.config == config
    };
    runs.iter().filter(counts)
}

/// One program in one configuration by one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// Which program.
    pub program: String,
    /// In which configuration.
    pub config: String,
    /// By which metric.
    pub metric: &'static str,
    /// In what the figures are.
    pub unit: &'static str,
    /// Runs that count.
    pub runs: usize,
    /// Mean.
    pub avg: f64,
    /// Standard deviation of the sample; `None` of a single run.
    pub stdev: Option<f64>,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// Percent by which the mean is above the original's.
    #[serde(rename = "overhead_percent")]
    pub overhead: Option<f64>,
    /// By how much a run is above the original's of the same round.
    #[serde(rename = "paired_percent", serialize_with = "as_percent")]
    pub paired: Option<Change>,
}

fn as_percent<S: Serializer>(change: &Option<Change>, serializer: S) -> Result<S::Ok, S::Error> {
    let percent = |share: f64| 100.0 * share;
    let all = change.map(|Change { mean, interval, pairs }| {
        json!({ "mean": percent(mean), "ci95": interval.map(|ends| ends.map(percent)), "pairs": pairs })
    });
    all.serialize(serializer)
}

/// All cells, for programs and configurations in this order.
#[must_use]
pub fn cells(runs: &[RunOutcome], programs: &[String], configs: &[String], metrics: &[Metric]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for metric in metrics {
        for program in programs {
            let original = metric.values(runs, program, ORIGINAL);
            for config in configs {
                let by_round = metric.values(runs, program, config);
                cells.extend(cell(metric, (program, config), &by_round, &original));
            }
        }
    }
    cells
}

/// The cell of a program and configuration, from values by round: its own, and those of the original configuration.
fn cell(
    metric: &Metric,
    (program, config): (&str, &str),
    by_round: &[(u32, f64)],
    original: &[(u32, f64)],
) -> Option<Cell> {
    let values: Vec<f64> = by_round.iter().map(|(_, value)| *value).collect();
    let bare: Vec<f64> = original.iter().map(|(_, value)| *value).collect();
    let avg = stats::mean(&values)?;
    let percent = |value: f64, of: f64| (of > 0.0).then(|| 100.0 * (value / of - 1.0));
    let pair = |(round, value): &(u32, f64)| {
        let (_, of) = original.iter().find(|(other, _)| other == round)?;
        Some((*value, *of))
    };
    let pairs: Vec<(f64, f64)> = by_round.iter().filter_map(pair).collect();
    let other = config != ORIGINAL;
    Some(Cell {
        program: program.to_owned(),
        config: config.to_owned(),
        metric: metric.name,
        unit: metric.unit,
        runs: values.len(),
        avg,
        stdev: stats::stdev(&values),
        min: stats::quantile(&values, 0.0)?,
        max: stats::max(&values)?,
        overhead: stats::mean(&bare).filter(|_| other).and_then(|of| percent(avg, of)),
        paired: if other { Change::of(&pairs) } else { None },
    })
}

fn digits(value: f64) -> String {
    if value.abs() >= 10_000.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

fn signed(percent: Option<f64>) -> String {
    percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.2}"))
}

/// The sum of the means of all programs that have one in every configuration, by configuration.
#[must_use]
pub fn totals(cells: &[Cell], metric: &Metric, programs: &[String], configs: &[String]) -> Vec<f64> {
    let mut sums = vec![0.0; configs.len()];
    for program in programs {
        let of = |config: &String| find(cells, metric, program, config).map(|cell| cell.avg);
        let means: Vec<f64> = configs.iter().filter_map(of).collect();
        if means.len() == configs.len() {
            for (sum, mean) in sums.iter_mut().zip(means) {
                *sum += mean;
            }
        }
    }
    sums
}

fn find<'a>(cells: &'a [Cell], metric: &Metric, program: &str, config: &str) -> Option<&'a Cell> {
    cells.iter().find(|cell| cell.metric == metric.name && cell.program == program && cell.config == config)
}

/// A metric's table as published: means, percent over the original; the sum of all programs that have all figures last.
#[must_use]
pub fn means(cells: &[Cell], metric: &Metric, programs: &[String], configs: &[String]) -> Grid {
    let mut head = vec!["program".to_owned()];
    for config in configs {
        head.push(config.clone());
        if config != ORIGINAL {
            head.push("%".to_owned());
        }
    }
    let unit = if metric.unit.is_empty() { String::new() } else { format!(", {}", metric.unit) };
    let title = format!("{}{unit}, mean", metric.name);
    let mut grid = Grid { title, head, rows: Vec::new(), remarks: false };
    for program in programs {
        let mut row = vec![program.clone()];
        for config in configs {
            let cell = find(cells, metric, program, config);
            row.push(cell.map_or_else(|| "-".to_owned(), |cell| digits(cell.avg)));
            if config != ORIGINAL {
                row.push(signed(cell.and_then(|cell| cell.overhead)));
            }
        }
        grid.row(row);
    }
    let sums = totals(cells, metric, programs, configs);
    if programs.len() > 1 && metric.name != FIGURE.name {
        let mut row = vec!["total".to_owned()];
        for (config, sum) in configs.iter().zip(&sums) {
            row.push(digits(*sum));
            if config != ORIGINAL {
                row.push(signed((sums[0] > 0.0).then(|| 100.0 * (sum / sums[0] - 1.0))));
            }
        }
        grid.row(row);
    }
    grid
}

/// Standard deviation, least and most.
#[must_use]
pub fn spread(cells: &[Cell], metric: &Metric) -> Grid {
    let title = format!("{}, spread over the runs", metric.name);
    let mut grid = Grid::new(&title, &["program", "config", "runs", "stdev", "min", "max"]);
    for cell in cells.iter().filter(|cell| cell.metric == metric.name) {
        let stdev = cell.stdev.map_or_else(|| "-".to_owned(), digits);
        grid.row([
            cell.program.clone(),
            cell.config.clone(),
            cell.runs.to_string(),
            stdev,
            digits(cell.min),
            digits(cell.max),
        ]);
    }
    grid
}

/// What the pairs say: geometric means of the ratios, with their intervals.
#[must_use]
pub fn paired(cells: &[Cell], metric: &Metric) -> Grid {
    let title = format!("{}, percent over {ORIGINAL} in the same round", metric.name);
    let mut grid = Grid::new(&title, &["program", "config", "mean", "95 % interval"]);
    for cell in cells.iter().filter(|cell| cell.metric == metric.name) {
        if let Some(Change { mean, interval, .. }) = cell.paired {
            let ends = |[low, high]: [f64; 2]| format!("{:+.2} to {:+.2}", 100.0 * low, 100.0 * high);
            let interval = interval.map_or_else(|| "-".to_owned(), ends);
            grid.row([cell.program.clone(), cell.config.clone(), signed(Some(100.0 * mean)), interval]);
        }
    }
    grid
}

/// Faults, stalls, the price of monitoring, and the ledgers: means over the runs.
#[must_use]
pub fn effects(runs: &[RunOutcome], programs: &[String], configs: &[String]) -> Vec<Grid> {
    let mut costs = Grid::new(
        "Faults, stalls and monitoring, mean",
        &["program", "config", "major faults", "stalled on memory", "monitor CPU", "monitor"],
    );
    costs.remarks = true;
    let mut ledgers = Grid::new(
        "Savings and cost of schemes, mean",
        &["program", "config", "anon saved", "file saved", "kept", "net", "refaults", "action CPU"],
    );
    for (program, config) in programs.iter().flat_map(|program| configs.iter().map(move |config| (program, config))) {
        let of: Vec<&RunOutcome> = counting(runs, program, config).collect();
        // Several programs together have no such figures.
        let Some(first) = of.first().filter(|run| run.parts.is_empty()) else { continue };
        let mean = |get: &dyn Fn(&RunOutcome) -> Option<f64>| {
            stats::mean(&of.iter().filter_map(|run| get(run)).collect::<Vec<f64>>())
        };
        let seconds = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), human_seconds);
        costs.row([
            program.clone(),
            config.clone(),
            figure(mean(&|run| run.major_faults), 0, ""),
            seconds(mean(&|run| run.stalled_s)),
            seconds(mean(&|run| run.monitor_cpu_s)),
            first.monitor.clone(),
        ]);
        if first.ledger.is_none() {
            continue;
        }
        let of_ledger = |get: fn(&Ledger) -> Option<f64>| mean(&|run| get(run.ledger.as_ref()?));
        ledgers.row([
            program.clone(),
            config.clone(),
            bytes(of_ledger(|ledger| ledger.saved_anon_bytes.map(float))),
            bytes(of_ledger(|ledger| ledger.saved_file_bytes.map(float))),
            bytes(of_ledger(|ledger| ledger.kept_bytes.map(float))),
            bytes(of_ledger(|ledger| ledger.net_bytes.map(float))),
            figure(of_ledger(|ledger| ledger.refaults.map(float)), 0, ""),
            seconds(of_ledger(|ledger| ledger.action_cpu_s)),
        ]);
    }
    vec![costs, ledgers]
}

/// Runs that do not count.
#[must_use]
pub fn failures(runs: &[RunOutcome]) -> Grid {
    let mut grid = Grid::new("Runs that failed", &["program", "config", "round", "why"]);
    grid.remarks = true;
    for run in runs {
        if let Some(why) = &run.failure {
            grid.row([run.program.clone(), run.config.clone(), run.round.to_string(), why.clone()]);
        }
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(config: &str, round: u32, runtime_s: f64) -> RunOutcome {
        RunOutcome { program: "a".into(), config: config.into(), round, runtime_s, ..RunOutcome::default() }
    }

    #[test]
    fn overheads_are_over_means_and_pairs_over_rounds() {
        let runs = [
            run("orig", 0, 99.0),
            run("orig", 1, 10.0),
            run("prcl", 1, 11.0),
            run("prcl", 2, 24.0),
            run("orig", 2, 20.0),
            RunOutcome { failure: Some("x".into()), ..run("prcl", 3, 1.0) },
        ];
        let (programs, configs) = (vec!["a".to_owned()], vec!["orig".to_owned(), "prcl".to_owned()]);
        let cells = cells(&runs, &programs, &configs, &METRICS);
        assert_eq!(cells.len(), 2, "there are no figures of memory");
        assert_eq!((cells[0].avg, cells[0].overhead, cells[0].runs), (15.0, None, 2));
        assert!((cells[1].overhead.unwrap() - 16.666_666).abs() < 1e-4);
        let paired = cells[1].paired.unwrap();
        assert!((paired.mean - (1.1f64 * 1.2).sqrt() + 1.0).abs() < 1e-9);
        assert_eq!((paired.interval, paired.pairs), (None, 2), "two rounds give no interval");
        assert_eq!(super::paired(&cells, &METRICS[0]).rows, [["a", "prcl", "+14.89", "-"]]);
        let grid = means(&cells, &METRICS[0], &programs, &configs);
        assert_eq!(grid.rows, [["a", "15.000", "17.500", "+16.67"]]);
        assert_eq!(failures(&runs).rows.len(), 1);
    }

    #[test]
    fn the_interval_is_that_of_the_mean_beside_it() {
        let mut runs = Vec::new();
        for (round, ratio) in [(1, 1.0), (2, 1.1), (3, 1.21), (4, 1.1)] {
            runs.extend([run("orig", round, 10.0), run("prcl", round, 10.0 * ratio)]);
        }
        let cells = cells(&runs, &["a".to_owned()], &["orig".to_owned(), "prcl".to_owned()], &METRICS);
        // By Student's t with three degrees of freedom: 1.1 to the power of 1 +- 3.182 * 0.8165 / 2.
        assert_eq!(paired(&cells, &METRICS[0]).rows, [["a", "prcl", "+10.00", "-2.81 to +24.50"]]);
    }
}
