//! Memory budgets of a program: the three in the literature (Garg, Parashar and Kannan, MEMSYS 2020), and the least that keeps
//! it within a stated slowdown. Pure functions of a record.

use serde::Serialize;

use crate::PAGE;
use crate::cohort::AgeRow;
use crate::curve::{Band, Curve, Limits, RefaultCosts, totals};
use crate::episode::Episode;
use crate::meta::Meta;
use crate::random::mix;
use crate::stats::Z95;
use crate::usage::Usage;

pub mod decaying;
pub mod nodes;
pub mod trials;

/// Groups of pages of which one at a time is left out, to see how much the budget hangs on who was watched (the delete-a-group
/// jackknife; Kott, Journal of Official Statistics 2001).
const GROUPS: u64 = 10;

/// What Kubernetes' vertical autoscaler sets aside on top (`--recommendation-margin-fraction`). It takes the 90th percentile of
/// daily peaks; of one run there is one peak.
const VPA_MARGIN: f64 = 0.15;

/// Pages that the kernel charges at a time for each CPU, used or not (`MEMCG_CHARGE_BATCH`, mm/memcontrol.c).
const CHARGE_BATCH: u64 = 64;

/// How a budget was come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// The highest rise of the system's memory in use.
    Unlimited,
    /// The largest resident set of one process.
    AppMaxrss,
    /// The most memory of all kinds that served it.
    SysMaxrss,
    /// What Kubernetes' vertical autoscaler would set: the highest working set as Kubernetes counts it, and a margin.
    Vpa,
    /// The least within the stated slowdown.
    Lowtide,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Unlimited, Self::AppMaxrss, Self::SysMaxrss, Self::Vpa, Self::Lowtide];

    /// As the literature has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "Unlimited",
            Self::AppMaxrss => "App-MaxRSS",
            Self::SysMaxrss => "Sys-MaxRSS",
            Self::Vpa => "VPA",
            Self::Lowtide => "lowtide",
        }
    }
}

/// A budget.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Budget {
    /// How it was come to.
    pub mechanism: Mechanism,
    /// Bytes.
    pub bytes: u64,
    /// Of them anonymous and shared memory, as it was when the budget was set.
    pub heap_bytes: Option<u64>,
    /// Of them file memory.
    pub file_bytes: Option<u64>,
    /// The rest: the kernel's memory for it, and what nobody tells apart.
    pub other_bytes: Option<u64>,
    /// Its 95 % interval.
    pub interval_bytes: Option<[u64; 2]>,
    /// The part that is there because the measurement is not sure.
    pub headroom_bytes: Option<u64>,
    /// Seconds since the start at which it is set.
    pub set_at_s: Option<f64>,
    /// Whether runs under it stayed within the stated slowdown; what only was predicted may be wrong.
    pub verified: bool,
    /// Counted on the machine as a whole: what ran beside it is in it too.
    pub machine_wide: bool,
}

/// The one of these that was come to so.
#[must_use]
pub fn by(mechanism: Mechanism, budgets: &[Budget]) -> Option<&Budget> {
    budgets.iter().find(|budget| budget.mechanism == mechanism)
}

/// What a record knows.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// How it was measured.
    pub meta: &'a Meta,
    /// Its ticks.
    pub rows: &'a [Usage],
    /// Its idle-age histograms.
    pub ages: &'a [AgeRow],
    /// Its watched pages.
    pub episodes: &'a [Episode],
    /// Its curve, where it has one.
    pub curve: Option<&'a Curve>,
    /// Seconds between two looks at a page.
    pub tick_s: f64,
    /// Whether there will be swap where it runs: without, anonymous memory stays, however idle it is.
    pub swap: bool,
    /// What a page costs that comes back: from swap and disks, or from slower memory.
    pub costs: RefaultCosts,
}

impl<'a> Known<'a> {
    /// What is known where only this much was measured, of a run that has swap and usual costs of its machine.
    #[must_use]
    pub fn of(meta: &'a Meta, rows: &'a [Usage]) -> Self {
        let costs = meta.refault_costs.or_usual();
        Self { meta, rows, ages: &[], episodes: &[], curve: None, tick_s: 1.0, swap: true, costs }
    }
}

