//! The cohort: a hash-chosen sample of the target's pages, each a DAMON region of one page, all sampled once a tick.

use std::collections::HashMap;
use std::time::Duration;

use lowtide_model::PAGE;
use lowtide_model::choice::{Choice, level_for};
use lowtide_model::cohort::{Cohort, Found, Picture, Totals, Walk};
use lowtide_model::episode::{Episode, PageKind};
use lowtide_model::units::{float, integer};

use super::Target;
use super::find::Frames;
use crate::cgroup::Cgroup;
use crate::damon::{KdamondSetup, Operations};
use crate::root::Result;
use crate::trace::TraceEvent;

/// Entries of per-frame files read for one search of the page cache, at most: about 20 ms of CPU.
const CACHE_LOOKUPS: u64 = 60_000;

/// Seconds after which a part of the sample is drawn again: long enough for windows of up to 30 s to use all of it.
const TURN_S: f64 = 45.0;

/// Seconds for which DAMON is not configured for changes of less than a twentieth of the cohort.
const SMALL_CHANGE_S: f64 = 20.0;

/// Page cache that no process maps is searched for from this many bytes and this share of the target on.
const CACHE_WORTH_BYTES: f64 = 4_194_304.0;
const CACHE_WORTH_SHARE: f64 = 0.02;

/// One-page regions for these frames, ascending.
pub(super) fn setup(frames: &[u64], sampling_s: f64) -> KdamondSetup {
    let sampling = Duration::from_secs_f64(sampling_s);
    KdamondSetup {
        operations: Operations::Paddr,
        sampling,
        aggregation: sampling,
        update: Duration::from_secs(3600),
        // As many regions as there are: nothing is merged (a merged region would exceed the size limit, which is
        // the mean size) and nothing is split (a page is the smallest region).
        min_regions: frames.len(),
        max_regions: frames.len() * 2 + 16,
        pids: Vec::new(),
        goal: None,
        schemes: Vec::new(),
        ranges: frames.iter().map(|frame| (frame * PAGE, (frame + 1) * PAGE)).collect(),
    }
}

/// How large a cohort is, and how often it is sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CohortSize {
    /// Pages, at most.
    pub pages: f64,
    /// Sampling interval, seconds.
    pub sampling_s: f64,
}

/// The cohort of one target.
#[derive(Debug)]
pub struct CohortMonitor {
    /// The arithmetic.
    pub cohort: Cohort,
    /// Episodes of use and idleness since they were last taken.
    pub episodes: Vec<Episode>,
    pub(super) frames: Frames,
    pub(super) size: CohortSize,
    /// Frames for the next configuration.
    pub(super) next: Option<Vec<u64>>,
    seed: u64,
    choice: Option<Choice>,
    previous_choice: Option<Choice>,
    cache_choice: Option<Choice>,
    refreshed_s: f64,
    /// Until the first refresh: the target was running before, so how long its pages have been idle is not known.
    attached: bool,
    /// Frames that DAMON was configured with last, ascending, and when.
    pub(super) configured: Vec<u64>,
    configured_s: f64,
    /// Of them, those that were not configured before. They do not count until the configuration takes effect.
    new: Vec<u64>,
    new_from_s: f64,
    /// The interval changed: DAMON has to be configured even if the frames are the same.
    stale: bool,
    on: bool,
    /// The target's accounts at the last refresh.
    accounts: Totals,
}

impl CohortMonitor {
    /// `attached`: the target was running before.
    pub(super) fn new(frames: Frames, size: CohortSize, attached: bool, seed: u64) -> Self {
        Self {
            cohort: Cohort::new(size.sampling_s),
            episodes: Vec::new(),
            frames,
            size,
            next: None,
            seed,
            choice: None,
            previous_choice: None,
            cache_choice: None,
            refreshed_s: 0.0,
            attached,
            configured: Vec::new(),
            configured_s: 0.0,
            new: Vec::new(),
            new_from_s: 0.0,
            stale: false,
            on: false,
            accounts: Totals::default(),
        }
    }

    /// Takes effect with the next refresh.
    pub(super) fn resize(&mut self, size: CohortSize) {
        if (self.size.sampling_s - size.sampling_s).abs() > 1e-9 {
            self.cohort.set_tick(size.sampling_s);
            self.stale = true;
        }
        self.size = size;
    }

    /// Access checks per second, for the governor.
    pub(super) fn checks_per_s(&self) -> f64 {
        if self.on { float(self.configured.len()) / self.size.sampling_s } else { 0.0 }
    }

