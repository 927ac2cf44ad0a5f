//! A cohort on the simulated machine: the same arithmetic as on a real one, fed with simulated pages.

use lowtide_model::PAGE_BYTES;
use lowtide_model::choice::{Choice, level_for};
use lowtide_model::cohort::{AgeRow, Cohort, Found, Totals, Walk};
use lowtide_model::episode::{Episode, PageKey, PageKind};
use lowtide_model::kind::Kind;
use lowtide_model::units::integer;

use super::load::Load;

/// Seconds after which a quarter of the sample is drawn again, as the monitor of a real machine does.
const TURN_S: f64 = 45.0;
/// Seconds between two readings for pages that were allocated and freed.
const REFRESH_S: f64 = 5.0;

/// Watches one workload.
#[derive(Debug)]
pub struct Watch {
    cohort: Cohort,
    limit: u64,
    seed: u64,
    refreshed_s: f64,
    checked_s: f64,
    /// Groups that were in memory when the sample was last drawn: memory in other groups is new.
    there: Vec<bool>,
    /// Episodes of the sampled pages.
    pub episodes: Vec<Episode>,
    /// Histograms of every sample.
    pub ages: Vec<AgeRow>,
}

impl Watch {
    /// A cohort of at most so many pages, sampled once in `tick_s` seconds.
    pub fn new(limit: u64, seed: u64, tick_s: f64) -> Self {
        Self {
            cohort: Cohort::new(tick_s),
            limit,
            seed,
            refreshed_s: f64::NEG_INFINITY,
            checked_s: 0.0,
            there: Vec::new(),
            episodes: Vec::new(),
            ages: Vec::new(),
        }
    }

    /// Samples the workload after a step.
    pub fn sample(&mut self, load: &Load, now_s: f64) {
        let mut totals = Totals::default();
        for (_, part, group) in load.each() {
            totals[kind(part.kind).index()] += f64::from(group.resident) * PAGE_BYTES;
        }
        if now_s - self.refreshed_s >= REFRESH_S {
            self.refresh(load, now_s, totals);
        }
        self.cohort.note_totals(now_s, totals);
        let checked_s = self.checked_s;
        let touched = |frame: u64| {
            let group = load.groups.get(usize::try_from(frame).ok()?)?;
            (group.resident > 0).then_some(group.last_s > checked_s)
        };
        self.cohort.tick(now_s, touched);
        self.checked_s = now_s;
        let bins = self.cohort.picture(now_s, totals).ages;
        self.ages.extend(bins.into_iter().map(|bin| AgeRow { t_s: now_s, bin }));
    }

    /// Draws the sample among the pages that are in memory. A page is identified by its place; whether it was used is read from its group.
    fn refresh(&mut self, load: &Load, now_s: f64, totals: Totals) {
        let pages: u64 = load.groups.iter().map(|group| u64::from(group.resident)).sum();
        let choice = Choice { level: level_for(pages, self.limit), seed: self.seed, turn: integer(now_s / TURN_S) };
        let mut found = Vec::new();
        let mut first = 0u64;
        for ((at, (_, part, group)), frame) in load.each().enumerate().zip(0..) {
            let end = first + u64::from(part.group_pages);
            if group.resident > 0 {
                let is_new = !self.there.get(at).copied().unwrap_or(false);
                found.extend(choice.pages_in(first, end).map(|page| Found {
                    key: PageKey { space: 1, page },
                    kind: kind(part.kind),
                    frame,
                    node: 0,
                    share: 1.0,
                    allocated_s: is_new.then_some(group.last_s),
                }));
            }
            first = end;
        }
        let walk = Walk { found: &found, pages_each: [choice.pages_each(); 3], totals: totals.map(Some) };
        self.cohort.refresh(now_s, &walk, &mut self.episodes);
        self.cohort.cut(&mut self.episodes);
        self.there = load.groups.iter().map(|group| group.resident > 0).collect();
        self.refreshed_s = now_s;
    }

    /// Ends watching.
    pub fn finish(&mut self) {
        self.cohort.finish(&mut self.episodes);
    }
}

fn kind(kind: Kind) -> PageKind {
    match kind {
        Kind::Anon => PageKind::Anon,
        Kind::File => PageKind::File,
    }
}
