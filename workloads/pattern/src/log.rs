//! The ground truth as JSON lines.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context as _;
use lowtide_model::units::float;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::area::PatternArea;
use crate::pattern::Pattern;
use crate::sys;
use crate::truth::{AGES, Account, Ranges, WINDOWS, stamp_of};
use crate::units::PAGE;

/// A line after the header.
#[derive(Serialize)]
struct Line<'a> {
    t_s: f64,
    phase: usize,
    resident_bytes: usize,
    #[serde(serialize_with = "windows")]
    ws: &'a Account,
    cold: [Cold; AGES.len()],
    hot: Hot<'a>,
    scan_us: u64,
}

#[derive(Serialize)]
struct Cold {
    age_s: u32,
    bytes: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Hot<'a> {
    Word(&'static str),
    Ranges(Option<&'a [[usize; 2]]>),
}

fn windows<S: Serializer>(account: &&Account, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(WINDOWS.map(|w| (w, account.working_set(w))))
}

pub fn seconds(ns: u64) -> f64 {
    float(ns) / 1e9
}

#[derive(Debug)]
pub struct TruthLog<W: Write> {
    out: BufWriter<W>,
    account: Account,
    previous: Ranges,
    lines: u64,
    epoch: u64,
    /// Nanoseconds between lines.
    every: u64,
    /// When the next line is due, on `CLOCK_MONOTONIC`.
    pub due: u64,
}

impl TruthLog<File> {
    /// Creates the file at `path`. Stamps count from `epoch`; lines are `every` nanoseconds apart, and none has more
    /// than `limit` hot ranges.
    pub fn create(path: &Path, epoch: u64, every: u64, limit: usize) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
        Ok(TruthLog::new(file, epoch, every, limit))
    }
}

impl<W: Write> TruthLog<W> {
    fn new(out: W, epoch: u64, every: u64, limit: usize) -> Self {
        TruthLog {
            out: BufWriter::new(out),
            account: Account::new(limit),
            previous: Ranges::default(),
            lines: 0,
            epoch,
            every,
            due: u64::MAX,
        }
    }

    /// Writes the first line; others follow at regular times from `start` on.
    pub fn header(&mut self, pattern: &Pattern, areas: &[PatternArea], start: u64) -> anyhow::Result<()> {
        // `own`: this program's own tables, memory it touches besides the areas.
        let header = json!({
            "header": true,
            "pid": std::process::id(),
            "name": pattern.name,
            "description": pattern.description,
            "page": PAGE,
            "areas": areas.iter().map(area_header).collect::<Vec<_>>(),
            "own": areas.iter().map(|a| a.ledger.own_memory()).collect::<Vec<_>>(),
            "start_s": seconds(start),
        });
        self.due = start + self.every;
        write_line(&mut self.out, &header)
    }

    /// Writes a line for the present moment.
    pub fn line(&mut self, phase: usize, areas: &[PatternArea]) -> anyhow::Result<()> {
        let now = sys::monotonic_ns();
        self.account.begin(stamp_of(now - self.epoch));
        for area in areas {
            self.account.add(&area.ledger, area.start());
        }
        let scanned = sys::monotonic_ns();
        self.write(now, phase, (scanned - now) / 1000)?;
        // Lines missed while the program was stopped are left out.
        while self.due <= now {
            self.due += self.every;
        }
        Ok(())
    }

    fn write(&mut self, now: u64, phase: usize, scan_us: u64) -> anyhow::Result<()> {
        let account = &self.account;
        let ranges = account.hot.get();
        let same = self.lines > 0 && ranges.is_some() && ranges == self.previous.get();
        let line = Line {
            t_s: seconds(now),
            phase,
            resident_bytes: account.resident,
            ws: account,
            cold: AGES.map(|age_s| Cold { age_s, bytes: account.cold(age_s) }),
            hot: if same { Hot::Word("same") } else { Hot::Ranges(ranges) },
            scan_us,
        };
        write_line(&mut self.out, &line)?;
        self.lines += 1;
        std::mem::swap(&mut self.account.hot, &mut self.previous);
        Ok(())
    }
}

fn area_header(area: &PatternArea) -> Value {
    json!({
        "name": area.spec.name,
        "start": area.start(),
        "end": area.start() + area.spec.size.0,
        "backing": area.spec.backing,
        "granule_bytes": area.ledger.granule(),
        "huge_bytes": area.huge_bytes,
        "path": area.path().map(|path| path.display().to_string()),
    })
}

/// Writes and flushes one line, so that it survives if the program is killed.
fn write_line(out: &mut impl Write, line: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *out, line)
        .map_err(std::io::Error::from)
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush())
        .context("writing the log")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::TouchLedger;

    const SECOND_NS: u64 = 1_000_000_000;

    fn lines(limit: usize, touches: &[&[usize]]) -> Vec<Value> {
        let mut log = TruthLog::new(Vec::new(), 0, SECOND_NS, limit);
        let mut ledger = TouchLedger::new(16 * PAGE);
        for (n, pages) in touches.iter().enumerate() {
            let now = (n as u64 + 1) * SECOND_NS;
            for page in *pages {
                ledger.touch(page * PAGE, stamp_of(now - 1));
            }
            log.account.begin(stamp_of(now));
            log.account.add(&ledger, 0);
            log.write(now, 0, 5).unwrap();
        }
        let text = log.out.into_inner().unwrap();
        text.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect()
    }

    #[test]
    fn a_line_holds_everything() {
        let line = &lines(9, &[&[1, 2, 5]])[0];
        assert_eq!(line["t_s"], json!(1.0));
        assert_eq!(line["resident_bytes"], 3 * PAGE);
        assert_eq!(line["ws"]["1"], 3 * PAGE);
        assert_eq!(line["ws"].as_object().unwrap().len(), 5);
        assert_eq!(line["cold"][7], json!({"age_s": 120, "bytes": 0}));
        assert_eq!(line["hot"], json!([[4096, 12288], [20480, 24576]]));
    }

    #[test]
    fn unchanged_ranges_are_said_to_be_the_same() {
        let lines = lines(9, &[&[], &[], &[1], &[1], &[1, 2], &[1]]);
        let hot: Vec<_> = lines.iter().map(|l| l["hot"].clone()).collect();
        let one = json!([[4096, 8192]]);
        assert_eq!(hot, [json!([]), json!("same"), one.clone(), json!("same"), json!([[4096, 12288]]), one]);
    }

    #[test]
    fn too_many_ranges_are_null_each_time() {
        let lines = lines(1, &[&[1, 3], &[1, 3], &[1], &[1]]);
        let hot: Vec<_> = lines.iter().map(|l| l["hot"].clone()).collect();
        assert_eq!(hot, [json!(null), json!(null), json!([[4096, 8192]]), json!("same")]);
    }
}
