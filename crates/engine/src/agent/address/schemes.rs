//! Operation schemes as a workload's policy: huge pages where they are used, and what they waste.

use lowtide_kernel::monitor::smaps::ReferencedScan;
use lowtide_model::units::float;
use lowtide_policy::machine::{RegionObservation, turn};
use lowtide_policy::schemes::Operator;
use lowtide_policy::schemes::settings::Regions;

use super::MachineFacts;
use super::site::Site;
use crate::huge_zeros::ZeroSampler;
use crate::schemes::acting::candidates;
use crate::schemes::worker::Turn;
use crate::workloads::Huge;

/// Huge pages are sampled for zeros so often, seconds: what is read counts as used.
const ZEROS_EVERY_S: f64 = 60.0;

/// What schemes did in one step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Advised {
    /// By scheme: its title, and bytes that something came of.
    pub applied: Vec<(String, f64)>,
    /// Huge pages, and what they waste.
    pub huge: Huge,
}

/// Schemes of one workload.
#[derive(Debug)]
pub struct WorkloadSchemes {
    regions: Regions,
    operator: Operator,
    turn: Turn,
    zeros: ZeroSampler,
}

impl WorkloadSchemes {
    /// These schemes, of which nothing was carried out yet.
    #[must_use]
    pub fn new(regions: &Regions, seed: u64) -> Self {
        let operator = Operator::new(&regions.schemes, regions.limits, seed);
        Self { regions: regions.clone(), operator, turn: Turn::default(), zeros: ZeroSampler::new(seed, ZEROS_EVERY_S) }
    }

    /// The schemes.
    #[must_use]
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// One step: decides by the last look, and acts; what came of it.
    pub(super) fn step(
        &mut self,
        mut site: Site<'_>,
        (window_s, look): (f64, &ReferencedScan),
        now_s: f64,
        facts: MachineFacts,
    ) -> Advised {
        let mut seen = candidates(look);
        // A look comes a little early or late.
        seen.iter_mut().for_each(|candidate| candidate.age_s = window_s);
        let Turn { reports, back, .. } = std::mem::take(&mut self.turn);
        let frame = RegionObservation {
            now_s,
            candidates: seen,
            back,
            done: reports.into_iter().map(|report| report.done).collect(),
            pressure: facts.pressure,
            swap_free: facts.swap_free,
            ..RegionObservation::default()
        };
        let kernel = site.kernel.clone();
        turn(&mut self.operator, &frame, &mut site);
        let mut advised = Advised::default();
        for (index, scheme) in self.regions.schemes.iter().enumerate() {
            let of = site.turn.reports.iter().filter(|report| report.order.scheme == index);
            let applied: u64 = of.map(|report| report.applied_bytes).sum();
            if applied > 0 {
                advised.applied.push((scheme.title().to_owned(), float(applied)));
            }
        }
        self.turn = site.turn;
        let huge = float(look.mappings.iter().map(|(_, mapping)| mapping.huge).sum::<u64>());
        if huge > 0.0 && self.zeros.is_due(now_s) {
            self.zeros.sample(&kernel, now_s, &look.mappings);
        }
        advised.huge = Huge { bytes: huge, zero: self.zeros.share().map_or(0.0, |share| share * huge) };
        advised
    }
}
