//! DAMON through sysfs: kdamonds, what they monitor, on and off.

mod schemes;

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use lowtide_model::scheme::Scheme;
use rustix::fs::{Mode, OFlags, openat};

use self::schemes::{Counts, Starting};
pub use self::schemes::{Features, SchemeStats};
use serde::{Deserialize, Serialize};

use crate::root::{Error, Kernel, Result, UnlessGone, while_busy};
use crate::undo::{Journal, KernelChange, Lease};

const ADMIN: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// Which addresses a kdamond monitors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operations {
    /// Virtual addresses of processes.
    Vaddr,
    /// Physical addresses.
    Paddr,
}

impl Operations {
    /// DAMON's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vaddr => "vaddr",
            Self::Paddr => "paddr",
        }
    }
}

/// The configuration of one kdamond.
#[derive(Debug, Clone, PartialEq)]
pub struct KdamondSetup {
    /// Which addresses.
    pub operations: Operations,
    /// Time between two access checks of a region.
    pub sampling: Duration,
    /// Time over which accesses are counted.
    pub aggregation: Duration,
    /// Time between two updates of the ranges (`vaddr` follows mappings).
    pub update: Duration,
    /// At least so many regions.
    pub min_regions: usize,
    /// At most so many regions.
    pub max_regions: usize,
    /// Processes (`vaddr`); empty for `paddr`.
    pub pids: Vec<u32>,
    /// Ranges to monitor (`paddr`), ascending, not overlapping.
    pub ranges: Vec<(u64, u64)>,
    /// The kernel tunes the intervals itself (6.15).
    pub goal: Option<TuningGoal>,
    /// What it does to memory by its access pattern; nothing where there are none.
    pub schemes: Vec<Scheme>,
}

/// What the kernel tunes the intervals for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TuningGoal {
    /// Share of the possible accesses to be sampled, in ten-thousandths.
    pub access_bp: u32,
    /// Aggregations over which it is taken.
    pub aggregations: u32,
    /// Shortest sampling interval; the aggregation interval changes with it.
    pub shortest: Duration,
    /// Longest sampling interval.
    pub longest: Duration,
}

/// What DAMON can do here; else why not.
pub fn probe(kernel: &Kernel) -> Result<()> {
    kernel.read_text(format!("{ADMIN}/nr_kdamonds")).map(|_| ())
}

/// The kdamonds that are on, as the pids of their threads.
///
/// # Errors
/// If a file of DAMON's cannot be read: a kdamond of which nothing is known may be on.
pub fn running(kernel: &Kernel) -> Result<Vec<u32>> {
    let Some(count) = kernel.read_number(format!("{ADMIN}/nr_kdamonds")).unless_gone()? else { return Ok(Vec::new()) };
    let pid = |k| patiently(|| kernel.read_text(format!("{ADMIN}/{k}/pid"))).unless_gone();
    let pids = (0..count).map(pid).collect::<Result<Vec<Option<String>>>>()?;
    // One that is off has the pid -1.
    Ok(pids.into_iter().flatten().filter_map(|text| text.trim().parse().ok()).collect())
}

/// The inodes of the kdamonds' folders. Whoever writes `nr_kdamonds` makes all of them anew, so these say whose they are.
fn folders(kernel: &Kernel) -> Result<Vec<u64>> {
    let count = kernel.read_number(format!("{ADMIN}/nr_kdamonds"))?;
    let inode = |k| {
        let folder = format!("{ADMIN}/{k}");
        std::fs::metadata(kernel.path(&folder)).map(|meta| meta.ino()).map_err(|e| Error::new("find", folder, e))
    };
    (0..count).map(inode).collect()
}

/// The exclusive modules that hold DAMON when they are on, and their switch.
pub fn exclusive_module(kernel: &Kernel) -> Option<&'static str> {
    [STATISTICS, "/sys/module/damon_reclaim", "/sys/module/damon_lru_sort"]
        .into_iter()
        .find(|module| kernel.read_text(format!("{module}/parameters/enabled")).is_ok_and(|text| text.trim() == "Y"))
}

