//! What the agent takes from its file, at its start and at a reload.

use anyhow::Context;
use sd_notify::NotifyState;

use super::super::alert::Alert;
use super::super::config::Config;
use super::super::grants;
use super::super::huge::Splitter;
use super::super::reclaim::CgroupReclaim;
use super::super::socket::Socket;
use super::Agent;
use super::policies::Group;
use crate::event::Event;
use crate::failure;
use crate::workloads::NONE;

impl Agent {
    /// Makes the policies of the workloads. One whose settings did not change keeps its state.
    pub(super) fn make_groups(&mut self) -> anyhow::Result<()> {
        let mut before = std::mem::take(&mut self.groups);
        for name in self.config.workload.iter().map(|workload| &workload.policy).filter(|name| *name != NONE) {
            if self.groups.contains_key(name) {
                continue;
            }
            let spec = self.config.policy(name).map_err(anyhow::Error::msg)?;
            if spec.wants_regions() {
                continue;
            }
            let group = match before.remove(name).filter(|group| group.spec == spec) {
                Some(group) => group,
                None => Group::new(name, spec)?,
            };
            self.groups.insert(name.clone(), group);
        }
        let before = self.lifecycle.take();
        if let Some(lifecycle) = &self.config.lifecycle {
            let spec = self.config.policy(&lifecycle.policy).map_err(anyhow::Error::msg)?;
            let same = before.filter(|group| group.spec == spec);
            self.lifecycle = Some(same.map_or_else(|| Group::new(&lifecycle.policy, spec), Ok)?);
        }
        let idle_after = self.config.lifecycle.as_ref().and_then(|lifecycle| lifecycle.idle_after);
        self.background.idle_after_s = idle_after.map(|time| time.0.as_secs_f64());
        self.make_splitter();
        let guards = self.groups.values().any(Group::is_guard);
        if guards {
            grants::stay_in_memory();
        }
        self.make_alert(guards);
        Ok(())
    }

    /// What splits huge pages. Where this kernel does not, that is reported and all else works.
    fn make_splitter(&mut self) {
        let before = self.splitter.take().filter(|splitter| Some(splitter.settings) == self.config.huge_pages);
        let Some(settings) = self.config.huge_pages else { return };
        match before.map_or_else(|| Splitter::new(&self.kernel, settings, self.dry_run), Ok) {
            Ok(splitter) => self.splitter = Some(splitter),
            Err(error) => {
                let text = format!("huge pages are not split (Linux 6.12 can): {error}");
                self.sinks.publish(self.kernel.awake_s(), &Event::Note(&text));
            }
        }
    }

    /// What wakes a guard. Where the kernel reports no stalls, turns come as often as always.
    fn make_alert(&mut self, guards: bool) {
        if !guards || self.alert.is_some() {
            self.alert = self.alert.take().filter(|_| guards);
            return;
        }
        let (alert, note) = match Alert::new(&self.kernel) {
            Ok((alert, None)) => (Some(alert), None),
            Ok((alert, Some(error))) => {
                (Some(alert), Some(format!("stalls are polled, as the kernel does not wake the guard: {error}")))
            }
            Err(error) => {
                let every = self.config.every;
                (None, Some(format!("thrashing is detected {every} later: no stall wakes the guard: {error}")))
            }
        };
        self.alert = alert;
        if let Some(text) = note {
            self.sinks.publish(self.kernel.awake_s(), &Event::Note(&text));
        }
    }

    /// Opens the socket for hints, where hints are wanted. Fails if it cannot be made there.
    pub fn listen(&mut self) -> anyhow::Result<()> {
        let Some(lifecycle) = &self.config.lifecycle else {
            self.socket = None;
            return Ok(());
        };
        if self.socket.as_ref().is_some_and(|socket| socket.file.0 == lifecycle.socket) {
            return Ok(());
        }
        let socket = Socket::open(&lifecycle.socket).with_context(|| lifecycle.socket.display().to_string())?;
        self.socket = Some(socket);
        Ok(())
    }

    /// Reads the file again. With a mistake in it, nothing changes.
    pub(super) fn reload(&mut self, now_s: f64) {
        let Some(file) = self.file.clone() else {
            self.sinks.publish(now_s, &Event::Note("there is no file to read again"));
            return;
        };
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            let _ = sd_notify::notify(&[NotifyState::Reloading, now]);
        }
        let loaded = Config::load(&file, &self.kernel).and_then(|config| Ok((config.rules(&self.kernel)?, config)));
        let result = loaded.map_err(|error| format!("nothing was changed: {}", failure::words(&error))).and_then(
            |(rules, config)| {
                if config.listen != self.config.listen {
                    self.sinks.publish(now_s, &Event::Note("another listen takes effect at the next start only"));
                }
                self.workloads.set_rules(rules);
                self.sampling.set(config.sampling());
                self.reclaim = CgroupReclaim::new(&self.kernel, config.stop_file.clone(), self.dry_run);
                self.sinks.set_telemetry(now_s, config.telemetry.as_ref());
                self.config = config;
                self.make_groups().and_then(|()| self.listen()).map_err(|error| error.to_string())
            },
        );
        match result {
            Ok(()) => self.sinks.log(now_s, "reloaded", &[("file", file.display().to_string())]),
            Err(text) => self.sinks.publish(now_s, &Event::Error(&text)),
        }
        let _ = sd_notify::notify(&[NotifyState::Ready]);
    }
}
