//! Memory budgets of a program: the three in the literature (Garg, Parashar and Kannan, MEMSYS 2020), and the least that keeps
//! it within a stated slowdown. Pure functions of a record.

use serde::Serialize;

use crate::cohort::AgeRow;
use crate::curve::{Band, Curve, RefaultCosts};
use crate::episode::Episode;
use crate::meta::Meta;
use crate::named::named;
use crate::phase::{Phase, PhaseKind};
use crate::units::{float, rounded};
use crate::usage::{Usage, rise};

pub mod decaying;
pub mod nodes;
mod own;
pub mod trials;

pub(crate) use own::LONG_ENOUGH_S;
pub use own::{OwnBudgets, peak, was_killed};

/// What Kubernetes' vertical autoscaler sets aside on top (`--recommendation-margin-fraction`). It takes the 90th percentile of
/// daily peaks; of one run there is one peak.
const VPA_MARGIN: f64 = 0.15;

const MIB: u64 = 1 << 20;

named! {
    /// How a budget is calculated.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Mechanism {
        /// The highest rise of the system's memory in use.
        Unlimited = "Unlimited",
        /// The largest resident set of one process.
        AppMaxrss = "App-MaxRSS",
        /// The most memory of all kinds that served it.
        SysMaxrss = "Sys-MaxRSS",
        /// What Kubernetes' vertical autoscaler would set: the highest working set as Kubernetes counts it, and a margin.
        Vpa = "VPA",
        /// The least within the stated slowdown.
        Lowtide = "lowtide",
    }
}

/// From what a budget was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// The accounts of the kernel.
    Accounts,
    /// The highest memory that the run ever had: nothing more is known of it.
    Peak,
    /// Working sets of windows.
    Histograms,
    /// Watched pages.
    Pages,
}

/// A budget.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Budget {
    /// How it was calculated.
    pub mechanism: Mechanism,
    /// Bytes.
    pub bytes: u64,
    /// Of them anonymous and shared memory, as it was when the budget was set.
    pub heap_bytes: Option<u64>,
    /// Of them file memory.
    pub file_bytes: Option<u64>,
    /// The rest: the kernel's memory for it, and what is not counted apart.
    pub other_bytes: Option<u64>,
    /// Its 95 % interval.
    pub interval_bytes: Option<[u64; 2]>,
    /// The part that is there because the measurement is not sure.
    pub headroom_bytes: Option<u64>,
    /// Seconds since the start at which it is set.
    pub set_at_s: Option<f64>,
    /// Whether runs under it stayed within the stated slowdown; what only was predicted may be wrong.
    pub verified: bool,
    /// Counted on the entire machine: what ran beside it is in it too.
    pub machine_wide: bool,
    /// From what it was taken.
    pub basis: Evidence,
    /// Share that its work is predicted to take longer under it; `None` where nothing is predicted.
    pub predicted_slowdown: Option<f64>,
}

/// The budget of this mechanism.
#[must_use]
pub fn by(mechanism: Mechanism, budgets: &[Budget]) -> Option<&Budget> {
    budgets.iter().find(|budget| budget.mechanism == mechanism)
}

/// The figures of a record that a budget needs.
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
    /// Seconds between two samples of a page.
    pub tick_s: f64,
    /// Bytes of swap where it will run; infinite for as much as it takes. Without any, anonymous memory stays, however idle it
    /// is.
    pub swap_bytes: f64,
    /// Its phases.
    pub phases: &'a [Phase],
    /// What a page costs that comes back: from swap and disks, or from slower memory.
    pub costs: RefaultCosts,
}

impl<'a> Known<'a> {
    /// What is known where only this much was measured, of a run on its own machine: with the swap that was active there.
    #[must_use]
    pub fn of(meta: &'a Meta, rows: &'a [Usage]) -> Self {
        let (costs, swap_bytes) =
            (meta.refault_costs.of_limits(most(rows, Usage::on_disk)), float(meta.host.swap_bytes));
        Self { meta, rows, ages: &[], episodes: &[], curve: None, tick_s: 1.0, swap_bytes, phases: &[], costs }
    }

