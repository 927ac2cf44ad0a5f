//! The CSV of WMO's monitoring: a row a second with a cgroup's `memory.stat` and its idle bytes by age and node.

use std::io::Read;

use lowtide_model::WINDOWS_S;
use lowtide_model::cohort::{AgeBin, Estimate, used_within};
use lowtide_model::units::float;
use lowtide_model::usage::Usage;

use super::{Recording, RecordingError, bounds};
use crate::limit;

/// Whether a file that begins so is one.
pub(super) fn knows(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    line.split(',').any(|name| name == "timestamp") && line.split(',').any(|name| name == "memory.stat.anon")
}

/// What one column is.
enum Column {
    /// Milliseconds since 1970.
    Time,
    /// A figure of usage.
    Figure(fn(&mut Usage, f64)),
    /// Bytes idle for less than so many seconds (and longer than the bin before): upper edge, infinite for the last.
    Idle { anon: bool, upto_s: f64 },
    /// Another.
    Other,
}

fn column(name: &str) -> Column {
    let figure: fn(&mut Usage, f64) = match name {
        "timestamp" => return Column::Time,
        "memory.stat.anon" => |usage, value| usage.anon_bytes = Some(value),
        "memory.stat.file" => |usage, value| usage.file_bytes = Some(value),
        "memory.stat.shmem" => |usage, value| usage.shmem_bytes = Some(value),
        "memory.stat.kernel" => |usage, value| usage.kernel_bytes = Some(value),
        "memory.stat.slab" => |usage, value| usage.slab_bytes = Some(value),
        "memory.stat.pagetables" => |usage, value| usage.page_table_bytes = Some(value),
        "memory.stat.kernel_stack" => |usage, value| usage.stack_bytes = Some(value),
        "memory.stat.sock" => |usage, value| usage.socket_bytes = Some(value),
        "memory.stat.file_mapped" => |usage, value| usage.mapped_file_bytes = Some(value),
        "memory.stat.pgfault" => |usage, value| usage.minor_faults = Some(value),
        "memory.stat.pgmajfault" => |usage, value| usage.major_faults = Some(value),
        "memory.stat.workingset_refault_anon" => |usage, value| usage.refault_anon = Some(value),
        "memory.stat.workingset_refault_file" => |usage, value| usage.refault_file = Some(value),
        "memory.swap.current" => |usage, value| usage.swap_bytes = Some(value),
        "memory.current" => |usage, value| usage.cgroup_bytes = Some(value),
        _ => return idle(name).unwrap_or(Column::Other),
    };
    Column::Figure(figure)
}

/// `cold.node.0.1000ms.anon`
fn idle(name: &str) -> Option<Column> {
    let mut words = name.strip_prefix("cold.node.")?.split('.').skip(1);
    let ms: u64 = words.next()?.strip_suffix("ms")?.parse().ok()?;
    let anon = match words.next()? {
        "anon" => true,
        "file" => false,
        _ => return None,
    };
    let upto_s = if ms == u64::MAX { f64::INFINITY } else { float(ms) / 1e3 };
    Some(Column::Idle { anon, upto_s })
}

/// Reads the CSV.
pub(super) fn read(from: impl Read) -> Result<Recording, RecordingError> {
    let broken = |error: csv::Error| RecordingError::Broken(format!("not a CSV of WMO: {error}"));
    // Nothing in it is quoted; a quoted field would reach beyond the end of its line.
    let mut rows = csv::ReaderBuilder::new().quoting(false).from_reader(bounds::lines(from));
    let columns: Vec<Column> = rows.headers().map_err(broken)?.iter().map(column).collect();
    let mut recording = Recording { source: "WMO", backend: "mglru", ..Recording::default() };
    let (mut first, mut zero, mut count): (Option<f64>, Usage, usize) = (None, Usage::default(), 0);
    for row in rows.records() {
        let row = match row {
            Ok(row) => row,
            // A recorder that was killed leaves half a row.
            Err(error) if matches!(error.kind(), csv::ErrorKind::UnequalLengths { .. }) && first.is_some() => {
                recording.notes.push(format!("the file ends in the middle of a row: {error}"));
                break;
            }
            Err(error) => return Err(broken(error)),
        };
        let (mut usage, mut time, mut bins) = (Usage::default(), None, Vec::new());
        for (column, text) in columns.iter().zip(&row) {
            let Some(value) = text.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0) else {
                continue;
            };
            match column {
                Column::Time => time = Some(value / 1e3),
                Column::Figure(set) => set(&mut usage, value),
                Column::Idle { anon, upto_s } => bins.push((*anon, *upto_s, value)),
                Column::Other => {}
            }
        }
        let Some(time) = time else { continue };
        let start = *first.get_or_insert_with(|| {
            zero = usage.clone();
            time
        });
        derive(&mut usage, &zero);
        usage.t_s = Some(time - start);
        let ages = histogram(bins);
        let used = |window: u32| used_within(ages.iter(), f64::from(window));
        usage.set_working_sets(&WINDOWS_S.map(|window| used(window).map(|bytes| Estimate { bytes, ci95: 0.0 })));
        count += ages.len();
        recording.ages.push((time - start, ages));
        recording.usage.push(usage);
        bounds::within(recording.usage.len(), bounds::SNAPSHOTS, "rows")?;
        // It is held twice while it is written as a record.
        limit::exceeded::<Usage>(2 * recording.usage.len()).map_or(Ok(()), |why| Err(RecordingError::Broken(why)))?;
        bounds::within(count, bounds::REGIONS, "bins")?;
    }
    recording.started_unix_s = first.ok_or_else(|| RecordingError::Broken("a CSV of WMO without a row".to_owned()))?;
    recording.aggregation_s = 1.0;
    recording.notes.push("resident memory is taken to be anonymous and mapped file memory of the cgroup".to_owned());
    Ok(recording)
}

