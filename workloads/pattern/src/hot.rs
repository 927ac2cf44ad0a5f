//! Hot sets: which bytes of an area a pass touches. Pure arithmetic on offsets.

use std::ops::Range;
use std::rc::Rc;

use lowtide_model::units::count;

use crate::rng::Rng;
use crate::units::{PAGE, usize_of};

const SECOND: u128 = 1_000_000_000;

/// The rule that gives the hot set at any time.
#[derive(Debug, PartialEq)]
pub enum HotShape {
    /// The same set throughout.
    Fixed(HotSet),
    /// A prefix that grows from nothing.
    Grow {
        /// Bytes added each second.
        per_second: usize,
        /// Where growth ends.
        limit: usize,
        /// How much of the prefix is hot.
        part: Grown,
    },
    /// A window that moves at fixed times.
    Window {
        /// How far it moves.
        step: usize,
        len: usize,
        /// How many positions it has.
        positions: usize,
        /// Nanoseconds between moves.
        every_ns: u64,
        /// Whether it turns back at the ends rather than starting again.
        bounce: bool,
    },
}

/// How much of a growing prefix is hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grown {
    All,
    /// Its last so many bytes.
    Last(usize),
    /// What was added since the previous pass.
    New,
}

/// The bytes of one pass, as one sequence of `len()` bytes: offsets in it are called logical.
#[derive(Debug, Clone, PartialEq)]
pub enum HotSet {
    /// Equal pieces. A contiguous range is one piece.
    Pieces {
        /// First byte of the first one in the area.
        start: usize,
        count: usize,
        /// From the start of one to the start of the next.
        spacing: usize,
        len: usize,
    },
    /// These pages, by number and ascending.
    Pages(Rc<[u32]>),
}

impl HotShape {
    /// A random subset of exactly `wanted` of the `pages` pages, every subset being equally likely.
    pub fn random(pages: u32, wanted: u32, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut left = wanted;
        // Each page in turn is chosen with probability (pages still wanted) / (pages still to come).
        let chosen = (0..pages).filter(|page| {
            let chosen = rng.below(u64::from(pages - page)) < u64::from(left);
            left -= u32::from(chosen);
            chosen
        });
        Self::Fixed(HotSet::Pages(chosen.collect()))
    }

    /// The hot set of the pass that starts `now` nanoseconds into the phase, the previous pass having started at
    /// `previous`.
    pub fn at(&self, now: u64, previous: u64) -> HotSet {
        match *self {
            Self::Fixed(ref set) => set.clone(),
            Self::Grow { per_second, limit, part } => {
                let end = grown(per_second, limit, now);
                let start = match part {
                    Grown::All => 0,
                    Grown::Last(window) => end.saturating_sub(window),
                    Grown::New => grown(per_second, limit, previous).min(end),
                };
                HotSet::range(start, end - start)
            }
            Self::Window { step, len, positions, every_ns, bounce } => {
                HotSet::range(step * position(usize_of(now / every_ns), positions, bounce), len)
            }
        }
    }
}

/// Length of a growing prefix, in complete pages.
fn grown(per_second: usize, limit: usize, now: u64) -> usize {
    let bytes = u128::from(count(per_second)) * u128::from(now) / SECOND;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(limit);
    bytes - bytes % PAGE
}

/// The position of a window after `moves` moves.
fn position(moves: usize, positions: usize, bounce: bool) -> usize {
    if !bounce || positions < 2 {
        return moves % positions;
    }
    let last = positions - 1;
    let at = moves % (2 * last);
    at.min(2 * last - at)
}

impl HotSet {
    pub fn range(start: usize, len: usize) -> Self {
        Self::Pieces { start, count: 1, spacing: len, len }
    }

    fn len(&self) -> usize {
        match self {
            Self::Pieces { count, len, .. } => count * len,
            Self::Pages(pages) => pages.len() * PAGE,
        }
    }

    /// How many touches one pass takes.
    pub fn touches(&self, stride: usize) -> usize {
        self.len().div_ceil(stride)
    }

    /// The offset in the area of the logical byte `logical`, and how many bytes from it on are contiguous.
    pub fn locate(&self, logical: usize) -> (usize, usize) {
        let (start, len) = match self {
            Self::Pieces { start, spacing, len, .. } => (start + logical / len * spacing, *len),
            Self::Pages(pages) => (usize_of(pages[logical / PAGE].into()) * PAGE, PAGE),
        };
        (start + logical % len, len - logical % len)
    }

