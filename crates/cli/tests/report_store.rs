//! Records: what is written is what is read, whatever happens in between.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod report_support;

use std::fs;
use std::path::Path;

use lowtide_model::cohort::{AgeBin, Estimate};
use lowtide_model::episode::{Episode, PageKey, PageKind};
use lowtide_model::meta::{End, Meta};
use lowtide_model::usage::{FIELDS, Usage};
use lowtide_record::{ActionRow, AgeRow, Record, RegionRow, StoreError, Writer, finish};
use proptest::prelude::*;
use report_support::{RecordPlan, make};

/// Rows of all tables.
#[derive(Debug, Clone, Default, PartialEq)]
struct Rows {
    usage: Vec<Usage>,
    ages: Vec<AgeRow>,
    episodes: Vec<Episode>,
    regions: Vec<RegionRow>,
    actions: Vec<ActionRow>,
}

impl Rows {
    fn write(self, writer: &mut Writer) {
        writer.add(self.usage);
        writer.add(self.ages);
        writer.add(self.episodes);
        writer.add(self.regions);
        writer.add(self.actions);
    }

    fn read(dir: &Path) -> (Self, Vec<String>) {
        let record = Record::open(dir).unwrap();
        let rows = Self {
            usage: record.usage(),
            ages: record.ages(),
            episodes: record.rows(),
            regions: record.regions().flatten().collect(),
            actions: record.rows(),
        };
        (rows, record.warnings())
    }

    fn extend(&mut self, other: Self) {
        self.usage.extend(other.usage);
        self.ages.extend(other.ages);
        self.episodes.extend(other.episodes);
        self.regions.extend(other.regions);
        self.actions.extend(other.actions);
    }
}

fn integers() -> impl Strategy<Value = f64> {
    (0u64..1 << 50).prop_map(|bytes| bytes as f64)
}

fn usage() -> impl Strategy<Value = Usage> {
    prop::collection::vec(prop::option::of(integers()), FIELDS.len()).prop_map(|values| {
        let mut usage = Usage::default();
        FIELDS.iter().zip(values).for_each(|(field, value)| (field.set)(&mut usage, value));
        usage
    })
}

fn age() -> impl Strategy<Value = AgeRow> {
    (
        0.0f64..1e6,
        any::<bool>(),
        0.0f64..100.0,
        prop::option::of(1.0f64..200.0),
        integers(),
        integers(),
        prop::option::of(integers()),
    )
        .prop_map(|(t_s, anon, min_s, max_s, bytes, ci95, first_touched)| AgeRow {
            t_s,
            bin: AgeBin { anon, min_s, max_s, size: Estimate { bytes, ci95 }, first_touched },
        })
}

fn episode() -> impl Strategy<Value = Episode> {
    let page = (any::<u32>(), 0u64..1 << 52).prop_map(|(space, page)| PageKey { space, page });
    let weight = (0.0f64..1e9, prop::option::of(0.0f32..1.0));
    (page, 0usize..3, weight, any::<bool>(), 0.0f64..1e6, 0.0f64..1e6, prop::option::of(0.0f32..1e6)).prop_map(
        |(key, kind, (weight_bytes, share), touched, start_s, end_s, reuse)| Episode {
            key,
            kind: PageKind::ALL[kind],
            weight_bytes,
            share: share.map(f64::from),
            touched,
            start_s,
            end_s,
            reuse_s: reuse.map(f64::from),
        },
    )
}

fn region() -> impl Strategy<Value = RegionRow> {
    (0.0f64..1e6, any::<u32>(), any::<u64>(), any::<u64>(), 0.0f32..1.0, 0.0f32..1e6, "\\PC{0,12}").prop_map(
        |(t_s, pid, start, end, access_rate, age_s, mapping)| RegionRow {
            t_s,
            pid,
            start,
            end,
            access_rate,
            age_s,
            mapping,
        },
    )
}

fn action() -> impl Strategy<Value = ActionRow> {
    (0.0f64..1e6, "\\PC{0,9}", "\\PC{0,9}", prop::option::of(any::<i64>()), "\\PC{0,9}", "\\PC{0,9}").prop_map(
        |(t_s, action, target, bytes, result, reason)| ActionRow { t_s, action, target, bytes, result, reason },
    )
}

