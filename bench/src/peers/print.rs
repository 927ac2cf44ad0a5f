//! The table of `peers`.

use super::Row;
use crate::grid::{counted_size, figure, percent, signed_percent, size, table};

const NOTES: &str = "\
peak: highest resident memory; working set: bytes used within a second (damo: within an aggregation), median over the
watched time. Errors are against the pattern's own log, which leaves out its code and tables (about 2.5 MiB). recording:
the recorder's complete tree (wait4) and its kernel threads; lowtide: by its own account; GNU time: by /proc.
answering: getting the answer from what was recorded; for lowtide this is the report page. RSS: of the largest process.
";

pub fn text(rows: &[Row]) -> String {
    let head = "pattern | recorder | peak | error | working set | error | recording: CPU | share of one | RSS | \
        answering: CPU | RSS";
    let lines: Vec<Vec<String>> = rows.iter().filter_map(line).collect();
    let mut out = table("Other tools on the same programs", head, &lines);
    for row in rows {
        if let Some(why) = &row.skipped {
            out += &format!("skip - {} on {}: {why}\n", row.recorder, row.pattern);
        }
    }
    out + NOTES
}

fn line(row: &Row) -> Option<Vec<String>> {
    let answer = row.answer.as_ref()?;
    let error = |found: Option<f64>, real: Option<f64>| {
        signed_percent(
            found.zip(real).filter(|(_, real)| *real > 0.0).map(|(found, real)| 100.0 * (found - real) / real),
        )
    };
    Some(vec![
        row.pattern.clone(),
        row.recorder.to_owned(),
        size(answer.peak_bytes),
        error(answer.peak_bytes, row.truth_peak_bytes),
        size(answer.working_set_bytes),
        error(answer.working_set_bytes, row.truth_working_set_bytes),
        figure(answer.recording.cpu_s, 2, " s"),
        percent(answer.recording.cpu_s.map(|cpu_s| 100.0 * cpu_s / answer.seconds)),
        counted_size(answer.recording.peak_rss_bytes),
        figure(answer.answering.cpu_s, 2, " s"),
        counted_size(answer.answering.peak_rss_bytes),
    ])
}
