//! Policies on the simulated machine, side by side: what each would have saved, and at what price.

use std::io::Write;

use lowtide_model::units::{float, human_bytes};
use lowtide_policy::sim::{MachineSample, Outcome};
use serde::Serialize;

use super::draw::axis::short_count;
use super::draw::{Axis, Figure, Ink, Page, Track, Units, lines};
use super::page::{self, PageOpening, Section};
use super::text::{Grid, Terminal, bytes, count, figure};
use super::{Format, ReportError, drawing, pretty};

/// What is called the run without a policy.
pub const NOTHING: &str = "nothing";

/// One policy's run.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// Its name.
    pub policy: String,
    /// What happened.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Workloads listed one by one, at most.
const WORKLOADS: usize = 24;

/// Simulated runs of one machine.
#[derive(Debug)]
pub struct SimulatedRuns {
    /// What was simulated.
    pub title: String,
    /// The first is the one without a policy.
    pub runs: Vec<Run>,
}

/// Writes the runs.
///
/// # Errors
/// If a drawing fails, or `out` does.
pub fn write(
    SimulatedRuns { title, runs }: &SimulatedRuns,
    format: Format,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    match format {
        Format::Text => {
            let [saved, paid] = policies(runs);
            let grids = [saved, paid, workloads(runs)];
            let texts: Vec<String> =
                grids.iter().filter(|grid| !grid.rows.is_empty()).map(|grid| grid.text(terminal)).collect();
            out.write_all(texts.join("\n").as_bytes())?;
        }
        Format::Json => pretty(&runs, out)?,
        Format::Csv => csv(runs, out)?,
        Format::Html => out.write_all(page(title, runs)?.as_bytes())?,
        Format::Svg | Format::Png => {
            let figures = vec![memory(Page::Wide, runs), refaults(Page::Wide, runs)];
            drawing(format, &Figure::sheet("Simulated", title, figures), out)?;
        }
    }
    Ok(())
}

/// Bytes that workloads and what keeps their memory take.
fn taken(outcome: &Outcome) -> f64 {
    outcome.resident_bytes + outcome.stored_bytes
}

/// Bytes that are free, on average, because of the policy.
fn net(run: &Run, nothing: &Outcome) -> f64 {
    taken(nothing) - taken(&run.outcome)
}

fn pages_per_s(outcome: &Outcome) -> Option<f64> {
    let pages = float(outcome.refaults.total());
    (outcome.duration_s > 0.0).then(|| pages / outcome.duration_s)
}

/// What was saved, and what it cost.
fn policies(runs: &[Run]) -> [Grid; 2] {
    let head = ["policy", "resident", "anon evicted", "file evicted", "in zram", "net saving", ""];
    let mut saved = Grid::new("Memory, means over the run", &head);
    let mut paid = Grid::new("Price", &["policy", "refaults", "slowdown", "worst", "killed", "CPU"]);
    for run in runs {
        let outcome = &run.outcome;
        let nothing = runs.first().map_or(outcome, |first| &first.outcome);
        let saving = net(run, nothing);
        let share = (taken(nothing) > 0.0).then(|| 100.0 * saving / taken(nothing));
        let sizes = [outcome.resident_bytes, outcome.out_bytes.anon, outcome.out_bytes.file, outcome.stored_bytes];
        let sizes = sizes.map(|size| bytes(Some(size)));
        let net = [human_bytes(saving), figure(share, 1, " %")];
        saved.row([run.policy.clone()].into_iter().chain(sizes).chain(net));
        let worst = outcome.workloads.iter().map(lowtide_policy::sim::WorkloadOutcome::slowdown).fold(0.0, f64::max);
        paid.row([
            run.policy.clone(),
            figure(pages_per_s(outcome), 1, " pages/s"),
            figure(Some(100.0 * outcome.slowdown()), 2, " %"),
            figure(Some(100.0 * worst), 2, " %"),
            count(Some(u64::try_from(outcome.killed()).unwrap_or(u64::MAX))),
            figure(Some(100.0 * outcome.action_cpu_s / outcome.duration_s.max(1e-9)), 2, " %"),
        ]);
    }
    [saved, paid]
}

fn workloads(runs: &[Run]) -> Grid {
    let mut grid =
        Grid::new("Workloads", &["workload", "policy", "resident", "at peak", "evicted", "refaults", "slowdown", ""]);
    let Some(first) = runs.first().filter(|run| (2..=WORKLOADS).contains(&run.outcome.workloads.len())) else {
        return grid;
    };
    for at in 0..first.outcome.workloads.len() {
        for run in runs {
            let Some(load) = run.outcome.workloads.get(at) else { continue };
            let name = if run.policy == first.policy { load.name.clone() } else { String::new() };
            grid.row([
                name,
                run.policy.clone(),
                bytes(Some(load.resident_bytes)),
                bytes(Some(load.resident_peak_bytes)),
                bytes(Some(load.out_bytes.total())),
                count(Some(load.refaults.total())),
                figure(Some(100.0 * load.slowdown()), 2, " %"),
                if load.killed { "killed" } else { "" }.to_owned(),
            ]);
        }
    }
    grid
}

