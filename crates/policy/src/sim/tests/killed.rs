//! An agent that is killed at any instant, over and over, and started again from what it had saved.

use lowtide_model::target::TargetId;
use std::cell::Cell;
use std::sync::Arc;

use lowtide_model::random::Random;
use lowtide_model::units::Size;
use proptest::test_runner::{Config, TestRunner};

use super::laws::{Checked, conserved, machines, policies};
use super::*;
use crate::machine::Brake;
use crate::saved::Saved;
use proptest::prelude::*;

/// Where in a turn the agent is killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Blow {
    /// It has read the machine, and not decided.
    Observed,
    /// It has decided: so many of its actions reach the machine, for a share of all.
    Acting(f64),
    /// It has acted, and is about to save.
    Acted,
    /// While it saved: only a part of the file is there, for a share of its bytes.
    Saving(f64),
    /// When all is done.
    Saved,
}

/// An agent as the real one is, with a machine of its own.
struct Agent<'a> {
    checked: Checked<WorkloadPolicy>,
    make: &'a dyn Fn() -> Box<WorkloadPolicy>,
    random: Random,
    file: Vec<u8>,
    /// What held the policy when it was saved.
    held: Vec<(Option<TargetId>, Brake)>,
    /// The first turn of a life only reads: nothing is known of the time before.
    has_read: bool,
    deaths: u32,
    restored: u32,
    /// The file may be torn, and bytes of it wrong. It cannot where it is renamed into place and has a checksum.
    tears: bool,
}

impl<'a> Agent<'a> {
    fn new(make: &'a dyn Fn() -> Box<WorkloadPolicy>, quota: Option<(f64, f64)>, seed: u64) -> Self {
        let checked = Checked::<WorkloadPolicy>::new(make(), quota, &Arc::default(), &Arc::default());
        let random = Random::new(seed ^ 0xdead);
        Self { checked, make, random, file: vec![], held: vec![], has_read: false, deaths: 0, restored: 0, tears: true }
    }

    fn blow(&mut self) -> Blow {
        let share = self.random.chance();
        [Blow::Observed, Blow::Acting(share), Blow::Acted, Blow::Saving(share), Blow::Saved][self.random.index(5)]
    }

    /// Another life, from the file.
    fn rise(&mut self, now_s: f64) {
        self.deaths += 1;
        self.has_read = false;
        let mut policy = (self.make)();
        if let Ok(saved) = serde_json::from_slice::<Saved>(&self.file) {
            self.restored += u32::from(policy.restore(&saved, now_s) > 0);
        }
        self.checked.policy = policy;
    }

    /// It saves now and then, and when other brakes hold it than did.
    fn is_due(&mut self) -> bool {
        let held = self.checked.policy.held();
        let changed = std::mem::replace(&mut self.held, held) != self.held;
        changed || self.random.chance() < 0.1
    }

    fn save(&mut self, saved: &Saved) {
        self.file = serde_json::to_vec(saved).unwrap();
        if self.tears && self.random.chance() < 0.2 {
            let at = self.random.index(self.file.len());
            self.file[at] = b"0123456789-,.e"[self.random.index(14)];
        }
    }

    /// One turn, in which it is killed, or is not.
    fn turn(&mut self, machine: &mut Simulated, blow: Option<Blow>) {
        let Some(frame) = machine.observe() else { return };
        if !std::mem::replace(&mut self.has_read, true) {
            return;
        }
        if blow == Some(Blow::Observed) {
            return self.rise(machine.now_s());
        }
        let mut actions = self.checked.decide(&frame);
        if let Some(Blow::Acting(share)) = blow {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
            actions.truncate((share * (actions.len() + 1) as f64) as usize);
        }
        machine.carry_out(actions);
        let now_s = machine.now_s();
        let saves = match blow {
            Some(Blow::Acting(_) | Blow::Acted) => false,
            Some(Blow::Saving(_)) => self.tears,
            _ => true,
        };
        if saves && self.is_due() {
            let saved = self.checked.policy.save();
            self.save(&saved);
            if let Some(Blow::Saving(share)) = blow {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
                self.file.truncate((share * self.file.len() as f64) as usize);
            }
        }
        if blow.is_some() {
            self.rise(now_s);
        }
    }
}

/// What the agent can run, made again as often as is wanted.
fn made(name: &'static str, quota: Option<u64>, seed: u64) -> impl Fn() -> Box<WorkloadPolicy> {
    move || {
        policies(quota, seed)
            .into_iter()
            .find(|(other, _)| *other == name)
            .and_then(|(_, policy)| policy.into_workloads())
            .unwrap()
    }
}

const NAMES: [&str; 5] = ["age", "promotion", "pressure", "auto", "lifecycle"];

/// A thousand deaths on any machine: what holds for a policy that lives holds for one that dies.
#[test]
fn no_death_does_harm() {
    let (deaths, restored, taken) = (Cell::new(0), Cell::new(0), Cell::new(0.0));
    let config = Config { cases: 48, failure_persistence: None, ..Config::default() };
    // Some die at nearly every turn, some live long enough to learn.
    let all = (machines(120.0), prop::option::of(1u64 << 20..1 << 26), 0.02f64..0.3);
    let run = TestRunner::new(config).run(&all, |(machine, quota, often)| {
        for name in NAMES {
            let make = made(name, quota, machine.seed);
            // A clock that jumps begins a quota's interval again.
            #[expect(clippy::cast_precision_loss)]
            let bytes = quota.filter(|_| machine.faults.clock.is_none()).map(|bytes| (bytes as f64, 1.0));
            let mut agent = Agent::new(&make, bytes, machine.seed);
            let mut simulated = Simulated::new(machine.clone());
            while simulated.step() {
                let blow = (agent.random.chance() < often).then(|| agent.blow());
                agent.turn(&mut simulated, blow);
                conserved(&simulated);
            }
            prop_assert_eq!(&*agent.checked.wrong.lock().unwrap(), &Vec::<String>::new(), "{}", name);
            for load in simulated.outcome().workloads.iter().filter(|load| load.protected) {
                prop_assert_eq!(load.reclaimed, PerKind::default(), "{}: {}", name, &load.name);
            }
            deaths.set(deaths.get() + agent.deaths);
            restored.set(restored.get() + agent.restored);
            taken.set(taken.get() + agent.checked.log.lock().unwrap().iter().map(|(_, bytes)| bytes).sum::<f64>());
        }
        Ok(())
    });
    run.unwrap();
    assert!(deaths.get() >= 1000 && restored.get() >= 500, "{} deaths, {} restored", deaths.get(), restored.get());
    assert!(taken.get() > 100.0 * MIB, "{}", taken.get());
}

