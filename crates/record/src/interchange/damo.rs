//! damo's `damon.data`: a JSON list of records, one per target, as it is or as one zlib stream. Numbers may be text, with
//! commas and units; older files lack fields, and what is lacking has a default.

use std::io::{ErrorKind, Read, Write};

use lowtide_model::region::{Region, Snapshot};
use lowtide_model::units::float;
use serde::{Deserialize, Serialize, Serializer};

use super::counts::{Aggregation, Counted, Intervals, aggregations};
use super::number::Number;
use super::{Recording, RecordingError, Targets, backend_of, bounds, counted, samples_for};
use crate::RegionRow;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InRecord {
    kdamond_idx: Number,
    context_idx: Number,
    scheme_idx: Number,
    intervals: Option<InIntervals>,
    target_id: Number,
    snapshots: Vec<InSnapshot>,
}

impl InRecord {
    /// Its target. Several contexts have one of the same number each, and a scheme's regions are but some of a target's.
    fn target(&self) -> String {
        let target = self.target_id.u64().unwrap_or(0);
        let (kdamond, context) = (self.kdamond_idx.u64().unwrap_or(0), self.context_idx.u64().unwrap_or(0));
        match self.scheme_idx.u64() {
            None if (kdamond, context) == (0, 0) => target.to_string(),
            None => format!("{target} of kdamond {kdamond} context {context}"),
            Some(scheme) => format!("{target} of kdamond {kdamond} context {context} scheme {scheme}"),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InIntervals {
    sample_us: Number,
    aggr_us: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InSnapshot {
    start_time: Number,
    end_time: Number,
    regions: Vec<InRegion>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TextRegion {
    start: Number,
    end: Number,
    nr_accesses: Number,
    age: Number,
}

/// A region in a quarter of the bytes: there can be millions.
#[derive(Debug, Deserialize)]
#[serde(from = "TextRegion")]
struct InRegion {
    start: u64,
    end: u64,
    nr_accesses: f64,
    age: f64,
}

impl From<TextRegion> for InRegion {
    fn from(text: TextRegion) -> Self {
        let count = |number: Number| number.value.unwrap_or(0.0).max(0.0);
        // Without an address it is as empty as what damo writes where there was no region.
        let end = text.start.u64().and(text.end.u64()).unwrap_or(0);
        let start = text.start.u64().unwrap_or(0);
        Self { start, end, nr_accesses: count(text.nr_accesses), age: count(text.age) }
    }
}

fn broken(error: serde_json::Error) -> RecordingError {
    RecordingError::Broken(match (error.classify(), error.io_error_kind()) {
        (serde_json::error::Category::Eof, _) | (_, Some(ErrorKind::UnexpectedEof)) => {
            format!("the file ends in the middle (line {}): it was cut short", error.line())
        }
        (_, Some(ErrorKind::FileTooLarge)) => error.to_string(),
        (_, Some(_)) => format!("damaged: {error}"),
        _ => format!("not what damo writes: {error}"),
    })
}

/// Reads the JSON.
pub(super) fn read(from: impl Read) -> Result<Recording, RecordingError> {
    let records: Vec<InRecord> = serde_json::from_reader(bounds::json(from)).map_err(broken)?;
    let shots = || records.iter().flat_map(|record| &record.snapshots);
    // Nanoseconds since 1970 need more digits than a fraction has: the difference is taken between integers.
    let start_ns = shots().filter_map(|shot| shot.start_time.u64()).min();
    let start_ns = start_ns.ok_or_else(|| RecordingError::Broken("it holds no snapshot".to_owned()))?;
    let mut recording = Recording { source: "damo", ..Recording::default() };
    let intervals = records.iter().find_map(|record| record.intervals.as_ref());
    let given = |get: fn(&InIntervals) -> Number| {
        intervals.and_then(|i| get(i).value).filter(|us| *us > 0.0).map(|us| us / 1e6)
    };
    let highest = shots().flat_map(|shot| &shot.regions).map(|r| r.nr_accesses).fold(0.0, f64::max);
    let lengths: Vec<f64> =
        shots().filter_map(|shot| Some(seconds(shot.start_time.u64()?, shot.end_time.u64()?))).collect();
    let length = lowtide_model::stats::quantile(&lengths, 0.5).filter(|length| *length > 0.0).unwrap_or(0.1);
    recording.aggregation_s = given(|i| i.aggr_us).unwrap_or(length);
    recording.sampling_s = given(|i| i.sample_us).unwrap_or_else(|| {
        recording
            .notes
            .push("the file does not give the sampling interval: a twentieth of the aggregation is assumed".into());
        recording.aggregation_s / samples_for(highest)
    });
    let mut targets = Targets::default();
    for record in records {
        let pid = targets.number(record.target())?;
        for shot in record.snapshots {
            let at_ns = shot.end_time.u64().or(shot.start_time.u64()).unwrap_or(start_ns);
            let regions = shot.regions.into_iter().filter_map(|r| region(&r, &recording)).collect();
            recording.snapshots.push(Snapshot { t_s: seconds(start_ns, at_ns), pid, regions });
        }
    }
    recording.snapshots.sort_by(|a, b| a.t_s.total_cmp(&b.t_s).then(a.pid.cmp(&b.pid)));
    recording.notes.extend(targets.note("damo's target_id"));
    recording.backend = backend_of(&recording.snapshots);
    recording.usage = counted(&recording.snapshots);
    Ok(recording)
}

/// From one time in nanoseconds to another.
fn seconds(from: u64, to: u64) -> f64 {
    float(to.saturating_sub(from)) / 1e9
}

/// A region; damo writes an empty one where there was none.
fn region(from: &InRegion, recording: &Recording) -> Option<Region> {
    let samples = (recording.aggregation_s / recording.sampling_s).max(1.0);
    (from.start < from.end).then(|| Region {
        start: from.start,
        end: from.end,
        access_rate: (from.nr_accesses / samples).clamp(0.0, 1.0),
        age_s: from.age * recording.aggregation_s,
    })
}

#[derive(Serialize)]
struct OutRecord {
    kdamond_idx: u32,
    context_idx: u32,
    intervals: OutIntervals,
    scheme_idx: Option<u32>,
    target_id: u32,
    scheme_filters: [u8; 0],
    snapshots: Vec<OutSnapshot>,
}

#[derive(Serialize, Clone)]
struct OutIntervals {
    sample_us: String,
    aggr_us: String,
    ops_update_us: String,
}

#[derive(Serialize)]
struct OutSnapshot {
    #[serde(serialize_with = "as_text")]
    start_time: u64,
    #[serde(serialize_with = "as_text")]
    end_time: u64,
    regions: Vec<OutRegion>,
    #[serde(serialize_with = "as_text")]
    total_bytes: u64,
    damos_stats: Option<u8>,
    sample_interval_us: Option<u64>,
}

#[derive(Serialize)]
struct OutRegion {
    #[serde(serialize_with = "as_text")]
    start: u64,
    #[serde(serialize_with = "as_text")]
    end: u64,
    nr_accesses: OutAccesses,
    age: OutAge,
    sz_filter_passed: &'static str,
}

#[derive(Serialize)]
struct OutAccesses {
    samples: u64,
    percent: Option<f64>,
}

#[derive(Serialize)]
struct OutAge {
    usec: Option<u64>,
    #[serde(serialize_with = "as_text")]
    aggr_intervals: u64,
}

fn as_text<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

fn out_snapshot(from: &Aggregation) -> OutSnapshot {
    let region = |r: &Counted| OutRegion {
        start: r.start,
        end: r.end,
        nr_accesses: OutAccesses { samples: r.nr_accesses, percent: None },
        age: OutAge { usec: None, aggr_intervals: r.age },
        sz_filter_passed: "0 B",
    };
    OutSnapshot {
        start_time: from.start_ns,
        end_time: from.end_ns,
        regions: from.regions.iter().map(region).collect(),
        total_bytes: from.regions.iter().fold(0, |sum, r| sum.saturating_add(r.end.saturating_sub(r.start))),
        damos_stats: None,
        sample_interval_us: None,
    }
}

/// Writes a record's map as damo's compressed JSON. Returns how many snapshots there were.
///
/// # Errors
/// If `out` fails.
pub fn write(
    rows: impl Iterator<Item = RegionRow>,
    intervals: Intervals,
    out: impl Write,
) -> Result<usize, RecordingError> {
    let given = OutIntervals {
        sample_us: intervals.sampling_us.to_string(),
        aggr_us: intervals.aggregation_us.to_string(),
        ops_update_us: "1000000".to_owned(),
    };
    let mut records: Vec<OutRecord> = Vec::new();
    let mut count = 0;
    for snapshot in aggregations(rows, intervals) {
        let at = records.iter().position(|record| record.target_id == snapshot.pid).unwrap_or_else(|| {
            records.push(OutRecord {
                kdamond_idx: 0,
                context_idx: 0,
                intervals: given.clone(),
                scheme_idx: None,
                target_id: snapshot.pid,
                scheme_filters: [],
                snapshots: Vec::new(),
            });
            records.len() - 1
        });
        records[at].snapshots.push(out_snapshot(&snapshot));
        count += 1;
    }
    let mut packed = flate2::write::ZlibEncoder::new(out, flate2::Compression::default());
    serde_json::to_writer(&mut packed, &records).map_err(std::io::Error::from)?;
    packed.finish()?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NEW: &str = r#"[{"kdamond_idx":0,"context_idx":0,"intervals":{"sample_us":"5 ms","aggr_us":"100 ms","ops_update_us":"1 s"},
        "scheme_idx":null,"target_id":18446623435582458880,"scheme_filters":[],"snapshots":[{"start_time":"1,000,000,000","end_time":"1,100,000,000",
        "regions":[{"start":"94,827,419,009,024","end":"94,827,419,013,120","nr_accesses":{"samples":5,"percent":null},"age":{"usec":null,"aggr_intervals":"3"},"probe_hits":[],"sz_filter_passed":"143.027 MiB"}],
        "total_bytes":"4096","damos_stats":null,"sample_interval_us":null}]}]"#;
    const OLD: &str = r#"[{"target_id":7,"snapshots":[{"start_time":0,"end_time":200000000,"regions":[{"start":4096,"end":8192,"nr_accesses":40,"age":2},{"start":0,"end":0,"nr_accesses":-1,"age":-1}]}]}]"#;

    #[test]
    fn both_generations_of_the_format() {
        let new = read(NEW.as_bytes()).unwrap();
        assert_eq!((new.sampling_s, new.aggregation_s, new.backend), (0.005, 0.1, "damon-vaddr"));
        let region = new.snapshots[0].regions[0];
        assert_eq!((region.start, region.access_rate), (94_827_419_009_024, 0.25));
        assert!((region.age_s - 0.3).abs() < 1e-12 && (new.snapshots[0].t_s - 0.1).abs() < 1e-12);
        assert!(new.notes[0].contains("1 is 18446623435582458880"), "{:?}", new.notes);
        let old = read(OLD.as_bytes()).unwrap();
        assert_eq!((old.aggregation_s, old.snapshots[0].regions.len(), old.snapshots[0].pid), (0.2, 1, 1));
        assert_eq!(old.snapshots[0].regions[0].access_rate, 1.0, "as many samples as were counted");
        assert!(old.notes[0].contains("does not give"));
    }

    #[test]
    fn targets_of_several_contexts_stay_apart() {
        let record = NEW.trim_start_matches('[').trim_end_matches(']');
        let second = record.replace(r#""context_idx":0"#, r#""context_idx":1"#);
        let both = read(format!("[{record},{second},{record}]").as_bytes()).unwrap();
        let pids: Vec<u32> = both.snapshots.iter().map(|snapshot| snapshot.pid).collect();
        assert_eq!(pids, [1, 1, 2]);
        assert!(both.notes[0].ends_with("2 is 18446623435582458880 of kdamond 0 context 1"), "{:?}", both.notes);
    }

    #[test]
    fn damage_is_distinguished() {
        let complain = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
        assert!(complain(&NEW[..200]).contains("cut short"));
        assert!(complain("[3]").contains("not what damo writes"));
        assert!(complain("[]").contains("no snapshot"));
    }

    #[test]
    fn unknown_fields_and_figures_of_nothing_are_survived() {
        let odd = NEW
            .replace(r#""percent":null"#, r#""percent":null,"new":[{"er":[true]}]"#)
            .replace("5 ms", "0")
            .replace(r#""3""#, r#""1e999 s""#);
        let odd = read(odd.replace(r#""target_id""#, r#""other":{"x":[[1,"2"]]},"target_id""#).as_bytes()).unwrap();
        assert!(odd.notes[0].contains("does not give the sampling interval"), "{:?}", odd.notes);
        let region = odd.snapshots[0].regions[0];
        assert_eq!((region.end, region.access_rate, region.age_s), (94_827_419_013_120, 0.25, 0.0));
    }

    #[test]
    fn a_bomb_says_what_there_is_too_much_of() {
        let text = format!("[{{\"snapshots\":[{}", "{},".repeat((1 << 20) + 1));
        let error = read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("more than 1048576 snapshots"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "\\PC*", cut in 0usize..600) {
            let _ = (read(&bytes[..]), Number::text(&text), read(&NEW.as_bytes()[..cut.min(NEW.len())]));
        }

        /// What is written is read back: addresses, counts and ages exactly.
        #[test]
        fn written_is_read(list in prop::collection::vec((1u64..1 << 35, 1u64..1 << 20, 0u32..=20, 0u32..500), 1..20)) {
            let mut at = 0;
            let rows: Vec<RegionRow> = list.iter().map(|(gap, pages, count, age)| {
                let start = at + gap * 4096;
                at = start + pages * 4096;
                let region = Region { start, end: at, access_rate: f64::from(*count) / 20.0, age_s: f64::from(*age) * 0.1 };
                RegionRow::new(0.5, 3, &region, "")
            }).collect();
            let mut bytes = Vec::new();
            write(rows.clone().into_iter(), Intervals::new(0.005, 0.1), &mut bytes).unwrap();
            let back = read(flate2::bufread::ZlibDecoder::new(&bytes[..])).unwrap();
            prop_assert_eq!(back.snapshots.len(), 1);
            for (row, region) in rows.iter().zip(&back.snapshots[0].regions) {
                prop_assert_eq!((row.start, row.end), (region.start, region.end));
                prop_assert!((f64::from(row.access_rate) - region.access_rate).abs() < 1e-6);
                prop_assert!((f64::from(row.age_s) - region.age_s).abs() < 1e-3);
            }
        }
    }
}
