//! Telemetry as files: what is written is read, and what is wrong costs its own rows and nothing else.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use lowtide_fleet::collect::Collector;
use lowtide_fleet::generate::{self, FleetPlan};
use lowtide_fleet::replay::{Named, OfFleet};
use lowtide_fleet::store::{self, Fleet, Reader};
use lowtide_fleet::telemetry::{self, Batch, TelemetryRow, VERSION_KEY, columns};
use lowtide_model::AGE_EDGES_S;
use lowtide_model::curve::RefaultCosts;
use lowtide_model::kind::{Kind, PerKind};
use lowtide_policy::policies::Spec;
use lowtide_policy::reclaim::returns::Returned;
use lowtide_policy::replay::{Minute, Replay};
use lowtide_policy::sim::Simulated;
use lowtide_policy::sim::load::{AccessPattern, Load, Part};
use lowtide_policy::sim::simulated::Setup;
use lowtide_record::file::{create, write_group};
use lowtide_record::values::{ByteArray, ColumnSpec, ColumnValues, ValueType, Values};
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;

fn policies() -> Vec<Named> {
    let named = |name: &str| {
        let spec = Spec::built_in(name).unwrap();
        Named { name: name.to_owned(), replay: Replay::new(&spec, RefaultCosts::default()).unwrap() }
    };
    ["age", "auto", "promotion"].map(named).into()
}

fn replayed(dir: &Path) -> OfFleet {
    Fleet::open(dir).unwrap().replay(&policies(), None, &|_| true, &mut |_| {})
}

fn small() -> FleetPlan {
    FleetPlan { hosts: 3, workloads: 4, duration_s: 3.0 * 3600.0, ..FleetPlan::default() }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let fleet = Fleet::open(dir).unwrap();
    fleet.hosts().flat_map(|host| host.files().map(Result::unwrap).collect::<Vec<_>>()).collect()
}

fn made() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    generate::fleet(&small(), dir.path(), &|_| {}).unwrap();
    dir
}

#[test]
fn any_number_of_threads_adds_up_to_the_same() {
    let dir = made();
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| replayed(dir.path()))
    };
    let (one, four) = (on(1), on(4));
    assert!(
        one.tallies[0].rows > 1500 && one.tallies.iter().all(|tally| tally.gone.anon > 0),
        "{:?}",
        one.tallies[0].rows
    );
    assert_eq!((one.tallies, one.hosts, one.workloads), (four.tallies, four.hosts, four.workloads));
    // And the same fleet is made again.
    assert_eq!(replayed(made().path()).tallies, on(2).tallies);
}

#[test]
fn workloads_are_distinguished_by_a_label_and_add_up() {
    let dir = made();
    let by = |label: &str| Fleet::open(dir.path()).unwrap().replay(&policies(), Some(label), &|_| true, &mut |_| {});
    let of = by("kind");
    assert!(of.labels.len() > 1 && of.labels.keys().all(|kind| !kind.is_empty()), "{:?}", of.labels.keys());
    assert_eq!(of.labels.values().map(|(count, _)| count).sum::<u64>(), of.workloads);
    let mut sum = vec![lowtide_fleet::tally::PolicyTally::default(); 3];
    for (_, tallies) in of.labels.values() {
        sum.iter_mut().zip(tallies).for_each(|(sum, tally)| sum.merge(tally));
    }
    assert_eq!((sum, &of.tallies), (of.tallies.clone(), &replayed(dir.path()).tallies));
    assert!(by("no such").labels.is_empty());
}

#[test]
fn what_is_there_twice_counts_once() {
    let dir = made();
    let before = replayed(dir.path());
    let file = files(dir.path()).remove(0);
    fs::copy(&file, file.with_file_name("9999999999-again.parquet")).unwrap();
    let after = replayed(dir.path());
    assert_eq!(before.tallies, after.tallies);
    assert!(after.trouble.repeated > 100 && before.trouble.repeated == 0);
}

