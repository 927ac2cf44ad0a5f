//! The lock of a record: an advisory lock that the kernel releases when its holder dies.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::LOCK;
use super::error::{Result, StoreError};

/// What the holder of the lock writes into it, so that others know how long to expect it to last.
const FINISHING: &str = "finishing\n";

/// The lock, held until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Not by closing the file alone: a process that another thread starts has this one's files until it runs its program.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// What a killed holder was starting has its files, and the lock, until it runs its program. So the lock is tried for again, so many
/// times.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);

/// What trying for the lock gave.
pub(super) enum Try {
    /// It is ours.
    Held(Lock),
    /// A recorder has it.
    Recording,
    /// There is no lock file and none could be made: no process of this machine works on the record.
    Unlockable,
}

impl Lock {
    /// Locks a new record for recording.
    pub(super) fn record(dir: &Path) -> Result<Self> {
        let path = dir.join(LOCK);
        let file = options().write(true).create_new(true).open(&path);
        let file = file.map_err(|error| StoreError::write(&path, error))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| StoreError::write(&path, error.into()))?;
        Ok(Self { file })
    }

    /// Takes the lock to finish a record. Waits for another process that finishes it: that takes seconds.
    pub(super) fn finish(dir: &Path) -> Result<Try> {
        let path = dir.join(LOCK);
        let Ok(mut file) = options().read(true).write(true).create(true).truncate(false).open(&path) else {
            return Ok(Try::Unlockable);
        };
        if !acquire(&mut file, FlockOperation::NonBlockingLockExclusive, FlockOperation::LockExclusive)
            .map_err(|error| StoreError::read(&path, error.into()))?
        {
            return Ok(Try::Recording);
        }
        let mut lock = Self { file };
        // The word only makes other readers wait; without it they report a record in progress.
        let _ = lock
            .file
            .set_len(0)
            .and_then(|()| lock.file.rewind())
            .and_then(|()| lock.file.write_all(FINISHING.as_bytes()));
        Ok(Try::Held(lock))
    }

    /// Takes a shared lock to read: while it is held no process finishes the record.
    pub(super) fn read(dir: &Path) -> Result<Try> {
        let path = dir.join(LOCK);
        let Ok(mut file) = options().read(true).open(&path) else { return Ok(Try::Unlockable) };
        let got = acquire(&mut file, FlockOperation::NonBlockingLockShared, FlockOperation::LockShared)
            .map_err(|error| StoreError::read(&path, error.into()))?;
        Ok(if got { Try::Held(Self { file }) } else { Try::Recording })
    }
}

/// How a lock file is opened: a record may be in the folder of another user, who could have put a link there.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Tries for the lock; waits where it will be free within seconds. False: a recorder has it.
fn acquire(file: &mut File, attempt: FlockOperation, wait: FlockOperation) -> rustix::io::Result<bool> {
    for _ in 0..TRIES {
        match flock(&*file, attempt) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(BETWEEN_TRIES),
            Err(error) => return Err(error),
        }
    }
    // Readers share the lock; recording and finishing do not.
    let only_readers = flock(&*file, FlockOperation::NonBlockingLockShared).is_ok();
    let mut word = String::new();
    let finishing = file.rewind().and_then(|()| file.read_to_string(&mut word)).is_ok() && word == FINISHING;
    if only_readers || finishing {
        flock(&*file, wait)?;
        return Ok(true);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_dropped_is_released_for_who_else_has_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::record(dir.path()).unwrap();
        // As a process that is being started has it.
        let inherited = lock.file.try_clone().unwrap();
        assert!(matches!(Lock::finish(dir.path()).unwrap(), Try::Recording));
        drop(lock);
        assert!(matches!(Lock::finish(dir.path()).unwrap(), Try::Held(_)));
        drop(inherited);
    }
}
