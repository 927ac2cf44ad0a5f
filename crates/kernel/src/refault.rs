//! The cost of one refault on this machine: the time from touching a page that was evicted until it is there, and before that, to
//! page it out.
//!
//! Pages of lowtide's own are evicted and touched again in random order, each touch timed by itself. Only touches that
//! the kernel counted as a fault with I/O are kept, so a page that was still in memory, or came with a neighbour, does
//! not make refaults seem cheap.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use lowtide_model::curve::MeasuredCosts;
use lowtide_model::random::Random;
use lowtide_model::units::float;
use lowtide_model::{PAGE, stats};
use rustix::fs::{Advice, Mode, OFlags, fadvise, fstat, open};
use rustix::io::pread;
use serde::Serialize;

use crate::mounts::MountLine;
use crate::pagemap::{Entry, PageMap};
use crate::root::{Error, Kernel, Result, chosen};
use crate::swap::{self, SwapDevice};
use crate::sys::{Area, thread_major_faults};
use crate::zram;

/// Pages of the file that is evicted from the page cache: 64 MiB, beyond what disks keep in their own caches for reads
/// of single pages that never repeat.
const FILE_PAGES: usize = 16_384;
/// Pages of memory that is paged out, at most: 16 MiB.
const SWAP_PAGES: usize = 4_096;
/// Fewer pages say nothing about a 95th percentile.
const FEWEST_PAGES: usize = 64;
/// Refaults timed on one medium, at most, and how long that may take: a disk with moving parts gives 100 a second.
const TOUCHES: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(5);
/// Times that a file is read, at least and at most; as often as makes so many bytes in between; and how long that may take.
const READS: (u64, u64) = (3, 32);
const READ_BYTES: u64 = 16 << 20;
const READS_PATIENCE: Duration = Duration::from_millis(300);
/// Bytes that are read at once, at most: more would take as much memory.
const PIECE: u64 = 1 << 20;
/// Fixes the order of the touches and the bytes of the pages.
const SEED: u64 = 0x6c6f_7774_6964_6500;

/// Where evicted pages come back from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// A file system: page cache.
    Disk,
    /// A swap device: anonymous memory.
    Swap,
}

/// Cost of one refault. Times are `None` where none could be made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Refault {
    /// Where the pages come back from.
    pub medium: Medium,
    /// The device.
    pub device: String,
    /// Seconds, half of the refaults take longer.
    pub median_s: Option<f64>,
    /// Seconds, one in twenty takes longer.
    pub p95_s: Option<f64>,
    /// Seconds on average: what many refaults add up to.
    pub mean_s: Option<f64>,
    /// Seconds to page one out, on average; `None` for files, which are dropped. A device that is written to later takes no more of
    /// the program's time.
    pub out_s: Option<f64>,
    /// Refaults timed.
    pub samples: usize,
    /// What the figures hold for, or why there are none.
    pub note: String,
}

impl Refault {
    /// A device of which nothing is known but why.
    pub fn unmeasured(medium: Medium, device: String, why: String) -> Self {
        Self::of(medium, device, &[], why)
    }

    fn of(medium: Medium, device: String, seconds: &[f64], note: String) -> Self {
        Self {
            medium,
            device,
            median_s: stats::quantile(seconds, 0.5),
            p95_s: stats::quantile(seconds, 0.95),
            mean_s: stats::mean(seconds),
            out_s: None,
            samples: seconds.len(),
            note,
        }
    }

    /// What a page of swap costs on average; `None` where none came back.
    pub fn costs(&self) -> Option<MeasuredCosts> {
        let swap_s = self.mean_s? + self.out_s.unwrap_or(0.0);
        Some(MeasuredCosts { swap_s: Some(swap_s), swap_out_s: self.out_s, ..MeasuredCosts::default() })
    }
}

