//! lowtide's own budget: the least memory that keeps a program within a stated slowdown, and that cannot kill it.
//!
//! Problem: what is in use can be far less than what a program dies without. Approach: what is used within the idle age whose
//! refaults the slowdown allows, raised to what cannot be reclaimed where it will run, and lowered to what the run ever had.

use super::{Budget, Evidence, Known, MIB, Mechanism, budget, files, highest, most, of_row, pinned, resident};
use crate::cohort::AgeRow;
use crate::curve::{Band, Curve, Limits, Point, RefaultCosts};
use crate::episode::Episode;
use crate::interval::half_by_leaving_out;
use crate::phase::{Phase, PhaseKind};
use crate::random::mix;
use crate::units::{float, rounded};
use crate::usage::Usage;
use crate::{PAGE, WINDOWS_S};

/// Groups of pages of which one at a time is left out, to find how much the budget depends on which pages were watched (the delete-a-group
/// jackknife; Kott, Journal of Official Statistics 2001).
const GROUPS: u64 = 10;

/// Pages that the kernel charges at a time for each CPU, used or not (`MEMCG_CHARGE_BATCH`, mm/memcontrol.c).
const CHARGE_BATCH: u64 = 64;

/// Share by which the next run may need more of what has to stay, for each process up to [`MOST_RUNS_DIFFER`]: of ten runs of
/// four forked processes the peak lay between 122 and 128 MiB, of which ticks sampled 110.
const RUNS_DIFFER: f64 = 0.03;
/// As much as Kubernetes' vertical autoscaler sets aside (`--recommendation-margin-fraction`).
const MOST_RUNS_DIFFER: f64 = 0.15;

/// Seconds of a run from which it shows that less than it had would be enough: every monitor has reported by then, unless the price
/// had it wait. Of a shorter one the last second is too large a part: a program that frees its memory one by one before it
/// ends uses all of it once more, and was killed under what its first seconds used.
pub(crate) const LONG_ENOUGH_S: f64 = 20.0;

/// Seconds to scan a page: the first reclaim under a limit finds every page accessed since it was filled, and keeps it once
/// (`folio_check_references`, mm/vmscan.c). Measured on Linux 6.18: 64 ms for 512 MiB beside what paging out took.
const SCAN_S: f64 = 0.5e-6;

/// The least within the slowdown, in MiB. Never less than what cannot be reclaimed in this run or the next, and else never
/// more than the run ever had.
pub(super) fn own(known: &Known<'_>, slowdown: f64) -> Option<Budget> {
    let live = known.live();
    // The limit at which it was killed is too low, and how much more it needs is not known.
    if was_killed(known.rows) {
        return None;
    }
    let charged_ahead = float(known.meta.host.cpus * CHARGE_BATCH * PAGE);
    let peak = peak(known) + charged_ahead;
    let kernel = most(live, kernel_of) + charged_ahead;
    let limits = Limits::of(known.ages, known.episodes, known.tick_s, known.swaps());
    let measured = match limits {
        _ if seconds(known) < LONG_ENOUGH_S => None,
        Some(limits) => Some(of_pages(known, slowdown, &limits, kernel)),
        None => of_histograms(known, slowdown, kernel),
    };
    // Where use was not measured, it gets what it had.
    let had = || Budget { predicted_slowdown: Some(0.0), basis: Evidence::Peak, ..of_highest(known, peak) };
    let own = measured.unwrap_or_else(had);
    let floor = floor(known) + charged_ahead;
    let bytes = float(own.bytes).max(floor).min(peak.max(floor));
    if bytes <= charged_ahead {
        return None;
    }
    let other = own.other_bytes.map(|other| other + rounded(bytes).saturating_sub(own.bytes));
    let interval = own.interval_bytes.map(|ends| ends.map(|end| end.clamp(rounded(floor), rounded(bytes))));
    Some(Budget {
        bytes: whole_mib(bytes),
        other_bytes: other,
        interval_bytes: interval.map(|[low, _]| [low, whole_mib(bytes)]),
        // What is sure to be needed is no headroom.
        headroom_bytes: own.headroom_bytes.map(|headroom| headroom.min(rounded(bytes - floor.min(bytes)))),
        ..own
    })
}