#[test]
fn a_broken_file_costs_its_own_rows_and_is_named() {
    let dir = made();
    let complete = replayed(dir.path());
    let all = files(dir.path());
    let bytes = fs::read(&all[0]).unwrap();
    fs::write(&all[0], &bytes[..bytes.len() / 2]).unwrap();
    fs::write(all[0].with_file_name("1-2.parquet"), b"PAR1 is not enough").unwrap();
    fs::write(all[0].with_file_name(".3-4.parquet.tmp"), b"being written").unwrap();
    fs::write(dir.path().join("README"), b"not a day").unwrap();
    let rest = replayed(dir.path());
    assert_eq!((rest.trouble.files, rest.trouble.first.len()), (2, 2));
    assert!(rest.trouble.first.iter().any(|first| first.contains("1-2.parquet")), "{:?}", rest.trouble.first);
    assert_eq!(rest.hosts.len(), 3);
    assert!(rest.tallies[0].rows < complete.tallies[0].rows && rest.tallies[0].rows > 0);
}

/// Writes columns as a file of a host.
fn write(dir: &Path, columns: Vec<(&'static str, ColumnValues)>, version: Option<&str>) {
    let folder = dir.join("day=2026-01-01/host=a");
    fs::create_dir_all(&folder).unwrap();
    let spec = |(name, values): &(&'static str, ColumnValues)| {
        let kind = match values {
            ColumnValues::Int64(_) => ValueType::Int64,
            ColumnValues::Float64(_) => ValueType::Float64,
            _ => ValueType::Text,
        };
        ColumnSpec { name: (*name).into(), doc: "".into(), kind, nullable: false }
    };
    let specs: Vec<ColumnSpec> = columns.iter().map(spec).collect();
    let mut file = fs::File::create(folder.join("1-2.parquet")).unwrap();
    let mut writer = create(&mut file, &specs, WriterProperties::default()).unwrap();
    if let Some(version) = version {
        let pair = parquet::file::metadata::KeyValue::new(VERSION_KEY.to_owned(), version.to_owned());
        writer.append_key_value_metadata(pair);
    }
    write_group(&mut writer, columns.into_iter().map(|(_, values)| values)).unwrap();
    writer.close().unwrap();
}

fn floats(values: &[f64]) -> ColumnValues {
    ColumnValues::Float64(Values::required(values.iter().copied()))
}

fn foreign(times: &[i64]) -> Vec<(&'static str, ColumnValues)> {
    let each = |value: f64| floats(&vec![value; times.len()]);
    vec![
        ("time_s", ColumnValues::Int64(Values::required(times.iter().copied()))),
        ("interval_s", ColumnValues::Int64(Values::required(times.iter().map(|_| 60)))),
        ("workload", ColumnValues::Text(Values::required(times.iter().map(|_| ByteArray::from("a"))))),
        ("anon_bytes", each(1e9)),
        ("file_bytes", each(2e9)),
        ("anon_idle_10s_bytes", each(4e8)),
        ("of_another_tool", each(1.0)),
    ]
}

#[test]
fn other_writers_types_and_columns_are_understood() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), foreign(&[60, 120, 180, 600]), None);
    let of = replayed(dir.path());
    assert_eq!((of.tallies[0].rows, of.trouble.missing, of.trouble.files), (4, 6, 0));
    // Four minutes of 400 MB that are idle for 10 seconds.
    assert_eq!(of.tallies[0].gone, PerKind { anon: 4 * 60_000 * 400_000_000, file: 0 });
}

fn read(path: &Path) -> Vec<TelemetryRow> {
    let row = |batch: &Batch, at: usize| {
        let workload = batch.workloads().nth(batch.workload(at).unwrap()).unwrap().to_owned();
        TelemetryRow { workload, minute: batch.minute(at).unwrap(), ..TelemetryRow::default() }
    };
    let batches = Reader::open(path, true).unwrap().map(Result::unwrap);
    batches.flat_map(|batch| (0..batch.len()).map(|at| row(&batch, at)).collect::<Vec<_>>()).collect()
}

#[test]
fn files_written_through_arrow_are_read() {
    let old = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/arrow.parquet"));
    assert!(old.len() == 180 && old.iter().all(|row| row.minute.idle.anon[1].is_some()), "{}", old.len());
    let dir = tempfile::tempdir().unwrap();
    let written = store::write(dir.path(), "a", &old).unwrap();
    let read = read(&written[0]);
    let plain = |rows: &[TelemetryRow]| -> Vec<(String, Minute)> {
        let minute = |row: &TelemetryRow| Minute { returned: PerKind::default(), ..row.minute };
        rows.iter().map(|row| (row.workload.clone(), minute(row))).collect()
    };
    // What comes back is a rate, which is rounded to bytes of an interval.
    assert_eq!(plain(&read), plain(&old));
}

