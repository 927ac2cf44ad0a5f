//! Page idle tracking: a bit for every frame that the kernel clears when the page is used
//! (Documentation/admin-guide/mm/idle_page_tracking.rst). Few distributions build it (`CONFIG_IDLE_PAGE_TRACKING`).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::root::{Error, Kernel, Result};

const PATH: &str = "/sys/kernel/mm/page_idle/bitmap";
/// Frames of one word; the kernel reads and writes entire words.
const WORD: u64 = 64;

/// The bitmap.
#[derive(Debug)]
pub struct IdleBitmap {
    file: File,
}

impl IdleBitmap {
    /// Opens it for reading and writing, which needs root.
    pub fn open(kernel: &Kernel) -> Result<Self> {
        let path = kernel.path(PATH);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|e| Error::new("open", PATH, e))?;
        Ok(Self { file })
    }

    /// Whether each of these frames has been left alone since it was marked. A frame beyond the last is not idle.
    pub fn idle(&self, frames: &[u64]) -> Result<Vec<bool>> {
        let mut idle = Vec::with_capacity(frames.len());
        for same in frames.chunk_by(|a, b| a / WORD == b / WORD) {
            let word = self.word(same[0])?;
            idle.extend(same.iter().map(|frame| word & bit(*frame) != 0));
        }
        Ok(idle)
    }

    /// Marks these frames idle. False for those that the kernel does not track: free, kernel memory, on no list; or used
    /// again at once.
    pub fn mark(&self, frames: &[u64]) -> Result<Vec<bool>> {
        let mut marked = Vec::with_capacity(frames.len());
        for same in frames.chunk_by(|a, b| a / WORD == b / WORD) {
            let bits = same.iter().fold(0, |bits, frame| bits | bit(*frame));
            // Bits that are 0 change nothing in the kernel; to mark again what is idle neither.
            let word = self.word(same[0])? | bits;
            match self.file.write_at(&word.to_ne_bytes(), offset(same[0])) {
                // ENXIO: beyond the last frame.
                Err(e) if e.raw_os_error() != Some(libc::ENXIO) => return Err(Error::new("write", PATH, e)),
                _ => {}
            }
            let word = self.word(same[0])?;
            marked.extend(same.iter().map(|frame| word & bit(*frame) != 0));
        }
        Ok(marked)
    }

    fn word(&self, frame: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        match self.file.read_at(&mut bytes, offset(frame)) {
            Ok(8) => Ok(u64::from_ne_bytes(bytes)),
            Ok(_) => Ok(0),
            Err(e) => Err(Error::new("read", PATH, e)),
        }
    }
}

fn bit(frame: u64) -> u64 {
    1 << (frame % WORD)
}

fn offset(frame: u64) -> u64 {
    frame / WORD * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_frames() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sys/kernel/mm/page_idle/bitmap");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, [0; 24]).unwrap();
        let bitmap = IdleBitmap::open(&Kernel::at(dir.path())).unwrap();
        let frames = [0, 63, 64, 130];
        assert_eq!(bitmap.idle(&frames).unwrap(), [false; 4]);
        assert_eq!(bitmap.mark(&frames).unwrap(), [true; 4]);
        assert_eq!(bitmap.idle(&[0, 1, 63, 64, 130]).unwrap(), [true, false, true, true, true]);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes[0], bytes[7], bytes[8], bytes[16]), (1, 0x80, 1, 4));
        assert_eq!(bitmap.idle(&[100_000]).unwrap(), [false], "beyond the last frame");
    }

    #[test]
    fn a_kernel_without_it_says_so() {
        let dir = tempfile::tempdir().unwrap();
        assert!(IdleBitmap::open(&Kernel::at(dir.path())).unwrap_err().is_gone());
    }
}
