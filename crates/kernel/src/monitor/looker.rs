//! Who looks at the pages and regions: kdamonds, told and read by way of the kernel, or a thread on the idle bitmap.

use super::bitmap::BitmapLooker;
use super::teller::{Teller, Told};
use crate::damon::KdamondSetup;
use crate::root::Result;
use crate::trace::{Trace, TraceEvent};

/// Who looks.
#[derive(Debug)]
pub(super) enum Looker {
    Kdamonds { trace: Box<Trace>, teller: Teller },
    Bitmap(BitmapLooker),
}

impl Looker {
    pub(super) fn tell(&self, part: usize, setup: KdamondSetup) {
        match self {
            Self::Kdamonds { teller, .. } => teller.tell(part, setup),
            Self::Bitmap(looker) => looker.tell(part, setup),
        }
    }

    /// Asks what so many schemes of a kdamond did; nobody but kdamonds has any.
    pub(super) fn count(&self, part: usize, schemes: usize) {
        if let Self::Kdamonds { teller, .. } = self {
            teller.count(part, schemes);
        }
    }

    pub(super) fn told(&self) -> Vec<Told> {
        match self {
            Self::Kdamonds { teller, .. } => std::iter::from_fn(|| teller.told()).collect(),
            Self::Bitmap(looker) => looker.told(),
        }
    }

    pub(super) fn read(&mut self, out: &mut Vec<TraceEvent>) -> Result<()> {
        match self {
            Self::Kdamonds { trace, .. } => trace.read(out),
            Self::Bitmap(looker) => {
                looker.read(out);
                Ok(())
            }
        }
    }

    /// CPU seconds that lowtide's own process spent on looking, for cohort and map; `None` where kernel threads do it.
    pub(super) fn own_spent_s(&self) -> Option<[f64; 2]> {
        match self {
            Self::Kdamonds { .. } => None,
            Self::Bitmap(looker) => Some(looker.spent_s()),
        }
    }

    /// Trace events that were lost.
    pub(super) fn lost(&self) -> u64 {
        match self {
            Self::Kdamonds { trace, .. } => trace.lost,
            Self::Bitmap(_) => 0,
        }
    }

    pub(super) fn is_bitmap(&self) -> bool {
        matches!(self, Self::Bitmap(_))
    }
}