#[test]
fn newer_schemas_and_files_of_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), foreign(&[60]), Some("2"));
    let of = replayed(dir.path());
    assert!(of.tallies[0].rows == 0 && of.trouble.first[0].contains("schema 2"), "{:?}", of.trouble);
    write(dir.path(), foreign(&[60]).into_iter().filter(|(name, _)| *name != "file_bytes").collect(), None);
    let of = replayed(dir.path());
    assert!(of.tallies[0].rows == 0 && of.trouble.first[0].contains("no column file_bytes"), "{:?}", of.trouble);
}

#[test]
fn a_time_that_cannot_be_true_is_counted_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), foreign(&[60, 120, 1_000_000_000_000_000_000]), None);
    let of = replayed(dir.path());
    assert_eq!((of.tallies[0].rows, of.trouble.senseless), (2, 1));
}

#[test]
fn rows_that_cannot_be_true_and_clocks_set_back_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut columns = foreign(&[60, 120, 60, 180, 240]);
    columns[3].1 = floats(&[1e9, 1e9, 1e9, -1.0, 1e9]);
    write(dir.path(), columns, None);
    let of = replayed(dir.path());
    assert_eq!((of.tallies[0].rows, of.trouble.senseless, of.trouble.repeated), (3, 1, 1));
    assert_eq!(of.trouble.missing, 1, "the one that cannot be true");
}

#[test]
fn the_oldest_goes_first_and_the_newest_stays() {
    let dir = tempfile::tempdir().unwrap();
    let row = |now_s: f64| TelemetryRow {
        workload: "a".into(),
        minute: Minute { now_s, lasts_s: 60.0, ..Minute::default() },
        ..TelemetryRow::default()
    };
    // Two days, a file each.
    let files = store::write(dir.path(), "x/../y", &[row(86_000.0), row(90_000.0)]).unwrap();
    assert_eq!(files.len(), 2);
    assert!(files[0].ends_with("day=1970-01-01/host=x_.._y/86000-86000.parquet"), "{files:?}");
    let size = fs::metadata(&files[1]).unwrap().len();
    assert_eq!(store::bound(dir.path(), "x/../y", 2 * size + 4096).unwrap(), 0);
    assert!(store::bound(dir.path(), "x/../y", size).unwrap() > 0);
    assert!(!files[0].exists() && !files[0].parent().unwrap().parent().unwrap().exists() && files[1].exists());
    assert_eq!(store::bound(dir.path(), "x/../y", 0).unwrap(), 0);
    assert!(files[1].exists());
}

#[test]
fn every_column_is_documented() {
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fleet.md")).unwrap();
    for column in columns() {
        // Of bursts there are three.
        let edge = AGE_EDGES_S[1..]
            .iter()
            .filter(|_| !column.name.contains("burst"))
            .find(|edge| column.name.contains(&format!("_{edge}s_")));
        let name = edge.map_or(column.name.to_string(), |edge| column.name.replace(&format!("_{edge}s_"), "_Ns_"));
        assert!(docs.contains(&format!("`{name}`")), "{name} is not in docs/fleet.md");
    }
}

fn bytes() -> impl Strategy<Value = f64> {
    (0u64..1 << 45).prop_map(|bytes| {
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let bytes = bytes as f64;
        bytes
    })
}

fn minutes() -> impl Strategy<Value = Minute> {
    let edges = || prop::array::uniform8(prop::option::of(bytes()));
    let bursts = || prop::array::uniform3(prop::option::of(bytes()));
    (bytes(), bytes(), bytes(), edges(), edges(), [bursts(), bursts()], prop::option::of(0.0..=1.0f64), 1u32..3600)
        .prop_map(|(anon, file, swapped, idle, back, burst, pressure, lasts)| {
            let lasts_s = f64::from(lasts);
            let returned =
                Returned { back: back.map(|back| back.map(|back| back / lasts_s)), used: anon, refaulted: 0.0 };
            let mut with_all = [Some(anon); AGE_EDGES_S.len()];
            with_all[1..].copy_from_slice(&idle);
            let mut of_file = [None; AGE_EDGES_S.len()];
            of_file[0] = Some(file);
            Minute {
                now_s: 1e9,
                lasts_s,
                resident: PerKind { anon, file },
                swapped,
                idle: [with_all, of_file].into(),
                returned: [returned, Returned::default()].into(),
                burst: burst.into(),
                pressure,
                floor: 0.0,
            }
        })
}

