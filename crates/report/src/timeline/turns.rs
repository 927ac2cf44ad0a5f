//! Turns of a guarded machine: which workloads ran, were protected or waited, and why.

use std::collections::BTreeMap;

use lowtide_model::units::float;
use lowtide_record::{ActionRow, CgroupRow};

use super::super::draw::axis::clock;
use super::super::draw::{Axis, Figure, Ink, Layout, Page, Plot, heading, keys, px, shorten};
use super::super::text::{Grid, printable};

/// Changes of a table meant for eyes.
const SHOWN: usize = 30;
/// Characters of a name in the chart.
const NAME: usize = 24;
/// Workloads that had no turn are drawn, too, the largest first, if there are not so many that had one.
const LANES: usize = 8;

/// What the guard lets a workload do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    Protected,
    Limited,
    Waits,
}

impl State {
    const ALL: [Self; 4] = [Self::Runs, Self::Protected, Self::Limited, Self::Waits];

    /// Its character, its colour and its name.
    fn key(self) -> (char, Ink, &'static str) {
        match self {
            Self::Runs => ('█', Ink::Anon, "runs"),
            Self::Protected => ('▓', Ink::Resident, "runs, protected"),
            Self::Limited => ('▒', Ink::Age3, "runs, limited"),
            Self::Waits => ('░', Ink::File, "waits"),
        }
    }
}

/// The state that an action leads to; `None` for actions that are no turns.
fn state(action: &str) -> Option<State> {
    match action {
        "protect" => Some(State::Protected),
        "limit" => Some(State::Limited),
        "pause" => Some(State::Waits),
        "release" => Some(State::Runs),
        _ => None,
    }
}

/// A workload over time.
#[derive(Debug, Clone, PartialEq)]
struct Lane {
    name: String,
    /// From, to, and the state between them; seconds.
    spans: Vec<(f64, f64, State)>,
}

/// The turns of a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Turns {
    lanes: Vec<Lane>,
    changes: Vec<ActionRow>,
    end_s: f64,
}

impl Turns {
    /// Of what was granted, and of what workloads held, which is read only then. `None` where nothing was granted.
    pub(super) fn of(actions: Vec<ActionRow>, workloads: impl FnOnce() -> Vec<CgroupRow>, end_s: f64) -> Option<Self> {
        let changes: Vec<ActionRow> = actions.into_iter().filter(|row| state(&row.action).is_some()).collect();
        let end_s = changes.last().map(|row| row.t_s)?.max(end_s);
        let workloads = workloads();
        // Since when and until when each was there, and the most that it held of one kind.
        let mut there: BTreeMap<&str, (f64, f64, f64)> = BTreeMap::new();
        for CgroupRow { t_s, memory } in &workloads {
            let (_, to_s, most) = there.entry(&memory.cgroup).or_insert((*t_s, *t_s, 0.0));
            (*to_s, *most) = (*t_s, most.max(memory.bytes));
        }
        let mut others: Vec<&str> = there.keys().copied().collect();
        others.sort_by(|a, b| there[b].2.total_cmp(&there[a].2));
        let mut names: Vec<&str> = Vec::new();
        for row in &changes {
            if !names.contains(&row.target.as_str()) {
                names.push(&row.target);
            }
        }
        others.retain(|name| !names.contains(name));
        names.extend(others.into_iter().take(LANES.saturating_sub(names.len())));
        let shared = shared_parent(&names);
        let lane = |name: &str| {
            let own: Vec<&ActionRow> = changes.iter().filter(|row| row.target == name && is_new(row)).collect();
            let first_s = own.first().map_or(0.0, |row| row.t_s);
            let (from_s, to_s, _) = there.get(name).copied().unwrap_or((first_s, end_s, 0.0));
            let mut spans = Vec::new();
            let (mut since_s, mut now) = (from_s, State::Runs);
            for row in own {
                if row.t_s > since_s {
                    spans.push((since_s, row.t_s, now));
                    since_s = row.t_s;
                }
                now = state(&row.action).unwrap_or(now);
            }
            // What was observed last is a second ago.
            spans.push((since_s, to_s.max(since_s), now));
            Lane { name: below(name, shared), spans }
        };
        let lanes = names.into_iter().map(lane).collect();
        let changes = changes.iter().map(|row| ActionRow { target: below(&row.target, shared), ..row.clone() });
        Some(Self { lanes, changes: changes.collect(), end_s })
    }

    /// A line of characters for each workload.
    pub(super) fn chart(&self, width: usize) -> String {
        let name = self.lanes.iter().map(|lane| lane.name.chars().count()).max().unwrap_or(0).min(NAME);
        let columns = width.saturating_sub(name + 4).max(10);
        let keys = State::ALL.map(State::key).map(|(fill, _, words)| format!("{fill} {words}"));
        let mut out = format!("Turns: {}\n", keys.join("  "));
        for lane in &self.lanes {
            let cell = |column: usize| {
                let at_s = (float(column) + 0.5) / float(columns) * self.end_s;
                let span = lane.spans.iter().find(|(from_s, to_s, _)| (*from_s..*to_s).contains(&at_s));
                span.map_or(' ', |(_, _, now)| now.key().0)
            };
            let line: String = (0..columns).map(cell).collect();
            out += &format!("  {:<name$} │{}\n", shorten(&lane.name, name), line.trim_end());
        }
        let (from, to) = (clock(0.0), clock(self.end_s));
        out + &format!("  {:name$}  {from}{to:>w$}\n", "", w = columns.saturating_sub(from.len()))
    }

