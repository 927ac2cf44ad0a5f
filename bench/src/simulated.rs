//! The simulated machine: its speed, how often the tide curve's band holds the truth on it, and whether the memory of
//! policies grows with time.

use std::time::Instant;

use lowtide_model::PAGE;
use lowtide_model::curve::{Curve, MeasuredCosts};
use lowtide_model::kind::Kind;
use lowtide_model::random::Random;
use lowtide_model::units::{float, integer};
use lowtide_policy::policies::{AnyPolicy, Spec};
use lowtide_policy::reclaim::Reclaimer;
use lowtide_policy::reclaim::age::AgeSettings;
use lowtide_policy::reclaim::brakes::Brakes;
use lowtide_policy::sim::churn::Churn;
use lowtide_policy::sim::load::{AccessPattern, Load, Part};
use lowtide_policy::sim::memory::{SimulatedMemory, Swap};
use lowtide_policy::sim::monitor::Monitors;
use lowtide_policy::sim::simulated::Setup;
use lowtide_policy::sim::watch::Watch;
use lowtide_policy::sim::{self, InjectedFaults, Simulated};

use crate::grid::{counted_size, size, table};
use crate::machine::own_status;

const MIB: f64 = 1_048_576.0;
const ZRAM: Swap = Swap { capacity: 1 << 28, used: 0, zram: true, in_s: 10e-6 };

#[derive(Debug, clap::Args)]
pub struct SimulatedArgs {
    /// Machines for the band
    #[arg(long, default_value = "120")]
    runs: u64,
    /// Workloads for the scale
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000,10000")]
    workloads: Vec<u64>,
    /// Simulated hours for the scale
    #[arg(long, default_value = "24")]
    hours: f64,
    /// Simulated days for the growth; an hour has 120 workloads that come and go
    #[arg(long, default_value = "7")]
    days: u32,
}

pub fn run(args: &SimulatedArgs) -> anyhow::Result<()> {
    // First: its resident set must not include that of the others.
    growth(args.days);
    bands(args.runs);
    scale(&args.workloads, args.hours);
    Ok(())
}

/// Memory of that many bytes, with the usual costs.
pub fn memory(total: f64, swap: Swap) -> SimulatedMemory {
    SimulatedMemory { total, resident: 0, stored: 0.0, swap, disk_s: 100e-6, out_s: 5e-6 }
}

/// A machine with a turn of the policy at every step, and CPUs for all.
pub fn setup(seed: u64, loads: Vec<Load>, memory: SimulatedMemory, step_s: f64) -> Setup {
    Setup {
        seed,
        step_s,
        duration_s: 0.0,
        cpus: 1e6,
        memory,
        loads,
        turn_s: step_s,
        monitors: Monitors::default(),
        faults: InjectedFaults::default(),
        spare: 0.0,
    }
}

/// A common workload: a part in steady use, parts used now and then, and one that is not used again.
fn workload(id: u64, mib: f64, groups: u32, random: &mut Random) -> Load {
    let shares: Vec<f64> = (0..5).map(|_| 0.05 + random.chance()).collect();
    let sum: f64 = shares.iter().sum();
    let uses = [
        AccessPattern::Steady(0.5 + random.chance()),
        AccessPattern::Steady(5.0 + 20.0 * random.chance()),
        AccessPattern::Zipf(1.0 + 3.0 * random.chance()),
        AccessPattern::Sweep(20.0 + 200.0 * random.chance()),
        AccessPattern::Idle,
    ];
    let parts = shares.into_iter().zip(uses).map(|(share, uses)| {
        let pages = integer((mib * share / sum * 256.0 / f64::from(groups)).max(1.0));
        Part::new(Kind::of(random.chance() < 0.8), uses, u32::try_from(pages).unwrap_or(u32::MAX), groups)
    });
    Load::new(id, format!("workload {id}"), parts.collect())
}

/// Ages at which the band is compared.
const AGES_S: [f64; 4] = [3.0, 10.0, 30.0, 60.0];

/// The truth of an age: byte-seconds that were cold, bytes that refaulted.
#[derive(Debug, Clone, Copy, Default)]
struct Truth {
    cold: f64,
    back: f64,
}

fn bands(runs: u64) {
    let (mut rows, mut asked) = (Vec::new(), 0);
    let mut held = [[0u32; 3]; AGES_S.len()];
    let mut widths = [[0.0; 2]; AGES_S.len()];
    for seed in 0..runs {
        let (curve, truths, seconds) = one(seed);
        let Some(curve) = curve else { continue };
        asked += 1;
        for (at, (age_s, truth)) in AGES_S.iter().zip(truths).enumerate() {
            let Some(point) = curve.points.iter().find(|point| (point.age_s - age_s).abs() < 1e-9) else { continue };
            let (costs, page) = (MeasuredCosts::default().or_usual(), float(PAGE));
            let gone = point.gone();
            let (cold, back) = (truth[0].cold + truth[1].cold, [truth[0].back / seconds, truth[1].back / seconds]);
            let slowdown = back[0] * costs.swap_s / page + back[1] * costs.disk_s / page;
            let predicted = point.slowdown(&costs);
            let both = point.back.anon.plus(point.back.file);
            let inside = |low: f64, high: f64, value: f64| u32::from(low <= value && value <= high);
            held[at][0] += inside(gone.low, gone.high, cold / seconds);
            held[at][1] += inside(both.low, both.high, back[0] + back[1]);
            held[at][2] += inside(predicted.low, predicted.high, slowdown);
            widths[at][0] += (gone.high - gone.low) / 2.0 / gone.at.max(1.0);
            widths[at][1] += (predicted.high - predicted.low) / 2.0;
        }
    }
    for (at, age_s) in AGES_S.iter().enumerate() {
        let percent = |count: u32| format!("{:.0} %", 100.0 * f64::from(count) / f64::from(asked));
        rows.push(vec![
            format!("{age_s:.0} s"),
            percent(held[at][0]),
            percent(held[at][1]),
            percent(held[at][2]),
            format!("{:.1} %", 100.0 * widths[at][0] / f64::from(asked)),
            format!("{:.3} points", 100.0 * widths[at][1] / f64::from(asked)),
        ]);
    }
    let head = "idle for | gone | back | slowdown | ± gone | ± slowdown";
    print!("{}", table(&format!("Runs of {asked} whose 95 % band held the truth, and its half-width"), head, &rows));
}

