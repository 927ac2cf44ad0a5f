//! Which cgroups use their memory: averages over the record, each with what is below it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use lowtide_model::WINDOWS_S;
use serde::Serialize;

use super::data::RecordData;
use super::text::{Grid, bytes, printable};
use super::{Missing, Report, TABLES, View, pretty};
use lowtide_record::CgroupRow;

pub(super) const VIEW: View = View {
    name: "cgroups",
    help: "Which cgroups use their memory",
    title: "Cgroups",
    meaning: "Memory of each cgroup with its descendants, and how much of it was used within a window of time, on average; \
              the largest first. Promoted: idle at one reading, used by the next.",
    formats: TABLES,
    damo: false,
    optional: true,
    make: |data, _| Ok(Box::new(Cgroups::of(data)?)),
};

/// Rows of a table meant for eyes.
const SHOWN: usize = 40;
/// Their windows: places in [`WINDOWS_S`].
const WINDOWS_SHOWN: [usize; 4] = [0, 2, 4, 5];

/// Averages of one cgroup on one node, of one type.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Average {
    cgroup: String,
    node: u64,
    kind: &'static str,
    bytes: f64,
    /// By window, in the order of [`WINDOWS_S`]; null = never known.
    used_bytes: [Option<f64>; WINDOWS_S.len()],
    promoted_bytes_per_s: f64,
}

/// The view.
#[derive(Debug, PartialEq, Serialize)]
struct Cgroups {
    windows_s: [u32; WINDOWS_S.len()],
    cgroups: Vec<Average>,
}

/// Sums over the rows of a cgroup.
#[derive(Default)]
struct Sums {
    bytes: f64,
    readings: f64,
    used: [(f64, f64); WINDOWS_S.len()],
    promoted: f64,
    last_s: f64,
}

fn averages(rows: &[CgroupRow]) -> Vec<Average> {
    let mut sums: BTreeMap<(&str, u64, bool), Sums> = BTreeMap::new();
    for CgroupRow { t_s, memory } in rows {
        let sum = sums.entry((&memory.cgroup, memory.node, !memory.anon)).or_default();
        sum.bytes += memory.bytes;
        sum.readings += 1.0;
        for (sum, used) in sum.used.iter_mut().zip(memory.used) {
            if let Some(used) = used {
                *sum = (sum.0 + used, sum.1 + 1.0);
            }
        }
        sum.promoted += memory.promoted;
        sum.last_s = *t_s;
    }
    let average = |((cgroup, node, file), sum): ((&str, u64, bool), Sums)| Average {
        cgroup: cgroup.to_owned(),
        node,
        kind: if file { "file" } else { "anon" },
        bytes: sum.bytes / sum.readings,
        used_bytes: sum.used.map(|(used, times)| (times > 0.0).then(|| used / times)),
        promoted_bytes_per_s: sum.promoted / sum.last_s.max(1.0),
    };
    sums.into_iter().map(average).collect()
}

impl Cgroups {
    fn of(data: &RecordData) -> Result<Self, Missing> {
        let cgroups = averages(&data.record.rows());
        if cgroups.is_empty() {
            let why = "this record has no use by cgroup: that takes --monitor mglru, and --cgroup or --system";
            return Err(Missing::Other(why.to_owned()));
        }
        Ok(Self { windows_s: WINDOWS_S, cgroups })
    }

    /// Nodes and types together, the largest first.
    fn by_cgroup(&self) -> Vec<Average> {
        let mut all: Vec<Average> = Vec::new();
        for rows in self.cgroups.chunk_by(|a, b| a.cgroup == b.cgroup) {
            let mut sum = rows[0].clone();
            for row in &rows[1..] {
                sum.bytes += row.bytes;
                sum.promoted_bytes_per_s += row.promoted_bytes_per_s;
                for (sum, used) in sum.used_bytes.iter_mut().zip(row.used_bytes) {
                    *sum = sum.zip(used).map(|(a, b)| a + b);
                }
            }
            all.push(sum);
        }
        all.sort_by(|a, b| b.bytes.total_cmp(&a.bytes).then_with(|| a.cgroup.cmp(&b.cgroup)));
        all
    }
}

impl Report for Cgroups {
    fn grids(&self) -> Vec<Grid> {
        let all = self.by_cgroup();
        let more = if all.len() > SHOWN { format!(", {SHOWN} of {}", all.len()) } else { String::new() };
        let title = format!("Cgroups by memory{more}, and memory used within a window");
        let mut grid = Grid::new(&title, &["cgroup", "memory"]);
        grid.head.extend(WINDOWS_SHOWN.iter().map(|at| format!("{} s", WINDOWS_S[*at])));
        grid.head.push("promoted/min".to_owned());
        for row in all.iter().take(SHOWN) {
            let used = WINDOWS_SHOWN.iter().map(|at| bytes(row.used_bytes[*at]));
            let cells = [printable(&row.cgroup), bytes(Some(row.bytes))].into_iter().chain(used);
            grid.row(cells.chain([bytes(Some(row.promoted_bytes_per_s * 60.0))]));
        }
        vec![grid]
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        pretty(self, out)
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        let windows = WINDOWS_S.map(|window| format!("ws_{window}s_bytes"));
        let head = ["cgroup", "node", "kind", "bytes"].map(str::to_owned);
        csv.write_record(head.into_iter().chain(windows).chain(["promoted_bytes_per_s".to_owned()]))?;
        for row in &self.cgroups {
            let used = row.used_bytes.iter().map(|used| used.map_or_else(String::new, |used| format!("{used:.0}")));
            let own = [row.cgroup.clone(), row.node.to_string(), row.kind.to_owned(), format!("{:.0}", row.bytes)];
            csv.write_record(own.into_iter().chain(used).chain([format!("{:.0}", row.promoted_bytes_per_s)]))?;
        }
        csv.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_model::generations::CgroupUse;

    #[test]
    fn looks_are_averaged_and_types_added() {
        let row = |t_s, cgroup: &str, anon, bytes, one_s| CgroupRow {
            t_s,
            memory: CgroupUse {
                cgroup: cgroup.to_owned(),
                node: 0,
                anon,
                bytes,
                used: [one_s, None, None, None, None, None],
                promoted: 6.0,
            },
        };
        let rows = [
            row(5.0, "/a", true, 100.0, Some(10.0)),
            row(5.0, "/a", false, 50.0, Some(5.0)),
            row(5.0, "/b", true, 1000.0, None),
            row(10.0, "/a", true, 200.0, Some(30.0)),
            row(15.0, "/a", true, 300.0, None),
        ];
        let view = Cgroups { windows_s: WINDOWS_S, cgroups: averages(&rows) };
        assert_eq!(view.cgroups.len(), 3);
        assert_eq!((view.cgroups[0].bytes, view.cgroups[0].used_bytes[0]), (200.0, Some(20.0)));
        assert_eq!(view.cgroups[0].promoted_bytes_per_s, 1.2);
        let all = view.by_cgroup();
        assert_eq!(all.iter().map(|row| row.cgroup.as_str()).collect::<Vec<_>>(), ["/b", "/a"]);
        assert_eq!((all[1].bytes, all[1].used_bytes[0], all[1].used_bytes[1]), (250.0, Some(25.0), None));
    }
}
