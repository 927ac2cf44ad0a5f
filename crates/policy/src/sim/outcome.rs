//! The outcome of a simulation.

use lowtide_model::PAGE_BYTES;
use lowtide_model::kind::PerKind;
use lowtide_model::units::float;
use serde::Serialize;

use super::load::Load;
use super::memory::{SimulatedMemory, Taken};

/// Points in time of which the state is kept, at most.
const SAMPLES: f64 = 480.0;

/// One workload's run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WorkloadOutcome {
    /// Its name.
    pub name: String,
    /// Seconds for which it had a CPU, or waited for memory.
    pub runtime_s: f64,
    /// Of them, seconds for which it waited for memory.
    pub waited_s: f64,
    /// Bytes in memory, mean over its run.
    pub resident_bytes: f64,
    /// Bytes in memory, at most.
    pub resident_peak_bytes: f64,
    /// Bytes that were taken and not back, mean over its run.
    pub out_bytes: PerKind<f64>,
    /// Pages refaulted.
    pub refaults: PerKind<u64>,
    /// Pages that the policy evicted.
    pub reclaimed: PerKind<u64>,
    /// It was killed for want of memory.
    pub killed: bool,
    /// How often: one that has a foreground is started again when it is its turn again.
    pub kills: usize,
    /// The policy was not to touch it.
    pub protected: bool,
}

impl WorkloadOutcome {
    /// Time lost, as a share of the time that it ran.
    pub fn slowdown(&self) -> f64 {
        let ran_s = self.runtime_s - self.waited_s;
        if ran_s > 0.0 { self.waited_s / ran_s } else { 0.0 }
    }
}

/// The machine's state, mean since the point before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct MachineSample {
    /// Seconds since the start.
    pub t_s: f64,
    /// Bytes of workloads in memory.
    pub resident_bytes: f64,
    /// Bytes that were taken and not back.
    pub out_bytes: f64,
    /// Bytes in which zram keeps what was paged out.
    pub stored_bytes: f64,
    /// Pages a second that were refaulted.
    pub refaults_per_s: f64,
    /// Seconds a second that workloads waited, all together.
    pub waited: f64,
}

/// The outcome.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Seconds that the machine ran.
    pub duration_s: f64,
    /// Each workload's run.
    pub workloads: Vec<WorkloadOutcome>,
    /// The machine over time.
    pub samples: Vec<MachineSample>,
    /// Bytes of workloads in memory, mean.
    pub resident_bytes: f64,
    /// Bytes that were taken and not back, mean.
    pub out_bytes: PerKind<f64>,
    /// Bytes in which zram keeps what was paged out, mean.
    pub stored_bytes: f64,
    /// Pages refaulted.
    pub refaults: PerKind<u64>,
    /// CPU seconds that the policy's actions took.
    pub action_cpu_s: f64,
}

impl Outcome {
    /// Bytes that are free on average because something was taken: without what keeps it.
    pub fn net_bytes(&self) -> f64 {
        self.out_bytes.total() - self.stored_bytes
    }

    /// Time lost by all workloads, as a share of the time that they ran.
    pub fn slowdown(&self) -> f64 {
        let sum = |get: fn(&WorkloadOutcome) -> f64| self.workloads.iter().map(get).sum::<f64>();
        let (runtime_s, waited_s) = (sum(|load| load.runtime_s), sum(|load| load.waited_s));
        if runtime_s > waited_s { waited_s / (runtime_s - waited_s) } else { 0.0 }
    }

    /// How often workloads were killed.
    pub fn killed(&self) -> usize {
        self.workloads.iter().map(|load| load.kills).sum()
    }
}

/// Sums of one workload.
#[derive(Debug, Clone, Default)]
struct Sums {
    run: WorkloadOutcome,
    /// Seconds that it was there.
    there_s: f64,
}

/// Collects the outcome.
#[derive(Debug, Clone)]
pub(super) struct Recorder {
    sums: Vec<Sums>,
    samples: Vec<MachineSample>,
    every_s: f64,
    now_s: f64,
    /// Sums since the last sample, of all time, and the time of the last sample.
    since: MachineSample,
    total: MachineSample,
    out: PerKind<f64>,
    last_s: f64,
    cpu_s: f64,
}

