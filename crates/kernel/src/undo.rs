//! The undo journal: everything lowtide changes in the kernel is a lease, written down before it is taken.
//!
//! A journal is one file per process, locked as long as the process lives. Leases are given back when they are
//! dropped (normal end, error, signal). After a `kill -9` the lock is free and the file still there: the next lowtide,
//! or `lowtide recover`, gives back what it lists.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::root::{Error, Kernel, Result, chosen};

mod folder;
mod recovery;

pub use folder::{folder, make_private, run_folder};
pub use recovery::{LiveJournal, Recovered, Recovery, damon_holder, is_in_use, outstanding, recover};
use recovery::{is_held, is_named};

/// A kind of change to the kernel: what must be known to take it back.
pub trait KernelChange: Serialize + DeserializeOwned {
    /// Its name in journals.
    const KIND: &'static str;
    /// Only one lowtide can have made it, the one that holds [`Journal::lock_damon`]: another that holds it by now has found nothing left.
    const IS_EXCLUSIVE: bool = false;

    /// What was left in the kernel, for people.
    fn describe(&self) -> String;
    /// Takes the change back. One that is not there any more counts as taken back.
    fn take_back(&self, kernel: &Kernel) -> Result<()>;
}

/// How one change is undone, as stored in journals: `{"KIND": {...}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Undo(BTreeMap<String, Value>);

impl Undo {
    fn of<C: KernelChange>(change: &C) -> serde_json::Result<Self> {
        Ok(Self(BTreeMap::from([(C::KIND.to_owned(), serde_json::to_value(change)?)])))
    }

    /// Its kind, and what must be known; `None` where a later lowtide wrote it.
    fn known(&self) -> Option<(&'static Kind, &Value)> {
        let (name, how) = self.0.first_key_value()?;
        Some((KINDS.iter().find(|kind| kind.name == name)?, how))
    }

    fn is_exclusive(&self) -> bool {
        self.known().is_some_and(|(kind, _)| kind.is_exclusive)
    }

    fn apply(&self, kernel: &Kernel) -> Result<()> {
        let unknown = || Error::unexpected("journal", "a change that this lowtide does not know");
        let (kind, how) = self.known().ok_or_else(unknown)?;
        (kind.take_back)(kernel, how)
    }
}

impl Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.known().and_then(|(kind, how)| (kind.describe)(how));
        f.write_str(&words.unwrap_or_else(|| format!("a change of an unknown kind: {:?}", self.0)))
    }
}

/// A row of [`KINDS`].
struct Kind {
    name: &'static str,
    is_exclusive: bool,
    take_back: fn(&Kernel, &Value) -> Result<()>,
    describe: fn(&Value) -> Option<String>,
}

impl Kind {
    const fn of<C: KernelChange>() -> Self {
        Self {
            name: C::KIND,
            is_exclusive: C::IS_EXCLUSIVE,
            take_back: |kernel, how| {
                let change = C::deserialize(how).map_err(|error| Error::new("read", "journal", error))?;
                change.take_back(kernel)
            },
            describe: |how| Some(C::deserialize(how).ok()?.describe()),
        }
    }
}

/// A kernel file that was written: the old value is written back.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Written {
    path: PathBuf,
    old: String,
}

impl KernelChange for Written {
    const KIND: &'static str = "write";

    fn describe(&self) -> String {
        format!("another value in {} (it held '{}')", self.path.display(), self.old)
    }

