//! The areas: making them, filling them and touching them, each touch being noted in the area's ledger.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::config::{Backing, Mode};
use crate::error::Error;
use crate::pattern::AreaSpec;
use crate::rng::Rng;
use crate::smaps::anon_huge_bytes;
use crate::sys::{self, Advice, Mapping, Source};
use crate::truth::{Ledger, Stamp, stamp_of};
use crate::units::{HUGE_PAGE, PAGE};

/// Pages populated between looks at the clock.
const POPULATE_RUN: usize = 256;

/// An area in memory, and the account of it.
#[derive(Debug)]
pub struct Area {
    spec: AreaSpec,
    store: Store,
    ledger: Ledger,
    file: Option<TempFile>,
    huge_bytes: usize,
}

#[derive(Debug)]
enum Store {
    /// Reached by loads and stores.
    Mapped { map: Mapping, first: First },
    /// Reached by system calls.
    File(File),
}

/// What the first touch of a mapped page takes, so that it brings in this page and no other.
#[derive(Debug)]
enum First {
    /// Private memory: a store, as a load would only get the shared zero page.
    Store,
    /// A file that is not in the page cache: the page is read by a system call before. A page fault would read ahead
    /// and map the neighbours too.
    Fetch(File),
    /// A file that is in the page cache: nothing more.
    Nothing,
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

impl Area {
    /// Makes the area. Files go to `dir`. Nothing is populated yet.
    pub fn new(spec: &AreaSpec, dir: &Path) -> Result<Self, Error> {
        let map = |source| Mapping::new(spec.size, source).map_err(Error::io(format!("mapping area {:?}", spec.name)));
        let (store, file) = match spec.backing {
            Backing::Anon | Backing::Huge => {
                let source = match spec.backing {
                    Backing::Huge => Source::Huge,
                    _ => Source::Small,
                };
                let map = map(source)?;
                map.name(&format!("lowtide-{}", spec.name));
                (Store::Mapped { map, first: First::Store }, None)
            }
            Backing::File | Backing::Read => {
                let (file, temp) = write_out(spec, dir)?;
                let store = match (spec.backing, spec.populate) {
                    (Backing::File, true) => Store::Mapped { map: map(Source::File(&file))?, first: First::Nothing },
                    (Backing::File, false) => {
                        Store::Mapped { map: map(Source::File(&file))?, first: First::Fetch(file) }
                    }
                    _ => Store::File(file),
                };
                (store, Some(temp))
            }
        };
        Ok(Area { spec: spec.clone(), store, ledger: Ledger::new(spec.size), file, huge_bytes: 0 })
    }

    /// Touches every page once, in order, if the pattern wants that. `epoch` is the moment from which stamps count.
    /// Ends early when the program is told to stop.
    pub fn populate(&mut self, epoch: u64) -> Result<(), Error> {
        if !self.spec.populate {
            return Ok(());
        }
        // Bytes that are only ever read by system calls come into the page cache by being read.
        let mode = match self.store {
            Store::Mapped { .. } => Mode::Write,
            Store::File(_) => Mode::Read,
        };
        let mut offset = 0;
        while offset < self.spec.size && !sys::stop_requested() {
            let count = POPULATE_RUN.min((self.spec.size - offset) / PAGE);
            let now = stamp_of(sys::monotonic_ns() - epoch);
            self.touch(offset, count, PAGE, mode, now)?;
            offset += count * PAGE;
        }
        if let Store::Mapped { map, first: First::Nothing } = &self.store {
            // Or the kernel would write the pages back, and make them clean, in the middle of the first phase.
            map.sync().map_err(Error::io(format!("writing back area {:?}", self.spec.name)))?;
        }
        if self.spec.backing == Backing::Huge && !sys::stop_requested() {
            self.check_huge()?;
        }
        Ok(())
    }

    /// Counts in huge pages if that is what the area consists of.
    fn check_huge(&mut self) -> Result<(), Error> {
        let smaps = fs::read_to_string("/proc/self/smaps").map_err(Error::io("reading /proc/self/smaps"))?;
        self.huge_bytes = anon_huge_bytes(&smaps, self.start());
        if self.huge_bytes >= self.spec.size {
            self.ledger.coarsen(HUGE_PAGE);
        } else {
            eprintln!(
                "pattern: area {:?}: only {} of {} bytes are in huge pages; counting in 4 KiB pages",
                self.spec.name, self.huge_bytes, self.spec.size
            );
        }
        Ok(())
    }

