//! Schemes on the target of a record: what is given to the kernel, what lowtide does itself, and the results.

use std::collections::BTreeMap;

use lowtide_kernel::damon::{Operations, SchemeStats};
use lowtide_kernel::monitor::mapping_use::MappingUse;
use lowtide_kernel::monitor::smaps::ReferencedScan;
use lowtide_kernel::proc::{self, Mapping};
use lowtide_kernel::root::Kernel;
use lowtide_model::PAGE;
use lowtide_model::meta::SchemeUse;
use lowtide_model::scheme::{Action, Scheme};
use lowtide_policy::machine::{Actuator, BlockDone, Candidate, RegionAction, RegionObservation, turn};
use lowtide_policy::schemes::{Operator, SchemeLimits};

use super::means::{Executor, guarded};
use super::worker::{Job, Report, Turn, Worker};
use crate::source::Frame;
use lowtide_model::units::float;
use lowtide_record::{ActionRow, RegionRow};

/// Schemes and their executors.
#[derive(Debug, Clone)]
pub struct SchemePlan {
    /// The schemes.
    pub schemes: Vec<Scheme>,
    /// The executor of each.
    pub means: Vec<Executor>,
    /// Count only.
    pub dry_run: bool,
    /// What bounds those that lowtide carries out itself.
    pub limits: SchemeLimits,
}

impl SchemePlan {
    /// Addresses that the map must work on for the kernel to carry out its part.
    pub fn map_on(&self) -> Option<Operations> {
        self.means.iter().find_map(|means| match means {
            Executor::Kernel(on) => Some(*on),
            Executor::Own => None,
        })
    }

    /// Whether lowtide carries out any of them itself.
    pub fn acts_itself(&self) -> bool {
        self.means.contains(&Executor::Own)
    }

    fn own(&self) -> impl Iterator<Item = usize> {
        self.means.iter().enumerate().filter(|(_, means)| **means == Executor::Own).map(|(index, _)| index)
    }
}

/// What a tick reads beside candidates.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// Seconds since the start.
    pub now_s: f64,
    /// Seconds that some task of the target has stalled on memory so far.
    pub memory_some_s: Option<f64>,
    /// Anonymous pages of the target that have come back so far.
    pub refault_anon: Option<f64>,
    /// Bytes of the target in memory or swap.
    pub demand: Option<f64>,
    /// Share of the system's memory that is free.
    pub free: Option<f64>,
    /// Bytes of swap that are free.
    pub swap_free: Option<u64>,
}

/// Schemes at work.
#[derive(Debug)]
pub struct Acting {
    kernel: Kernel,
    plan: SchemePlan,
    uses: Vec<SchemeUse>,
    /// `None` while it decides.
    operator: Option<Operator>,
    worker: Worker,
    turn: Turn,
    /// The tick that is going on.
    facts: Facts,
    targets: Vec<u32>,
    candidates: Vec<Candidate>,
    /// The mappings behind them, where these were scanned.
    mappings: Vec<(u32, MappingUse)>,
    /// Bytes of files that were evicted.
    taken_file: f64,
    last: Facts,
    /// CPU seconds of lowtide's own actions so far: they are not monitoring.
    pub cpu_s: f64,
    /// CPU seconds that the kernel spent on its part.
    pub kernel_cpu_s: f64,
    /// The first failure that was not reported yet.
    pub failed: Option<String>,
    rows: Vec<ActionRow>,
}

