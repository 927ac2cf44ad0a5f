//! Views of a made-up record: what people read is fixed here word by word.
#![allow(clippy::unwrap_used)]

mod report_support;

use std::path::Path;
use std::sync::OnceLock;

use clap::{Parser, ValueEnum};
use lowtide_model::meta::Meta;
use lowtide_record::{Record, StoreError, Writer};
use lowtide_report::{self, Format, ReportError, ReportOptions, Terminal, View};
use report_support::{RecordPlan, make, meta};

/// Records that several tests read: with a monitor, with only a cohort, without.
fn records() -> &'static [tempfile::TempDir; 3] {
    static RECORDS: OnceLock<[tempfile::TempDir; 3]> = OnceLock::new();
    RECORDS.get_or_init(|| {
        let plan = RecordPlan { seconds: 180, episodes: 400, ..RecordPlan::default() };
        [plan, RecordPlan { snapshots: 0, ..plan }, RecordPlan { monitored: false, ..plan }].map(|plan| {
            let dir = tempfile::tempdir().unwrap();
            make(dir.path(), plan);
            lowtide_report::conclude(dir.path()).unwrap();
            dir
        })
    })
}

fn view(name: &str) -> View {
    View::named(name).unwrap()
}

fn bytes(dir: &Path, view: View, format: Format, options: &ReportOptions) -> Result<Vec<u8>, ReportError> {
    let mut out = Vec::new();
    lowtide_report::write(&Record::open(dir).unwrap(), (view, format), options, &mut out)?;
    Ok(out)
}

fn text(record: usize, view: View) -> String {
    let text =
        String::from_utf8(bytes(records()[record].path(), view, Format::Text, &ReportOptions::default()).unwrap())
            .unwrap();
    let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(long.is_empty(), "fits 80 columns: {long:#?}");
    text
}

#[test]
fn texts_of_a_whole_record() {
    insta::assert_snapshot!("summary", text(0, view("summary")));
    insta::assert_snapshot!("timeline", text(0, view("timeline")));
    insta::assert_snapshot!("workingset", text(0, view("workingset")));
    insta::assert_snapshot!("ages", text(0, view("ages")));
    insta::assert_snapshot!("heatmap", text(0, view("heatmap")));
    insta::assert_snapshot!("regions", text(0, view("regions")));
    insta::assert_snapshot!("breakdown", text(0, view("breakdown")));
    insta::assert_snapshot!("cgroups", text(0, view("cgroups")));
}

#[test]
fn texts_where_something_was_not_measured() {
    insta::assert_snapshot!("heatmap_of_cohort", text(1, view("heatmap")));
    insta::assert_snapshot!("summary_unmonitored", text(2, view("summary")));
    for (view, what) in [
        (view("workingset"), "working set"),
        (view("ages"), "idle ages"),
        (view("heatmap"), "map"),
        (view("regions"), "map"),
    ] {
        let error =
            bytes(records()[2].path(), view, Format::Text, &ReportOptions::default()).err().unwrap().to_string();
        assert!(error.contains(what) && error.contains("CONFIG_DAMON_VADDR"), "{error}");
    }
}

#[test]
fn every_view_in_every_format_it_has() {
    for view in View::value_variants() {
        for format in Format::value_variants() {
            let drawn = !["summary", "phases", "regions", "cgroups"].contains(&view.name);
            let possible = drawn || !matches!(format, Format::Svg | Format::Png);
            match bytes(records()[0].path(), *view, *format, &ReportOptions::default()) {
                Ok(out) => {
                    assert!(possible, "{view:?} as {format:?}");
                    check(*format, &out);
                }
                Err(ReportError::Usage(why)) => {
                    assert!(!possible, "{view:?} as {format:?}: {why}");
                    assert!(why.contains("possible: text, json, csv, html"), "{why}");
                }
                Err(error) => panic!("{view:?} as {format:?}: {error}"),
            }
        }
    }
}

