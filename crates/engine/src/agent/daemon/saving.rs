//! Saving and restoring the agent's state.

use lowtide_kernel::system;
use lowtide_model::target::TargetId;
use lowtide_policy::machine::Brake;

use super::super::saved::{self, Remembered, SavedState, SavedWorkload};
use super::Agent;
use super::policies::Group;
use crate::event::Event;
use crate::workloads::Workload;

/// It is saved so often, seconds.
const EVERY_S: f64 = 60.0;
/// Where other brakes hold than before it is saved at once: a kill must not undo a pause. Not more often than this, seconds.
const SOON_S: f64 = 5.0;
/// Hints are saved at once, as they were acknowledged; but not more often than this, seconds.
const HINTED_S: f64 = 1.0;

/// When the state was saved, and whether that failed.
#[derive(Debug, Default)]
pub(super) struct Saver {
    /// The file was read, or is not wanted.
    restored: bool,
    /// When it was saved last, seconds.
    saved_s: Option<f64>,
    /// What held policies then.
    held: Vec<(Option<TargetId>, Brake)>,
    /// There are hints that are not in the file.
    hinted: bool,
    /// Why it could not be saved, each reported once.
    reported: Option<String>,
}

impl Agent {
    fn saves(&self) -> bool {
        !self.config.state_file.as_os_str().is_empty() && !self.dry_run
    }

    /// Restores the state that the agent before this one left. True the first time.
    pub(super) fn restore(&mut self, now_s: f64) -> bool {
        if std::mem::replace(&mut self.saver.restored, true) {
            return false;
        }
        if !self.saves() {
            return true;
        }
        let path = self.config.state_file.clone();
        let file = path.display().to_string();
        let boot_id = system::boot_id(&self.kernel).unwrap_or_default();
        match saved::load(&path, &boot_id, now_s) {
            Ok(None) => {}
            Ok(Some(state)) => {
                self.saver.saved_s = Some(state.at_s);
                let (workloads, policies) = self.restore_state(&state, now_s);
                let figures = [
                    ("file", file),
                    ("workloads", workloads.to_string()),
                    ("learnt", policies.to_string()),
                    ("age_s", format!("{:.1}", now_s - state.at_s)),
                ];
                self.sinks.log(now_s, "restored", &figures);
            }
            Err(why) => self.sinks.publish(now_s, &Event::Note(&format!("{file}: it is left out: {why}"))),
        }
        true
    }

    /// Restores the state of workloads that are still there: of how many, and of how many in policies.
    fn restore_state(&mut self, state: &SavedState, now_s: f64) -> (usize, usize) {
        let all = &self.workloads.all;
        let same = |id: TargetId| {
            all.get(&id).zip(state.workloads.get(&id)).is_some_and(|(now, before)| now.path == before.path)
        };
        let there: Vec<TargetId> = state.workloads.keys().copied().filter(|id| same(*id)).collect();
        self.background.restore(&state.background, |id| there.contains(&id));
        let background = &self.background;
        let mut learnt = 0;
        let mut restore = |group: &mut Group, before: Option<&Remembered>| {
            let Some(before) = before.filter(|before| before.settings == group.spec) else { return };
            let mut saved = before.saved.clone();
            saved.targets.retain(|id, _| there.binary_search(id).is_ok() || background.is_tree(*id));
            learnt += group.policy.restore(&saved, now_s);
        };
        for (name, group) in &mut self.groups {
            restore(group, state.policies.get(name));
        }
        self.lifecycle.iter_mut().for_each(|group| restore(group, state.lifecycle.as_ref()));
        for id in &there {
            let Some((before, workload)) = state.workloads.get(id).zip(self.workloads.all.get_mut(id)) else {
                continue;
            };
            workload.totals = before.totals;
            workload.totals.zram = before.totals.zram.checked();
        }
        (there.len(), learnt)
    }

    /// Saves hints that were just taken.
    pub(super) fn save_hints(&mut self, now_s: f64) {
        self.saver.hinted = true;
        self.save(now_s, false);
    }

    /// Saves the state, if it is time, or this is the end.
    pub(super) fn save(&mut self, now_s: f64, end: bool) {
        // What was not read yet must not be lost.
        if !self.saves() || !self.saver.restored {
            return;
        }
        let held: Vec<_> =
            self.groups.values().chain(&self.lifecycle).flat_map(|group| group.held.iter().copied()).collect();
        let since_s = self.saver.saved_s.map_or(f64::INFINITY, |saved_s| now_s - saved_s);
        let soon = (held != self.saver.held && since_s >= SOON_S) || (self.saver.hinted && since_s >= HINTED_S);
        if !end && since_s < EVERY_S && !soon {
            return;
        }
        (self.saver.saved_s, self.saver.held, self.saver.hinted) = (Some(now_s), held, false);
        let written = saved::encode(&self.state(now_s)).and_then(|(bytes, left_out)| {
            saved::store(&self.config.state_file, &bytes)?;
            Ok(left_out)
        });
        let trouble = match written {
            Ok(0) => None,
            Ok(left_out) => {
                Some(format!("it would be too large: what was learnt of {left_out} workloads is not in it"))
            }
            Err(error) => Some(format!("what is known is not saved: {error}")),
        };
        // Numbers change; that there is trouble is reported once.
        if let Some(text) = trouble.as_ref().filter(|_| self.saver.reported.is_none()) {
            let text = format!("{}: {text}", self.config.state_file.display());
            self.sinks.publish(now_s, &Event::Error(&text));
        }
        self.saver.reported = trouble;
    }

    fn state(&self, now_s: f64) -> SavedState {
        let remembered = |group: &Group| Remembered { settings: group.spec.clone(), saved: group.policy.save() };
        let workload =
            |(id, of): (&TargetId, &Workload)| (*id, SavedWorkload { path: of.path.clone(), totals: of.totals });
        SavedState {
            boot_id: system::boot_id(&self.kernel).unwrap_or_default(),
            at_s: now_s,
            workloads: self.workloads.all.iter().map(workload).collect(),
            policies: self.groups.iter().map(|(name, group)| (name.clone(), remembered(group))).collect(),
            lifecycle: self.lifecycle.as_ref().map(remembered),
            background: self.background.save(),
        }
    }
}
