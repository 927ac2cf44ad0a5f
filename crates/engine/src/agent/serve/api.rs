//! What the agent shows of its workloads, as JSON: bytes, seconds, percent. What is not known is null. The live page and
//! `lowtide top` are made from nothing else; docs/agent.md describes it.

use lowtide_model::WINDOWS_S;
use lowtide_model::curve::{Curve, RefaultCosts};
use lowtide_model::target::TargetId;
use lowtide_policy::machine::Brake;

use serde::{Deserialize, Serialize};

use crate::agent::sinks::history::{Act, History, Kind, Track};
use crate::event::HeldBrake;
use crate::workloads::NONE;

/// Number of this form; a change that is no addition counts it up.
pub const SCHEMA: u32 = 1;

/// `GET /api/workloads`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The agent itself.
    pub agent: Status,
    /// By name.
    pub workloads: Vec<Row>,
}

/// The agent itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
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
    /// CPU seconds so far of looking and deciding.
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
    /// It holds for all workloads of the policy, not for this one alone.
    pub all: bool,
}

/// One workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
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
    pub last_action: Option<Action>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Action {
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
    pub workload: Row,
    /// What less memory would cost it.
    pub curve: Option<Tide>,
    /// Why there is no curve.
    pub curve_missing: Option<String>,
    /// Idle ages over the last hour.
    pub ages: Ages,
    /// What was done to it, newest first.
    pub actions: Vec<Action>,
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
    pub points: Vec<Point>,
}

/// If whatever was idle for so long were gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
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
pub struct Ages {
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

/// What holds which policy, from which workload or from all.
pub type Brakes = [HeldBrake];

/// The name of the policy for the background, under which its brakes are reported.
pub const LIFECYCLE: &str = "lifecycle";

/// All workloads, by name.
#[must_use]
pub fn overview(mut agent: Status, history: &History, held: &Brakes) -> Overview {
    agent.now_s = history.now_s();
    let for_all = held.iter().filter(|(_, (target, _))| target.is_none());
    agent.brakes = for_all.map(|(policy, (_, brake))| holds(policy, *brake, true)).collect();
    let mut workloads: Vec<Row> = history.tracks().iter().map(|(id, known)| row(*id, known, held)).collect();
    workloads.sort_by(|a, b| a.name.cmp(&b.name));
    Overview { schema: SCHEMA, agent, workloads }
}

/// One workload; `None` if there is none of that id.
#[must_use]
pub fn detail(
    started_unix_s: f64,
    history: &History,
    held: &Brakes,
    costs: &RefaultCosts,
    id: TargetId,
) -> Option<Detail> {
    let known = history.tracks().get(&id)?;
    let now_s = history.now_s();
    let curve = known.curve(now_s);
    let curve_missing = curve.is_none().then(|| missing(known).to_owned());
    Some(Detail {
        schema: SCHEMA,
        started_unix_s,
        now_s,
        workload: row(id, known, held),
        curve: curve.map(|curve| tide(&curve, costs, span_s(known, now_s))),
        curve_missing,
        ages: ages(known, now_s),
        actions: known.actions().rev().map(action).collect(),
    })
}

fn holds(policy: &str, brake: Brake, all: bool) -> Held {
    Held { policy: policy.to_owned(), brake: brake.name().to_owned(), all }
}

fn row(id: TargetId, known: &Track, held: &Brakes) -> Row {
    let own = |policy: &str| *policy == *known.policy || policy == LIFECYCLE;
    let brakes = held.iter().filter(|(policy, (target, _))| target.map_or_else(|| own(policy), |of| of == id));
    let memory_bytes: f64 = known.resident.iter().sum();
    let set = known.working_set();
    // Anonymous and file memory apart: more of the one is not less of the other.
    let cold = |used: [f64; 2]| (0..2).map(|side| (known.resident[side] - used[side]).max(0.0)).sum();
    let kept = if known.swapped > 0.0 { known.kept } else { Some(0.0) };
    Row {
        id: u64::from(id).to_string(),
        kind: match known.kind {
            Kind::Cgroup => "cgroup",
            Kind::Process => "process",
        }
        .to_owned(),
        name: known.name.to_string(),
        policy: known.policy.to_string(),
        memory_bytes,
        anon_bytes: known.resident[0],
        file_bytes: known.resident[1],
        working_set_bytes: set.map(|(_, used)| used.iter().sum()),
        working_set_window_s: set.map(|(window, _)| window),
        cold_bytes: set.map(|(_, used)| cold(used)),
        swapped_bytes: known.swapped,
        kept_bytes: kept,
        saved_net_bytes: kept.map(|kept| known.swapped - kept),
        pressure_percent: known.pressure.map(|share| 100.0 * share),
        brakes: brakes.map(|(policy, (target, brake))| holds(policy, *brake, target.is_none())).collect(),
        last_action: known.actions().next_back().map(action),
    }
}

fn action(act: &Act) -> Action {
    Action {
        t_s: act.t_s,
        what: act.deed.name().to_owned(),
        asked_anon_bytes: act.asked.map(|asked| asked[0]),
        asked_file_bytes: act.asked.map(|asked| asked[1]),
        anon_bytes: act.bytes[0],
        file_bytes: act.bytes[1],
        took_s: act.took_s,
        reason: act.reason.to_string(),
        stopped: act.stopped.as_ref().map(ToString::to_string),
    }
}

fn missing(known: &Track) -> &'static str {
    if known.kind == Kind::Process {
        "idle ages of a process are not sampled, only those of cgroups"
    } else if *known.policy == *NONE {
        "idle ages are sampled only where a policy reclaims; this one's is \"none\""
    } else if known.working_set().is_none() {
        "idle ages are not known yet; if that stays so, the agent's notes say why"
    } else {
        "too little was sampled yet: two readings at two idle ages are needed"
    }
}

