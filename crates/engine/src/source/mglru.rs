//! Generations of the multi-generational LRU: of cgroups, or of the system, in rounds.

use lowtide_kernel::lru_gen::LruGen;
use lowtide_kernel::monitor::Target;
use lowtide_kernel::monitor::mglru::MglruMonitor;
use lowtide_kernel::root::{Error, Kernel, Result};

use super::{Frame, Opening, Source, SourceEntry};
use crate::price::{Price, Work};

/// Generations are of cgroups, so a program that is run needs one of its own.
pub const ENTRY: SourceEntry = SourceEntry {
    name: "mglru",
    is_automatic: true,
    needs: &["mglru", "mglru-debugfs", "cgroup-child"],
    has_addresses: false,
    reports: "how much memory of each cgroup is used within 1 s to 2 min, page cache included",
    omits: "addresses, or an interval",
    backend: |_| ("mglru", None),
    open,
    check: |kernel| LruGen::open(kernel).map(drop),
    why_not,
};

fn open(opening: &Opening<'_>) -> Result<Box<dyn Source>> {
    let monitor = MglruMonitor::new(opening.kernel, opening.target, &opening.settings.windows_s)?;
    Ok(Box::new(Generations { monitor, step: Work::default() }))
}

fn why_not(_: &Kernel, error: &Error) -> String {
    if error.is_gone() {
        return "this kernel has no multi-generational LRU (CONFIG_LRU_GEN), or no debugfs".to_owned();
    }
    if error.is_permission() && rustix::process::geteuid().is_root() {
        return format!(
            "{error}: also refused to root, so the kernel is locked down (kernel_lockdown(7)) or booted with debugfs=off"
        );
    }
    error.to_string()
}

#[derive(Debug)]
struct Generations {
    monitor: MglruMonitor,
    step: Work,
}

impl Source for Generations {
    fn backend(&self) -> &'static str {
        "mglru"
    }

    fn next_due_s(&self) -> f64 {
        self.monitor.due_s()
    }

    fn read(&mut self, now_s: f64, target: &Target, price: &mut Price) -> Result<Frame> {
        if !self.monitor.is_due(now_s) || !price.allows(&self.step, now_s) {
            return Ok(Frame::default());
        }
        let size = target.totals.iter().sum();
        let round = price.pay(&mut self.step, (now_s, size), || self.monitor.step(now_s))?;
        price.reserve_s = self.step.cost_s;
        Ok(round.map_or_else(Frame::default, |round| Frame {
            picture: Some((now_s, round.picture)),
            cgroups: Some(round.cgroups),
            ..Frame::default()
        }))
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "page cache used by read and write counts as idle: generations record the use of mapped pages alone"
                .to_owned(),
        ];
        let (asked, missing) = (self.monitor.requested, self.monitor.missing);
        if missing * 10 > asked {
            notes.push(format!("{missing} of {asked} generations asked for were not made: windows are missing"));
        }
        notes
    }
}
