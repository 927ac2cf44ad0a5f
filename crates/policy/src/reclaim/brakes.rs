//! Brakes: what holds every rule back, whatever it wants.

use std::time::Duration;

use lowtide_model::kind::PerKind;
use lowtide_model::units::{Share, Size, Span, float};
use serde::{Deserialize, Serialize};

use super::losses::Lost;
use super::metric::{Metric, Says};
use crate::machine::{Brake, Observation, WorkloadState};
use crate::saved::{Resume, is_past};
use crate::schemes::SchemeLimits;

/// How hard they hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Brakes {
    /// Nothing is taken while some task stalls on memory for more than this share of the time: on the machine, or of the
    /// target.
    pub pressure: Share,
    /// Share of the time that a target may lose to what is refaulted. Beyond it, it is left alone for a time that doubles.
    pub slowdown: Share,
    /// Bytes that stay in memory of every target.
    pub floor: Size,
    /// Swap that is left alone.
    pub swap_free: Size,
    /// Bytes of one turn and target, at most; `None` = no bound.
    pub quota: Option<Size>,
    /// Share of one CPU that evicting may take, and of the CPU time that nothing else uses: what it takes beyond is the
    /// programs', and no more than `slowdown` of that.
    pub cpu: Share,
    /// Bytes a day that may be written to swap on a disk; `None` = no bound.
    pub writes: Option<Size>,
    /// Anonymous memory that takes more than this share of its size where it is kept is not worth it.
    pub kept: Share,
    /// By how much a target may perform worse, by its own metric, than while nothing is taken. Beyond it, it is left alone
    /// as it is for time lost.
    pub metric: Share,
}

impl Default for Brakes {
    /// Pressure, slowdown and swap as [`SchemeLimits`]. A tenth of a CPU is what compressing some 80 MiB a second takes. What
    /// zram cannot bring below 3/4 it stores as it is, or nearly so.
    fn default() -> Self {
        let limits = SchemeLimits::default();
        Self {
            pressure: Share(limits.pressure),
            slowdown: Share(limits.slowdown),
            floor: Size(0),
            swap_free: Size(limits.swap_free),
            quota: None,
            cpu: Share(0.1),
            writes: None,
            kept: Share(0.75),
            metric: Share(0.1),
        }
    }
}

impl Brakes {
    /// CPU seconds a second that evicting may take now.
    fn cpu_share(&self, frame: &Observation) -> f64 {
        let of_all = frame.cpu_busy.map(|busy| self.cpu.0 * (1.0 - busy) + self.slowdown.0);
        of_all.zip(frame.cpus).map_or(self.cpu.0, |(share, cpus)| (share * cpus).clamp(0.0, self.cpu.0))
    }
}

#[cfg(test)]
impl Brakes {
    /// The usual ones with a quota, if any.
    pub(crate) fn of_quota(quota: Option<u64>) -> Self {
        Self { quota: quota.map(Size), ..Self::default() }
    }
}

/// What may go of one target, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Most {
    pub anon: f64,
    pub file: f64,
    pub both: f64,
}

const NOTHING: Most = Most { anon: 0.0, file: 0.0, both: 0.0 };

/// Seconds for which a target is left alone at first, and at most.
const FIRST_S: f64 = 10.0;
const LONGEST_S: f64 = 600.0;
/// So little paged out says nothing of how far memory compresses: zsmalloc begins a page and more for each size of object. And it
/// is no loss.
const TELLING: f64 = 16.0 * 1_048_576.0;
/// Bytes of a trial.
const TRIAL: f64 = 8.0 * 1_048_576.0;
/// Time lost is judged over no less, seconds: a turn may come a moment after another, and a single page then counts for much.
const JUDGED_S: f64 = 1.0;

/// What holds one target.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Held {
    #[serde(skip)]
    last_s: Option<f64>,
    /// Not before.
    until_s: f64,
    /// For how long it was left alone last.
    for_s: f64,
    /// What is not judged yet: seconds, and seconds lost in them.
    #[serde(skip)]
    since: (f64, f64),
    /// When memory that hardly compresses was tried last.
    tried_s: Option<f64>,
    /// Its performance by its own metric, and whether that is why it was left alone last.
    #[serde(default)]
    metric: Metric,
    #[serde(default)]
    by_metric: bool,
    /// What holds it now.
    #[serde(skip)]
    pub(crate) by: Option<Brake>,
}

impl Resume for Held {
    fn resume(&mut self, now_s: f64) -> bool {
        (0.0..=LONGEST_S).contains(&self.for_s)
            && is_past(self.until_s, now_s + self.for_s)
            && self.metric.is_sound()
            && self.tried_s.resume(now_s)
    }
}