#[test]
fn what_comes_into_use_at_once_is_reported() {
    // 8 MiB at once every 90 s, and as much that is used all the time; sampled every 5 s.
    let part = |uses, groups| Part::new(Kind::Anon, uses, 2048 / groups, groups);
    let load = Load::new(1, "x", vec![part(AccessPattern::Sweep(90.0), 1), part(AccessPattern::Steady(1.0), 32)]);
    let plan = FleetPlan {
        hosts: 1,
        workloads: 1,
        duration_s: 1800.0,
        step_s: 1.0,
        sampling_s: 5.0,
        sample: 0,
        ..FleetPlan::default()
    };
    let mut machine = Simulated::new(Setup { loads: vec![load], ..generate::setup(&plan, 0) });
    let (mut collector, mut bursts) = (Collector::default(), Vec::new());
    while machine.step() {
        if machine.is_due() {
            let frame = machine.observe().unwrap();
            bursts.extend(collector.observe(&frame).into_iter().map(|(_, row)| row.minute.burst));
        }
    }
    let of = |at: usize| bursts.iter().filter_map(|burst| burst.anon[at]).fold(0.0, f64::max);
    assert!(bursts.len() >= 29 && (of(0) - 8e6).abs() < 0.1 * 8e6 && (of(1) - of(0)).abs() < 1.0, "{bursts:?}");
    // Always in use within two minutes, and nothing of files.
    assert!(bursts[5..].iter().all(|burst| burst.anon[2] == Some(0.0)), "{bursts:?}");
    assert!(bursts.iter().flat_map(|burst| burst.file).flatten().all(|burst| burst == 0.0));
}

proptest! {
    #[test]
    fn what_is_written_is_read(minutes in prop::collection::vec(minutes(), 1..20)) {
        let rows: Vec<TelemetryRow> = minutes.iter().map(|minute| TelemetryRow { workload: "w".into(), minute: *minute, ..TelemetryRow::default() }).collect();
        let mut columns = columns().into_iter().map(|column| column.name).zip(telemetry::encode(&rows)).collect::<HashMap<_, _>>();
        let batch = Batch::new(rows.len(), |name| columns.remove(name)).unwrap();
        prop_assert_eq!(batch.len(), minutes.len());
        prop_assert_eq!(batch.workloads().collect::<Vec<_>>(), ["w"]);
        for (at, expected) in minutes.iter().enumerate() {
            let read = batch.minute(at).unwrap();
            let rates = |minute: &Minute| minute.returned.map(|returned| returned.back.map(|back| back.map(|rate| (rate * minute.lasts_s).round())));
            prop_assert_eq!(rates(&read), rates(expected));
            prop_assert_eq!(Minute { returned: expected.returned, ..read }, *expected);
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 0.0..1.0f64, flip in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1-2.parquet");
        fs::write(&path, &bytes).unwrap();
        prop_assert!(Reader::open(&path, true).is_err());
        // A good file, cut or with one byte changed.
        let row = TelemetryRow { workload: "w".into(), minute: Minute { now_s: 60.0, lasts_s: 60.0, ..Minute::default() }, ..TelemetryRow::default() };
        let good = store::write(dir.path(), "h", &vec![row; 50]).unwrap().remove(0);
        let mut bytes = fs::read(&good).unwrap();
        let at = flip.index(bytes.len());
        bytes[at] ^= 0x41;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place")]
        let keep = (cut * bytes.len() as f64) as usize;
        if keep.is_multiple_of(2) {
            bytes.truncate(keep);
        }
        fs::write(&path, &bytes).unwrap();
        if let Ok(reader) = Reader::open(&path, true) {
            for batch in reader.flatten() {
                (0..batch.len()).for_each(|at| assert!(batch.minute(at).is_none_or(|minute| minute.lasts_s > 0.0)));
            }
        }
    }
}