/// Cost of a refault of page cache on the disk that holds `dir`. Takes 64 MiB there while it runs.
pub fn on_disk(kernel: &Kernel, dir: &Path) -> Result<Refault> {
    let device = device_of(&kernel.read_text("/proc/self/mountinfo")?, dir);
    let file = temporary_file(dir).map_err(|e| Error::new("write 64 MiB to a temporary file in", dir, e))?;
    let area = Area::file(&file, FILE_PAGES).map_err(|e| Error::new("map a file in", dir, e))?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| Error::new("evict a file in", dir, e))?;
    let evicted = evicted_pages(&area.resident().map_err(|e| Error::new("ask for the pages of a file in", dir, e))?);
    if evicted.len() < FEWEST_PAGES {
        let why = "the pages stay in memory: a file system without a disk";
        return Ok(Refault::unmeasured(Medium::Disk, device, why.to_owned()));
    }
    let seconds: Vec<f64> = touch_all(&area, evicted).into_iter().map(|(_, seconds)| seconds).collect();
    let note = format!("{} of {FILE_PAGES} pages timed, not read ahead", seconds.len());
    Ok(Refault::of(Medium::Disk, device, &seconds, note))
}

/// Seconds that a read of so many bytes, or of all there are, takes from the disk of a file: the mean of some in random order,
/// not by the page cache. `None` where they cannot be read so.
pub fn of_file(path: &Path, bytes: u64) -> Option<f64> {
    let file = open(path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let size = u64::try_from(fstat(&file).ok()?.st_size).ok()? / PAGE * PAGE;
    let (page, piece) = (usize::try_from(PAGE).ok()?, PIECE.min(bytes));
    // Such reads need memory that is aligned like a page.
    let length = usize::try_from(piece).ok()?;
    let mut memory = vec![0; length + page];
    let first = memory.as_ptr().align_offset(page);
    let buffer = memory.get_mut(first..first + length)?;
    let read = bytes.min(size);
    let mut starts: Vec<u64> = (0..=(size - read) / PAGE).collect();
    Random::new(SEED).shuffle(&mut starts);
    let begin = Instant::now();
    let mut seconds = Vec::new();
    let reads = if size < PAGE { 0 } else { (READ_BYTES / bytes).clamp(READS.0, READS.1) };
    for start in starts.into_iter().take(usize::try_from(reads).ok()?) {
        let before = Instant::now();
        for at in (0..read / piece.min(read)).map(|number| start * PAGE + number * piece) {
            pread(&file, &mut *buffer, at).ok()?;
        }
        seconds.push(before.elapsed().as_secs_f64());
        if begin.elapsed() > READS_PATIENCE {
            break;
        }
    }
    stats::mean(&seconds)
}

/// Bytes that the kernel reads around a fault on a mapped file of the disk that holds it. `None` where that is not known.
pub fn read_ahead(kernel: &Kernel, path: &Path) -> Option<u64> {
    let device = std::fs::metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // A partition has none of its own: the disk's is above it.
    let places = [format!("/sys/class/bdi/{major}:{minor}"), format!("/sys/dev/block/{major}:{minor}/../bdi")];
    places.iter().find_map(|place| kernel.read_number(format!("{place}/read_ahead_kb")).ok()).map(|kib| kib * 1024)
}

/// A file of [`FILE_PAGES`] that is on the disk and has no name: the kernel removes it when this process ends.
fn temporary_file(dir: &Path) -> std::io::Result<File> {
    let path = dir.join(format!(".lowtide-refault-{}", std::process::id()));
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    // Random bytes: a file system that compresses must not make the disk seem fast.
    let mut random = Random::new(SEED);
    let mut chunk = vec![0; 1 << 20];
    for _ in 0..FILE_PAGES / 256 {
        random.fill(&mut chunk);
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    Ok(file)
}

/// Cost of a refault of anonymous memory on each swap device that is on; empty if there is none.
pub fn on_swap(kernel: &Kernel) -> Result<Vec<Refault>> {
    let before = swap::devices(kernel)?;
    let free: u64 = before.iter().map(SwapDevice::free).sum();
    let pages = usize::try_from(free / PAGE / 2).unwrap_or(SWAP_PAGES).min(SWAP_PAGES);
    if pages < FEWEST_PAGES {
        return Ok(before.iter().map(|device| unmeasured(device, "it is full")).collect());
    }
    let fail = |e| Error::new("page out own memory to", "swap", e);
    let mut random = Random::new(SEED);
    let area = Area::anonymous(pages, |page, bytes| half_random(&mut random, page, bytes)).map_err(fail)?;
    let (evicted, out_s) = page_out(&area).map_err(fail)?;
    let map = PageMap::open(kernel, std::process::id())?;
    let first = area.first_page();
    let mut types = vec![None; pages];
    map.each_held(first, first + u64::try_from(pages).unwrap_or(0), &mut |page, entry| {
        types[usize::try_from(page - first).unwrap_or(0)] = swap_type(entry);
    })
    .map_err(fail)?;
    let after = swap::devices(kernel)?;
    let notes: Vec<String> = before.iter().map(|device| note_on(kernel, device)).collect();
    let mut by_type: BTreeMap<Option<usize>, Vec<f64>> = BTreeMap::new();
    for (page, seconds) in touch_all(&area, evicted) {
        by_type.entry(types[page]).or_default().push(seconds);
    }
    let all = by_device(&before, &after, &by_type, &notes).into_iter();
    Ok(all.map(|one| Refault { out_s: out_s.filter(|_| one.samples > 0), ..one }).collect())
}

fn unmeasured(device: &SwapDevice, note: &str) -> Refault {
    Refault::unmeasured(Medium::Swap, device.device.to_string_lossy().into_owned(), note.to_owned())
}

/// Gives each swap device the times of its pages. A page says the number of its swap area, which is its place in
/// `/proc/swaps` unless an area before it was switched off: so that device must also have grown by these pages.
fn by_device(
    before: &[SwapDevice],
    after: &[SwapDevice],
    by_type: &BTreeMap<Option<usize>, Vec<f64>>,
    notes: &[String],
) -> Vec<Refault> {
    let grown = |index: usize| Some(after.get(index)?.used.saturating_sub(before.get(index)?.used));
    let fits =
        |index: usize, pages: usize| grown(index).is_some_and(|bytes| 2.0 * float(bytes) >= float(pages) * float(PAGE));
    let mut all = Vec::new();
    for (index, device) in before.iter().enumerate() {
        let only = before.len() == 1;
        let own = by_type.iter().find(|(area, seconds)| only || (**area == Some(index) && fits(index, seconds.len())));
        all.push(match own {
            Some((_, seconds)) => {
                let name = device.device.to_string_lossy().into_owned();
                Refault::of(Medium::Swap, name, seconds, notes.get(index).cloned().unwrap_or_default())
            }
            None if by_type.is_empty() => unmeasured(device, "the kernel paged nothing out (memory.swap.max?)"),
            None => unmeasured(device, "devices of a higher priority are filled first"),
        });
    }
    let placed = |area: Option<usize>, count| {
        before.len() == 1 || area.is_some_and(|index| index < before.len() && fits(index, count))
    };
    for (area, seconds) in by_type.iter().filter(|(area, seconds)| !placed(**area, seconds.len())) {
        let name = area.map_or("some swap device".to_owned(), |number| format!("swap area {number}"));
        let note = "the kernel does not report which device this is (without CAP_SYS_ADMIN, or after swapoff)";
        all.push(Refault::of(Medium::Swap, name, seconds, note.into()));
    }
    all
}

/// The number of the swap area that holds a page: bits 0-4 of its pagemap entry (Documentation/admin-guide/mm/
/// pagemap.rst), which is all zeros without `CAP_SYS_ADMIN`. Offset 0 of an area is its header, never a page.
fn swap_type(entry: Entry) -> Option<usize> {
    let swapped = entry.0 >> 62 & 1 == 1;
    let (area, offset) = (entry.frame() & 31, entry.frame() >> 5);
    (swapped && offset > 0).then(|| usize::try_from(area).ok()).flatten()
}

/// Remarks on the figures of a swap device.
fn note_on(kernel: &Kernel, device: &SwapDevice) -> String {
    let mut notes = Vec::new();
    let name = device.device.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let file = |file: &str| kernel.read_text(format!("/sys/block/{name}/{file}")).ok();
    if let Some(usage) = file("mm_stat").as_deref().and_then(zram::parse_mm_stat)
        && usage.original > 0
    {
        let algorithms = file("comp_algorithm").unwrap_or_default();
        let percent = usage.used.saturating_mul(100) / usage.original;
        notes.push(format!("zram, {}, pages take {percent} %", chosen(&algorithms).unwrap_or("?")));
    }
    if kernel.read_text("/sys/module/zswap/parameters/enabled").is_ok_and(|text| text.trim() == "Y") {
        notes.push("zswap is in front of it".to_owned());
    }
    notes.join("; ")
}

/// Pages out all of it: the evicted pages, and the seconds for each that the first attempt evicted. A slow device takes
/// time to write, and what is being written stays in the swap cache: once written, it is mapped and paged out again, which
/// takes no writing.
fn page_out(area: &Area) -> std::io::Result<(Vec<usize>, Option<f64>)> {
    const ATTEMPTS: u32 = 5;
    let mut out_s = None;
    for attempt in 1.. {
        let start = Instant::now();
        area.page_out()?;
        let seconds = start.elapsed().as_secs_f64();
        let resident = area.resident()?;
        let evicted = evicted_pages(&resident);
        if attempt == 1 && evicted.len() >= FEWEST_PAGES {
            out_s = Some(seconds / float(evicted.len()));
        }
        if evicted.len() * 10 >= resident.len() * 9 || attempt == ATTEMPTS {
            return Ok((evicted, out_s));
        }
        std::thread::sleep(Duration::from_millis(200));
        for (page, _) in resident.iter().enumerate().filter(|(_, inside)| **inside) {
            black_box(area.touch(page));
        }
    }
    Ok((Vec::new(), out_s))
}

fn evicted_pages(resident: &[bool]) -> Vec<usize> {
    resident.iter().enumerate().filter_map(|(page, inside)| (!inside).then_some(page)).collect()
}

/// Touches pages in random order. Gives page and seconds of those that had to be brought in.
fn touch_all(area: &Area, mut pages: Vec<usize>) -> Vec<(usize, f64)> {
    Random::new(SEED).shuffle(&mut pages);
    let begin = Instant::now();
    let mut timed = Vec::with_capacity(TOUCHES.min(pages.len()));
    let mut faults = thread_major_faults();
    for page in pages {
        if timed.len() == TOUCHES || begin.elapsed() > PATIENCE {
            break;
        }
        let start = Instant::now();
        black_box(area.touch(page));
        let seconds = start.elapsed().as_secs_f64();
        let now = thread_major_faults();
        if now > faults {
            timed.push((page, seconds));
        }
        faults = now;
    }
    timed
}

/// What the mount table says about the file system of a folder, like `/dev/sda2 (ext4)`.
fn device_of(mountinfo: &str, dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    let mounts = MountLine::parse(mountinfo)
        .filter(|mount| dir.starts_with(&mount.point))
        .map(|mount| (mount.point.components().count(), format!("{} ({})", mount.source.display(), mount.kind)));
    // Of two mounts on one point the later hides the earlier, and max_by_key takes the later of equals.
    mounts.max_by_key(|(depth, _)| *depth).map_or_else(|| dir.display().to_string(), |(_, device)| device)
}

/// Pages as programs have them: half of each does not compress, the other half compresses very well.
fn half_random(random: &mut Random, page: usize, bytes: &mut [u8]) {
    let (noise, plain) = bytes.split_at_mut(bytes.len() / 2);
    random.fill(noise);
    for (word, chunk) in plain.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&(page << 16 | word >> 4).to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn device(name: &str, used_pages: u64) -> SwapDevice {
        SwapDevice { device: name.into(), bytes: 1 << 30, used: used_pages * PAGE, priority: 0 }
    }

    #[test]
    fn times_go_to_the_device_that_grew() {
        let before = [device("/dev/a", 0), device("/dev/b", 5)];
        let after = [device("/dev/a", 0), device("/dev/b", 7)];
        let notes = [String::new(), "slow".to_owned()];
        let devices = by_device(&before, &after, &BTreeMap::from([(Some(1), vec![1.0, 3.0])]), &notes);
        assert_eq!((devices[0].samples, devices[1].samples, devices[1].median_s), (0, 2, Some(2.0)));
        assert_eq!(
            (devices[0].note.as_str(), devices[1].note.as_str()),
            ("devices of a higher priority are filled first", "slow")
        );
        // Area 0 was switched off once: now area 1 is the first line, and area 2 the second.
        let after = [device("/dev/a", 2), device("/dev/b", 5)];
        let devices = by_device(&before, &after, &BTreeMap::from([(Some(1), vec![1.0, 3.0])]), &notes);
        assert_eq!((devices.len(), devices[0].samples, devices[1].samples, devices[2].samples), (3, 0, 0, 2));
        assert_eq!(devices[2].device, "swap area 1");
    }

    #[test]
    fn a_page_of_a_file_is_timed_or_it_is_not_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        assert_eq!(of_file(&path, PAGE), None);
        std::fs::write(&path, [1; 100]).unwrap();
        assert_eq!(of_file(&path, PAGE), None, "less than a page");
        let exe = Path::new("/proc/self/exe");
        for bytes in [PAGE, 16 * PAGE] {
            assert!(of_file(exe, bytes).is_none_or(|seconds| seconds > 0.0 && seconds < 60.0));
        }
        assert!(read_ahead(&Kernel::default(), exe).is_none_or(|bytes| bytes % 1024 == 0));
        assert_eq!(read_ahead(&Kernel::at(dir.path()), exe), None);
    }

    #[test]
    fn one_device_needs_no_telling_apart() {
        let before = [device("/dev/a", 0)];
        let devices = by_device(&before, &before, &BTreeMap::from([(None, vec![1.0])]), &["n".to_owned()]);
        assert_eq!((devices.len(), devices[0].samples, devices[0].device.as_str()), (1, 1, "/dev/a"));
        let devices = by_device(&before, &before, &BTreeMap::new(), &["n".to_owned()]);
        assert_eq!((devices.len(), devices[0].samples, devices[0].median_s), (1, 0, None));
    }

    #[test]
    fn the_swap_area_is_in_the_page_table_entry() {
        assert_eq!(swap_type(Entry(1 << 62 | 9 << 5 | 3)), Some(3));
        assert_eq!(swap_type(Entry(1 << 62)), None, "not reported without CAP_SYS_ADMIN");
        assert_eq!(swap_type(Entry(1 << 63 | 9 << 5 | 3)), None, "in memory");
    }

    #[test]
    fn the_innermost_mount_holds_a_folder() {
        let text = "27 1 254:0 / / rw - ext4 /dev/vda rw\n30 27 0:9 / /nonexistent\\040x rw - tmpfs none rw\n";
        assert_eq!(device_of(text, Path::new("/nonexistent x/y")), "none (tmpfs)");
        assert_eq!(device_of(text, Path::new("/nonexistent")), "/dev/vda (ext4)");
        assert_eq!(device_of("", Path::new("/nonexistent")), "/nonexistent");
    }

    proptest! {
        #[test]
        fn a_shuffle_keeps_every_page(count in 0usize..500, seed in any::<u64>()) {
            let mut list: Vec<usize> = (0..count).collect();
            Random::new(seed).shuffle(&mut list);
            list.sort_unstable();
            prop_assert_eq!(list, (0..count).collect::<Vec<_>>());
        }

        #[test]
        fn any_mount_table_is_survived(text in "(\\PC|\\n| - )*") {
            device_of(&text, Path::new("/nonexistent"));
        }
    }
}
