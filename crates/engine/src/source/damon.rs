//! DAMON: the cohort, a sample of single pages, and the map, adaptive regions.

use lowtide_kernel::damon::{self, Operations};
use lowtide_kernel::monitor::Target;
use lowtide_kernel::monitor::damon::{DamonMonitor, RecordStart, Rhythm};
use lowtide_kernel::root::{Error, Kernel, Result};
use lowtide_kernel::{trace, undo};
use lowtide_model::capability::Capability;
use lowtide_model::meta::Refusal;
use lowtide_model::scheme::Scheme;
use lowtide_policy::governor::{PartCost, Plan};
use lowtide_record::RegionRow;

use super::{Frame, Map, Opening, Source, SourceEntry, SourceSettings, missing};
use crate::price::{Price, Work};

/// Walks over the target are due after so many seconds, if nothing else calls for one: for the cohort, for the map, and over
/// the machine's frames for page cache.
const COHORT_EVERY_S: f64 = 5.0;
const MAP_EVERY_S: f64 = 15.0;
const CACHE_EVERY_S: f64 = 15.0;
/// Sizes and intervals are adapted to their price so often, seconds.
const ADAPT_EVERY_S: f64 = 5.0;
/// No map before, seconds: a short program may end before a map has anything to report.
const MAP_FROM_S: f64 = 0.9;
/// The same while the target grows: a map of what is there so far would be made again, and the sample needs the advance.
const MAP_OF_GROWTH_FROM_S: f64 = 5.0;

/// The most precise source.
pub const ENTRY: SourceEntry = SourceEntry {
    name: "damon",
    is_automatic: true,
    needs: &["damon-sysfs", "damon-paddr", "damon-tracepoint", "pagemap-frames", "kpageflags"],
    has_addresses: true,
    reports: "which pages of programs and of their page cache are used, with a 95 % interval, and which addresses are hot",
    omits: "page cache used by read and write while the multi-generational LRU is on",
    backend,
    open: |opening| {
        let rhythm = rhythm(&opening.price.plan(), opening.settings);
        let start = RecordStart { epoch_ns: opening.epoch_ns, attached: opening.settings.attached };
        let monitor = DamonMonitor::take(opening.kernel, opening.journal, &rhythm, start)?;
        Ok(Box::new(DamonSource::new(monitor, opening)))
    },
    check,
    why_not,
};

/// The cohort is on frames either way; without vaddr the map is too.
fn backend(capabilities: &[Capability]) -> (&'static str, Option<Refusal>) {
    match missing(capabilities, "damon-vaddr") {
        Some(why) => ("damon-paddr", Some(Refusal { backend: "damon-vaddr".to_owned(), why })),
        None => ("damon-vaddr", None),
    }
}

fn check(kernel: &Kernel) -> Result<()> {
    damon::probe(kernel)?;
    trace::probe(kernel)?;
    match damon::running(kernel)?.first() {
        Some(_) => Err(Error::new("take", "DAMON", std::io::Error::from(rustix::io::Errno::BUSY))),
        None => Ok(()),
    }
}

/// Why DAMON could not be used, and which program holds it.
fn why_not(kernel: &Kernel, error: &Error) -> String {
    if error.is_permission() {
        let root = rustix::process::geteuid().is_root();
        return if root { error.to_string() } else { format!("{error} (page frames and DAMON need root)") };
    }
    if !error.is_busy() {
        if error.is_gone() && damon::probe(kernel).is_err() {
            return "this kernel has no DAMON in sysfs (CONFIG_DAMON_SYSFS)".to_owned();
        }
        return error.to_string();
    }
    if let Some((pid, command)) = undo::damon_holder(&undo::folder()) {
        return format!("DAMON is held by another lowtide, pid {pid} ({command})");
    }
    // Before the modules: `damon_stat` may be on as well, and is no obstacle.
    if let Some(pid) = damon::running(kernel).unwrap_or_default().first() {
        return format!("another tool is using DAMON (kdamond {pid}); end it (`damo stop`, or echo off to its state)");
    }
    match damon::exclusive_module(kernel) {
        Some(module) => {
            format!("DAMON is held by the kernel module {module}; echo N > {module}/parameters/enabled frees it")
        }
        None => error.to_string(),
    }
}

