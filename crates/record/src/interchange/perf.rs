//! Text of `perf script`, `trace-cmd report` or `trace_pipe` with DAMON's `damon_aggregated` events, one region a line.

use std::io::{BufRead, BufReader, Read};

use lowtide_model::region::{Region, Snapshot};
use lowtide_model::stats::quantile;

use super::{Recording, RecordingError, Targets, backend_of, bounds, counted, samples_for};

/// One event.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    t_s: f64,
    target: u64,
    nr_regions: usize,
    start: u64,
    end: u64,
    nr_accesses: f64,
    /// Aggregations; kernels before 5.16 do not report it.
    age: f64,
}

/// `COMM PID [CPU] (FLAGS) SECONDS: (damon:)damon_aggregated: target_id=7 nr_regions=2 4096-8192: 3 1`
fn parse(line: &str) -> Option<Line> {
    let (head, fields) = line.split_once("damon_aggregated:")?;
    let time = head.split_whitespace().rev().find_map(|word| word.strip_suffix(':')?.parse::<f64>().ok())?;
    let mut words = fields.split_whitespace();
    let target = words.next()?.strip_prefix("target_id=")?.parse().ok()?;
    let nr_regions = words.next()?.strip_prefix("nr_regions=")?.parse().ok()?;
    let (start, end) = words.next()?.strip_suffix(':')?.split_once('-')?;
    let (start, end) = (start.parse().ok()?, end.parse().ok()?);
    let nr_accesses: u32 = words.next()?.parse().ok()?;
    let age: u32 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let (nr_accesses, age) = (f64::from(nr_accesses), f64::from(age));
    (time.is_finite() && start < end).then_some(Line { t_s: time, target, nr_regions, start, end, nr_accesses, age })
}

/// Reads the text.
pub(super) fn read(from: impl Read) -> Result<Recording, RecordingError> {
    let mut lines: Vec<Line> = Vec::new();
    let (mut other, mut bytes) = (0u64, Vec::new());
    let mut from = BufReader::new(bounds::text(from));
    loop {
        bytes.clear();
        // A line of a recording is short; what is longer is none, and is read in pieces.
        if from.by_ref().take(4096).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&bytes);
        // A last line without an end may lack digits.
        match parse(&line).filter(|_| bytes.ends_with(b"\n")) {
            Some(line) => lines.push(line),
            None if line.contains("damon_aggregated") => other += 1,
            None => {}
        }
        bounds::within(lines.len(), bounds::REGIONS, "regions")?;
    }
    if lines.is_empty() {
        return Err(RecordingError::Unknown);
    }
    let groups: Vec<&[Line]> = snapshots(&lines);
    bounds::within(groups.len(), bounds::SNAPSHOTS, "snapshots")?;
    let starts: Vec<f64> = groups.iter().filter(|g| g[0].target == groups[0][0].target).map(|g| g[0].t_s).collect();
    let apart: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).filter(|apart| *apart > 0.0).collect();
    let aggregation_s = quantile(&apart, 0.5).unwrap_or(0.1);
    // The text has when aggregations ended, not when the first began.
    let start_s = lines.iter().map(|line| line.t_s).fold(f64::INFINITY, f64::min) - aggregation_s;
    let samples = samples_for(lines.iter().map(|line| line.nr_accesses).fold(0.0, f64::max));
    let mut recording = Recording {
        source: "perf script",
        aggregation_s,
        sampling_s: aggregation_s / samples,
        notes: vec![format!("the text gives no intervals: {samples:.0} samples in an aggregation are assumed")],
        ..Recording::default()
    };
    let lost = groups.iter().filter(|group| group.len() < group[0].nr_regions).count();
    if lost > 0 || other > 0 {
        let total = groups.len();
        recording.notes.push(format!("{lost} of {total} snapshots lack regions, and {other} lines could not be read"));
    }
    let mut targets = Targets::default();
    for group in groups {
        let region = |line: &Line| Region {
            start: line.start,
            end: line.end,
            access_rate: (line.nr_accesses / samples).min(1.0),
            age_s: line.age * aggregation_s,
        };
        recording.snapshots.push(Snapshot {
            t_s: group[0].t_s - start_s,
            pid: targets.number(group[0].target.to_string())?,
            regions: group.iter().map(region).collect(),
        });
    }
    recording.notes.extend(targets.note("the kernel's target_id"));
    recording.backend = backend_of(&recording.snapshots);
    recording.usage = counted(&recording.snapshots);
    Ok(recording)
}

