//! What `lowtide top` shows, in words and tables.

use lowtide_model::units::{Span, float, human_bytes, human_seconds};

use unicode_width::UnicodeWidthStr;

use super::table::lines;
use lowtide_engine::agent::serve::api::{ActionTaken, AgentStatus, Detail, WorkloadRow};
use lowtide_report::text::{Grid, bytes, figure, printable, wrap};

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
