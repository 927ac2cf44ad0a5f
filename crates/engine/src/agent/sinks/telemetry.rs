//! Telemetry for the fleet: a row for each workload and minute, in files that are complete or absent.
//!
//! Files are written by a thread, as a disk may take its time. Where it takes too long, or is full, rows are lost and
//! counted; the agent goes on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use lowtide_fleet::collect::Collector;
use lowtide_fleet::store;
use lowtide_fleet::telemetry::TelemetryRow;
use lowtide_model::target::TargetId;
use lowtide_model::units::{Size, Span};
use lowtide_policy::machine::Observation;
use serde::Deserialize;

use crate::event::{Event, Sink};
use crate::recommender::unix_s;
use crate::workloads::{NONE, Workload};

/// What is written, and where.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetrySettings {
    /// The folder.
    pub dir: PathBuf,
    /// This host's name there; `NODE_NAME` of the environment, or its own, if not given.
    pub host: Option<String>,
    /// No more than this is kept: the oldest files go.
    #[serde(default = "gigabyte")]
    pub max: Size,
    /// A file is written so often.
    #[serde(default = "ten_minutes")]
    pub every: Span,
    /// Labels of all workloads.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn gigabyte() -> Size {
    Size(1 << 30)
}

fn ten_minutes() -> Span {
    Span(std::time::Duration::from_secs(600))
}

impl TelemetrySettings {
    /// Whether they make sense. Fails with what does not.
    pub fn check(&self) -> Result<(), String> {
        if !self.dir.is_absolute() {
            return Err(format!("dir = {:?}: a path from / on", self.dir));
        }
        if !(1.0..=86_400.0).contains(&self.every.0.as_secs_f64()) {
            return Err(format!("every = {}: a time from 1s to 1d", self.every));
        }
        Ok(())
    }

    /// Labels of all and of one workload, as they are written.
    fn labels_of(&self, own: &BTreeMap<String, String>) -> String {
        let labels: BTreeMap<&String, &String> = self.labels.iter().chain(own).collect();
        // Texts can always be written.
        if labels.is_empty() { String::new() } else { serde_json::to_string(&labels).unwrap_or_default() }
    }
}

/// Rows that are held before a file is written in any case: a few megabytes.
const HELD: usize = 4096;

/// What rows hold of a workload beside its memory: its path, policy and labels. It may have ended when its last minute is written.
type Description = (String, String, BTreeMap<String, String>);

fn describe(workload: &Workload) -> Description {
    let policy = if workload.policy == NONE { "" } else { &workload.policy };
    (workload.path.clone(), policy.to_owned(), workload.labels.clone())
}

/// The thread that writes.
struct FileThread {
    rows: SyncSender<Vec<TelemetryRow>>,
    troubles: Receiver<String>,
    thread: JoinHandle<()>,
}

impl FileThread {
    /// Starts it, with the first rows: a thread inherits the signal mask, and the loop has blocked its signals by then.
    fn start(settings: &TelemetrySettings) -> std::io::Result<Self> {
        let (rows, receiver) = sync_channel::<Vec<TelemetryRow>>(1);
        let (trouble, troubles) = sync_channel(16);
        let of = settings.clone();
        let host = settings.host.clone().unwrap_or_else(own_name);
        let work = move || {
            for rows in receiver {
                let written = store::write(&of.dir, &host, &rows).and_then(|_| store::bound(&of.dir, &host, of.max.0));
                if let Err(error) = written {
                    // One that is not taken repeats one before.
                    let _ = trouble.try_send(format!("{} rows of telemetry are lost: {error}", rows.len()));
                }
            }
        };
        let thread = std::thread::Builder::new().name("telemetry".to_owned()).spawn(work)?;
        Ok(Self { rows, troubles, thread })
    }
}

/// Writes telemetry.
pub struct Telemetry {
    /// What is written, and where.
    pub settings: TelemetrySettings,
    collector: Collector,
    /// Workloads whose rows may still come: the last minute of one follows its end.
    known: BTreeMap<TargetId, Description>,
    rows: Vec<TelemetryRow>,
    written_s: Option<f64>,
    writer: Option<FileThread>,
    /// The last trouble that was reported.
    reported: Option<String>,
    /// Rows that were lost, and are not reported yet.
    lost: usize,
}

