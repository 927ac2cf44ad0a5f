//! CPU time of DAMON's kernel threads. They are no children of whoever set them up, and their counters go with them, so
//! they are read again and again while they live.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two readings.
const EVERY: Duration = Duration::from_millis(200);

/// The threads that came since this was made.
#[derive(Debug)]
pub struct Kdamonds {
    /// Clock ticks at the first and the last reading.
    ticks: BTreeMap<u32, (u64, u64)>,
    read: Instant,
}

impl Kdamonds {
    /// Begins to watch. What threads that run already have used does not count.
    pub fn new() -> Self {
        Self { ticks: running().into_iter().map(|(pid, ticks)| (pid, (ticks, ticks))).collect(), read: Instant::now() }
    }

    /// Reads, if it is time again.
    pub fn look(&mut self) {
        if self.read.elapsed() < EVERY {
            return;
        }
        self.read = Instant::now();
        for (pid, ticks) in running() {
            self.ticks.entry(pid).or_insert((0, ticks)).1 = ticks;
        }
    }

    /// CPU seconds since the beginning, of all of them.
    pub fn cpu_s(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "CPU time")]
        let ticks = self.ticks.values().map(|(first, last)| last - first).sum::<u64>() as f64;
        #[expect(clippy::cast_precision_loss, reason = "100")]
        let per_s = rustix::param::clock_ticks_per_second() as f64;
        ticks / per_s
    }
}

fn running() -> Vec<(u32, u64)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, cpu_ticks(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// User and system time of a stat line that is a kdamond's.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    if !name.starts_with("kdamond") {
        return None;
    }
    // The first field after the name is the third of the line; user and system time are the 14th and 15th.
    let mut times = rest.split_whitespace().skip(11);
    Some(times.next()?.parse::<u64>().ok()? + times.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kdamonds_count() {
        let line = |name: &str| format!("77 ({name}) S 2 0 0 0 -1 2129984 0 0 0 0 12 30 0 0 20 0 1 0 1 0 0");
        assert_eq!(cpu_ticks(&line("kdamond.0")), Some(42));
        assert_eq!(cpu_ticks(&line("bash")), None);
        assert_eq!(cpu_ticks("77 (kdamond.0"), None);
    }
}
