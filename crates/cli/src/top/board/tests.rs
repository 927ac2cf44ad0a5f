use lowtide_engine::agent::serve::api::{ActionTaken, AgeSeries, Held, SCHEMA, Tide, TidePoint};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Modifier;

use super::*;
use crate::screen::style::Palette;
use crate::top::draw;

fn row(name: &str, memory: f64, cold: Option<f64>) -> WorkloadRow {
    WorkloadRow {
        id: name.to_owned(),
        kind: "cgroup".to_owned(),
        name: format!("/{name}"),
        policy: "auto".to_owned(),
        memory_bytes: memory,
        anon_bytes: memory,
        file_bytes: 0.0,
        monitor: Some("mglru".to_owned()),
        working_set_bytes: None,
        working_set_window_s: None,
        cold_bytes: cold,
        swapped_bytes: 0.0,
        kept_bytes: None,
        saved_net_bytes: Some(0.0),
        pressure_percent: None,
        brakes: vec![Held {
            policy: "auto".to_owned(),
            brake: "swap".to_owned(),
            why: "no free swap".to_owned(),
            all: true,
        }],
        last_action: None,
    }
}

fn overview(rows: &[WorkloadRow]) -> Overview {
    Overview { schema: SCHEMA, agent: AgentStatus::default(), workloads: rows.to_vec() }
}

fn detail(row: &WorkloadRow) -> Detail {
    let point = TidePoint {
        age_s: 30.0,
        kept_bytes: 1_048_576.0,
        anon_cold_bytes: 2.0 * 1_048_576.0,
        file_cold_bytes: 0.0,
        anon_back_bytes_per_s: 4096.0,
        file_back_bytes_per_s: 0.0,
        slowdown_percent: 0.5,
        slowdown_low_percent: 0.1,
        slowdown_high_percent: 1.0,
    };
    let action = ActionTaken {
        t_s: 40.0,
        what: "stow".to_owned(),
        asked_anon_bytes: None,
        asked_file_bytes: None,
        anon_bytes: 1_048_576.0,
        file_bytes: 0.0,
        by: "process_madvise".to_owned(),
        took_s: 0.1,
        reason: "it rests\u{1b}[2J".to_owned(),
        stopped: Some("dry run".to_owned()),
    };
    let tide = Tide {
        span_s: 60.0,
        refault_swap_s: 1e-5,
        refault_disk_s: 1e-4,
        total_anon_bytes: 0.0,
        total_file_bytes: 0.0,
        points: vec![point],
    };
    Detail {
        schema: SCHEMA,
        started_unix_s: 0.0,
        now_s: 100.0,
        workload: row.clone(),
        curve: Some(tide),
        curve_missing: None,
        ages: AgeSeries::default(),
        actions: vec![action],
    }
}

/// The screen, and its row that is reversed.
fn drawn(board: &mut TopBoard, width: u16, height: u16) -> (String, Option<String>) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame, board, Palette { has_colours: false })).unwrap();
    let buffer = terminal.backend().buffer();
    let is_reversed = |row: &u16| buffer[(0, *row)].modifier.contains(Modifier::REVERSED);
    let chosen = (0..height).find(is_reversed);
    let text = |row: u16| (0..width).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    let chosen = chosen.map(|row| text(row).split("  ").next().unwrap().to_owned());
    (terminal.backend().to_string(), chosen)
}

/// Names of workloads, as they are ordered.
fn names(board: &TopBoard) -> Vec<String> {
    board.workloads().iter().map(|row| row.name.clone()).collect()
}

#[test]
fn keys_order_rows_and_move_among_them() {
    let rows = [row("a", 1.0, Some(5.0)), row("b", 3.0, None), row("c", 2.0, Some(9.0))];
    let mut board = TopBoard::new(overview(&rows), TopOrder::Memory);
    assert_eq!(names(&board), ["/b", "/c", "/a"]);
    assert_eq!(board.press(Key::Letter('c')), TopNext::Draw);
    assert_eq!(names(&board), ["/c", "/a", "/b"], "what is not known comes last");
    board.press(Key::Letter('r'));
    assert_eq!(names(&board), ["/a", "/c", "/b"]);
    board.press(Key::Home);
    board.press(Key::Down);
    assert_eq!(drawn(&mut board, 100, 20).1.as_deref(), Some("/c"));
    // It is the workload that is chosen, not the place.
    board.press(Key::Letter('n'));
    assert_eq!((drawn(&mut board, 100, 20).1.as_deref(), board.at()), (Some("/c"), Some(2)));
    board.press(Key::PageDown);
    assert_eq!(board.at(), Some(2), "there is nothing below the last");
    assert_eq!(board.press(Key::Quit), TopNext::End);
}

