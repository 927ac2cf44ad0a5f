//! Scenarios: machines and workloads, described in a TOML file.

use std::time::Duration;

use lowtide_model::PAGE;
use lowtide_model::curve::RefaultCosts;
use lowtide_model::kind::Kind;
use lowtide_model::units::{Size, Span, float};
use serde::Deserialize;

use super::faults::InjectedFaults;
use super::load::{AccessPattern, Foreground, Load, MemoryLimits, Part};
use super::memory::{EVICT_S, SimulatedMemory, Swap};
use super::monitor::Monitors;
use super::simulated::Setup;

/// A scenario file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Seed of all random choices.
    #[serde(default)]
    pub seed: u64,
    /// How long the machine runs.
    pub duration: Span,
    /// Time of one step.
    #[serde(default = "second")]
    pub step: Span,
    /// Time between two turns of a policy.
    #[serde(default = "second")]
    pub turn: Span,
    /// The machine.
    pub machine: MachineSpec,
    /// Monitors of the policy.
    #[serde(default)]
    pub monitors: Monitors,
    /// Injected faults.
    #[serde(default)]
    pub faults: InjectedFaults,
    /// Workloads.
    #[serde(default, rename = "workload")]
    pub workloads: Vec<WorkloadSpec>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// Its memory.
    pub memory: Size,
    /// Its CPUs.
    #[serde(default = "eight")]
    pub cpus: f64,
    /// Swap; without it, anonymous memory stays.
    pub swap: Option<SwapSpec>,
    /// Time until a page of a file is read.
    #[serde(default = "disk")]
    pub disk: Span,
    /// While less than this is free or a file's, the workload in the background for longest is killed; started again when it
    /// is its turn again.
    pub spare: Option<Size>,
    /// CPU time that evicting a page takes.
    #[serde(default = "evicting")]
    pub evict: Span,
}

/// Swap.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapSpec {
    /// Its capacity, uncompressed.
    pub size: Size,
    /// Its medium.
    pub medium: SwapMedium,
    /// Time of one refault; by default 10 µs from zram and 100 µs from a disk.
    pub latency: Option<Span>,
}

/// The medium of swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwapMedium {
    /// In memory, compressed.
    Zram,
    /// On a disk.
    Disk,
}

/// Workloads with the same settings.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Their name; more than one are numbered.
    pub name: String,
    /// How many there are.
    #[serde(default = "one")]
    pub count: u32,
    /// CPUs that one uses while it runs.
    #[serde(default = "one_cpu")]
    pub cpus: f64,
    /// When they start.
    #[serde(default)]
    pub start: Option<Span>,
    /// When they end.
    #[serde(default)]
    pub stop: Option<Span>,
    /// `memory.max`.
    #[serde(default)]
    pub max: Option<Size>,
    /// `memory.high`.
    #[serde(default)]
    pub high: Option<Size>,
    /// `memory.low`.
    #[serde(default)]
    pub low: Option<Size>,
    /// `memory.min`.
    #[serde(default)]
    pub min: Option<Size>,
    /// Policies must leave them alone.
    #[serde(default)]
    pub protected: bool,
    /// When they are in the foreground; always if not given.
    #[serde(default)]
    pub foreground: Option<ForegroundSpec>,
    /// Their memory.
    pub memory: Vec<PartSpec>,
}

/// When a workload is in the foreground.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForegroundSpec {
    /// The first time, after its start.
    #[serde(default)]
    pub first: Option<Span>,
    /// For so long.
    pub lasts: Span,
    /// From one time to the next.
    pub every: Span,
}

/// A part of a workload's memory.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartSpec {
    /// Its size.
    pub size: Size,
    /// Anonymous, unless it is a file's.
    #[serde(default)]
    pub file: bool,
    /// How it is used.
    #[serde(rename = "use", default = "steady")]
    pub uses: PatternSpec,
    /// How often: see there.
    #[serde(default = "second")]
    pub every: Span,
    /// Into how many groups of pages it is divided.
    #[serde(default = "sixteen")]
    pub groups: u32,
    /// How far it can be compressed: 3 = to a third.
    #[serde(default = "three")]
    pub ratio: f64,
    /// When it is allocated.
    #[serde(default)]
    pub from: Option<Span>,
    /// Time over which it is allocated.
    #[serde(default)]
    pub grow: Option<Span>,
    /// When its use ends.
    #[serde(default)]
    pub idle_after: Option<Span>,
    /// When it is freed.
    #[serde(default)]
    pub until: Option<Span>,
}

/// How memory is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PatternSpec {
    /// At random, every group `every` so often on average.
    Steady,
    /// One group after the other; a sweep takes `every`.
    Sweep,
    /// At random: the first group `every` so often, the second half as often, the third a third.
    Zipf,
    /// Once, when it is allocated.
    Idle,
}

fn second() -> Span {
    Span(Duration::from_secs(1))
}

fn disk() -> Span {
    Span(Duration::from_secs_f64(RefaultCosts::default().disk_s))
}

fn evicting() -> Span {
    Span(Duration::from_secs_f64(EVICT_S))
}

fn steady() -> PatternSpec {
    PatternSpec::Steady
}

fn one() -> u32 {
    1
}

fn sixteen() -> u32 {
    16
}