    fn take_back(&self, kernel: &Kernel) -> Result<()> {
        // Files that list all values with the chosen one in brackets take that one alone.
        let written = kernel.write(&self.path, chosen(&self.old).unwrap_or(&self.old));
        kernel.if_there(&self.path, written).map(drop)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Owner {
        pid: u32,
        command: String,
    },
    Taken {
        id: u64,
        undo: Undo,
    },
    Given {
        id: u64,
    },
    /// It could not be given back when it was to be, and is tried again.
    Owed {
        id: u64,
    },
}

/// All kinds of changes. A new one is a [`KernelChange`] beside the code that makes it, and a line here.
static KINDS: [Kind; 6] = [
    Kind::of::<Written>(),
    Kind::of::<crate::cgroup::Made>(),
    Kind::of::<crate::damon::Taken>(),
    Kind::of::<crate::trace::Instance>(),
    Kind::of::<crate::grant::Stopped>(),
    Kind::of::<crate::zram::Device>(),
];

#[derive(Debug)]
struct Inner {
    kernel: Kernel,
    file: Mutex<File>,
    path: PathBuf,
    next: std::sync::atomic::AtomicU64,
    /// Changes that could not be taken back when they were to be.
    owed: Mutex<Vec<(u64, Undo)>>,
}

/// This process' journal.
#[derive(Debug, Clone)]
pub struct Journal(Arc<Inner>);

/// A change that is taken back when this is dropped.
#[derive(Debug)]
pub struct Lease {
    journal: Journal,
    id: u64,
    /// `None` once it is taken back.
    undo: Option<Undo>,
}

impl Journal {
    /// Opens a journal in `folder` for this process: `PID.journal`, or `PID.2.journal` where a dead process that had the same
    /// pid left one that cannot be taken back.
    pub fn open(kernel: Kernel, folder: &Path) -> Result<Self> {
        make_private(folder)?;
        let pid = std::process::id();
        let mut path = folder.join(format!("{pid}.journal"));
        let mut number = 1;
        let file = loop {
            match OpenOptions::new().create_new(true).append(true).mode(0o600).open(&path) {
                Ok(file) => {
                    // Another lowtide that recovers may hold the lock of a journal this new, and removes it as one without leases.
                    retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))
                        .map_err(|e| Error::new("lock", &path, e))?;
                    if is_named(&file, &path).map_err(|error| Error::new("find", &path, error))? {
                        break file;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    number += 1;
                    path = folder.join(format!("{pid}.{number}.journal"));
                }
                Err(error) => return Err(Error::new("make", &path, error)),
            }
        };
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        let journal =
            Self(Arc::new(Inner { kernel, file: Mutex::new(file), path, next: 0.into(), owed: Mutex::default() }));
        journal.0.append(&Line::Owner { pid, command })?;
        Ok(journal)
    }

    /// Takes DAMON for this process, among lowtides: the kernel does not know whose kdamonds are, and between a check
    /// and taking them another could. Held as long as the file is open.
    pub(crate) fn lock_damon(&self) -> Result<File> {
        // The folder itself is locked: a lock file would be left behind.
        let path = self.0.path.parent().unwrap_or(Path::new("/"));
        let file = File::open(path).map_err(|e| Error::new("lock", path, e))?;
        match is_held(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(false) => Ok(file),
            Ok(true) => Err(Error::os("lock", path, libc::EBUSY)),
            Err(error) => Err(Error::new("lock", path, error)),
        }
    }

    /// Writes down how a change that is about to be made is taken back.
    pub fn lease<C: KernelChange>(&self, change: &C) -> Result<Lease> {
        let undo = Undo::of(change).map_err(|e| Error::new("write", &self.0.path, e))?;
        let id = self.0.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.0.append(&Line::Taken { id, undo: undo.clone() })?;
        Ok(Lease { journal: self.clone(), id, undo: Some(undo) })
    }

    /// Whether something could not be taken back yet.
    pub fn owes(&self) -> bool {
        !self.0.owed.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Tries again to take back what could not be taken back when it was to be: how many changes are left. To be called while
    /// there is hope, such as once a turn.
    pub fn retry(&self) -> usize {
        self.0.retry()
    }

    /// Writes `value` to a kernel file and takes it back later.
    pub fn write(&self, path: &Path, value: &str) -> Result<Lease> {
        let old = self.0.kernel.read_text(path)?;
        let lease = self.keep(path, old.trim_end())?;
        self.0.kernel.write(path, value)?;
        Ok(lease)
    }

    /// Writes down the value of a kernel file that is about to be written.
    pub fn keep(&self, path: &Path, old: &str) -> Result<Lease> {
        self.lease(&Written { path: path.to_path_buf(), old: old.to_owned() })
    }
}

impl Inner {
    fn append(&self, line: &Line) -> Result<()> {
        let text = serde_json::to_string(line).map_err(|e| Error::new("write", &self.path, e))?;
        // What is left of a line that could not be written as a whole must not become a part of the next.
        let text = format!("\n{text}\n");
        let mut file: MutexGuard<'_, File> = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(text.as_bytes()).map_err(|e| Error::new("write", &self.path, e))
    }

