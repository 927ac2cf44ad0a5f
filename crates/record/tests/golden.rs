//! The format of a record: schema and rows of every file that the same inputs give, as text.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;

use lowtide_model::cohort::{AgeBin, Estimate};
use lowtide_model::episode::{Episode, PageKey, PageKind};
use lowtide_model::generations::CgroupUse;
use lowtide_model::meta::{End, Host, Meta, Monitor, Refusal, SCHEMA};
use lowtide_model::numa::{NodeRow, NodeUse};
use lowtide_model::region::Region;
use lowtide_model::usage::{FIELDS, Unit, Usage};
use lowtide_record::{ActionRow, AgeRow, CgroupRow, Record, RegionRow, Writer, finish};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::printer::print_schema;

fn meta() -> Meta {
    Meta {
        schema: SCHEMA,
        lowtide: "0.0.0".into(),
        command: vec!["server".into(), "--port".into(), "80".into()],
        started_unix_s: 1_700_000_000.25,
        started_monotonic_s: 12.5,
        interval_s: 1.0,
        max_overhead_percent: 1.0,
        limit_bytes: None,
        host: Host { kernel: "6.18.0".into(), cpus: 2, memory_bytes: 8 << 30, cgroup_version: 2, swap_bytes: 1 << 30 },
        monitor: Monitor {
            backend: "damon-paddr".into(),
            sampling_s: 1.0,
            aggregation_s: 0.1,
            refused: vec![Refusal { backend: "mglru".into(), why: "not in this kernel".into() }],
        },
        notes: vec!["pressure is not reported".into()],
        ..Meta::default()
    }
}

/// A row in which every figure has a value of its own, except for each seventh, which was not measured.
fn usage(tick: u32) -> Usage {
    let mut row = Usage::default();
    for (at, field) in FIELDS.iter().enumerate() {
        let at = u32::try_from(at).unwrap();
        let scale = if field.unit == Unit::Bytes { 65536.0 } else { 1.0 };
        let value = scale * f64::from(at + 1) + f64::from(tick) * if field.unit == Unit::Count { 1.0 } else { 0.5 };
        (field.set)(&mut row, ((at + tick) % 7 != 6).then_some(value));
    }
    Usage { t_s: Some(f64::from(tick)), oom_kills: Some(0.0), ..row }
}

fn ages(scale: f64) -> Vec<AgeBin> {
    let bin = |anon, min_s, max_s, bytes, first_touched| AgeBin {
        anon,
        min_s,
        max_s,
        size: Estimate { bytes: bytes * scale, ci95: 0.1 * bytes },
        first_touched,
    };
    vec![
        bin(true, 0.0, Some(1.0), 5e6, Some(7.4)),
        bin(true, 1.0, Some(5.0), 3e6, None),
        bin(true, 5.0, None, 1e6, None),
        bin(false, 0.0, Some(1.0), 2e6, None),
        bin(false, 1.0, None, 4e6, Some(0.0)),
    ]
}

fn episodes(t_s: f64) -> Vec<Episode> {
    let episode = |space, page, kind, touched, reuse_s| Episode {
        key: PageKey { space, page },
        kind,
        weight_bytes: 4_194_304.0,
        share: None,
        touched,
        start_s: t_s,
        end_s: t_s + 1.0,
        reuse_s,
    };
    vec![
        episode(7, 0x7f00, PageKind::Anon, true, None),
        episode(7, 0x7f01, PageKind::Anon, true, Some(2.5)),
        episode(7, 0x7f02, PageKind::File, false, Some(0.0)),
        episode(0, 0x123, PageKind::Cache, false, None),
    ]
}

fn write(dir: &Path, tick: u32, writer: &mut Writer) {
    let t_s = f64::from(tick);
    writer.add([usage(tick)]);
    writer.add(ages(1.0 + t_s).into_iter().map(|bin| AgeRow { t_s, bin }));
    writer.add(episodes(t_s));
    let region = |start, rate| Region { start, end: start + 8192, access_rate: rate, age_s: 0.3 };
    writer.add([
        RegionRow::new(t_s, 7, &region(1 << 44, 0.35), "[heap]"),
        RegionRow::new(t_s, 7, &region(2 << 44, 1.0), "/usr/bin/server"),
        RegionRow::new(t_s, 0, &region(4096, 0.0), ""),
    ]);
    let cgroup = |anon, used| CgroupUse {
        cgroup: "/service".into(),
        node: 1,
        anon,
        bytes: 9e6,
        used: [used, None, Some(3.0), None, Some(4.6), None],
        promoted: 12.0,
    };
    writer.add([cgroup(true, Some(1e6)), cgroup(false, None)].map(|memory| CgroupRow { t_s, memory }));
    let node = |node, kernel| NodeUse { node, anon: 100 << 20, file: 50 << 20, kernel };
    writer.add([node(0, Some(1 << 20)), node(1, None)].map(|memory| NodeRow { t_s, memory }));
    let action = |bytes| ActionRow {
        t_s,
        action: "pageout".into(),
        target: "server".into(),
        bytes,
        result: "done".into(),
        reason: "idle for 5 s".into(),
    };
    writer.add([action(Some(4096)), action(None)]);
    writer.flush().unwrap();
    assert_eq!(writer.dir(), dir);
}