/// What is drawn of a sample, and on which scale up to the highest of it.
struct Quantity {
    get: fn(&MachineSample) -> f64,
    scale: fn(f64) -> Axis,
    unit: &'static str,
}

/// A run's line; grey without a policy.
fn track(at: usize, run: &Run, get: fn(&MachineSample) -> f64) -> Track {
    let line = run.outcome.samples.iter().map(|sample| (sample.t_s, get(sample))).collect();
    match at.checked_sub(1) {
        Some(at) => Track::nth(at, &run.policy, 7, line),
        None => Track::new(&run.policy, Ink::Kernel, 7, line),
    }
}

/// A figure of all runs over time.
fn over_time<'a>(page: Page, title: &'a str, runs: &'a [Run], Quantity { get, scale, unit }: Quantity) -> Figure<'a> {
    let end = runs.iter().map(|run| run.outcome.duration_s).fold(1e-3, f64::max);
    let most = runs.iter().flat_map(|run| &run.outcome.samples).map(get).fold(1e-6, f64::max) * 1.05;
    let time = Axis::time(0.0, end, page.of(10, 5));
    let tracks = runs.iter().enumerate().map(|(at, run)| track(at, run, get)).collect();
    lines(page, (title, time.time_name()), ([time, scale(most)], Units { x: "s", y: unit }), tracks)
}

fn memory(page: Page, runs: &[Run]) -> Figure<'_> {
    over_time(
        page,
        "Memory used, including zram",
        runs,
        Quantity { get: |at| at.resident_bytes + at.stored_bytes, scale: |most| Axis::bytes(most, 4), unit: "B" },
    )
}

fn refaults(page: Page, runs: &[Run]) -> Figure<'_> {
    over_time(
        page,
        "Refaults, pages per second",
        runs,
        // A chart of nothing still has a scale.
        Quantity {
            get: |at| at.refaults_per_s,
            scale: |most| Axis::numbers(0.0, most.max(0.5), 5, short_count),
            unit: "/s",
        },
    )
}

/// Which policy saves most, and which of those that cost little.
fn answer(runs: &[Run]) -> String {
    const LITTLE: f64 = 0.005;
    let Some((nothing, policies)) = runs.split_first().filter(|(_, policies)| !policies.is_empty()) else {
        return String::new();
    };
    let nothing = &nothing.outcome;
    let best = |most: f64| {
        let cheap = policies.iter().filter(|run| {
            net(run, nothing) > 0.0 && run.outcome.slowdown() <= most && run.outcome.killed() <= nothing.killed()
        });
        cheap.max_by(|a, b| net(a, nothing).total_cmp(&net(b, nothing)))
    };
    let words = |run: &Run| {
        let (saved, slower) = (human_bytes(net(run, nothing)), 100.0 * run.outcome.slowdown());
        format!("{saved} on average, at {slower:.2} % slowdown")
    };
    let Some(most) = best(f64::INFINITY) else { return "No policy saves memory here.".to_owned() };
    match best(LITTLE).filter(|cheap| cheap.policy != most.policy) {
        Some(cheap) => format!(
            "{} saves most: {}. Of those at <= 0.5 % slowdown, {} saves {}.",
            most.policy,
            words(most),
            cheap.policy,
            words(cheap)
        ),
        None => format!("{} saves most: {}.", most.policy, words(most)),
    }
}

fn page(title: &str, runs: &[Run]) -> Result<String, ReportError> {
    let names: Vec<&str> = runs.iter().map(|run| run.policy.as_str()).collect();
    let chapters = vec![
        Section::chapter(
            "What each policy saves and costs",
            "Net saving: memory freed by the policy on average, less what zram takes for evicted pages. Slowdown: time that \
             workloads wait for memory, as a share of their run time; worst: of the workload that waits most. Policy \
             \u{201c}nothing\u{201d} is the machine without a policy.",
            policies(runs).to_vec(),
            |page| Some(memory(page, runs)),
        )?,
        Section::chapter("Refaults", "Pages that were evicted and accessed again.", vec![workloads(runs)], |page| {
            Some(refaults(page, runs))
        })?,
    ];
    page::chapters(
        PageOpening { command: "simulate", title: title.to_owned(), ran: names.join(", "), answer: answer(runs) },
        chapters,
    )
}

fn csv(runs: &[Run], out: &mut dyn Write) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["policy", "t_s", "resident_bytes", "out_bytes", "stored_bytes", "refaults_per_s", "waited"])?;
    for run in runs {
        for at in &run.outcome.samples {
            let figures = [at.t_s, at.resident_bytes, at.out_bytes, at.stored_bytes, at.refaults_per_s, at.waited];
            csv.write_record([run.policy.clone()].into_iter().chain(figures.map(|figure| figure.to_string())))?;
        }
    }
    csv.flush()
}
