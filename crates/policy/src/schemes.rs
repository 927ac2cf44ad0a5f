//! Operation schemes carried out from user space: which ranges of which process, when, and how much.
//!
//! A region that has been mostly idle may hold pages in use, and a mapping of which half is idle does not say which
//! half. So memory is taken in blocks, few at first, and refaults show: a block that does was in use and is left
//! alone for longer each time, and the bite grows as long as what is refaulted costs less than it may.

mod blocks;
mod growth;
pub mod settings;

use std::collections::BTreeMap;

use lowtide_model::scheme::{Action, Scheme};
use lowtide_model::units::{Span, float, index};

use self::blocks::Blocks;
use self::growth::Growth;
use crate::machine::{Block, Brake, Candidate, Order, Policy, RegionAction, RegionObservation};
use crate::worth::Worth;

/// Bounds that hold for all schemes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SchemeLimits {
    /// Share of the time that the target may lose to pages that are refaulted.
    pub slowdown: f64,
    /// Seconds that one page takes to come back.
    pub refault_s: f64,
    /// Nothing is taken while memory pressure is above.
    pub pressure: f64,
    /// Nothing is taken once less of the swap is free.
    pub swap_free: u64,
}

impl Default for SchemeLimits {
    /// One percent, at 10 µs a page, which is about what zram takes; `doctor --calibrate` measures it. Stalled for a tenth of
    /// the time is our own choice of where to stop.
    fn default() -> Self {
        Self { slowdown: 0.01, refault_s: 10e-6, pressure: 0.1, swap_free: 16 << 20 }
    }
}

const MIB: f64 = 1024.0 * 1024.0;
/// Bytes of the first bite: if all of it is in use, it costs 40 ms. And of one bite, at most: what a compressor does in a
/// fraction of a second.
const BITES: (f64, f64) = (16.0 * MIB, 128.0 * MIB);
/// The same where huge pages are made: memory in use loses nothing by it, and gains nothing while it waits. The largest is
/// half a second of copying where a huge page takes 4 ms.
const HUGE_BITES: (f64, f64) = (64.0 * MIB, 256.0 * MIB);
/// A mapping of which less is idle is taken to be in use; so few pages are not worth looking for.
const WORTH: f64 = 0.05;

/// What is known of one scheme.
#[derive(Debug, Clone)]
struct State {
    scheme: Scheme,
    blocks: Blocks,
    bite: f64,
    /// Something was taken since the bite was last changed: only then does what is refaulted say anything.
    took: bool,
    applied_s: Option<f64>,
    /// Start of the quota's interval, bytes and CPU seconds spent in it.
    spent: (f64, f64, f64),
    /// Watermarks: whether the scheme is active, and when they were last checked.
    active: bool,
    checked_s: Option<f64>,
    /// Pages that were refaulted so far.
    returned: u64,
    /// Pages that were evicted and not refaulted.
    out: f64,
    worth: Worth,
    /// What is refaulted costs more than it may.
    is_dear: bool,
    /// Seconds for which each brake held it.
    held_s: BTreeMap<Brake, f64>,
}

/// Carries out schemes.
#[derive(Debug, Clone)]
pub struct Operator {
    limits: SchemeLimits,
    states: Vec<State>,
    growth: Growth,
    last_s: f64,
}

impl Operator {
    /// An operator of these schemes.
    pub fn new(schemes: &[Scheme], limits: SchemeLimits, seed: u64) -> Self {
        let state = |(index, scheme): (u64, &Scheme)| State {
            scheme: scheme.clone(),
            blocks: Blocks::new(block_bytes(scheme.action), scheme.action == Action::Pageout, seed.wrapping_add(index)),
            bite: bites(scheme.action).0,
            took: false,
            applied_s: None,
            spent: (f64::NEG_INFINITY, 0.0, 0.0),
            active: scheme.watermarks.is_none(),
            checked_s: None,
            returned: 0,
            out: 0.0,
            worth: Worth::default(),
            is_dear: false,
            held_s: BTreeMap::new(),
        };
        let states = (0..).zip(schemes).map(state).collect();
        Self { limits, states, growth: Growth::default(), last_s: 0.0 }
    }

    /// Has one of the schemes say something else from now on; what is known of memory stays.
    pub fn set(&mut self, index: usize, scheme: Scheme) {
        if let Some(state) = self.states.get_mut(index) {
            state.scheme = scheme;
        }
    }

    /// Pages that were refaulted so far, by scheme.
    pub fn returned(&self) -> Vec<u64> {
        self.states.iter().map(|state| state.returned).collect()
    }

    /// Seconds for which each brake held a scheme, by scheme.
    pub fn held_s(&self) -> impl Iterator<Item = &BTreeMap<Brake, f64>> {
        self.states.iter().map(|state| &state.held_s)
    }

    /// Blocks whose pages may be refaulted.
    fn watched(&self) -> Vec<Block> {
        self.states.iter().flat_map(|state| state.blocks.watched()).collect()
    }