/// One machine with one sampled workload, for two and a half minutes: its curve, and the truth of each age by kind of memory.
fn one(seed: u64) -> (Option<Curve>, [[Truth; 2]; AGES_S.len()], f64) {
    let mut random = Random::new(seed ^ 0x0bad_5eed);
    let load = workload(1, 200.0 + 2000.0 * random.chance(), 64, &mut random);
    let seconds = 150.0;
    let mut machine = Simulated::new(Setup {
        duration_s: seconds,
        ..setup(seed, vec![load], memory(64.0 * 1024.0 * MIB, ZRAM), 1.0)
    });
    let mut watch = Watch::new(2000, seed, 1.0);
    let mut truths = [[Truth::default(); 2]; AGES_S.len()];
    let mut last: Vec<f64> = Vec::new();
    while machine.step() {
        let (now_s, load) = (machine.now_s(), &machine.loads()[0]);
        for (at, (_, part, group)) in load.each().enumerate() {
            if last.len() <= at {
                last.push(group.last_s);
            }
            let bytes = f64::from(group.resident) * float(PAGE);
            let idle_s = now_s - last[at];
            let was_used = group.last_s > last[at];
            for (age_s, truth) in AGES_S.iter().zip(&mut truths) {
                let truth = &mut truth[usize::from(part.kind == Kind::File)];
                truth.cold += bytes * (idle_s - age_s).clamp(0.0, 1.0);
                // Each use is at an unknown time within its second.
                truth.back += if was_used { bytes * ((idle_s - age_s) / 2.0 + 0.5).clamp(0.0, 1.0) } else { 0.0 };
            }
            last[at] = group.last_s;
        }
        watch.sample(load, now_s);
    }
    watch.finish();
    // Sampling begins after the first step, in which all memory is first touched.
    (Curve::of(&watch.ages, &watch.episodes, 1.0), truths, seconds - 1.0)
}

/// State of policies, and this process' memory, after each day of workloads that start and end.
fn growth(days: u32) {
    let churn = Churn { stay: 4, come: 120, turn_s: 10.0 };
    let mut rows = Vec::new();
    for name in ["auto", "promotion", "pressure"] {
        let built = Spec::built_in(name).and_then(|spec| spec.build(1).ok()?.into_workloads());
        let Some(mut policy) = built else { continue };
        churn.run(policy.as_mut(), 24 * days, |hour, stand| {
            if hour % 24 == 23 {
                rows.push(vec![
                    name.to_owned(),
                    ((hour + 1) / 24).to_string(),
                    stand.observed.to_string(),
                    stand.remembered.to_string(),
                    format!("{} B", stand.bytes),
                    counted_size(own_status().map(|status| status.rss_anon)),
                ]);
            }
        });
    }
    let head = "policy | day | workloads so far | remembered | saved | anonymous RSS";
    print!("{}", table("Workloads that come and go, 120 an hour, each for five minutes", head, &rows));
}

fn scale(counts: &[u64], hours: f64) {
    let mut rows = Vec::new();
    for count in counts {
        let mut random = Random::new(*count);
        // 1 TiB in all.
        let mib = 1024.0 * 1024.0 / float(*count);
        let loads: Vec<Load> = (1..=*count).map(|id| workload(id, mib * 0.9, 12, &mut random)).collect();
        let machine = Simulated::new(Setup {
            duration_s: hours * 3600.0,
            ..setup(1, loads, memory(1024.0 * 1024.0 * MIB, ZRAM), 10.0)
        });
        let start = Instant::now();
        let reclaimer = Reclaimer::new(AgeSettings::default(), Brakes::default());
        let outcome = sim::run(machine, Some(AnyPolicy::workloads(reclaimer)));
        let seconds = start.elapsed().as_secs_f64();
        let each = 1e6 * seconds / (float(*count) * hours);
        rows.push(vec![
            count.to_string(),
            format!("{seconds:.1} s"),
            format!("{each:.0} µs"),
            counted_size(own_status().map(|status| status.peak_rss)),
            size(Some(outcome.out_bytes.total())),
        ]);
    }
    let head = "workloads | time | per workload and hour | highest RSS | gone";
    print!("{}", table(&format!("{hours} simulated hours of 1 TiB under reclaim by age, one core"), head, &rows));
}
