//! What policies decide from, what they may ask for, and the one turn in which they do.
//!
//! A real machine and the simulated one ([`crate::sim`]) both are an [`Actuator`], and [`turn`] is the only place where a
//! policy is asked. So what was tried on the one is what runs on the other.

use lowtide_model::cohort::AgeBin;
use lowtide_model::curve::RefaultCosts;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::target::TargetId;

pub use crate::region::{Block, BlockDone, Candidate, Done, Order, RegionAction, RegionObservation};
use crate::saved::Saved;

/// A workload that may be acted on: a cgroup, or a process tree.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkloadState {
    /// Which.
    pub id: TargetId,
    /// For how long it was sampled before a policy was first asked, seconds.
    pub watched_s: f64,
    /// Bytes in memory.
    pub resident: PerKind<f64>,
    /// Bytes paged out.
    pub swapped: f64,
    /// Bytes that are protected from reclaim: memory.min or memory.low, whichever is higher.
    pub floor: f64,
    /// Bytes by idle age.
    pub ages: Vec<AgeBin>,
    /// How long ago they were sampled, seconds; longer where what is new is found late.
    pub ages_lag_s: f64,
    /// Share of the time since the last observation that some of its tasks stalled on memory.
    pub pressure: Option<f64>,
    /// The same on I/O.
    pub io_pressure: Option<f64>,
    /// Share of that time in which it did not make progress, for whatever reason of memory's: all of its tasks that could have run
    /// stalled, or were busy in the kernel.
    pub stalled: Option<f64>,
    /// Pages refaulted since the last observation.
    pub refaults: PerKind<f64>,
    /// Bytes that what is paged out takes where it is kept in memory; `None` = not known, or not in memory.
    pub stored: Option<f64>,
    /// It is in the background: nothing stalls.
    pub background: bool,
    /// Its performance by its own metric, as it was reported last; higher is worse.
    pub metric: Option<f64>,
    /// The higher, the sooner it is protected from others.
    pub priority: i32,
}

impl WorkloadState {
    /// Its memory of one kind by idle age.
    pub fn ages_of(&self, kind: Kind) -> impl Iterator<Item = &AgeBin> {
        self.ages.iter().filter(move |bin| Kind::of(bin.anon) == kind)
    }
}

/// The result of one request to reclaim.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reclaimed {
    /// From which target.
    pub target: TargetId,
    /// Bytes evicted.
    pub bytes: PerKind<f64>,
    /// CPU seconds that it took.
    pub cpu_s: f64,
}

impl Observation {
    /// Bytes evicted from a target on request since the last observation.
    pub fn evicted(&self, target: TargetId) -> PerKind<f64> {
        let of = self.reclaimed.iter().filter(|of| of.target == target);
        of.fold(PerKind::default(), |sum, of| sum + of.bytes)
    }
}

/// What is known at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// Seconds since the boot.
    pub now_s: f64,
    /// Workloads, where they are known by their histograms.
    pub targets: Vec<WorkloadState>,
    /// The result of requests to reclaim.
    pub reclaimed: Vec<Reclaimed>,
    /// Share of the time since the last observation that some task stalled on memory.
    pub pressure: Option<f64>,
    /// Share of the system's memory that is free.
    pub free: Option<f64>,
    /// Bytes of swap that are free.
    pub swap_free: Option<u64>,
    /// What is paged out is written to a disk.
    pub swap_on_disk: bool,
    /// What a page costs a workload that is refaulted.
    pub costs: RefaultCosts,
    /// Seconds to page out a page of swap, on top of that where nobody but the workloads do it.
    pub swap_out_s: f64,
    /// CPUs.
    pub cpus: Option<f64>,
    /// Share of their time since the last observation that they were busy.
    pub cpu_busy: Option<f64>,
    /// Memory of a target can be protected from reclaim.
    pub can_protect: bool,
    /// Targets can be kept small, and nothing is killed for that.
    pub can_limit: bool,
}

/// Seconds that a page of each kind costs that is refaulted.
pub fn per_kind(costs: &RefaultCosts) -> PerKind<f64> {
    PerKind { anon: costs.swap_s, file: costs.disk_s }
}

/// Memory of a target to be evicted, coldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Reclaim {
    /// Which target.
    pub target: TargetId,
    /// At most so many bytes.
    pub bytes: PerKind<f64>,
    /// Only what has been idle for at least so many seconds; `None` = none of it.
    pub older_s: PerKind<Option<f64>>,
    /// Why.
    pub reason: String,
}