    /// Whether anonymous memory can be paged out.
    #[must_use]
    pub fn swaps(&self) -> bool {
        self.swap_bytes > 0.0
    }

    /// When its start-up ended, seconds since the start of the record.
    pub(crate) fn started_s(&self) -> f64 {
        self.phases.iter().find(|phase| phase.kind == PhaseKind::StartUp).map_or(0.0, |phase| phase.to_s)
    }

    /// What a page costs that comes back, as a part of the work that there is in a second of the run. Services wait for requests most
    /// of the time, and those who wait for an answer notice what is lost of the rest.
    pub(crate) fn costs_of_work(&self) -> RefaultCosts {
        let started_s = self.started_s();
        let after = self.rows.partition_point(|row| row.t_s.is_none_or(|t_s| t_s < started_s));
        let working = working_share(&self.rows[after..]);
        RefaultCosts { swap_s: self.costs.swap_s / working, disk_s: self.costs.disk_s / working }
    }

    /// Rows while it ran.
    pub(crate) fn live(&self) -> &'a [Usage] {
        self.rows.get(1..).unwrap_or_default()
    }
}

/// All budgets that follow from a record.
#[must_use]
pub fn budgets(known: &Known<'_>, own: &OwnBudgets) -> Vec<Budget> {
    let live = known.live();
    let start = known.rows.first();
    let rise = |get: fn(&Usage) -> Option<f64>| {
        let first = start.and_then(get)?;
        highest(live, get).map(|(row, most)| (row, most - first))
    };
    let app = known.meta.end.as_ref().and_then(|end| end.app_max_rss_bytes).and_then(|bytes| {
        let (row, most) = highest(live, |row| row.rss_bytes)?;
        let bytes = float(bytes);
        // Of all processes together, as a single one is not counted.
        let file = row.mapped_file_bytes.map(|file| bytes * (file / most.max(1.0)).min(1.0));
        let parts = file.map(|file| [bytes - file, file, 0.0]);
        Some(budget(Mechanism::AppMaxrss, bytes, parts, row.t_s))
    });
    let machine_wide = |budget| Budget { machine_wide: true, ..budget };
    let sys = highest(live, |row| row.cgroup_lru_bytes)
        .map(|of| of_row(Mechanism::SysMaxrss, of.0, of.1))
        .or_else(|| rise(|row| row.system_lru_bytes).map(|of| machine_wide(of_row(Mechanism::SysMaxrss, of.0, of.1))));
    // Others may have freed memory since: the amount that served it is no less.
    let unlimited = rise(|row| row.system_used_bytes).map(|of| of_row(Mechanism::Unlimited, of.0, of.1)).map(|rise| {
        let sys = sys.filter(|sys| sys.bytes > rise.bytes);
        machine_wide(sys.map_or(rise, |sys| Budget { mechanism: Mechanism::Unlimited, ..sys }))
    });
    let vpa = highest(live, |row| Some(row.cgroup_bytes? - row.cgroup_inactive_file_bytes?))
        .map(|(row, working_set)| of_row(Mechanism::Vpa, row, (1.0 + VPA_MARGIN) * working_set));
    [unlimited, app, sys, vpa, own.chosen].into_iter().flatten().collect()
}

/// What hardly works at all is taken to work for so much of the time: else nothing could be taken from it, as every rate of return
/// has an error.
const LEAST_WORK: f64 = 0.01;

/// Share of the time in which a target worked, of the seconds that it did; all of it where that is not known.
#[must_use]
pub fn share_of_work(worked_s: f64, seconds: f64) -> f64 {
    let share = worked_s / seconds;
    if share >= 0.0 { share.clamp(LEAST_WORK, 1.0) } else { 1.0 }
}

/// Share of the time in which a target was on a CPU or waited for memory or a disk.
fn working_share(rows: &[Usage]) -> f64 {
    let waits = [rise(rows, |row| row.io_some_s), rise(rows, |row| row.memory_some_s)];
    let waited = waits.into_iter().flatten().sum::<f64>();
    let known = rise(rows, |row| row.cpu_s).zip(rise(rows, |row| row.t_s));
    known.map_or(1.0, |(cpu_s, seconds)| share_of_work(cpu_s + waited, seconds))
}

