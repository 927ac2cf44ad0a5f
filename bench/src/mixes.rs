//! The guard on simulated machines: random mixes of programs that are short of memory, and healthy machines.

use lowtide_model::PAGE;
use lowtide_model::kind::Kind;
use lowtide_model::random::Random;
use lowtide_model::units::{float, integer};
use lowtide_policy::guard::{Guard, GuardSettings, Means};
use lowtide_policy::machine::{Observation, Policy, WorkloadAction};
use lowtide_policy::sim::Simulated;
use lowtide_policy::sim::load::{AccessPattern, Load, Part};
use lowtide_policy::sim::memory::Swap;
use lowtide_policy::sim::simulated::Setup;

use crate::grid::{figure, percent, table};
use crate::simulated::{memory, setup};

/// A mix thrashes if it takes so many times as long as its programs one after the other in the same memory.
const THRASHING: f64 = 1.1;

/// Seconds between two turns of a guard while tasks stall.
const TURN_S: f64 = 0.25;

#[derive(Debug, clap::Args)]
pub struct MixesArgs {
    /// Mixes of two to four programs
    #[arg(long, default_value = "1000")]
    mixes: u64,
    /// Simulated hours of healthy machines
    #[arg(long, default_value = "100")]
    hours: u32,
    /// Print each mix that the guard changes: its seed, programs, time against one after the other, and the change
    #[arg(long)]
    each: bool,
}

pub fn run(args: &MixesArgs) -> anyhow::Result<()> {
    let rows: Vec<Vec<String>> = [("pause", Means::Pause), ("protect", Means::Protect), ("auto", Means::Auto)]
        .into_iter()
        .map(|(name, means)| compared(name, means, args))
        .collect();
    let head = "means | mixes | thrashing | better | best | median | worst | worst of all | granted | \
        least progress | killed";
    println!("{}", table("Time until all are done, guarded against left alone", head, &rows));
    println!("Protections and pauses in {} h of healthy machines: {}", args.hours, healthy(args.hours));
    Ok(())
}

fn between(random: &mut Random, low: f64, high: f64) -> f64 {
    low + (high - low) * random.chance()
}

fn megabytes(value: f64) -> u32 {
    u32::try_from(integer(value)).unwrap_or(u32::MAX)
}

fn uses(random: &mut Random) -> AccessPattern {
    match random.below(3) {
        0 => AccessPattern::Sweep(between(random, 0.5, 4.0)),
        1 => AccessPattern::Steady(between(random, 0.2, 3.0)),
        _ => AccessPattern::Zipf(between(random, 0.05, 0.5)),
    }
}

fn machine(seed: u64, loads: Vec<Load>, share: f64, on_disk: bool) -> Setup {
    let pages = |part: &Part| f64::from(part.groups) * f64::from(part.group_pages) * float(PAGE);
    let asked: f64 = loads.iter().flat_map(|load| &load.parts).map(pages).sum();
    // Memory for zram is added to what the programs have.
    let stored = if on_disk { 0.0 } else { (1.0 - share).max(0.0) / 3.0 };
    let swap = Swap { capacity: 1 << 24, used: 0, zram: !on_disk, in_s: if on_disk { 100e-6 } else { 10e-6 } };
    let total = asked * (share + stored) / 0.98;
    Setup { cpus: 2.0, turn_s: TURN_S, ..setup(seed, loads, memory(total, swap), 0.25) }
}

/// Two to four programs that lack a fifth to a half of their memory.
fn mix(seed: u64) -> Setup {
    let mut random = Random::new(seed);
    let programs: Vec<Load> = (1..=2 + random.below(3))
        .map(|id| {
            let mib = megabytes(between(&mut random, 60.0, 300.0));
            let mut load =
                Load::new(id, format!("program {id}"), vec![Part::new(Kind::Anon, uses(&mut random), 256, mib)]);
            load.work_s = between(&mut random, 40.0, 240.0);
            load
        })
        .collect();
    let alone_s: f64 = programs.iter().map(|load| load.work_s).sum();
    let (share, on_disk) = (between(&mut random, 0.5, 0.8), random.below(2) == 0);
    Setup { duration_s: 60.0 * alone_s, ..machine(seed, programs, share, on_disk) }
}

/// Seconds that programs take one after the other, each with all of the memory.
fn one_by_one(setup: &Setup) -> f64 {
    let alone = |load: &Load| finish(Setup { loads: vec![load.clone()], ..setup.clone() }, None).makespan_s;
    setup.loads.iter().map(alone).sum()
}

struct MixEnd {
    makespan_s: f64,
    killed: usize,
    granted: bool,
    /// The least CPU time of any program in a minute, as a share of its fair share.
    least: f64,
}

