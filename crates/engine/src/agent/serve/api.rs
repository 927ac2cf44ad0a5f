//! The agent's data as JSON: bytes, seconds, percent. What is not known is null. The live page and `lowtide top` are made from
//! nothing else; docs/agent.md describes it.

use lowtide_model::WINDOWS_S;
use lowtide_model::curve::{Curve, RefaultCosts};
use lowtide_model::kind::{Kind, PerKind};
use lowtide_model::target::TargetId;
use lowtide_policy::machine::Brake;
use serde::{Deserialize, Serialize};

use crate::agent::sinks::history::{HistorySample, Track};
use crate::agent::sinks::view::Published;
use crate::event::{ActionEvent, HeldBrake};
use crate::workloads::NONE;

/// Letters of a reason that are kept.
const LONGEST: usize = 240;
/// Number of this form; a change that is no addition counts it up.
pub const SCHEMA: u32 = 1;

/// `GET /api/workloads`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The agent itself.
    pub agent: AgentStatus,
    /// By name.
    pub workloads: Vec<WorkloadRow>,
}

/// The agent itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Version of lowtide.
    pub version: String,
    /// When the agent started, seconds since 1970.
    pub started_unix_s: f64,
    /// Seconds from then to its last turn.
    pub now_s: f64,
    /// Seconds between two turns.
    pub every_s: f64,
    /// Nothing is taken: only a dry run was asked for.
    pub dry_run: bool,
    /// Nothing is taken: the file that stops it is there.
    pub stopped: bool,
    /// That file.
    pub stop_file: String,
    /// CPU seconds so far of measuring and deciding.
    pub cpu_watching_s: f64,
    /// CPU seconds so far of evicting.
    pub cpu_evicting_s: f64,
    /// Both of the last minute or so, percent of one CPU.
    pub cpu_percent: Option<f64>,
    /// Its own memory.
    pub rss_bytes: u64,
    /// Brakes that hold a policy back from all of its workloads.
    pub brakes: Vec<Held>,
    /// What it could not read, in words.
    pub notes: Vec<String>,
}

/// A brake that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Which policy.
    pub policy: String,
    /// By what.
    pub brake: String,
    /// Why, in words.
    #[serde(default)]
    pub why: String,
    /// It holds for all workloads of the policy, not for this one alone.
    pub all: bool,
}

/// One workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadRow {
    /// Which: never given to another one while the agent runs. A number of up to 64 bits, hence a text.
    pub id: String,
    /// `cgroup` or `process`.
    pub kind: String,
    /// Path of its cgroup, or the process.
    pub name: String,
    /// Name of its policy.
    pub policy: String,
    /// Bytes in memory.
    pub memory_bytes: f64,
    /// Of them anonymous.
    pub anon_bytes: f64,
    /// Of them file memory.
    pub file_bytes: f64,
    /// The source that sampled its idle ages: `damon`, `mglru` or `smaps`; null while none has.
    pub monitor: Option<String>,
    /// Bytes used within the window.
    pub working_set_bytes: Option<f64>,
    /// The window, seconds: the longest that is known.
    pub working_set_window_s: Option<u32>,
    /// Bytes in memory that were not used within it.
    pub cold_bytes: Option<f64>,
    /// Bytes paged out.
    pub swapped_bytes: f64,
    /// Bytes that keeping them takes.
    pub kept_bytes: Option<f64>,
    /// Bytes paged out without what keeping them takes.
    pub saved_net_bytes: Option<f64>,
    /// Time that some of its tasks stalled on memory, percent.
    pub pressure_percent: Option<f64>,
    /// What holds it.
    pub brakes: Vec<Held>,
    /// The newest of what was done to it.
    pub last_action: Option<ActionTaken>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionTaken {
    /// When, seconds since the agent's start.
    pub t_s: f64,
    /// `reclaim`, `stow` or `fetch`.
    pub what: String,
    /// Bytes of anonymous memory that were asked for; null: all that there is.
    pub asked_anon_bytes: Option<f64>,
    /// The same of file memory.
    pub asked_file_bytes: Option<f64>,
    /// Bytes of anonymous memory that it was.
    pub anon_bytes: f64,
    /// The same of file memory.
    pub file_bytes: f64,
    /// By which interface of the kernel: `memory.reclaim`, `lru_gen` or `process_madvise`; empty where none moved memory.
    #[serde(default)]
    pub by: String,
    /// Seconds that it took.
    pub took_s: f64,
    /// Why.
    pub reason: String,
    /// Why less was done than was asked for.
    pub stopped: Option<String>,
}