/// All budgets that a record can tell, for this slowdown as a share of the time.
#[must_use]
pub fn budgets(known: &Known<'_>, slowdown: f64) -> Vec<Budget> {
    let live = known.rows.get(1..).unwrap_or_default();
    let start = known.rows.first();
    let rise = |get: fn(&Usage) -> Option<f64>| {
        let first = start.and_then(get)?;
        highest(live, get).map(|(row, most)| (row, most - first))
    };
    let app = known.meta.end.as_ref().and_then(|end| end.app_max_rss_bytes).and_then(|bytes| {
        let (row, most) = highest(live, |row| row.rss_bytes)?;
        let bytes = number(bytes);
        // Of all processes together, as nobody tells what a single one had.
        let file = row.mapped_file_bytes.map(|file| bytes * (file / most.max(1.0)).min(1.0));
        let parts = file.map(|file| [bytes - file, file, 0.0]);
        Some(budget(Mechanism::AppMaxrss, bytes, parts, row.t_s))
    });
    let machine_wide = |budget| Budget { machine_wide: true, ..budget };
    let sys = highest(live, |row| row.cgroup_lru_bytes)
        .map(|of| of_row(Mechanism::SysMaxrss, of.0, of.1))
        .or_else(|| rise(|row| row.system_lru_bytes).map(|of| machine_wide(of_row(Mechanism::SysMaxrss, of.0, of.1))));
    // Others may have let go of memory meanwhile: what served it is no less.
    let unlimited = rise(|row| row.system_used_bytes).map(|of| of_row(Mechanism::Unlimited, of.0, of.1)).map(|rise| {
        let sys = sys.filter(|sys| sys.bytes > rise.bytes);
        machine_wide(sys.map_or(rise, |sys| Budget { mechanism: Mechanism::Unlimited, ..sys }))
    });
    let vpa = highest(live, |row| Some(row.cgroup_bytes? - row.cgroup_inactive_file_bytes?))
        .map(|(row, working_set)| of_row(Mechanism::Vpa, row, (1.0 + VPA_MARGIN) * working_set));
    [unlimited, app, sys, vpa, own(known, live, slowdown)].into_iter().flatten().collect()
}

/// The least within the slowdown.
fn own(known: &Known<'_>, live: &[Usage], slowdown: f64) -> Option<Budget> {
    let costs = known.costs;
    let charged_ahead = number(known.meta.host.cpus * CHARGE_BATCH * PAGE);
    let kernel = highest(live, |row| row.kernel_bytes).map_or(0.0, |(_, most)| most) + charged_ahead;
    let limits = Limits::of(known.ages, known.episodes, known.tick_s, known.swap);
    let Some(limits) = limits else {
        return from_histograms(known, live, slowdown, &costs, kernel);
    };
    let least = limits.least(slowdown, &costs);
    let least = (least + pinned(live, known.swap)).min(least.max(resident(live)));
    let half = spread(known, slowdown, &costs).map(|error| Z95 * error);
    let bytes = least + half.unwrap_or(0.0);
    let at = limits.tightest(least, &costs);
    let parts = at.map(|at| {
        let file = (at.file_share * bytes).min(bytes);
        [bytes - file, file, kernel]
    });
    let all = budget(Mechanism::Lowtide, bytes + kernel, parts, at.map(|at| at.from_s));
    Some(Budget {
        interval_bytes: half.map(|half| [whole((least - half).max(0.0) + kernel), whole(bytes + kernel)]),
        headroom_bytes: half.map(whole),
        ..all
    })
}

