//! DAMON_STAT (mm/damon/stat.c, Linux 6.17): the kernel's own statistics on how long memory has been idle. Reading them needs
//! neither DAMON nor a page walk.

use std::path::Path;

use lowtide_model::units::float;

use crate::damon::STATISTICS;
use crate::root::{Error, Kernel, Result};
use crate::system;

/// Idle times of the machine's memory.
#[derive(Debug, Clone, PartialEq)]
pub struct IdleTimes {
    /// Percentile p of the bytes has been idle for so many milliseconds at most; negative: in use for so long. Ascending,
    /// from 0 to 100.
    percentiles_ms: Vec<i64>,
}

impl IdleTimes {
    /// Reads them.
    ///
    /// # Errors
    /// If the kernel has no DAMON_STAT, it is off, or has sampled nothing yet.
    pub fn read(kernel: &Kernel) -> Result<Self> {
        let parameters = Path::new(STATISTICS).join("parameters");
        if !matches!(kernel.read_text(parameters.join("enabled"))?.trim(), "Y" | "1") {
            return Err(Error::missing("read", STATISTICS, "DAMON_STAT is off; echo Y > its parameters/enabled"));
        }
        let path = parameters.join("memory_idle_ms_percentiles");
        let text = kernel.read_text(&path)?;
        Self::parse(&text).ok_or_else(|| Error::missing("read", path, "there are no percentiles yet"))
    }

    fn parse(text: &str) -> Option<Self> {
        let percentiles_ms: Vec<i64> =
            text.trim().split(',').map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let is_sampled = percentiles_ms.iter().any(|ms| *ms != 0);
        (percentiles_ms.len() == 101 && is_sampled && percentiles_ms.is_sorted()).then_some(Self { percentiles_ms })
    }

    /// The share of the memory that was used within the last `window_s`, in steps of a hundredth. `None` where no memory has
    /// been idle for so long: idle times begin with the sampling, and all memory would count as used.
    pub fn used_within(&self, window_s: f64) -> Option<f64> {
        let used = self.percentiles_ms.partition_point(|ms| float(*ms) < 1e3 * window_s);
        // The first percentile is the least, not a hundredth.
        (used < self.percentiles_ms.len()).then(|| float(used.saturating_sub(1)) / 100.0)
    }
}

/// Bytes that DAMON_STAT samples: the largest range of `System RAM`.
///
/// # Errors
/// If `/proc/iomem` cannot be read.
pub fn sampled_bytes(kernel: &Kernel) -> Result<f64> {
    let ranges = system::ram(kernel)?;
    Ok(ranges.iter().map(|(start, end)| float(end - start)).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_are_shares_used_within_a_window() {
        // A quarter in use, a quarter idle for 3 s, half for 100 s.
        let list = [vec!["-500"; 26], vec!["3000"; 25], vec!["100000"; 50]].concat().join(",");
        let idle = IdleTimes::parse(&(list + "\n")).unwrap();
        for (window_s, share) in [(1.0, Some(0.25)), (5.0, Some(0.5)), (60.0, Some(0.5)), (120.0, None)] {
            assert_eq!(idle.used_within(window_s), share, "{window_s} s");
        }
    }

    #[test]
    fn nothing_sampled_is_no_estimate() {
        assert_eq!(IdleTimes::parse(&vec!["0"; 101].join(",")), None);
        assert_eq!(IdleTimes::parse("1,2,3"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "\\PC*") {
            let _ = IdleTimes::parse(&text);
        }
    }
}
