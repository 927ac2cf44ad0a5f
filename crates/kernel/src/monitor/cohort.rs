//! The cohort: a hash-chosen sample of the target's pages, each a one-page DAMON region, all looked at once a tick.

use std::collections::HashMap;
use std::time::Duration;

use lowtide_model::PAGE;
use lowtide_model::choice::{Choice, level_for};
use lowtide_model::cohort::{Cohort, Found, Picture, Totals};
use lowtide_model::episode::{Episode, PageKind};

use super::Target;
use super::find::Frames;
use crate::cgroup::Cgroup;
use crate::damon::{KdamondSetup, Operations};
use crate::root::{Kernel, Result};
use crate::trace::TraceEvent;

/// Entries of per-frame files read for one search of the page cache, at most: about 20 ms of CPU.
const CACHE_LOOKUPS: u64 = 60_000;

/// Seconds after which a part of the sample is drawn anew: long enough for the windows of up to 30 s to use all of it.
const TURN_S: f64 = 45.0;

/// Seconds for which DAMON is not told of changes that are less than a twentieth of the cohort.
const LITTLE_S: f64 = 20.0;

/// Page cache that no process maps is searched for only when there is so much of it (bytes, and share of the target).
const CACHE_WORTH: (f64, f64) = (4_194_304.0, 0.02);

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

/// The cohort of one target.
#[derive(Debug)]
pub struct CohortMonitor {
    /// The arithmetic.
    pub cohort: Cohort,
    /// Stretches of use and idleness seen since they were last taken.
    pub episodes: Vec<Episode>,
    frames: Frames,
    seed: u64,
    choice: Option<Choice>,
    /// The choice at the refresh before.
    before: Option<Choice>,
    cache_choice: Option<Choice>,
    limit: f64,
    sampling_s: f64,
    refreshed_s: f64,
    attached: bool,
    /// Frames that DAMON was told, ascending.
    told: Vec<u64>,
    /// Frames told in the last commit that were not told before; they are not looked at until it takes effect.
    new: Vec<u64>,
    new_from_s: f64,
    told_s: f64,
    /// Frames that DAMON shall be told next.
    wish: Option<Vec<u64>>,
    /// Rhythm changed: DAMON must be told even if the frames are the same.
    stale: bool,
    on: bool,
    /// The target's accounts at the last refresh.
    accounts: Totals,
}

impl CohortMonitor {
    /// A cohort of at most `limit` pages. `attached`: the target was running before, so how long its pages have been
    /// idle is not known at first.
    pub fn new(frames: Frames, limit: f64, sampling_s: f64, attached: bool, seed: u64) -> Self {
        Self {
            cohort: Cohort::new(sampling_s),
            episodes: Vec::new(),
            frames,
            seed,
            choice: None,
            before: None,
            cache_choice: None,
            limit,
            sampling_s,
            refreshed_s: 0.0,
            attached,
            told: Vec::new(),
            new: Vec::new(),
            new_from_s: 0.0,
            told_s: 0.0,
            wish: None,
            stale: false,
            on: false,
            accounts: Totals::default(),
        }
    }

    /// Changes size and rhythm; takes effect with the next refresh.
    pub fn resize(&mut self, limit: f64, sampling_s: f64) {
        self.limit = limit;
        if (self.sampling_s - sampling_s).abs() > 1e-9 {
            self.sampling_s = sampling_s;
            self.cohort.set_tick(sampling_s);
            self.stale = true;
        }
    }

    /// Seconds between two looks.
    pub fn sampling_s(&self) -> f64 {
        self.sampling_s
    }