/// Kdamonds of lowtide's own, under lease: switched off and taken away when this is dropped.
#[derive(Debug)]
pub struct Damon {
    kernel: Kernel,
    _lease: Lease,
    // After the lease: a module can only be on while no kdamond is.
    stat: Option<Lease>,
    /// Kdamonds with schemes whose quotas are not in force yet.
    starting: HashMap<usize, Starting>,
    // Last: other instances may only try once DAMON is given back.
    _lock: File,
}

/// The module that keeps statistics and does nothing else: it may pause. Newer distributions have it on.
pub const STATISTICS: &str = "/sys/module/damon_stat";

impl Damon {
    /// Takes DAMON with `count` kdamonds. `EBUSY` while anyone's kdamond is on: the kernel then refuses to make others.
    pub fn take(kernel: &Kernel, journal: &Journal, count: usize) -> Result<Self> {
        let nr = format!("{ADMIN}/nr_kdamonds");
        let before = kernel.read_number(&nr)?;
        let lock = journal.lock_damon()?;
        if let Some(pid) = running(kernel)?.first() {
            return Err(Error::os(format!("take DAMON from kdamond {pid} in"), ADMIN, libc::EBUSY));
        }
        // These hold DAMON without a kdamond in sysfs; the kernel would say so only at `on`.
        let stat = match exclusive_module(kernel) {
            Some(STATISTICS) => Some(journal.write(format!("{STATISTICS}/parameters/enabled").as_ref(), "N")?),
            Some(module) => return Err(Error::os("take DAMON from", module, libc::EBUSY)),
            None => None,
        };
        let contexts = (0..before)
            .map(|k| kernel.read_number(format!("{ADMIN}/{k}/contexts/nr_contexts")))
            .collect::<Result<Vec<u64>>>()?;
        let mut taken = Taken { kdamonds: before, contexts, made: None };
        let mut lease = journal.lease(&taken)?;
        // Refused if another's was switched on in between.
        kernel.write(&nr, &count.to_string())?;
        taken.made = Some(folders(kernel)?);
        lease.identify(&taken)?;
        Ok(Self { kernel: kernel.clone(), _lease: lease, stat, starting: HashMap::new(), _lock: lock })
    }

    /// Whether `damon_stat` was switched off for it; it goes on afterwards.
    pub fn has_paused_statistics(&self) -> bool {
        self.stat.is_some()
    }

    /// Whether this kernel tunes intervals itself. To be asked of a kdamond that has a context.
    pub fn tunes_intervals(&self, kdamond: usize) -> bool {
        self.kernel.exists(format!("{ADMIN}/{kdamond}/contexts/0/monitoring_attrs/intervals/intervals_goal"))
    }

    /// Operations this kernel offers. Reading it needs a context, so it is asked of a kdamond of ours.
    pub fn operations(&self, kdamond: usize) -> Result<Vec<Operations>> {
        self.kernel.write(format!("{ADMIN}/{kdamond}/contexts/nr_contexts"), "1")?;
        let text = self.kernel.read_text(format!("{ADMIN}/{kdamond}/contexts/0/avail_operations"))?;
        let all = [Operations::Vaddr, Operations::Paddr];
        Ok(all.into_iter().filter(|op| text.split_whitespace().any(|word| word == op.name())).collect())
    }

    /// Writes a set-up and switches the kdamond on. Schemes with a quota do nothing until it is in force, which
    /// [`Self::scheme_stats`] finds out: before Linux 6.19 a quota limits nothing in its first interval.
    pub fn start(&mut self, kdamond: usize, setup: &KdamondSetup) -> Result<()> {
        self.write(&format!("{kdamond}/contexts/nr_contexts"), "1")?;
        self.starting.remove(&kdamond);
        self.starting.extend(Starting::of(setup).map(|starting| (kdamond, starting)));
        self.configure(kdamond, setup)?;
        self.write(&format!("{kdamond}/state"), "on")
    }