    /// Calls `touch(offset, count)` for each contiguous run of these touches of a pass.
    pub fn runs<E>(
        &self,
        stride: usize,
        touches: Range<usize>,
        mut touch: impl FnMut(usize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = touches.start;
        while next < touches.end {
            let (offset, contiguous) = self.locate(next * stride);
            let count = contiguous.div_ceil(stride).min(touches.end - next);
            touch(offset, count)?;
            next += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn offsets(set: &HotSet, stride: usize) -> Vec<usize> {
        let mut all = Vec::new();
        let done: Result<(), ()> = set.runs(stride, 0..set.touches(stride), |offset, count| {
            all.extend((0..count).map(|n| offset + n * stride));
            Ok(())
        });
        done.unwrap();
        all
    }

    fn range(shape: &HotShape, now: u64, previous: u64) -> (usize, usize) {
        match shape.at(now, previous) {
            HotSet::Pieces { start, count: 1, len, .. } => (start / PAGE, len / PAGE),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_range_is_touched_at_its_stride() {
        let set = HotSet::range(2 * PAGE, 3 * PAGE);
        assert_eq!(offsets(&set, PAGE), [8192, 12288, 16384]);
        assert_eq!(offsets(&set, 2 * PAGE), [8192, 16384]);
        assert_eq!(offsets(&set, 1024).len(), 12);
    }

    #[test]
    fn pieces_are_spaced_evenly() {
        let set = HotSet::Pieces { start: 0, count: 3, spacing: 10 * PAGE, len: 2 * PAGE };
        let pages: Vec<_> = offsets(&set, PAGE).iter().map(|o| o / PAGE).collect();
        assert_eq!(pages, [0, 1, 10, 11, 20, 21]);
        // A stride longer than a piece goes on counting through the pieces.
        let pages: Vec<_> = offsets(&set, 3 * PAGE).iter().map(|o| o / PAGE).collect();
        assert_eq!(pages, [0, 11]);
    }

    #[test]
    fn runs_of_part_of_a_pass_join_up() {
        let set = HotSet::Pieces { start: 0, count: 3, spacing: 10 * PAGE, len: 2 * PAGE };
        let mut all = Vec::new();
        for cut in [0..1, 1..4, 4..6] {
            let done: Result<(), ()> = set.runs(PAGE, cut, |offset, count| {
                all.extend((0..count).map(|n| offset + n * PAGE));
                Ok(())
            });
            done.unwrap();
        }
        assert_eq!(all, offsets(&set, PAGE));
    }

    #[test]
    fn a_random_subset_is_exact_ascending_and_seeded() {
        let HotShape::Fixed(HotSet::Pages(pages)) = HotShape::random(10_000, 1250, 7) else { panic!("not pages") };
        assert_eq!(pages.len(), 1250);
        assert!(pages.windows(2).all(|w| w[0] < w[1]));
        assert!(pages.iter().all(|&p| p < 10_000));
        let lower = pages.iter().filter(|&&p| p < 5000).count();
        assert!((500..750).contains(&lower), "{lower}");
        assert_ne!(HotShape::random(10_000, 1250, 8), HotShape::Fixed(HotSet::Pages(pages)));
        assert_eq!(HotShape::random(50, 50, 1), HotShape::Fixed(HotSet::Pages((0..50).collect())));
    }

    #[test]
    fn a_page_list_is_located_page_by_page() {
        let set = HotSet::Pages([3, 4, 9].into());
        assert_eq!(set.len(), 3 * PAGE);
        assert_eq!(offsets(&set, 2048), [12288, 14336, 16384, 18432, 36864, 38912]);
    }

    #[test]
    fn growth_is_clamped_and_in_whole_pages() {
        let grow = |part| HotShape::Grow { per_second: 10 * PAGE, limit: 25 * PAGE, part };
        let all = grow(Grown::All);
        assert_eq!(range(&all, 0, 0), (0, 0));
        assert_eq!(range(&all, S / 2 + 1, 0), (0, 5));
        assert_eq!(range(&all, 9 * S, 0), (0, 25));
        let last = grow(Grown::Last(4 * PAGE));
        assert_eq!(range(&last, S / 10, 0), (0, 1));
        assert_eq!(range(&last, S, 0), (6, 4));
        assert_eq!(range(&last, 9 * S, 0), (21, 4));
        let new = grow(Grown::New);
        assert_eq!(range(&new, S, S / 2), (5, 5));
        assert_eq!(range(&new, 3 * S, 2 * S), (20, 5));
        assert_eq!(range(&new, 4 * S, 3 * S), (25, 0));
    }

    #[test]
    fn windows_climb_or_bounce() {
        let window = |bounce| HotShape::Window { step: PAGE, len: 2 * PAGE, positions: 4, every_ns: S, bounce };
        let walk = |shape: &HotShape| -> Vec<usize> { (0..8).map(|n| range(shape, n * S + 1, 0).0).collect() };
        assert_eq!(walk(&window(false)), [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(walk(&window(true)), [0, 1, 2, 3, 2, 1, 0, 1]);
        assert_eq!(position(5, 1, true), 0);
    }
}
