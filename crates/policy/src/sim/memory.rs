//! Simulated memory: allocation, eviction, and swap.

use lowtide_model::PAGE_BYTES;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::units::{float, integer};

use super::load::{Load, Used};

/// Free memory below which the kernel reclaims by itself, and up to which it does: shares of all memory (the kernel's
/// own marks are of this order, mm/page_alloc.c, `watermark_scale_factor`).
const LOW: f64 = 0.01;
const HIGH: f64 = 0.02;

/// Pages that are read at once where it is known which are wanted (vm.page-cluster: two to the power of three).
const READ_AHEAD: f64 = 8.0;

/// CPU seconds to page out a page to zram where nothing else is said: of the order of compressing 4 KiB.
pub const EVICT_S: f64 = 5e-6;

/// Swap space.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Swap {
    /// Pages that it holds at most.
    pub capacity: u64,
    /// Pages that it holds.
    pub used: u64,
    /// It is in memory itself, compressed.
    pub zram: bool,
    /// Seconds until a page is back.
    pub in_s: f64,
}

/// The memory of the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatedMemory {
    /// Bytes in all.
    pub total: f64,
    /// Pages of workloads in it.
    pub resident: u64,
    /// Bytes in which zram keeps what was paged out.
    pub stored: f64,
    /// Swap for anonymous memory.
    pub swap: Swap,
    /// Seconds until a page of a file is read.
    pub disk_s: f64,
    /// CPU seconds that it takes to evict a page.
    pub out_s: f64,
}

/// Result of an eviction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Taken {
    /// Pages.
    pub pages: PerKind<u64>,
    /// CPU seconds.
    pub cpu_s: f64,
}

impl Taken {
    /// Pages of both kinds.
    pub fn all(&self) -> u64 {
        self.pages.total()
    }

    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.cpu_s += other.cpu_s;
    }
}

impl SimulatedMemory {
    /// Bytes that nothing is in. Below zero, there must be reclaim.
    pub fn free(&self) -> f64 {
        self.total - float(self.resident) * PAGE_BYTES - self.stored
    }

    /// Bytes to be reclaimed so that enough is free again; 0 while there is enough.
    pub fn short(&self) -> f64 {
        if self.free() < LOW * self.total { HIGH * self.total - self.free() } else { 0.0 }
    }

    /// Pages of swap that nothing is in.
    pub fn swap_free(&self) -> u64 {
        self.swap.capacity - self.swap.used
    }

    /// What is used comes into memory. Seconds that the workload waits for it.
    pub(super) fn bring(&mut self, load: &mut Load, used: Used) -> f64 {
        let part = &load.parts[used.part];
        let kind = part.kind;
        let (back, new) = (u64::from(used.back), u64::from(used.new));
        if kind == Kind::Anon {
            self.leave_swap(back, part.ratio);
        }
        let group = &mut load.groups[used.group];
        group.resident += used.back + used.new;
        group.out -= used.back;
        load.resident[kind] += back + new;
        load.out[kind] -= back;
        self.resident += back + new;
        float(back) * if kind == Kind::Anon { self.swap.in_s } else { self.disk_s }
    }

    /// Takes at most so many pages of a group.
    pub(super) fn evict(&mut self, load: &mut Load, part: usize, group: usize, pages: u64) -> Taken {
        let of = &load.parts[part];
        let anon = of.kind == Kind::Anon;
        let state = &mut load.groups[group];
        let room = if anon { self.swap_free() } else { u64::MAX };
        let taken = pages.min(u64::from(state.resident)).min(room);
        let few = u32::try_from(taken).unwrap_or(state.resident);
        state.resident -= few;
        state.out += few;
        load.resident[of.kind] -= taken;
        load.out[of.kind] += taken;
        self.resident -= taken;
        if anon {
            self.swap.used += taken;
            if self.swap.zram {
                self.stored += float(taken) * PAGE_BYTES / of.ratio;
            }
        }
        let mut pages = PerKind::default();
        pages[of.kind] = taken;
        // Clean pages of files are dropped for next to nothing.
        Taken { pages, cpu_s: if anon { float(taken) * self.out_s } else { 0.1 * float(taken) * self.out_s } }
    }

    /// Brings back at most so many pages that are paged out, entire groups. Seconds that it takes: a disk is asked for many at
    /// once.
    pub(super) fn fetch(&mut self, load: &mut Load, pages: u64) -> f64 {
        let places: Vec<(usize, usize)> = places(load);
        let mut left = pages;
        let mut cpu_s = 0.0;
        for (part, group) in
            places.into_iter().filter(|(part, _)| load.parts[*part].kind == Kind::Anon).collect::<Vec<_>>()
        {
            let back = load.groups[group].out;
            if back > 0 && u64::from(back) <= left {
                left -= u64::from(back);
                cpu_s += self.bring(load, Used { group, part, idle_s: None, back, new: 0 });
            }
        }
        if self.swap.zram { cpu_s } else { cpu_s / READ_AHEAD }
    }

