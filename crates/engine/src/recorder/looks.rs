//! The monitor's part of a tick: taking it, reading it, and holding its price.

use lowtide_kernel::monitor::Target;
use lowtide_kernel::monitor::mglru::Round;
use lowtide_kernel::sys;
use lowtide_model::cohort::Picture;
use lowtide_model::usage::Usage;
use lowtide_policy::governor::{Observation, Part};

use super::slow::Slow;
use super::{GOVERN_S, Recorder};
use crate::monitors::{self, Monitor};

/// Slow work is done again after so long, seconds, if nothing else calls for it.
const COHORT_EVERY_S: f64 = 5.0;
const MAP_EVERY_S: f64 = 15.0;
const CACHE_EVERY_S: f64 = 15.0;

impl Recorder {
    /// Takes the monitor at the first tick at which there is a target, then reads it at every tick.
    pub(super) fn monitor_tick(&mut self, now_s: f64, usage: &mut Usage) {
        if !self.monitor_taken {
            // Nothing can be said of less than a second; what ends before that is spared the price.
            if now_s < 0.25 {
                return;
            }
            self.take_monitor();
        }
        let size: f64 = self.target.totals.iter().sum();
        let result = match self.monitor {
            Monitor::Damon(_) => self.damon_tick(now_s, size, usage),
            Monitor::Mglru(_) | Monitor::Smaps(_) => self.round_tick(now_s, size, usage),
            Monitor::None => Ok(()),
        };
        if let Err(error) = result {
            self.note(format!("the {} monitor stopped at {now_s:.1} s: {error}", self.monitor.name()));
            self.drain(true);
            self.monitor = Monitor::None;
        }
    }

    fn take_monitor(&mut self) {
        self.monitor_taken = true;
        let rhythm = monitors::rhythm(&self.governor.plan(), &self.options);
        match monitors::choose(&self.kernel, &self.journal, &self.target, &rhythm, self.epoch_ns, &self.options) {
            Ok(choice) => {
                self.monitor = choice.monitor;
                self.meta.monitor.refused = choice.refused;
            }
            // A monitor that was asked for by name was tried before the program started; it can only have gone since.
            Err(failure) => self.note(failure.message),
        }
        match &self.monitor {
            Monitor::Damon(damon) if !damon.sees_cache() => self.note(
                "page cache used by read and write is in no working set or idle age: with the multi-generational LRU \
                 on (/sys/kernel/mm/lru_gen/enabled), or without /proc/kpagecgroup, DAMON does not see its use",
            ),
            Monitor::Damon(_) => {}
            Monitor::Mglru(_) => self.note(
                "page cache used by read and write counts as idle: generations tell the use of mapped pages alone",
            ),
            _ => {}
        }
        if !self.options.windows_s.is_empty() && !matches!(self.monitor, Monitor::Mglru(_)) {
            self.note(format!("--windows makes no difference: the monitor is {}", self.monitor.name()));
        }
        if !matches!(self.monitor, Monitor::Damon(_)) {
            self.governor.without_rhythm();
        }
        self.begin_acting();
        self.name_monitor();
        let _ = self.writer.meta(&self.meta);
        // What follows is the same few functions again and again, for hours.
        sys::forget_code();
    }

    fn name_monitor(&mut self) {
        let plan = self.governor.plan();
        let damon = matches!(self.monitor, Monitor::Damon(_));
        self.meta.monitor.backend = self.monitor.name().to_owned();
        self.meta.monitor.sampling_s = if damon { plan.cohort_sampling_s } else { 0.0 };
        self.meta.monitor.aggregation_s = if damon { plan.map_aggregation_s() } else { 0.0 };
    }

    fn damon_tick(&mut self, now_s: f64, size: f64, usage: &mut Usage) -> anyhow::Result<()> {
        let (looked, background_s) = self.damon(|damon, _| Ok((damon.poll()?, damon.take_background_s())))?;
        self.slow_spent_s += background_s;
        if self.cohort.is_due(now_s, COHORT_EVERY_S, size) && self.allows(&self.cohort, now_s) {
            let search = self.cache.is_due(now_s, CACHE_EVERY_S, 0.0) && self.allows_later(&self.cache, now_s);
            let slow: fn(&mut Self) -> &mut Slow = if search { |r| &mut r.cache } else { |r| &mut r.cohort };
            self.pay(slow, now_s, size, |recorder| {
                recorder.damon(|damon, target| damon.refresh_cohort(target, now_s, search))
            })?;
            self.cohort.done_s = Some(now_s);
            self.cohort.size = size;
        }
        // The map comes second: a short program may end before it has anything to say.
        if matches!(&self.monitor, Monitor::Damon(damon) if damon.map_is_lost()) {
            self.map.size = 0.0;
        }
        if now_s > 0.9 && self.map.is_due(now_s, MAP_EVERY_S, size) && self.allows_later(&self.map, now_s) {
            self.pay(
                |r| &mut r.map,
                now_s,
                size,
                |recorder| recorder.damon(|damon, target| damon.refresh_map(target)),
            )?;
        }
        if let Monitor::Damon(damon) = &mut self.monitor {
            let tell = damon.wants_to_tell();
            self.told_cost_s = tell.unwrap_or(self.told_cost_s);
            if tell.is_some_and(|cost_s| self.governor.may_spend(now_s, self.slow_spent_s, cost_s)) {
                damon.tell(now_s);
            }
            usage.watched_bytes = Some(damon.watched_bytes());
            usage.regions = Some(damon.regions());
            if let (true, Some(picture), Some(look_s)) = (looked, damon.picture(&self.target), damon.last_look_s()) {
                self.picture(look_s, &picture, usage);
            }
        }
        if now_s - self.governed_s >= GOVERN_S {
            self.govern(now_s);
        }
        Ok(())
    }