fn span_s(known: &Track, now_s: f64) -> f64 {
    known.samples(now_s).first().map_or(0.0, |first| (now_s - f64::from(first.t_s)).max(0.0))
}

fn tide(curve: &Curve, costs: &RefaultCosts, span_s: f64) -> Tide {
    let point = |point: &lowtide_model::curve::Point| {
        let slowdown = point.slowdown(costs).times(100.0);
        Point {
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

fn ages(known: &Track, now_s: f64) -> Ages {
    let samples = known.samples(now_s);
    let mut ages = Ages {
        t_s: samples.iter().map(|sample| f64::from(sample.t_s)).collect(),
        anon_bytes: samples.iter().map(|sample| f64::from(sample.resident[0])).collect(),
        file_bytes: samples.iter().map(|sample| f64::from(sample.resident[1])).collect(),
        swapped_bytes: samples.iter().map(|sample| f64::from(sample.swapped)).collect(),
        used: Vec::new(),
    };
    for (at, window_s) in WINDOWS_S.into_iter().enumerate() {
        let used: Vec<Option<[f64; 2]>> = samples.iter().map(|sample| sample.used(at)).collect();
        if used.iter().any(Option::is_some) {
            let side = |side: usize| used.iter().map(|used| used.map(|used| used[side])).collect();
            ages.used.push(Window { window_s, anon_bytes: side(0), file_bytes: side(1) });
        }
    }
    ages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::sinks::history::Shown;
    use crate::event::Deed;

    fn shown<'a>(id: u64, name: &'a str, policy: &'a str) -> Shown<'a> {
        let resident = [70e6, 30e6];
        let (swapped, kept, stalled_s) = (0.0, None, None);
        Shown { id: id.into(), kind: Kind::Cgroup, name, policy, resident, swapped, kept, stalled_s, ages: &[] }
    }

    #[test]
    fn what_is_not_known_is_null_and_no_number_is_lost() {
        let mut history = History::default();
        let id = u64::MAX - 1;
        let paged_out = Shown { swapped: 8e6, ..shown(7, "/a", "auto") };
        history.observe(3.0, [shown(id, "/b<script>", NONE), paged_out].into_iter());
        let held = [
            ("auto".to_owned(), (None, Brake::Swap)),
            ("auto".to_owned(), (Some(TargetId::Cgroup(7)), Brake::Floor)),
            (LIFECYCLE.to_owned(), (None, Brake::Pressure)),
        ];
        let all = overview(Status::default(), &history, &held);
        assert_eq!((all.agent.now_s, all.agent.brakes.len()), (3.0, 2));
        let [a, b] = all.workloads.as_slice() else { panic!() };
        assert_eq!((b.id.as_str(), b.name.as_str()), ("18446744073709551614", "/b<script>"));
        let names = |row: &Row| row.brakes.iter().map(|held| held.brake.clone()).collect::<Vec<_>>();
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
        let text = serde_json::to_string(&all).unwrap();
        assert!(text.contains("\"working_set_bytes\":null"));
        assert_eq!(serde_json::from_str::<Overview>(&text).unwrap(), all);
    }

    #[test]
    fn a_detail_has_what_was_done_newest_first_and_says_why_there_is_no_curve() {
        let mut history = History::default();
        history.observe(0.0, [shown(7, "/a", NONE)].into_iter());
        for t_s in [1.0, 2.0] {
            let (deed, stopped) = (Deed::Stow, Some("dry run".into()));
            let act =
                Act { t_s, deed, asked: None, bytes: [1e6, 2e6], took_s: 0.1, reason: "it rests".into(), stopped };
            history.acted(TargetId::Cgroup(7), act);
        }
        let costs = RefaultCosts::default();
        let detail = super::detail(1.0, &history, &[], &costs, TargetId::Cgroup(7)).unwrap();
        assert_eq!(detail.actions.iter().map(|action| action.t_s).collect::<Vec<_>>(), [2.0, 1.0]);
        assert_eq!(detail.workload.last_action, detail.actions.first().cloned());
        assert_eq!(detail.actions[0].reason, "it rests");
        assert!(detail.curve.is_none() && detail.curve_missing.as_ref().unwrap().contains("none"));
        assert_eq!((detail.ages.t_s.len(), detail.ages.used.len()), (1, 0));
        assert!(super::detail(1.0, &history, &[], &costs, TargetId::Cgroup(8)).is_none());
        let text = serde_json::to_string(&detail).unwrap();
        assert_eq!(serde_json::from_str::<Detail>(&text).unwrap(), detail);
    }
}
