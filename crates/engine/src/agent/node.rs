//! The machine as one of the agent's policies sees it, and what it does for it.

use std::time::Instant;

use lowtide_kernel::sys;
use lowtide_policy::machine::{Action, Actuator, Reclaimed};

use super::act::Actor;
use super::figures::Shared;
use super::granting::Granting;
use super::lifecycle::{Phases, Reach, Stowed};
use super::log;
use super::seen::Seen;
use super::watch::{Watch, bytes};

/// The machine as one policy sees it.
pub(super) struct Node<'a> {
    pub now_s: f64,
    pub watch: &'a mut Watch,
    pub actor: &'a mut Actor,
    pub phases: &'a mut Phases,
    pub granting: &'a mut Granting,
    pub reclaimed: Vec<Reclaimed>,
    pub shared: &'a Shared,
    pub told: &'a Seen,
}

impl Actuator<Action> for Node<'_> {
    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            let wanted = match action {
                Action::Reclaim(wanted) => wanted,
                Action::Stow { target, reason } => {
                    self.turn_over(target, true, &reason);
                    continue;
                }
                Action::Fetch { target, reason } => {
                    self.turn_over(target, false, &reason);
                    continue;
                }
                Action::Protect { target, .. } | Action::Pause { target, .. } | Action::Release { target, .. } => {
                    self.grant(target, &action);
                    continue;
                }
            };
            let dry_run = self.actor.is_dry_run();
            if let Some(ranges) = self.watch.ranges().filter(|ranges| !dry_run && ranges.evicts(wanted.target)) {
                ranges.want(&wanted, self.now_s);
                continue;
            }
            let zram = self.watch.zram_reader();
            let Some(watched) = self.watch.get_mut(wanted.target) else { continue };
            // Nobody reclaims from one process of a cgroup; what waits is what the kernel takes first.
            if watched.process.is_some() {
                continue;
            }
            let outcome = self.actor.reclaim(watched, &wanted, zram);
            log::reclaim(watched, &wanted, &outcome);
            self.shared.with(|figures| figures.took(wanted.target, &outcome));
            self.told.reclaimed(&wanted, &outcome);
            self.reclaimed.push(outcome.reclaimed);
        }
        // Last: what is granted again must not be taken back because the turn before took long.
        self.granting.expire(self.now_s);
    }
}

impl Node<'_> {
    /// Has one protected, or wait, or be as it was.
    fn grant(&mut self, id: u64, action: &Action) {
        let Some(watched) = self.watch.found().get(&id) else { return };
        let Some(granted) = self.granting.act(watched, action, self.now_s) else { return };
        let (Action::Protect { reason, .. } | Action::Pause { reason, .. } | Action::Release { reason, .. }) = action
        else {
            return;
        };
        let mut figures = vec![
            ("cgroup", watched.path.clone()),
            ("resident_bytes", watched.now.resident.iter().sum::<u64>().to_string()),
            ("swapped_bytes", watched.now.swapped.to_string()),
        ];
        if granted.bytes > 0.0 {
            figures.push(("bytes", format!("{:.0}", granted.bytes)));
        }
        figures.push(("reason", reason.clone()));
        figures.extend(granted.stopped.clone().map(|why| ("stopped", why)));
        log::line(granted.what.name(), &figures);
        self.told.granted(id, &granted, reason);
    }

    /// Stows what went to the background, or fetches it again.
    fn turn_over(&mut self, id: u64, away: bool, reason: &str) {
        let watched = self.watch.found().get(&id);
        let name = watched.map(|watched| watched.path.clone()).or_else(|| self.phases.name(id));
        let of = watched.map(|watched| (watched.cgroup.clone(), watched.process));
        let of = of.as_ref().map(|(cgroup, process)| (cgroup, *process));
        let (start, cpu_s) = (Instant::now(), sys::thread_cpu_s());
        let actor = &*self.actor;
        let watch = &*self.watch;
        let reach = Reach { may: &|path| !watch.is_excluded(path), go_on: &|| actor.may_go_on_processes() };
        let done = match (actor.is_dry_run(), away) {
            (true, _) => Ok(Stowed::default()),
            (false, true) => self.phases.stow(id, of, &reach),
            (false, false) => self.phases.fetch(id, of, &reach),
        };
        let dry_run = actor.is_dry_run();
        self.actor.cpu_s += sys::thread_cpu_s() - cpu_s;
        if !away {
            self.phases.forget(id);
        }
        let took_s = start.elapsed().as_secs_f64();
        let failed = done.as_ref().err().map(ToString::to_string);
        let went = done.as_ref().map_or([0.0; 2], |done| [bytes(done.anon), bytes(done.file)]);
        let stopped = if dry_run { Some("dry run") } else { failed.as_deref() };
        self.told.turned_over(id, away, (went, took_s), reason, stopped);
        let mut figures = vec![("target", name.unwrap_or_default())];
        match done {
            Ok(Stowed { anon, file, processes }) => figures.extend([
                ("processes", processes.to_string()),
                ("anon_bytes", anon.to_string()),
                ("file_bytes", file.to_string()),
            ]),
            Err(error) => figures.push(("error", error.to_string())),
        }
        figures.push(("took_s", format!("{took_s:.3}")));
        figures.push(("reason", reason.to_owned()));
        if dry_run {
            figures.push(("stopped", "dry run".to_owned()));
        }
        log::line(if away { "stow" } else { "fetch" }, &figures);
    }
}