/// lowtide's own budgets of a run, where there is no swap and where there is some. The bottom line and the list of budgets both
/// show these.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OwnBudgets {
    /// Without swap.
    pub without_swap: Option<Budget>,
    /// With the swap that is known of, or else with as much as it takes; `None` where it would be hardly lower.
    pub with_swap: Option<Budget>,
    /// What to give it there: with swap only where there is some.
    pub chosen: Option<Budget>,
}

impl OwnBudgets {
    /// For this slowdown as a share of the time.
    #[must_use]
    pub fn of(known: &Known<'_>, slowdown: f64) -> Self {
        let swap_bytes = if known.swaps() { known.swap_bytes } else { f64::INFINITY };
        let without_swap = own(&Known { swap_bytes: 0.0, ..*known }, slowdown);
        let with_swap = own(&Known { swap_bytes, ..*known }, slowdown);
        let with_swap = with_swap.filter(|with| is_worthwhile(with, without_swap.as_ref()));
        Self { without_swap, with_swap, chosen: with_swap.filter(|_| known.swaps()).or(without_swap) }
    }
}

/// A limit with swap is worth stating from this share below the one without: a smaller saving is not worth a program that may behave
/// otherwise when memory is short. Node.js collected garbage all the time once 25 of its 484 MiB had been paged out, which it did
/// not do before, and took five times as long.
const WORTHWHILE: f64 = 0.1;

/// Whether a limit with swap says more than the one without.
fn is_worthwhile(with: &Budget, without: Option<&Budget>) -> bool {
    let below = |without: &Budget| float(with.bytes) < (1.0 - WORTHWHILE) * float(without.bytes);
    with.basis != Evidence::Peak && without.is_some_and(below)
}

/// Whether the kernel killed some process of it for want of memory.
#[must_use]
pub fn was_killed(rows: &[Usage]) -> bool {
    rows.iter().any(|row| row.oom_kills.is_some_and(|kills| kills > 0.0))
}

/// The kernel's memory for it: as charged, with the buffers of its sockets where these are counted apart, or else what is
/// known of its processes.
fn kernel_of(row: &Usage) -> Option<f64> {
    let known = || Some(row.page_table_bytes? + row.stack_bytes.unwrap_or(0.0));
    row.kernel_bytes.map(|kernel| kernel + row.socket_bytes.unwrap_or(0.0)).or_else(known)
}

/// The most memory of all kinds that it ever had, swapped out or not, as exactly as that was counted: by the kernel for its
/// cgroup, or else by ticks and for its largest process. With so much it runs as it did.
#[must_use]
pub fn peak(known: &Known<'_>) -> f64 {
    let (live, end) = (known.live(), known.meta.end.as_ref());
    let charged = most(live, |row| Some(row.cgroup_bytes? + row.swap_bytes.unwrap_or(0.0)));
    let exact = end.and_then(|end| end.cgroup_peak_bytes).map_or(0.0, float);
    if charged.max(exact) > 0.0 {
        return charged.max(exact);
    }
    let largest = end.and_then(|end| end.app_max_rss_bytes).map_or(0.0, float);
    let tables = most(live, kernel_of);
    let held = most(live, |row| Some(row.anon_bytes? + row.file_bytes.unwrap_or(0.0) + row.swap_bytes.unwrap_or(0.0)));
    held.max(largest) + tables
}