    /// See [`Journal::retry`].
    fn retry(&self) -> usize {
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        owed.retain(|(id, undo)| {
            let taken_back = undo.apply(&self.kernel).is_ok();
            if taken_back {
                // Where this cannot be written, it is taken back once more after the end.
                let _ = self.append(&Line::Given { id: *id });
            }
            !taken_back
        });
        owed.len()
    }
}

impl Drop for Inner {
    /// All leases hold a clone of the journal, so the last one gone means nothing is left to give back but what could not be.
    fn drop(&mut self) {
        if self.retry() == 0 {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Lease {
    /// Takes the change back now.
    pub fn give_back(mut self) -> Result<()> {
        self.undo_now()
    }

    /// Writes down more of what is taken back, now that it is known: whatever has its name later is not it.
    pub(crate) fn identify<C: KernelChange>(&mut self, change: &C) -> Result<()> {
        let undo = Undo::of(change).map_err(|e| Error::new("write", &self.journal.0.path, e))?;
        self.journal.0.append(&Line::Taken { id: self.id, undo: undo.clone() })?;
        self.undo = Some(undo);
        Ok(())
    }

    /// Takes nothing back: the change was not made.
    pub(crate) fn withdraw(mut self) {
        self.undo = None;
        // Where this cannot be written, what has no identity is not taken for its own.
        let _ = self.journal.0.append(&Line::Given { id: self.id });
    }

    fn undo_now(&mut self) -> Result<()> {
        let Some(undo) = &self.undo else { return Ok(()) };
        undo.apply(&self.journal.0.kernel)?;
        self.undo = None;
        self.journal.0.append(&Line::Given { id: self.id })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Err(error) = self.undo_now() {
            let Some(undo) = self.undo.take() else { return };
            let _ = self.journal.0.append(&Line::Owed { id: self.id });
            self.journal.0.owed.lock().unwrap_or_else(PoisonError::into_inner).push((self.id, undo));
            // Drop cannot return it, and what is left in the kernel must not go unsaid.
            crate::message!("lowtide: a change to the kernel could not be taken back yet: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::recovery::read;
    use super::*;

    fn knob(root: &Path) -> (Kernel, PathBuf) {
        std::fs::create_dir_all(root.join("sys")).unwrap();
        std::fs::write(root.join("sys/knob"), "old\n").unwrap();
        (Kernel::at(root), "/sys/knob".into())
    }

    /// A knob, and a journal beside it in a folder.
    fn opened(root: &Path) -> (Kernel, PathBuf, PathBuf, Journal) {
        let (kernel, path) = knob(root);
        let run = root.join("run");
        let journal = Journal::open(kernel.clone(), &run).unwrap();
        (kernel, path, run, journal)
    }

    #[test]
    fn a_lease_is_given_back_on_drop_and_the_journal_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (kernel, path, run, journal) = opened(dir.path());
        let lease = journal.write(&path, "new").unwrap();
        assert_eq!(kernel.read_text(&path).unwrap(), "new\n");
        drop(lease);
        assert!(kernel.read_text(&path).unwrap().starts_with("old"));
        drop(journal);
        assert_eq!(std::fs::read_dir(&run).unwrap().count(), 0);
    }

    #[test]
    fn of_a_list_the_chosen_value_is_written_back() {
        let dir = tempfile::tempdir().unwrap();
        let (kernel, path) = knob(dir.path());
        std::fs::write(dir.path().join("sys/knob"), "always [madvise] never\n").unwrap();
        let journal = Journal::open(kernel.clone(), &dir.path().join("run")).unwrap();
        drop(journal.write(&path, "always").unwrap());
        assert!(kernel.read_text(&path).unwrap().starts_with("madvise"));
    }

    #[test]
    fn what_is_said_to_be_gone_and_is_there_is_owed() {
        let dir = tempfile::tempdir().unwrap();
        let (kernel, path, _, journal) = opened(dir.path());
        let lease = journal.write(&path, "new").unwrap();
        // A link that leads nowhere: to open it fails as if there were none.
        let (file, aside) = (dir.path().join("sys/knob"), dir.path().join("sys/aside"));
        std::fs::rename(&file, &aside).unwrap();
        std::os::unix::fs::symlink("nowhere", &file).unwrap();
        assert!(lease.give_back().unwrap_err().is_gone());
        std::fs::rename(&aside, &file).unwrap();
        journal.retry();
        assert!(kernel.read_text(&path).unwrap().starts_with("old"));
        let lease = journal.write(&path, "new").unwrap();
        std::fs::remove_file(&file).unwrap();
        lease.give_back().unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_taken_back_in_reverse() {
        let dir = tempfile::tempdir().unwrap();
        let (kernel, path, run, journal) = opened(dir.path());
        let first = journal.write(&path, "one").unwrap();
        let second = journal.write(&path, "two").unwrap();
        let beside = recover(&kernel, &run).unwrap();
        assert!(beside.recovered.is_empty(), "the journal of a live process is left alone");
        assert_eq!((beside.live[0].pid, beside.live[0].owed.len()), (std::process::id(), 0));
        // As after kill -9: the file stays, its lock goes with the process, nothing is dropped.
        let text = std::fs::read_to_string(&journal.0.path).unwrap();
        std::mem::forget((first, second));
        std::fs::write(run.join("99999.journal"), text + "{\"taken\":{\"id\":7,\"und").unwrap();
        let recovered = recover(&kernel, &run).unwrap().recovered;
        assert_eq!(recovered.len(), 1);
        assert_eq!(recovered[0].undone.len(), 2);
        assert!(kernel.read_text(&path).unwrap().starts_with("old"));
        assert!(!run.join("99999.journal").exists());
    }

    /// What keeps the knob from being written, and no longer.
    fn stick(root: &Path) -> impl Fn(bool) {
        let place = root.to_path_buf();
        // A folder cannot be written to as a file, not even by root.
        move |stuck: bool| {
            let (knob, aside) = (place.join("sys/knob"), place.join("sys/aside"));
            if stuck {
                std::fs::rename(&knob, aside).unwrap();
                std::fs::create_dir(knob).unwrap();
            } else {
                std::fs::remove_dir(&knob).unwrap();
                std::fs::rename(aside, knob).unwrap();
            }
        }
    }

    #[test]
    fn what_could_not_be_taken_back_is_tried_again_and_reported_until_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (kernel, path, run, journal) = opened(dir.path());
        let stick = stick(dir.path());
        let lease = journal.write(&path, "new").unwrap();
        stick(true);
        drop(lease);
        assert_eq!(journal.retry(), 1);
        let beside = recover(&kernel, &run).unwrap();
        assert!(beside.recovered.is_empty());
        assert_eq!(beside.live[0].owed.len(), 1, "another lowtide can report it");
        stick(false);
        assert_eq!(journal.retry(), 0);
        assert!(kernel.read_text(&path).unwrap().starts_with("old"));
        assert!(recover(&kernel, &run).unwrap().live[0].owed.is_empty());
        drop(journal);
        assert_eq!(std::fs::read_dir(&run).unwrap().count(), 0);
    }

    #[test]
    fn what_a_process_could_not_take_back_until_its_end_is_left_to_recover() {
        let dir = tempfile::tempdir().unwrap();
        let (kernel, path, run, journal) = opened(dir.path());
        let stick = stick(dir.path());
        let lease = journal.write(&path, "new").unwrap();
        stick(true);
        assert!(lease.give_back().is_err());
        drop(journal);
        assert!(recover(&kernel, &run).unwrap().recovered[0].undone[0].1.is_err());
        stick(false);
        assert!(recover(&kernel, &run).unwrap().recovered[0].undone[0].1.is_ok());
        assert!(kernel.read_text(&path).unwrap().starts_with("old"));
    }

    #[test]
    fn a_journal_that_cannot_be_read_is_reported_and_holds_up_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (kernel, path, run, journal) = opened(dir.path());
        std::mem::forget(journal.write(&path, "new").unwrap());
        // A dead process holds no lock: its journal, as it left it, in another folder.
        let left = dir.path().join("left");
        make_private(&left).unwrap();
        std::fs::copy(&journal.0.path, left.join("7.journal")).unwrap();
        std::fs::create_dir(left.join("6.journal")).unwrap();
        let recovery = recover(&kernel, &left).unwrap();
        assert_eq!((recovery.unread.len(), recovery.recovered.len()), (1, 1), "{recovery:?}");
        assert!(recovery.unread[0].to_string().contains("6.journal"), "{recovery:?}");
        assert!(recover(&kernel, &run).unwrap().unread.is_empty());
    }

    #[test]
    fn a_line_that_was_cut_short_swallows_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (_, path, _, journal) = opened(dir.path());
        // As where a disk was full for a moment.
        journal.0.file.lock().unwrap().write_all(b"{\"taken\":{\"id\":7,\"und\xff").unwrap();
        let lease = journal.write(&path, "new").unwrap();
        let (contents, _) = read(&File::open(&journal.0.path).unwrap());
        assert_eq!(contents.open.len(), 1);
        drop(lease);
    }

    proptest::proptest! {
        /// Cut anywhere, a journal lists the leases whose lines are whole, and no other.
        #[test]
        fn a_journal_cut_anywhere_is_read(cut in 0usize..4000, garbage in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40)) {
            let dir = tempfile::tempdir().unwrap();
            let (kernel, path) = knob(dir.path());
            let journal = Journal::open(kernel, &dir.path().join("run")).unwrap();
            let leases: Vec<Lease> = (0..4).map(|value| journal.write(&path, &value.to_string()).unwrap()).collect();
            let mut bytes = std::fs::read(&journal.0.path).unwrap();
            bytes.truncate(cut);
            let whole = bytes.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{\"taken") && line.ends_with(b"}}}}"));
            let whole = whole.count();
            bytes.extend_from_slice(&garbage);
            let cut = dir.path().join("cut");
            std::fs::write(&cut, bytes).unwrap();
            let open = read(&File::open(cut).unwrap()).0.open.len();
            proptest::prop_assert!(open <= whole + 1 && (open >= whole || !garbage.is_empty()));
            drop(leases);
        }
    }

    #[test]
    fn the_folder_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("a/run");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let journal = Journal::open(Kernel::default(), &run).unwrap();
        assert_eq!((mode(&run), mode(&journal.0.path)), (0o700, 0o600));
        drop(journal);
        // As a lowtide under another umask left it.
        std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o777)).unwrap();
        drop(Journal::open(Kernel::default(), &run).unwrap());
        assert_eq!(mode(&run), 0o700);
        // A link to a folder of somebody's.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&run, &link).unwrap();
        assert!(Journal::open(Kernel::default(), &link).is_err());
        assert!(recover(&Kernel::default(), &link).is_err());
        std::os::unix::fs::symlink(dir.path().join("a"), dir.path().join("above")).unwrap();
        assert!(Journal::open(Kernel::default(), &dir.path().join("above/run")).is_err());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&run, Some(65_534), None).unwrap();
            let error = Journal::open(Kernel::default(), &run).unwrap_err().to_string();
            assert!(error.contains("of user 65534; remove it"), "{error}");
            assert!(recover(&Kernel::default(), &run).is_err());
        }
        assert!(recover(&Kernel::default(), &dir.path().join("none")).unwrap().live.is_empty());
    }

    #[test]
    fn journals_that_are_opened_beside_recoveries_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (kernel, run) = (Kernel::at(dir.path()), dir.path().join("run"));
        std::fs::create_dir(&run).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        recover(&kernel, &run).unwrap();
                    }
                });
            }
            for _ in 0..2_000 {
                let journal = Journal::open(kernel.clone(), &run).unwrap();
                assert!(journal.0.path.exists());
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn the_first_two_on_a_machine_may_start_at_once() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..1000 {
            let run = dir.path().join(round.to_string()).join("undo");
            let start = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    make_private(&run).unwrap();
                });
                start.wait();
                recover(&Kernel::at(dir.path()), &run).unwrap();
            });
        }
    }

    #[test]
    fn a_journal_that_was_left_under_the_same_pid_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let name = |suffix: &str| dir.path().join(format!("{}{suffix}", std::process::id()));
        std::fs::write(name(".journal"), "left").unwrap();
        let journal = Journal::open(Kernel::default(), dir.path()).unwrap();
        assert_eq!(journal.0.path, name(".2.journal"));
        assert_eq!(std::fs::read_to_string(name(".journal")).unwrap(), "left");
    }

    /// Journals that an older lowtide left, one line of each kind.
    #[test]
    fn every_kind_is_read_and_described() {
        for (text, words) in [
            (r#"{"write":{"path":"/sys/knob","old":"was"}}"#, "another value in /sys/knob (it held 'was')"),
            (r#"{"cgroup":{"path":"/cg/x","parent":"/cg"}}"#, "the cgroup /cg/x"),
            (r#"{"damon":{"kdamonds":0,"contexts":[]}}"#, "DAMON switched on"),
            (r#"{"trace_instance":{"name":"lowtide-7"}}"#, "the trace instance lowtide-7"),
            (r#"{"stopped":{"process":{"pid":7,"start_ticks":9}}}"#, "process 7 stopped"),
            (r#"{"zram":{"device":3}}"#, "swap on /dev/zram3"),
            (r#"{"later":{}}"#, "a change of an unknown kind"),
        ] {
            let undo: Undo = serde_json::from_str(text).unwrap();
            assert!(undo.to_string().starts_with(words), "{undo}");
            let again = serde_json::to_string(&undo).unwrap();
            assert_eq!(serde_json::from_str::<Undo>(&again).unwrap(), undo);
        }
    }
}
