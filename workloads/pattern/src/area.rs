//! The areas: they are made, populated and touched; each touch is noted in the area's ledger.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use lowtide_model::units;
use rustix::fs::{Advice, fadvise};

use crate::config::{AreaSpec, Backing, Mode};
use crate::rng::Rng;
use crate::smaps::anon_huge_bytes;
use crate::sys::{self, AreaMapping, Mapped};
use crate::truth::{Stamp, TouchLedger, stamp_of};
use crate::units::{HUGE_PAGE, PAGE};

/// Pages populated between two readings of the clock.
const POPULATE_RUN: usize = 256;

/// An area in memory, and the account of it.
#[derive(Debug)]
pub struct PatternArea {
    /// What the pattern file says of it.
    pub spec: AreaSpec,
    /// The account of its touches.
    pub ledger: TouchLedger,
    /// Bytes that were in huge pages after populating.
    pub huge_bytes: usize,
    store: Store,
    file: Option<TempFile>,
}

/// `count` words, the first at `offset` and one every `stride` bytes.
#[derive(Debug, Clone, Copy)]
pub struct Touches {
    pub offset: usize,
    pub count: usize,
    /// Bytes from one to the next.
    pub stride: usize,
    pub mode: Mode,
}

#[derive(Debug)]
enum Store {
    /// Reached by loads and stores.
    Mapped { map: AreaMapping, first: First },
    /// Reached by system calls.
    File(File),
}

/// How a mapped page is first touched, so that this page and no other comes into memory.
#[derive(Debug)]
enum First {
    /// Private memory: a store, as a load would only get the shared zero page.
    Store,
    /// A file that is not in the page cache: a system call reads the page first, as a page fault would read ahead and map
    /// neighbours too.
    Fetch(File),
    /// A file that is in the page cache: nothing more is needed.
    Plain,
}

/// A file that is removed when the program ends in an orderly way.
#[derive(Debug)]
struct TempFile(PathBuf);

impl Drop for TempFile {
    fn drop(&mut self) {
        // Nothing useful can be done about a failure on the way out.
        drop(fs::remove_file(&self.0));
    }
}

impl PatternArea {
    /// Makes the area. Files go to `dir`. Nothing is populated yet.
    pub fn new(spec: &AreaSpec, dir: &Path) -> anyhow::Result<Self> {
        let map = |what| AreaMapping::new(spec.size.0, what).with_context(|| format!("mapping area {:?}", spec.name));
        let (store, file) = match spec.backing {
            Backing::Anon | Backing::Huge | Backing::System => {
                let map = map(match spec.backing {
                    Backing::Huge => Mapped::Huge,
                    Backing::System => Mapped::System,
                    _ => Mapped::Small,
                })?;
                map.name(&format!("lowtide-{}", spec.name));
                (Store::Mapped { map, first: First::Store }, None)
            }
            Backing::File => {
                let (file, temp) = write_out(spec, dir)?;
                let map = map(Mapped::File(&file))?;
                let first = if spec.populate { First::Plain } else { First::Fetch(file) };
                (Store::Mapped { map, first }, Some(temp))
            }
            Backing::Read => {
                let (file, temp) = write_out(spec, dir)?;
                (Store::File(file), Some(temp))
            }
        };
        Ok(Self { spec: spec.clone(), ledger: TouchLedger::new(spec.size.0), huge_bytes: 0, store, file })
    }

    /// Touches every page once, in order, if the pattern asks for it. Stamps count from `epoch`. A signal ends it early.
    pub fn populate(&mut self, epoch: u64) -> anyhow::Result<()> {
        if !self.spec.populate {
            return Ok(());
        }
        // Bytes that are only ever read by system calls come into the page cache by being read.
        let mode = match self.store {
            Store::Mapped { .. } => Mode::Write,
            Store::File(_) => Mode::Read,
        };
        let mut offset = 0;
        while offset < self.spec.size.0 && !sys::stop_requested() {
            let count = POPULATE_RUN.min((self.spec.size.0 - offset) / PAGE);
            let now = stamp_of(sys::monotonic_ns() - epoch);
            self.touch(Touches { offset, count, stride: PAGE, mode }, now)?;
            offset += count * PAGE;
        }
        if let Store::Mapped { map, first: First::Plain } = &self.store {
            // Otherwise the kernel would write the pages back, and make them clean, during the first phase.
            map.sync().with_context(|| format!("writing back area {:?}", self.spec.name))?;
        }
        if self.spec.backing == Backing::Huge && !sys::stop_requested() {
            self.check_huge()?;
        }
        Ok(())
    }

    /// Counts in huge pages if the area consists of them.
    fn check_huge(&mut self) -> anyhow::Result<()> {
        let smaps = fs::read_to_string("/proc/self/smaps").context("reading /proc/self/smaps")?;
        self.huge_bytes = anon_huge_bytes(&smaps, self.start());
        if self.huge_bytes >= self.spec.size.0 {
            self.ledger.coarsen(HUGE_PAGE);
        } else {
            eprintln!(
                "pattern: area {:?}: only {} of {} bytes are in huge pages; counting in 4 KiB pages",
                self.spec.name, self.huge_bytes, self.spec.size.0
            );
        }
        Ok(())
    }

