//! `clear_refs` and smaps: bytes of each mapping that were referenced since they were cleared.

use lowtide_kernel::monitor::Target;
use lowtide_kernel::monitor::smaps::SmapsMonitor;
use lowtide_kernel::root::{Error, Result};

use super::{Frame, Opening, Source, SourceEntry};
use crate::price::{Price, Work};

/// The last resort: every reading is a walk over all pages of the target's processes.
pub const ENTRY: SourceEntry = SourceEntry {
    name: "smaps",
    is_automatic: true,
    needs: &["referenced"],
    has_addresses: true,
    reports: "how much memory of processes and cgroups is used within 1 s to 2 min",
    omits: "page cache that no process maps, all of a machine, or an interval",
    backend: |_| ("smaps", None),
    open,
    check: |_| Ok(()),
    why_not: |_, error| error.to_string(),
};

fn open(opening: &Opening<'_>) -> Result<Box<dyn Source>> {
    if opening.target.system {
        let why = std::io::Error::other("it reads processes, not the entire system; give --pid or --cgroup");
        return Err(Error::new("read accessed bits of", "the system", why));
    }
    let monitor = SmapsMonitor::new(opening.kernel, opening.target)?;
    Ok(Box::new(AccessedBits { monitor, step: Work::default(), at_s: 0.0, readings: 0, is_too_dear: false }))
}

#[derive(Debug)]
struct AccessedBits {
    monitor: SmapsMonitor,
    step: Work,
    /// The last time it was read.
    at_s: f64,
    readings: u64,
    /// The last reading that was due was not paid for.
    is_too_dear: bool,
}

impl Source for AccessedBits {
    fn backend(&self) -> &'static str {
        "smaps"
    }

    fn next_due_s(&self) -> f64 {
        self.monitor.due_s()
    }

    fn read(&mut self, now_s: f64, target: &Target, price: &mut Price) -> Result<Frame> {
        self.at_s = now_s;
        self.monitor.follow(now_s, target);
        if !self.monitor.is_due(now_s) {
            return Ok(Frame::default());
        }
        self.is_too_dear = !price.allows(&self.step, now_s);
        if self.is_too_dear {
            self.monitor.postpone(now_s);
            return Ok(Frame::default());
        }
        let size = target.totals.iter().sum();
        let picture = price.pay(&mut self.step, (now_s, size), || self.monitor.step(now_s, target))?;
        price.reserve_s = self.step.cost_s;
        self.readings += u64::from(picture.is_some());
        let picture = picture.map(|picture| (now_s, picture));
        Ok(Frame { picture, mappings: self.monitor.take_scan(), ..Frame::default() })
    }

    fn finish(&mut self, _: &mut Price) -> Frame {
        let picture = self.monitor.finish().map(|(read_s, ages)| {
            let picture = lowtide_model::cohort::Picture { ages_read_s: Some(read_s), ages, ..Default::default() };
            (self.at_s, picture)
        });
        Frame { picture, ..Frame::default() }
    }

    fn notes(&self) -> Vec<String> {
        let cost_ms = 1e3 * self.step.cost_s;
        let text = || {
            format!(
                "its accessed bits were not read: that takes some {cost_ms:.0} ms, which --max-overhead allows later; record longer, or raise it"
            )
        };
        (self.is_too_dear && self.readings == 0).then(text).into_iter().collect()
    }

    fn read_mappings_after(&mut self, idle_s: f64) -> bool {
        self.monitor.set_reach(idle_s);
        true
    }
}