fn rows() -> impl Strategy<Value = Rows> {
    let several = 0..20;
    (
        prop::collection::vec(usage(), several.clone()),
        prop::collection::vec(age(), several.clone()),
        prop::collection::vec(episode(), several.clone()),
        prop::collection::vec(region(), several.clone()),
        prop::collection::vec(action(), several),
    )
        .prop_map(|(usage, ages, episodes, regions, actions)| Rows { usage, ages, episodes, regions, actions })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_written_is_read_and_finishing_changes_nothing(parts in prop::collection::vec(rows(), 0..4)) {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(dir.path(), &Meta::default()).unwrap();
        let mut all = Rows::default();
        for part in parts {
            all.extend(part.clone());
            part.write(&mut writer);
            writer.flush().unwrap();
        }
        prop_assert_eq!(&Rows::read(dir.path()), &(all.clone(), vec![]), "while recording");
        writer.close(&Meta::default()).unwrap();
        prop_assert_eq!(&Rows::read(dir.path()), &(all.clone(), vec![]), "after recording");
        prop_assert!(finish(dir.path()).unwrap().now);
        prop_assert_eq!(&Rows::read(dir.path()), &(all, vec![]), "after finishing");
        prop_assert!(!dir.path().join("parts").exists());
        prop_assert!(!finish(dir.path()).unwrap().now, "twice is once");
    }

    #[test]
    fn any_bytes_as_a_part_cost_that_part_only(bytes in prop::collection::vec(any::<u8>(), 0..600), table in 0usize..5) {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), RecordPlan { seconds: 12, episodes: 40, ..RecordPlan::default() });
        let (before, _) = Rows::read(dir.path());
        let name = ["usage", "ages", "cohort", "regions", "actions"][table];
        fs::write(dir.path().join(format!("parts/{name}-000900.parquet")), bytes).unwrap();
        let (after, warnings) = Rows::read(dir.path());
        prop_assert_eq!(&before, &after);
        prop_assert_eq!(warnings.len(), 1);
        prop_assert_eq!(finish(dir.path()).unwrap().warnings.len(), 1);
        prop_assert_eq!(&Rows::read(dir.path()).0, &before);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_part_never_panics(table in 0usize..4, cut in 0.0f64..1.0, flips in prop::collection::vec((0.0f64..1.0, any::<u8>()), 0..6)) {
        static GOOD: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
        let good = GOOD.get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            make(dir.path(), RecordPlan { seconds: 8, episodes: 400, ..RecordPlan::default() });
            ["usage", "ages", "cohort", "regions"]
                .map(|name| fs::read(dir.path().join(format!("parts/{name}-000002.parquet"))).unwrap())
                .to_vec()
        });
        let mut bytes = good[table].clone();
        if flips.is_empty() {
            bytes.truncate((cut * bytes.len() as f64) as usize);
        }
        for (at, value) in flips {
            let at = (at * bytes.len() as f64) as usize;
            bytes[at] = value;
        }
        let dir = tempfile::tempdir().unwrap();
        drop(Writer::create(dir.path(), &Meta::default()).unwrap());
        let name = ["usage", "ages", "cohort", "regions"][table];
        fs::write(dir.path().join(format!("parts/{name}-000001.parquet")), bytes).unwrap();
        let _ = Rows::read(dir.path());
    }
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.metadata().unwrap().is_dir() {
            copy(&entry.path(), &target)
        } else {
            let _bytes = fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn finishing_may_be_killed_anywhere() {
    let finished = tempfile::tempdir().unwrap();
    make(finished.path(), RecordPlan { seconds: 30, episodes: 100, ..RecordPlan::default() });
    let unfinished = tempfile::tempdir().unwrap();
    copy(finished.path(), unfinished.path());
    let (rows, _) = Rows::read(finished.path());
    let summary = finish(finished.path()).unwrap().summary;
    let check = |dir: &Path, state: &str| {
        assert_eq!(Rows::read(dir).0, rows, "read after {state}");
        let done = finish(dir).unwrap();
        assert_eq!((done.summary, done.warnings), (summary.clone(), vec![]), "finish after {state}");
        assert_eq!(Rows::read(dir).0, rows, "finished after {state}");
        let mut left: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        let files = [
            "actions.parquet",
            "ages.parquet",
            "cgroups.parquet",
            "cohort.parquet",
            "meta.json",
            "nodes.parquet",
            "regions.parquet",
            "summary.json",
            "usage.parquet",
        ];
        assert_eq!(left, files, "{state}");
    };
    let written = [
        "usage.parquet",
        "regions.parquet",
        "cohort.parquet",
        "ages.parquet",
        "cgroups.parquet",
        "nodes.parquet",
        "actions.parquet",
        "summary.json",
    ];
    for count in 0..=written.len() {
        let dir = tempfile::tempdir().unwrap();
        copy(unfinished.path(), dir.path());
        for name in &written[..count] {
            fs::copy(finished.path().join(name), dir.path().join(name)).unwrap();
        }
        if let Some(next) = written.get(count) {
            fs::write(dir.path().join(format!(".{next}.tmp")), b"half a file").unwrap();
        }
        check(dir.path(), &format!("{count} files"));
    }
    for gone in [0, 3, 12] {
        let dir = tempfile::tempdir().unwrap();
        copy(finished.path(), dir.path());
        copy(&unfinished.path().join("parts"), &dir.path().join("parts.done"));
        for entry in fs::read_dir(dir.path().join("parts.done")).unwrap().take(gone) {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        check(dir.path(), &format!("parts.done less {gone}"));
    }
}

#[test]
fn a_live_record_is_read_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(dir.path(), &Meta::default()).unwrap();
    writer.add([Usage { t_s: Some(1.0), ..Usage::default() }]);
    writer.flush().unwrap();
    assert!(matches!(finish(dir.path()), Err(StoreError::Live(_))));
    let record = Record::open(dir.path()).unwrap();
    assert!(record.is_live());
    assert_eq!(record.usage().len(), 1);
    drop(writer);
    assert!(!Record::open(dir.path()).unwrap().is_live(), "its recorder died");
    assert!(finish(dir.path()).unwrap().now);
}

#[test]
fn readers_do_not_keep_a_record_from_being_finished() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), RecordPlan { seconds: 6, episodes: 0, ..RecordPlan::default() });
    let record = Record::open(dir.path()).unwrap();
    let path = dir.path().to_path_buf();
    let finishing = std::thread::spawn(move || finish(&path).unwrap());
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(record.usage().len(), 7, "nothing changes under a reader");
    drop(record);
    assert!(finishing.join().unwrap().now);
}

