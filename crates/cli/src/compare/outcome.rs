//! The outcome of one run, and of all runs of a comparison so far: one line of JSON each, so that an interrupted comparison
//! continues where it was.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use lowtide_model::ledger::Ledger;
use lowtide_model::summary::Summary;
use lowtide_model::units::float;
use lowtide_model::usage::Usage;
use serde::{Deserialize, Serialize};

/// One run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Which program.
    pub program: String,
    /// In which configuration.
    pub config: String,
    /// In which round.
    pub round: u32,
    /// Why it does not count, if it does not.
    pub failure: Option<String>,
    /// Seconds.
    pub runtime_s: f64,
    /// Resident memory, mean over the run.
    pub rss_bytes: Option<f64>,
    /// Memory that zram and zswap took for what was paged out, mean over the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_bytes: Option<f64>,
    /// The most that was resident at a time.
    pub peak_bytes: Option<f64>,
    /// Memory in use on the system, mean over the run.
    pub system_used_bytes: Option<f64>,
    /// Page faults that waited for I/O.
    pub major_faults: Option<f64>,
    /// Seconds in which some task waited for memory.
    pub stalled_s: Option<f64>,
    /// Share of the time in which a CPU waited for I/O.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_wait: Option<f64>,
    /// CPU seconds of monitoring.
    pub monitor_cpu_s: Option<f64>,
    /// The figure that the program printed.
    pub figure: Option<f64>,
    /// Which monitor measured.
    pub monitor: String,
    /// What schemes saved and cost.
    pub ledger: Option<Ledger>,
    /// Of a program that ran together with others: seconds, and bytes of its demand and of what was resident.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over_time: Vec<[f64; 3]>,
    /// Of programs that ran together, each one's; the time above is that of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<RunOutcome>,
}

impl RunOutcome {
    /// Takes the figures of a record's summary.
    pub fn take(&mut self, summary: &Summary) {
        self.runtime_s = summary.runtime_s;
        self.rss_bytes = summary.memory.rss.avg_bytes.map(float);
        // Readings once a second may miss a shorter peak.
        self.peak_bytes = summary.memory.rss.peak_bytes.max(summary.budget.app_max_rss_bytes).map(float);
        self.system_used_bytes = summary.memory.system_used.avg_bytes.map(float);
        self.major_faults = summary.faults.major.map(float);
        self.stalled_s = summary.pressure.memory_some_s;
        self.io_wait = summary.io_wait_percent.map(|percent| percent / 100.0);
        self.monitor_cpu_s = summary.monitor.cpu_s;
        self.monitor.clone_from(&summary.monitor.backend);
        self.ledger.clone_from(&summary.ledger);
    }

    /// Resident memory and what zram and zswap took for the rest, mean over the run, bytes; `None` where there are none.
    #[must_use]
    pub fn net_bytes(&self) -> Option<f64> {
        Some(self.rss_bytes? + self.kept_bytes?)
    }

    /// Takes a record's readings over time, in as many points as a drawing has.
    pub fn take_times(&mut self, rows: &[Usage]) {
        let known = |row: &Usage| Some([row.t_s?, row.demand_bytes?, row.rss_bytes?]);
        self.over_time = rows.iter().step_by(rows.len() / POINTS + 1).filter_map(known).collect();
    }
}

/// Points of a line in a drawing, at most.
const POINTS: usize = 200;

/// The runs so far, on disk.
#[derive(Debug)]
pub struct Outcomes {
    file: File,
    /// In the order in which they were made.
    pub all: Vec<RunOutcome>,
}

impl Outcomes {
    /// Opens the file, with what is in it. An incomplete line is of an interrupted run.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let mut file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
        let lines: Vec<String> = BufReader::new(&file).lines().collect::<std::io::Result<_>>()?;
        let all = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if file.metadata()?.len() > 0 && std::fs::read(path)?.last() != Some(&b'\n') {
            file.write_all(b"\n")?;
        }
        Ok(Self { file, all })
    }

    /// Adds a run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, outcome: RunOutcome) -> std::io::Result<()> {
        let line = serde_json::to_string(&outcome)? + "\n";
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()?;
        self.all.push(outcome);
        Ok(())
    }

    /// Why the warm-up of a program failed, if it did.
    #[must_use]
    pub fn warm_up_failure(&self, program: &str) -> Option<&str> {
        self.all.iter().find(|run| run.round == 0 && run.program == program)?.failure.as_deref()
    }

    /// Whether this run was made.
    #[must_use]
    pub fn has(&self, program: &str, config: &str, round: u32) -> bool {
        self.all.iter().any(|one| one.program == program && one.config == config && one.round == round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_kept_and_one_cut_short_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs.jsonl");
        let run =
            |round: u32| RunOutcome { program: "a".into(), config: "orig".into(), round, ..RunOutcome::default() };
        let mut outcomes = Outcomes::open(&path).unwrap();
        outcomes.add(run(0)).unwrap();
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "{\"program\":\"a\",\"conf").unwrap();
        let mut outcomes = Outcomes::open(&path).unwrap();
        assert!(outcomes.has("a", "orig", 0) && !outcomes.has("a", "orig", 1));
        outcomes.add(run(1)).unwrap();
        assert_eq!(Outcomes::open(&path).unwrap().all.len(), 2);
    }
}
