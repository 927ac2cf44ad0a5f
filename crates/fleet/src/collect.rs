//! Readings of workloads become rows: means over a minute, and what would have been refaulted in it.

use std::collections::BTreeMap;

use lowtide_model::cohort::used_within;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::target::TargetId;
use lowtide_model::{AGE_EDGES_S, PAGE_BYTES};
use lowtide_policy::machine::{Observation, WorkloadState};
use lowtide_policy::reclaim::returns::Returns;
use lowtide_policy::replay::{BURSTS, EDGES, Minute};

use crate::telemetry::TelemetryRow;

/// Seconds of a row.
pub const SLICE_S: f64 = 60.0;
/// Where that is not known of ages, a row is written after so many seconds without.
const UNTOLD_S: f64 = 300.0;
/// Workloads that existed for less than this get no row.
const SHORTEST_S: f64 = 1.0;

/// A mean of what is reported now and then.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    fn get(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// Sums of the row under way.
#[derive(Debug, Clone, Default)]
struct Sums {
    resident: PerKind<Mean>,
    swapped: Mean,
    stored: Mean,
    pressure: Mean,
    stalled: Mean,
    idle: PerKind<[Mean; EDGES]>,
    refaults: PerKind<f64>,
    floor: f64,
}

/// Bursts of reuse in the row under way.
#[derive(Debug, Clone, Copy, Default)]
struct Burst {
    /// Bytes in use and bytes in total at the last reading.
    last: Option<[f64; 2]>,
    /// Bytes, and their squares.
    sums: Option<[f64; 2]>,
}

impl Burst {
    /// Takes in a reading: by how much more is in use than at the last one, but for what is new.
    fn observe(&mut self, used: f64, all: f64, back: f64) {
        let Some([used_before, all_before]) = self.last.replace([used, all]) else { return };
        let new = (all - all_before - back).max(0.0);
        let rise = (used - used_before - new).max(0.0);
        let [bytes, squares] = self.sums.unwrap_or_default();
        self.sums = Some([bytes + rise, squares + rise * rise]);
    }

    /// Since it was asked last: bytes of the burst that a byte came in, on average.
    fn take(&mut self) -> Option<f64> {
        self.sums.take().map(|[bytes, squares]| if bytes > 0.0 { squares / bytes } else { 0.0 })
    }
}

/// One workload.
#[derive(Debug, Clone)]
struct State {
    returns: Returns,
    bursts: PerKind<[Burst; BURSTS.len()]>,
    from_s: f64,
    last_s: f64,
    sums: Sums,
}

/// Collects readings of workloads, and makes rows of them.
#[derive(Debug, Clone, Default)]
pub struct Collector {
    states: BTreeMap<TargetId, State>,
}

impl Collector {
    /// Takes in a reading of all workloads there are: rows that are complete by now, by workload. Their names, labels and
    /// policies are for the caller to fill in, as is Unix time for the seconds in which the readings are counted.
    pub fn observe(&mut self, frame: &Observation) -> Vec<(TargetId, TelemetryRow)> {
        let (now_s, mut rows) = (frame.now_s, Vec::new());
        for target in &frame.targets {
            let fresh = || State {
                returns: Returns::default(),
                bursts: PerKind::default(),
                from_s: now_s,
                last_s: now_s,
                sums: Sums::default(),
            };
            let state = self.states.entry(target.id).or_insert_with(fresh);
            let evicted = frame.evicted(target.id).file;
            rows.extend(state.observe(now_s, target, evicted).map(|row| (target.id, row)));
        }
        // Workloads that ended: what is known of the time since their last row.
        let gone = |state: &State| now_s - state.last_s >= SLICE_S || now_s < state.last_s;
        for (id, state) in &self.states {
            if gone(state) && state.last_s - state.from_s >= SHORTEST_S {
                rows.push((*id, state.row(state.last_s)));
            }
        }
        self.states.retain(|_, state| !gone(state));
        rows
    }

