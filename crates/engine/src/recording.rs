//! What `run` and `record` have in common before and after recording.

use std::path::Path;

use anyhow::Context;
use lowtide_kernel::cgroup::{Cgroup, Version};
use lowtide_kernel::pressure;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::undo::{self, Journal};
use lowtide_kernel::{swap, system};
use lowtide_model::meta::{Host, Meta, SCHEMA};
use lowtide_model::task::Task;

use crate::calibration;
use crate::failure::{Failure, code};
use crate::recorder::{RecordOptions, Recorder};

/// Which rank this process is, if a launcher started it as one of several.
pub fn task() -> Option<Task> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Task::of(|name| std::env::var(name).ok(), &host)
}

/// Takes back what dead lowtides left, then opens a journal for this one. Fails if the journal cannot be written:
/// nothing may be changed that could not be taken back. On a kernel with pages of another size.
pub fn journal(kernel: &Kernel) -> anyhow::Result<Journal> {
    let page = rustix::param::page_size();
    if u64::try_from(page) != Ok(lowtide_model::PAGE) {
        let message =
            format!("this kernel's pages have {page} bytes; lowtide knows those of 4096 only: boot such a kernel");
        return Err(Failure::new(code::IMPOSSIBLE, message).into());
    }
    let folder = undo::folder();
    take_back(kernel, &folder)?;
    Journal::open(kernel.clone(), &folder).context("the undo journal cannot be kept")
}

/// Takes back what dead lowtides left, and reports it. Fails if the journals cannot be read.
pub fn take_back(kernel: &Kernel, folder: &Path) -> anyhow::Result<()> {
    let recovery = undo::recover(kernel, folder)?;
    for error in recovery.unread {
        lowtide_kernel::message!(
            "lowtide: what a killed lowtide left may still be there: {error}; run lowtide recover"
        );
    }
    for recovered in recovery.recovered {
        let (pid, command) = (recovered.pid, &recovered.command);
        for (undo, result) in &recovered.undone {
            match result {
                Ok(()) => lowtide_kernel::message!("lowtide: took back what {command} (pid {pid}) left: {undo}"),
                Err(error) => {
                    lowtide_kernel::message!("lowtide: could not take back {undo} of {command} (pid {pid}): {error}")
                }
            }
        }
    }
    Ok(())
}

/// What is known before recording starts.
pub fn meta(kernel: &Kernel, command: Vec<String>, options: &RecordOptions, cgroups: &[Cgroup]) -> Meta {
    let any = cgroups.first().cloned().or_else(|| Cgroup::of(kernel, std::process::id()).ok().flatten());
    let mut notes = Vec::new();
    if let Err(error) = pressure::read(kernel, "/proc/pressure/memory") {
        notes.push(format!("no pressure: {error}; boot with psi=1"));
    } else if any.as_ref().is_some_and(|cgroup| cgroup.version == Version::V1) {
        notes.push("pressure is that of the system: cgroup version 1 has none of its own".to_owned());
    } else if cgroups.len() > 1 {
        notes.push("pressure is that of the system: several cgroups have none in common".to_owned());
    }
    if cgroups.iter().any(|cgroup| cgroup.version == Version::V1) {
        notes.push(
            "cgroup version 1 reports kernel memory in one number: slab is what is left of it without page tables and stacks"
                .to_owned(),
        );
    }
    Meta {
        schema: SCHEMA,
        lowtide: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        attached: options.source.attached,
        interval_s: options.interval_s,
        max_overhead_percent: options.max_overhead * 100.0,
        host: Host {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(0, |cpus| u64::try_from(cpus.get()).unwrap_or(u64::MAX)),
            memory_bytes: system::memory(kernel).map_or(0, |memory| memory.total),
            swap_bytes: swap::available(kernel, any.as_ref()).unwrap_or(0),
            cgroup_version: any.map_or(0, |cgroup| if cgroup.version == Version::V1 { 1 } else { 2 }),
        },
        task: task(),
        refault_costs: calibration::load_or_sample(kernel),
        notes,
        ..Meta::default()
    }
}

/// Removes a record that holds nothing, because the program never started.
pub fn discard(recorder: Recorder) {
    if let Ok(Some(dir)) = recorder.close(lowtide_model::meta::End::default()) {
        let _ = std::fs::remove_dir_all(dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_one_left_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let (run, knob) = (dir.path().join("run"), dir.path().join("sys/knob"));
        std::fs::create_dir_all(&run).unwrap();
        std::fs::create_dir_all(dir.path().join("sys")).unwrap();
        std::fs::write(&knob, "changed\n").unwrap();
        let journal = run.join("99999.journal");
        let text = "{\"owner\":{\"pid\":99999,\"command\":\"lowtide run\"}}\n\
                    {\"taken\":{\"id\":0,\"undo\":{\"write\":{\"path\":\"/sys/knob\",\"old\":\"was\"}}}}\n{\"tak";
        std::fs::write(&journal, text).unwrap();
        take_back(&Kernel::at(dir.path()), &run).unwrap();
        assert!(std::fs::read_to_string(&knob).unwrap().starts_with("was"));
        assert!(!journal.exists());
    }
}