impl Recorder {
    pub(super) fn new(count: usize, duration_s: f64) -> Self {
        Self {
            sums: vec![Sums::default(); count],
            samples: Vec::new(),
            every_s: duration_s / SAMPLES,
            now_s: 0.0,
            since: MachineSample::default(),
            total: MachineSample::default(),
            out: PerKind::default(),
            last_s: 0.0,
            cpu_s: 0.0,
        }
    }

    pub(super) fn joined(&mut self) {
        self.sums.push(Sums::default());
    }

    pub(super) fn killed(&mut self, at: usize) {
        self.sums[at].run.killed = true;
        self.sums[at].run.kills += 1;
    }

    pub(super) fn waited(&mut self, at: usize, waited_s: f64, available_s: f64) {
        self.sums[at].run.runtime_s += available_s;
        self.sums[at].run.waited_s += waited_s;
        self.since.waited += waited_s;
    }

    pub(super) fn refaulted(&mut self, at: usize, back: PerKind<u64>) {
        self.sums[at].run.refaults += back;
        self.since.refaults_per_s += float(back.total());
    }

    pub(super) fn acted(&mut self, at: usize, taken: Taken) {
        self.sums[at].run.reclaimed += taken.pages;
        self.cpu_s += taken.cpu_s;
    }

    /// The state after a step.
    pub(super) fn step(&mut self, now_s: f64, step_s: f64, loads: &[Load], memory: &SimulatedMemory) {
        self.now_s = now_s;
        let mut out = PerKind::<u64>::default();
        for (sums, load) in self.sums.iter_mut().zip(loads).filter(|(_, load)| load.runs(now_s)) {
            let bytes = load.bytes();
            sums.there_s += step_s;
            sums.run.resident_bytes += bytes * step_s;
            sums.run.resident_peak_bytes = sums.run.resident_peak_bytes.max(bytes);
            sums.run.out_bytes += load.out.map(|pages| float(pages) * PAGE_BYTES * step_s);
            out += load.out;
        }
        let out = out.map(|pages| float(pages) * PAGE_BYTES * step_s);
        self.out += out;
        self.since.resident_bytes += float(memory.resident) * PAGE_BYTES * step_s;
        self.since.out_bytes += out.total();
        self.since.stored_bytes += memory.stored * step_s;
        if now_s - self.last_s >= self.every_s - 1e-9 {
            self.sample();
        }
    }

    fn sample(&mut self) {
        let since = std::mem::take(&mut self.since);
        let elapsed_s = self.now_s - self.last_s;
        if elapsed_s <= 0.0 {
            return;
        }
        self.last_s = self.now_s;
        self.total.resident_bytes += since.resident_bytes;
        self.total.stored_bytes += since.stored_bytes;
        self.samples.push(MachineSample {
            t_s: self.now_s,
            resident_bytes: since.resident_bytes / elapsed_s,
            out_bytes: since.out_bytes / elapsed_s,
            stored_bytes: since.stored_bytes / elapsed_s,
            refaults_per_s: since.refaults_per_s / elapsed_s,
            waited: since.waited / elapsed_s,
        });
    }

    pub(super) fn outcome(mut self, loads: &[Load]) -> Outcome {
        self.sample();
        let all_s = self.now_s.max(1e-9);
        let workloads = self.sums.into_iter().zip(loads).map(|(sums, load)| {
            let there_s = sums.there_s.max(1e-9);
            WorkloadOutcome {
                name: load.name.clone(),
                resident_bytes: sums.run.resident_bytes / there_s,
                out_bytes: sums.run.out_bytes.map(|bytes| bytes / there_s),
                protected: load.protected,
                ..sums.run
            }
        });
        let workloads: Vec<WorkloadOutcome> = workloads.collect();
        Outcome {
            duration_s: self.now_s,
            refaults: workloads.iter().fold(PerKind::default(), |sum, load| sum + load.refaults),
            workloads,
            samples: self.samples,
            resident_bytes: self.total.resident_bytes / all_s,
            out_bytes: self.out.map(|bytes| bytes / all_s),
            stored_bytes: self.total.stored_bytes / all_s,
            action_cpu_s: self.cpu_s,
        }
    }
}