/// This host's name: in a container, which has a name of its own, `NODE_NAME`.
fn own_name() -> String {
    let given = std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty());
    given.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

impl Telemetry {
    /// A writer. The folder is made with the first file.
    pub fn new(settings: TelemetrySettings) -> Self {
        Self {
            collector: Collector::default(),
            known: BTreeMap::new(),
            rows: Vec::new(),
            written_s: None,
            writer: None,
            reported: None,
            lost: 0,
            settings,
        }
    }

    /// Takes in an observation of workloads, and passes on to be written what is due.
    fn observe(&mut self, observation: &Observation, workloads: &BTreeMap<TargetId, Workload>) {
        let now_s = observation.now_s;
        let unix_s = unix_s();
        for target in &observation.targets {
            if let Some(workload) = workloads.get(&target.id) {
                self.known.insert(target.id, describe(workload));
            }
        }
        let rows = self.collector.observe(observation);
        self.add(rows, unix_s - now_s);
        self.known.retain(|id, _| self.collector.knows(*id));
        let written_s = *self.written_s.get_or_insert(now_s);
        if self.rows.len() >= HELD || now_s - written_s >= self.settings.every.0.as_secs_f64() {
            self.written_s = Some(now_s);
            self.pass_on();
        }
    }

    fn add(&mut self, rows: Vec<(TargetId, TelemetryRow)>, from_unix_s: f64) {
        for (id, mut row) in rows {
            let Some((name, policy, labels)) = self.known.get(&id) else { continue };
            (row.workload, row.policy) = (name.clone(), policy.clone());
            row.labels = self.settings.labels_of(labels);
            row.minute.now_s += from_unix_s;
            self.rows.push(row);
        }
    }

    fn pass_on(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return;
        }
        if self.writer.is_none() {
            self.writer = FileThread::start(&self.settings).ok();
        }
        let Some(writer) = &self.writer else {
            self.lost += rows.len();
            return;
        };
        if let Err(TrySendError::Full(rows) | TrySendError::Disconnected(rows)) = writer.rows.try_send(rows) {
            // The disk is behind: what is new is kept for the next time, as long as it is not too much.
            if rows.len() < 4 * HELD {
                self.rows = rows;
            } else {
                self.lost += rows.len();
            }
        }
    }

    /// Why something was lost, each reason once.
    pub fn take_trouble(&mut self) -> Option<String> {
        let lost = std::mem::take(&mut self.lost);
        let lost = (lost > 0).then(|| format!("{lost} rows of telemetry are lost: the disk is too slow for them"));
        let trouble = self.writer.as_ref().and_then(|writer| writer.troubles.try_iter().last()).or(lost)?;
        // The number of rows changes; the trouble is reported once.
        let why = trouble.split_once(": ").map(|(_, why)| why.to_owned());
        let new = why != self.reported;
        self.reported = why;
        new.then_some(trouble)
    }

    /// Writes the last rows, and waits for it. The last trouble.
    pub fn end(&mut self, now_s: f64) -> Option<String> {
        let unix_s = unix_s();
        let rows = self.collector.end();
        self.add(rows, unix_s - now_s);
        let rows = std::mem::take(&mut self.rows);
        if self.writer.is_none() && !rows.is_empty() {
            self.writer = FileThread::start(&self.settings).ok();
        }
        let FileThread { rows: sender, troubles, thread } = self.writer.take()?;
        if !rows.is_empty() {
            // It has ended only if it panicked.
            let _ = sender.send(rows);
        }
        drop(sender);
        let _ = thread.join();
        troubles.try_iter().last()
    }
}

impl Sink for Telemetry {
    fn take(&mut self, _: f64, event: &Event<'_>) {
        if let Event::Observed(observed) = event {
            self.observe(observed.observation, observed.workloads);
        }
    }
}