impl Acting {
    /// Begins. Threads are made here, so signals must be blocked by then.
    pub fn new(kernel: &Kernel, plan: SchemePlan, pressure_file: &str, seed: u64) -> Self {
        let limits = plan.limits;
        let own: Vec<Scheme> = plan.own().map(|index| plan.schemes[index].clone()).collect();
        let uses = plan.schemes.iter().zip(&plan.means).map(|(scheme, means)| SchemeUse {
            scheme: scheme.clone(),
            by: means.to_string(),
            dry_run: plan.dry_run,
            tried_bytes: 0,
            applied_bytes: 0,
            refused_bytes: (*means == Executor::Own).then_some(0),
            returned_bytes: (*means == Executor::Own).then_some(0),
            quota_exceeded: None,
            cpu_s: (*means == Executor::Own).then_some(0.0),
            held_s: BTreeMap::new(),
        });
        let (turn, facts, last) = (Turn::default(), Facts::default(), Facts::default());
        let (targets, candidates, mappings, rows) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (taken_file, cpu_s, kernel_cpu_s, failed) = (0.0, 0.0, 0.0, None);
        let (uses, operator) = (uses.collect(), Some(Operator::new(&own, limits, seed)));
        let worker = Worker::new(kernel, pressure_file, limits.pressure);
        Self {
            kernel: kernel.clone(),
            plan,
            uses,
            operator,
            worker,
            turn,
            facts,
            targets,
            candidates,
            mappings,
            taken_file,
            last,
            cpu_s,
            kernel_cpu_s,
            failed,
            rows,
        }
    }

    /// What the kernel is given, guarded so that it takes nothing of others.
    pub fn for_kernel(&self, cgroup: Option<&str>) -> Vec<Scheme> {
        let given = self.plan.schemes.iter().zip(&self.plan.means).filter_map(|(scheme, means)| match means {
            Executor::Kernel(on) => Some(guarded(scheme, *on, cgroup.map(str::to_owned))),
            Executor::Own => None,
        });
        given.map(|scheme| if self.plan.dry_run { Scheme { action: Action::Stat, ..scheme } } else { scheme }).collect()
    }

    /// Seconds of idleness that lowtide's own schemes want to know of, if there are any.
    pub fn age_s(&self) -> Option<f64> {
        let ages = self.plan.own().filter_map(|index| self.plan.schemes[index].age.min);
        let longest = ages.map(|age| age.0.as_secs_f64()).fold(1.0, f64::max);
        self.plan.acts_itself().then_some(longest)
    }

    /// What a source read: mappings, regions of the map, and what the kernel has done by schemes.
    pub fn observe(&mut self, frame: &Frame) {
        if let Some(mappings) = &frame.mappings {
            self.candidates = candidates(mappings, mappings.window_s, |_| true);
            self.mappings.clone_from(&mappings.mappings);
        }
        for snapshot in frame.regions.chunk_by(|a, b| (a.pid, a.t_s.to_bits()) == (b.pid, b.t_s.to_bits())) {
            let pid = snapshot[0].pid;
            self.candidates.retain(|candidate| candidate.pid != pid);
            if self.plan.acts_itself() {
                // A process that has ended has none.
                let mappings = proc::mappings(&self.kernel, pid).unwrap_or_default();
                self.candidates.extend(snapshot.iter().flat_map(|region| mapped(region, &mappings)));
            }
        }
        self.count(&frame.tallies);
    }

    /// Bytes of files that lowtide's own schemes have evicted so far; `None` where it does not know what is a file's.
    pub fn taken_file(&self) -> Option<f64> {
        (!self.mappings.is_empty()).then_some(self.taken_file)
    }

    /// What the kernel reports it did.
    fn count(&mut self, tallies: &[SchemeStats]) {
        let kernel = self.uses.iter_mut().zip(&self.plan.means).filter(|(_, means)| **means != Executor::Own);
        for ((used, _), tally) in kernel.zip(tallies) {
            (used.tried_bytes, used.applied_bytes) = (tally.tried_bytes, tally.applied_bytes);
            used.quota_exceeded = Some(tally.quota_exceeded);
        }
    }

    /// One turn of lowtide's own part: takes the results of the last orders, decides, and gives new ones. `targets` are the
    /// processes, in the order in which filters count them.
    pub fn step(&mut self, facts: Facts, targets: &[u32]) {
        if let Some(turn) = self.worker.turn() {
            self.take_turn(facts.now_s, turn);
        }
        self.facts = facts;
        self.targets = targets.to_vec();
        // While the last orders are being carried out, there is nothing new to decide from.
        if !self.worker.busy
            && let Some(mut operator) = self.operator.take()
        {
            let frame = self.frame();
            turn(&mut operator, &frame, self);
            self.operator = Some(operator);
        }
    }

