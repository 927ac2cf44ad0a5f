//! The accounting: when each granule of each area was last touched, and the working sets and idle ages that follow. The
//! areas themselves are not read for it.

use crate::units::{PAGE, usize_of};

/// Idle ages that are counted, in seconds.
pub const AGES: [u32; 8] = [1, 2, 5, 10, 20, 30, 60, 120];

/// Windows for which a working set is given, in seconds; each is one of [`AGES`].
pub const WINDOWS: [u32; 5] = [1, 5, 10, 30, 60];

/// Granules counted at once: few enough to stay in the first-level cache for all ages.
const BLOCK: usize = 512;

/// A moment, in milliseconds since the program's start plus one: 0 is left for "never".
pub type Stamp = u32;

/// The stamp of a moment `ns` nanoseconds after the program's start. Stands still after 49 days.
pub fn stamp_of(ns: u64) -> Stamp {
    u32::try_from(ns / 1_000_000 + 1).unwrap_or(u32::MAX)
}

/// The last touch of every granule of one area.
#[derive(Debug)]
pub struct TouchLedger {
    last: Vec<Stamp>,
    shift: u32,
}

impl TouchLedger {
    /// For an area of `bytes` bytes of which nothing was touched, counted in base pages.
    pub fn new(bytes: usize) -> Self {
        TouchLedger { last: vec![0; bytes.div_ceil(PAGE)], shift: PAGE.trailing_zeros() }
    }

    /// Counts in larger granules from now on, of `granule` bytes (a power of two): each was touched when the latest of
    /// its parts was.
    pub fn coarsen(&mut self, granule: usize) {
        let parts = granule >> self.shift;
        self.last = self.last.chunks(parts).map(|c| c.iter().copied().max().unwrap_or(0)).collect();
        self.shift = granule.trailing_zeros();
    }

    pub fn granule(&self) -> usize {
        1 << self.shift
    }

    /// Notes a touch of the byte at `offset`; returns whether it was the granule's first.
    #[inline]
    pub fn touch(&mut self, offset: usize, now: Stamp) -> bool {
        let last = &mut self.last[offset >> self.shift];
        std::mem::replace(last, now) == 0
    }

    /// Addresses of this table itself, extended to page boundaries.
    pub fn own_memory(&self) -> [usize; 2] {
        let start = self.last.as_ptr().addr();
        let end = start + size_of_val(&self.last[..]);
        [start / PAGE * PAGE, end.next_multiple_of(PAGE)]
    }
}

/// Ascending ranges of addresses, adjacent ones merged, up to a limit.
#[derive(Debug, Default)]
pub struct Ranges {
    list: Vec<[usize; 2]>,
    over: bool,
}

impl Ranges {
    fn clear(&mut self) {
        self.list.clear();
        self.over = false;
    }

    fn push(&mut self, start: usize, end: usize, limit: usize) {
        let full = self.list.len() >= limit;
        match self.list.last_mut() {
            Some(last) if last[1] == start => last[1] = end,
            _ if full => self.over = true,
            _ => self.list.push([start, end]),
        }
    }

    /// The ranges, or `None` if there are more than the limit.
    pub fn get(&self) -> Option<&[[usize; 2]]> {
        (!self.over).then_some(&self.list[..])
    }
}

/// The sums over all ledgers at one moment.
#[derive(Debug)]
pub struct Account {
    cuts: [Stamp; AGES.len()],
    limit: usize,
    pub resident: usize,
    within: [usize; AGES.len()],
    /// Where the bytes touched within the last second are.
    pub hot: Ranges,
}

impl Account {
    /// An empty account that keeps at most `limit` hot ranges.
    pub fn new(limit: usize) -> Self {
        Account { cuts: [0; AGES.len()], limit, resident: 0, within: [0; AGES.len()], hot: Ranges::default() }
    }

    /// Empties the account, for the moment `now`.
    pub fn begin(&mut self, now: Stamp) {
        // Idle for less than `age` means: touched after the cut. Nothing untouched (0) is after any cut.
        self.cuts = AGES.map(|age| now.saturating_sub(age * 1000));
        self.resident = 0;
        self.within = [0; AGES.len()];
        self.hot.clear();
    }

    /// Adds an area whose first byte is at `start`.
    pub fn add(&mut self, ledger: &TouchLedger, start: usize) {
        let granule = ledger.granule();
        let mut at = start;
        for block in ledger.last.chunks(BLOCK) {
            self.resident += count_after(block, 0) * granule;
            for (within, cut) in self.within.iter_mut().zip(self.cuts) {
                *within += count_after(block, cut) * granule;
            }
            self.add_hot(block, at, granule);
            at += block.len() * granule;
        }
    }

    fn add_hot(&mut self, block: &[Stamp], at: usize, granule: usize) {
        let count = if self.hot.over { 0 } else { count_after(block, self.cuts[0]) };
        if count == block.len() {
            self.hot.push(at, at + count * granule, self.limit);
        } else if count > 0 {
            for (n, _) in block.iter().enumerate().filter(|(_, last)| **last > self.cuts[0]) {
                let start = at + n * granule;
                self.hot.push(start, start + granule, self.limit);
            }
        }
    }