    /// The actions to take now.
    pub fn orders(&mut self, frame: &RegionObservation) -> Vec<Order> {
        let elapsed_s = (frame.now_s - self.last_s).max(0.0);
        self.last_s = frame.now_s;
        let grows = frame.demand.is_some_and(|demand| self.growth.goes_on(frame.now_s, demand));
        let mut orders = Vec::new();
        // Blocks are watched only until it shows whether they were idle; what is refaulted later costs as much.
        let takers = self.states.iter().filter(|state| state.scheme.action == Action::Pageout).count();
        let refaults = frame.refaults.map(|refaults| refaults / float(takers.max(1)));
        for (index, state) in self.states.iter_mut().enumerate() {
            let age_s = age_s(&state.scheme);
            for done in frame.done.iter().filter(|done| done.scheme == index) {
                state.spent.2 += done.cpu_s;
                state.took |= done.skipped.is_empty();
                state.blocks.skipped(frame.now_s, &done.skipped);
                // Nothing else makes pages go.
                if state.scheme.action == Action::Pageout {
                    state.out += done.blocks.iter().map(|block| f64::from(block.evicted)).sum::<f64>();
                    state.blocks.evicted(frame.now_s, age_s, &done.blocks);
                }
            }
            let back = state.blocks.refaulted(frame.now_s, age_s, &frame.back);
            state.returned += back;
            let back = refaults.map_or(float(back), |refaults| refaults.max(float(back)));
            state.adapt(back, elapsed_s, &self.limits);
            state.renew_quota(frame.now_s);
            let mut held = state.held_by(frame, &self.limits, grows);
            if held.is_none() && state.is_due(frame.now_s) {
                orders.extend(state.orders(index, frame));
                let is_spent = state.quota_left() <= 0.0;
                held = if is_spent { Some(Brake::Quota) } else { state.is_dear.then_some(Brake::Slowdown) };
            }
            if let Some(brake) = held {
                *state.held_s.entry(brake).or_default() += elapsed_s;
            }
        }
        orders
    }
}

impl Policy for Operator {
    type Frame = RegionObservation;
    type Action = RegionAction;

    fn decide(&mut self, frame: &RegionObservation) -> Vec<RegionAction> {
        let orders = self.orders(frame).into_iter().map(RegionAction::Advise);
        let orders: Vec<RegionAction> = orders.collect();
        orders.into_iter().chain(self.watched().into_iter().map(RegionAction::Count)).collect()
    }
}

/// Huge pages are made at once; pages are taken in pieces small enough that few are in use by chance.
fn block_bytes(action: Action) -> u64 {
    if action == Action::Collapse { 2 << 20 } else { 128 << 10 }
}

/// Bytes of a scheme's first bite, and of its largest.
fn bites(action: Action) -> (f64, f64) {
    if action == Action::Collapse { HUGE_BITES } else { BITES }
}

/// The idle time that the scheme asks for, at least that of one sample.
fn age_s(scheme: &Scheme) -> f64 {
    scheme.age.min.map_or(0.0, |age| age.0.as_secs_f64()).max(1.0)
}

impl State {
    /// Bites grow as long as what is refaulted costs less than it may, and shrink when it costs more.
    fn adapt(&mut self, back: f64, elapsed_s: f64, limits: &SchemeLimits) {
        if elapsed_s <= 0.0 {
            return;
        }
        let cost = back * limits.refault_s / elapsed_s;
        let grown = if std::mem::take(&mut self.took) { 2.0 } else { 1.0 };
        let of_ours = back.min(self.out);
        self.out -= of_ours;
        self.worth.observe(elapsed_s, of_ours * limits.refault_s, self.out * limits.refault_s);
        self.is_dear = cost > limits.slowdown;
        let change = if self.is_dear { (limits.slowdown / cost).max(0.25) } else { grown };
        let (first, largest) = bites(self.scheme.action);
        self.bite = (self.bite * change).clamp(first / 16.0, largest);
    }

    /// Whether the scheme is due, by its interval.
    fn is_due(&self, now_s: f64) -> bool {
        let interval_s = self.scheme.apply_interval.map_or(0.0, |interval| interval.0.as_secs_f64());
        self.applied_s.is_none_or(|applied| now_s - applied >= interval_s - 0.05)
    }

