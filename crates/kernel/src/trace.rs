//! DAMON's `damon_aggregated` tracepoint, read from a trace instance of lowtide's own.
//!
//! An instance keeps other users' trace buffers untouched. The raw ring-buffer pages are read: formatting a line per
//! region in the kernel and parsing it here would cost more than the monitoring itself.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::mounts::Mounted;
use crate::root::{Error, Kernel, Result};
use crate::undo::{Journal, KernelChange, Lease};

/// One `damon_aggregated` event: one region at the end of one aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEvent {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// The kdamond that traced it.
    pub kdamond: u32,
    /// Opaque name of the monitoring target.
    pub target: u64,
    /// Regions of that target in this aggregation.
    pub nr_regions: u32,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Samples that saw an access.
    pub nr_accesses: u32,
    /// Aggregations for which the rate has been like this.
    pub age: u32,
}

/// Where the kernel puts the fields of an event; from its `format` file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Format {
    id: u16,
    pid: Slot,
    target: Slot,
    nr_regions: Slot,
    start: Slot,
    end: Slot,
    nr_accesses: Slot,
    age: Slot,
}

/// Offset and size of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    offset: usize,
    size: usize,
}

impl Slot {
    /// The field's value; `None` if the event is too short for it.
    fn get(self, event: &[u8]) -> Option<u64> {
        let bytes = event.get(self.offset..self.offset.checked_add(self.size)?)?;
        match self.size {
            1 => bytes.first().map(|byte| u64::from(*byte)),
            2 => Some(u64::from(u16::from_ne_bytes(bytes.try_into().ok()?))),
            4 => Some(u64::from(u32::from_ne_bytes(bytes.try_into().ok()?))),
            8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }

    fn get32(self, event: &[u8]) -> Option<u32> {
        u32::try_from(self.get(event)?).ok()
    }
}

/// Parses lines like `field:unsigned long start; offset:24; size:8; signed:0;`, the parts apart by tabs.
fn parse_format(text: &str) -> Option<Format> {
    let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
    let slot = |name: &str| {
        text.lines().find_map(|line| {
            let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
            let declared = parts.next()?.rsplit(' ').next()?;
            let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
            let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
            (declared == name).then_some(Slot { offset, size })
        })
    };
    Some(Format {
        id,
        pid: slot("common_pid")?,
        target: slot("target_id")?,
        nr_regions: slot("nr_regions")?,
        start: slot("start")?,
        end: slot("end")?,
        nr_accesses: slot("nr_accesses")?,
        age: slot("age")?,
    })
}

impl Format {
    fn event(&self, time_ns: u64, data: &[u8]) -> Option<TraceEvent> {
        let id = u16::from_ne_bytes(data.get(..2)?.try_into().ok()?);
        (id == self.id).then_some(())?;
        Some(TraceEvent {
            time_ns,
            kdamond: self.pid.get32(data)?,
            target: self.target.get(data)?,
            nr_regions: self.nr_regions.get32(data)?,
            start: self.start.get(data)?,
            end: self.end.get(data)?,
            nr_accesses: self.nr_accesses.get32(data)?,
            age: self.age.get32(data)?,
        })
    }
}

/// A size in a ring buffer page; the sum of two is within `usize`.
fn size(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Walks one page of the ring buffer (Documentation/trace/ring-buffer-design.rst; layout as in `events/header_page`
/// and `header_event`): 8 bytes of time stamp, 8 of length and flags, then events with a 32-bit head of 5 bits type and
/// 27 bits time since the event before. Stops at anything it does not understand.
fn walk_page(page: &[u8], mut visit: impl FnMut(u64, &[u8])) -> Option<()> {
    const PADDING: u32 = 29;
    const TIME_EXTEND: u32 = 30;
    const TIME_STAMP: u32 = 31;
    let word = |at: usize| Some(u32::from_ne_bytes(page.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let mut time = u64::from_ne_bytes(page.get(..8)?.try_into().ok()?);
    // The upper bits of the length are flags: `lost_before` reads them.
    let length = word(8)? & 0x000f_ffff;
    let end = 16usize.checked_add(usize::try_from(length).ok()?)?.min(page.len());
    let mut at = 16;
    while at + 4 <= end {
        let head = word(at)?;
        let (kind, delta) = (head & 31, u64::from(head >> 5));
        match kind {
            PADDING if delta == 0 => return Some(()),
            PADDING => {
                time = time.wrapping_add(delta);
                at += 4 + size(word(at + 4)?);
            }
            TIME_EXTEND => {
                time = time.wrapping_add((u64::from(word(at + 4)?) << 27) + delta);
                at += 8;
            }
            TIME_STAMP => {
                time = (u64::from(word(at + 4)?) << 27) + delta;
                at += 8;
            }
            _ => {
                time = time.wrapping_add(delta);
                // Length 0 in the head: the first data word is the length, itself included.
                let (data, next) =
                    if kind == 0 { (at + 8, at + 4 + size(word(at + 4)?)) } else { (at + 4, at + 4 + 4 * size(kind)) };
                visit(time, page.get(data..next)?);
                at = next;
            }
        }
    }
    Some(())
}

/// Events that were lost before this page because the buffer was full. Where the kernel does not say how many: at least 1.
fn lost_before(page: &[u8]) -> u64 {
    const MISSED: u32 = 1 << 31;
    const MISSED_STORED: u32 = 1 << 30;
    let Some(Ok(length)) = page.get(8..12).map(<[u8; 4]>::try_from) else { return 0 };
    let length = u32::from_ne_bytes(length);
    if length & MISSED == 0 {
        return 0;
    }
    // The count follows the events.
    let at = 16 + size(length & 0x000f_ffff);
    let stored = page.get(at..at + 8).filter(|_| length & MISSED_STORED != 0);
    stored.and_then(|bytes| bytes.try_into().ok()).map_or(1, |bytes| u64::from_ne_bytes(bytes).max(1))
}

/// tracefs, mounted already or by us.
pub(crate) fn tracefs(kernel: &Kernel) -> Result<Mounted> {
    Mounted::open(kernel, "tracefs", &["/sys/kernel/tracing", "/sys/kernel/debug/tracing"], "instances")
}

fn instance(fs: &Mounted, name: &str) -> PathBuf {
    fs.path("instances").join(name)
}

/// A trace instance that was made: it is removed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Instance {
    /// Its name.
    pub name: String,
}

impl KernelChange for Instance {
    const KIND: &'static str = "trace_instance";

    fn describe(&self) -> String {
        format!("the trace instance {}", self.name)
    }

    fn take_back(&self, kernel: &Kernel) -> Result<()> {
        let fs = tracefs(kernel)?;
        kernel.remove_dir(instance(&fs, &self.name))
    }
}

/// Whether the tracepoint is there; else why not.
pub fn probe(kernel: &Kernel) -> Result<()> {
    let fs = tracefs(kernel)?;
    kernel.read_text(fs.path("events/damon/damon_aggregated/format")).map(|_| ())
}

/// A trace instance that collects `damon_aggregated` events.
#[derive(Debug)]
pub struct Trace {
    cpus: Vec<File>,
    format: Format,
    page: Vec<u8>,
    /// Events that were lost so far because they were not read in time.
    pub lost: u64,
    _lease: Lease,
    _fs: Mounted,
}

impl Trace {
    /// Makes the instance and switches the tracepoint on in it. `buffer_bytes`: size of each CPU's buffer; it should
    /// hold what is traced between two reads.
    pub fn open(kernel: &Kernel, journal: &Journal, buffer_bytes: usize) -> Result<Self> {
        let fs = tracefs(kernel)?;
        let name = format!("lowtide-{}", std::process::id());
        let base = instance(&fs, &name);
        let lease = journal.lease(&Instance { name })?;
        kernel.make_dir(&base)?;
        let event = base.join("events/damon/damon_aggregated");
        let file = event.join("format");
        let text = kernel.read_text(&file)?;
        let format =
            parse_format(&text).ok_or_else(|| Error::unexpected(&file, "no damon_aggregated fields with age"))?;
        kernel.write(base.join("trace_clock"), "mono")?;
        kernel.write(base.join("buffer_size_kb"), &buffer_bytes.div_ceil(1024).to_string())?;
        let mut cpus = Vec::new();
        for name in kernel.list(base.join("per_cpu"))? {
            let path = base.join("per_cpu").join(name).join("trace_pipe_raw");
            let mut open = OpenOptions::new();
            open.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
            cpus.push(open.open(kernel.path(&path)).map_err(|e| Error::new("open", &path, e))?);
        }
        kernel.write(event.join("enable"), "1")?;
        // The largest sub-buffer the kernel offers is 64 KiB.
        Ok(Self { cpus, format, page: vec![0; 65536], lost: 0, _lease: lease, _fs: fs })
    }

    /// Appends what was traced since the last read, in order of time.
    pub fn read(&mut self, out: &mut Vec<TraceEvent>) -> Result<()> {
        let first = out.len();
        for cpu in &mut self.cpus {
            loop {
                match cpu.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(got) => {
                        let format = &self.format;
                        self.lost = self.lost.saturating_add(lost_before(&self.page[..got]));
                        walk_page(&self.page[..got], |time, data| out.extend(format.event(time, data)));
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(Error::new("read", "trace_pipe_raw", e)),
                }
            }
        }
        // A kdamond may change CPU in the middle of a snapshot. A stable sort keeps the order within one CPU.
        out[first..].sort_by_key(|event| event.time_ns);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMAT: &str = "name: damon_aggregated\nID: 301\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;\n\tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;\n\tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;\n\tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;\n\tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;\n";

    fn payload(start: u64) -> Vec<u8> {
        let mut data = vec![0; 48];
        data[..2].copy_from_slice(&301u16.to_ne_bytes());
        data[4..8].copy_from_slice(&77u32.to_ne_bytes());
        data[16..20].copy_from_slice(&1u32.to_ne_bytes());
        data[24..32].copy_from_slice(&start.to_ne_bytes());
        data[32..40].copy_from_slice(&(start + 4096).to_ne_bytes());
        data[40..44].copy_from_slice(&1u32.to_ne_bytes());
        data
    }

    fn page(parts: &[Vec<u8>]) -> Vec<u8> {
        let body: Vec<u8> = parts.concat();
        let mut page = 1000u64.to_ne_bytes().to_vec();
        page.extend((body.len() as u64).to_ne_bytes());
        page.extend(body);
        page.resize(4096, 0);
        page
    }

    fn event(delta: u32, data: &[u8]) -> Vec<u8> {
        let words = u32::try_from(data.len() / 4).unwrap();
        let mut bytes = ((delta << 5) | words).to_ne_bytes().to_vec();
        bytes.extend(data);
        bytes
    }

    #[test]
    fn a_page_of_all_event_kinds_is_walked() {
        let format = parse_format(FORMAT).unwrap();
        let extend = [((5u32 << 5) | 30).to_ne_bytes(), 2u32.to_ne_bytes()].concat();
        let mut long = (1u32 << 5).to_ne_bytes().to_vec();
        long.extend(52u32.to_ne_bytes());
        long.extend(payload(0x3000));
        let padding = [((3u32 << 5) | 29).to_ne_bytes(), 8u32.to_ne_bytes(), [0; 4]].concat();
        let page = page(&[event(1, &payload(0x1000)), extend, padding, event(4, &payload(0x2000)), long]);
        let mut events = Vec::new();
        walk_page(&page, |time, data| events.extend(format.event(time, data))).unwrap();
        let walked: Vec<_> = events.iter().map(|e| (e.time_ns, e.start, e.kdamond)).collect();
        let base = 1000 + 1 + (2 << 27) + 5 + 3 + 4;
        assert_eq!(walked, [(1001, 0x1000, 77), (base, 0x2000, 77), (base + 1, 0x3000, 77)]);
    }

    #[test]
    fn lost_events_are_counted() {
        let mut page = page(&[event(1, &payload(0x1000))]);
        assert_eq!(lost_before(&page), 0);
        let length = page[8];
        page[11] = 0x80;
        assert_eq!(lost_before(&page), 1, "not said how many");
        page[11] = 0xc0;
        page[16 + usize::from(length)..][..8].copy_from_slice(&77u64.to_ne_bytes());
        assert_eq!(lost_before(&page), 77);
        let format = parse_format(FORMAT).unwrap();
        let mut events = 0;
        walk_page(&page, |time, data| events += usize::from(format.event(time, data).is_some()));
        assert_eq!(events, 1);
    }

    #[test]
    fn a_format_without_age_is_refused() {
        let old: String = FORMAT.lines().filter(|line| !line.contains(" age;")).map(|l| format!("{l}\n")).collect();
        assert_eq!(parse_format(&old), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600), text in "(\\PC|\\n)*") {
            let format = parse_format(FORMAT).unwrap();
            let mut count = 0;
            walk_page(&bytes, |time, data| count += usize::from(format.event(time, data).is_some()));
            lost_before(&bytes);
            parse_format(&text);
        }
    }
}
