//! What the agent keeps in its file, and when.

use lowtide_kernel::system;
use lowtide_policy::machine::Brake;

use super::super::log;
use super::super::state::{self, Remembered, State, Workload};
use super::{Agent, Group};

/// It is kept so often, seconds.
const EVERY_S: f64 = 60.0;
/// Where other brakes hold than before it is kept at once: a kill must not undo a pause. Not more often than this, seconds.
const SOON_S: f64 = 5.0;

/// Hints are kept at once, as whoever gave them was told that they were heard; but not more often than this, seconds.
const HINTED_S: f64 = 1.0;

/// When it was kept, and how that went.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    /// What is in the file was taken up, or is not wanted.
    recalled: bool,
    /// When it was kept last, seconds since the boot.
    kept_s: Option<f64>,
    /// What held policies then.
    held: Vec<(Option<u64>, Brake)>,
    /// There are hints that are not in the file.
    hinted: bool,
    /// Why it could not be kept, each said once.
    said: Option<String>,
}

fn settings(group: &Group) -> String {
    format!("{:?}", group.spec)
}

impl Agent {
    /// Takes up what the agent before this one left. True the first time.
    pub(super) fn recall(&mut self, now_s: f64) -> bool {
        if std::mem::replace(&mut self.keeper.recalled, true) {
            return false;
        }
        let path = self.config.state_file.clone();
        if path.as_os_str().is_empty() || self.dry_run {
            return true;
        }
        let file = path.display().to_string();
        let boot_id = system::boot_id(&self.kernel).unwrap_or_default();
        match state::load(&path, &boot_id, system::since_boot_s()) {
            Ok(None) => {}
            Ok(Some((state, away_s))) => {
                self.keeper.kept_s = Some(state.at_s);
                let (workloads, policies) = self.take_up(&state, now_s, away_s);
                let figures = [
                    ("workloads", workloads.to_string()),
                    ("learnt", policies.to_string()),
                    ("age_s", format!("{away_s:.1}")),
                ];
                log::line("restored", &[&[("file", file)], &figures[..]].concat());
            }
            Err(why) => log::line("note", &[("text", format!("{file}: it is left out: {why}"))]),
        }
        true
    }

    /// Of what was known, that of workloads which are still there. Of how many that is something, and of how many of them
    /// policies had learnt something.
    fn take_up(&mut self, state: &State, now_s: f64, away_s: f64) -> (usize, usize) {
        let found = self.watch.found();
        let same =
            |id: u64| found.get(&id).zip(state.workloads.get(&id)).is_some_and(|(now, before)| now.path == before.path);
        let there: Vec<u64> = state.workloads.keys().copied().filter(|id| same(*id)).collect();
        self.phases.restore(&state.phases, now_s, away_s, |id| there.contains(&id));
        let phases = &self.phases;
        let mut learnt = 0;
        let mut restore = |group: &mut Group, before: Option<&Remembered>| {
            let Some(before) = before.filter(|before| before.settings == settings(group)) else { return };
            let mut saved = before.saved.clone();
            saved.targets.retain(|id, _| there.binary_search(id).is_ok() || phases.is_tree(*id));
            learnt += group.policy.restore(&saved, now_s, away_s);
        };
        for (name, group) in &mut self.groups {
            restore(group, state.policies.get(name));
        }
        self.lifecycle.iter_mut().for_each(|group| restore(group, state.lifecycle.as_ref()));
        for id in &there {
            let Some(before) = state.workloads.get(id) else { continue };
            if let Some(watched) = self.watch.get_mut(*id) {
                watched.kept = before.kept.filter(|kept| *kept >= 0.0);
            }
            self.shared.with(|figures| {
                let row = figures.rows.entry(*id).or_default();
                (row.reclaimed, row.requests) = (before.reclaimed, before.requests);
            });
        }
        (there.len(), learnt)
    }

    /// Keeps hints that were just heard.
    pub(super) fn keep_hints(&mut self) {
        self.keeper.hinted = true;
        self.keep(false);
    }

    /// Keeps what is known, if it is time, or this is the end.
    pub(super) fn keep(&mut self, end: bool) {
        // What was not taken up yet must not be lost.
        if self.config.state_file.as_os_str().is_empty() || self.dry_run || !self.keeper.recalled {
            return;
        }
        let at_s = system::since_boot_s();
        let held: Vec<_> =
            self.groups.values().chain(&self.lifecycle).flat_map(|group| group.held.iter().copied()).collect();
        let since_s = self.keeper.kept_s.map_or(f64::INFINITY, |kept_s| at_s - kept_s);
        let soon = (held != self.keeper.held && since_s >= SOON_S) || (self.keeper.hinted && since_s >= HINTED_S);
        if !end && since_s < EVERY_S && !soon {
            return;
        }
        (self.keeper.kept_s, self.keeper.held, self.keeper.hinted) = (Some(at_s), held, false);
        let state = self.state(at_s);
        let kept = state::encode(&state).and_then(|(bytes, left_out)| {
            state::store(&self.config.state_file, &bytes)?;
            Ok(left_out)
        });
        let trouble = match kept {
            Ok(0) => None,
            Ok(left_out) => {
                Some(format!("it would be too large: what was learnt of {left_out} workloads is not in it"))
            }
            Err(error) => Some(format!("what is known is not kept: {error}")),
        };
        // Numbers change; that there is trouble is said once.
        if let Some(text) = trouble.as_ref().filter(|_| self.keeper.said.is_none()) {
            log::line("error", &[("text", format!("{}: {text}", self.config.state_file.display()))]);
        }
        self.keeper.said = trouble;
    }

    fn state(&self, at_s: f64) -> State {
        let now_s = self.now_s();
        let remembered = |group: &Group| Remembered { settings: settings(group), saved: group.policy.save(now_s) };
        let mut workloads = std::collections::BTreeMap::new();
        self.shared.with(|figures| {
            for (id, watched) in self.watch.found() {
                let row = figures.rows.get(id);
                let workload = Workload {
                    path: watched.path.clone(),
                    reclaimed: row.map_or([0.0; 2], |row| row.reclaimed),
                    requests: row.map_or((0.0, 0.0), |row| row.requests),
                    kept: watched.kept,
                };
                workloads.insert(*id, workload);
            }
        });
        State {
            boot_id: system::boot_id(&self.kernel).unwrap_or_default(),
            at_s,
            workloads,
            policies: self.groups.iter().map(|(name, group)| (name.clone(), remembered(group))).collect(),
            lifecycle: self.lifecycle.as_ref().map(remembered),
            phases: self.phases.save(now_s),
        }
    }
}
