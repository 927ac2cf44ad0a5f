//! DAMON_STAT: what the kernel's own statistics report of the machine.

use lowtide_kernel::damon_stat::{IdleTimes, sampled_bytes};
use lowtide_kernel::monitor::Target;
use lowtide_kernel::root::{Error, Kernel, Result};
use lowtide_model::WINDOWS_S;
use lowtide_model::cohort::{Estimate, Picture};

use super::{Frame, Opening, Source, SourceEntry};
use crate::price::Price;

/// Seconds between two updates of the kernel's statistics (mm/damon/stat.c, `damon_stat_damon_call_fn`).
const UPDATE_S: f64 = 5.0;

/// Costs nothing more than the kernel spends anyway. By name only: it covers the machine, and knows neither targets nor kinds
/// of memory.
pub const ENTRY: SourceEntry = SourceEntry {
    name: "damon-stat",
    is_automatic: false,
    needs: &[],
    has_addresses: false,
    reports: "how much memory of the machine is used within 5 s to 2 min",
    omits: "targets smaller than the machine, kinds of memory, or an interval",
    backend: |_| ("damon-stat", None),
    open,
    check: |kernel| IdleTimes::read(kernel).map(drop),
    why_not,
};

fn open(opening: &Opening<'_>) -> Result<Box<dyn Source>> {
    if !opening.target.system {
        return Err(Error::missing("sample", "a target", "DAMON_STAT covers the entire machine only; give --system"));
    }
    IdleTimes::read(opening.kernel)?;
    let bytes = sampled_bytes(opening.kernel)?;
    Ok(Box::new(DamonStat { kernel: opening.kernel.clone(), bytes, due_s: 0.0 }))
}

fn why_not(_: &Kernel, error: &Error) -> String {
    if error.is_gone() {
        return "this kernel has no DAMON_STAT (CONFIG_DAMON_STAT, Linux 6.17)".to_owned();
    }
    error.to_string()
}

#[derive(Debug)]
struct DamonStat {
    kernel: Kernel,
    /// Bytes that it samples.
    bytes: f64,
    due_s: f64,
}

impl Source for DamonStat {
    fn backend(&self) -> &'static str {
        ENTRY.name
    }

    fn next_due_s(&self) -> f64 {
        self.due_s
    }

    fn read(&mut self, now_s: f64, _: &Target, _: &mut Price) -> Result<Frame> {
        if now_s < self.due_s {
            return Ok(Frame::default());
        }
        self.due_s = now_s + UPDATE_S;
        let idle = IdleTimes::read(&self.kernel)?;
        // Percentiles come in steps of a hundredth; how exact DAMON's regions are is not known.
        let of = |share| Estimate { bytes: share * self.bytes, ci95: 0.0 };
        let working_set = WINDOWS_S
            .map(f64::from)
            .map(|window_s| if window_s < UPDATE_S { None } else { idle.used_within(window_s).map(of) });
        Ok(Frame { picture: Some((now_s, Picture { working_set, ..Picture::default() })), ..Frame::default() })
    }

    fn finish(&mut self, _: &mut Price) -> Frame {
        Frame::default()
    }

    fn notes(&self) -> Vec<String> {
        vec![
            "working sets are the kernel's DAMON_STAT: regions of all memory, in steps of 1 %, without an interval"
                .to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SourceChoice, SourceSettings, open};
    use super::*;
    use lowtide_kernel::undo::Journal;

    /// The machine's working set from the kernel's percentiles, of a tree of files.
    #[test]
    fn the_working_set_of_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            std::fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(path), text).unwrap();
        };
        put("proc/iomem", "00001000-0009ffff : System RAM\n00100000-400fffff : System RAM\n");
        put("sys/module/damon_stat/parameters/enabled", "Y\n");
        let percentiles = [vec!["-500"; 26], vec!["100000"; 75]].concat().join(",");
        put("sys/module/damon_stat/parameters/memory_idle_ms_percentiles", &percentiles);
        put("run/x", "");
        let kernel = Kernel::at(dir.path());
        let journal = Journal::open(kernel.clone(), &dir.path().join("run")).unwrap();
        let (mut price, at_start) = (Price::new(0.01), Price::new(0.01));
        let settings = SourceSettings { choice: SourceChoice::Named(ENTRY.name), ..SourceSettings::default() };
        let (machine, process) = (Target { system: true, ..Target::default() }, Target::default());
        let opening = |target| Opening {
            kernel: &kernel,
            journal: &journal,
            target,
            epoch_ns: 0,
            settings: &settings,
            price: &at_start,
        };
        let error = open(&opening(&process)).unwrap_err();
        assert!(error.message.contains("--system"), "{}", error.message);
        let mut source = open(&opening(&machine)).unwrap().source.unwrap();
        let (_, picture) = source.read(1.0, &machine, &mut price).unwrap().picture.unwrap();
        let bytes = picture.working_set.map(|estimate| estimate.map(|estimate| estimate.bytes));
        let quarter = 0.25 * f64::from(1 << 30);
        assert_eq!(bytes, [None, Some(quarter), Some(quarter), Some(quarter), Some(quarter), None]);
        assert!(source.read(2.0, &machine, &mut price).unwrap().picture.is_none(), "not before the next update");
    }
}