/// What a policy asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkloadAction {
    /// Reclaim from a workload.
    Reclaim(Reclaim),
    /// Page out a workload's anonymous memory, and deactivate its file memory: it is in the background.
    PageOut {
        /// Which workload.
        target: TargetId,
        /// Bytes, at most: swap may not have room for all of it.
        bytes: f64,
        /// It was paged out before, and was not in the foreground since.
        again: bool,
        /// Why.
        reason: String,
    },
    /// Bring back what of a workload is paged out.
    Fetch {
        /// Which workload.
        target: TargetId,
        /// Why.
        reason: String,
    },
    /// Protect so much of a workload's memory from reclaim. It ends by itself unless it is asked for again.
    Protect {
        /// Which workload.
        target: TargetId,
        /// Bytes.
        bytes: f64,
        /// For so many seconds from now on.
        lasts_s: f64,
        /// Why.
        reason: String,
    },
    /// Keep a workload below so many bytes, and kill nothing for that. It ends by itself unless it is asked for again.
    Limit {
        /// Which workload.
        target: TargetId,
        /// Bytes.
        bytes: f64,
        /// For so many seconds from now on.
        lasts_s: f64,
        /// Why.
        reason: String,
    },
    /// Have a workload wait. It ends by itself unless it is asked for again.
    Pause {
        /// Which workload.
        target: TargetId,
        /// For so many seconds from now on.
        lasts_s: f64,
        /// Why.
        reason: String,
    },
    /// End a workload's protection or limit, and have it run.
    Release {
        /// Which workload.
        target: TargetId,
        /// Why.
        reason: String,
    },
}

/// What holds a policy back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Brake {
    /// Tasks stall on memory.
    Pressure,
    /// What is refaulted costs too much time.
    Slowdown,
    /// It performs worse by its own metric than while nothing was taken.
    Metric,
    /// The rest is to stay in memory.
    Floor,
    /// Paged-out memory takes nearly as much space where it is stored.
    Incompressible,
    /// There is no room in swap.
    Swap,
    /// As much was written to swap as may be in a day.
    Writes,
    /// Evicting takes too much CPU.
    Cpu,
    /// What is out would cost too much if all of it were refaulted now.
    Credit,
    /// Its quota is used up.
    Quota,
    /// Free memory is not within its watermarks.
    Watermarks,
    /// The target grows: what it has touched so far says little about what it will use.
    Growth,
}

impl Brake {
    /// Why it pauses a policy, for people.
    pub fn why(self) -> &'static str {
        match self {
            Self::Pressure => "tasks stall on memory",
            Self::Slowdown => "refaults cost more time than allowed",
            Self::Metric => "its performance metric got worse",
            Self::Floor => "the rest must stay in memory",
            Self::Incompressible => "what was paged out does not compress",
            Self::Swap => "no free swap",
            Self::Writes => "the day's writes to swap are used up",
            Self::Cpu => "reclaim uses more CPU than allowed",
            Self::Credit => "evicted memory has not stayed out for long enough yet",
            Self::Quota => "its quota is used up",
            Self::Watermarks => "free memory is outside its watermarks",
            Self::Growth => "the target grows",
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pressure => "pressure",
            Self::Slowdown => "slowdown",
            Self::Metric => "metric",
            Self::Floor => "floor",
            Self::Incompressible => "incompressible",
            Self::Swap => "swap",
            Self::Writes => "writes",
            Self::Cpu => "cpu",
            Self::Credit => "credit",
            Self::Quota => "quota",
            Self::Watermarks => "watermarks",
            Self::Growth => "growth",
        }
    }
}

/// Decides from frames of one kind, and asks for actions of one kind.
pub trait Policy {
    /// What it decides from.
    type Frame;
    /// What it may ask for.
    type Action;

    /// What to do now.
    fn decide(&mut self, frame: &Self::Frame) -> Vec<Self::Action>;

    /// What holds it back now, and from which target; `None` = from all.
    fn held(&self) -> Vec<(Option<TargetId>, Brake)> {
        Vec::new()
    }

    /// What it remembers, for one that comes after it.
    fn save(&self) -> Saved {
        Saved::default()
    }

    /// Continues, at this time, from the saved state of another with the same settings. Invalid parts are left out. Of how many
    /// targets it remembers something now.
    fn restore(&mut self, _saved: &Saved, _now_s: f64) -> usize {
        0
    }
}

/// A policy of workloads.
pub type WorkloadPolicy = dyn Policy<Frame = Observation, Action = WorkloadAction>;
/// A policy of ranges of processes' memory.
pub type RegionPolicy = dyn Policy<Frame = RegionObservation, Action = RegionAction>;

/// Carries out actions of one kind: on a real machine, or on the simulated one.
pub trait Actuator<A> {
    /// Carries them out. The result of it is in a frame to come.
    fn carry_out(&mut self, actions: Vec<A>);
}

/// One turn: the only place where a policy is asked.
pub fn turn<P: Policy + ?Sized>(policy: &mut P, frame: &P::Frame, actuator: &mut impl Actuator<P::Action>) {
    actuator.carry_out(policy.decide(frame));
}
