//! The agent's policies, and their turns.

use lowtide_model::target::TargetId;
use lowtide_policy::machine::{Brake, Observation, Reclaimed, WorkloadPolicy, WorkloadState, turn};
use lowtide_policy::policies::Spec;
use lowtide_policy::schemes::SchemeLimits;

use super::super::actuator::AgentActuator;
use super::super::config::build;
use super::super::serve::api::LIFECYCLE;
use super::Agent;
use crate::event::Event;

/// A policy with the workloads that are its own.
pub(super) struct Group {
    /// Brakes that held it at the last turn.
    pub held: Vec<(Option<TargetId>, Brake)>,
    pub spec: Spec,
    pub policy: Box<WorkloadPolicy>,
    pub reclaimed: Vec<Reclaimed>,
}

impl Group {
    pub fn new(name: &str, spec: Spec) -> anyhow::Result<Self> {
        let policy = build(name, &spec, 0).map_err(anyhow::Error::msg)?;
        Ok(Self { held: Vec::new(), spec, policy, reclaimed: Vec::new() })
    }

    pub fn is_guard(&self) -> bool {
        matches!(self.spec, Spec::Guard(_))
    }

    /// Has the policy decide and its actions carried out. Brakes that took hold or let go are published.
    pub fn turn(&mut self, name: &str, frame: &Observation, mut actuator: AgentActuator<'_>) {
        turn(self.policy.as_mut(), frame, &mut actuator);
        let held = self.policy.held();
        for (holds, some, others) in [(true, &held, &self.held), (false, &self.held, &held)] {
            for (target, brake) in some.iter().filter(|one| !others.contains(one)) {
                let path = |id: TargetId| actuator.workloads.all.get(&id).map(|workload| workload.path.clone());
                let Some(workload) = target.map_or(Some("all".to_owned()), path) else { continue };
                let event = Event::Brake { policy: name, workload: &workload, brake: *brake, holds };
                actuator.sinks.publish(frame.now_s, &event);
            }
        }
        (self.held, self.reclaimed) = (held, actuator.reclaimed);
    }
}

impl Agent {
    /// The turn of the policy for the background: all workloads, and the processes that hints were given about.
    pub(super) fn background_turn(&mut self, observation: &mut Observation, processes: Vec<WorkloadState>) {
        let Some(mut group) = self.lifecycle.take() else { return };
        let all = &self.workloads.all;
        for target in &mut observation.targets {
            let cgroup = all.get(&target.id).map(|workload| &workload.cgroup);
            target.background = cgroup.is_some_and(|cgroup| self.background.holds(cgroup, observation.now_s));
        }
        self.background.retain(|id| all.contains_key(&id));
        let targets = observation.targets.iter().cloned().chain(processes).collect();
        let frame = Observation { targets, ..observation.clone() };
        group.turn(LIFECYCLE, &frame, self.actuator(observation.now_s));
        for target in frame.targets.iter().filter(|target| !target.background) {
            self.actuator(observation.now_s).fetch_rest(target.id);
        }
        self.lifecycle = Some(group);
    }

    /// The turns of the other policies, each with its own workloads.
    pub(super) fn workload_turns(&mut self, mut observation: Observation) {
        let mut left = std::mem::take(&mut observation.targets);
        for (name, mut group) in std::mem::take(&mut self.groups) {
            let all = &self.workloads.all;
            let own = |id: TargetId| all.get(&id).is_some_and(|workload| workload.policy == *name);
            let (targets, others) = left.into_iter().partition(|target| own(target.id));
            let reclaimed = observation.reclaimed.iter().filter(|of| own(of.target)).copied().collect();
            // Less than before, as other policies have filled some.
            let swap_free = self.workloads.swap_free();
            let frame = Observation { targets, reclaimed, swap_free, ..observation.clone() };
            group.turn(&name, &frame, self.actuator(observation.now_s));
            left = others;
            self.groups.insert(name, group);
        }
    }

    /// Has huge pages split that hold mostly zeros, of the workload that is due.
    pub(super) fn split_huge_pages(&mut self, now_s: f64) {
        let Some(splitter) = &mut self.splitter else { return };
        let Some(id) = splitter.due(&self.workloads.all, now_s) else { return };
        let swap = self.workloads.swap_free().is_some_and(|free| free >= SchemeLimits::default().swap_free);
        let Some(workload) = self.workloads.all.get_mut(&id) else { return };
        if let Some(outcome) = splitter.step(workload, &mut self.reclaim, (now_s, swap)) {
            self.sinks.publish(now_s, &Event::Acted(&outcome.event(workload)));
        }
    }

    pub(super) fn actuator(&mut self, now_s: f64) -> AgentActuator<'_> {
        AgentActuator {
            now_s,
            workloads: &mut self.workloads,
            reclaim: &mut self.reclaim,
            address: self.sampling.address(),
            background: &mut self.background,
            granting: &mut self.granting,
            sinks: &mut self.sinks,
            reclaimed: Vec::new(),
        }
    }
}