    /// What was changed, and why.
    pub(super) fn grid(&self) -> Grid {
        let more =
            if self.changes.len() > SHOWN { format!(", {SHOWN} of {}", self.changes.len()) } else { String::new() };
        let row = |row: &ActionRow| {
            let not = if row.result == ActionRow::DONE { String::new() } else { format!(" ({})", row.result) };
            let why = printable(&format!("{}{not}", row.reason));
            [clock(row.t_s), row.target.clone(), row.action.clone(), why]
        };
        let head = ["time", "workload", "change", "why"];
        let mut grid = Grid::of(&format!("Changes of turns{more}"), &head, self.changes.iter().take(SHOWN).map(row));
        grid.remarks = true;
        grid
    }

    /// A bar for each workload.
    pub(super) fn figure(&self, page: Page) -> Figure<'_> {
        let rows = i32::try_from(self.lanes.len()).unwrap_or(i32::MAX / px(64));
        let names = self.lanes.iter().enumerate();
        let names = names.map(|(at, lane)| (-float(at) - 0.5, shorten(&lane.name, page.of(NAME, 11))));
        let y = Axis::new(-float(self.lanes.len()), 0.0, names);
        let x = Axis::time(0.0, self.end_s, page.of(10, 5));
        let layout = Layout {
            left: page.of(px(150), px(92)),
            bottom: px(44),
            x_name: x.time_name(),
            upright: true,
            ..Layout::default()
        };
        let label = "Which workloads ran, were protected and waited, over time.";
        Figure::new(page, px(110) + px(24) * rows, label, move |area| {
            let rest =
                keys(&heading(area, "Turns")?, State::ALL.map(State::key).map(|(_, ink, words)| (ink, words, false)))?;
            let mut plot = Plot::new(&rest, [&x, &y], layout)?;
            for (at, lane) in self.lanes.iter().enumerate() {
                let (top, bottom) = (-float(at) - 0.15, -float(at) - 0.85);
                for (from_s, to_s, now) in &lane.spans {
                    plot.band(
                        vec![(*from_s, top), (*to_s, top)],
                        vec![(*from_s, bottom), (*to_s, bottom)],
                        (now.key().1, 1.0),
                    )?;
                }
            }
            Ok(())
        })
    }
}

/// Length of the path that all of them lie below.
fn shared_parent(names: &[&str]) -> usize {
    let Some((first, rest)) = names.split_first().filter(|(_, rest)| !rest.is_empty()) else { return 0 };
    let mut parts = first.match_indices('/').map(|(at, _)| at + 1);
    parts.rfind(|end| rest.iter().all(|name| name.get(..*end) == first.get(..*end))).unwrap_or(0)
}

/// A name without the path that all have, where that is more than the root.
fn below(name: &str, shared: usize) -> String {
    let rest = name.get(shared..).filter(|_| shared > 1);
    printable(&rest.map_or_else(|| name.to_owned(), |rest| format!("…/{rest}")))
}

/// Whether an action changed something, or would have in a dry run.
fn is_new(row: &ActionRow) -> bool {
    [ActionRow::DONE, "dry run"].contains(&row.result.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_model::generations::CgroupUse;

    fn action(t_s: f64, action: &str, target: &str, result: &str) -> ActionRow {
        let reason = "they thrash".to_owned();
        ActionRow { t_s, action: action.into(), target: target.into(), result: result.into(), reason, bytes: None }
    }

    #[test]
    fn a_lane_for_each_workload_that_had_a_turn() {
        let actions = vec![
            action(2.0, "reclaim", "/c", ActionRow::DONE),
            action(4.0, "protect", "/a", ActionRow::DONE),
            action(4.0, "pause", "/b", ActionRow::DONE),
            action(5.0, "release", "/b", "not permitted"),
            action(8.0, "release", "/b", ActionRow::DONE),
        ];
        let row = |(t_s, name): (f64, &str)| CgroupRow {
            t_s,
            memory: CgroupUse { cgroup: name.into(), ..CgroupUse::default() },
        };
        let there: Vec<CgroupRow> =
            [(0.0, "/a"), (0.0, "/c"), (2.0, "/b"), (6.0, "/a"), (10.0, "/b")].map(row).to_vec();
        let turns = Turns::of(actions, || there.clone(), 10.0).unwrap();
        let expected = [
            ("/a", vec![(0.0, 4.0, State::Runs), (4.0, 6.0, State::Protected)]),
            ("/b", vec![(2.0, 4.0, State::Runs), (4.0, 8.0, State::Waits), (8.0, 10.0, State::Runs)]),
        ];
        let lane = |(name, spans): (&str, _)| Lane { name: name.into(), spans };
        assert_eq!(turns.lanes[..2], expected.map(lane));
        assert_eq!(turns.lanes[2..], [lane(("/c", vec![(0.0, 0.0, State::Runs)]))], "it had no turn");
        assert_eq!(turns.changes.len(), 4);
        let chart = turns.chart(16);
        assert_eq!(chart.lines().nth(1).unwrap(), "  /a │████▓▓");
        assert_eq!(chart.lines().nth(2).unwrap(), "  /b │  ██░░░░██");
        assert!(turns.grid().text(Default::default()).contains("they thrash (not permitted)"));
        assert_eq!(below("/jobs/one", shared_parent(&["/jobs/one", "/jobs/two"])), "…/one");
        assert_eq!(below("/one", shared_parent(&["/one", "/two"])), "/one");
        assert_eq!(Turns::of(vec![action(1.0, "reclaim", "/a", ActionRow::DONE)], || there, 10.0), None);
    }
}
