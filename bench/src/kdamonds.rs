//! CPU time of DAMON's kernel threads. They are no children of the process that set them up, and their counters end with
//! them, so they are read repeatedly while they live.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lowtide_kernel::proc;
use lowtide_kernel::root::Kernel;

const EVERY: Duration = Duration::from_millis(200);

/// CPU seconds so far of each kdamond.
pub fn cpu_s(kernel: &Kernel) -> BTreeMap<u32, f64> {
    let named = |pid: &u32| kernel.read_text(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("kdamond"));
    let pids = proc::pids(kernel).unwrap_or_default().into_iter().filter(named);
    pids.filter_map(|pid| Some((pid, proc::cpu_seconds(kernel, pid).ok()?))).collect()
}

/// CPU time of all kdamonds since this was made.
#[derive(Debug)]
pub struct Kdamonds {
    kernel: Kernel,
    /// CPU seconds at the first and the last reading.
    readings: BTreeMap<u32, (f64, f64)>,
    last: Instant,
}

impl Kdamonds {
    pub fn new() -> Self {
        let kernel = Kernel::default();
        let readings = cpu_s(&kernel).into_iter().map(|(pid, cpu_s)| (pid, (cpu_s, cpu_s))).collect();
        Self { kernel, readings, last: Instant::now() }
    }

    /// Reads the counters if the last reading is old enough.
    pub fn poll(&mut self) {
        if self.last.elapsed() >= EVERY {
            self.last = Instant::now();
            for (pid, cpu_s) in cpu_s(&self.kernel) {
                self.readings.entry(pid).or_insert((0.0, cpu_s)).1 = cpu_s;
            }
        }
    }

    pub fn total_s(&self) -> f64 {
        self.readings.values().map(|(first, last)| last - first).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kdamonds_count() {
        let root = tempfile::tempdir().unwrap();
        for (pid, name) in [(77, "kdamond.0"), (78, "bash")] {
            let folder = root.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            std::fs::write(folder.join("schedstat"), "420000000 12 3\n").unwrap();
        }
        assert_eq!(cpu_s(&Kernel::at(root.path())), BTreeMap::from([(77, 0.42)]));
    }
}