    /// Whether rows of a workload may still come.
    pub fn knows(&self, id: TargetId) -> bool {
        self.states.contains_key(&id)
    }

    /// Rows of what is under way, at the end.
    pub fn end(&mut self) -> Vec<(TargetId, TelemetryRow)> {
        let states = std::mem::take(&mut self.states);
        let lasting = states.into_iter().filter(|(_, state)| state.last_s - state.from_s >= SHORTEST_S);
        lasting.map(|(id, state)| (id, state.row(state.last_s))).collect()
    }
}

impl State {
    fn observe(&mut self, now_s: f64, target: &WorkloadState, evicted: f64) -> Option<TelemetryRow> {
        if now_s < self.last_s {
            // The clock was set back: how long anything lasted is not known.
            (self.from_s, self.sums) = (now_s, Sums::default());
        }
        let elapsed_s = (now_s - self.last_s).max(0.0);
        self.last_s = now_s;
        self.sums.add(elapsed_s, target);
        for kind in Kind::ALL {
            let (all, back) = match kind {
                Kind::Anon => (target.resident.anon + target.swapped, 0.0),
                Kind::File => (target.resident.file, target.refaults.file * PAGE_BYTES),
            };
            for (burst, age_s) in self.bursts[kind].iter_mut().zip(BURSTS) {
                let bins = target.ages.iter().filter(|bin| Kind::of(bin.anon) == kind);
                if let Some(used) = used_within(bins, f64::from(age_s)) {
                    burst.observe(used, all, back);
                }
            }
        }
        let returned = self.returns.observe(SLICE_S, target, evicted, now_s);
        let lasts_s = now_s - self.from_s;
        if returned.is_none() && lasts_s < UNTOLD_S {
            return None;
        }
        let mut row = self.row(now_s);
        if let Some((returned, _)) = returned {
            row.minute.returned = returned;
        }
        row.minute.burst = PerKind::from_fn(|kind| self.bursts[kind].each_mut().map(Burst::take));
        (self.from_s, self.sums) = (now_s, Sums::default());
        Some(row)
    }

    fn row(&self, now_s: f64) -> TelemetryRow {
        let sums = &self.sums;
        let lasts_s = now_s - self.from_s;
        let mut minute = Minute {
            now_s,
            lasts_s,
            resident: sums.resident.map(|mean| mean.get().unwrap_or(0.0)),
            swapped: sums.swapped.get().unwrap_or(0.0),
            idle: sums.idle.map(|edges| edges.map(|mean| mean.get())),
            pressure: sums.pressure.get(),
            floor: sums.floor,
            ..Minute::default()
        };
        for kind in Kind::ALL {
            minute.returned[kind].refaulted = sums.refaults[kind] * PAGE_BYTES / lasts_s.max(1e-9);
        }
        TelemetryRow { minute, stored: sums.stored.get(), stalled: sums.stalled.get(), ..TelemetryRow::default() }
    }
}

impl Sums {
    fn add(&mut self, elapsed_s: f64, target: &WorkloadState) {
        self.refaults += target.refaults;
        for kind in Kind::ALL {
            self.resident[kind].add(target.resident[kind], elapsed_s);
            let bins = || target.ages.iter().filter(|bin| Kind::of(bin.anon) == kind);
            let all: f64 = bins().map(|bin| bin.size.bytes).sum();
            for (mean, edge) in self.idle[kind].iter_mut().zip(AGE_EDGES_S) {
                let used = if edge == 0 { bins().next().map(|_| 0.0) } else { used_within(bins(), f64::from(edge)) };
                if let Some(used) = used {
                    mean.add((all - used).max(0.0), 1.0);
                }
            }
        }
        self.swapped.add(target.swapped, elapsed_s);
        self.floor = target.floor;
        for (mean, value) in [
            (&mut self.stored, target.stored),
            (&mut self.pressure, target.pressure),
            (&mut self.stalled, target.stalled),
        ] {
            if let Some(value) = value {
                mean.add(value, elapsed_s);
            }
        }
    }
}