    fn frame(&mut self) -> RegionObservation {
        let facts = self.facts;
        let elapsed_s = facts.now_s - self.last.now_s;
        let stalled = facts.memory_some_s.zip(self.last.memory_some_s).map(|(now, before)| now - before);
        let refaults = facts.refault_anon.zip(self.last.refault_anon).map(|(now, before)| (now - before).max(0.0));
        let Turn { reports, back, .. } = std::mem::take(&mut self.turn);
        self.last = facts;
        RegionObservation {
            now_s: facts.now_s,
            candidates: self.candidates.clone(),
            back,
            done: reports.into_iter().map(|report| report.done).collect(),
            pressure: stalled.filter(|_| elapsed_s > 0.0).map(|stalled| stalled / elapsed_s),
            refaults,
            demand: facts.demand,
            free: facts.free,
            swap_free: facts.swap_free,
        }
    }

    fn take_turn(&mut self, now_s: f64, turn: Turn) {
        self.cpu_s += turn.cpu_s;
        let own: Vec<usize> = self.plan.own().collect();
        for report in &turn.reports {
            let used = &mut self.uses[own[report.order.scheme]];
            used.tried_bytes += report.tried_bytes;
            used.applied_bytes += report.applied_bytes;
            used.refused_bytes = used.refused_bytes.map(|bytes| bytes + report.refused_bytes);
            used.cpu_s = used.cpu_s.map(|cpu_s| cpu_s + report.done.cpu_s);
            if let Some(error) = report.error.as_ref().filter(|error| !error.is_gone()) {
                self.failed.get_or_insert_with(|| format!("{}: {error}", used.scheme.title()));
            }
            self.rows.push(row(now_s, used.scheme.title(), report));
            if report.order.action == Action::Pageout {
                remove_evicted(&mut self.candidates, report);
                self.taken_file += evicted_file_bytes(&self.mappings, report);
            }
        }
        self.turn = turn;
    }

    /// What was done since the last call.
    pub fn take_rows(&mut self) -> Vec<ActionRow> {
        std::mem::take(&mut self.rows)
    }

    /// Ends: no more orders are carried out. The results of each scheme, the last rows, and the CPU seconds of lowtide's part.
    pub fn finish(mut self, now_s: f64) -> (Vec<SchemeUse>, Vec<ActionRow>, f64) {
        if let Some(turn) = self.worker.turn() {
            self.take_turn(now_s, turn);
        }
        let returned = self.operator.as_ref().map(Operator::returned).unwrap_or_default();
        let held_s = self.operator.iter().flat_map(Operator::held_s);
        for ((index, pages), held_s) in self.plan.own().zip(returned).zip(held_s) {
            self.uses[index].returned_bytes = Some(pages * PAGE);
            self.uses[index].held_s = held_s.iter().map(|(brake, held_s)| (brake.why().to_owned(), *held_s)).collect();
        }
        (self.uses, self.rows, self.cpu_s)
    }
}

impl Actuator<RegionAction> for Acting {
    fn carry_out(&mut self, actions: Vec<RegionAction>) {
        let (mut orders, mut count) = (Vec::new(), Vec::new());
        for action in actions {
            match action {
                RegionAction::Advise(order) => orders.push(order),
                RegionAction::Count(block) => count.push(block),
            }
        }
        if self.plan.dry_run {
            let own: Vec<usize> = self.plan.own().collect();
            for order in orders {
                let bytes: u64 = order.ranges.iter().map(|(start, end)| end - start).sum();
                self.uses[own[order.scheme]].tried_bytes += bytes;
            }
        } else if !orders.is_empty() || !count.is_empty() {
            self.worker.order(Job { orders, count, targets: self.targets.clone() });
        }
    }
}

