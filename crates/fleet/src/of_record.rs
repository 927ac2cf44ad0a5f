//! Telemetry made from records.

use crate::collect::Collector;
use crate::telemetry::TelemetryRow;
use lowtide_model::cohort::AgeBin;
use lowtide_model::kind::PerKind;
use lowtide_model::target::TargetId;
use lowtide_model::usage::Usage;
use lowtide_policy::machine::{Observation, WorkloadState};
use serde_json::json;

use lowtide_record::Record;

/// A record as telemetry: its host's name where it has one, and its minutes.
pub fn rows(record: &Record) -> (String, Vec<TelemetryRow>) {
    let meta = record.meta();
    let usage = record.usage();
    let mut ages = record.ages();
    if ages.is_empty() {
        ages = record.ages_of_map();
    }
    let labels = json!({ "command": meta.command.join(" "), "backend": meta.monitor.backend }).to_string();
    let name = meta.command.first().cloned().unwrap_or_default();
    let mut collector = Collector::default();
    let mut rows = Vec::new();
    let mut before = Usage::default();
    let mut readings = ages.chunk_by(|a, b| a.t_s.to_bits() == b.t_s.to_bits()).peekable();
    for now in &usage {
        let Some(now_s) = now.t_s else { continue };
        // Ages that were sampled until now; of several readings the last.
        let mut bins: Vec<AgeBin> = Vec::new();
        while let Some(reading) = readings.next_if(|reading| reading[0].t_s <= now_s + 1e-6) {
            bins = reading.iter().map(|row| row.bin).collect();
        }
        let targets = vec![target(now, &before, bins)];
        rows.extend(collector.observe(&Observation { now_s, targets, ..Observation::default() }));
        before = now.clone();
    }
    rows.extend(collector.end());
    let finished = |(_, mut row): (TargetId, TelemetryRow)| {
        row.minute.now_s += meta.started_unix_s;
        TelemetryRow { workload: name.clone(), labels: labels.clone(), ..row }
    };
    let host = meta.task.as_ref().map(|task| task.node.clone()).unwrap_or_default();
    (if host.is_empty() { "record".to_owned() } else { host }, rows.into_iter().map(finished).collect())
}

/// A tick of a record as a policy would have observed it.
fn target(now: &Usage, before: &Usage, ages: Vec<AgeBin>) -> WorkloadState {
    // Histograms show what was watched; where nothing else does, they show how much there is, too.
    let of_ages = |anon: bool| ages.iter().filter(|bin| bin.anon == anon).map(|bin| bin.size.bytes).sum::<f64>();
    let since = |get: fn(&Usage) -> Option<f64>| Some((get(now)? - get(before)?).max(0.0));
    let elapsed_s = since(|usage| usage.t_s).filter(|elapsed_s| *elapsed_s > 0.0);
    let share = |seconds: Option<f64>| Some((seconds? / elapsed_s?).min(1.0));
    WorkloadState {
        id: TargetId::default(),
        resident: PerKind {
            anon: now.anon_bytes.unwrap_or_else(|| of_ages(true)),
            file: now.file_bytes.unwrap_or_else(|| of_ages(false)),
        },
        swapped: now.swap_bytes.unwrap_or(0.0),
        pressure: share(since(|usage| usage.memory_some_s)),
        refaults: PerKind { anon: since(|usage| usage.refault_anon), file: since(|usage| usage.refault_file) }
            .map(Option::unwrap_or_default),
        ages,
        ..WorkloadState::default()
    }
}
