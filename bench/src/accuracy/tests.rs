//! A record written as lowtide writes it, and a log as the pattern program writes it: the clocks and processes of both
//! must be lined up.

use lowtide_model::cohort::{AgeBin, Estimate};
use lowtide_model::meta::{End, Meta, Monitor};
use lowtide_model::usage::Usage;
use lowtide_record::{AgeRow, RegionRow, Writer};

use super::*;

const MIB: u64 = 1 << 20;
const BASE: u64 = 64 * MIB;
const PID: u32 = 7;

/// 100 MiB of which the first 20 are hot, populated 1000.5 s after boot; lines until 1030.5 s.
fn truth() -> Truth {
    let (end, hot_end) = (BASE + 100 * MIB, BASE + 20 * MIB);
    let mut log = format!(
        r#"{{"header":true,"pid":{PID},"areas":[{{"start":{BASE},"end":{end},"backing":"anon"}}],"start_s":1000.5}}"#
    );
    for second in 1..=30_u32 {
        let (resident, used) = (100 * MIB, 20 * MIB);
        let cold = if second > 1 { 80 * MIB } else { 0 };
        let hot = if second == 1 { format!("[[{BASE},{hot_end}]]") } else { r#""same""#.to_owned() };
        log += &format!(
            "\n{{\"t_s\":{}.5,\"resident_bytes\":{resident},\"ws\":{{\"1\":{used},\"10\":{used}}},\"cold\":[{{\"age_s\":1,\"bytes\":{cold}}}],\"hot\":{hot}}}",
            1000 + second
        );
    }
    Truth::parse(&log).unwrap()
}

fn mib(count: u64) -> f64 {
    lowtide_model::units::float(count * MIB)
}

/// Estimates that are right but for 2 MiB too much, a map that is right but for one region, and another process.
fn write(dir: &Path) {
    let mut meta = Meta { started_monotonic_s: 1000.0, ..Meta::default() };
    meta.monitor = Monitor { backend: "damon-vaddr".into(), aggregation_s: 2.0, ..Monitor::default() };
    let mut writer = Writer::create(dir, &meta).unwrap();
    for tick in 1..=35_u32 {
        let t_s = f64::from(tick);
        // What comes after the program's last line is wrong, and nobody's fault.
        let used = if tick > 30 { 0.0 } else { mib(22) };
        writer.add([Usage {
            t_s: Some(t_s),
            ws_1s_bytes: Some(used),
            ws_1s_ci95_bytes: Some(mib(3)),
            ws_10s_bytes: Some(used),
            ws_10s_ci95_bytes: Some(mib(1)),
            ..Usage::default()
        }]);
        let bin = |min_s, max_s, bytes| AgeBin {
            anon: true,
            min_s,
            max_s,
            size: Estimate { bytes, ci95: 0.0 },
            first_touched: None,
        };
        writer.add([bin(0.0, Some(1.0), mib(22)), bin(1.0, None, mib(78))].map(|bin| AgeRow { t_s, bin }));
        let region = |pid, start, end, access_rate| RegionRow {
            t_s,
            pid,
            start: BASE + start * MIB,
            end: BASE + end * MIB,
            access_rate,
            ..RegionRow::default()
        };
        writer.add([region(PID, 0, 20, 1.0), region(PID, 20, 40, 0.05), region(PID, 40, 200, 0.0)]);
        writer.add([region(PID + 1, 0, 200, 1.0)]);
        writer.flush().unwrap();
    }
    let end = End { runtime_s: 30.0, monitor_cpu_s: 0.3, own_peak_rss_bytes: 5, ..End::default() };
    writer.close(&Meta { end: Some(end), ..meta }).unwrap();
}

#[test]
fn a_record_is_held_against_a_log_on_one_clock() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let measured = Measured { program: serde_json::json!({ "late_s": 0.25 }), record: dir.path().to_path_buf() };
    let figures = compare(&measured, &truth()).unwrap();
    let [short, long] = &figures.working_set[..] else { panic!("two windows") };
    // Ticks 4 to 30: from 3 s after populating (at 0.5 s) until the last line (at 30.5 s).
    assert_eq!((short.ticks, short.error_median_percent, short.bias_percent), (27, Some(10.0), Some(10.0)));
    assert_eq!((short.interval_holds_percent, short.settled_s), (Some(100.0), Some(1.5)));
    assert_eq!((long.ticks, long.interval_holds_percent, long.settled_s), (20, Some(0.0), Some(10.5)));
    assert_eq!((figures.ages.ticks, figures.ages.distance_median_percent), (27, Some(2.0)));
    let map = figures.map.unwrap();
    // Snapshots 11 to 30, of the process of the log alone.
    assert_eq!((map.snapshots, map.regions), (20, Some(3.0)));
    assert_eq!((map.any.found_percent, map.any.precise_percent), (Some(100.0), Some(50.0)));
    assert_eq!((map.tenth.precise_percent, map.tenth.working_set_error_percent), (Some(100.0), Some(0.0)));
    assert_eq!((figures.cost.cpu_percent, figures.late_s), (Some(1.0), Some(0.25)));
    assert!(figures.cost.record_bytes_per_minute > Some(1000.0));
}

#[test]
fn tables_hold_figures_reasons_and_dashes() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let measured = Measured { program: serde_json::json!({}), record: dir.path().to_path_buf() };
    let mut figures = compare(&measured, &truth()).unwrap();
    figures.map = None;
    let named = |pattern: &str, skipped, figures| Row { pattern: pattern.into(), skipped, figures };
    let text = print::text(&[named("fixed", None, Some(figures)), named("eighth", Some("needs memory".into()), None)]);
    assert!(text.contains("fixed    damon-vaddr     27  20.0 MiB  22.0 MiB     10.0 %"), "{text}");
    assert!(text.contains("skip - accuracy of eighth: needs memory\n"));
    assert!(!text.contains("Map\n"), "nobody has a map");
}
