//! CPU time of other programs during a measurement.

use lowtide_kernel::root::Kernel;
use lowtide_kernel::{proc, sys, system};
use lowtide_model::units::float;

/// CPU time of the machine since this was made.
#[derive(Debug)]
pub struct Machine {
    ticks: Option<Ticks>,
    children_s: f64,
}

/// CPU time of all CPUs, clock ticks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ticks {
    busy: f64,
    all: f64,
}

impl Machine {
    pub fn new() -> Self {
        Self { ticks: now(), children_s: sys::children_usage().1 }
    }

    /// Share of all CPUs, percent, that other programs used or the hypervisor took. Programs started here do not count once
    /// they have ended.
    pub fn others_percent(&self) -> Option<f64> {
        let (before, after) = (self.ticks?, now()?);
        let own = (sys::children_usage().1 - self.children_s) * float(rustix::param::clock_ticks_per_second());
        let all = after.all - before.all;
        (all > 0.0).then(|| (100.0 * (after.busy - before.busy - own) / all).clamp(0.0, 100.0))
    }
}

/// Memory of this process.
pub fn own_status() -> Option<proc::Status> {
    proc::status(&Kernel::default(), std::process::id()).ok()
}

/// Seconds on `CLOCK_MONOTONIC`.
pub fn monotonic_s() -> f64 {
    float(system::monotonic_ns()) / 1e9
}

fn now() -> Option<Ticks> {
    parse(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn parse(stat: &str) -> Option<Ticks> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is in user time already.
    let list: Vec<f64> = fields.split_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
    let all = list.iter().sum();
    Some(Ticks { busy: all - list.get(3)? - list.get(4)?, all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_are_not_busy() {
        let stat = "cpu  10 1 5 80 4 0 0 2 7 0\ncpu0 1 2 3\n";
        assert_eq!(parse(stat), Some(Ticks { busy: 18.0, all: 102.0 }));
        assert_eq!(parse("intr 1"), None);
        assert!(Machine::new().others_percent().is_none_or(|share| (0.0..=100.0).contains(&share)));
    }
}