/// Schema, encoding and rows of a Parquet file.
fn text(path: &Path) -> String {
    let mut out = String::new();
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    for pair in reader.metadata().file_metadata().key_value_metadata().into_iter().flatten() {
        writeln!(out, "{}: {}", pair.key, pair.value.as_deref().unwrap_or_default()).unwrap();
    }
    let mut schema = Vec::new();
    print_schema(&mut schema, reader.metadata().file_metadata().schema());
    out += std::str::from_utf8(&schema).unwrap();
    for group in reader.metadata().row_groups() {
        for column in group.columns() {
            let dictionary = if column.dictionary_page_offset().is_some() { " dictionary" } else { "" };
            let statistics = if column.statistics().is_some() { " statistics" } else { "" };
            writeln!(out, "{} {:?}{dictionary}{statistics}", column.column_path(), column.compression()).unwrap();
        }
    }
    for row in reader.get_row_iter(None).unwrap() {
        writeln!(out, "{}", row.unwrap()).unwrap();
    }
    out
}

/// The files of a folder, in the order of their names.
fn files(dir: &Path) -> String {
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut out = String::new();
    for path in paths.iter().filter(|path| path.is_file()) {
        let parquet = path.extension().is_some_and(|extension| extension == "parquet");
        let text = if parquet { text(path) } else { fs::read_to_string(path).unwrap() };
        write!(out, "=== {}\n{text}\n", path.file_name().unwrap().display()).unwrap();
    }
    out
}

#[test]
fn a_record_of_fixed_inputs() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("record");
    let mut writer = Writer::create(&dir, &meta()).unwrap();
    for tick in 0..4 {
        write(&dir, tick, &mut writer);
    }
    insta::assert_snapshot!("recording", files(&dir) + &files(&dir.join("parts")));
    let end = End {
        reason: "ended".into(),
        exit_code: Some(0),
        runtime_s: 3.0,
        app_max_rss_bytes: Some(200_000),
        cgroup_peak_bytes: Some(3 << 20),
        own_peak_rss_bytes: 9 << 20,
        monitor_cpu_s: 0.01,
    };
    let meta = Meta { end: Some(end), ..meta() };
    writer.close(&meta).unwrap();
    finish(&dir).unwrap();
    let finished = files(&dir);
    let record = Record::open(&dir).unwrap();
    assert!(written_again(&record) == finished, "what is read and written again is the same");
    // A version that wrote through Arrow made this one: with its schema, and other types in memory.
    let old = Record::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/arrow")).unwrap();
    assert!(written_again(&old) == finished, "a record that was written through Arrow has the same rows");
    insta::assert_snapshot!("finished", finished);
}

#[test]
fn row_groups_are_bounded() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("record");
    let mut writer = Writer::create(&dir, &meta()).unwrap();
    let row = |at: u32| RegionRow { t_s: f64::from(at), mapping: format!("/{}", at % 7), ..RegionRow::default() };
    writer.add((0..20_000).map(row));
    writer.close(&meta()).unwrap();
    finish(&dir).unwrap();
    let reader = SerializedFileReader::new(File::open(dir.join("regions.parquet")).unwrap()).unwrap();
    let groups: Vec<i64> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(groups, [16_384, 3616]);
    assert!(Record::open(&dir).unwrap().rows::<RegionRow>().into_iter().eq((0..20_000).map(row)));
}

fn written_again(record: &Record) -> String {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("copy");
    let mut writer = Writer::create(&dir, record.meta()).unwrap();
    writer.add(record.rows::<Usage>());
    writer.add(record.rows::<AgeRow>());
    writer.add(record.rows::<Episode>());
    writer.add(record.rows::<RegionRow>());
    writer.add(record.rows::<CgroupRow>());
    writer.add(record.rows::<NodeRow>());
    writer.add(record.rows::<ActionRow>());
    writer.close(record.meta()).unwrap();
    finish(&dir).unwrap();
    assert!(record.warnings().is_empty(), "{:?}", record.warnings());
    files(&dir)
}
