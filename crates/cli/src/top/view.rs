//! What `lowtide top` shows, and what a key does: without terminal, clock or connection.

use lowtide_model::units::{Span, float, human_bytes, human_seconds};

use unicode_width::UnicodeWidthStr;

use super::table::{fit, lines};
use lowtide_engine::agent::serve::api::{ActionTaken, AgentStatus, Detail, Overview, WorkloadRow};
use lowtide_report::text::{Grid, bytes, figure, printable, wrap};

/// By what rows are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum TopOrder {
    /// Memory in use
    Memory,
    /// Working set
    Set,
    /// Cold memory
    Cold,
    /// Net saving
    Saved,
    /// Pressure
    Pressure,
    /// Name
    Name,
}

impl TopOrder {
    /// The key that asks for it.
    fn of(key: char) -> Option<Self> {
        Some(match key {
            'm' => Self::Memory,
            'w' => Self::Set,
            'c' => Self::Cold,
            's' => Self::Saved,
            'p' => Self::Pressure,
            'n' => Self::Name,
            _ => return None,
        })
    }

    /// The figure by which rows are ordered; the largest first.
    fn figure(self, row: &WorkloadRow) -> Option<f64> {
        match self {
            Self::Memory => Some(row.memory_bytes),
            Self::Set => row.working_set_bytes,
            Self::Cold => row.cold_bytes,
            Self::Saved => row.saved_net_bytes,
            Self::Pressure => row.pressure_percent,
            Self::Name => None,
        }
    }
}

/// Puts rows in order; what is not known comes last, however it is turned.
pub fn order(rows: &mut [WorkloadRow], sort: TopOrder, reverse: bool) {
    rows.sort_by(|a, b| {
        let by_name = || a.name.cmp(&b.name);
        let turned = |order: std::cmp::Ordering| if reverse { order.reverse() } else { order };
        match (sort, sort.figure(a), sort.figure(b)) {
            (TopOrder::Name, ..) => turned(by_name()),
            (_, Some(x), Some(y)) => turned(y.total_cmp(&x)).then_with(by_name),
            (_, x, y) => y.is_some().cmp(&x.is_some()).then_with(by_name),
        }
    });
}

/// The table of all workloads.
#[must_use]
pub fn table(rows: &[WorkloadRow]) -> Grid {
    let head = ["workload", "policy", "memory", "working set", "cold", "saved net", "pressure", "brake"];
    let mut grid = Grid { remarks: true, ..Grid::new("", &head) };
    for row in rows {
        let brakes: Vec<&str> = row.brakes.iter().map(|held| held.brake.as_str()).collect();
        grid.row([
            row.name.clone(),
            row.policy.clone(),
            human_bytes(row.memory_bytes),
            bytes(row.working_set_bytes),
            bytes(row.cold_bytes),
            bytes(row.saved_net_bytes),
            figure(row.pressure_percent, 2, " %"),
            brakes.join(","),
        ]);
    }
    grid
}

/// The agent itself, in a few lines.
#[must_use]
pub fn about(agent: &AgentStatus, workloads: usize) -> Vec<String> {
    let mode = match (agent.stopped, agent.dry_run) {
        (true, _) => format!("stopped: {} is there", agent.stop_file),
        (_, true) => "dry run: takes nothing".to_owned(),
        _ => "acting".to_owned(),
    };
    let own = human_bytes(float(agent.rss_bytes));
    let mut lines = vec![
        format!("lowtide agent {}: {mode}; {workloads} workloads", agent.version),
        format!(
            "CPU {} ({:.1} s watching, {:.1} s evicting), memory {own}, up for {}",
            figure(agent.cpu_percent, 2, " %"),
            agent.cpu_watching_s,
            agent.cpu_evicting_s,
            human_seconds(agent.now_s),
        ),
    ];
    let held = agent.brakes.iter().map(|held| format!("policy {} is paused everywhere: {}", held.policy, held.why));
    lines.extend(held);
    lines.into_iter().map(|line| printable(&line)).collect()
}

fn age(seconds: f64) -> String {
    Span(std::time::Duration::from_secs_f64(seconds.max(0.0))).to_string()
}

/// The tide curve as a table.
fn curve(detail: &Detail) -> Vec<String> {
    let Some(tide) = &detail.curve else {
        return vec![format!("no tide curve: {}", detail.curve_missing.as_deref().unwrap_or("too few readings yet"))];
    };
    let head = ["idle for", "anonymous", "file", "kept", "anonymous back", "file back", "slowdown", "from", "to"];
    let mut grid = Grid::new("", &head);
    for point in &tide.points {
        let sizes = [point.anon_cold_bytes, point.file_cold_bytes, point.kept_bytes].map(human_bytes);
        let back = [point.anon_back_bytes_per_s, point.file_back_bytes_per_s].map(|rate| human_bytes(rate) + "/s");
        let slowdown = [point.slowdown_percent, point.slowdown_low_percent, point.slowdown_high_percent];
        let slowdown = slowdown.map(|share| figure(Some(share), 2, " %"));
        grid.row(std::iter::once(age(point.age_s)).chain(sizes).chain(back).chain(slowdown));
    }
    let span = human_seconds(tide.span_s);
    let title = format!("What would be reclaimed, and its cost, if everything idle for so long were (last {span})");
    std::iter::once(title).chain(lines(grid, usize::MAX)).collect()
}

