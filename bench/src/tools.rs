//! The programs of a benchmark: lowtide, the pattern program and its patterns, and a folder to work in.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use lowtide_record::Record;
use tempfile::TempDir;

use crate::child::{FinishedChild, Running};

#[derive(Debug, Clone, clap::Args)]
pub struct Tools {
    /// The lowtide binary [default: beside this program]
    #[arg(long, value_name = "PATH")]
    lowtide: Option<PathBuf>,
    /// The pattern program [default: beside this program]
    #[arg(long, value_name = "PATH")]
    pattern: Option<PathBuf>,
    /// Folder of the pattern files
    #[arg(long, value_name = "DIR", default_value = "workloads/patterns")]
    patterns: PathBuf,
    /// Folder for temporary records and the patterns' files; on a disk, as tmpfs has no page cache
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Monitor of lowtide
    #[arg(long, value_parser = ["auto", "damon", "mglru", "smaps", "none"], default_value = "auto")]
    monitor: String,
    /// `--map` of lowtide: auto, vaddr or paddr
    #[arg(long, value_name = "ADDRESSES", default_value = "auto")]
    map: String,
    /// Price cap of lowtide, a share of one CPU [default: lowtide's own]
    #[arg(long, value_name = "SHARE")]
    max_overhead: Option<String>,
}

/// A program that was run under lowtide.
#[derive(Debug)]
pub struct Measured {
    pub program: serde_json::Value,
    pub record: PathBuf,
}

impl Tools {
    /// A folder that is removed when it is dropped.
    pub fn folder(&self) -> anyhow::Result<TempDir> {
        let made = tempfile::Builder::new().prefix("lowtide-bench-").tempdir_in(&self.work_dir);
        made.with_context(|| format!("making a folder in {}", self.work_dir.display()))
    }

    /// The pattern files of these names, or all.
    pub fn pattern_files(&self, names: &[String]) -> anyhow::Result<Vec<PathBuf>> {
        if !names.is_empty() {
            return names.iter().map(|name| self.pattern_file(name)).collect();
        }
        let entries = std::fs::read_dir(&self.patterns)
            .with_context(|| format!("{}: give the folder by --patterns", self.patterns.display()))?;
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        files.sort();
        Ok(files)
    }

    pub fn pattern_file(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.patterns.join(format!("{name}.toml"));
        if !path.exists() {
            bail!("{}: no such pattern; give the folder by --patterns", path.display());
        }
        Ok(path)
    }

    /// The pattern program on a file, which keeps its own files in `dir`.
    pub fn pattern(&self, file: &Path, dir: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(found(self.pattern.as_deref(), "pattern")?);
        command.arg(file).arg("--dir").arg(dir);
        Ok(command)
    }

    /// `lowtide VERB --out RECORD` with the options of this benchmark.
    pub fn lowtide(&self, verb: &str, record: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(found(self.lowtide.as_deref(), "lowtide")?);
        command.args([verb, "--monitor", &self.monitor, "--map", &self.map, "--out"]).arg(record);
        if let Some(share) = &self.max_overhead {
            command.args(["--max-overhead", share]);
        }
        Ok(command)
    }

    pub fn agent(&self, config: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(found(self.lowtide.as_deref(), "lowtide")?);
        command.args(["agent", "--config"]).arg(config);
        Ok(command)
    }

    /// The same command under `lowtide run`, recorded in `dir`/record.
    pub fn under_lowtide(&self, program: &Command, dir: &Path) -> anyhow::Result<Command> {
        let mut command = self.lowtide("run", &dir.join("record"))?;
        command.arg("--").arg(program.get_program()).args(program.get_args());
        Ok(command)
    }

    /// Runs a program under lowtide. Fails with lowtide's own message if the program failed or there is no record. A lowtide
    /// that failed otherwise does not matter.
    pub fn measure(&self, program: &Command, dir: &Path, limit: Duration) -> anyhow::Result<Measured> {
        let finished = Running::start(self.under_lowtide(program, dir)?, dir)?.wait(limit, || ())?;
        measured(&finished, dir)
    }
}

/// Result of a program under lowtide whose record is in `dir`/record.
pub fn measured(finished: &FinishedChild, dir: &Path) -> anyhow::Result<Measured> {
    let record = dir.join("record");
    let opened = Record::open(&record).map_err(|_| anyhow::anyhow!("{}", finished.complaint()))?;
    match opened.meta().end.as_ref().and_then(|end| end.exit_code) {
        Some(0) => Ok(Measured { program: finished.json()?, record }),
        _ => bail!("{}", finished.complaint()),
    }
}

/// The program as given, or the one beside this program.
fn found(given: Option<&Path>, name: &str) -> anyhow::Result<PathBuf> {
    // Absolute, as a name without a slash would be searched for in PATH.
    let path = match given {
        Some(path) => std::path::absolute(path)?,
        None => std::env::current_exe()?.with_file_name(name),
    };
    if !path.exists() {
        bail!("{}: not found; build it, or give its path by --{name}", path.display());
    }
    Ok(path)
}
