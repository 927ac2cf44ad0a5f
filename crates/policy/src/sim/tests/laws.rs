//! What holds for every policy on any machine, whatever goes wrong.

use std::sync::{Arc, Mutex};

use lowtide_model::scheme::{Action as Advice, builtin};
use lowtide_model::units::{Share, Span, float};
use proptest::prelude::*;

use super::phone::phone;
use super::*;
use crate::lifecycle::{self, Lifecycle};
use crate::machine::{Observation, RegionObservation};
use crate::policies::Spec;
use crate::reclaim::{Reclaimer, auto, promotion};
use crate::schemes::{Operator, SchemeLimits};

/// Holds every decision of a policy against what it saw.
pub(super) struct Checked<P: ?Sized> {
    pub policy: Box<P>,
    pub pressure: f64,
    pub quota: Option<(f64, f64)>,
    pub spent: (f64, f64),
    pub wrong: Arc<Mutex<Vec<String>>>,
    pub log: Arc<Mutex<Vec<(f64, f64)>>>,
}

impl<P: ?Sized> Checked<P> {
    /// Checks what was asked for in one turn: all bytes, and those that the quota counts.
    fn check(&mut self, now_s: f64, pressure: Option<f64>, (bytes, counted): (f64, f64)) {
        let mut wrong = self.wrong.lock().unwrap();
        if bytes > 0.0 && pressure.is_some_and(|pressure| pressure > self.pressure) {
            wrong.push(format!("{now_s} s: under pressure"));
        }
        if let Some((quota, every_s)) = self.quota {
            if !(self.spent.0..self.spent.0 + every_s - 1e-6).contains(&now_s) {
                self.spent = (now_s, 0.0);
            }
            self.spent.1 += counted;
            if self.spent.1 > quota + 1.0 {
                wrong.push(format!("{now_s} s: {} B of a quota of {quota}", self.spent.1));
            }
        }
        self.log.lock().unwrap().push((now_s, bytes));
    }
}

impl Policy for Checked<RegionPolicy> {
    type Frame = RegionObservation;
    type Action = RegionAction;

    /// A scheme's quota is for all processes together.
    fn decide(&mut self, frame: &RegionObservation) -> Vec<RegionAction> {
        let actions = self.policy.decide(frame);
        let mut bytes = 0.0;
        for action in &actions {
            let RegionAction::Advise(order) = action else { continue };
            if order.action != Advice::Pageout {
                continue;
            }
            bytes += order.ranges.iter().map(|(start, end)| float(end - start)).sum::<f64>();
            let offered = |(start, end): &(u64, u64)| {
                let mut known = frame.candidates.iter().filter(|of| of.pid == order.pid);
                known.any(|of| of.start < *end && *start < of.end)
            };
            if !order.ranges.iter().all(offered) {
                self.wrong.lock().unwrap().push(format!("{} s: memory that nobody offered", frame.now_s));
            }
        }
        self.check(frame.now_s, frame.pressure, (bytes, bytes));
        actions
    }
}

impl Policy for Checked<WorkloadPolicy> {
    type Frame = Observation;
    type Action = WorkloadAction;

