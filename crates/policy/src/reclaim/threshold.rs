//! The idle age beyond which memory is evicted, chosen for each target and kind from what would be refaulted.
//!
//! Time is cut into slices. Each shows how much would have been refaulted for every age ([`super::returns`]), and so the
//! youngest age that would have cost no more than is allowed. What was refaulted corrects it. The age in use is a
//! percentile of those of past slices, and no younger than the last one's (Lagar-Cavilla et al., ASPLOS'19).

use std::collections::VecDeque;

use lowtide_model::AGE_EDGES_S;
use lowtide_model::curve::RefaultCosts;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::{float, integer};

use serde::{Deserialize, Serialize};

use super::ChoosesAge;
use super::mean::Mean;
use super::returns::{Returned, Returns, WINDOWS};
use crate::machine::{Observation, WorkloadState};
use crate::saved::{Resume, is_past};

/// How ages are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// Seconds of a slice.
    pub slice_s: f64,
    /// Seconds for which slices are remembered.
    pub history_s: f64,
    /// Share of them that the age must have done for; `None` = it must have done for them on average.
    pub percentile: Option<f64>,
    /// Seconds that are watched first, and not remembered.
    pub warm_up_s: f64,
}

/// An age, by the index of its window; [`NEVER`] = nothing is evicted.
type Place = u8;

const NEVER: Place = 8;
const _: () = assert!(WINDOWS == 8);

/// Ages that would have done in past slices, and the one that is in use. Whether what would have been refaulted was observed on this
/// machine or is read from a recording is all the same to it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Chosen {
    /// What would have done in past slices, and when these ended.
    best: VecDeque<(f64, PerKind<Place>)>,
    /// How often each is among them: a fleet's minutes are many, and each asks for a percentile.
    #[serde(skip)]
    counts: PerKind<[u32; WINDOWS + 1]>,
    /// What would have been refaulted on average, for each age, and when that was last added to.
    #[serde(default)]
    means: PerKind<[Mean; WINDOWS]>,
    #[serde(default)]
    added_s: Option<f64>,
    /// In use.
    age: Option<PerKind<Place>>,
}

impl Resume for Chosen {
    fn resume(&mut self, now_s: f64) -> bool {
        let ages = |ages: &PerKind<Place>| ages.iter().all(|(_, age)| *age <= NEVER);
        let sound = self.best.iter().all(|(at_s, best)| is_past(*at_s, now_s) && ages(best))
            && self.age.as_ref().is_none_or(ages);
        let sound = sound
            && self.means.iter().all(|(_, means)| means.iter().all(Mean::is_sound))
            && self.added_s.is_none_or(|added_s| is_past(added_s, now_s));
        if sound {
            self.count_again();
        }
        sound
    }
}

impl Chosen {
    /// Takes in the result of a slice that ended now.
    pub(crate) fn add(
        &mut self,
        rule: &dyn ChoosesAge,
        returned: &PerKind<Returned>,
        now_s: f64,
        costs: &RefaultCosts,
    ) {
        let terms = rule.terms();
        let lasted_s = self.added_s.replace(now_s).map_or(terms.slice_s, |added_s| now_s - added_s).max(0.0);
        for (kind, returned) in returned.iter() {
            for (mean, back) in self.means[kind].iter_mut().zip(returned.back) {
                back.into_iter().for_each(|back| mean.add(back * lasted_s, lasted_s, 0.5 * terms.history_s));
            }
        }
        let best = PerKind::from_fn(|kind| {
            let returned = &returned[kind];
            let most = rule.allowed(kind, returned.used, costs);
            let does = |back: &Option<f64>| back.is_some_and(|back| back <= most);
            let means = self.means[kind].map(|mean| mean.get());
            let back = if terms.percentile.is_none() { &means } else { &returned.back };
            let best = back.iter().position(does).map_or(NEVER, place);
            // Whatever the histograms say, the age in use did not do.
            let above = self.age.filter(|_| returned.refaulted > most).map_or(0, |age| (age[kind] + 1).min(NEVER));
            best.max(above)
        });
        let Some(percentile) = terms.percentile else {
            self.age = Some(best);
            return;
        };
        // A clock that was set back must not keep what is to come.
        if self.best.back().is_some_and(|(at_s, _)| *at_s > now_s) {
            self.best.retain(|(at_s, _)| *at_s <= now_s);
            self.count_again();
        }
        let old = |(at_s, _): &(f64, _)| now_s - at_s > terms.history_s;
        while let Some((_, gone)) = self.best.front().copied().filter(old) {
            self.best.pop_front();
            gone.iter().for_each(|(kind, place)| self.counts[kind][usize::from(*place)] -= 1);
        }
        self.best.push_back((now_s, best));
        self.count(best);
        let past = self.percentile(percentile);
        self.age = Some(past.zip(best).map(|(past, best)| past.max(best)));
    }