/// What follows from the columns; counters count from the first row.
fn derive(usage: &mut Usage, zero: &Usage) {
    let since = |now: Option<f64>, zero: Option<f64>| Some((now? - zero.unwrap_or(0.0)).max(0.0));
    usage.minor_faults = since(usage.minor_faults, zero.minor_faults);
    usage.major_faults = since(usage.major_faults, zero.major_faults);
    usage.refault_anon = since(usage.refault_anon, zero.refault_anon);
    usage.refault_file = since(usage.refault_file, zero.refault_file);
    usage.minor_faults = usage.minor_faults.zip(usage.major_faults).map(|(all, major)| (all - major).max(0.0));
    usage.rss_bytes = usage.anon_bytes.zip(usage.mapped_file_bytes).map(|(anon, file)| anon + file);
    usage.demand_bytes = usage.rss_bytes.map(|rss| rss + usage.swap_bytes.unwrap_or(0.0));
}

/// Bins of both sides, all nodes together.
fn histogram(mut bins: Vec<(bool, f64, f64)>) -> Vec<AgeBin> {
    bins.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.total_cmp(&b.1)));
    let mut out: Vec<AgeBin> = Vec::new();
    for (anon, upto_s, bytes) in bins {
        let max_s = upto_s.is_finite().then_some(upto_s);
        match out.last_mut() {
            Some(last) if last.anon == anon && last.max_s == max_s => last.size.bytes += bytes,
            last => {
                let min_s = last.filter(|last| last.anon == anon).and_then(|last| last.max_s).unwrap_or(0.0);
                out.push(AgeBin { anon, min_s, max_s, size: Estimate { bytes, ci95: 0.0 }, first_touched: None });
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "timestamp,memory.stat.anon,memory.stat.file_mapped,memory.stat.pgfault,memory.stat.pgmajfault,memory.swap.current,cold.node.0.1000ms.anon,cold.node.0.18446744073709551615ms.anon,cold.node.1.1000ms.anon,cold.node.0.1000ms.file,cold.node.0.18446744073709551615ms.file\n\
5000,100,10,50,5,7,30,70,4,1,2\n6000,200,10,80,6,0,60,140,0,1,2\n7000,3";

    #[test]
    fn figures_and_idle_bytes() {
        assert!(knows(TEXT.as_bytes()) && !knows(b"[]") && !knows(b"timestamp,x\n"));
        let recording = read(TEXT.as_bytes()).unwrap();
        assert_eq!((recording.usage.len(), recording.started_unix_s), (2, 5.0));
        let row = &recording.usage[1];
        assert_eq!(
            (row.t_s, row.rss_bytes, row.minor_faults, row.major_faults),
            (Some(1.0), Some(210.0), Some(29.0), Some(1.0))
        );
        assert_eq!(recording.usage[0].demand_bytes, Some(117.0));
        let sets = recording.usage[0].working_set(1).unwrap();
        assert_eq!(sets.bytes, 35.0, "both nodes and both sides");
        let bins: Vec<_> = recording.ages[0].1.iter().map(|b| (b.anon, b.min_s, b.max_s, b.size.bytes)).collect();
        assert_eq!(
            bins,
            [
                (true, 0.0, Some(1.0), 34.0),
                (true, 1.0, None, 70.0),
                (false, 0.0, Some(1.0), 1.0),
                (false, 1.0, None, 2.0)
            ]
        );
        assert!(recording.notes[0].contains("middle of a row"), "{:?}", recording.notes);
    }

    #[test]
    fn endless_lines_and_rows_are_refused() {
        let complaint = |text: String| read(text.as_bytes()).unwrap_err().to_string();
        let head = "timestamp,memory.stat.anon";
        assert!(complaint(format!("{head}{}", ",".repeat(2 << 20))).contains("bytes in a line"));
        let quoted = read(format!("{head}\n\"1,2\n3,4\n").as_bytes()).unwrap();
        assert_eq!(quoted.usage.len(), 1, "a quote does not swallow what follows");
        assert!(complaint(format!("{head}\n{}", "1,\n".repeat((1 << 20) + 1))).contains("take more than 1G of memory"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..400, junk in "\\PC{0,3}") {
            let cut = cut.min(TEXT.len());
            let _ = (read(&bytes[..]), read(format!("{}{junk}{}", &TEXT[..cut], &TEXT[cut..]).as_bytes()), knows(&bytes));
        }
    }
}