    /// Bytes touched within the last `seconds`, one of [`AGES`].
    pub fn working_set(&self, seconds: u32) -> usize {
        AGES.iter().position(|&age| age == seconds).map_or(0, |n| self.within[n])
    }

    /// Bytes once touched but not within the last `seconds`, one of [`AGES`].
    pub fn cold(&self, seconds: u32) -> usize {
        self.resident - self.working_set(seconds)
    }
}

/// How many stamps are later than `cut`. One plain loop, which the compiler turns into vector compares.
fn count_after(block: &[Stamp], cut: Stamp) -> usize {
    usize_of(block.iter().map(|&last| u32::from(last > cut)).sum::<u32>().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(ledger: &TouchLedger, now_ms: u64, limit: usize) -> Account {
        let mut account = Account::new(limit);
        account.begin(stamp_of(now_ms * 1_000_000));
        account.add(ledger, 0x10_0000);
        account
    }

    fn at_ms(ms: u64) -> Stamp {
        stamp_of(ms * 1_000_000)
    }

    #[test]
    fn every_window_is_an_age() {
        assert!(WINDOWS.iter().all(|w| AGES.contains(w)));
    }

    #[test]
    fn untouched_memory_is_neither_resident_nor_cold() {
        let account = account(&TouchLedger::new(1 << 20), 500, 10);
        assert_eq!(account.resident, 0);
        assert!(AGES.iter().all(|&a| account.cold(a) == 0 && account.working_set(a) == 0));
        assert_eq!(account.hot.get(), Some(&[][..]));
    }

    #[test]
    fn windows_and_ages_add_up() {
        let mut ledger = TouchLedger::new(100 * PAGE);
        for page in 0..50 {
            assert!(ledger.touch(page * PAGE + 8, at_ms(0)));
        }
        for page in 10..20 {
            assert!(!ledger.touch(page * PAGE, at_ms(9_500)));
        }
        let account = account(&ledger, 10_000, 10);
        assert_eq!(account.resident, 50 * PAGE);
        assert_eq!(account.working_set(1), 10 * PAGE);
        assert_eq!(account.cold(1), 40 * PAGE);
        // Touched exactly ten seconds ago is idle for ten seconds, not within them.
        assert_eq!(account.cold(10), 40 * PAGE);
        assert_eq!(account.working_set(30), 50 * PAGE);
        assert_eq!(account.cold(20), 0);
        let base = 0x10_0000;
        assert_eq!(account.hot.get(), Some(&[[base + 10 * PAGE, base + 20 * PAGE]][..]));
    }

    #[test]
    fn hot_ranges_merge_across_blocks_and_areas_start_again() {
        let mut ledger = TouchLedger::new(4 * BLOCK * PAGE);
        for page in BLOCK - 3..3 * BLOCK + 1 {
            ledger.touch(page * PAGE, at_ms(100));
        }
        let mut account = account(&ledger, 200, 10);
        let base = 0x10_0000;
        let one = [base + (BLOCK - 3) * PAGE, base + (3 * BLOCK + 1) * PAGE];
        assert_eq!(account.hot.get(), Some(&[one][..]));
        account.add(&ledger, 0x1000_0000);
        assert_eq!(account.hot.get().map(<[_]>::len), Some(2));
        assert_eq!(account.resident, 2 * (2 * BLOCK + 4) * PAGE);
    }

    #[test]
    fn too_many_ranges_are_none_at_all() {
        let mut ledger = TouchLedger::new(100 * PAGE);
        for page in (0..100).step_by(2) {
            ledger.touch(page * PAGE, at_ms(100));
        }
        assert_eq!(account(&ledger, 200, 50).hot.get().map(<[_]>::len), Some(50));
        let account = account(&ledger, 200, 49);
        assert_eq!(account.hot.get(), None);
        assert_eq!(account.working_set(1), 50 * PAGE);
    }

    #[test]
    fn coarse_granules_take_the_latest_touch() {
        let mut ledger = TouchLedger::new(8 << 20);
        ledger.touch(5 << 20, at_ms(1000));
        ledger.touch((5 << 20) + PAGE, at_ms(2000));
        ledger.coarsen(2 << 20);
        assert_eq!(ledger.granule(), 2 << 20);
        let account = account(&ledger, 2500, 10);
        assert_eq!(account.working_set(1), 2 << 20);
        let base = 0x10_0000;
        assert_eq!(account.hot.get(), Some(&[[base + (4 << 20), base + (6 << 20)]][..]));
    }

    #[test]
    fn the_table_says_where_it_is() {
        let [start, end] = TouchLedger::new(64 << 20).own_memory();
        assert!(end - start >= 64 << 10 && start.is_multiple_of(PAGE));
    }
}
