//! The programs that are put together: lowtide, the pattern program and its patterns, and a place to work in.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use lowtide_record::Record;
use tempfile::TempDir;

use crate::child::{Finished, Running};

/// `--monitor` of lowtide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Monitor {
    /// The best that serves.
    Auto,
    /// DAMON: cohort and map.
    Damon,
    /// Generations of the multi-generational LRU.
    Mglru,
    /// The fallback.
    Smaps,
    /// Accounts only.
    None,
}

impl Monitor {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Damon => "damon",
            Self::Mglru => "mglru",
            Self::Smaps => "smaps",
            Self::None => "none",
        }
    }
}

/// Where the programs are.
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
    /// Where records and the patterns' files are made for a while; a disk, as tmpfs has no page cache
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    work_dir: PathBuf,
    /// Monitor of lowtide
    #[arg(long, value_enum, default_value = "auto")]
    pub monitor: Monitor,
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
    /// What the program printed.
    pub program: serde_json::Value,
    /// Folder of the record.
    pub record: PathBuf,
}

impl Tools {
    /// A folder that goes when it is dropped.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn folder(&self) -> anyhow::Result<TempDir> {
        let made = tempfile::Builder::new().prefix("lowtide-bench-").tempdir_in(&self.work_dir);
        made.with_context(|| format!("making a folder in {}", self.work_dir.display()))
    }

    /// The pattern files of that name, or all.
    ///
    /// # Errors
    /// If there is none of that name.
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

    /// The pattern file of that name.
    ///
    /// # Errors
    /// If there is none.
    pub fn pattern_file(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.patterns.join(format!("{name}.toml"));
        if !path.exists() {
            bail!("{}: no such pattern; give the folder by --patterns", path.display());
        }
        Ok(path)
    }

    /// The pattern program on a file, which keeps its own files in `dir`.
    ///
    /// # Errors
    /// If the program is not found.
    pub fn pattern(&self, file: &Path, dir: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(found(self.pattern.as_deref(), "pattern")?);
        command.arg(file).arg("--dir").arg(dir);
        Ok(command)
    }

    /// `lowtide VERB --out RECORD` with the options of this benchmark.
    ///
    /// # Errors
    /// If the program is not found.
    pub fn lowtide(&self, verb: &str, record: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(found(self.lowtide.as_deref(), "lowtide")?);
        command.args([verb, "--monitor", self.monitor.name(), "--map", &self.map, "--out"]).arg(record);
        if let Some(share) = &self.max_overhead {
            command.args(["--max-overhead", share]);
        }
        Ok(command)
    }

    /// `lowtide agent` with that configuration.
    ///
    /// # Errors
    /// If the program is not found.
    pub fn agent(&self, config: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(found(self.lowtide.as_deref(), "lowtide")?);
        command.args(["agent", "--config"]).arg(config);
        Ok(command)
    }

    /// The same command under `lowtide run`, recorded in `dir`/record.
    ///
    /// # Errors
    /// As [`Tools::lowtide`].
    pub fn under_lowtide(&self, program: &Command, dir: &Path) -> anyhow::Result<Command> {
        let mut command = self.lowtide("run", &dir.join("record"))?;
        command.arg("--").arg(program.get_program()).args(program.get_args());
        Ok(command)
    }

    /// Runs a program under lowtide. A lowtide that cannot draw its report yet does not matter as long as there is a
    /// record.
    ///
    /// # Errors
    /// If the program failed, or there is no record: with lowtide's own words.
    pub fn measure(&self, program: &Command, dir: &Path, limit: Duration) -> anyhow::Result<Measured> {
        let finished = Running::start(self.under_lowtide(program, dir)?, dir)?.wait(limit, || ())?;
        measured(&finished, dir)
    }
}

/// What came of a program under lowtide whose record is in `dir`/record.
///
/// # Errors
/// As [`Tools::measure`].
pub fn measured(finished: &Finished, dir: &Path) -> anyhow::Result<Measured> {
    let record = dir.join("record");
    let opened = Record::open(&record).map_err(|_| anyhow::anyhow!("{}", finished.complaint()))?;
    match opened.meta().end.as_ref().and_then(|end| end.exit_code) {
        Some(0) => Ok(Measured { program: finished.json()?, record }),
        _ => bail!("{}", finished.complaint()),
    }
}

/// The program as given, or the one beside this program.
fn found(given: Option<&Path>, name: &str) -> anyhow::Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_path_buf(),
        None => std::env::current_exe().context("where this program is")?.with_file_name(name),
    };
    // The program is run in no other folder, but a name without a slash would be looked for in PATH.
    let path = std::path::absolute(path)?;
    if !path.exists() {
        bail!("{}: not found; build it, or give its path by --{name}", path.display());
    }
    Ok(path)
}
