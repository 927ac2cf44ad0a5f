//! Operation schemes as a workload's policy: huge pages where they are used, and what they waste.

use lowtide_kernel::monitor::smaps::ReferencedScan;
use lowtide_model::units::float;
use lowtide_policy::machine::RegionObservation;
use lowtide_policy::schemes::Operator;
use lowtide_policy::schemes::settings::Regions;

use super::StepContext;
use super::site::{Site, Steps};
use crate::huge_zeros::ZeroSampler;
use crate::schemes::acting::candidates;
use crate::workloads::Huge;

/// Huge pages are sampled for zeros so often, seconds: a page that is read counts as used.
const ZEROS_EVERY_S: f64 = 60.0;

/// The result of one step of schemes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Advised {
    /// Titles of the schemes that were applied, and bytes.
    pub applied: Vec<(String, f64)>,
    /// Huge pages, and what they waste.
    pub huge: Huge,
}

/// Schemes of one workload.
#[derive(Debug)]
pub struct WorkloadSchemes {
    /// The schemes.
    pub regions: Regions,
    steps: Steps,
    zeros: ZeroSampler,
}

impl WorkloadSchemes {
    /// These schemes, none of them applied yet.
    pub fn new(regions: &Regions, seed: u64) -> Self {
        let steps = Steps::new(Operator::new(&regions.schemes, regions.limits, seed));
        Self { regions: regions.clone(), steps, zeros: ZeroSampler::new(seed, ZEROS_EVERY_S) }
    }

    /// One step by the last scan, which was over so many seconds.
    pub(super) fn step(
        &mut self,
        site: Site<'_>,
        (window_s, scan): (f64, &ReferencedScan),
        context: &StepContext<'_>,
    ) -> Advised {
        let kernel = site.kernel.clone();
        let frame = RegionObservation { candidates: candidates(scan, window_s, |_| true), ..context.frame() };
        let turn = self.steps.step(frame, site);
        let mut applied = Vec::new();
        for (index, scheme) in self.regions.schemes.iter().enumerate() {
            let of = turn.reports.iter().filter(|report| report.order.scheme == index);
            let bytes: u64 = of.map(|report| report.applied_bytes).sum();
            if bytes > 0 {
                applied.push((scheme.title().to_owned(), float(bytes)));
            }
        }
        let huge = float(scan.mappings.iter().map(|(_, mapping)| mapping.huge).sum::<u64>());
        if huge > 0.0 && self.zeros.is_due(context.now_s) {
            self.zeros.sample(&kernel, context.now_s, &scan.mappings);
        }
        let zero = self.zeros.share().map_or(0.0, |share| share * huge);
        Advised { applied, huge: Huge { bytes: huge, zero } }
    }
}