/// What has to stay in memory: with less, the kernel kills. Without swap that is all that has no file to go to. Of a target
/// whose start was not recorded it is what it held: how much a start takes is not known.
fn floor(known: &Known<'_>) -> f64 {
    let live = known.live();
    // What was swapped out when it was recorded has to be somewhere, too.
    let stays = most(live, |row| {
        let rest = [row.swap_bytes, row.shmem_bytes, kernel_of(row)].into_iter().flatten().sum::<f64>();
        Some(row.anon_bytes? + rest)
    });
    let differs = (RUNS_DIFFER * most(live, |row| row.processes).max(1.0)).min(MOST_RUNS_DIFFER);
    let stays = stays + unseen(known).max(differs * stays);
    // No more can be locked than there ever was.
    let locked = (most(live, |row| row.unevictable_bytes) + most(live, kernel_of)).min(peak(known));
    let floor = locked.max(stays - known.swap_bytes);
    if known.meta.starts_late() { floor.max(most(live, |row| row.cgroup_bytes)).max(resident(live)) } else { floor }
}

/// Bytes by which memory was higher between two ticks than at any of them, as far as that is known. A process may have come and
/// gone unseen, unless the largest was never larger than what was sampled of the only one: then it was page cache. Of a target
/// that ran before, the kernel's peak may be from any time.
fn unseen(known: &Known<'_>) -> f64 {
    if known.meta.starts_late() {
        return 0.0;
    }
    let (live, end) = (known.live(), known.meta.end.as_ref());
    let exact = end.and_then(|end| end.cgroup_peak_bytes).map_or(0.0, float);
    let above = (exact - most(live, |row| row.cgroup_bytes)).max(0.0);
    let (sampled, largest) = (most(live, |row| row.rss_bytes), end.and_then(|end| end.app_max_rss_bytes).map(float));
    let higher = largest.map(|largest| (largest - sampled).max(0.0));
    let (counted, processes) = (exact > 0.0, most(live, |row| row.processes));
    let alone = (0.5..1.5).contains(&processes);
    match higher {
        Some(higher) if !counted => higher,
        Some(higher) if alone && higher <= RUNS_DIFFER * sampled => higher.min(above),
        _ => above,
    }
}

fn seconds(known: &Known<'_>) -> f64 {
    known.live().iter().filter_map(|row| row.t_s).fold(0.0, f64::max)
}

/// What paging out, once, what does not fit takes, as shares of the time.
struct Once {
    /// To scan all that is held.
    scan: f64,
    /// For each byte: the cost of one page out and one refault.
    byte: f64,
    held: f64,
}

impl Once {
    /// `None` where nothing is paged out.
    fn of(known: &Known<'_>, held: f64) -> Option<Self> {
        let seconds = seconds(known);
        let share = |page_s: f64| page_s / float(PAGE) / seconds;
        (known.swaps() && seconds > 0.0).then(|| Self {
            scan: share(SCAN_S) * held,
            byte: share(known.costs.swap_s),
            held,
        })
    }

    fn lost(&self, bytes: f64) -> f64 {
        if bytes < self.held { self.scan + self.byte * (self.held - bytes) } else { 0.0 }
    }

    /// The least bytes with which no more than that is lost.
    fn least(&self, lost: f64) -> f64 {
        self.held - ((lost - self.scan) / self.byte).max(0.0)
    }
}

fn paged_out(known: &Known<'_>, held: f64, bytes: f64) -> f64 {
    Once::of(known, held).map_or(0.0, |once| once.lost(bytes))
}

/// The share that is predicted to be lost with so many bytes: of the run, to pages that come back and to paging out, once, what does
/// not fit; or, once it has started, of its work, if that is more.
fn lost<'a>(known: &'a Known<'_>, limits: &'a Limits) -> impl Fn(f64) -> f64 + 'a {
    let (started_s, of_work, held) = (known.started_s(), known.costs_of_work(), limits.held());
    move |bytes| {
        let run = limits.slowdown(bytes, &known.costs) + paged_out(known, held, bytes);
        run.max(limits.slowdown_after(started_s, bytes, &of_work))
    }
}

/// The least bytes with which no more than that share is lost.
fn least(known: &Known<'_>, limits: &Limits, slowdown: f64) -> f64 {
    let lost = lost(known, limits);
    limits.least_that(|bytes| lost(bytes) <= slowdown)
}