    /// What holds the scheme back: its watermarks, the limits, that it costs more than it is worth, or that the target grows.
    fn held_by(&mut self, frame: &RegionObservation, limits: &SchemeLimits, grows: bool) -> Option<Brake> {
        let now_s = frame.now_s;
        if let (Some(marks), Some(free)) = (self.scheme.watermarks, frame.free)
            && self.checked_s.is_none_or(|checked_s| now_s - checked_s >= marks.every.0.as_secs_f64())
        {
            self.checked_s = Some(now_s);
            let between = free >= marks.low.0 && free <= marks.high.0;
            self.active = between && (self.active || free < marks.mid.0);
        }
        let takes = self.scheme.action.takes();
        let pressed = takes && frame.pressure.is_some_and(|pressure| pressure > limits.pressure);
        let full = self.scheme.action == Action::Pageout && frame.swap_free.is_some_and(|free| free < limits.swap_free);
        if pressed {
            Some(Brake::Pressure)
        } else if full {
            Some(Brake::Swap)
        } else if !self.active {
            Some(Brake::Watermarks)
        } else if self.worth.is_dear(limits.slowdown) {
            Some(Brake::Slowdown)
        } else {
            (takes && grows).then_some(Brake::Growth)
        }
    }

    /// Begins the quota's next interval where it is due, whatever holds the scheme: one that began late would overlap two.
    fn renew_quota(&mut self, now_s: f64) {
        if now_s - self.spent.0 >= self.scheme.quota.every.0.as_secs_f64() {
            self.spent = (now_s, 0.0, 0.0);
        }
    }

    /// Bytes that the quota leaves for now.
    fn quota_left(&self) -> f64 {
        let quota = &self.scheme.quota;
        if quota.time.is_some_and(|time| self.spent.2 >= time.0.as_secs_f64()) {
            return 0.0;
        }
        quota.size.map_or(f64::INFINITY, |size| float(size.0) - self.spent.1)
    }

    /// The part of a candidate that the scheme is for, in bytes of memory; 0 if it is not for it.
    fn wanted(&self, candidate: &Candidate) -> f64 {
        let age = Span(std::time::Duration::from_secs_f64(candidate.age_s.max(0.0)));
        let len = candidate.end - candidate.start;
        // What is in huge pages needs none.
        if self.scheme.action == Action::Collapse && candidate.resident - candidate.huge < float(self.blocks.bytes) {
            return 0.0;
        }
        if self.scheme.fits(len, candidate.access_rate, age) {
            return candidate.resident;
        }
        // Part of it was idle all the time, wherever that is.
        let worth = candidate.idle >= WORTH * candidate.resident;
        if worth && self.scheme.fits(len, 0.0, age) { candidate.idle } else { 0.0 }
    }

    /// More urgent ones first, by the quota's weights.
    fn urgency(&self, candidate: &Candidate, most: (f64, f64)) -> f64 {
        let weights = self.scheme.quota.weights;
        let part = |value: f64, most: f64| if most > 0.0 { value / most } else { 0.0 };
        let rate = candidate.access_rate.min(1.0);
        let access = if self.scheme.action.prefers_cold() { 1.0 - rate } else { rate };
        f64::from(weights.size) * part(candidate.resident, most.0)
            + f64::from(weights.access) * access
            + f64::from(weights.age) * part(candidate.age_s, most.1)
    }

    fn orders(&mut self, number: usize, frame: &RegionObservation) -> Vec<Order> {
        let mut left = self.quota_left().min(self.bite);
        let mut wanted: Vec<(Candidate, f64)> =
            frame.candidates.iter().map(|candidate| (*candidate, self.wanted(candidate))).collect();
        wanted.retain(|(_, bytes)| *bytes > 0.0);
        let most = wanted.iter().fold((0.0f64, 0.0f64), |most, (candidate, _)| {
            (most.0.max(candidate.resident), most.1.max(candidate.age_s))
        });
        wanted.sort_by(|(a, _), (b, _)| self.urgency(b, most).total_cmp(&self.urgency(a, most)));
        let mut orders: Vec<Order> = Vec::new();
        for (candidate, bytes) in wanted {
            let block = float(self.blocks.bytes);
            let blocks = index(left.min(bytes) / block);
            let ranges = self.blocks.choose(&candidate, blocks, frame.now_s, self.again_s());
            let taken = float(ranges.len()) * block;
            if ranges.is_empty() {
                continue;
            }
            (left, self.spent.1) = (left - taken, self.spent.1 + taken);
            let idle = 100.0 * candidate.idle / candidate.resident.max(1.0);
            let reason = format!("{idle:.0} % of it idle for {:.1} s", candidate.age_s);
            let (action, pid) = (self.scheme.action, candidate.pid);
            match orders.last_mut() {
                Some(last) if last.pid == pid && last.reason == reason => last.ranges.extend(ranges),
                _ => {
                    let filters = self.scheme.filters.clone();
                    orders.push(Order { scheme: number, action, pid, ranges, filters, reason });
                }
            }
        }
        if !orders.is_empty() {
            self.applied_s = Some(frame.now_s);
        }
        orders
    }

    /// Seconds until a block is taken again for the same reason: its age begins again.
    fn again_s(&self) -> f64 {
        if self.scheme.action == Action::Pageout { age_s(&self.scheme) } else { 10.0 * age_s(&self.scheme) }
    }
}

#[cfg(test)]
mod tests;
