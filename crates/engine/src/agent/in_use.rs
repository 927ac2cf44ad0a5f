//! What a process of the background used when it last ran: the rest is paged out first, and it alone is fetched.
//!
//! What was paged out and is in memory again was used since. So a process that is paged out for the second time shows what
//! it used in between, and nothing needs to be sampled.

use lowtide_kernel::pagemap::{Entry, PageMap};
use lowtide_kernel::proc::{self, ProcessId};
use lowtide_kernel::root::{Error, Kernel, Result};
use lowtide_model::PAGE;

/// Bytes of a block: a page in use has it fetched as a whole.
const BLOCK: u64 = 64 << 10;

/// Ranges of addresses, ascending.
type Ranges = Vec<(u64, u64)>;

/// What the processes of one target used, as they were last paged out.
#[derive(Debug, Clone, Default)]
pub struct InUse(Vec<(ProcessId, Ranges)>);

impl InUse {
    /// Notes which parts of these ranges a process has used since it was paged out. Returns what it did not use, and what it used:
    /// all of it where nothing is paged out. Fails if its pages cannot be read.
    pub fn note(&mut self, kernel: &Kernel, pid: u32, ranges: &[(u64, u64)]) -> Result<(Ranges, Ranges)> {
        let process = proc::stat(kernel, pid)?.id;
        if proc::status(kernel, pid)?.swap == 0 {
            return Ok((Vec::new(), ranges.to_vec()));
        }
        let map = PageMap::open(kernel, pid)?;
        let mut used = Ranges::new();
        for (start, end) in ranges {
            let note = &mut |page: u64, entry: Entry| {
                if !entry.is_file() {
                    add(&mut used, page * PAGE);
                }
            };
            let failed = |error| Error::new("read", format!("/proc/{pid}/pagemap"), error);
            map.each_present(start / PAGE, end / PAGE, note).map_err(failed)?;
        }
        let parts = split(ranges, &used);
        self.0.push((process, used));
        Ok(parts)
    }

    /// What of these ranges a process did not use, and what it used; `None` where that is not known.
    pub fn parts(&self, kernel: &Kernel, pid: u32, ranges: &[(u64, u64)]) -> Option<(Ranges, Ranges)> {
        let process = proc::stat(kernel, pid).ok()?.id;
        let (_, used) = self.0.iter().find(|(of, _)| *of == process)?;
        Some(split(ranges, used))
    }
}

/// Adds the block of an address that is no lower than those before.
fn add(used: &mut Ranges, address: u64) {
    let start = address / BLOCK * BLOCK;
    match used.last_mut() {
        Some((_, end)) if *end >= start => *end = start + BLOCK,
        _ => used.push((start, start + BLOCK)),
    }
}

/// The parts of ranges that lie outside of others, and inside. All ascend.
fn split(ranges: &[(u64, u64)], used: &[(u64, u64)]) -> (Ranges, Ranges) {
    let (mut outside, mut inside) = (Ranges::new(), Ranges::new());
    for (start, end) in ranges {
        let mut at = *start;
        let first = used.partition_point(|(_, until)| until <= start);
        for (from, until) in used[first..].iter().take_while(|(from, _)| from < end) {
            let (from, until) = (*from.max(start), *until.min(end));
            if from > at {
                outside.push((at, from));
            }
            inside.push((from, until));
            at = until;
        }
        if at < *end {
            outside.push((at, *end));
        }
    }
    (outside, inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_in_use_are_cut_out_of_ranges() {
        let mut used = Ranges::new();
        [0, PAGE, 3 * BLOCK, 4 * BLOCK + PAGE, 9 * BLOCK].into_iter().for_each(|at| add(&mut used, at));
        assert_eq!(used, [(0, BLOCK), (3 * BLOCK, 5 * BLOCK), (9 * BLOCK, 10 * BLOCK)]);
        let (outside, inside) = split(&[(PAGE, 2 * BLOCK), (4 * BLOCK, 8 * BLOCK)], &used);
        assert_eq!(outside, [(BLOCK, 2 * BLOCK), (5 * BLOCK, 8 * BLOCK)]);
        assert_eq!(inside, [(PAGE, BLOCK), (4 * BLOCK, 5 * BLOCK)]);
    }

    /// Ascending ranges that do not overlap, from lengths and gaps.
    fn ascending() -> impl Strategy<Value = Ranges> {
        prop::collection::vec((0u64..9, 1u64..9), 0..12).prop_map(|steps| {
            let mut at = 0;
            let mut next = |(gap, length)| {
                let start = at + gap;
                at = start + length;
                (start, at)
            };
            steps.into_iter().map(&mut next).collect()
        })
    }

    proptest! {
        #[test]
        fn every_address_is_in_one_of_the_two(ranges in ascending(), used in ascending()) {
            let (outside, inside) = split(&ranges, &used);
            let holds = |ranges: &Ranges, at: u64| ranges.iter().filter(|(start, end)| (*start..*end).contains(&at)).count();
            for at in 0..220 {
                let (of, in_use) = (holds(&ranges, at), holds(&used, at));
                prop_assert_eq!(holds(&inside, at), of * in_use);
                prop_assert_eq!(holds(&outside, at), of * (1 - in_use));
            }
        }
    }
}