    /// Touches these words at the time `now`.
    pub fn touch(&mut self, touches: Touches, now: Stamp) -> anyhow::Result<()> {
        let Touches { offset, count, stride, mode } = touches;
        let touching = || format!("touching area {:?}", self.spec.name);
        let ledger = &mut self.ledger;
        let offsets = (0..count).map(|n| offset + n * stride);
        match &self.store {
            Store::Mapped { map, first } => {
                for at in offsets {
                    let mut store = mode == Mode::Write;
                    if ledger.touch(at, now) {
                        store |= matches!(first, First::Store);
                        if let First::Fetch(file) = first {
                            file.read_exact_at(&mut [0; 8], units::count(at)).with_context(touching)?;
                        }
                    }
                    if store {
                        map.store(at, units::count(at) ^ u64::from(now));
                    } else {
                        map.load(at);
                    }
                }
                Ok(())
            }
            Store::File(file) => {
                let mut buffer = [0; PAGE];
                for at in offsets {
                    ledger.touch(at, now);
                    // Only this page is counted, so stay within it.
                    let part = &mut buffer[..stride.min(PAGE - at % PAGE)];
                    let done = match mode {
                        Mode::Read => file.read_exact_at(part, units::count(at)),
                        Mode::Write => file.write_all_at(part, units::count(at)),
                    };
                    done.with_context(touching)?;
                }
                Ok(())
            }
        }
    }

    /// Address of its first byte; 0 for a file that is not mapped, whose bytes are known by their offsets.
    pub fn start(&self) -> usize {
        match &self.store {
            Store::Mapped { map, .. } => map.start(),
            Store::File(_) => 0,
        }
    }

    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|f| f.0.as_path())
    }
}

/// Writes an area's file, of bytes that do not compress.
fn write_out(spec: &AreaSpec, dir: &Path) -> anyhow::Result<(File, TempFile)> {
    let path = dir.join(format!("lowtide-pattern-{}-{}.data", std::process::id(), spec.name));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .with_context(|| format!("creating {}", path.display()))?;
    let temp = TempFile(path);
    fill(&file, spec).with_context(|| format!("writing {}", temp.0.display())).map(|()| (file, temp))
}

fn fill(mut file: &File, spec: &AreaSpec) -> io::Result<()> {
    let mut rng = Rng::new(units::count(spec.size.0));
    let mut page = [0; PAGE];
    // Page by page: file systems make folios as large as the writes are, and the kernel keeps some of its access marks per
    // folio.
    for _ in 0..spec.size.0 / PAGE {
        if sys::stop_requested() {
            break;
        }
        for word in page.chunks_exact_mut(8) {
            word.copy_from_slice(&rng.next().to_ne_bytes());
        }
        file.write_all(&page)?;
    }
    // A run that is stopped here must still be able to map all pages.
    file.set_len(units::count(spec.size.0))?;
    file.sync_data()?;
    fadvise(file, 0, None, Advice::Random)?;
    if !spec.populate {
        // Written pages are in the page cache; an area that grows as it is touched begins without them.
        fadvise(file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ByteSize;

    fn spec(backing: Backing, populate: bool) -> AreaSpec {
        AreaSpec { name: "a".into(), size: ByteSize(1 << 20), backing, populate }
    }

    fn touched(area: &mut PatternArea) -> usize {
        (0..256).filter(|page| !area.ledger.touch(page * PAGE, 1)).count()
    }

    #[test]
    fn populating_touches_every_page() {
        let dir = tempfile::tempdir().unwrap();
        for backing in [Backing::Anon, Backing::File, Backing::Read] {
            let mut area = PatternArea::new(&spec(backing, true), dir.path()).unwrap();
            area.populate(sys::monotonic_ns()).unwrap();
            assert_eq!(touched(&mut area), 256, "{backing:?}");
            assert_eq!(area.start() == 0, backing == Backing::Read);
        }
    }

    #[test]
    fn an_area_may_grow_as_it_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        for backing in [Backing::Anon, Backing::File, Backing::Read] {
            let mut area = PatternArea::new(&spec(backing, false), dir.path()).unwrap();
            area.populate(sys::monotonic_ns()).unwrap();
            area.touch(Touches { offset: 0, count: 10, stride: 2 * PAGE, mode: Mode::Read }, 7).unwrap();
            area.touch(Touches { offset: 40 * PAGE + 8, count: 2, stride: 1000, mode: Mode::Write }, 7).unwrap();
            assert_eq!(touched(&mut area), 11, "{backing:?}");
        }
    }

    #[test]
    fn files_are_removed_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let area = PatternArea::new(&spec(Backing::File, true), dir.path()).unwrap();
        let path = area.path().unwrap().to_path_buf();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
        drop(area);
        assert!(!path.exists());
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = PatternArea::new(&spec(Backing::File, true), Path::new("/nowhere")).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere"), "{error}");
    }
}