    /// The quota of reclaim is for each target.
    fn decide(&mut self, frame: &Observation) -> Vec<WorkloadAction> {
        let actions = self.policy.decide(frame);
        let (mut bytes, mut most) = (0.0, 0.0f64);
        for action in &actions {
            let wrong = |what: &str| self.wrong.lock().unwrap().push(format!("{} s: {what}", frame.now_s));
            match action {
                // The guard has laws of its own: it acts where there is pressure.
                WorkloadAction::Fetch { .. }
                | WorkloadAction::Protect { .. }
                | WorkloadAction::Limit { .. }
                | WorkloadAction::Pause { .. }
                | WorkloadAction::Release { .. } => {}
                WorkloadAction::PageOut { target, bytes: asked, .. } => {
                    let target = frame.targets.iter().find(|of| of.id == *target);
                    bytes += asked;
                    if target.is_some_and(|target| target.resident.file < target.floor - 1.0) {
                        wrong("below its floor");
                    }
                    if !target.is_some_and(|target| target.background) {
                        wrong("not in the background");
                    }
                    if target.is_some_and(|target| target.pressure.is_some_and(|pressure| pressure > self.pressure)) {
                        wrong("a target under pressure");
                    }
                }
                WorkloadAction::Reclaim(reclaim) => {
                    let asked = reclaim.bytes.total();
                    (bytes, most) = (bytes + asked, most.max(asked));
                    let Some(target) = frame.targets.iter().find(|target| target.id == reclaim.target) else {
                        wrong("a target that nobody offered");
                        continue;
                    };
                    if target.resident.total() - asked < target.floor - 1.0 {
                        wrong("below its floor");
                    }
                    if target.pressure.is_some_and(|pressure| pressure > self.pressure) {
                        wrong("a target under pressure");
                    }
                }
            }
        }
        self.check(frame.now_s, frame.pressure, (bytes, most));
        actions
    }
}

/// What turns found wrong, and bytes asked for in each.
type Wrong = Arc<Mutex<Vec<String>>>;
type Log = Arc<Mutex<Vec<(f64, f64)>>>;

impl<P: ?Sized> Checked<P> {
    pub fn new(policy: Box<P>, quota: Option<(f64, f64)>, wrong: &Wrong, log: &Log) -> Self {
        Self { policy, pressure: 0.1, quota, spent: (f64::MIN, 0.0), wrong: wrong.clone(), log: log.clone() }
    }
}

/// A policy whose decisions are checked.
fn checked(policy: AnyPolicy, quota: Option<(f64, f64)>, wrong: &Wrong, log: &Log) -> AnyPolicy {
    match policy {
        AnyPolicy::Workloads(policy) => AnyPolicy::workloads(Checked::new(policy, quota, wrong, log)),
        AnyPolicy::Regions(policy) => AnyPolicy::regions(Checked::new(policy, quota, wrong, log)),
    }
}

/// Every policy of the registry, with a quota of so many bytes a second if it shall have one.
pub(super) fn policies(quota: Option<u64>, seed: u64) -> Vec<(&'static str, AnyPolicy)> {
    Spec::trials(quota, seed)
}

pub(super) fn conserved(machine: &Simulated) {
    let (mut resident, mut swapped, mut stored) = (0, 0, 0.0);
    for load in machine.loads() {
        let (mut there, mut out) = (PerKind::<u64>::default(), PerKind::<u64>::default());
        for (_, part, group) in load.each() {
            there[part.kind] += u64::from(group.resident);
            out[part.kind] += u64::from(group.out);
            assert!(group.resident + group.out == 0 || group.resident + group.out == part.group_pages);
            if part.kind == Kind::Anon {
                stored += f64::from(group.out) * 4096.0 / part.ratio;
            }
        }
        assert_eq!((load.resident, load.out), (there, out), "{}", load.name);
        resident += there.total();
        swapped += out.anon;
    }
    let memory = machine.memory();
    assert_eq!((memory.resident, memory.swap.used), (resident, swapped));
    assert!((memory.stored - stored).abs() < 1.0, "{} against {stored}", memory.stored);
    assert!(memory.swap.used <= memory.swap.capacity);
}

fn uses() -> impl Strategy<Value = AccessPattern> {
    prop_oneof![
        (0.5f64..60.0).prop_map(AccessPattern::Steady),
        (2.0f64..90.0).prop_map(AccessPattern::Sweep),
        (0.5f64..5.0).prop_map(AccessPattern::Zipf),
        Just(AccessPattern::Idle),
    ]
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let one =
        (any::<bool>(), uses(), 32u32..600, 1u32..24, 0.0f64..30.0, 0.0f64..60.0, prop::option::of(20.0f64..120.0));
    let one = one.prop_map(|(anon, uses, pages, groups, from_s, grow_s, until_s)| {
        let mut part = Part::new(Kind::of(anon), uses, pages, groups);
        (part.from_s, part.grow_s) = (from_s, grow_s);
        part.until_s = until_s.unwrap_or(f64::INFINITY);
        part
    });
    prop::collection::vec(one, 1..5)
}