    /// Evicts what has been idle for at least so long, oldest first; `None` = nothing of that kind.
    pub(super) fn evict_older(
        &mut self,
        load: &mut Load,
        now_s: f64,
        older_s: PerKind<Option<f64>>,
        pages: PerKind<u64>,
    ) -> Taken {
        let is_old =
            |part: usize, last_s: f64| older_s[load.parts[part].kind].is_some_and(|older_s| now_s - last_s >= older_s);
        let cold =
            load.each().enumerate().filter(|(_, (part, _, state))| state.resident > 0 && is_old(*part, state.last_s));
        let mut cold: Vec<(usize, usize, f64)> =
            cold.map(|(group, (part, _, state))| (part, group, state.last_s)).collect();
        cold.sort_by(|a, b| a.2.total_cmp(&b.2));
        let mut taken = Taken::default();
        for (part, group, _) in cold {
            let kind = load.parts[part].kind;
            let left = pages[kind] - taken.pages[kind];
            if left > 0 {
                taken.add(self.evict(load, part, group, left));
            }
        }
        taken
    }

    /// A group's memory is given back, wherever it is.
    pub(super) fn free_group(&mut self, load: &mut Load, part: usize, group: usize) {
        let of = &load.parts[part];
        let anon = of.kind == Kind::Anon;
        let state = &mut load.groups[group];
        let (resident, out) = (u64::from(state.resident), u64::from(state.out));
        (state.resident, state.out) = (0, 0);
        load.resident[of.kind] -= resident;
        load.out[of.kind] -= out;
        self.resident -= resident;
        if anon {
            self.leave_swap(out, of.ratio);
        }
    }

    /// Pages that compress so far are in swap no more.
    fn leave_swap(&mut self, pages: u64, ratio: f64) {
        self.swap.used -= pages;
        if self.swap.zram {
            self.stored = (self.stored - float(pages) * PAGE_BYTES / ratio).max(0.0);
        }
    }

    /// All of a workload's memory is given back.
    pub(super) fn free_all(&mut self, load: &mut Load) {
        let places: Vec<(usize, usize)> = places(load);
        for (part, group) in places {
            self.free_group(load, part, group);
        }
    }
}

/// Parts and groups of a workload, in their order.
fn places(load: &Load) -> Vec<(usize, usize)> {
    load.each().enumerate().map(|(group, (part, ..))| (part, group)).collect()
}

/// The oldest generation of a workload: what is evicted next. It is made again when it is used up, and what was used since
/// is passed over, so it is as exact as the kernel's lists are: oldest first when it was made.
#[derive(Debug, Clone, Default)]
pub struct Lru {
    /// Part, group, when it was last used; the next one is at the end.
    oldest: Vec<(usize, usize, f64)>,
}

impl Lru {
    /// Evicts at most so many pages, oldest first. Less where there is no room in swap, or nothing left.
    pub(super) fn evict(&mut self, memory: &mut SimulatedMemory, load: &mut Load, pages: u64) -> Taken {
        let mut taken = Taken::default();
        let mut refilled = false;
        while taken.all() < pages {
            let Some((part, group, last_s)) = self.oldest.pop() else {
                if refilled || !self.age(memory, load) {
                    break;
                }
                refilled = true;
                continue;
            };
            let state = &load.groups[group];
            if state.last_s > last_s || state.resident == 0 {
                continue;
            }
            let some = memory.evict(load, part, group, pages - taken.all());
            refilled &= some.all() == 0;
            if load.groups[group].resident > 0 && some.all() > 0 {
                self.oldest.push((part, group, last_s));
            }
            taken.add(some);
        }
        taken
    }

    /// File memory of the workload is evicted next, oldest first.
    pub(super) fn deactivate(&mut self, load: &Load) {
        let files =
            load.each().enumerate().filter(|(_, (_, part, state))| part.kind == Kind::File && state.resident > 0);
        let mut files: Vec<(usize, usize, f64)> =
            files.map(|(group, (part, _, state))| (part, group, state.last_s)).collect();
        files.sort_by(|a, b| b.2.total_cmp(&a.2));
        self.oldest.extend(files);
    }

    /// Finds the oldest quarter of what can go; false if nothing can.
    fn age(&mut self, memory: &SimulatedMemory, load: &Load) -> bool {
        let room = memory.swap_free() > 0;
        let can_go = load
            .each()
            .enumerate()
            .filter(|(_, (_, part, state))| state.resident > 0 && (room || part.kind == Kind::File));
        self.oldest = can_go.map(|(group, (part, _, state))| (part, group, state.last_s)).collect();
        self.oldest.sort_by(|a, b| b.2.total_cmp(&a.2));
        let kept = self.oldest.len().div_ceil(4);
        self.oldest.drain(..self.oldest.len() - kept);
        kept > 0
    }
}

/// Pages that hold so many bytes, rounded up.
pub(super) fn pages_of(bytes: f64) -> u64 {
    integer((bytes / PAGE_BYTES).ceil())
}