/// Whether a document is what it says it is.
fn check(format: Format, out: &[u8]) {
    let text = String::from_utf8_lossy(out);
    match format {
        Format::Text => assert!(!text.contains('\x1b')),
        Format::Json => drop(serde_json::from_slice::<serde_json::Value>(out).unwrap()),
        Format::Csv => {
            let mut reader = csv::Reader::from_reader(out);
            let columns = reader.headers().unwrap().len();
            assert!(reader.records().all(|row| row.unwrap().len() == columns));
        }
        Format::Svg => balanced(&text),
        Format::Html => {
            assert!(out.len() < 1 << 20);
            // Its own script, which the policy of content admits by its hash.
            assert!(text.matches("<script").count() == 1 && text.contains("script-src 'sha256-"), "one script");
            assert!(!text.contains("<link") && !text.contains("src="), "self-contained");
            let addresses = text.matches("http").count();
            assert_eq!(
                addresses,
                text.matches("http://www.w3.org/2000/svg").count() + text.matches("http-equiv").count()
            );
            balanced(text.split_once("<body>").unwrap().1.split_once("</body>").unwrap().0);
        }
        Format::Png => assert!(out.starts_with(b"\x89PNG\r\n\x1a\n")),
    }
}

/// Every element that is opened is closed, in order.
fn balanced(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in text.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        let name = tag.split([' ', '/', '\n']).find(|part| !part.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn json_of_the_summary_is_summary_json() {
    let dir = records()[0].path();
    let printed: serde_json::Value =
        serde_json::from_slice(&bytes(dir, view("summary"), Format::Json, &ReportOptions::default()).unwrap()).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("summary.json")).unwrap()).unwrap();
    assert_eq!(printed, written);
    assert!(dir.join("report.html").exists());
}

#[test]
fn a_process_and_a_time_can_be_chosen() {
    let dir = records()[0].path();
    let only = ReportOptions { pid: Some(4300), at_s: Some(60.0), ..ReportOptions::default() };
    let csv = String::from_utf8(bytes(dir, view("regions"), Format::Csv, &only).unwrap()).unwrap();
    assert!(csv.lines().count() > 5 && csv.lines().skip(1).all(|line| line.starts_with("60.0,4300,")), "{csv}");
    let map = String::from_utf8(bytes(dir, view("heatmap"), Format::Text, &only).unwrap()).unwrap();
    assert!(map.contains("Process 4300") && !map.contains("Process 4211"));
    let gone = bytes(dir, view("heatmap"), Format::Text, &ReportOptions { pid: Some(1), ..ReportOptions::default() });
    assert!(gone.err().unwrap().to_string().contains("process 1"));
}

#[test]
fn damos_rule_has_views_formats_and_options_of_its_own() {
    let dir = records()[0].path();
    let damo = || ReportOptions { rule: lowtide_report::Convention::Damo, ..ReportOptions::default() };
    for format in [Format::Text, Format::Json, Format::Csv, Format::Html] {
        for view in [view("workingset"), view("heatmap")] {
            check(format, &bytes(dir, view, format, &damo()).unwrap());
        }
    }
    let chosen = lowtide_report::Choices { leave_out: Some(3), ..lowtide_report::Choices::default() };
    let wrong = [
        (
            view("workingset"),
            Format::Csv,
            ReportOptions { damo: chosen, ..ReportOptions::default() },
            "without --rule damo",
        ),
        (view("summary"), Format::Html, damo(), "summary is not calculated"),
        (view("heatmap"), Format::Png, damo(), "no drawing as png"),
    ];
    for (view, format, options, why) in wrong {
        match bytes(dir, view, format, &options) {
            Err(ReportError::Usage(message)) => assert!(message.contains(why), "{message}"),
            other => panic!("{view:?}: {other:?}"),
        }
    }
}

#[test]
fn a_terminal_gets_colours() {
    let terminal = Terminal { width: 100, ansi: true };
    let out = bytes(
        records()[0].path(),
        view("heatmap"),
        Format::Text,
        &ReportOptions { terminal, ..ReportOptions::default() },
    )
    .unwrap();
    assert!(String::from_utf8(out).unwrap().contains("\x1b[48;5;"));
}

