//! The performance of a workload by a measure of its user's: a command that prints a number, run now and then beside the loop.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use lowtide_kernel::sys::{self, Signals};
use lowtide_model::target::TargetId;
use lowtide_model::units::Span;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;

use crate::workloads::Workloads;

/// A measure, as it stands in the file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// A program and its arguments; the path of the cgroup is in its environment, as `LOWTIDE_CGROUP`. The first word that it
    /// prints is the value.
    pub command: Vec<String>,
    /// Time from one to the next, and that one may take.
    #[serde(default = "ten_seconds")]
    pub every: Span,
    /// Which way is better.
    #[serde(default)]
    pub better: Better,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A latency.
    #[default]
    Lower,
    /// A throughput.
    Higher,
}

fn ten_seconds() -> Span {
    Span(std::time::Duration::from_secs(10))
}

impl Measure {
    /// That it can be run. Fails with what is missing.
    pub fn check(&self) -> Result<(), String> {
        match self.command.first() {
            None => Err("metric: command is empty; give a program and its arguments".to_owned()),
            Some(name) if name.is_empty() => Err("metric: command has no name".to_owned()),
            Some(_) if self.every.0.as_secs() == 0 => Err("metric: every is a second at least".to_owned()),
            Some(_) => Ok(()),
        }
    }
}

/// A value of so many bytes or more is none.
const LONGEST: u64 = 4096;

/// One command that is under way, or was last.
#[derive(Debug)]
struct Running {
    child: Option<(Child, ChildStdout)>,
    begun_s: f64,
    value: Option<f64>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

impl Running {
    /// Ends it, with all that it started.
    fn end(&mut self) {
        if let Some((mut child, _)) = self.child.take() {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
        }
    }
}

/// The commands of all workloads, by id.
#[derive(Debug, Default)]
pub struct Metrics(BTreeMap<TargetId, Running>);

impl Metrics {
    /// Measures the performance of workloads that have a measure. What failed.
    pub fn run(&mut self, now_s: f64, signals: &Signals, workloads: &mut Workloads) -> Vec<String> {
        let measured = workloads.all.iter().filter_map(|(id, of)| Some((*id, of.path.as_str(), of.measure.as_ref()?)));
        let (values, wrong) = self.step(now_s, signals, measured);
        for (id, workload) in workloads.all.iter_mut() {
            workload.metric = values.get(id).copied();
        }
        wrong
    }

    /// Starts commands that are due and takes values of those that ended. The newest value of each workload, higher being worse,
    /// and what failed: a value that failed is not known, and holds nothing back.
    fn step<'a>(
        &mut self,
        now_s: f64,
        signals: &Signals,
        workloads: impl Iterator<Item = (TargetId, &'a str, &'a Measure)>,
    ) -> (BTreeMap<TargetId, f64>, Vec<String>) {
        let (mut values, mut wrong) = (BTreeMap::new(), Vec::new());
        let mut before = std::mem::take(&mut self.0);
        for (id, path, measure) in workloads {
            let mut running =
                before.remove(&id).unwrap_or(Running { child: None, begun_s: f64::NEG_INFINITY, value: None });
            let every_s = measure.every.0.as_secs_f64();
            if let Some(result) = running.ended(now_s, every_s) {
                running.value = match result {
                    Ok(value) => Some(if measure.better == Better::Higher { -value } else { value }),
                    Err(why) => {
                        wrong.push(format!("{path}: its metric is not known: {} {why}", measure.command[0]));
                        None
                    }
                };
            }
            // A clock that was set back must not stop it for ever.
            if running.child.is_none() && !(running.begun_s..running.begun_s + every_s).contains(&now_s) {
                running.begun_s = now_s;
                match start(&measure.command, path, signals) {
                    Ok(child) => running.child = Some(child),
                    Err(error) => {
                        running.value = None;
                        wrong.push(format!("{path}: its metric is not known: {}: {error}", measure.command[0]));
                    }
                }
            }
            values.extend(running.value.map(|value| (id, value)));
            self.0.insert(id, running);
        }
        (values, wrong)
    }
}

impl Running {
    /// What it printed, once it has ended; it is ended if it takes too long.
    fn ended(&mut self, now_s: f64, longest_s: f64) -> Option<Result<f64, String>> {
        let (child, _) = self.child.as_mut()?;
        match child.try_wait() {
            Ok(None) if (0.0..longest_s).contains(&(now_s - self.begun_s)) => None,
            Ok(None) => {
                self.end();
                Some(Err(format!("did not end within {longest_s} s")))
            }
            Ok(Some(status)) => {
                let (_, printed) = self.child.take()?;
                Some(if status.success() { value(printed) } else { Err(format!("failed with {status}")) })
            }
            Err(error) => {
                self.end();
                Some(Err(error.to_string()))
            }
        }
    }
}

fn start(command: &[String], path: &str, signals: &Signals) -> std::io::Result<(Child, ChildStdout)> {
    let mut process = Command::new(&command[0]);
    process.args(&command[1..]).env("LOWTIDE_CGROUP", path).process_group(0);
    process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    sys::prepare_child(&mut process, signals, None);
    let mut child = process.spawn()?;
    let printed = child.stdout.take().ok_or_else(|| std::io::Error::other("it has no output"))?;
    // A process it leaves behind may hold the pipe open: reading must not wait for that.
    rustix::io::ioctl_fionbio(&printed, true)?;
    Ok((child, printed))
}

fn value(printed: ChildStdout) -> Result<f64, String> {
    let mut bytes = Vec::new();
    // What is there is enough; that there is no end yet is no failure.
    let _ = printed.take(LONGEST).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let word = text.split_whitespace().next().unwrap_or("");
    let number = word.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| format!("printed no number but {:?}", word.chars().take(40).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(command: &[&str], better: Better, seconds: u32) -> (Vec<Option<f64>>, Vec<String>) {
        let signals = Signals::block(&[]).unwrap();
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        let measure = Measure { command, every: ten_seconds(), better };
        let (mut metrics, mut all, mut wrong) = (Metrics::default(), Vec::new(), Vec::new());
        for second in 0..seconds {
            let (values, errors) =
                metrics.step(f64::from(second), &signals, [(TargetId::Cgroup(1), "/a", &measure)].into_iter());
            all.push(values.get(&TargetId::Cgroup(1)).copied());
            wrong.extend(errors);
            std::thread::sleep(std::time::Duration::from_millis(150));
        }
        (all, wrong)
    }

    #[test]
    fn the_first_word_is_the_value_and_higher_is_worse() {
        let (values_s, wrong) = values(&["sh", "-c", "echo 12.5 $LOWTIDE_CGROUP; sleep 60 & exit 0"], Better::Lower, 4);
        assert_eq!((values_s.last(), wrong), (Some(&Some(12.5)), Vec::new()));
        assert_eq!(values(&["echo", "7"], Better::Higher, 4).0.last(), Some(&Some(-7.0)));
    }

    #[test]
    fn what_fails_is_said_and_not_known() {
        for (command, why) in [
            (&["sh", "-c", "exit 3"][..], "failed with exit status: 3"),
            (&["echo", "fast"], "printed no number but \"fast\""),
            (&["/no/such/program"], "/no/such/program: No such file"),
            (&["sleep", "60"], "did not end within 10 s"),
        ] {
            let (values_s, wrong) = values(command, Better::Lower, 12);
            assert!(values_s.iter().all(Option::is_none), "{command:?}");
            assert!(wrong.first().is_some_and(|first| first.contains(why)), "{command:?}: {wrong:?}");
        }
    }
}