    /// Walks over the target: which chosen pages are there now, and where.
    ///
    /// `search_cache`: also search the entire machine for the target's page cache, which costs more.
    pub fn refresh(&mut self, target: &Target, now_s: f64, search_cache: bool) -> Result<()> {
        let mut found = Vec::new();
        let turn = integer(now_s / TURN_S);
        let pages_each = self.find(target, search_cache, turn, &mut found)?;
        self.date(&mut found, (now_s, self.totals(target)), pages_each);
        // A frame that a second process maps is one region only.
        let mut frames: Vec<u64> = found.iter().map(|page| page.frame).collect();
        let totals = PageKind::ALL.map(|kind| target.exact[kind.index()].then_some(target.totals[kind.index()]));
        let walk = Walk { found: &found, pages_each, totals };
        self.cohort.refresh(now_s, &walk, &mut self.episodes);
        self.accounts = target.totals;
        self.refreshed_s = now_s;
        self.attached = false;
        frames.sort_unstable();
        frames.dedup();
        self.plan(frames, now_s);
        Ok(())
    }

    /// Finds the pages; returns how many pages stand behind one, by kind.
    fn find(&mut self, target: &Target, search: bool, turn: u64, found: &mut Vec<Found>) -> Result<[u64; 3]> {
        let limit = integer(self.size.pages);
        let all: f64 = target.totals.iter().sum();
        let frames = self.frames.ram_frames();
        if target.system {
            let choice = Choice { level: level_for(frames, limit.max(CACHE_LOOKUPS / 16)), seed: self.seed, turn };
            self.frames.all(choice, found)?;
            self.previous_choice = self.choice.replace(choice);
            self.cache_choice = Some(choice);
            return Ok([choice.pages_each(); 3]);
        }
        let mut choice = Choice { level: level_for(integer(all / float(PAGE)), limit), seed: self.seed, turn };
        for pid in &target.pids {
            self.frames.mapped(*pid, choice, found)?;
            // A target may grow while it is walked over, and shared pages are found once for each process.
            while float(found.len()) > 2.0 * self.size.pages {
                choice.level += 1;
                found.retain(|page| choice.holds(page.key.page));
            }
        }
        self.previous_choice = self.choice.replace(choice);
        let cache = target.totals[PageKind::Cache.index()];
        let worth = cache > CACHE_WORTH_BYTES && cache > CACHE_WORTH_SHARE * all;
        let sampled: &[Cgroup] = if worth && self.frames.samples_cache() { &target.cgroups } else { &[] };
        let inodes: Vec<u64> = sampled.iter().flat_map(|cgroup| cgroup.inodes(&self.frames.kernel)).collect();
        let level = choice.level.max(level_for(frames, CACHE_LOOKUPS));
        let cache_choice = Choice { level, seed: self.seed, turn: 0 };
        if !inodes.is_empty() && (search || self.previous_choice.is_none()) {
            self.frames.cache(&inodes, cache_choice, found)?;
            self.cache_choice = Some(cache_choice);
        } else if !inodes.is_empty() {
            for (key, _) in self.cohort.pages().filter(|(_, page)| page.kind == PageKind::Cache) {
                found.extend(self.frames.cache_frame(&inodes, key.page)?);
            }
        }
        let cache_each = self.cache_choice.unwrap_or(cache_choice).pages_each();
        Ok([choice.pages_each(), choice.pages_each(), cache_each])
    }

    /// Says when pages that are new were allocated: since the last refresh, which would have found them, as the target grew,
    /// in the order a hash gives. Not known for a target that was running before.
    fn date(&self, found: &mut [Found], (now_s, totals): (f64, Totals), pages_each: [u64; 3]) {
        if self.attached {
            return;
        }
        let is_new = |page: &Found| {
            let is_found = self.cohort.frame_of(page.key).is_none();
            is_found && page.kind != PageKind::Cache && self.was_chosen(page.key.page)
        };
        // Where the sample became denser, a page that the choice before held stands for as many as then.
        let before = self.previous_choice.map_or(0, |choice| choice.pages_each());
        for kind in [PageKind::Anon, PageKind::File] {
            let arrivals = self.cohort.arrivals(kind, now_s, totals);
            let each = float(pages_each[kind.index()].max(before) * PAGE);
            let of_kind = |page: &&mut Found| page.kind == kind && is_new(page);
            let new: Vec<&mut Found> = found.iter_mut().filter(of_kind).collect();
            let bytes = each * new.iter().map(|page| page.share).sum::<f64>();
            for page in new {
                let spread = float(page.key.page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) / 65536.0;
                page.allocated_s = Some(arrivals.at_s(spread, bytes));
            }
        }
    }

