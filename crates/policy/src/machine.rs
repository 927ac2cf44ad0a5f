//! Where policies work: what they see, what they may ask for, and the one turn in which they decide.
//!
//! A real machine and the simulated one ([`crate::sim`]) both are a [`Machine`], and [`turn`] is the only place where a
//! policy is asked. So what was tried on the one is what runs on the other.

use lowtide_model::cohort::AgeBin;
use lowtide_model::curve::RefaultCosts;
use lowtide_model::scheme::{Action as Advice, Filter};

use crate::saved::Saved;

/// Memory of a process that may be acted on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The process.
    pub pid: u32,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Share of the looks, or of the memory, that was seen in use.
    pub access_rate: f64,
    /// Seconds for which it has been like this.
    pub age_s: f64,
    /// Bytes in memory.
    pub resident: f64,
    /// Bytes of them that were idle for all of that time. Less than `resident`: where they are is not known.
    pub idle: f64,
}

/// A workload that may be acted on as a whole: a cgroup, or a process tree.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Target {
    /// Which: never given to another one.
    pub id: u64,
    /// Bytes in memory: anonymous, file.
    pub resident: [f64; 2],
    /// Bytes paged out.
    pub swapped: f64,
    /// Bytes that are protected from reclaim: memory.min or memory.low, whichever is higher.
    pub floor: f64,
    /// Bytes by idle age.
    pub ages: Vec<AgeBin>,
    /// Share of the time since the last observation that some of its tasks stalled on memory.
    pub pressure: Option<f64>,
    /// The same on I/O.
    pub io_pressure: Option<f64>,
    /// Share of that time in which it did not get on, for whatever reason of memory's: all of its tasks that could have run
    /// stalled, or were busy in the kernel.
    pub stalled: Option<f64>,
    /// Pages that came back since the last observation: anonymous, file.
    pub refaults: [f64; 2],
    /// Bytes that what is paged out takes where it is kept in memory; `None` = not known, or not in memory.
    pub stored: Option<f64>,
    /// It is in the background: nobody waits for it.
    pub background: bool,
    /// How it fares by a measure of its own, as it was told last; higher is worse.
    pub metric: Option<f64>,
    /// The higher, the sooner it is protected from others.
    pub priority: i32,
}

/// What became of one order.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// Which scheme's.
    pub scheme: usize,
    /// CPU seconds that it took.
    pub cpu_s: f64,
    /// For each block of the order: where it begins, and how many of its pages went.
    pub blocks: Vec<(u32, u64, u32)>,
}

/// What became of one request to reclaim.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reclaimed {
    /// From which target.
    pub target: u64,
    /// Bytes that went: anonymous, file.
    pub bytes: [f64; 2],
    /// CPU seconds that it took.
    pub cpu_s: f64,
}

impl Observation {
    /// Bytes that went from a target on request since the last observation: anonymous, file.
    #[must_use]
    pub fn went(&self, target: u64) -> [f64; 2] {
        let of = self.reclaimed.iter().filter(|of| of.target == target);
        of.fold([0.0; 2], |sum, of| [sum[0] + of.bytes[0], sum[1] + of.bytes[1]])
    }
}

/// A range of a process' memory that a policy wants to hear of.
pub type Block = (u32, (u64, u64));

/// What is known at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// Seconds since the start.
    pub now_s: f64,
    /// Workloads, where they are known by their histograms.
    pub targets: Vec<Target>,
    /// Memory of processes, as it was last looked at.
    pub candidates: Vec<Candidate>,
    /// Pages in memory, of each block that was asked for, by its process and where it begins.
    pub back: Vec<(u32, u64, u32)>,
    /// What became of the orders of before.
    pub done: Vec<Done>,
    /// What became of requests to reclaim.
    pub reclaimed: Vec<Reclaimed>,
    /// Share of the time since the last observation that some task stalled on memory.
    pub pressure: Option<f64>,
    /// Pages that came back since the last observation, whoever took them: anonymous memory of all that is observed.
    pub refaults: Option<f64>,
    /// Share of the system's memory that is free.
    pub free: Option<f64>,
    /// Bytes of swap that are free.
    pub swap_free: Option<u64>,
    /// What is paged out is written to a disk.
    pub swap_on_disk: bool,
    /// What a page costs that comes back.
    pub costs: RefaultCosts,
    /// CPUs.
    pub cpus: Option<f64>,
    /// Share of their time since the last observation that they were busy.
    pub cpu_busy: Option<f64>,
    /// Memory of a target can be protected from reclaim.
    pub can_protect: bool,
}