#[test]
fn orders_are_chosen_from_a_list() {
    let rows = [row("a", 1.0, Some(5.0)), row("b", 3.0, None)];
    let mut board = TopBoard::new(overview(&rows), TopOrder::Memory);
    board.press(Key::Order);
    board.press(Key::Down);
    board.press(Key::Down);
    insta::assert_snapshot!("top_orders", drawn(&mut board, 80, 14).0);
    board.press(Key::Enter);
    assert_eq!((board.sort, board.overlay), (TopOrder::Cold, TopOverlay::None));
    board.press(Key::Order);
    board.press(Key::Letter('n'));
    assert_eq!((board.sort, board.overlay), (TopOrder::Name, TopOverlay::None));
    board.press(Key::Order);
    board.press(Key::Escape);
    assert_eq!((board.sort, board.overlay), (TopOrder::Name, TopOverlay::None));
}

#[test]
fn intervals_and_pauses() {
    let mut board = TopBoard::new(overview(&[row("a", 1.0, None)]), TopOrder::Memory);
    board.press(Key::Slower);
    board.press(Key::Pause);
    assert!(board.is_paused && board.every_s > EVERY_S);
    assert!(drawn(&mut board, 80, 20).0.contains("PAUSED"));
}

#[test]
fn a_workload_opens_with_its_curve_and_actions_and_may_go_away() {
    let rows = [row("a", 1.0, None)];
    let mut board = TopBoard::new(overview(&rows), TopOrder::Memory);
    assert_eq!(board.open(), None);
    assert_eq!(board.press(Key::Enter), TopNext::Ask);
    assert_eq!(board.open(), Some("a"));
    board.take(overview(&rows), Some(detail(&rows[0])));
    let shown = drawn(&mut board, 120, 30).0;
    for part in
        ["30s", "2.00 MiB", "4.00 KiB/s", "0.50 %", "60.0 s ago  stow", "it rests\u{fffd}[2J (cut short: dry run)"]
    {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    board.take(overview(&[]), None);
    let shown = drawn(&mut board, 120, 30).0;
    assert!(shown.contains("this workload is gone") && shown.contains("2.00 MiB"), "{shown}");
    board.press(Key::Escape);
    assert!(drawn(&mut board, 120, 30).0.contains("no workloads"));
    board.lose("it is away".to_owned());
    assert!(drawn(&mut board, 120, 30).0.contains("no answer: it is away"));
}

/// Workloads as an agent has them.
fn several() -> TopBoard {
    const MIB: f64 = 1_048_576.0;
    let named = |name: &str, memory: f64, cold: Option<f64>| WorkloadRow {
        working_set_bytes: cold.map(|cold| memory - cold),
        saved_net_bytes: Some(cold.unwrap_or(0.0) / 4.0),
        pressure_percent: Some(0.25),
        ..row(name, memory, cold)
    };
    let rows = [
        named("system.slice/postgresql.service", 2048.0 * MIB, Some(1200.0 * MIB)),
        named("user.slice/user-1000.slice/user@1000.service/app.slice/browser.scope", 812.0 * MIB, Some(96.0 * MIB)),
        named("job", 64.0 * MIB, None),
    ];
    let agent =
        AgentStatus { version: "0.1.0".to_owned(), now_s: 3600.0, rss_bytes: 9 << 20, ..AgentStatus::default() };
    TopBoard::new(Overview { agent, ..overview(&rows) }, TopOrder::Memory)
}

#[test]
fn screens_of_three_widths() {
    for (width, height) in [(60, 12), (80, 12), (140, 12)] {
        insta::assert_snapshot!(format!("top_{width}"), drawn(&mut several(), width, height).0);
    }
    let mut board = several();
    board.press(Key::Help);
    insta::assert_snapshot!("top_help", drawn(&mut board, 80, 24).0);
}

#[test]
fn any_size_can_be_drawn_and_what_is_chosen_is_on_it() {
    let rows: Vec<WorkloadRow> = (0..50).map(|number| row(&format!("日本{number}"), f64::from(number), None)).collect();
    let mut board = TopBoard::new(overview(&rows), TopOrder::Memory);
    for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
        for key in
            [Key::End, Key::Help, Key::Help, Key::Order, Key::Order, Key::Enter, Key::PageDown, Key::Back, Key::Home]
        {
            board.press(key);
            drawn(&mut board, width, height);
        }
    }
    board.press(Key::End);
    // A wide letter takes two cells.
    assert_eq!(drawn(&mut board, 80, 10).1.as_deref(), Some("/日 本 0"));
}