    /// Whether the choice at the refresh before held that page. At the first refresh of a program that lowtide started,
    /// everything is new.
    fn was_chosen(&self, page: u64) -> bool {
        self.previous_choice.is_none_or(|choice| choice.holds(page))
    }

    /// Plans to configure DAMON with these frames, if they differ enough from those it has.
    fn plan(&mut self, frames: Vec<u64>, now_s: f64) {
        let new = frames.iter().filter(|frame| !self.is_configured(**frame)).count();
        let gone = (self.configured.len() + new).saturating_sub(frames.len());
        let changed = new.max(gone);
        let small = changed * 20 < frames.len() && now_s - self.configured_s < SMALL_CHANGE_S;
        let needed = self.stale || (changed > 0 && !small);
        self.next = (needed && !frames.is_empty()).then_some(frames);
    }

    fn is_configured(&self, frame: u64) -> bool {
        self.configured.binary_search(&frame).is_ok()
    }

    /// The next configuration, if there is one.
    pub(super) fn take_setup(&mut self, now_s: f64) -> Option<KdamondSetup> {
        self.take_frames(now_s).then(|| setup(&self.configured, self.size.sampling_s))
    }

    /// Adopts the frames that were found last. True if there were new ones to adopt.
    pub(super) fn take_frames(&mut self, now_s: f64) -> bool {
        let Some(frames) = self.next.take() else { return false };
        self.new = frames.iter().copied().filter(|frame| !self.is_configured(*frame)).collect();
        (self.new_from_s, self.configured_s, self.stale) = (f64::INFINITY, now_s, false);
        self.configured = frames;
        self.on = true;
        true
    }

    /// DAMON has taken the configuration.
    pub(super) fn accepted(&mut self, started: bool, now_s: f64) {
        // The snapshot in which a commit happened still counts the new regions as not accessed.
        self.new_from_s = if started { now_s } else { now_s + 0.5 * self.size.sampling_s };
    }

    /// How many of DAMON's regions are not the cohort's. While it is being configured, the old ones are still right.
    pub(super) fn foreign(&self, t_s: f64, events: &[TraceEvent]) -> usize {
        let is_foreign = |e: &&TraceEvent| e.end - e.start != PAGE || !self.is_configured(e.start / PAGE);
        if t_s < self.new_from_s { 0 } else { events.iter().filter(is_foreign).count() }
    }

    /// One snapshot of the cohort's kdamond.
    pub fn snapshot(&mut self, t_s: f64, events: &[TraceEvent]) {
        let accessed: HashMap<u64, bool> = events.iter().map(|e| (e.start / PAGE, e.nr_accesses > 0)).collect();
        let fresh = t_s < self.new_from_s;
        let new = std::mem::take(&mut self.new);
        let sampled = |frame: u64| {
            let skip = fresh && new.binary_search(&frame).is_ok();
            if skip { None } else { accessed.get(&frame).copied() }
        };
        self.cohort.tick(t_s, sampled);
        self.new = if fresh { new } else { Vec::new() };
    }

    /// Notes how large the target is between two samples.
    pub(super) fn note(&mut self, now_s: f64, target: &Target) {
        self.cohort.note_totals(now_s, self.totals(target));
    }

    /// The picture at `t_s`, given the target's accounts now.
    pub fn picture(&mut self, t_s: f64, target: &Target) -> Picture {
        let totals = self.totals(target);
        self.cohort.note_totals(t_s, totals);
        self.cohort.picture(t_s, totals)
    }

    /// Sizes by kind. Where the target's accounts are not exact, only their change is used.
    fn totals(&self, target: &Target) -> Totals {
        let before = self.cohort.totals_at_refresh();
        let samples_cache = self.frames.samples_cache();
        PageKind::ALL.map(|kind| {
            let i = kind.index();
            // What cannot be sampled is neither used nor cold.
            if kind == PageKind::Cache && !samples_cache {
                return 0.0;
            }
            let grown = before[i] + target.totals[i] - self.accounts[i];
            if target.exact[i] { target.totals[i] } else { grown.max(0.0) }
        })
    }
}
