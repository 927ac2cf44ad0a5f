//! CPU time of other programs during a measurement, and this process' own clock and memory.

use lowtide_kernel::root::Kernel;
use lowtide_kernel::system::{self, CpuTicks};
use lowtide_kernel::{proc, sys};
use lowtide_model::units::float;

/// CPU time of the machine since this was made.
#[derive(Debug)]
pub struct Machine {
    ticks: Option<CpuTicks>,
    children_s: f64,
}

impl Machine {
    pub fn new() -> Self {
        Self { ticks: system::cpu(&Kernel::default()).ok(), children_s: sys::children_usage().cpu_s }
    }

    /// Share of all CPUs, percent, that other programs used or the hypervisor took. Programs started here do not count once
    /// they have ended.
    pub fn others_percent(&self) -> Option<f64> {
        let (before, after) = (self.ticks?, system::cpu(&Kernel::default()).ok()?);
        let own_s = sys::children_usage().cpu_s - self.children_s;
        let own = own_s * float(rustix::param::clock_ticks_per_second());
        let all = after.total.saturating_sub(before.total);
        let busy = float(after.busy.saturating_sub(before.busy));
        (all > 0).then(|| (100.0 * (busy - own) / float(all)).clamp(0.0, 100.0))
    }
}

pub fn own_status() -> Option<proc::Status> {
    proc::status(&Kernel::default(), std::process::id()).ok()
}

/// Seconds on `CLOCK_MONOTONIC`.
pub fn monotonic_s() -> f64 {
    float(system::monotonic_ns()) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_load_is_a_share_of_all_cpus() {
        assert!(Machine::new().others_percent().is_none_or(|share| (0.0..=100.0).contains(&share)));
    }
}