fn action(action: &ActionTaken, now_s: f64) -> String {
    let asked = action.asked_anon_bytes.zip(action.asked_file_bytes).map(|(anon, file)| anon + file);
    let asked = asked.map_or_else(String::new, |asked| format!(" of {}", human_bytes(asked)));
    let stopped = action.stopped.as_ref().map_or_else(String::new, |why| format!(" (cut short: {why})"));
    let got = human_bytes(action.anon_bytes + action.file_bytes);
    let ago = human_seconds(now_s - action.t_s);
    format!("{ago:>7} ago  {:<7}  {got:>8}{asked}: {}{stopped}", action.what, action.reason)
}

/// One workload, in lines; words are broken at that width, tables are not.
#[must_use]
pub fn of_one(detail: &Detail, width: usize) -> Vec<String> {
    let row = &detail.workload;
    let window = row.working_set_window_s.map_or_else(String::new, |window| format!(" (last {window} s)"));
    let mut lines = vec![
        row.name.clone(),
        format!(
            "policy {}; monitor {}; memory {} ({} anonymous, {} file); working set {}{window}; cold {}; paged out {}, kept in {}; pressure {}",
            row.policy,
            row.monitor.as_deref().unwrap_or("-"),
            human_bytes(row.memory_bytes),
            human_bytes(row.anon_bytes),
            human_bytes(row.file_bytes),
            bytes(row.working_set_bytes),
            bytes(row.cold_bytes),
            human_bytes(row.swapped_bytes),
            bytes(row.kept_bytes),
            figure(row.pressure_percent, 2, " %"),
        ),
    ];
    lines.extend(row.brakes.iter().map(|held| format!("policy {} is paused: {}", held.policy, held.why)));
    lines.push(String::new());
    let about = lines.len();
    lines.extend(curve(detail));
    let curve = about..lines.len();
    lines.push(String::new());
    lines.push("Actions, newest first".to_owned());
    if detail.actions.is_empty() {
        lines.push("none yet".to_owned());
    }
    lines.extend(detail.actions.iter().map(|of| action(of, detail.now_s)));
    let broken = |(at, line): (usize, &String)| -> Vec<String> {
        let line = printable(line);
        if curve.contains(&at) || line.width() <= width {
            return vec![line];
        }
        wrap(&line, width, "    ").lines().map(str::to_owned).collect()
    };
    lines.iter().enumerate().flat_map(broken).collect()
}

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// A screen up.
    PageUp,
    /// A screen down.
    PageDown,
    /// The first row.
    Home,
    /// The last row.
    End,
    /// Into the row.
    Enter,
    /// Out of it.
    Back,
    /// A letter.
    Letter(char),
}

/// What a key leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The screen is drawn again.
    Draw,
    /// The agent is asked at once.
    Ask,
    /// The command ends.
    End,
}

/// The style of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineStyle {
    /// As it is.
    Plain,
    /// A head.
    Head,
    /// The row that keys act on.
    Chosen,
    /// Something is wrong.
    Bad,
}

/// What is shown, and which part of it.
#[derive(Debug, Clone)]
pub struct TopView {
    overview: Overview,
    detail: Option<Detail>,
    lost: Option<String>,
    sort: TopOrder,
    reverse: bool,
    /// Id of the row that keys act on.
    chosen: Option<String>,
    open: bool,
    /// First line that is shown of what is too long.
    first: usize,
}

const HELP: &str =
    "m memory  w working set  c cold  s saved  p pressure  n name  r reverse  ↑↓ Enter one workload  q end";
const HELP_ONE: &str = "↑↓ scroll  Esc back  q end";

impl TopView {
    /// A view of an agent's answer.
    #[must_use]
    pub fn new(overview: Overview, sort: TopOrder) -> Self {
        let mut view = Self {
            overview: Overview { workloads: Vec::new(), ..overview.clone() },
            detail: None,
            lost: None,
            sort,
            reverse: false,
            chosen: None,
            open: false,
            first: 0,
        };
        view.take(overview, None);
        view
    }

    /// Id of the workload that is shown alone.
    #[must_use]
    pub fn open(&self) -> Option<&str> {
        self.chosen.as_deref().filter(|_| self.open)
    }