fn load() -> impl Strategy<Value = Load> {
    let bounds = (prop::option::of(4.0f64..60.0), prop::option::of(1.0f64..40.0), prop::option::of(1.0f64..20.0));
    let foreground = prop::option::of((0.0f64..10.0, 5.0f64..20.0, 20.0f64..60.0));
    (parts(), bounds, any::<bool>(), 0.0f64..40.0, foreground).prop_map(
        |(parts, (max, low, min), protected, start_s, foreground)| {
            let mut load = Load::new(0, "some", parts);
            load.limits.max = max.map_or(f64::INFINITY, |mib| mib * MIB);
            load.limits.low = low.map_or(0.0, |mib| mib * MIB);
            load.limits.min = min.map_or(0.0, |mib| mib * MIB);
            (load.protected, load.start_s) = (protected, start_s);
            load.foreground = foreground.map(|(from_s, lasts_s, every_s)| Foreground { from_s, lasts_s, every_s });
            load
        },
    )
}

/// A load that nothing limits: what it waits for, a policy has caused.
pub(super) fn unlimited_load() -> impl Strategy<Value = Load> {
    parts().prop_map(|parts| Load::new(1, "some", parts))
}

pub(super) fn faults() -> impl Strategy<Value = InjectedFaults> {
    let share = || prop::option::of((0.0f64..0.5).prop_map(Share));
    let span = || prop::option::of((5u64..100).prop_map(|s| Span(std::time::Duration::from_secs(s))));
    (share(), share(), share(), share(), share(), share(), span(), span(), span()).prop_map(
        |(unreadable, stale, fail, partial, late, lie, vanish, clock, swap_fills)| InjectedFaults {
            unreadable,
            stale,
            fail,
            partial,
            late,
            lie,
            vanish,
            clock,
            swap_fills,
        },
    )
}

