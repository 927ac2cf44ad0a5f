//! What monitors report of a workload, with the errors that theirs have.

use lowtide_model::cohort::{AgeBin, Estimate};
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::random::Random;
use lowtide_model::stats::Z95;
use lowtide_model::units::{float, integer};
use lowtide_model::{AGE_EDGES_S, PAGE_BYTES};
use serde::Deserialize;

use super::load::{BASE, Load, PART_BYTES};
use super::part::place;
use crate::machine::{Candidate, WorkloadState};

/// Which monitors there are, and how many samples they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Monitors {
    /// Whether idle ages are known as histograms (MGLRU, the cohort).
    pub histograms: bool,
    /// Pages that these rest on; 0 = all of them.
    pub sample: u32,
    /// Regions by workload, as of DAMON; 0 = none.
    pub regions: u32,
    /// Samples behind a region's access rate.
    #[serde(rename = "looks")]
    pub region_samples: u32,
}

impl Default for Monitors {
    /// The cohort's sample, no regions, DAMON's twenty samples in one aggregation.
    fn default() -> Self {
        Self { histograms: true, sample: 2000, regions: 0, region_samples: 20 }
    }
}

/// A workload by its histogram.
pub(super) fn target(load: &Load, now_s: f64, monitors: &Monitors, random: &mut Random) -> WorkloadState {
    let mut bytes = PerKind::both([0.0; AGE_EDGES_S.len()]);
    for (_, part, group) in load.each().filter(|(_, _, group)| group.resident > 0) {
        let idle_s = now_s - group.last_s;
        let bin = AGE_EDGES_S.iter().rposition(|edge| f64::from(*edge) <= idle_s).unwrap_or(0);
        bytes[part.kind][bin] += f64::from(group.resident) * PAGE_BYTES;
    }
    let mut ages = Vec::with_capacity(2 * AGE_EDGES_S.len());
    for (kind, bytes) in bytes.iter() {
        let total: f64 = bytes.iter().sum();
        let mut left = total;
        for (bin, bytes) in bytes.iter().enumerate() {
            let min_s = f64::from(AGE_EDGES_S[bin]);
            let max_s = AGE_EDGES_S.get(bin + 1).map(|edge| f64::from(*edge));
            // What is sampled has the error of a share of the sample, and adds up all the same.
            let size = match max_s {
                Some(_) => noisy(*bytes, total, monitors.sample, random),
                None => Estimate { bytes: left, ci95: 0.0 },
            };
            let size = Estimate { bytes: size.bytes.min(left), ..size };
            left -= size.bytes;
            ages.push(AgeBin { anon: kind == Kind::Anon, min_s, max_s, size, first_touched: None });
        }
    }
    let resident = bytes.map(|bytes| bytes.iter().sum());
    let swapped = float(load.out.anon) * PAGE_BYTES;
    let floor = load.limits.low.max(load.limits.min);
    let anon = load.each().filter(|(_, part, _)| part.kind == Kind::Anon);
    let stored = anon.map(|(_, part, group)| f64::from(group.out) * PAGE_BYTES / part.ratio).sum();
    WorkloadState {
        id: load.id,
        resident,
        swapped,
        floor,
        ages,
        stored: Some(stored),
        background: load.is_background(now_s),
        ..WorkloadState::default()
    }
}

/// A share of so many pages, as a sample estimates it.
fn noisy(bytes: f64, total: f64, sample: u32, random: &mut Random) -> Estimate {
    if sample == 0 || total <= 0.0 {
        return Estimate { bytes, ci95: 0.0 };
    }
    let share = bytes / total;
    let deviation = (share * (1.0 - share) / f64::from(sample)).max(0.0).sqrt();
    if deviation == 0.0 {
        return Estimate { bytes, ci95: 0.0 };
    }
    let bytes = (total * (share + deviation * random.normal())).clamp(0.0, total);
    Estimate { bytes, ci95: Z95 * deviation * total }
}

/// A workload by its regions. As DAMON's, they are cut at random places, and each is judged by a few samples of
/// pages chosen at random: one in use in a cold region may be missed.
pub(super) fn candidates(load: &Load, now_s: f64, monitors: &Monitors, random: &mut Random) -> Vec<Candidate> {
    let mut found = Vec::new();
    let all: u32 = load.parts.iter().map(|part| part.groups).sum();
    for (index, part) in (0u64..).zip(&load.parts) {
        let share = (f64::from(monitors.regions) * f64::from(part.groups) / f64::from(all.max(1))).max(1.0);
        let length = integer((f64::from(part.groups) / share).ceil()).max(1);
        let mut at = 0;
        while at < part.groups {
            let some = 1 + u32::try_from(random.below(2 * length - 1)).unwrap_or(0);
            let end = (at + some).min(part.groups);
            let groups = &load.groups_of(part)[place(at)..place(end)];
            let resident: f64 = groups.iter().map(|group| f64::from(group.resident) * PAGE_BYTES).sum();
            if resident > 0.0 {
                let (mut accessed, mut age_s) = (0, f64::INFINITY);
                for _ in 0..monitors.region_samples.max(1) {
                    let idle_s = now_s - groups[random.index(groups.len())].last_s;
                    accessed += u32::from(idle_s < 1.0);
                    age_s = age_s.min(idle_s);
                }
                let bytes = u64::from(part.group_pages) * lowtide_model::PAGE;
                let start = BASE + index * PART_BYTES;
                found.push(Candidate {
                    pid: load.pid,
                    start: start + u64::from(at) * bytes,
                    end: start + u64::from(end) * bytes,
                    access_rate: f64::from(accessed) / f64::from(monitors.region_samples.max(1)),
                    age_s,
                    resident,
                    idle: resident,
                    huge: 0.0,
                });
            }
            at = end;
        }
    }
    found
}