/// `GET /api/workloads/ID`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Detail {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When the agent started, seconds since 1970.
    pub started_unix_s: f64,
    /// Seconds from then to its last turn.
    pub now_s: f64,
    /// As in the overview.
    pub workload: WorkloadRow,
    /// What less memory would cost it.
    pub curve: Option<Tide>,
    /// Why there is no curve.
    pub curve_missing: Option<String>,
    /// Idle ages over the last hour.
    pub ages: AgeSeries,
    /// What was done to it, newest first.
    pub actions: Vec<ActionTaken>,
}

/// The tide curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tide {
    /// Seconds of which it is taken.
    pub span_s: f64,
    /// What a page costs that comes back from swap, seconds.
    pub refault_swap_s: f64,
    /// The same from a file.
    pub refault_disk_s: f64,
    /// Mean of the memory in use over that time.
    pub total_anon_bytes: f64,
    /// The same of file memory.
    pub total_file_bytes: f64,
    /// By ascending age.
    pub points: Vec<TidePoint>,
}

/// If whatever was idle for so long were gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TidePoint {
    /// For so long, seconds.
    pub age_s: f64,
    /// Bytes that would stay.
    pub kept_bytes: f64,
    /// Bytes of anonymous memory that would be gone.
    pub anon_cold_bytes: f64,
    /// The same of file memory.
    pub file_cold_bytes: f64,
    /// Bytes of anonymous memory a second that would come back.
    pub anon_back_bytes_per_s: f64,
    /// The same of file memory.
    pub file_back_bytes_per_s: f64,
    /// Time that would be lost to it, percent.
    pub slowdown_percent: f64,
    /// At least.
    pub slowdown_low_percent: f64,
    /// At most.
    pub slowdown_high_percent: f64,
}

/// Idle ages over time: one value a sample.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgeSeries {
    /// When, seconds since the agent's start; ascending.
    pub t_s: Vec<f64>,
    /// Bytes in memory, anonymous.
    pub anon_bytes: Vec<f64>,
    /// The same of file memory.
    pub file_bytes: Vec<f64>,
    /// Bytes paged out.
    pub swapped_bytes: Vec<f64>,
    /// What was used within each window that is known of.
    pub used: Vec<Window>,
}

/// Bytes used within a window, one value a sample; null where nothing was sampled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The window, seconds.
    pub window_s: u32,
    /// Anonymous memory.
    pub anon_bytes: Vec<Option<f64>>,
    /// File memory.
    pub file_bytes: Vec<Option<f64>>,
}

/// The name of the policy for the background, under which its brakes are reported.
pub const LIFECYCLE: &str = "lifecycle";

/// A target as it was observed last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub id: TargetId,
    /// `cgroup` or `process`.
    pub kind: &'static str,
    /// Its path, or the process.
    pub name: &'a str,
    pub policy: &'a str,
    pub monitor: Option<&'static str>,
    pub resident: PerKind<f64>,
    pub swapped: f64,
    /// Bytes that keeping what is paged out takes, as far as that is known.
    pub kept: Option<f64>,
}

/// All targets, by name.
pub(crate) fn overview(state: &Published) -> Overview {
    let mut agent = state.status.clone();
    let for_all = state.held.iter().filter(|(_, (target, _))| target.is_none());
    agent.brakes = for_all.map(|(policy, (_, brake))| held(policy, *brake, true)).collect();
    let row = |shown: Shown<'_>| Some(row(&shown, state.history.tracks.get(&shown.id)?, &state.held));
    let mut workloads: Vec<WorkloadRow> = state.shown().filter_map(row).collect();
    workloads.sort_by(|a, b| a.name.cmp(&b.name));
    Overview { schema: SCHEMA, agent, workloads }
}

/// One target; `None` if there is none of that id.
pub(crate) fn detail(state: &Published, id: TargetId) -> Option<Detail> {
    let shown = state.shown().find(|shown| shown.id == id)?;
    let track = state.history.tracks.get(&id)?;
    let now_s = state.status.now_s;
    let curve = track.curve(now_s);
    let samples = track.samples(now_s);
    let span_s = samples.first().map_or(0.0, |first| (now_s - f64::from(first.t_s)).max(0.0));
    Some(Detail {
        schema: SCHEMA,
        started_unix_s: state.status.started_unix_s,
        now_s,
        workload: row(&shown, track, &state.held),
        curve_missing: curve.is_none().then(|| why_no_curve(&shown, track).to_owned()),
        curve: curve.map(|curve| tide(&curve, &state.costs, span_s)),
        ages: ages(&samples),
        actions: track.actions().rev().cloned().collect(),
    })
}