    /// Gives a kdamond that is on a new set-up. The kernel answers when the current sampling interval is over.
    pub fn commit(&mut self, kdamond: usize, setup: &KdamondSetup) -> Result<()> {
        if let Some(starting) = self.starting.get_mut(&kdamond) {
            starting.setup.clone_from(setup);
        }
        self.configure(kdamond, setup)?;
        self.write(&format!("{kdamond}/state"), "commit")
    }

    /// Writes a file of DAMON's, which any reader may lock for a moment.
    fn write(&self, file: &str, value: &str) -> Result<()> {
        patiently(|| self.kernel.write(format!("{ADMIN}/{file}"), value))
    }

    /// The pid of a kdamond's thread; `None` when it is off.
    pub fn pid(&self, kdamond: usize) -> Option<u32> {
        patiently(|| self.kernel.read_text(format!("{ADMIN}/{kdamond}/pid"))).ok()?.trim().parse().ok()
    }

    fn configure(&self, kdamond: usize, setup: &KdamondSetup) -> Result<()> {
        let context = format!("{ADMIN}/{kdamond}/contexts/0");
        let write = |file: &str, value: &str| self.write(&format!("{kdamond}/contexts/0/{file}"), value);
        write("operations", setup.operations.name())?;
        for (file, time) in [("sample", setup.sampling), ("aggr", setup.aggregation), ("update", setup.update)] {
            write(&format!("monitoring_attrs/intervals/{file}_us"), &time.as_micros().to_string())?;
        }
        if let Some(goal) = &setup.goal {
            let put =
                |file: &str, value: String| write(&format!("monitoring_attrs/intervals/intervals_goal/{file}"), &value);
            put("access_bp", goal.access_bp.to_string())?;
            put("aggrs", goal.aggregations.to_string())?;
            put("min_sample_us", goal.shortest.as_micros().to_string())?;
            put("max_sample_us", goal.longest.as_micros().to_string())?;
        }
        // min must never exceed max in between, and the kernel wants at least 3.
        write("monitoring_attrs/nr_regions/max", &setup.max_regions.max(3).to_string())?;
        write("monitoring_attrs/nr_regions/min", &setup.min_regions.max(3).to_string())?;
        let counts = Counts::new(setup.sampling, setup.aggregation);
        self.write_schemes(kdamond, &setup.schemes, &counts)?;
        match setup.operations {
            Operations::Vaddr => {
                write("targets/nr_targets", &setup.pids.len().to_string())?;
                for (target, pid) in setup.pids.iter().enumerate() {
                    write(&format!("targets/{target}/pid_target"), &pid.to_string())?;
                }
                Ok(())
            }
            Operations::Paddr => {
                write("targets/nr_targets", "1")?;
                self.regions(format!("{context}/targets/0/regions").into(), &setup.ranges)
            }
        }
    }

    /// Thousands of files may be written here, so they are opened relative to an open folder.
    fn regions(&self, folder: PathBuf, ranges: &[(u64, u64)]) -> Result<()> {
        let count = folder.join("nr_regions");
        if patiently(|| self.kernel.read_number(&count))? != u64::try_from(ranges.len()).unwrap_or(u64::MAX) {
            patiently(|| self.kernel.write(&count, &ranges.len().to_string()))?;
        }
        let dir = File::open(self.kernel.path(&folder)).map_err(|e| Error::new("open", &folder, e))?;
        for (index, (start, end)) in ranges.iter().enumerate() {
            for (name, value) in [("start", start), ("end", end)] {
                let name = format!("{index}/{name}");
                let fail = |e: rustix::io::Errno| Error::new("write", folder.join(&name), e);
                let file =
                    openat(&dir, name.as_str(), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(fail)?;
                rustix::io::write(&file, value.to_string().as_bytes()).map_err(fail)?;
            }
        }
        Ok(())
    }
}

/// DAMON was taken: its kdamonds are switched off, and as many are left as there were.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// Value of `nr_kdamonds` before.
    pub kdamonds: u64,
    /// Values of `nr_contexts` before, one per kdamond.
    pub contexts: Vec<u64>,
    /// Inodes of the folders of its own kdamonds; `None` until they are made.
    pub made: Option<Vec<u64>>,
}