/// A random machine that runs for so long.
pub(super) fn machines(duration_s: f64) -> impl Strategy<Value = Setup> {
    (any::<u64>(), prop::collection::vec(load(), 1..5), 60.0f64..400.0, 0u64..300, faults()).prop_map(
        move |(seed, loads, total_mib, swap_mib, faults)| {
            let mut loads = loads;
            for (load, id) in loads.iter_mut().zip(1u32..) {
                (load.id, load.pid) = (u64::from(id).into(), 100 + id);
            }
            let monitors = Monitors { regions: 40, ..Monitors::default() };
            Setup { seed, faults, monitors, ..setup(memory(total_mib, swap_mib), loads, duration_s) }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// On any machine, with anything going wrong: no policy exceeds its quota, acts under pressure, on what it was not
    /// offered, or below a floor; every page stays somewhere; and protected workloads are never touched.
    #[test]
    fn no_policy_does_harm(machine in machines(120.0), quota in prop::option::of(1u64 << 20..1 << 26)) {
        for (name, policy) in policies(quota, machine.seed) {
            let wrong = Arc::new(Mutex::new(Vec::new()));
            // A clock that jumps begins a quota's interval again.
            let quota = quota.filter(|_| machine.faults.clock.is_none());
            #[expect(clippy::cast_precision_loss)]
            let quota = quota.map(|bytes| (bytes as f64, 1.0));
            let log = Arc::default();
            let mut checked = checked(policy, quota, &wrong, &log);
            let mut simulated = Simulated::new(machine.clone());
            while simulated.step() {
                conserved(&simulated);
                simulated.turn(&mut checked);
                conserved(&simulated);
            }
            prop_assert_eq!(&*wrong.lock().unwrap(), &Vec::<String>::new(), "{}", name);
            let outcome = simulated.outcome();
            for load in outcome.workloads.iter().filter(|load| load.protected) {
                prop_assert_eq!(load.reclaimed, PerKind::default(), "{}: {}", name, &load.name);
            }
        }
    }

    /// Where swap has room for what is paged out, no more apps are killed for it for want of memory, and none waits much
    /// longer, as long as they are away for some time: a workload that is back after a few seconds pays for having been paged out. (Killing by levels of free and file memory is another matter: files of what is paged out go first, so these levels are
    /// reached sooner where memory is hardly enough for one app and what the others take in zram.)
    #[test]
    fn paging_out_kills_nobody(apps in 3u32..10, mib in 40u32..300, total_mib in 500.0f64..2000.0, lasts_s in 8.0f64..20.0) {
        let machine = Setup { spare: 0.0, ..phone(apps, mib, total_mib, u64::from(apps * mib), lasts_s) };
        let nothing = run(Simulated::new(machine.clone()), None);
        let policy = Box::new(Lifecycle::new(lifecycle::LifecycleSettings::default()));
        let paged_out = run(Simulated::new(machine), Some(AnyPolicy::Workloads(policy)));
        prop_assert!(paged_out.killed() <= nothing.killed(), "{} instead of {}", paged_out.killed(), nothing.killed());
        let allowed = nothing.slowdown() + 0.03;
        prop_assert!(paged_out.slowdown() < allowed, "{} after {}", paged_out.slowdown(), nothing.slowdown());
    }

    /// Where the use does not change, no policy goes on taking and giving back: in the end it loses less time than it may
    /// at most, whatever it lost while it learnt.
    #[test]
    fn policies_converge(seed: u64, hot in 8u32..64, idle in 8u32..256, every_s in 0.3f64..1.0) {
        for (name, policy) in policies(None, seed) {
            let mut load = Load::new(1, "web", vec![part(hot, AccessPattern::Sweep(every_s)), part(idle, AccessPattern::Idle)]);
            if name == "lifecycle" {
                // It acts on what is in the background only.
                load.foreground = Some(Foreground { from_s: 0.0, lasts_s: 20.0, every_s: 1e9 });
            }
            let monitors = Monitors { regions: 40, ..Monitors::default() };
            let machine = Setup { seed, monitors, ..setup(memory(4000.0, 4000), vec![load], 400.0) };
            let log = Arc::new(Mutex::new(Vec::new()));
            let mut checked = checked(policy, None, &Arc::default(), &log);
            let mut simulated = Simulated::new(machine);
            while simulated.step() {
                simulated.turn(&mut checked);
            }
            let late = log.lock().unwrap().iter().filter(|(t_s, _)| *t_s > 300.0).map(|(_, bytes)| bytes).sum::<f64>();
            let all = f64::from(hot + idle) * MIB;
            prop_assert!(late < 0.5 * all, "{}: {} MiB of {} in the last quarter", name, late / MIB, all / MIB);
            let outcome = simulated.outcome();
            prop_assert!(outcome.workloads[0].slowdown() < 0.01, "{}: {}", name, outcome.workloads[0].slowdown());
            let gone = outcome.samples.last().map_or(0.0, |sample| sample.out_bytes);
            // `headroom` keeps a tenth of what is used on top of it.
            let kept = if name == "headroom" { 0.1 * f64::from(hot) } else { 0.0 };
            prop_assert!(gone > 0.5 * (f64::from(idle) - kept) * MIB, "{}: {} MiB in the end", name, gone / MIB);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Schemes hold what they may cost at most, however memory is used: what is refaulted late costs as much as what comes
    /// back at once.
    #[test]
    fn schemes_keep_their_price(seed: u64, every_s in 2.0f64..30.0, groups in 1024u32..2048) {
        let load = Load::new(1, "web", vec![Part::new(Kind::Anon, AccessPattern::Steady(every_s), 256, groups)]);
        let monitors = Monitors { regions: 40, ..Monitors::default() };
        let mut machine = Setup { seed, monitors, ..setup(memory(4000.0, 4000), vec![load], 600.0) };
        machine.memory.swap.in_s = 10e-6;
        let schemes = builtin::named("prcl-tuned").unwrap();
        let outcome = run(Simulated::new(machine), Some(AnyPolicy::regions(Operator::new(&schemes, SchemeLimits::default(), seed))));
        let slowdown = outcome.workloads[0].slowdown();
        prop_assert!(slowdown < 0.02, "{} of 0.01 allowed", slowdown);
    }
}

/// Counts the minutes in which more came back than may.
struct Minutes {
    policy: Box<WorkloadPolicy>,
    limit: f64,
    from_s: f64,
    back: f64,
    /// Those within the limit, and those beyond it.
    counts: Arc<Mutex<(u32, u32)>>,
}

impl Policy for Minutes {
    type Frame = Observation;
    type Action = WorkloadAction;

    fn decide(&mut self, frame: &Observation) -> Vec<WorkloadAction> {
        for target in &frame.targets {
            self.back += target.refaults.anon * 4096.0;
            if frame.now_s - self.from_s >= 60.0 {
                let used: f64 =
                    target.ages.iter().filter(|bin| bin.anon && bin.max_s.is_some()).map(|bin| bin.size.bytes).sum();
                let mut counts = self.counts.lock().unwrap();
                if self.back <= self.limit * used {
                    counts.0 += 1
                } else {
                    counts.1 += 1
                }
                (self.from_s, self.back) = (frame.now_s, 0.0);
            }
        }
        self.policy.decide(frame)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    /// Of a hundred minutes, at most one has more coming back than the promotion limit allows, and memory that is idle goes.
    #[test]
    fn promotion_keeps_its_limit(seed: u64, every_s in 1.0f64..40.0, zipf_s in 0.5f64..4.0, idle in 16u32..256) {
        let parts = vec![part(64, AccessPattern::Steady(every_s)), part(128, AccessPattern::Zipf(zipf_s)), part(idle, AccessPattern::Idle)];
        let machine = Setup { seed, ..setup(memory(4000.0, 4000), vec![Load::new(1, "web", parts)], 2.0 * 3600.0) };
        let warm_up = Span(std::time::Duration::from_secs(300));
        let settings = promotion::PromotionSettings { warm_up, ..promotion::PromotionSettings::default() };
        let limit = settings.limit.0;
        let policy = Box::new(Reclaimer::new(settings, Brakes::default()));
        let counts = Arc::new(Mutex::new((0, 0)));
        let minutes = Minutes { policy, limit, from_s: 300.0, back: 0.0, counts: counts.clone() };
        let outcome = run(Simulated::new(machine), Some(AnyPolicy::workloads(minutes)));
        let (within, beyond) = *counts.lock().unwrap();
        prop_assert!(within + beyond > 100 && beyond * 100 <= within, "{} minutes of {}", beyond, within + beyond);
        // Ages are reported up to two minutes: where so much is used again later, nothing may go.
        let gone = outcome.samples.last().map_or(0.0, |sample| sample.out_bytes);
        prop_assert!(gone <= f64::from(idle + 128) * MIB, "{} MiB", gone / MIB);
    }

    /// Auto loses no more than its brakes allow, however memory is used.
    #[test]
    fn auto_keeps_its_price(seed: u64, every_s in 1.0f64..60.0, groups in 256u32..1024) {
        let load = Load::new(1, "web", vec![part(32, AccessPattern::Sweep(0.5)), Part::new(Kind::Anon, AccessPattern::Steady(every_s), 256, groups)]);
        let mut machine = Setup { seed, ..setup(memory(4000.0, 4000), vec![load], 1200.0) };
        machine.memory.swap.in_s = 20e-6;
        let policy = Reclaimer::new(auto::AutoSettings::default(), Brakes::default());
        let outcome = run(Simulated::new(machine), Some(AnyPolicy::workloads(policy)));
        let slowdown = outcome.workloads[0].slowdown();
        prop_assert!(slowdown < 0.005, "{} of 0.005 allowed", slowdown);
    }
}
