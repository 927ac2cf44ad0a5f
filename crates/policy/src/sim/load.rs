//! Workloads: what they hold, and when they run.

use lowtide_model::PAGE_BYTES;
use lowtide_model::kind::PerKind;
use lowtide_model::random::Random;
use lowtide_model::target::TargetId;
use lowtide_model::units::float;

pub use super::part::{AccessPattern, Part};
use super::part::{number, place};

/// Address of a workload's first part; the next part lies [`PART_BYTES`] higher.
pub(super) const BASE: u64 = 1 << 44;
/// Room between two parts of a workload.
pub(super) const PART_BYTES: u64 = 1 << 42;

/// Pages that are used together.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Pages in memory.
    pub resident: u32,
    /// Pages that were there and have been taken: in swap, or only on disk.
    pub out: u32,
    /// When it was last used, seconds of the machine's clock.
    pub last_s: f64,
    /// When it will be used next, seconds of the workload's clock.
    next_s: f64,
}

/// What a workload asked of the machine: bounds of its memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryLimits {
    /// memory.max: beyond it, it reclaims from itself, and is killed if that does not help.
    pub max: f64,
    /// memory.high: beyond it, it reclaims from itself.
    pub high: f64,
    /// memory.low: not reclaimed below while there is anything else.
    pub low: f64,
    /// memory.min: never reclaimed below.
    pub min: f64,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { max: f64::INFINITY, high: f64::INFINITY, low: 0.0, min: 0.0 }
    }
}

/// When a workload is in the foreground: from a time on, for so long, every so often. Seconds since it started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Foreground {
    /// The first time.
    pub from_s: f64,
    /// For so long.
    pub lasts_s: f64,
    /// From one time to the next.
    pub every_s: f64,
}

impl Foreground {
    fn holds(&self, t_s: f64) -> bool {
        t_s >= self.from_s && self.since_s(t_s) < self.lasts_s
    }

    /// Seconds since it came to the foreground.
    fn since_s(&self, t_s: f64) -> f64 {
        (t_s - self.from_s) % self.every_s.max(1e-9)
    }
}

/// A running workload.
#[derive(Debug, Clone)]
pub struct Load {
    /// Which.
    pub id: TargetId,
    /// Process id: given to another once it has gone.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// CPUs that it uses while it runs.
    pub cpus: f64,
    /// Bounds of its memory.
    pub limits: MemoryLimits,
    /// Policies must leave it alone.
    pub protected: bool,
    /// When it starts, by the machine's clock.
    pub start_s: f64,
    /// When it ends, by the machine's clock.
    pub stop_s: f64,
    /// Seconds of its own clock after which its work is done.
    pub work_s: f64,
    /// When its work was done, by the machine's clock.
    pub done_s: Option<f64>,
    /// Bytes that are protected for a time, and until when.
    pub granted: (f64, f64),
    /// Bytes below which it is kept for a time, and until when.
    pub limited: (f64, f64),
    /// Until when it is paused.
    pub paused_until_s: f64,
    /// When it is in the foreground; in the background it does nothing. `None` = always.
    pub foreground: Option<Foreground>,
    /// Its memory.
    pub parts: Vec<Part>,
    /// Groups of all parts, part by part.
    pub groups: Vec<Group>,
    /// Its own clock: seconds for which it ran.
    pub clock_s: f64,
    /// Seconds that it must still wait for memory.
    pub debt_s: f64,
    /// Pages in memory.
    pub resident: PerKind<u64>,
    /// Pages evicted and not back.
    pub out: PerKind<u64>,
    /// It has ended, or was killed.
    pub gone: bool,
    /// Next use by its own clock: steps before it need not visit the groups.
    due_s: f64,
    /// Next time a part is freed, by its own clock.
    ends_s: f64,
}

/// A group that is used: which, and when it was used last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Used {
    pub group: usize,
    pub part: usize,
    pub idle_s: Option<f64>,
    pub back: u32,
    pub new: u32,
}

impl Load {
    /// A workload that has not run yet.
    pub fn new(id: u64, name: impl Into<String>, mut parts: Vec<Part>) -> Self {
        let mut first = 0;
        for part in &mut parts {
            part.first = first;
            first += place(part.groups);
        }
        let group = |next_s: f64| Group { resident: 0, out: 0, last_s: 0.0, next_s };
        let groups = parts.iter().flat_map(|part| (0..part.groups).map(move |at| group(part.first_s(at)))).collect();
        Self {
            id: TargetId::Cgroup(id),
            pid: u32::try_from(id % (1 << 22)).unwrap_or(0) + 1,
            name: name.into(),
            cpus: 1.0,
            limits: MemoryLimits::default(),
            protected: false,
            start_s: 0.0,
            stop_s: f64::INFINITY,
            work_s: f64::INFINITY,
            done_s: None,
            granted: (0.0, 0.0),
            limited: (f64::INFINITY, 0.0),
            paused_until_s: 0.0,
            foreground: None,
            parts,
            groups,
            clock_s: 0.0,
            debt_s: 0.0,
            resident: PerKind::default(),
            out: PerKind::default(),
            gone: false,
            due_s: 0.0,
            ends_s: 0.0,
        }
    }

    /// Whether it runs at that time.
    pub fn runs(&self, now_s: f64) -> bool {
        !self.gone && self.done_s.is_none() && (self.start_s..self.stop_s).contains(&now_s)
    }

    /// Whether it waits for its turn at that time.
    pub fn is_paused(&self, now_s: f64) -> bool {
        now_s < self.paused_until_s
    }