impl KernelChange for Taken {
    const KIND: &'static str = "damon";
    const IS_EXCLUSIVE: bool = true;

    fn describe(&self) -> String {
        format!("DAMON switched on (there were {} kdamonds)", self.kdamonds)
    }

    fn take_back(&self, kernel: &Kernel) -> Result<()> {
        let nr = format!("{ADMIN}/nr_kdamonds");
        if kernel.if_there(&nr, kernel.read_number(&nr))?.is_none() {
            return Ok(());
        }
        match &self.made {
            // They are gone, and those that are there by now are another's.
            Some(made) if folders(kernel)? != *made => return Ok(()),
            Some(made) => (0..made.len()).try_for_each(|k| switch_off(kernel, k))?,
            // Ended before its own were made: one that is on is another's.
            None if !running(kernel)?.is_empty() => return Ok(()),
            None => {}
        }
        patiently(|| kernel.write(&nr, &self.kdamonds.to_string()))?;
        for (k, count) in self.contexts.iter().enumerate().filter(|(_, count)| **count > 0) {
            patiently(|| kernel.write(format!("{ADMIN}/{k}/contexts/nr_contexts"), &count.to_string()))?;
        }
        Ok(())
    }
}

fn switch_off(kernel: &Kernel, kdamond: usize) -> Result<()> {
    let state = format!("{ADMIN}/{kdamond}/state");
    if patiently(|| kernel.read_text(&state))?.trim() == "on" {
        // It may have ended by itself since, with its target.
        let _ = patiently(|| kernel.write(&state, "off"));
    }
    Ok(())
}

/// Tries again while DAMON's files are locked: reading or writing one, or waiting for a commit, keeps others out for at
/// most a sampling interval.
fn patiently<T>(operation: impl Fn() -> Result<T>) -> Result<T> {
    while_busy(100, Duration::from_millis(100), operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KDAMOND: [(&str, &str); 3] = [("nr_kdamonds", "1\n"), ("0/state", "on\n"), ("0/contexts/nr_contexts", "1\n")];

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Kernel, Journal) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(&ADMIN[1..]).join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let kernel = Kernel::at(dir.path());
        let journal = Journal::open(kernel.clone(), &dir.path().join("run")).unwrap();
        (dir, kernel, journal)
    }

    fn state(kernel: &Kernel) -> String {
        kernel.read_text(format!("{ADMIN}/0/state")).unwrap()
    }

    #[test]
    fn a_kdamond_of_another_is_not_switched_off() {
        let (dir, kernel, journal) = tree(&KDAMOND);
        // Its pid cannot be read.
        std::fs::create_dir(dir.path().join(&ADMIN[1..]).join("0/pid")).unwrap();
        assert!(Damon::take(&kernel, &journal, 1).is_err());
        assert_eq!(state(&kernel), "on\n");
        std::fs::remove_dir(dir.path().join(&ADMIN[1..]).join("0/pid")).unwrap();
        std::fs::write(dir.path().join(&ADMIN[1..]).join("0/pid"), "77\n").unwrap();
        assert!(Damon::take(&kernel, &journal, 1).unwrap_err().is_busy());
        // It was switched on after lowtide had found none on, and before lowtide made its own.
        Taken { kdamonds: 1, contexts: vec![1], made: None }.take_back(&kernel).unwrap();
        // Or after those of lowtide had ended with their target.
        let made = Some(vec![folders(&kernel).unwrap()[0] + 1]);
        Taken { kdamonds: 1, contexts: vec![1], made }.take_back(&kernel).unwrap();
        assert_eq!(state(&kernel), "on\n");
    }

    #[test]
    fn its_own_are_switched_off() {
        let (dir, kernel, journal) = tree(&KDAMOND);
        let file = dir.path().join(&ADMIN[1..]).join("0/state");
        std::fs::write(&file, "off\n").unwrap();
        let damon = Damon::take(&kernel, &journal, 1).unwrap();
        std::fs::write(&file, "on\n").unwrap();
        drop(damon);
        assert_eq!(state(&kernel).trim(), "off");
    }
}