/// Bytes that stay however idle they are: locked memory, and without swap shared memory and tmpfs, which is file memory but has no
/// file to go to. How much of it is in use, and counted already, is not known: it is added in full, and that may be too much.
fn pinned(live: &[Usage], swap: bool) -> f64 {
    let get: fn(&Usage) -> Option<f64> = if swap { |row| row.unevictable_bytes } else { |row| row.shmem_bytes };
    most(live, get)
}

/// The most anonymous and file memory that there was at a time, bytes.
fn resident(live: &[Usage]) -> f64 {
    most(live, |row| Some(row.anon_bytes? + row.file_bytes.unwrap_or(0.0)))
}

/// Bytes of anonymous and file memory that a curve alone says are needed within the slowdown; where no age that it knows
/// does, all there was on average.
#[must_use]
pub fn of_curve(curve: &Curve, slowdown: f64, costs: &RefaultCosts, swap: bool) -> f64 {
    if swap {
        return curve.within(slowdown, costs).map_or(curve.total.total(), |point| point.kept_peak);
    }
    curve.total.anon + files(curve, |band| band.high, slowdown, costs)
}

/// Bytes of files that are needed where there is no swap: nothing anonymous is paged out, so none of it is refaulted.
fn files(curve: &Curve, of: fn(&Band) -> f64, slowdown: f64, costs: &RefaultCosts) -> f64 {
    let only_files = RefaultCosts { swap_s: 0.0, ..*costs };
    let cold = curve.within_by(of, slowdown, &only_files).map_or(0.0, |point| point.cold.file.at);
    (curve.total.file - cold).max(0.0)
}

/// The highest value, or 0.
fn most(rows: &[Usage], get: fn(&Usage) -> Option<f64>) -> f64 {
    highest(rows, get).map_or(0.0, |(_, most)| most)
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
    let part = |which: usize| parts.map(|parts| rounded(parts[which]));
    Budget {
        mechanism,
        bytes: rounded(bytes),
        heap_bytes: part(0),
        file_bytes: part(1),
        other_bytes: part(2),
        interval_bytes: None,
        headroom_bytes: None,
        set_at_s,
        verified: false,
        machine_wide: false,
        basis: Evidence::Accounts,
        predicted_slowdown: None,
    }
}

#[cfg(test)]
mod tests {
    use super::own::whole_mib;
    use super::*;
    use crate::PAGE;
    use crate::cohort::{AgeBin, AgeRow, Estimate};
    use crate::curve::Point;
    use crate::curve::tests::watch;
    use crate::meta::End;
    use crate::phase::{Phase, PhaseKind};

    /// A program of `pages` pages of which it uses a quarter over and over, and all of the accounts that a cgroup keeps.
    fn known(pages: u64, sampled: u64, swap: bool) -> Vec<Budget> {
        let (ages, episodes) = watch(pages, sampled, 1, 120, &mut |page, _| page < pages / 4);
        let size = float(pages * PAGE);
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
        let end = End { app_max_rss_bytes: Some(rounded(size)), ..End::default() };
        let meta = Meta { end: Some(end), ..Meta::default() };
        let curve = Curve::of(&ages, &episodes, 1.0);
        let known = Known {
            meta: &meta,
            rows: &rows,
            ages: &ages,
            episodes: &episodes,
            curve: curve.as_ref(),
            tick_s: 1.0,
            swap_bytes: if swap { f64::INFINITY } else { 0.0 },
            phases: &[],
            costs: RefaultCosts::default(),
        };
        budgets(&known, &OwnBudgets::of(&known, 0.02))
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
        let quarter = float(size) / 4.0 + 1e6;
        let own = all[4];
        assert!((0.98 * quarter..=quarter + float(MIB)).contains(&float(own.bytes)), "{own:?}");
        assert_eq!((own.interval_bytes, own.file_bytes, own.bytes % MIB), (None, Some(0), 0));
    }