    fn damon<T>(
        &mut self,
        work: impl FnOnce(&mut lowtide_kernel::monitor::damon::DamonMonitor, &Target) -> lowtide_kernel::root::Result<T>,
    ) -> anyhow::Result<T> {
        match &mut self.monitor {
            Monitor::Damon(damon) => Ok(work(damon, &self.target)?),
            _ => anyhow::bail!("DAMON is not the monitor"),
        }
    }

    /// Monitors that work in rounds: now and then a step, each of which costs a walk over the target.
    fn round_tick(&mut self, now_s: f64, size: f64, usage: &mut Usage) -> anyhow::Result<()> {
        let due = match &mut self.monitor {
            Monitor::Mglru(mglru) => mglru.is_due(now_s),
            Monitor::Smaps(smaps) => {
                smaps.follow(now_s, &self.target);
                smaps.is_due(now_s)
            }
            Monitor::Damon(_) | Monitor::None => false,
        };
        if !due || !self.allows(&self.cohort, now_s) {
            return Ok(());
        }
        let step = |recorder: &mut Self| match &mut recorder.monitor {
            Monitor::Mglru(mglru) => mglru.step(now_s),
            Monitor::Smaps(smaps) => {
                let round = |picture| Round { picture, cgroups: Vec::new() };
                smaps.step(now_s, &recorder.target).map(|picture| picture.map(round))
            }
            Monitor::Damon(_) | Monitor::None => Ok(None),
        };
        if let Some(round) = self.pay(|r| &mut r.cohort, now_s, size, step)? {
            self.picture(now_s, &round.picture, usage);
            if let Some(served) = &self.served {
                served.with(|figures| figures.take_cgroups(&round.cgroups));
            }
            self.writer.cgroups(now_s, round.cgroups);
        }
        Ok(())
    }

    fn picture(&mut self, t_s: f64, picture: &Picture, usage: &mut Usage) {
        #[expect(clippy::cast_precision_loss, reason = "thousands")]
        let pages = picture.pages as f64;
        usage.cohort_pages = Some(pages);
        usage.set_working_sets(&picture.working_set);
        if !picture.is_partial {
            self.writer.ages(picture.ages_read_s.unwrap_or(t_s), &picture.ages);
        }
        if let Some(served) = self.served.as_ref().filter(|_| !picture.ages.is_empty()) {
            served.with(|figures| figures.take_ages(&picture.ages));
        }
    }

    /// Holds the price: measures what each part cost since the last time and adapts size and rhythm.
    fn govern(&mut self, now_s: f64) {
        let Monitor::Damon(damon) = &mut self.monitor else { return };
        let cost = damon.cost();
        let (cohort_looks, map_looks) = damon.looks_per_s();
        let period = now_s - self.governed_s;
        // Where schemes act by the map, its kernel thread does their work, too, which must not count as looking: a look at a
        // region is as dear as one at a page.
        let acts = self.options.plan.as_ref().is_some_and(|plan| plan.map_on().is_some());
        let look_s = if cohort_looks > 0.0 { cost.cohort_s / (cohort_looks * period) } else { 0.0 };
        let map_s = if acts { cost.map_s.min(map_looks * period * look_s) } else { cost.map_s };
        self.kdamond_s += cost.cohort_s + map_s - cost.own_s;
        self.kernel_acted_s += cost.map_s - map_s;
        let seen = Observation {
            elapsed_s: now_s,
            spent_s: sys::own_cpu_s() - self.cpu_at_start_s + self.kdamond_s,
            cohort: Part { looks_per_s: cohort_looks, cpu_per_s: cost.cohort_s / period },
            map: Part { looks_per_s: map_looks, cpu_per_s: map_s / period },
        };
        self.governed_s = now_s;
        if let Some(plan) = self.governor.adapt(&seen) {
            damon.set_rhythm(&monitors::rhythm(&plan, &self.options));
            self.cohort.size = 0.0;
            self.map.size = 0.0;
            self.name_monitor();
        }
    }
}