/// The parts of a region of the map that may be acted on: of the addresses between mappings, which DAMON includes, nothing is used,
/// so that they would come first. Mappings are in ascending order.
fn mapped(region: &RegionRow, mappings: &[Mapping]) -> impl Iterator<Item = Candidate> {
    let &RegionRow { pid, start, end, .. } = region;
    let (access_rate, age_s) = (f64::from(region.access_rate), f64::from(region.age_s));
    let from = mappings.partition_point(|mapping| mapping.end <= start);
    let inside = mappings[from..].iter().take_while(move |mapping| mapping.start < end);
    inside.filter(|mapping| !mapping.reserved).map(move |mapping| {
        let (start, end) = (start.max(mapping.start), end.min(mapping.end));
        let bytes = float(end - start);
        Candidate { pid, start, end, access_rate, age_s, resident: bytes, idle: bytes, huge: 0.0 }
    })
}

/// Mappings that are not fixed, and that `keep` holds, as memory that may be acted on.
pub fn candidates(scan: &ReferencedScan, age_s: f64, keep: impl Fn(&MappingUse) -> bool) -> Vec<Candidate> {
    let kept = scan.mappings.iter().filter(|(_, mapping)| !mapping.fixed && mapping.resident > 0 && keep(mapping));
    let candidate = |(pid, mapping): &(u32, MappingUse)| {
        let (resident, used) = (float(mapping.resident), float(mapping.referenced));
        Candidate {
            pid: *pid,
            start: mapping.start,
            end: mapping.end,
            access_rate: (used / resident).min(1.0),
            age_s,
            resident,
            idle: (resident - used).max(0.0),
            huge: float(mapping.huge),
        }
    };
    kept.map(candidate).collect()
}

/// Removes what was evicted from the candidates, until the next scan.
fn remove_evicted(candidates: &mut [Candidate], report: &Report) {
    for BlockDone { pid, start, evicted, .. } in &report.done.blocks {
        let holds =
            |candidate: &&mut Candidate| candidate.pid == *pid && (candidate.start..candidate.end).contains(start);
        if let Some(candidate) = candidates.iter_mut().find(holds) {
            let bytes = float(u64::from(*evicted) * PAGE);
            candidate.idle = (candidate.idle - bytes).max(0.0);
            candidate.resident = (candidate.resident - bytes).max(0.0);
        }
    }
}

/// Bytes of files that were evicted.
fn evicted_file_bytes(mappings: &[(u32, MappingUse)], report: &Report) -> f64 {
    let is_file = |pid: u32, at: u64| {
        mappings.iter().any(|(of, mapping)| *of == pid && mapping.file && (mapping.start..mapping.end).contains(&at))
    };
    let blocks = report.done.blocks.iter().filter(|block| is_file(block.pid, block.start));
    blocks.map(|block| float(u64::from(block.evicted) * PAGE)).sum()
}

fn row(now_s: f64, title: &str, report: &Report) -> ActionRow {
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let result = match &report.error {
        Some(error) => error.to_string(),
        None if report.refused_bytes > 0 => {
            format!("{} of {} B, {} B refused", report.applied_bytes, report.tried_bytes, report.refused_bytes)
        }
        None => format!("{} of {} B", report.applied_bytes, report.tried_bytes),
    };
    ActionRow {
        t_s: now_s,
        action: report.order.action.name().to_owned(),
        target: format!("pid {}", report.order.pid),
        bytes: Some(bytes(report.applied_bytes)),
        result,
        reason: format!("{title}: {}", report.order.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_region_what_lies_between_mappings_is_left_out() {
        let mapping = |start, end, reserved| Mapping { start, end, reserved, name: String::new() };
        let mappings = [
            mapping(0x1000, 0x2000, false),
            mapping(0x3000, 0x6000, false),
            mapping(0x6000, 0x8000, true),
            mapping(0x9000, 0xf000, false),
        ];
        let region =
            RegionRow { pid: 7, start: 0x2000, end: 0xa000, access_rate: 0.5, age_s: 3.0, ..RegionRow::default() };
        let found: Vec<Candidate> = mapped(&region, &mappings).collect();
        let part = |start: u64, end: u64| Candidate {
            pid: 7,
            start,
            end,
            access_rate: 0.5,
            age_s: 3.0,
            resident: float(end - start),
            idle: float(end - start),
            huge: 0.0,
        };
        assert_eq!(found, [part(0x3000, 0x6000), part(0x9000, 0xa000)]);
        assert_eq!(mapped(&region, &[]).count(), 0);
    }
}
