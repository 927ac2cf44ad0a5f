//! A record of what workloads hold and of what is granted to them: `lowtide guard --out`.

use std::path::Path;

use lowtide_kernel::grant::GrantState;
use lowtide_model::generations::CgroupUse;
use lowtide_model::meta::{End, Meta};
use lowtide_model::units::{float, integer};
use lowtide_model::usage::Usage;
use lowtide_record::{ActionRow, CgroupRow, StoreError, Writer};

use crate::event::{ActionEvent, Event, Observed};

/// Workloads are recorded once a second, though they are observed more often while they stall.
const STEP_S: f64 = 0.9;
/// Rows are written so often, seconds, while nothing is granted: a disk takes its time while the machine thrashes.
const WRITE_EVERY_S: f64 = 10.0;
/// So many rows are written in any case: some megabytes.
const HELD_ROWS: usize = 20_000;

/// The record, while it is made. Its times are seconds since it began.
pub struct AgentRecord {
    writer: Writer,
    meta: Meta,
    began_s: f64,
    observed_s: f64,
    /// When rows were last added, and written.
    added_s: f64,
    written_s: f64,
    /// Counters of the machine so far.
    counted: Usage,
}

impl AgentRecord {
    /// Begins one in a folder, which must be empty or not exist.
    ///
    /// # Errors
    /// If it is not empty, another user's, or cannot be written.
    pub fn create(folder: &Path, meta: Meta, now_s: f64) -> Result<Self, StoreError> {
        let writer = Writer::create(folder, &meta)?;
        let (observed_s, added_s, written_s) = (0.0, f64::NEG_INFINITY, 0.0);
        Ok(Self { writer, meta, began_s: now_s, observed_s, added_s, written_s, counted: Usage::default() })
    }

    /// Takes an event.
    ///
    /// # Errors
    /// If rows could not be written; they are kept for the next try, up to a bound.
    pub fn take(&mut self, now_s: f64, event: &Event<'_>) -> Result<(), StoreError> {
        let t_s = (now_s - self.began_s).max(0.0);
        let mut due = false;
        match event {
            Event::Observed(observed) => {
                self.observe(t_s, observed);
                let granted = observed.workloads.values().any(|workload| workload.granted != GrantState::default());
                due = !granted && t_s - self.written_s >= WRITE_EVERY_S;
            }
            Event::Acted(action) => self.act(t_s, action),
            _ => return Ok(()),
        }
        if due || self.writer.buffered() >= HELD_ROWS {
            self.written_s = t_s;
            return self.writer.flush();
        }
        Ok(())
    }

    fn observe(&mut self, t_s: f64, observed: &Observed<'_>) {
        let observation = observed.observation;
        let elapsed_s = t_s - std::mem::replace(&mut self.observed_s, t_s);
        let count = |sum: &mut Option<f64>, more: f64| *sum = Some(sum.unwrap_or(0.0) + more);
        count(&mut self.counted.memory_some_s, observation.pressure.unwrap_or(0.0) * elapsed_s);
        for target in &observation.targets {
            count(&mut self.counted.refault_anon, target.refaults.anon);
            count(&mut self.counted.refault_file, target.refaults.file);
        }
        if t_s - self.added_s < STEP_S {
            return;
        }
        self.added_s = t_s;
        let memory = float(self.meta.host.memory_bytes);
        self.writer.add([Usage {
            t_s: Some(t_s),
            swap_bytes: Some(observation.targets.iter().map(|target| target.swapped).sum()),
            system_used_bytes: observation.free.map(|free| (1.0 - free) * memory),
            ..self.counted.clone()
        }]);
        for target in &observation.targets {
            let Some(workload) = observed.workloads.get(&target.id) else { continue };
            for (anon, bytes) in [(true, target.resident.anon), (false, target.resident.file)] {
                let memory = CgroupUse { cgroup: workload.path.clone(), anon, bytes, ..CgroupUse::default() };
                self.writer.add([CgroupRow { t_s, memory }]);
            }
        }
    }

    fn act(&mut self, t_s: f64, action: &ActionEvent<'_>) {
        self.writer.add([ActionRow {
            t_s,
            action: action.kind.name().to_owned(),
            target: action.name.to_owned(),
            bytes: action.asked.and_then(|asked| i64::try_from(integer(asked.anon + asked.file)).ok()),
            result: action.stopped.clone().unwrap_or_else(|| ActionRow::DONE.to_owned()),
            reason: action.reason.to_owned(),
        }]);
    }

    /// Ends it.
    ///
    /// # Errors
    /// If the last rows could not be written.
    pub fn end(mut self, now_s: f64) -> Result<(), StoreError> {
        let runtime_s = (now_s - self.began_s).max(0.0);
        self.meta.end = Some(End { reason: "interrupted".to_owned(), runtime_s, ..End::default() });
        self.writer.close(&self.meta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ActionKind;
    use lowtide_model::target::TargetId;
    use lowtide_policy::machine::{Observation, WorkloadState};
    use lowtide_record::Record;
    use std::collections::BTreeMap;

    #[test]
    fn rows_of_the_machine_and_of_what_is_granted() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("record");
        let meta = Meta { schema: lowtide_model::meta::SCHEMA, ..Meta::default() };
        let mut record = AgentRecord::create(&folder, meta, 100.0).unwrap();
        let targets = vec![WorkloadState { swapped: 4096.0, ..WorkloadState::default() }];
        for quarter in 0..40 {
            let now_s = 100.0 + 0.25 * f64::from(quarter);
            let (pressure, free) = (Some(0.5), Some(0.25));
            let observation = Observation { now_s, targets: targets.clone(), pressure, free, ..Observation::default() };
            let observed = Observed {
                observation: &observation,
                workloads: &BTreeMap::new(),
                processes: &[],
                are_ages_new: false,
                stopped: false,
                stop_file: "",
                dry_run: false,
                every_s: 1.0,
                cpu_s: (0.0, 0.0),
            };
            record.take(now_s, &Event::Observed(&observed)).unwrap();
        }
        let pause =
            ActionEvent { name: "/b", reason: "it waits", ..ActionEvent::of(ActionKind::Pause, TargetId::default()) };
        record.take(104.0, &Event::Acted(&pause)).unwrap();
        record.end(110.0).unwrap();
        let record = Record::open(&folder).unwrap();
        let usage = record.usage();
        assert_eq!(usage.len(), 10, "once a second");
        assert_eq!((usage[9].t_s, usage[9].memory_some_s, usage[9].swap_bytes), (Some(9.0), Some(4.5), Some(4096.0)));
        let actions: Vec<ActionRow> = record.rows();
        assert_eq!(
            (actions[0].t_s, actions[0].action.as_str(), actions[0].result.as_str()),
            (4.0, "pause", ActionRow::DONE)
        );
    }
}