/// A plan as the kernel crate wants it.
pub(super) fn rhythm(plan: &Plan, settings: &SourceSettings) -> Rhythm {
    Rhythm {
        cohort_pages: plan.cohort_pages,
        cohort_sampling_s: plan.cohort_sampling_s,
        map_regions: plan.map_regions,
        map_sampling_s: plan.map_sampling_s,
        map_aggregation_s: plan.map_aggregation_s(),
        map_goal: settings.map_goal,
        map_at_once: settings.needs_addresses,
        map_on: match settings.map {
            // Frames are no addresses to advise on: memory that lies in many pieces would be left out.
            Map::Auto => settings.map_for_schemes.or(settings.needs_addresses.then_some(Operations::Vaddr)),
            Map::Vaddr => Some(Operations::Vaddr),
            Map::Paddr => Some(Operations::Paddr),
        },
    }
}

/// Cohort and map of one target.
#[derive(Debug)]
pub(super) struct DamonSource {
    monitor: DamonMonitor,
    settings: SourceSettings,
    plan: Plan,
    cohort: Work,
    cache: Work,
    map: Work,
    /// CPU seconds of the last commit to DAMON.
    commit_s: f64,
    adapted_s: f64,
    /// Schemes act by the map: its kernel thread does their work, too.
    acts: bool,
    schemes_cpu_s: f64,
}

impl DamonSource {
    pub(super) fn new(monitor: DamonMonitor, opening: &Opening<'_>) -> Self {
        Self {
            monitor,
            settings: opening.settings.clone(),
            plan: opening.price.plan(),
            cohort: Work::default(),
            cache: Work::default(),
            map: Work::default(),
            commit_s: 0.0,
            adapted_s: 0.0,
            acts: opening.settings.map_for_schemes.is_some(),
            schemes_cpu_s: 0.0,
        }
    }

    /// Walks over the target that are due.
    fn walk(&mut self, now_s: f64, target: &Target, price: &mut Price) -> Result<()> {
        let size: f64 = target.totals.iter().sum();
        let grows = self.cohort.has_grown(size);
        // Pages that wait for their commit are found again just before it, rather than many times until it is paid.
        let pending_s = self.monitor.pending_cost_s().unwrap_or(0.0);
        let may_walk = price.has(now_s, self.cohort.cost_s + pending_s);
        if self.cohort.is_due(now_s, COHORT_EVERY_S, size) && may_walk {
            let search = self.cache.is_due(now_s, CACHE_EVERY_S, 0.0) && price.allows_later(&self.cache, now_s);
            let work = if search { &mut self.cache } else { &mut self.cohort };
            price.pay(work, (now_s, size), || self.monitor.refresh_cohort(target, now_s, search))?;
            // Until there was a walk without a search, one costs as much.
            let cost_s = if self.cohort.cost_s > 0.0 { self.cohort.cost_s } else { self.cache.cost_s };
            self.cohort = Work { done_s: Some(now_s), size, cost_s };
        }
        if self.monitor.map_needs_refresh() {
            self.map.renew();
        }
        let acts = self.acts || self.settings.needs_addresses;
        let from_s = if grows && !acts { MAP_OF_GROWTH_FROM_S } else { MAP_FROM_S };
        let due = now_s > from_s && self.map.is_due(now_s, MAP_EVERY_S, size);
        // A map of frames is made from all of the target's page tables: not from the advance, which the sample needs.
        let waits = self.monitor.backend() == "damon-paddr" && !self.acts && price.owes(now_s);
        if due && !waits && price.allows_later(&self.map, now_s) {
            price.pay(&mut self.map, (now_s, size), || self.monitor.refresh_map(target))?;
        }
        Ok(())
    }

    /// Counts what the kernel's threads cost since the last time, and adapts sizes and intervals.
    fn adapt(&mut self, now_s: f64, price: &mut Price) {
        let cost = self.monitor.cost();
        let (cohort_looks, map_looks) = self.monitor.checks_per_s();
        let period_s = now_s - self.adapted_s;
        // Schemes must not count as sampling: a sample of a region costs as much as one of a page.
        let sample_s = if cohort_looks > 0.0 { cost.cohort_s / (cohort_looks * period_s) } else { 0.0 };
        let map_s = if self.acts { cost.map_s.min(map_looks * period_s * sample_s) } else { cost.map_s };
        price.kernel_s += cost.cohort_s + map_s - cost.own_s;
        self.schemes_cpu_s += cost.map_s - map_s;
        self.adapted_s = now_s;
        let part = |samples_per_s, cpu_s: f64| PartCost { samples_per_s, cpu_per_s: cpu_s / period_s };
        if let Some(plan) = price.adapt(now_s, part(cohort_looks, cost.cohort_s), part(map_looks, map_s)) {
            self.plan = plan;
            self.monitor.set_rhythm(&rhythm(&plan, &self.settings));
            self.cohort.renew();
            self.map.renew();
        }
    }