#[test]
fn many_may_finish_at_once() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), RecordPlan { seconds: 20, episodes: 100, ..RecordPlan::default() });
    let (rows, _) = Rows::read(dir.path());
    let finishing: Vec<_> = (0..6)
        .map(|_| {
            let path = dir.path().to_path_buf();
            std::thread::spawn(move || finish(&path))
        })
        .collect();
    let done: Vec<_> = finishing.into_iter().map(|thread| thread.join().unwrap()).collect();
    // A second one may find the lock taken but not yet filled in: it gets `Live`, and nothing is lost.
    assert!(done.iter().all(|done| matches!(done, Ok(_) | Err(StoreError::Live(_)))), "{done:?}");
    assert_eq!(done.iter().flatten().filter(|done| done.now).count(), 1);
    assert_eq!(Rows::read(dir.path()).0, rows);
}

#[test]
fn what_links_in_a_record_lead_to_is_neither_written_nor_read() {
    let dir = tempfile::tempdir().unwrap();
    let (record, precious) = (dir.path().join("record"), dir.path().join("precious"));
    drop(Writer::create(&record, &Meta::default()).unwrap());
    fs::write(&precious, "mine").unwrap();
    let lock = record.join("recording.lock");
    fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(&precious, &lock).unwrap();
    assert!(matches!(finish(&record), Err(StoreError::NotWritable { .. })));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    fs::remove_file(&lock).unwrap();
    // Rows of another record, in a folder that only its owner may read.
    let other = dir.path().join("other");
    drop(Writer::create(&other, &Meta::default()).unwrap());
    fs::write(other.join("parts/usage-1.parquet"), "secret").unwrap();
    fs::remove_dir(record.join("parts")).unwrap();
    std::os::unix::fs::symlink(other.join("parts"), record.join("parts")).unwrap();
    let finished = finish(&record).unwrap();
    assert!(finished.now && finished.warnings.is_empty(), "{finished:?}");
    assert!(other.join("parts/usage-1.parquet").exists());
}

#[test]
fn refusals_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    let error = Writer::create(dir.path(), &Meta::default()).err().unwrap();
    assert!(matches!(error, StoreError::NotEmpty(_)));
    assert!(error.to_string().contains("--out"), "{error}");
    let below_a_file = dir.path().join("notes.txt/record");
    let error = Writer::create(&below_a_file, &Meta::default()).err().unwrap();
    assert!(matches!(error, StoreError::NotWritable { .. }), "{error}");
    for open in [Record::open(dir.path()).err().unwrap(), finish(dir.path()).err().unwrap()] {
        assert!(matches!(open, StoreError::NotARecord { .. }), "{open}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was left in a folder that is no record");
    let newer = tempfile::tempdir().unwrap();
    drop(Writer::create(newer.path(), &Meta { schema: 99, ..Meta::default() }).unwrap());
    assert!(Record::open(newer.path()).err().unwrap().to_string().contains("version 99"));
}

#[test]
fn rows_that_could_not_be_written_go_out_with_the_next_flush() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(dir.path(), &Meta::default()).unwrap();
    fs::remove_dir(dir.path().join("parts")).unwrap();
    writer.add([Usage { t_s: Some(1.0), ..Usage::default() }]);
    assert!(writer.flush().is_err());
    writer.add((0..61_000).map(|t| ActionRow { t_s: f64::from(t), ..ActionRow::default() }));
    assert!(writer.flush().is_err());
    assert_eq!(writer.dropped(), 1000, "bounded");
    fs::create_dir(dir.path().join("parts")).unwrap();
    writer.add([Usage { t_s: Some(2.0), ..Usage::default() }]);
    writer.close(&Meta { end: Some(End::default()), ..Meta::default() }).unwrap();
    let (rows, warnings) = Rows::read(dir.path());
    assert_eq!(rows.usage.iter().map(|row| row.t_s).collect::<Vec<_>>(), [Some(1.0), Some(2.0)]);
    assert_eq!((rows.actions.len(), rows.actions[0].t_s), (60_000, 1000.0));
    assert!(warnings.is_empty());
}