/// Advice on a process' memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// Whose scheme it is.
    pub scheme: usize,
    /// What.
    pub action: Advice,
    /// To which process.
    pub pid: u32,
    /// To which addresses: blocks, ascending.
    pub ranges: Vec<(u64, u64)>,
    /// Of them, to which pages.
    pub filters: Vec<Filter>,
    /// Why.
    pub reason: String,
}

/// Memory of a target to be evicted, coldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Reclaim {
    /// Which target.
    pub target: u64,
    /// At most so many bytes: anonymous, file.
    pub bytes: [f64; 2],
    /// Only what has been idle for at least so many seconds: anonymous, file; `None` = none of it.
    pub older_s: [Option<f64>; 2],
    /// Why.
    pub reason: String,
}

/// What a policy asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Advice on ranges of a process.
    Advise(Order),
    /// Reclaim from a workload.
    Reclaim(Reclaim),
    /// Page out a workload's anonymous memory, and have its files go first when memory is short: it is in the background.
    Stow {
        /// Which workload.
        target: u64,
        /// Why.
        reason: String,
    },
    /// Bring back what of a workload is paged out.
    Fetch {
        /// Which workload.
        target: u64,
        /// Why.
        reason: String,
    },
    /// Protect so much of a workload's memory from reclaim. It ends by itself unless it is asked for again.
    Protect {
        /// Which workload.
        target: u64,
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
        target: u64,
        /// For so many seconds from now on.
        lasts_s: f64,
        /// Why.
        reason: String,
    },
    /// End a workload's protection, and have it run.
    Release {
        /// Which workload.
        target: u64,
        /// Why.
        reason: String,
    },
}

/// What holds a policy back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Brake {
    /// Tasks stall on memory.
    Pressure,
    /// What comes back costs too much time.
    Slowdown,
    /// It fares worse by a measure of its own than while nothing was taken.
    Metric,
    /// What is left shall stay.
    Floor,
    /// What goes takes nearly as much where it is kept.
    Incompressible,
    /// There is no room in swap.
    Swap,
    /// As much was written to swap as may be in a day.
    Writes,
    /// Evicting takes too much CPU.
    Cpu,
}

impl Brake {
    /// Its name.
    #[must_use]
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
        }
    }
}

/// What decides.
pub trait Policy {
    /// What shall be done now.
    fn decide(&mut self, seen: &Observation) -> Vec<Action>;

    /// Blocks whose pages may come back, to be looked at before the next decision.
    fn watched(&self) -> Vec<Block> {
        Vec::new()
    }

    /// What holds it back now, and from which target; `None` = from all.
    fn held(&self) -> Vec<(Option<u64>, Brake)> {
        Vec::new()
    }

    /// What it remembers at this time, for one that comes after it.
    fn save(&self, _now_s: f64) -> Saved {
        Saved::default()
    }

    /// Goes on, at this time, from what another with the same settings remembered `away_s` seconds ago. What makes no sense
    /// is left out. Of how many targets it remembers something now.
    fn restore(&mut self, _saved: &Saved, _now_s: f64, _away_s: f64) -> usize {
        0
    }
}

/// What is decided about.
pub trait Machine {
    /// What is known now; `None` while it is not to be disturbed, or cannot be read.
    fn observe(&mut self) -> Option<Observation>;

    /// Takes what shall be done, and what shall be looked at. What came of it is in an observation to come.
    fn act(&mut self, actions: Vec<Action>, watched: Vec<Block>);
}

/// One turn: the policy sees the machine, and the machine takes what the policy asks for.
pub fn turn(machine: &mut impl Machine, policy: &mut dyn Policy) {
    if let Some(seen) = machine.observe() {
        let actions = policy.decide(&seen);
        machine.act(actions, policy.watched());
    }
}