/// Runs one workload under a policy whose agent is killed now and then until `until_s`, and lives from then on. What became
/// of it, and how often it was killed.
fn killed_until(name: &'static str, machine: &Setup, often: f64, until_s: f64) -> (Outcome, u32) {
    let make = made(name, None, machine.seed);
    let mut agent = Agent::new(&make, None, machine.seed);
    agent.tears = false;
    let mut simulated = Simulated::new(machine.clone());
    while simulated.step() {
        let blow = (simulated.now_s() < until_s && agent.random.chance() < often).then(|| agent.blow());
        agent.turn(&mut simulated, blow);
    }
    (simulated.outcome(), agent.deaths)
}

/// Bytes that are paged out in the end.
fn gone(outcome: &Outcome) -> f64 {
    outcome.samples.last().map_or(0.0, |sample| sample.out_bytes)
}

proptest! {
    #![proptest_config(Config { cases: 4, ..Config::default() })]

    /// Once the kills stop, the machine reaches the state it would have had, and loses no more time than allowed.
    #[test]
    fn the_last_life_comes_to_the_same_end(seed: u64, hot in 8u32..64, idle in 32u32..256, every_s in 0.3f64..1.0) {
        for name in NAMES {
            let mut load = Load::new(1, "web", vec![part(hot, AccessPattern::Sweep(every_s)), part(idle, AccessPattern::Idle)]);
            if name == "lifecycle" {
                load.foreground = Some(Foreground { from_s: 0.0, lasts_s: 20.0, every_s: 1e9 });
            }
            let machine = Setup { seed, ..setup(memory(4000.0, 4000), vec![load], 900.0) };
            let (unkilled, _) = killed_until(name, &machine, 0.0, 0.0);
            let (killed, deaths) = killed_until(name, &machine, 0.1, 200.0);
            prop_assert!(deaths > 5, "{}: {} deaths", name, deaths);
            let off = (gone(&killed) - gone(&unkilled)).abs();
            let (mib, all) = (off / MIB, f64::from(hot + idle));
            prop_assert!(mib < 0.1 * all, "{}: {} MiB of {} off, {} deaths", name, mib, all, deaths);
            prop_assert!(killed.workloads[0].slowdown() < 0.01, "{}: {}", name, killed.workloads[0].slowdown());
        }
    }

    /// However often it is killed, a policy that has learnt what is refaulted does not try it again each time: what the kills
    /// cost, by what is refaulted while no agent runs, is less than it may cost at most.
    #[test]
    fn death_does_not_make_it_dearer(seed: u64, every_s in 1.0f64..60.0, groups in 256u32..1024) {
        let load = Load::new(1, "web", vec![part(32, AccessPattern::Sweep(0.5)), Part::new(Kind::Anon, AccessPattern::Steady(every_s), 256, groups)]);
        let mut machine = Setup { seed, ..setup(memory(4000.0, 4000), vec![load], 1200.0) };
        machine.memory.swap.in_s = 20e-6;
        for name in ["auto", "age"] {
            let (outcome, deaths) = killed_until(name, &machine, 0.05, 1200.0);
            let (unkilled, _) = killed_until(name, &machine, 0.0, 0.0);
            let slowdown = (outcome.workloads[0].slowdown(), unkilled.workloads[0].slowdown());
            prop_assert!(deaths > 20 && slowdown.0 < slowdown.1 + 0.01, "{}: {:?}, {} deaths", name, slowdown, deaths);
        }
    }
}

/// A disk is written to no more than it may a day, however often the count is lost.
#[test]
fn death_does_not_fill_a_day_anew() {
    let a_day = 4 << 30;
    let make = || -> Box<WorkloadPolicy> {
        Box::new(Reclaimer::new(AgeSettings::default(), Brakes { writes: Some(Size(a_day)), ..Brakes::default() }))
    };
    let part = Part { grow_s: 3000.0, ..part(2000, AccessPattern::Idle) };
    let mut machine = setup(memory(4000.0, 4000), vec![Load::new(1, "web", vec![part])], 3600.0);
    machine.memory.swap.zram = false;
    for often in [0.0, 0.02, 0.2] {
        let mut agent = Agent::new(&make, None, 1);
        let mut simulated = Simulated::new(machine.clone());
        while simulated.step() {
            let blow = (agent.random.chance() < often).then(|| agent.blow());
            agent.turn(&mut simulated, blow);
        }
        let written = 4096 * simulated.outcome().workloads[0].reclaimed.anon;
        // An hour of a day, and what is short of a page at every turn.
        assert!(written < a_day / 24 + 3600 * 4096, "{written} after {} deaths", agent.deaths);
        assert!(often > 0.1 || written > a_day / 50, "{written} after {} deaths", agent.deaths);
    }
}