    /// Takes the newest answer.
    pub fn take(&mut self, overview: Overview, detail: Option<Detail>) {
        (self.overview, self.lost) = (overview, None);
        // A workload that is gone is shown as it was last.
        self.detail = detail.or(self.detail.take().filter(|_| self.open));
        order(&mut self.overview.workloads, self.sort, self.reverse);
        if self.chosen.is_none() {
            self.chosen = self.overview.workloads.first().map(|row| row.id.clone());
        }
    }

    /// The agent does not answer.
    pub fn lose(&mut self, why: String) {
        self.lost = Some(why);
    }

    /// Where the row is that keys act on.
    fn at(&self) -> Option<usize> {
        self.overview.workloads.iter().position(|row| Some(&row.id) == self.chosen.as_ref())
    }

    /// Does what a key asks for; `page`: rows of the screen.
    pub fn press(&mut self, key: Key, page: usize) -> Next {
        match key {
            Key::Letter('q') => return Next::End,
            Key::Back => (self.open, self.detail, self.first) = (false, None, 0),
            Key::Enter if self.chosen.is_some() && !self.open => {
                (self.open, self.detail, self.first) = (true, None, 0);
                return Next::Ask;
            }
            Key::Letter('r') if !self.open => self.reverse = !self.reverse,
            Key::Letter(letter) if !self.open => match TopOrder::of(letter) {
                Some(sort) => (self.sort, self.reverse) = (sort, false),
                None => return Next::Draw,
            },
            Key::Enter | Key::Letter(_) => {}
            _ if self.open => self.first = moved(self.first, key, page, usize::MAX),
            _ => {
                let last = self.overview.workloads.len().saturating_sub(1);
                let at = moved(self.at().unwrap_or(0), key, page, last);
                self.chosen = self.overview.workloads.get(at).map(|row| row.id.clone());
            }
        }
        order(&mut self.overview.workloads, self.sort, self.reverse);
        Next::Draw
    }

    /// The lines of a screen of that size.
    pub fn screen(&mut self, width: usize, height: usize) -> Vec<(String, LineStyle)> {
        let mut lines: Vec<(String, LineStyle)> = about(&self.overview.agent, self.overview.workloads.len())
            .into_iter()
            .map(|line| (line, LineStyle::Plain))
            .collect();
        lines.extend(self.lost.iter().map(|why| (format!("no answer: {why}"), LineStyle::Bad)));
        let room = height.saturating_sub(lines.len() + 1);
        if self.open {
            self.one(&mut lines, width, room)
        } else {
            self.all(&mut lines, width, room)
        }
        lines.resize(height.saturating_sub(1), (String::new(), LineStyle::Plain));
        lines.push(((if self.open { HELP_ONE } else { HELP }).to_owned(), LineStyle::Head));
        lines.into_iter().map(|(line, style)| (fit(&line, width), style)).collect()
    }

    fn one(&mut self, lines: &mut Vec<(String, LineStyle)>, width: usize, room: usize) {
        let Some(detail) = &self.detail else {
            lines.push(("asking the agent …".to_owned(), LineStyle::Plain));
            return;
        };
        let mut all: Vec<(String, LineStyle)> =
            of_one(detail, width).into_iter().map(|line| (line, LineStyle::Plain)).collect();
        if let Some(name) = all.first_mut() {
            name.1 = LineStyle::Head;
        }
        if self.at().is_none() {
            all.insert(0, ("this workload is gone; these are its last readings".to_owned(), LineStyle::Bad));
        }
        self.first = self.first.min(all.len().saturating_sub(room));
        lines.extend(all.into_iter().skip(self.first).take(room));
    }

    fn all(&mut self, lines: &mut Vec<(String, LineStyle)>, width: usize, room: usize) {
        if self.overview.workloads.is_empty() {
            let none = "no workloads: none of the cgroups that the agent's file names is there";
            lines.push((none.to_owned(), LineStyle::Plain));
            return;
        }
        let mut all = self::lines(table(&self.overview.workloads), width).into_iter();
        lines.extend(all.next().map(|head| (head, LineStyle::Head)));
        let (at, shown) = (self.at(), room.saturating_sub(1).max(1));
        let chosen = at.unwrap_or(0);
        // The row that keys act on stays on the screen.
        self.first = self.first.clamp((chosen + 1).saturating_sub(shown), chosen);
        let style = |number: usize| if Some(number) == at { LineStyle::Chosen } else { LineStyle::Plain };
        lines.extend(all.enumerate().skip(self.first).take(shown).map(|(number, line)| (line, style(number))));
    }
}

fn moved(at: usize, key: Key, page: usize, last: usize) -> usize {
    match key {
        Key::Up => at.saturating_sub(1),
        Key::Down => at.saturating_add(1),
        Key::PageUp => at.saturating_sub(page),
        Key::PageDown => at.saturating_add(page),
        Key::Home => 0,
        Key::End => last,
        Key::Enter | Key::Back | Key::Letter(_) => at,
    }
    .min(last)
}

#[cfg(test)]
mod tests;