    /// Looks per second, for the governor.
    pub fn looks_per_s(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "thousands")]
        let told = self.told.len() as f64;
        if self.on { told / self.sampling_s } else { 0.0 }
    }

    /// Walks over the target: which chosen pages are there now, and where.
    ///
    /// `search_cache`: also search the whole machine for the target's page cache, which costs more.
    pub fn refresh(&mut self, kernel: &Kernel, target: &Target, now_s: f64, search_cache: bool) -> Result<()> {
        let mut found = Vec::new();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the length of a record")]
        let turn = (now_s / TURN_S) as u64;
        let pages_each = self.find(kernel, target, search_cache, turn, &mut found)?;
        self.date(&mut found, now_s);
        // A frame that a second process maps is one region only.
        let mut frames: Vec<u64> = found.iter().map(|page| page.frame).collect();
        let totals = PageKind::ALL.map(|kind| target.exact[kind.index()].then_some(target.totals[kind.index()]));
        self.cohort.refresh(now_s, &found, pages_each, totals, &mut self.episodes);
        self.accounts = target.totals;
        self.refreshed_s = now_s;
        self.attached = false;
        frames.sort_unstable();
        frames.dedup();
        self.wish_for(frames, now_s);
        Ok(())
    }

    /// Finds the pages; returns how many pages stand behind one, by kind.
    fn find(
        &mut self,
        kernel: &Kernel,
        target: &Target,
        search: bool,
        turn: u64,
        found: &mut Vec<Found>,
    ) -> Result<[u64; 3]> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes of memory, never negative")]
        let pages = |bytes: f64| (bytes / PAGE as f64) as u64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand")]
        let limit = self.limit as u64;
        let all: f64 = target.totals.iter().sum();
        let frames = self.frames.ram_frames();
        if target.system {
            let choice = Choice { level: level_for(frames, limit.max(CACHE_LOOKUPS / 16)), seed: self.seed, turn };
            self.frames.all(choice, found)?;
            self.before = self.choice.replace(choice);
            self.cache_choice = Some(choice);
            return Ok([choice.pages_each(); 3]);
        }
        let mut choice = Choice { level: level_for(pages(all), limit), seed: self.seed, turn };
        for pid in &target.pids {
            self.frames.mapped(kernel, *pid, choice, found)?;
            // A target may grow while it is walked over, and shared pages are found once for each process.
            while found.len() as u64 > limit.saturating_mul(2) {
                choice.level += 1;
                found.retain(|page| choice.holds(page.key.page));
            }
        }
        self.before = self.choice.replace(choice);
        let cache = target.totals[PageKind::Cache.index()];
        let worth = cache > CACHE_WORTH.0 && cache > CACHE_WORTH.1 * all;
        let watched: &[Cgroup] = if worth && self.frames.sees_cache() { &target.cgroups } else { &[] };
        let inodes: Vec<u64> = watched.iter().flat_map(|cgroup| cgroup.inodes(kernel)).collect();
        let level = choice.level.max(level_for(frames, CACHE_LOOKUPS));
        let cache_choice = Choice { level, seed: self.seed, turn: 0 };
        if !inodes.is_empty() && (search || self.before.is_none()) {
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

    /// Says when pages that are new were allocated: between the last refresh, which would have found them, and now;
    /// spread evenly, in the order a hash gives. Not known for a target that was running before.
    fn date(&self, found: &mut [Found], now_s: f64) {
        if self.attached {
            return;
        }
        let since = self.refreshed_s;
        for page in found.iter_mut().filter(|page| self.cohort.frame_of(page.key).is_none()) {
            let known = page.kind != PageKind::Cache && self.was_chosen(page.key.page);
            #[expect(clippy::cast_precision_loss, reason = "16 bits")]
            let spread = (page.key.page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as f64 / 65536.0;
            page.allocated_s = known.then_some(since + (now_s - since) * spread);
        }
    }

    /// Whether the choice at the refresh before held that page. At the first refresh of a program that lowtide started,
    /// everything is new.
    fn was_chosen(&self, page: u64) -> bool {
        self.before.is_none_or(|choice| choice.holds(page))
    }

    /// Notes that DAMON shall be told these frames, if they differ enough from those it has.
    fn wish_for(&mut self, frames: Vec<u64>, now_s: f64) {
        let new = frames.iter().filter(|frame| self.told.binary_search(frame).is_err()).count();
        let gone = (self.told.len() + new).saturating_sub(frames.len());
        let changed = new.max(gone);
        let little = changed * 20 < frames.len() && now_s - self.told_s < LITTLE_S;
        let needed = self.stale || (changed > 0 && !little);
        self.wish = (needed && !frames.is_empty()).then_some(frames);
    }

    /// Whether page cache that no process maps is watched.
    pub fn sees_cache(&self) -> bool {
        self.frames.sees_cache()
    }

    /// Whether DAMON should be told something.
    pub fn has_wish(&self) -> bool {
        self.wish.is_some()
    }

    /// What DAMON is to sample next, if that has changed.
    pub fn take_wish(&mut self, now_s: f64) -> Option<KdamondSetup> {
        self.take_frames(now_s).then(|| setup(&self.told, self.sampling_s))
    }

    /// Adopts the frames that were found last. True if there were new ones to adopt.
    pub fn take_frames(&mut self, now_s: f64) -> bool {
        let Some(frames) = self.wish.take() else { return false };
        self.new = frames.iter().copied().filter(|frame| self.told.binary_search(frame).is_err()).collect();
        (self.new_from_s, self.told_s, self.stale) = (f64::INFINITY, now_s, false);
        self.told = frames;
        self.on = true;
        true
    }

    /// The frames that are sampled, ascending.
    #[must_use]
    pub fn frames(&self) -> &[u64] {
        &self.told
    }

    /// DAMON has taken what it was told.
    pub fn was_told(&mut self, start: bool, now_s: f64) {
        // The snapshot in which a commit happened still counts the new regions as not accessed.
        self.new_from_s = if start { now_s } else { now_s + 0.5 * self.sampling_s };
    }

    /// How many of DAMON's regions are not the cohort's. While it is being told, the old ones are still right.
    pub fn foreign(&self, t_s: f64, events: &[TraceEvent]) -> usize {
        let is_foreign =
            |e: &&TraceEvent| e.end - e.start != PAGE || self.told.binary_search(&(e.start / PAGE)).is_err();
        if t_s < self.new_from_s { 0 } else { events.iter().filter(is_foreign).count() }
    }

    /// One snapshot of the cohort's kdamond.
    pub fn snapshot(&mut self, t_s: f64, events: &[TraceEvent]) {
        let seen: HashMap<u64, bool> = events.iter().map(|e| (e.start / PAGE, e.nr_accesses > 0)).collect();
        let fresh = t_s < self.new_from_s;
        let new = std::mem::take(&mut self.new);
        let looked = |frame: u64| {
            let skip = fresh && new.binary_search(&frame).is_ok();
            if skip { None } else { seen.get(&frame).copied() }
        };
        self.cohort.tick(t_s, looked, &mut self.episodes);
        self.new = if fresh { new } else { Vec::new() };
    }

    /// The picture at `t_s`, given the target's accounts now. Where these are not exact, only their change is used.
    pub fn picture(&mut self, t_s: f64, target: &Target) -> Picture {
        let before = self.cohort.totals_at_refresh();
        let sees_cache = self.frames.sees_cache();
        let totals = PageKind::ALL.map(|kind| {
            let i = kind.index();
            // What cannot be watched is neither used nor cold.
            if kind == PageKind::Cache && !sees_cache {
                return 0.0;
            }
            let grown = before[i] + target.totals[i] - self.accounts[i];
            if target.exact[i] { target.totals[i] } else { grown.max(0.0) }
        });
        self.cohort.note_totals(t_s, totals);
        self.cohort.picture(t_s, totals)
    }
}