    /// The ages in use, seconds; `None` = nothing of that kind is evicted.
    pub(crate) fn in_use(&self) -> PerKind<Option<f64>> {
        let seconds = |place: Place| AGE_EDGES_S.get(usize::from(place) + 1).map(|edge| f64::from(*edge));
        self.age.map_or(PerKind::default(), |age| age.map(seconds))
    }

    fn count(&mut self, places: PerKind<Place>) {
        places.iter().for_each(|(kind, place)| self.counts[kind][usize::from(*place)] += 1);
    }

    fn count_again(&mut self) {
        self.counts = PerKind::default();
        for at in 0..self.best.len() {
            self.count(self.best[at].1);
        }
    }

    /// The ages that so large a share of those of past slices lie at or below.
    fn percentile(&self, share: f64) -> PerKind<Place> {
        let rank = integer((share * float(self.best.len())).ceil()).max(1);
        self.counts.map(|counts| {
            let mut below = 0u64;
            let reached = |count: &u32| {
                below += u64::from(*count);
                below >= rank
            };
            counts.iter().position(reached).map_or(NEVER, place)
        })
    }
}

fn place(at: usize) -> Place {
    Place::try_from(at).unwrap_or(NEVER)
}

/// What is remembered of one target.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Threshold {
    returns: Returns,
    chosen: Chosen,
}

impl Resume for Threshold {
    fn resume(&mut self, now_s: f64) -> bool {
        self.returns.resume(now_s) && self.chosen.resume(now_s)
    }
}

impl Threshold {
    /// Forgets which ages did in the past: they were of another use.
    pub(super) fn forget(&mut self) {
        self.chosen = Chosen::default();
        self.returns.forget();
    }

    /// Bytes that are new within a window; `None` = the target was not observed for so long.
    pub(super) fn new_within(&self, target: &WorkloadState, window_s: f64, now_s: f64) -> Option<f64> {
        let is_watched = self.returns.from_s().is_some_and(|from_s| now_s - from_s >= window_s - 0.05);
        is_watched.then(|| Kind::ALL.iter().map(|kind| self.returns.new_within(target, *kind, window_s, now_s)).sum())
    }

    /// Takes in a reading of a target of what is observed; ages that are in use from now on.
    pub(super) fn observe(
        &mut self,
        rule: &dyn ChoosesAge,
        target: &WorkloadState,
        frame: &Observation,
    ) -> PerKind<Option<f64>> {
        let terms = rule.terms();
        let now_s = frame.now_s;
        let returned = self.returns.observe(terms.slice_s, target, frame.evicted(target.id).file, now_s);
        let from_s = self.returns.from_s().unwrap_or(now_s);
        // A clock that was set back is past the warm-up.
        let warm = |begun_s: f64| now_s - from_s > terms.warm_up_s + 0.05 || begun_s < from_s;
        if let Some((returned, _)) = returned.filter(|(_, begun_s)| warm(*begun_s)) {
            self.chosen.add(rule, &returned, now_s, &frame.costs);
        }
        self.chosen.in_use()
    }
}

/// Bytes of a kind that have been idle for at least so long.
pub(super) fn colder(target: &WorkloadState, kind: Kind, age_s: Option<f64>) -> f64 {
    age_s.map_or(0.0, |age_s| target.ages_of(kind).filter(|bin| bin.min_s >= age_s).map(|bin| bin.size.bytes).sum())
}