    fn regions(&mut self) -> Vec<RegionRow> {
        let mut rows = Vec::new();
        for snapshot in std::mem::take(&mut self.monitor.snapshots) {
            let (t_s, pid) = (snapshot.t_s, snapshot.pid);
            let row = |region| RegionRow::new(t_s, pid, region, self.monitor.name_of(pid, region.start));
            rows.extend(snapshot.regions.iter().map(row));
        }
        rows
    }
}

impl Source for DamonSource {
    fn backend(&self) -> &'static str {
        self.monitor.backend()
    }

    fn next_due_s(&self) -> f64 {
        self.monitor.last_sample_s.map_or(f64::NEG_INFINITY, |last_s| last_s + self.plan.cohort_sampling_s)
    }

    fn fresh_near_s(&self, tick_s: f64) -> f64 {
        let sampling_s = self.plan.cohort_sampling_s;
        let Some(last_s) = self.monitor.last_sample_s else { return tick_s };
        let samples = ((tick_s - 0.05 - last_s) / sampling_s).round().max(1.0);
        // A kdamond sleeps a little longer than its interval.
        let aligned_s = last_s + samples * sampling_s + 0.04;
        if (aligned_s - tick_s).abs() < 0.6 * sampling_s { aligned_s } else { tick_s }
    }

    fn read(&mut self, now_s: f64, target: &Target, price: &mut Price) -> Result<Frame> {
        let sampled = self.monitor.poll()?;
        price.charge(std::mem::take(&mut self.monitor.background_s));
        self.walk(now_s, target, price)?;
        let commit = self.monitor.pending_cost_s();
        self.commit_s = commit.unwrap_or(self.commit_s);
        // Schemes wait for the map: setting it up is part of the work at the start, and what it costs is repaid later.
        let is_start = self.acts && !self.monitor.has_map();
        if commit.is_some_and(|cost_s| is_start || price.has(now_s, cost_s)) {
            self.monitor.configure(now_s);
        }
        price.reserve_s = self.cohort.cost_s + self.commit_s;
        let at_s = self.monitor.last_sample_s.filter(|_| sampled);
        if at_s.is_none() {
            self.monitor.note_size(target, now_s);
        }
        let picture = at_s.and_then(|at_s| Some((at_s, self.monitor.picture(target)?)));
        if self.acts {
            self.monitor.request_stats();
        }
        let frame = Frame {
            picture,
            regions: self.regions(),
            episodes: self.monitor.take_episodes(false),
            tallies: self.monitor.scheme_stats.clone(),
            watched_bytes: Some(self.monitor.watched_bytes()),
            region_count: Some(self.monitor.region_count),
            ..Frame::default()
        };
        if now_s - self.adapted_s >= ADAPT_EVERY_S {
            self.adapt(now_s, price);
        }
        Ok(frame)
    }

    fn cut(&mut self) -> Frame {
        Frame { episodes: self.monitor.take_episodes(true), regions: self.regions(), ..Frame::default() }
    }

    fn finish(&mut self, price: &mut Price) -> Frame {
        // What is in the trace buffer yet; one that cannot be read any more leaves what was read before.
        let _ = self.monitor.poll();
        let cost = self.monitor.cost();
        let (sampled_s, acted_s) = if self.acts { (0.0, cost.map_s) } else { (cost.map_s, 0.0) };
        price.kernel_s += cost.cohort_s + sampled_s - cost.own_s;
        self.schemes_cpu_s += acted_s;
        let tallies = self.monitor.scheme_stats.clone();
        Frame { episodes: self.monitor.finish(), regions: self.regions(), tallies, ..Frame::default() }
    }

    fn carry_out(&mut self, schemes: Vec<Scheme>) -> bool {
        self.acts = self.acts || !schemes.is_empty();
        self.monitor.set_schemes(schemes);
        true
    }

    fn read_mappings_after(&mut self, _: f64) -> bool {
        // The map's regions serve.
        true
    }

    fn schemes_cpu_s(&self) -> f64 {
        self.schemes_cpu_s
    }

    fn intervals_s(&self) -> (f64, f64) {
        (self.plan.cohort_sampling_s, self.plan.map_aggregation_s())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.monitor.notes();
        if self.map.done_s.is_some() && !self.monitor.has_map() {
            let text = "no map of addresses: setting it up costs more than --max-overhead allows so far; raise it";
            notes.push(text.to_owned());
        }
        if !self.monitor.samples_cache() {
            let text = "page cache used by read and write is in no working set or idle age: with the multi-generational LRU on \
                (/sys/kernel/mm/lru_gen/enabled), or without /proc/kpagecgroup, DAMON does not sample its use";
            notes.push(text.to_owned());
        }
        notes
    }
}