/// The same where histograms are all there is: they tell of no slices, so it is the curve's peak, as sure as its bands are: of
/// the interval, the lower end is what would do if the lower end of the band were true.
fn from_histograms(
    known: &Known<'_>,
    live: &[Usage],
    slowdown: f64,
    costs: &RefaultCosts,
    kernel: f64,
) -> Option<Budget> {
    let Some(curve) = known.curve else {
        // Nobody looked. Without swap that leaves only the files open: all of them.
        let (row, _) = highest(live, |row| row.anon_bytes).filter(|_| !known.swap)?;
        return Some(of_row(Mechanism::Lowtide, row, resident(live) + kernel));
    };
    let sure = |high: Budget, [low, likely]: [f64; 2]| Budget {
        interval_bytes: Some([whole(low).min(high.bytes), high.bytes]),
        headroom_bytes: Some(high.bytes.saturating_sub(whole(likely))),
        ..high
    };
    if known.swap {
        // Where no age is known to do, all that there ever was does.
        let all = || totals(known.ages).iter().map(|(_, total)| total.iter().sum()).fold(0.0, f64::max);
        let needed = |of: fn(&Band) -> f64| {
            let kept = curve.within_by(of, slowdown, costs).map_or_else(all, |point| point.kept_peak);
            (kept + pinned(live, true)).min(kept.max(resident(live))) + kernel
        };
        let high = budget(Mechanism::Lowtide, needed(|band| band.high), None, None);
        return Some(sure(high, [needed(|band| band.low), needed(|band| band.at)]));
    }
    let (row, heap) = highest(live, |row| row.anon_bytes)?;
    let most = highest(live, |row| row.file_bytes).map_or(0.0, |(_, most)| most);
    let needed = |of: fn(&Band) -> f64| {
        let file = files(curve, of, slowdown, costs);
        (file + pinned(live, false)).min(file.max(most))
    };
    let file = needed(|band| band.high);
    let high = budget(Mechanism::Lowtide, heap + file + kernel, Some([heap, file, kernel]), row.t_s);
    Some(sure(high, [needed(|band| band.low), needed(|band| band.at)].map(|file| heap + file + kernel)))
}

/// Bytes that stay however idle they are: locked memory, and without swap shared memory and tmpfs, which is file memory but has no
/// file to go to. How much of it is in use, and counted already, is not known: it is added in full, and that may be too much.
fn pinned(live: &[Usage], swap: bool) -> f64 {
    let get: fn(&Usage) -> Option<f64> = if swap { |row| row.unevictable_bytes } else { |row| row.shmem_bytes };
    highest(live, get).map_or(0.0, |(_, most)| most)
}

/// The most anonymous and file memory that there was at a time, bytes.
fn resident(live: &[Usage]) -> f64 {
    highest(live, |row| Some(row.anon_bytes? + row.file_bytes?)).map_or(0.0, |(_, most)| most)
}

/// Bytes of anonymous and file memory that a curve alone says are needed within the slowdown; where no age that it knows
/// does, all there was on average.
#[must_use]
pub fn of_curve(curve: &Curve, slowdown: f64, costs: &RefaultCosts, swap: bool) -> f64 {
    if swap {
        return curve.within(slowdown, costs).map_or(curve.total.iter().sum(), |point| point.kept_peak);
    }
    curve.total[0] + files(curve, |band| band.high, slowdown, costs)
}

/// Bytes of files that are needed where there is no swap: nothing anonymous goes, and so nothing comes back of it.
fn files(curve: &Curve, of: fn(&Band) -> f64, slowdown: f64, costs: &RefaultCosts) -> f64 {
    let only_files = RefaultCosts { swap_s: 0.0, ..*costs };
    let cold = curve.within_by(of, slowdown, &only_files).map_or(0.0, |point| point.cold[1].at);
    (curve.total[1] - cold).max(0.0)
}

/// Standard error of the least, by how it changes when a tenth of the watched pages is left out. `None` where every page was
/// watched, or too few.
fn spread(known: &Known<'_>, slowdown: f64, costs: &RefaultCosts) -> Option<f64> {
    let group = |episode: &Episode| mix(episode.key.page ^ u64::from(episode.key.space) << 40) % GROUPS;
    if known.episodes.iter().all(|episode| episode.weight_bytes <= number(PAGE)) {
        return None;
    }
    let without = |left_out: u64| {
        let rest: Vec<Episode> = known.episodes.iter().filter(|episode| group(episode) != left_out).cloned().collect();
        Limits::of(known.ages, &rest, known.tick_s, known.swap).map(|limits| limits.least(slowdown, costs))
    };
    let each: Vec<f64> = (0..GROUPS).map(without).collect::<Option<_>>()?;
    let mean = crate::stats::mean(&each)?;
    let groups = number(GROUPS);
    Some(((groups - 1.0) / groups * each.iter().map(|least| (least - mean).powi(2)).sum::<f64>()).sqrt())
}