/// The least where pages were watched: the upper end of its interval.
fn of_pages(known: &Known<'_>, slowdown: f64, limits: &Limits, kernel: f64) -> Budget {
    let live = known.live();
    let least = least(known, limits, slowdown);
    let least = (least + pinned(live, known.swaps())).min(least.max(resident(live)));
    let half = spread(known, slowdown);
    let bytes = least + half.unwrap_or(0.0);
    let at = limits.tightest(least, &known.costs);
    let parts = at.map(|at| {
        let file = (at.file_share * bytes).min(bytes);
        [bytes - file, file, kernel]
    });
    let lost = lost(known, limits)(bytes);
    Budget {
        interval_bytes: half.map(|half| [rounded((least - half).max(0.0) + kernel), rounded(bytes + kernel)]),
        headroom_bytes: half.map(rounded),
        basis: Evidence::Pages,
        predicted_slowdown: Some(lost),
        ..budget(Mechanism::Lowtide, bytes + kernel, parts, at.map(|at| at.from_s))
    }
}

/// The same where windows are all there is: the curve's peak at the shortest idle age whose cost is within the slowdown even if
/// it is as high as it may be. What the widths of the windows leave open is headroom; it is no interval.
fn of_histograms(known: &Known<'_>, slowdown: f64, kernel: f64) -> Option<Budget> {
    let (curve, live, costs) = (known.curve?, known.live(), known.costs_of_work());
    let (needed, likely) = if known.swaps() {
        let held = resident(live).max(most(live, |row| row.demand_bytes));
        let kept = |of: fn(&Band) -> f64| paged(known, curve, slowdown, (held, of));
        (kept(|band| band.high), kept(|band| band.at).0)
    } else {
        let (_, heap) = highest(live, |row| row.anon_bytes)?;
        let highest_file = most(live, |row| row.file_bytes);
        let kept = |of: fn(&Band) -> f64| {
            let file = files(curve, of, slowdown, &costs);
            heap + (file + pinned(live, false)).min(file.max(highest_file))
        };
        ((kept(|band| band.high), of_files(curve, slowdown, &costs)), kept(|band| band.at))
    };
    let (bytes, lost) = needed;
    // Windows of steady use do not say what is used over and over while it grows.
    let bytes = bytes.max(used_growing(known)) + if known.swaps() { unread(known) } else { 0.0 };
    Some(Budget {
        headroom_bytes: Some(rounded(bytes - likely)),
        basis: Evidence::Histograms,
        predicted_slowdown: Some(lost),
        ..budget(Mechanism::Lowtide, bytes + kernel, None, None)
    })
}

/// The least that a curve knows where what was held can be paged out, and the share lost with it: of the run, to what comes back at
/// an idle age and to paging out, once, as much as the rest of the allowance has time for; or of its work, to what comes back.
fn paged(known: &Known<'_>, curve: &Curve, slowdown: f64, (held, of): (f64, fn(&Band) -> f64)) -> (f64, f64) {
    let (once, of_work) = (Once::of(known, held), known.costs_of_work());
    let with = |point: &Point| {
        let [run, work] = [&known.costs, &of_work].map(|costs| of(&point.slowdown(costs)));
        let fits = once.as_ref().map_or(0.0, |once| once.least(slowdown - run));
        let kept = point.kept_peak + pinned(known.live(), true);
        (work <= slowdown).then(|| (kept.max(fits).min(held.max(point.kept_peak)), [run, work]))
    };
    let least = curve.points.iter().filter_map(with).min_by(|a, b| a.0.total_cmp(&b.0));
    let (bytes, [run, work]) = least.unwrap_or((held, [0.0, 0.0]));
    (bytes, work.max(run + paged_out(known, held, bytes)))
}