/// Runs of lines that are one snapshot: of one target, ascending, as many as the first says at most.
fn snapshots(lines: &[Line]) -> Vec<&[Line]> {
    let mut groups = Vec::new();
    let mut rest = lines;
    while let Some(first) = rest.first() {
        let goes_on = |pair: &&[Line]| pair[1].target == first.target && pair[1].start >= pair[0].end;
        let count = 1 + rest.windows(2).take_while(goes_on).count();
        let (group, after) = rest.split_at(count.min(first.nr_regions.max(1)));
        groups.push(group);
        rest = after;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERF: &str = "kdamond.0  4452 [000] 82877.315633: damon:damon_aggregated: target_id=18446623435582458880 nr_regions=2 4096-8192: 0 3";
    const PIPE: &str =
        "kdamond.0-13283   [001] .....  2415.901947: damon_aggregated: target_id=0 nr_regions=2 8192-12288: 20";

    #[test]
    fn both_ways_of_writing_a_line() {
        let line = parse(PERF).unwrap();
        assert_eq!((line.t_s, line.target, line.end, line.age), (82877.315633, 18_446_623_435_582_458_880, 8192, 3.0));
        let line = parse(PIPE).unwrap();
        assert_eq!((line.nr_accesses, line.age), (20.0, 0.0));
        assert_eq!(parse("kdamond.0 1 [0] 2.0: damon:damos_before_apply: ctx_idx=0"), None);
    }

    #[test]
    fn snapshots_and_losses() {
        let line = |t: f64, start: u64, n: u32| {
            format!("k 1 [0] {t}: damon:damon_aggregated: target_id=5 nr_regions=2 {start}-{}: {n} 1\n", start + 4096)
        };
        let text =
            [line(1.0, 0, 4), line(1.0, 4096, 20), line(1.1, 0, 0), line(1.2, 0, 1), line(1.2, 8192, 1)].concat();
        let recording = read(format!("# header\n{text}damon_aggregated: cut").as_bytes()).unwrap();
        assert_eq!(recording.snapshots.len(), 3);
        assert!((recording.aggregation_s - 0.1).abs() < 1e-9);
        assert_eq!(recording.snapshots[0].regions[1].access_rate, 1.0);
        assert!(recording.notes[1].starts_with("1 of 3 snapshots lack regions, and 1 lines"), "{:?}", recording.notes);
        assert!(matches!(read("nothing".as_bytes()), Err(RecordingError::Unknown)));
    }

    #[test]
    fn a_half_written_line_and_an_absurd_count_are_noted() {
        let line = |start: u64| {
            format!(
                "k 1 [0] 1.0: damon:damon_aggregated: target_id=5 nr_regions=4294967295 {start}-{}: 1 1\n",
                start + 1
            )
        };
        let text = [line(0), line(1), line(2)].concat();
        let recording = read(&text.as_bytes()[..text.len() - 1]).unwrap();
        assert_eq!(recording.snapshots[0].regions.len(), 2, "the last may have lost digits");
        assert!(recording.notes[1].starts_with("1 of 1 snapshots lack regions, and 1 lines"), "{:?}", recording.notes);
        let targets: String = (0..=bounds::TARGETS).map(|id| line(0).replace("id=5", &format!("id={id}"))).collect();
        assert!(read(targets.as_bytes()).unwrap_err().to_string().contains("4096 targets"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 0usize..130, junk in "\\PC{0,3}") {
            let cut = cut.min(PERF.len());
            let _ = (read(&bytes[..]), parse(&format!("{}{junk}{}", &PERF[..cut], &PERF[cut..])));
        }
    }
}
