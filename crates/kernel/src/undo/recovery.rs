//! Reading journals: what dead lowtides left is taken back, what live ones hold is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::folder::check_private;
use super::{Line, Undo};
use crate::error::if_there;
use crate::root::{Error, Kernel, Result};

/// What [`recover`] found.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Of processes that are dead.
    pub recovered: Vec<Recovered>,
    /// Of processes that live: they take back their changes themselves.
    pub live: Vec<LiveJournal>,
    /// Why a journal could not be read to its end: what it lists may be left.
    pub unread: Vec<Error>,
}

/// The journal of a process that lives.
#[derive(Debug)]
pub struct LiveJournal {
    /// Its pid.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// What it could not take back so far.
    pub owed: Vec<Undo>,
}

/// What [`recover`] did about one dead process' journal.
#[derive(Debug)]
pub struct Recovered {
    /// The pid it had.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// What was taken back, or why it could not be.
    pub undone: Vec<(Undo, Result<()>)>,
}

/// Takes back what dead lowtides left. Journals of live ones are locked, and left alone. Fails if the folder is another user's.
pub fn recover(kernel: &Kernel, folder: &Path) -> Result<Recovery> {
    let mut all = Recovery::default();
    let check = || if_there(folder, check_private(folder));
    // The first lowtide of a machine may make it just now: it was missing, and is there. So it is checked again.
    if check().or_else(|error| if error.is_gone() { check() } else { Err(error) })?.is_none() {
        return Ok(all);
    }
    let list = |error| Error::new("list", folder, error);
    for entry in std::fs::read_dir(folder).map_err(list)? {
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(error) => {
                all.unread.push(list(error));
                continue;
            }
        };
        if path.extension().is_some_and(|extension| extension == "journal")
            && let Err(error) = recover_one(kernel, folder, &path, &mut all)
        {
            all.unread.push(error);
        }
    }
    Ok(all)
}

/// Takes back what one journal lists, if its process is dead. Fails if it cannot be read.
fn recover_one(kernel: &Kernel, folder: &Path, path: &Path, all: &mut Recovery) -> Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
    let opened = options.open(path).map_err(|error| Error::new("open", path, error));
    // Another that recovers may have removed it.
    let Some(file) = if_there(path, opened)? else {
        return Ok(());
    };
    let is_live =
        is_held(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| Error::new("lock", path, error))?;
    // Another that recovers may have removed it between these two calls, and a new journal may have its name.
    if !is_named(&file, path).map_err(|error| Error::new("find", path, error))? {
        return Ok(());
    }
    let (Contents { owner, mut open, owed }, end) = read(&file);
    let (pid, command) = owner.unwrap_or_default();
    if is_live {
        // One that recovers it has the lock for a moment, too.
        let owed = owed.iter().filter_map(|id| open.remove(id)).collect();
        all.live.push(LiveJournal { pid, command, owed });
        return Ok(());
    }
    let undo = |undo: Undo| {
        // A live owner of DAMON holds the folder's lock.
        let damon_is_held =
            || File::open(folder).and_then(|folder| is_held(&folder, FlockOperation::NonBlockingLockExclusive));
        let held = if undo.is_exclusive() { damon_is_held() } else { Ok(false) };
        let result = match held {
            Ok(true) => Ok(()),
            Ok(false) => undo.apply(kernel),
            Err(error) => Err(Error::new("lock", folder, error)),
        };
        (undo, result)
    };
    let undone: Vec<_> = open.into_values().rev().map(undo).collect();
    // What could not be read may list more.
    if end.is_ok() && undone.iter().all(|(_, result)| result.is_ok()) {
        let _ = std::fs::remove_file(path);
    }
    if !undone.is_empty() {
        all.recovered.push(Recovered { pid, command, undone });
    }
    end.map_err(|error| Error::new("read", path, error))
}

/// Whether another process holds the lock of an open file; else, this one has it now, as it asked for it.
pub(super) fn is_held(file: &File, lock: FlockOperation) -> std::io::Result<bool> {
    match rustix::io::retry_on_intr(|| flock(file, lock)) {
        Ok(()) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Whether an open file is the one of that name.
pub(super) fn is_named(file: &File, path: &Path) -> std::io::Result<bool> {
    let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    match std::fs::metadata(path) {
        Ok(named) => Ok(identity(file.metadata()?) == identity(named)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Contents of a journal.
#[derive(Default)]
pub(super) struct Contents {
    /// Pid and command line.
    pub owner: Option<(u32, String)>,
    /// Leases that were not given back, by number: the order in which they were taken.
    pub open: BTreeMap<u64, Undo>,
    /// Numbers of those that could not be.
    pub owed: BTreeSet<u64>,
}

/// A journal has at most so many bytes that are read: some hundred thousand lines.
const LONGEST: u64 = 64 << 20;

/// What can be read of a journal counts; and why that is not all of it.
pub(super) fn read(file: &File) -> (Contents, std::io::Result<()>) {
    let mut bytes = Vec::new();
    let end = file.take(LONGEST).read_to_end(&mut bytes).map(drop);
    (parse(&bytes), end)
}

fn parse(bytes: &[u8]) -> Contents {
    let mut contents = Contents::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        // A line cut short by a kill, or by a full disk, was written before its change was made. No part of one is a line.
        match serde_json::from_slice(line) {
            Ok(Line::Owner { pid, command }) => contents.owner = Some((pid, command)),
            Ok(Line::Taken { id, undo }) => drop(contents.open.insert(id, undo)),
            Ok(Line::Given { id }) => drop(contents.open.remove(&id)),
            Ok(Line::Owed { id }) => drop(contents.owed.insert(id)),
            Err(_) => {}
        }
    }
    contents
}

/// What the owner of a journal with these contents has not given back, oldest first.
pub fn outstanding(bytes: &[u8]) -> Vec<Undo> {
    parse(bytes).open.into_values().collect()
}

/// Whether the process with this number has a journal that is locked.
pub fn is_in_use(folder: &Path, pid: u32) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let names = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{pid}.")));
    names.filter_map(|entry| File::open(entry.path()).ok()).any(|file| is_locked(&file))
}

/// Whether its owner lives: it keeps the file locked until its end.
fn is_locked(file: &File) -> bool {
    is_held(file, FlockOperation::NonBlockingLockShared).unwrap_or(true)
}

/// The live lowtide that holds a lease of DAMON, as pid and command line.
pub fn damon_holder(folder: &Path) -> Option<(u32, String)> {
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let Ok(file) = File::open(entry.path()) else { continue };
        if !is_locked(&file) {
            continue;
        }
        let (Contents { owner, open, .. }, _) = read(&file);
        if open.values().any(Undo::is_exclusive) {
            return owner;
        }
    }
    None
}