fn held(policy: &str, brake: Brake, all: bool) -> Held {
    Held { policy: policy.to_owned(), brake: brake.name().to_owned(), why: brake.why().to_owned(), all }
}

fn row(shown: &Shown<'_>, track: &Track, brakes: &[HeldBrake]) -> WorkloadRow {
    let Shown { id, kind, name, policy, monitor, resident, swapped, kept } = *shown;
    let own = |of: &str| of == policy || of == LIFECYCLE;
    let brakes = brakes.iter().filter(|(of, (target, _))| target.map_or_else(|| own(of), |target| target == id));
    let set = track.working_set();
    // Each kind by itself: more anonymous memory is not less file memory.
    let cold = |used: PerKind<f64>| resident.zip(used).map(|(resident, used)| (resident - used).max(0.0)).total();
    let kept = if swapped > 0.0 { kept } else { Some(0.0) };
    WorkloadRow {
        id: u64::from(id).to_string(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        policy: policy.to_owned(),
        memory_bytes: resident.total(),
        anon_bytes: resident.anon,
        file_bytes: resident.file,
        monitor: monitor.map(str::to_owned),
        working_set_bytes: set.map(|(_, used)| used.total()),
        working_set_window_s: set.map(|(window, _)| window),
        cold_bytes: set.map(|(_, used)| cold(used)),
        swapped_bytes: swapped,
        kept_bytes: kept,
        saved_net_bytes: kept.map(|kept| swapped - kept),
        pressure_percent: track.pressure.map(|share| 100.0 * share),
        brakes: brakes.map(|(policy, (target, brake))| held(policy, *brake, target.is_none())).collect(),
        last_action: track.actions().next_back().cloned(),
    }
}

impl ActionTaken {
    /// An action at that time.
    pub(crate) fn new(action: &ActionEvent<'_>, t_s: f64) -> Self {
        let cut = |text: &str| text.chars().take(LONGEST).collect();
        Self {
            t_s,
            what: action.kind.name().to_owned(),
            asked_anon_bytes: action.asked.map(|asked| asked.anon),
            asked_file_bytes: action.asked.map(|asked| asked.file),
            anon_bytes: action.bytes.anon,
            file_bytes: action.bytes.file,
            by: action.by.to_owned(),
            took_s: action.took_s,
            reason: cut(action.reason),
            stopped: action.stopped.as_deref().map(cut),
        }
    }
}

fn why_no_curve(shown: &Shown<'_>, track: &Track) -> &'static str {
    if shown.kind == "process" {
        "idle ages of a process are not sampled, only those of cgroups"
    } else if shown.policy == NONE {
        "idle ages are sampled only where a policy reclaims; this one's is \"none\""
    } else if track.working_set().is_none() {
        "idle ages are not known yet; if that stays so, the agent's notes say why"
    } else {
        "too little was sampled yet: two readings at two idle ages are needed"
    }
}

fn tide(curve: &Curve, costs: &RefaultCosts, span_s: f64) -> Tide {
    let point = |point: &lowtide_model::curve::Point| {
        let slowdown = point.slowdown(costs).times(100.0);
        TidePoint {
            age_s: point.age_s,
            kept_bytes: point.kept,
            anon_cold_bytes: point.cold.anon.at,
            file_cold_bytes: point.cold.file.at,
            anon_back_bytes_per_s: point.back.anon.at,
            file_back_bytes_per_s: point.back.file.at,
            slowdown_percent: slowdown.at,
            slowdown_low_percent: slowdown.low,
            slowdown_high_percent: slowdown.high,
        }
    };
    Tide {
        span_s,
        refault_swap_s: costs.swap_s,
        refault_disk_s: costs.disk_s,
        total_anon_bytes: curve.total.anon,
        total_file_bytes: curve.total.file,
        points: curve.points.iter().map(point).collect(),
    }
}

fn ages(samples: &[HistorySample]) -> AgeSeries {
    let of = |value: fn(&HistorySample) -> f32| samples.iter().map(|sample| f64::from(value(sample))).collect();
    let window = |(at, window_s): (usize, u32)| {
        let used: Vec<Option<PerKind<f64>>> = samples.iter().map(|sample| sample.used(at)).collect();
        let of = |kind: Kind| used.iter().map(|used| used.map(|used| used[kind])).collect();
        let window = Window { window_s, anon_bytes: of(Kind::Anon), file_bytes: of(Kind::File) };
        used.iter().any(Option::is_some).then_some(window)
    };
    AgeSeries {
        t_s: of(|sample| sample.t_s),
        anon_bytes: of(|sample| sample.resident.anon),
        file_bytes: of(|sample| sample.resident.file),
        swapped_bytes: of(|sample| sample.swapped),
        used: WINDOWS_S.into_iter().enumerate().filter_map(window).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::sinks::history::TargetReading;
    use crate::event::ActionKind;
    use lowtide_kernel::cgroup::{Cgroup, Version};

    /// Workloads of so many bytes, by their inode, path and policy.
    fn published(now_s: f64, all: &[(u64, &str, &str)]) -> Published {
        let mut state = Published::default();
        for (inode, path, policy) in all {
            let cgroup = Cgroup { path: (*path).into(), inode: *inode, version: Version::V2 };
            let mut workload = crate::workloads::Workload::new(cgroup, None, (*path).to_owned());
            workload.policy = (*policy).to_owned();
            workload.now.resident = PerKind { anon: 70_000_000, file: 30_000_000 };
            state.workloads.insert(workload.id(), workload);
        }
        let readings: Vec<TargetReading<'_>> = state.workloads.values().map(|of| of.reading(true)).collect();
        state.history.observe(now_s, readings.into_iter());
        (state.status.now_s, state.status.started_unix_s) = (now_s, 1.0);
        state
    }

    #[test]
    fn what_is_not_known_is_null_and_no_number_is_lost() {
        let id = (1 << 62) - 2;
        let mut state = published(3.0, &[(id, "/b<script>", NONE), (7, "/a", "auto")]);
        let of_a = state.workloads.get_mut(&TargetId::Cgroup(7)).unwrap();
        of_a.now.swapped = 8_000_000;
        of_a.set_ages("damon", Vec::new(), 0.0);
        state.held = vec![
            ("auto".to_owned(), (None, Brake::Swap)),
            ("auto".to_owned(), (Some(TargetId::Cgroup(7)), Brake::Floor)),
            (LIFECYCLE.to_owned(), (None, Brake::Pressure)),
        ];
        let all = overview(&state);
        assert_eq!((all.agent.now_s, all.agent.brakes.len()), (3.0, 2));
        let [a, b] = all.workloads.as_slice() else { panic!() };
        assert_eq!((b.id.as_str(), b.name.as_str()), ("4611686018427387902", "/b<script>"));
        let names = |row: &WorkloadRow| row.brakes.iter().map(|held| held.brake.clone()).collect::<Vec<_>>();
        assert_eq!(
            (names(a), names(b)),
            (vec!["swap".into(), "floor".into(), "pressure".into()], vec!["pressure".into()])
        );
        assert_eq!(
            (a.saved_net_bytes, b.saved_net_bytes),
            (None, Some(0.0)),
            "what keeping takes is not known of the first"
        );
        assert_eq!((b.memory_bytes, b.working_set_bytes, b.cold_bytes), (100e6, None, None));
        assert_eq!((a.monitor.as_deref(), b.monitor.as_deref()), (Some("damon"), None));
        let text = serde_json::to_string(&all).unwrap();
        assert!(text.contains("\"working_set_bytes\":null"));
        assert_eq!(serde_json::from_str::<Overview>(&text).unwrap(), all);
    }

    #[test]
    fn a_detail_has_what_was_done_newest_first_and_says_why_there_is_no_curve() {
        let mut state = published(0.0, &[(7, "/a", NONE)]);
        for t_s in [1.0, 2.0] {
            let action = ActionEvent {
                stopped: Some("dry run".into()),
                bytes: PerKind { anon: 1e6, file: 2e6 },
                reason: &"it rests ".repeat(100),
                ..ActionEvent::of(ActionKind::PageOut, TargetId::Cgroup(7))
            };
            state.history.acted(TargetId::Cgroup(7), ActionTaken::new(&action, t_s));
        }
        let detail = super::detail(&state, TargetId::Cgroup(7)).unwrap();
        assert_eq!(detail.actions.iter().map(|action| action.t_s).collect::<Vec<_>>(), [2.0, 1.0]);
        assert_eq!(detail.workload.last_action, detail.actions.first().cloned());
        assert_eq!((detail.actions[0].what.as_str(), detail.actions[0].reason.len()), ("stow", LONGEST));
        assert!(detail.curve.is_none() && detail.curve_missing.as_ref().unwrap().contains("none"));
        assert_eq!((detail.ages.t_s.len(), detail.ages.used.len()), (1, 0));
        assert!(super::detail(&state, TargetId::Cgroup(8)).is_none());
        let text = serde_json::to_string(&detail).unwrap();
        assert_eq!(serde_json::from_str::<Detail>(&text).unwrap(), detail);
    }
}