    /// Bytes that are never reclaimed from it at that time: memory.min.
    pub(super) fn min_at(&self, now_s: f64) -> f64 {
        let (bytes, until_s) = self.granted;
        if now_s < until_s { self.limits.min.max(bytes) } else { self.limits.min }
    }

    /// Bytes beyond which it reclaims from itself at that time: its limits, as memory.high.
    pub(super) fn high_at(&self, now_s: f64) -> f64 {
        let (bytes, until_s) = self.limited;
        let limit = self.limits.max.min(self.limits.high);
        if now_s < until_s { limit.min(bytes) } else { limit }
    }

    /// Whether it is in the background at that time.
    pub fn is_background(&self, now_s: f64) -> bool {
        self.foreground.is_some_and(|foreground| !foreground.holds(now_s - self.start_s))
    }

    /// For how long it has been in the background, seconds; `None` while it is not, or has nothing in memory.
    pub(super) fn away_s(&self, now_s: f64) -> Option<f64> {
        let foreground = self.foreground.filter(|_| self.is_background(now_s) && self.bytes() > 0.0)?;
        Some(foreground.since_s(now_s - self.start_s) - foreground.lasts_s)
    }

    /// Whether it was killed and is to be in the foreground: it is started again.
    pub(super) fn is_wanted(&self, now_s: f64) -> bool {
        self.gone && self.foreground.is_some_and(|foreground| foreground.holds(now_s - self.start_s))
    }

    /// Starts it again: all is as when it ran for the first time.
    pub(super) fn restart(&mut self) {
        let mut parts = std::mem::take(&mut self.parts);
        for part in parts.iter_mut().filter(|part| part.again_s.is_finite()) {
            part.shift(-(part.from_s / part.again_s).floor() * part.again_s);
        }
        let new = Self::new(u64::from(self.id), "", parts);
        (self.parts, self.groups) = (new.parts, new.groups);
        (self.clock_s, self.debt_s, self.due_s, self.ends_s, self.gone) = (0.0, 0.0, 0.0, 0.0, false);
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> f64 {
        float(self.resident.total()) * PAGE_BYTES
    }

    /// Bytes of files in memory.
    pub(super) fn file_bytes(&self) -> f64 {
        float(self.resident.file) * PAGE_BYTES
    }

    /// Groups of a part.
    pub(super) fn groups_of(&self, part: &Part) -> &[Group] {
        &self.groups[part.first..part.first + place(part.groups)]
    }

    /// Each group with its part and the part's index.
    pub fn each(&self) -> impl Iterator<Item = (usize, &Part, &Group)> {
        let parts = self.parts.iter().enumerate();
        let of = parts.flat_map(|(at, part)| (0..part.groups).map(move |_| (at, part)));
        of.zip(&self.groups).map(|((at, part), group)| (at, part, group))
    }

    /// First byte of a group, and one past its last.
    pub fn range_of(&self, part: usize, group: usize) -> (u64, u64) {
        let bytes = u64::from(self.parts[part].group_pages) * lowtide_model::PAGE;
        let start = BASE + number(part) * PART_BYTES + number(group - self.parts[part].first) * bytes;
        (start, start + bytes)
    }

    /// The part and group that hold an address.
    pub fn group_at(&self, address: u64) -> Option<(usize, usize)> {
        let part = usize::try_from(address.checked_sub(BASE)? / PART_BYTES).ok()?;
        let of = self.parts.get(part)?;
        let page = (address - BASE) % PART_BYTES / lowtide_model::PAGE;
        let group = page / u64::from(of.group_pages.max(1));
        (group < u64::from(of.groups)).then(|| (part, of.first + usize::try_from(group).unwrap_or(0)))
    }

    /// Runs for so many seconds of its own clock: groups that are used, with what must come. `now_s` is the machine's.
    pub(super) fn run(&mut self, seconds: f64, now_s: f64, random: &mut Random, used: &mut Vec<Used>) {
        used.clear();
        self.clock_s += seconds;
        if self.clock_s < self.due_s {
            return;
        }
        let clock_s = self.clock_s;
        self.due_s = f64::INFINITY;
        let mut group = 0;
        for (part, of) in self.parts.iter().enumerate() {
            if of.until_s <= clock_s {
                group += place(of.groups);
                continue;
            }
            for at in 0..of.groups {
                let state = &mut self.groups[group];
                if state.next_s <= clock_s {
                    let is_new = state.resident + state.out == 0;
                    let idle_s = (!is_new).then_some(now_s - state.last_s);
                    let new = if is_new { of.group_pages } else { 0 };
                    used.push(Used { group, part, idle_s, back: state.out, new });
                    state.last_s = now_s;
                    state.next_s = of.next_s(at, clock_s, random);
                }
                self.due_s = self.due_s.min(state.next_s);
                group += 1;
            }
        }
    }

    /// Groups that are freed by now, with their parts. Those that come again are ready to.
    pub(super) fn ended(&mut self) -> Vec<(usize, usize)> {
        let clock_s = self.clock_s;
        if clock_s < self.ends_s {
            return Vec::new();
        }
        let mut ended = Vec::new();
        self.ends_s = f64::INFINITY;
        for (at, part) in self.parts.iter_mut().enumerate() {
            if part.until_s <= clock_s {
                ended.extend((part.first..part.first + place(part.groups)).map(|of| (at, of)));
                if part.again_s.is_finite() {
                    part.shift(part.again_s);
                    for of in 0..part.groups {
                        self.groups[part.first + place(of)].next_s = part.first_s(of);
                        self.due_s = self.due_s.min(part.first_s(of));
                    }
                }
            }
            if part.until_s > clock_s {
                self.ends_s = self.ends_s.min(part.until_s);
            }
        }
        ended
    }
}
