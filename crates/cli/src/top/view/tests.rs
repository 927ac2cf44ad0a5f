use super::*;
use lowtide_engine::agent::serve::api::{AgeSeries, Held, SCHEMA, Tide, TidePoint};

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

fn names(view: &mut TopView) -> Vec<(String, LineStyle)> {
    let rows = view.screen(100, 20).into_iter().filter(|(line, _)| line.starts_with('/'));
    rows.map(|(line, style)| (line.split(' ').next().unwrap().to_owned(), style)).collect()
}

#[test]
fn keys_order_rows_and_move_among_them() {
    let rows = [row("a", 1.0, Some(5.0)), row("b", 3.0, None), row("c", 2.0, Some(9.0))];
    let mut view = TopView::new(overview(&rows), TopOrder::Memory);
    let order = |view: &mut TopView| names(view).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(order(&mut view), ["/b", "/c", "/a"]);
    assert_eq!(view.press(Key::Letter('c'), 5), Next::Draw);
    assert_eq!(order(&mut view), ["/c", "/a", "/b"], "what is not known comes last");
    view.press(Key::Letter('r'), 5);
    assert_eq!(order(&mut view), ["/a", "/c", "/b"]);
    view.press(Key::Home, 5);
    view.press(Key::Down, 5);
    assert_eq!(names(&mut view)[1], ("/c".to_owned(), LineStyle::Chosen));
    // It is the workload that is chosen, not the place.
    view.press(Key::Letter('n'), 5);
    assert_eq!(names(&mut view)[2], ("/c".to_owned(), LineStyle::Chosen));
    view.press(Key::PageDown, 5);
    assert_eq!(names(&mut view)[2].1, LineStyle::Chosen, "there is nothing below the last");
    assert_eq!(view.press(Key::Letter('q'), 5), Next::End);
}

#[test]
fn a_workload_opens_with_its_curve_and_actions_and_may_go_away() {
    let rows = [row("a", 1.0, None)];
    let mut view = TopView::new(overview(&rows), TopOrder::Memory);
    assert_eq!(view.open(), None);
    assert_eq!(view.press(Key::Enter, 5), Next::Ask);
    assert_eq!(view.open(), Some("a"));
    view.take(overview(&rows), Some(detail(&rows[0])));
    let text =
        |view: &mut TopView| view.screen(120, 30).iter().map(|(line, _)| line.clone() + "\n").collect::<String>();
    let shown = text(&mut view);
    for part in
        ["30s", "2.00 MiB", "4.00 KiB/s", "0.50 %", "60.0 s ago  stow", "it rests\u{fffd}[2J (cut short: dry run)"]
    {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    view.take(overview(&[]), None);
    let shown = text(&mut view);
    assert!(shown.contains("this workload is gone") && shown.contains("2.00 MiB"), "{shown}");
    view.press(Key::Back, 5);
    assert!(text(&mut view).contains("no workloads"));
    view.lose("it is away".to_owned());
    assert!(text(&mut view).contains("no answer: it is away"));
}

#[test]
fn a_screen_is_as_large_as_the_terminal_whatever_that_is() {
    let rows: Vec<WorkloadRow> = (0..50).map(|number| row(&format!("日本{number}"), f64::from(number), None)).collect();
    let mut view = TopView::new(overview(&rows), TopOrder::Memory);
    for (width, height) in [(0, 0), (1, 1), (20, 3), (80, 24), (300, 100)] {
        for key in [Key::End, Key::Enter, Key::PageDown, Key::Back, Key::Home] {
            view.press(key, height);
            let screen = view.screen(width, height);
            assert!(screen.len() <= height.max(3), "{} of {height}", screen.len());
            assert!(screen.iter().all(|(line, _)| unicode_width::UnicodeWidthStr::width(line.as_str()) <= width));
        }
    }
    view.press(Key::End, 10);
    assert!(
        view.screen(80, 10).iter().any(|(_, style)| *style == LineStyle::Chosen),
        "what is chosen is on the screen"
    );
}