    /// Touches `count` words, the first at `offset` and one every `stride` bytes.
    pub fn touch(&mut self, offset: usize, count: usize, stride: usize, mode: Mode, now: Stamp) -> Result<(), Error> {
        let ledger = &mut self.ledger;
        let offsets = (0..count).map(|n| offset + n * stride);
        match &self.store {
            Store::Mapped { map, first } => {
                for at in offsets {
                    let mut store = mode == Mode::Write;
                    if ledger.touch(at, now) {
                        match first {
                            First::Store => store = true,
                            First::Fetch(file) => {
                                file.read_exact_at(&mut [0; 8], at as u64).map_err(|e| failed(&self.spec, e))?;
                            }
                            First::Nothing => {}
                        }
                    }
                    if store {
                        map.store(at, at as u64 ^ u64::from(now));
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
                    // Not beyond the page, which is all that is accounted for.
                    let part = &mut buffer[..stride.min(PAGE - at % PAGE)];
                    let done = match mode {
                        Mode::Read => file.read_exact_at(part, at as u64),
                        Mode::Write => file.write_all_at(part, at as u64),
                    };
                    done.map_err(|e| failed(&self.spec, e))?;
                }
                Ok(())
            }
        }
    }

    /// What the pattern file says of it.
    pub fn spec(&self) -> &AreaSpec {
        &self.spec
    }

    /// The account of its touches.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Address of its first byte; 0 for a file that is not mapped, whose bytes are known by their offsets.
    pub fn start(&self) -> usize {
        match &self.store {
            Store::Mapped { map, .. } => map.start(),
            Store::File(_) => 0,
        }
    }

    /// Its file.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|f| f.0.as_path())
    }

    /// Bytes that were in huge pages after populating.
    pub fn huge_bytes(&self) -> usize {
        self.huge_bytes
    }
}

/// A failed touch. Not put into words before there is one: touches are many.
#[cold]
fn failed(spec: &AreaSpec, error: io::Error) -> Error {
    Error::io(format!("touching area {:?}", spec.name))(error)
}

/// Writes an area's file, of bytes that do not compress.
fn write_out(spec: &AreaSpec, dir: &Path) -> Result<(File, TempFile), Error> {
    let path = dir.join(format!("lowtide-pattern-{}-{}.data", std::process::id(), spec.name));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(Error::io(format!("creating {}", path.display())))?;
    let temp = TempFile(path);
    fill(&file, spec).map_err(Error::io(format!("writing {}", temp.0.display()))).map(|()| (file, temp))
}

fn fill(mut file: &File, spec: &AreaSpec) -> io::Result<()> {
    let mut rng = Rng::new(spec.size as u64);
    let mut page = [0; PAGE];
    // Page by page, as file systems make folios as large as the writes are; the kernel then keeps some of its marks of
    // access for a whole folio, and what is known of a page would not be what the kernel knows.
    for _ in 0..spec.size / PAGE {
        if sys::stop_requested() {
            break;
        }
        for word in page.chunks_exact_mut(8) {
            word.copy_from_slice(&rng.next().to_ne_bytes());
        }
        file.write_all(&page)?;
    }
    // A run that is stopped here must still find the pages it maps.
    file.set_len(spec.size as u64)?;
    file.sync_data()?;
    sys::advise_file(file, Advice::Random)?;
    if !spec.populate {
        // Written pages are in the page cache; an area that grows as it is touched begins without them.
        sys::advise_file(file, Advice::DontNeed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(backing: Backing, populate: bool) -> AreaSpec {
        AreaSpec { name: "a".into(), size: 1 << 20, backing, populate }
    }

    fn touched(area: &mut Area) -> usize {
        (0..256).filter(|page| !area.ledger.touch(page * PAGE, 1)).count()
    }

    #[test]
    fn populating_touches_every_page() {
        let dir = tempfile::tempdir().unwrap();
        for backing in [Backing::Anon, Backing::File, Backing::Read] {
            let mut area = Area::new(&spec(backing, true), dir.path()).unwrap();
            area.populate(sys::monotonic_ns()).unwrap();
            assert_eq!(touched(&mut area), 256, "{backing:?}");
            assert_eq!(area.start() == 0, backing == Backing::Read);
        }
    }

    #[test]
    fn an_area_may_grow_as_it_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        for backing in [Backing::Anon, Backing::File, Backing::Read] {
            let mut area = Area::new(&spec(backing, false), dir.path()).unwrap();
            area.populate(sys::monotonic_ns()).unwrap();
            area.touch(0, 10, 2 * PAGE, Mode::Read, 7).unwrap();
            area.touch(40 * PAGE + 8, 2, 1000, Mode::Write, 7).unwrap();
            assert_eq!(touched(&mut area), 11, "{backing:?}");
        }
    }

    #[test]
    fn files_are_removed_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let area = Area::new(&spec(Backing::File, true), dir.path()).unwrap();
        let path = area.path().unwrap().to_path_buf();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
        drop(area);
        assert!(!path.exists());
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = Area::new(&spec(Backing::File, true), Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().contains("/nowhere"), "{error}");
    }
}