/// The row with the highest value.
fn highest(rows: &[Usage], get: fn(&Usage) -> Option<f64>) -> Option<(&Usage, f64)> {
    rows.iter().filter_map(|row| Some((row, get(row)?))).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// A budget that one tick sets.
fn of_row(mechanism: Mechanism, row: &Usage, bytes: f64) -> Budget {
    let parts = row.anon_bytes.zip(row.file_bytes).map(|(anon, file)| {
        let (heap, file) = (anon.min(bytes), file.min((bytes - anon).max(0.0)));
        [heap, file, bytes - heap - file]
    });
    budget(mechanism, bytes, parts, row.t_s)
}

fn budget(mechanism: Mechanism, bytes: f64, parts: Option<[f64; 3]>, set_at_s: Option<f64>) -> Budget {
    let part = |which: usize| parts.map(|parts| whole(parts[which]));
    Budget {
        mechanism,
        bytes: whole(bytes),
        heap_bytes: part(0),
        file_bytes: part(1),
        other_bytes: part(2),
        interval_bytes: None,
        headroom_bytes: None,
        set_at_s,
        verified: false,
        machine_wide: false,
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes of memory, counts")]
fn number(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what u64 holds")]
fn whole(value: f64) -> u64 {
    value.max(0.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::tests::watch;
    use crate::meta::End;

    /// A program of `pages` pages of which it uses a quarter over and over, and all of the accounts that a cgroup keeps.
    fn known(pages: u64, sampled: u64, swap: bool) -> Vec<Budget> {
        let (ages, episodes) = watch(pages, sampled, 1, 120, &mut |page, _| page < pages / 4);
        let size = number(pages * PAGE);
        let row = |t_s: f64, anon: f64| Usage {
            t_s: Some(t_s),
            rss_bytes: Some(anon),
            anon_bytes: Some(anon),
            file_bytes: Some(0.5 * anon),
            mapped_file_bytes: Some(0.1 * anon),
            kernel_bytes: Some(1e6),
            cgroup_lru_bytes: Some(1.5 * anon),
            cgroup_bytes: Some(1.5 * anon + 1e6),
            cgroup_inactive_file_bytes: Some(0.25 * anon + 1e6),
            system_used_bytes: Some(1e9 + 2.0 * anon),
            ..Usage::default()
        };
        let rows = [row(0.0, 0.0), row(1.0, 0.5 * size), row(2.0, size), row(120.0, 0.9 * size)];
        let end = End { app_max_rss_bytes: Some(whole(size)), ..End::default() };
        let meta = Meta { end: Some(end), ..Meta::default() };
        let curve = Curve::of(&ages, &episodes, 1.0);
        let known = Known {
            meta: &meta,
            rows: &rows,
            ages: &ages,
            episodes: &episodes,
            curve: curve.as_ref(),
            tick_s: 1.0,
            swap,
            costs: RefaultCosts::default(),
        };
        budgets(&known, 0.02)
    }

    #[test]
    fn each_mechanism_counts_what_it_counts() {
        let all = known(4000, 4000, true);
        let size = 4000 * PAGE;
        assert_eq!(all.iter().map(|budget| budget.mechanism).collect::<Vec<_>>(), Mechanism::ALL);
        assert_eq!([all[0].bytes, all[1].bytes, all[2].bytes], [2 * size, size, 3 * size / 2]);
        assert_eq!(all[3].bytes, 5 * size / 4 * 115 / 100);
        assert_eq!(
            (all[0].heap_bytes, all[0].file_bytes, all[0].other_bytes),
            (Some(size), Some(size / 2), Some(size / 2))
        );
        assert_eq!((all[1].file_bytes, all[2].other_bytes), (Some(size / 10), Some(0)));
        assert!(all.iter().all(|budget| budget.set_at_s.is_some()));
        // Every page was watched, so that there is no error of a sample.
        let quarter = number(size) / 4.0 + 1e6;
        let own = all[4];
        assert!((number(own.bytes) - quarter).abs() < 0.02 * quarter, "{own:?}");
        assert_eq!((own.interval_bytes, own.file_bytes), (None, Some(0)));
    }

    #[test]
    fn a_sample_has_an_interval_that_holds_the_truth() {
        let all = known(40_000, 2000, true);
        let own = all.last().unwrap();
        let truth = number(10_000 * PAGE) + 1e6;
        let [low, high] = own.interval_bytes.unwrap();
        assert!(number(low) < truth && truth < number(high), "{own:?} against {truth}");
        assert!(number(high - low) < 0.3 * truth, "{own:?}");
        assert_eq!((own.bytes, own.headroom_bytes.unwrap() > 0), (high, true));
    }

    #[test]
    fn without_swap_what_is_idle_stays() {
        let own = *known(4000, 4000, false).last().unwrap();
        let all = number(4000 * PAGE) + 1e6;
        assert!((number(own.bytes) - all).abs() < 0.01 * all, "{own:?}");
    }

    #[test]
    fn what_nothing_can_take_is_needed_however_idle() {
        let (ages, episodes) = watch(4000, 4000, 1, 120, &mut |page, _| page < 1000);
        let size = number(4000 * PAGE);
        let meta = Meta::default();
        let own = |shmem: f64, locked: f64, swap: bool, episodes: &[Episode]| {
            let row = |t_s| Usage {
                t_s: Some(t_s),
                anon_bytes: Some(size - shmem),
                file_bytes: Some(shmem),
                shmem_bytes: Some(shmem),
                unevictable_bytes: Some(locked),
                ..Usage::default()
            };
            let rows = [row(0.0), row(1.0)];
            let curve = Curve::of(&ages, episodes, 1.0);
            let costs = RefaultCosts::default();
            let (tick_s, curve, meta) = (1.0, curve.as_ref(), &meta);
            let known = Known { meta, rows: &rows, ages: &ages, episodes, curve, tick_s, swap, costs };
            number(budgets(&known, 0.02).last().unwrap().bytes)
        };
        let (quarter, half) = (0.25 * size, 0.5 * size);
        for watched in [episodes.as_slice(), &[]] {
            let free = own(0.0, 0.0, true, watched);
            assert!(own(0.0, half, true, watched) >= (free + half).min(size) - 1.0);
            assert!(own(quarter, 0.0, false, watched) >= size - 1.0, "what is on tmpfs stays, and so does the rest");
            assert!(own(0.0, 10.0 * size, true, watched) <= 1.01 * size, "never more than there was");
        }
    }

    #[test]
    fn histograms_alone_tell_it_too_if_less_surely() {
        let (ages, _) = watch(4000, 4000, 1, 120, &mut |page, _| page < 1000);
        let rows =
            [0.0, 1.0].map(|t_s| Usage { t_s: Some(t_s), anon_bytes: Some(number(4000 * PAGE)), ..Usage::default() });
        let curve = Curve::of(&ages, &[], 1.0).unwrap();
        let meta = Meta::default();
        let own = |swap| {
            let curve = Some(&curve);
            let costs = RefaultCosts::default();
            let known = Known { meta: &meta, rows: &rows, ages: &ages, episodes: &[], curve, tick_s: 1.0, swap, costs };
            *budgets(&known, 0.02).last().unwrap()
        };
        assert!((1000 * PAGE..=4000 * PAGE).contains(&own(true).bytes));
        let [low, high] = own(true).interval_bytes.unwrap();
        assert!(0 < low && low <= high && high == own(true).bytes && own(true).headroom_bytes.unwrap() <= high - low);
        assert_eq!((own(false).bytes, own(false).interval_bytes), (4000 * PAGE, Some([4000 * PAGE; 2])));
        let rows = rows.map(|row| Usage { file_bytes: Some(100.0), ..row });
        let costs = RefaultCosts::default();
        let blind = |swap| {
            let known =
                Known { meta: &meta, rows: &rows, ages: &[], episodes: &[], curve: None, tick_s: 1.0, swap, costs };
            budgets(&known, 0.02).last().map(|budget| budget.bytes)
        };
        assert_eq!((blind(true), blind(false)), (None, Some(4000 * PAGE + 100)), "without swap only files are open");
    }

    #[test]
    fn what_was_not_measured_gives_no_budget() {
        let meta = Meta::default();
        let costs = RefaultCosts::default();
        let known =
            Known { meta: &meta, rows: &[], ages: &[], episodes: &[], curve: None, tick_s: 1.0, swap: true, costs };
        assert_eq!(budgets(&known, 0.02), []);
    }
}
