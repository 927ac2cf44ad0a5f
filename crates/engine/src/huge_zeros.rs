//! Memory in huge pages that holds nothing but zeros: what nobody would have asked for.

use lowtide_kernel::huge::zero_share;
use lowtide_kernel::monitor::mapping_use::MappingUse;
use lowtide_kernel::root::Kernel;
use lowtide_model::PAGE;
use lowtide_model::units::float;

/// Samples it now and then: reading a page counts as its use.
#[derive(Debug, Clone)]
pub struct ZeroSampler {
    seed: u64,
    every_s: f64,
    /// The share of zeros, and when it was sampled, seconds.
    last: Option<(Option<f64>, f64)>,
}

impl ZeroSampler {
    /// Reads pages that `seed` draws, so often.
    pub fn new(seed: u64, every_s: f64) -> Self {
        Self { seed, every_s, last: None }
    }

    /// Whether the last sample is too old.
    pub fn is_due(&self, now_s: f64) -> bool {
        !self.last.is_some_and(|(_, at_s)| (at_s..at_s + self.every_s).contains(&now_s))
    }

    /// The share of the memory in huge pages that holds zeros, over all processes of these mappings; `None` without huge pages.
    pub fn sample(&mut self, kernel: &Kernel, now_s: f64, mappings: &[(u32, MappingUse)]) -> Option<f64> {
        let (mut zero, mut all) = (0.0, 0.0);
        for of_one in mappings.chunk_by(|a, b| a.0 == b.0) {
            let huge: Vec<MappingUse> =
                of_one.iter().map(|(_, mapping)| *mapping).filter(|mapping| mapping.huge >= PAGE).collect();
            let size = float(huge.iter().map(|mapping| mapping.huge).sum::<u64>());
            // A process that ended meanwhile is skipped.
            if let Ok(Some(share)) = zero_share(kernel, of_one[0].0, &huge, self.seed) {
                (zero, all) = (zero + share * size, all + size);
            }
        }
        let share = (all > 0.0).then_some(zero / all);
        self.last = Some((share, now_s));
        share
    }

    /// The last sample.
    pub fn share(&self) -> Option<f64> {
        self.last.and_then(|(share, _)| share)
    }
}