impl Held {
    /// Takes in the reading of the target and returns what may be evicted of it.
    pub(crate) fn most(&mut self, brakes: &Brakes, target: &WorkloadState, frame: &Observation, lost: &Lost) -> Most {
        let now_s = frame.now_s;
        let is_back = self.last_s.replace(now_s).is_some_and(|last_s| now_s < last_s);
        if is_back {
            // The clock was set back: what was to be waited for is waited for again, and not for ever.
            self.until_s = self.until_s.min(now_s + self.for_s);
        }
        self.since = (self.since.0 + lost.elapsed_s, self.since.1 + lost.lost_s);
        let seconds = self.since.0;
        let mut own = frame.reclaimed.iter().filter(|of| of.target == target.id);
        let taken = own.any(|of| of.bytes != PerKind::default());
        if taken {
            self.metric.taken(now_s);
        }
        let says = self.metric.observe(target.metric, brakes.metric.0, now_s);
        let judged = seconds >= JUDGED_S;
        let slow = judged && std::mem::take(&mut self.since).1 > brakes.slowdown.0 * seconds;
        if !judged && says != Says::Worse {
            // Too early to say.
        } else if slow || says == Says::Worse {
            // What happens while it is left alone was not caused by reclaim.
            if now_s >= self.until_s {
                self.for_s = (2.0 * self.for_s).clamp(FIRST_S, LONGEST_S);
                self.until_s = now_s + self.for_s;
                self.by_metric = !slow;
            }
        } else if now_s > self.until_s + 2.0 * self.for_s {
            (self.for_s, self.until_s) = (0.5 * self.for_s, now_s);
        }
        let pressed = target.pressure.is_some_and(|pressure| pressure > brakes.pressure.0);
        let why = if self.by_metric { Brake::Metric } else { Brake::Slowdown };
        let early = (says == Says::TooEarly).then_some(Brake::Metric);
        let left_alone = (now_s < self.until_s).then_some(why).or(early);
        self.by = if pressed { Some(Brake::Pressure) } else { left_alone };
        if self.by.is_some() {
            return NOTHING;
        }
        let spare = target.resident.total() - target.floor.max(bytes(brakes.floor));
        let both = spare.max(0.0).min(brakes.quota.map_or(f64::INFINITY, bytes));
        let kept = target.stored.filter(|_| target.swapped > TELLING);
        let in_vain = kept.is_some_and(|stored| stored > brakes.kept.0 * target.swapped);
        self.by = if spare <= 0.0 { Some(Brake::Floor) } else { in_vain.then_some(Brake::Incompressible) };
        let anon = if in_vain { self.trial(now_s).min(both) } else { both };
        Most { anon, file: both, both }
    }

    /// Memory that is evicted later may be of another kind: a little is tried now and then.
    fn trial(&mut self, now_s: f64) -> f64 {
        let tried_s = *self.tried_s.get_or_insert(now_s);
        if (tried_s..tried_s + LONGEST_S).contains(&now_s) {
            return 0.0;
        }
        self.tried_s = Some(now_s);
        TRIAL
    }
}

/// What holds for all targets together.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Common {
    #[serde(skip)]
    last_s: Option<f64>,
    /// Bytes of swap that are left for this turn.
    #[serde(skip)]
    swap: f64,
    /// CPU seconds beyond the share.
    cpu_debt_s: f64,
    /// Bytes that may be written now; fills up over the day. It begins empty, and is so after a kill, too: what was written
    /// since the last known turn is not known.
    #[serde(skip)]
    writes: Option<f64>,
    #[serde(skip)]
    on_disk: bool,
    /// What holds everything now.
    #[serde(skip)]
    pub(super) by: Option<Brake>,
}

const DAY_S: f64 = 24.0 * 3600.0;
/// Part of a day's writes that may be made at once.
const AT_ONCE: f64 = 1.0 / 24.0;
/// CPU seconds that may be taken at once: work comes in pieces.
const CPU_AT_ONCE_S: f64 = 0.2;
/// More is not owed after a restart: a file that is wrong must not stop it for long.
const CPU_OWED_S: f64 = 60.0;

impl Resume for Common {
    fn resume(&mut self, _: f64) -> bool {
        // What may be taken at once counts as taken.
        self.cpu_debt_s = self.cpu_debt_s.clamp(CPU_AT_ONCE_S, CPU_OWED_S);
        self.cpu_debt_s.is_finite()
    }
}

impl Common {
    /// Begins a turn.
    pub(super) fn begin(&mut self, brakes: &Brakes, frame: &Observation) {
        let elapsed_s = self.last_s.map_or(0.0, |last_s| (frame.now_s - last_s).max(0.0));
        self.last_s = Some(frame.now_s);
        self.on_disk = frame.swap_on_disk;
        self.swap = frame.swap_free.map_or(0.0, |free| bytes(Size(free.saturating_sub(brakes.swap_free.0))));
        let cpu_s: f64 = frame.reclaimed.iter().map(|reclaimed| reclaimed.cpu_s).sum();
        self.cpu_debt_s = (self.cpu_debt_s + cpu_s - brakes.cpu_share(frame) * elapsed_s).max(0.0);
        self.writes = brakes.writes.map(|a_day| {
            let at_once = AT_ONCE * bytes(a_day);
            let grown = (1.0 - AT_ONCE) * bytes(a_day) * elapsed_s / DAY_S;
            self.writes.map_or(0.0, |left| (left + grown).min(at_once))
        });
        let pressed = frame.pressure.is_some_and(|pressure| pressure > brakes.pressure.0);
        self.by = if pressed { Some(Brake::Pressure) } else { (self.cpu_debt_s > CPU_AT_ONCE_S).then_some(Brake::Cpu) };
    }

    /// What there is no room for, where nothing more can be paged out.
    pub(super) fn full(&self) -> Option<Brake> {
        let written = self.on_disk && self.writes.is_some_and(|left| left <= 0.0);
        if self.swap <= 0.0 { Some(Brake::Swap) } else { written.then_some(Brake::Writes) }
    }

    /// Bytes of anonymous memory for which there is room.
    pub(super) fn anon_left(&self) -> f64 {
        let writes = self.writes.filter(|_| self.on_disk).unwrap_or(f64::INFINITY);
        self.swap.min(writes).max(0.0)
    }

    /// So many bytes of it are taken.
    pub(super) fn takes(&mut self, anon: f64) {
        self.swap -= anon;
        if self.on_disk {
            self.writes = self.writes.map(|left| left - anon);
        }
    }
}

fn bytes(size: Size) -> f64 {
    float(size.0)
}

/// A time, for settings.
pub(super) fn seconds(seconds: u64) -> Span {
    Span(Duration::from_secs(seconds))
}