fn finish(setup: Setup, means: Option<Means>) -> MixEnd {
    let mut machine = Simulated::new(setup);
    let mut guard = means.map(|means| Guard::new(GuardSettings { means, ..GuardSettings::default() }));
    let (mut granted, mut least, mut minute_s) = (false, f64::INFINITY, 60.0);
    let clocks = |machine: &Simulated| -> Vec<f64> { machine.loads().iter().map(|load| load.clock_s).collect() };
    let mut before = clocks(&machine);
    while machine.loads().iter().any(|load| load.done_s.is_none() && !load.gone) && machine.step() {
        if let Some(guard) = guard.as_mut().filter(|_| machine.is_due()) {
            machine.workload_turn(guard);
            granted |= guard.holder().is_some();
        }
        if machine.now_s() >= minute_s {
            let now = clocks(&machine);
            let running: Vec<usize> = (0..now.len()).filter(|at| machine.loads()[*at].runs(machine.now_s())).collect();
            let fair_s = 60.0 / float(running.len().max(1));
            // In the first minute, memory is filled.
            if granted && minute_s > 60.0 {
                least = running.iter().map(|at| (now[*at] - before[*at]) / fair_s).fold(least, f64::min);
            }
            (before, minute_s) = (now, minute_s + 60.0);
        }
    }
    let ends = machine.loads().iter().map(|load| load.done_s.unwrap_or(f64::INFINITY));
    MixEnd { makespan_s: ends.fold(0.0, f64::max), granted, least, killed: machine.outcome().killed() }
}

fn compared(name: &str, means: Means, args: &MixesArgs) -> Vec<String> {
    let (mut thrashing, mut all) = (Vec::new(), Vec::new());
    let (mut granted, mut killed, mut least) = (0, 0, f64::INFINITY);
    for seed in 0..args.mixes {
        let setup = mix(seed);
        let (alone_s, programs) = (one_by_one(&setup), setup.loads.len());
        let (nothing, guarded) = (finish(setup.clone(), None), finish(setup, Some(means)));
        let change = guarded.makespan_s / nothing.makespan_s - 1.0;
        if nothing.makespan_s > THRASHING * alone_s {
            thrashing.push(change);
        }
        if args.each && change.abs() > 1e-3 {
            let times = nothing.makespan_s / alone_s;
            println!(
                "{name} mix {seed}: {programs} programs, {times:.2} times as long, guarded {:+.1} %",
                100.0 * change
            );
        }
        all.push(change);
        granted += u64::from(guarded.granted);
        killed += guarded.killed;
        least = least.min(guarded.least);
    }
    thrashing.sort_by(f64::total_cmp);
    all.sort_by(f64::total_cmp);
    let better = thrashing.iter().filter(|change| **change < 0.0).count();
    let of = |value: Option<&f64>| percent(value.map(|value| 100.0 * value));
    vec![
        name.to_owned(),
        all.len().to_string(),
        thrashing.len().to_string(),
        percent(Some(100.0 * float(better) / float(thrashing.len().max(1)))),
        of(thrashing.first()),
        of(thrashing.get(thrashing.len() / 2)),
        of(thrashing.last()),
        of(all.last()),
        granted.to_string(),
        figure(Some(100.0 * least), 0, " %"),
        killed.to_string(),
    ]
}

struct Counting {
    guard: Guard,
    granted: usize,
}

impl Policy for Counting {
    type Frame = Observation;
    type Action = WorkloadAction;

    fn decide(&mut self, observation: &Observation) -> Vec<WorkloadAction> {
        let actions = self.guard.decide(observation);
        self.granted += actions.len();
        actions
    }
}

/// Grants on machines with enough memory for what is in use: idle memory paged out to zram, much reading, more programs than
/// CPUs.
fn healthy(hours: u32) -> usize {
    let mut granted = 0;
    for hour in 0..u64::from(hours) {
        let mut random = Random::new(hour);
        let mut loads = Vec::new();
        for id in 1..=3 + random.below(6) {
            let mib = megabytes(between(&mut random, 30.0, 200.0));
            let idle = Part::new(Kind::Anon, AccessPattern::Idle, 256, mib);
            let file = Part::new(Kind::File, AccessPattern::Sweep(between(&mut random, 20.0, 300.0)), 256, mib / 2 + 1);
            let mut hot = Part::new(Kind::Anon, uses(&mut random), 256, mib / 2 + 1);
            // A change of phase now and then.
            hot.until_s = if random.below(3) == 0 { between(&mut random, 600.0, 3000.0) } else { f64::INFINITY };
            loads.push(Load::new(id, format!("service {id}"), vec![idle, hot, file]));
        }
        let share = between(&mut random, 0.75, 1.2);
        let setup = Setup { duration_s: 3600.0, ..machine(hour, loads, share, random.below(2) == 0) };
        let mut machine = Simulated::new(setup);
        let mut guard = Counting { guard: Guard::new(GuardSettings::default()), granted: 0 };
        while machine.step() {
            if machine.is_due() {
                machine.workload_turn(&mut guard);
            }
        }
        granted += guard.granted;
    }
    granted
}