#[test]
fn hostile_names_stay_text() {
    let dir = tempfile::tempdir().unwrap();
    let plan = RecordPlan { seconds: 3, episodes: 0, ..RecordPlan::default() };
    let command = vec!["<script>alert(1)</script>".to_owned(), "\"&'".to_owned()];
    let meta = Meta { command, notes: vec!["<b>note</b>".into()], ..meta(plan) };
    let mut writer = Writer::create(dir.path(), &meta).unwrap();
    report_support::record(&mut writer, plan);
    let mapping = "/tmp/<img src=x>\u{7}".to_owned();
    writer.add(
        report_support::regions(plan, 3.0)
            .into_iter()
            .map(|row| lowtide_record::RegionRow { mapping: mapping.clone(), ..row }),
    );
    writer.close(&meta).unwrap();
    let html = String::from_utf8(bytes(dir.path(), view("summary"), Format::Html, &ReportOptions::default()).unwrap())
        .unwrap();
    for raw in ["<script>alert", "<b>note", "<img"] {
        assert!(!html.contains(raw), "{raw}");
    }
    for view in [view("heatmap"), view("timeline")] {
        balanced(&String::from_utf8(bytes(dir.path(), view, Format::Svg, &ReportOptions::default()).unwrap()).unwrap());
    }
    let text = String::from_utf8(bytes(dir.path(), view("regions"), Format::Text, &ReportOptions::default()).unwrap())
        .unwrap();
    assert!(!text.contains('\u{7}'), "no control characters on a terminal");
}

#[test]
fn a_record_without_rows_is_reported_not_drawn() {
    let dir = tempfile::tempdir().unwrap();
    Writer::create(dir.path(), &Meta::default()).unwrap().close(&Meta::default()).unwrap();
    assert!(lowtide_report::conclude(dir.path()).unwrap().now);
    for view in View::value_variants() {
        match bytes(dir.path(), *view, Format::Text, &ReportOptions::default()) {
            Ok(_) => assert_eq!(view.name, "summary"),
            Err(error) => assert!(matches!(error, ReportError::Missing { .. }), "{error}"),
        }
    }
}

#[test]
fn a_live_record_is_shown_but_not_concluded() {
    let dir = tempfile::tempdir().unwrap();
    let plan = RecordPlan { seconds: 20, episodes: 10, ..RecordPlan::default() };
    let mut writer = Writer::create(dir.path(), &Meta { end: None, ..meta(plan) }).unwrap();
    report_support::record(&mut writer, plan);
    writer.flush().unwrap();
    assert!(matches!(lowtide_report::conclude(dir.path()), Err(ReportError::Store(StoreError::Live(_)))));
    let text = String::from_utf8(bytes(dir.path(), view("summary"), Format::Text, &ReportOptions::default()).unwrap())
        .unwrap();
    assert!(text.contains("still being made"), "{text}");
    assert!(!dir.path().join("summary.json").exists() && !dir.path().join("report.html").exists());
}

/// The command's arguments as the binary takes them.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: lowtide::cmd::report::ReportArgs,
}

#[test]
fn the_command_writes_files_and_refuses_what_makes_no_sense() {
    let dir = records()[0].path().to_str().unwrap();
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("ages.csv");
    let run = |words: &[&str]| {
        let words = ["report", dir].into_iter().chain(words.iter().copied());
        lowtide::cmd::report::run(&Cli::try_parse_from(words).unwrap().args)
    };
    assert_eq!(run(&["ages", "--format", "csv", "--output", file.to_str().unwrap()]).unwrap(), 0);
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("t_s,kind,"));
    let error = run(&["summary", "--format", "png"]).err().unwrap();
    assert_eq!(lowtide_engine::failure::exit_code(&error), 2);
    assert!(Cli::try_parse_from(["report", dir, "--json", "--format", "csv"]).is_err());
    assert!(Cli::try_parse_from(["report", dir, "tides"]).is_err());
    assert!(run(&["--json", "--output", "/nonexistent/x"]).is_err());
}