/// The most that was used within the shortest window while the target grew, its start-up included. What it touched for the first
/// time counts: accessed bits do not say how often that was used within the window. Of a phase without a reading, all of that does.
fn used_growing(known: &Known<'_>) -> f64 {
    let growing = known.phases.iter().filter(|phase| phase.kind != PhaseKind::Steady);
    let in_phase = |phase: &Phase, t_s: f64| phase.from_s < t_s && t_s <= phase.to_s + 1e-9;
    let ticks = || known.ages.chunk_by(|a, b| a.t_s.to_bits() == b.t_s.to_bits());
    let used = |tick: &[AgeRow]| {
        let shortest = tick.iter().filter_map(|row| row.bin.max_s).reduce(f64::min)?;
        let within = tick.iter().filter(|row| row.bin.max_s.is_some_and(|max_s| max_s <= shortest));
        Some(within.map(|row| row.bin.size.bytes).sum::<f64>())
    };
    let of_phase = |phase: &Phase| {
        let readings = ticks().filter(|tick| tick.first().is_some_and(|row| in_phase(phase, row.t_s)));
        readings.filter_map(used).reduce(f64::max).or_else(|| phase.first_touched(known.live()))
    };
    growing.filter_map(of_phase).fold(0.0, f64::max)
}

/// The most by which more was held between two readings than at either of them: what was allocated and freed in between was never read, as
/// in a build whose compilers live for two seconds each. It counts as used.
fn unread(known: &Known<'_>) -> f64 {
    let is_reading = |row: &Usage| {
        let read = WINDOWS_S.iter().any(|window_s| row.working_set(*window_s).is_some());
        read || known.ages.binary_search_by(|age| age.t_s.total_cmp(&row.t_s.unwrap_or(f64::NAN))).is_ok()
    };
    let (mut most, mut before, mut between) = (0.0f64, None, 0.0f64);
    for row in known.live() {
        let Some(held) = row.held() else { continue };
        if is_reading(row) {
            // Before the first reading is the start-up, of which that is known.
            most = most.max(before.map_or(0.0, |before: f64| between - before.max(held)));
            (before, between) = (Some(held), 0.0);
        } else {
            between = between.max(held);
        }
    }
    most.max(before.map_or(0.0, |before| between - before))
}

/// Share of the time lost to files where there is no swap.
fn of_files(curve: &Curve, slowdown: f64, costs: &RefaultCosts) -> f64 {
    let only_files = RefaultCosts { swap_s: 0.0, ..*costs };
    curve.within(slowdown, &only_files).map_or(0.0, |point| point.slowdown(&only_files).high)
}

/// Half-width of the least's 95 % interval, by how it changes when a tenth of the watched pages is left out. `None` where
/// every page was watched, or too few.
fn spread(known: &Known<'_>, slowdown: f64) -> Option<f64> {
    let group = |episode: &Episode| mix(episode.key.page ^ u64::from(episode.key.space) << 40) % GROUPS;
    if known.episodes.iter().all(|episode| episode.weight_bytes <= float(PAGE)) {
        return None;
    }
    let without = |left_out: u64| {
        let rest: Vec<Episode> = known.episodes.iter().filter(|episode| group(episode) != left_out).cloned().collect();
        Limits::of(known.ages, &rest, known.tick_s, known.swaps()).map(|limits| least(known, &limits, slowdown))
    };
    let each: Vec<f64> = (0..GROUPS).map(without).collect::<Option<_>>()?;
    half_by_leaving_out(&each)
}

/// A budget of so many bytes, set when most memory was in use.
fn of_highest(known: &Known<'_>, bytes: f64) -> Budget {
    let row = highest(known.live(), |row| row.cgroup_bytes.or(row.rss_bytes)).map(|(row, _)| row);
    row.map_or_else(|| budget(Mechanism::Lowtide, bytes, None, None), |row| of_row(Mechanism::Lowtide, row, bytes))
}

/// Rounded up to MiB: what is pasted is what was calculated.
pub(super) fn whole_mib(value: f64) -> u64 {
    rounded(value).div_ceil(MIB) * MIB
}