    #[test]
    fn a_sample_has_an_interval_that_holds_the_truth() {
        let all = known(40_000, 2000, true);
        let own = all.last().unwrap();
        let truth = float(10_000 * PAGE) + 1e6;
        let [low, high] = own.interval_bytes.unwrap();
        assert!(float(low) < truth && truth < float(high), "{own:?} against {truth}");
        assert!(float(high - low) < 0.3 * truth, "{own:?}");
        assert_eq!((own.bytes, own.headroom_bytes.unwrap() > 0), (high, true));
    }

    #[test]
    fn without_swap_what_is_idle_stays() {
        let own = *known(4000, 4000, false).last().unwrap();
        let all = float(4000 * PAGE) + 1e6;
        // The next run may need three in a hundred more.
        assert_eq!(own.bytes, whole_mib(1.03 * all), "{own:?}");
    }

    #[test]
    fn what_nothing_can_take_is_needed_however_idle() {
        let (ages, episodes) = watch(4000, 4000, 1, 120, &mut |page, _| page < 1000);
        let size = float(4000 * PAGE);
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
            let rows = [row(0.0), row(120.0)];
            let curve = Curve::of(&ages, episodes, 1.0);
            let costs = RefaultCosts::default();
            let (tick_s, curve, meta) = (1.0, curve.as_ref(), &meta);
            let swap_bytes = if swap { f64::INFINITY } else { 0.0 };
            let known =
                Known { meta, rows: &rows, ages: &ages, episodes, curve, tick_s, swap_bytes, phases: &[], costs };
            float(budgets(&known, &OwnBudgets::of(&known, 0.02)).last().unwrap().bytes)
        };
        let (quarter, half) = (0.25 * size, 0.5 * size);
        for watched in [episodes.as_slice(), &[]] {
            let free = own(0.0, 0.0, true, watched);
            assert!(own(0.0, half, true, watched) >= (free + half).min(size) - 1.0);
            assert!(own(quarter, 0.0, false, watched) >= size - 1.0, "what is on tmpfs stays, and so does the rest");
            assert!(own(0.0, 10.0 * size, true, watched) <= 1.03 * size + float(MIB), "hardly more than there was");
        }
    }

    #[test]
    fn histograms_alone_tell_it_too_if_less_surely() {
        let (ages, _) = watch(4000, 4000, 1, 120, &mut |page, _| page < 1000);
        let rows =
            [0.0, 60.0].map(|t_s| Usage { t_s: Some(t_s), anon_bytes: Some(float(4000 * PAGE)), ..Usage::default() });
        let curve = Curve::of(&ages, &[], 1.0).unwrap();
        let meta = Meta::default();
        let own = |swap| {
            let curve = Some(&curve);
            let costs = RefaultCosts::default();
            let swap_bytes = if swap { f64::INFINITY } else { 0.0 };
            let known = Known { ages: &ages, curve, swap_bytes, costs, ..Known::of(&meta, &rows) };
            *budgets(&known, &OwnBudgets::of(&known, 0.02)).last().unwrap()
        };
        assert!((1000 * PAGE..=whole_mib(float(4000 * PAGE))).contains(&own(true).bytes));
        assert_eq!((own(true).interval_bytes, own(true).basis), (None, Evidence::Histograms), "bounds are no interval");
        assert!(own(true).headroom_bytes.is_some_and(|headroom| headroom <= own(true).bytes));
        assert_eq!((own(false).bytes, own(false).headroom_bytes), (whole_mib(1.03 * float(4000 * PAGE)), Some(0)));
        let rows = rows.map(|row| Usage { file_bytes: Some(100.0), ..row });
        let costs = RefaultCosts::default();
        let blind = |swap| {
            let swap_bytes = if swap { f64::INFINITY } else { 0.0 };
            let known = Known { swap_bytes, costs, ..Known::of(&meta, &rows) };
            budgets(&known, &OwnBudgets::of(&known, 0.02)).last().map(|budget| (budget.bytes, budget.basis))
        };
        let had = Some((whole_mib(1.03 * float(4000 * PAGE)), Evidence::Peak));
        assert_eq!((blind(true), blind(false)), (had, had), "nobody knows whether less would do");
    }

    /// A record of a program whose cgroup held so much every twenty seconds, anonymous and file memory, and at most `peak`.
    fn run_of(ticks: &[(f64, f64)], peak: f64, attached: bool) -> (Meta, Vec<Usage>) {
        let end = End { cgroup_peak_bytes: Some(rounded(peak)), app_max_rss_bytes: Some(1), ..End::default() };
        let meta = Meta { attached, end: Some(end), ..Meta::default() };
        let row = |t_s: f64, (anon, file): (f64, f64)| Usage {
            t_s: Some(t_s),
            anon_bytes: Some(anon),
            file_bytes: Some(file),
            cgroup_bytes: Some(anon + file),
            processes: Some(2.0),
            ..Usage::default()
        };
        let live = (1u32..).zip(ticks).map(|(t_s, sizes)| row(20.0 * f64::from(t_s), *sizes));
        (meta, [row(0.0, (0.0, 0.0))].into_iter().chain(live).collect())
    }

    /// A curve by which a tenth is used.
    fn mostly_idle(total: f64) -> Curve {
        let point = |age_s| Point { age_s, kept: 0.1 * total, kept_peak: 0.1 * total, ..Point::default() };
        Curve {
            basis: crate::curve::Basis::Histograms,
            total: [total, 0.0].into(),
            points: vec![point(1.0), point(10.0)],
        }
    }

    #[test]
    fn no_limit_is_below_what_cannot_be_reclaimed() {
        let mib = float(MIB);
        // 400 MiB while it started, 300 later, and 450 between two ticks.
        let (meta, rows) = run_of(&[(400.0 * mib, 0.0), (300.0 * mib, 50.0 * mib)], 450.0 * mib, false);
        let curve = mostly_idle(300.0 * mib);
        let own = |swap_bytes: f64| {
            let known = Known { curve: Some(&curve), swap_bytes, ..Known::of(&meta, &rows) };
            super::own::own(&known, 1.0).unwrap().bytes / MIB
        };
        assert_eq!(own(0.0), 450, "what was there between two ticks may not have been reclaimable");
        assert!(own(f64::INFINITY) < 60, "{}", own(f64::INFINITY));
        assert_eq!(own(100.0 * mib), 350, "what does not fit into the swap stays");
    }

    #[test]
    fn what_a_limit_may_cost_is_a_share_of_the_work() {
        // A quarter is used all the time, and the rest every twenty seconds: at 10 us a page that is 0.15 % of the time, but 7.5 %
        // of a fiftieth of it.
        let uses = |page: u64, tick: u32| page < 1000 || u64::from(tick % 20) == page % 20;
        let (ages, episodes) = watch(4000, 4000, 1, 120, &mut { |page, tick| uses(page, tick) });
        let meta = Meta::default();
        let pages = |works: &dyn Fn(f64) -> Option<f64>, waits: f64, start_up_s: f64| {
            let row = |t_s: f64| Usage {
                t_s: Some(t_s),
                anon_bytes: Some(float(4000 * PAGE)),
                cpu_s: works(t_s),
                io_some_s: Some(waits * t_s),
                ..Usage::default()
            };
            let rows = [0.0, 30.0, 120.0].map(row);
            let start_up = Phase { kind: PhaseKind::StartUp, from_s: 0.0, to_s: start_up_s };
            let costs = RefaultCosts::default();
            let known = Known {
                ages: &ages,
                episodes: &episodes,
                swap_bytes: f64::INFINITY,
                phases: &[start_up],
                costs,
                ..Known::of(&meta, &rows)
            };
            super::own::own(&known, 0.01).unwrap().bytes / PAGE
        };
        let busy = pages(&Some, 0.0, 0.0);
        assert!((1000..1600).contains(&busy), "{busy}");
        assert!(pages(&|t_s| Some(0.02 * t_s), 0.0, 0.0) > 2 * busy);
        assert_eq!(pages(&|t_s| Some(0.02 * t_s), 0.98, 0.0), busy, "who waits for a disk works");
        assert_eq!(
            pages(&|_| Some(0.0), 0.0, 0.0),
            pages(&|t_s| Some(0.01 * t_s), 0.0, 0.0),
            "what sleeps is taken to work a little"
        );
        assert_eq!(pages(&|_| None, 0.0, 0.0), busy, "CPU time is not known");
        // What it did before it had started does not count.
        assert!(pages(&|t_s| Some(20.0 + 0.02 * t_s), 0.0, 30.0) > 2 * busy);
    }

    #[test]
    fn what_ended_soon_shows_nothing() {
        let (ages, episodes) = watch(4000, 4000, 1, 120, &mut |page, _| page < 1000);
        let meta = Meta::default();
        let basis = |end_s: f64| {
            let rows = [1.0, end_s].map(|t_s| Usage {
                t_s: Some(t_s),
                anon_bytes: Some(float(4000 * PAGE)),
                ..Usage::default()
            });
            let known =
                Known { ages: &ages, episodes: &episodes, swap_bytes: f64::INFINITY, ..Known::of(&meta, &rows) };
            super::own::own(&known, 0.02).unwrap().basis
        };
        assert_eq!([19.0, 20.0].map(basis), [Evidence::Peak, Evidence::Pages]);
    }

    #[test]
    fn paging_out_costs_a_scan_of_everything_and_each_page() {
        let (meta, rows) = run_of(&[(400.0 * float(MIB), 0.0)], 0.0, false);
        let curve = mostly_idle(400.0 * float(MIB));
        // A scan takes 51 ms of 20 s; of 2 %, 349 ms are left for pages of 10 us.
        let known = Known { curve: Some(&curve), swap_bytes: f64::INFINITY, ..Known::of(&meta, &rows) };
        let [scarcely, ample] = [0.001, 0.02].map(|slowdown| super::own::own(&known, slowdown).unwrap());
        assert!(scarcely.bytes >= 400 * MIB, "{scarcely:?}");
        let left = 400.0 - 0.349 / 10e-6 * float(PAGE) / float(MIB);
        assert!((float(ample.bytes / MIB) - left).abs() < 2.0, "{ample:?} beside {left}");
        // Of what works for a hundredth of the time, 15 pages a second are 1.5 % of the work; of the run they leave as much to
        // paging out as before, less three milliseconds.
        let mut curve = mostly_idle(400.0 * float(MIB));
        curve.points.iter_mut().for_each(|point| point.back.anon = Band::around(15.0 * float(PAGE), 0.0));
        let mut sleeps = rows.clone();
        (sleeps[0].cpu_s, sleeps[1].cpu_s) = (Some(0.0), Some(0.01));
        let known = Known { curve: Some(&curve), rows: &sleeps, ..known };
        let [scarcely, ample] = [0.01, 0.02].map(|slowdown| super::own::own(&known, slowdown).unwrap());
        assert!(scarcely.bytes >= 400 * MIB, "{scarcely:?}");
        assert!((float(ample.bytes / MIB) - left - 1.2).abs() < 2.0, "{ample:?} beside {left}");
        assert!(ample.predicted_slowdown.is_some_and(|lost| (0.019..=0.0201).contains(&lost)), "{ample:?}");
    }

    #[test]
    fn with_swap_it_has_room_for_what_it_uses_while_it_grows() {
        let mib = float(MIB);
        let (meta, rows) = run_of(&[(400.0 * mib, 0.0), (400.0 * mib, 0.0)], 0.0, false);
        let curve = mostly_idle(400.0 * mib);
        let phase = |kind, from_s, to_s| Phase { kind, from_s, to_s };
        let phases = [phase(PhaseKind::StartUp, 0.0, 20.0), phase(PhaseKind::Steady, 20.0, 40.0)];
        let row = |t_s: f64, max_s: Option<f64>, bytes: f64| AgeRow {
            t_s,
            bin: AgeBin {
                anon: true,
                min_s: 0.0,
                max_s,
                size: Estimate { bytes, ci95: 0.0 },
                first_touched: Some(0.0),
            },
        };
        // 150 MiB within a second of the start-up, 300 of longer windows, and 350 that are no start-up's.
        let ages = [
            row(2.0, Some(1.0), 100.0 * mib),
            row(3.0, Some(1.0), 150.0 * mib),
            row(3.0, Some(5.0), 150.0 * mib),
            row(30.0, Some(1.0), 350.0 * mib),
        ];
        let own = |ages: &[AgeRow]| {
            let known = Known {
                curve: Some(&curve),
                swap_bytes: f64::INFINITY,
                phases: &phases,
                ages,
                ..Known::of(&meta, &rows)
            };
            super::own::own(&known, 1.0).unwrap().bytes / MIB
        };
        assert_eq!([own(&ages), own(&[])], [150, 400], "of a start-up without a reading all is needed");
    }

    #[test]
    fn with_swap_what_comes_and_goes_between_readings_counts_as_used() {
        let mib = float(MIB);
        let curve = mostly_idle(200.0 * mib);
        let own = |ticks: &[f64]| {
            let (meta, mut rows) = run_of(&ticks.iter().map(|size| (size * mib, 0.0)).collect::<Vec<_>>(), 0.0, false);
            for at in [1, 4] {
                rows[at].ws_1s_bytes = Some(20.0 * mib);
            }
            let known = Known { curve: Some(&curve), swap_bytes: f64::INFINITY, ..Known::of(&meta, &rows) };
            super::own::own(&known, 1.0).unwrap().bytes / MIB
        };
        // The curve says a tenth of 200.
        assert_eq!(own(&[200.0, 150.0, 190.0, 180.0, 170.0]), 20);
        assert_eq!(own(&[200.0, 250.0, 190.0, 180.0, 170.0]), 70);
        assert_eq!(own(&[200.0, 150.0, 190.0, 180.0, 240.0]), 80);
    }

    #[test]
    fn what_was_swapped_out_needs_memory_where_there_is_no_swap() {
        let mib = float(MIB);
        // Recorded under a limit of 100 MiB, with 300 MiB of its memory in swap.
        let (meta, mut rows) = run_of(&[(100.0 * mib, 0.0)], 100.0 * mib, false);
        rows[1].swap_bytes = Some(300.0 * mib);
        let curve = mostly_idle(100.0 * mib);
        let known = Known { curve: Some(&curve), ..Known::of(&meta, &rows) };
        // Two processes: six in a hundred more.
        assert_eq!(super::own::own(&known, 0.02).unwrap().bytes, 424 * MIB);
    }

    #[test]
    fn no_limit_is_below_what_a_target_held_whose_start_was_not_recorded() {
        let mib = float(MIB);
        let (meta, rows) = run_of(&[(200.0 * mib, 20.0 * mib)], 900.0 * mib, true);
        let curve = mostly_idle(200.0 * mib);
        let known = Known { curve: Some(&curve), swap_bytes: f64::INFINITY, ..Known::of(&meta, &rows) };
        assert_eq!(super::own::own(&known, 1.0).unwrap().bytes, 220 * MIB);
    }

    #[test]
    fn a_run_that_nobody_measured_has_what_it_had() {
        let mib = float(MIB);
        let (meta, rows) = run_of(&[(200.0 * mib, 20.0 * mib)], 230.5 * mib, false);
        let own = super::own::own(&Known::of(&meta, &rows), 0.02).unwrap();
        assert_eq!((own.bytes, own.basis, own.predicted_slowdown), (231 * MIB, Evidence::Peak, Some(0.0)));
    }

    #[test]
    fn what_was_not_measured_gives_no_budget() {
        let meta = Meta::default();
        let known = Known::of(&meta, &[]);
        assert_eq!(budgets(&known, &OwnBudgets::of(&known, 0.02)), []);
    }
}