fn one_cpu() -> f64 {
    1.0
}

fn eight() -> f64 {
    8.0
}

fn three() -> f64 {
    3.0
}

/// Why a scenario cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScenarioError(String);

impl Scenario {
    /// The machine that it describes.
    ///
    /// # Errors
    /// If a value is not valid.
    pub fn setup(&self) -> Result<Setup, ScenarioError> {
        let wrong = |why: &str| Err(ScenarioError(why.to_owned()));
        if seconds(self.step) <= 0.0 {
            return wrong("step: a step takes time; give 100ms or more");
        }
        if seconds(self.duration) / seconds(self.step) > 1e8 {
            return wrong("duration: more than a hundred million steps; give a longer step");
        }
        if self.machine.memory.0 == 0 || !positive(self.machine.cpus) {
            return wrong("machine: it has memory and cpus, both above 0");
        }
        let each = self.workloads.iter().flat_map(|spec| (0..spec.count).map(move |number| (spec, number)));
        let loads = (1..).zip(each).map(|(id, (spec, number))| spec.load(id, number)).collect::<Result<_, _>>()?;
        Ok(Setup {
            seed: self.seed,
            step_s: seconds(self.step),
            duration_s: seconds(self.duration),
            cpus: self.machine.cpus,
            memory: self.machine.memory(),
            loads,
            turn_s: seconds(self.turn),
            monitors: self.monitors,
            faults: self.faults,
            spare: self.machine.spare.map_or(0.0, bytes),
        })
    }
}

impl MachineSpec {
    fn memory(&self) -> SimulatedMemory {
        let costs = RefaultCosts::default();
        let usual = |medium| if medium == SwapMedium::Zram { costs.swap_s } else { costs.disk_s };
        let swap = self.swap.map_or(Swap { capacity: 0, used: 0, zram: false, in_s: 0.0 }, |swap| Swap {
            capacity: swap.size.0 / PAGE,
            used: 0,
            zram: swap.medium == SwapMedium::Zram,
            in_s: swap.latency.map_or(usual(swap.medium), seconds),
        });
        let (disk_s, out_s) = (seconds(self.disk), seconds(self.evict));
        SimulatedMemory { total: bytes(self.memory), resident: 0, stored: 0.0, swap, disk_s, out_s }
    }
}

impl WorkloadSpec {
    fn load(&self, id: u64, number: u32) -> Result<Load, ScenarioError> {
        let name = if self.count > 1 { format!("{} {}", self.name, number + 1) } else { self.name.clone() };
        if !positive(self.cpus) {
            return Err(ScenarioError(format!("workload {}: cpus is a number above 0", self.name)));
        }
        let parts: Result<Vec<Part>, ScenarioError> = self.memory.iter().map(|part| part.part(&self.name)).collect();
        let mut load = Load::new(id, name, parts?);
        load.cpus = self.cpus;
        load.protected = self.protected;
        load.foreground = self.foreground.as_ref().map(|foreground| Foreground {
            from_s: foreground.first.map_or(0.0, seconds),
            lasts_s: seconds(foreground.lasts),
            every_s: seconds(foreground.every),
        });
        load.start_s = self.start.map_or(0.0, seconds);
        load.stop_s = self.stop.map_or(f64::INFINITY, seconds);
        load.limits = MemoryLimits {
            max: self.max.map_or(f64::INFINITY, bytes),
            high: self.high.map_or(f64::INFINITY, bytes),
            low: self.low.map_or(0.0, bytes),
            min: self.min.map_or(0.0, bytes),
        };
        Ok(load)
    }
}

impl PartSpec {
    fn part(&self, of: &str) -> Result<Part, ScenarioError> {
        let wrong = |why: &str| Err(ScenarioError(format!("workload {of}: memory: {why}")));
        let pages = self.size.0 / PAGE;
        let groups = u64::from(self.groups).clamp(1, pages.max(1));
        let Ok(group_pages) = u32::try_from(pages / groups) else {
            return wrong("groups of more than 16 TiB; give more groups");
        };
        if pages == 0 {
            return wrong("size is less than a page");
        }
        if seconds(self.every) <= 0.0 {
            return wrong("every is a time above 0");
        }
        if !(self.ratio.is_finite() && self.ratio >= 1.0) {
            return wrong("ratio is a number from 1 up");
        }
        let every_s = seconds(self.every);
        let uses = match self.uses {
            PatternSpec::Steady => AccessPattern::Steady(every_s),
            PatternSpec::Sweep => AccessPattern::Sweep(every_s),
            PatternSpec::Zipf => AccessPattern::Zipf(every_s),
            PatternSpec::Idle => AccessPattern::Idle,
        };
        Ok(Part {
            ratio: self.ratio,
            from_s: self.from.map_or(0.0, seconds),
            grow_s: self.grow.map_or(0.0, seconds),
            idle_after_s: self.idle_after.map_or(f64::INFINITY, seconds),
            until_s: self.until.map_or(f64::INFINITY, seconds),
            ..Part::new(Kind::of(!self.file), uses, group_pages, u32::try_from(groups).unwrap_or(self.groups))
        })
    }
}

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn seconds(span: Span) -> f64 {
    span.0.as_secs_f64()
}

fn bytes(size: Size) -> f64 {
    float(size.0)
}
