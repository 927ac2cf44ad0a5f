//! zram: a swap device of compressed memory (Documentation/admin-guide/blockdev/zram.rst).
//!
//! A device of lowtide's own is hot-added, used as swap and hot-removed again; devices that were there are left alone.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use lowtide_model::PAGE;
use lowtide_model::units::{float, integer};

use serde::{Deserialize, Serialize};

use crate::root::{Error, Kernel, Result, UnlessGone, chosen, while_busy};
use crate::swap::{self, SwapDevice};
use crate::sys;
use crate::undo::{Journal, KernelChange, Lease};

const CONTROL: &str = "/sys/class/zram-control";

/// Configuration of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZramSetup {
    /// Bytes that it holds, before compression.
    pub bytes: u64,
    /// How it compresses; the kernel's default if `None`.
    pub algorithm: Option<String>,
    /// Which swap device is filled first: 0..=32767, the highest.
    pub priority: u16,
}

/// Bytes that a device holds and takes; the first four fields of `mm_stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZramUsage {
    /// Stored, before compression.
    pub original: u64,
    /// Stored, after compression.
    pub compressed: u64,
    /// Taken from memory, with the allocator's waste and its own data.
    pub used: u64,
    /// May be taken from memory at most; 0 = no bound.
    pub limit: u64,
}

/// Parses `mm_stat`.
pub fn parse_mm_stat(text: &str) -> Option<ZramUsage> {
    let mut words = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    let (original, compressed, used) = (words.next()??, words.next()??, words.next()??);
    Some(ZramUsage { original, compressed, used, limit: words.next()?? })
}

/// Bytes of a device's own table for each page that it can hold (`struct zram_table_entry`, drivers/block/zram/zram_drv.h).
const TABLE_ENTRY: u64 = 16;

/// What all zram devices that are swapped to hold and take, with their tables; `None` if there are none.
pub fn in_use(kernel: &Kernel) -> Option<ZramUsage> {
    let mut sum = None;
    for swap in swap::devices(kernel).ok()? {
        let Some(name) = swap.zram_name() else { continue };
        let text = kernel.read_text(format!("/sys/block/{name}/mm_stat")).unwrap_or_default();
        let Some(usage) = parse_mm_stat(&text) else { continue };
        let all: &mut ZramUsage = sum.get_or_insert_default();
        all.original += usage.original;
        all.compressed += usage.compressed;
        all.used += usage.used + swap.bytes / PAGE * TABLE_ENTRY;
    }
    sum
}

/// So much must be stored for a ratio, bytes.
const TELLING: u64 = 4 << 20;

/// Bytes that swap devices can still take. A zram device may have a bound on the memory that it takes, beyond which the kernel's
/// writes fail: then as much as would fit if it is compressed as what is there is.
pub fn room(kernel: &Kernel, swaps: &[SwapDevice]) -> u64 {
    swaps.iter().map(|swap| room_of(kernel, swap)).sum()
}

fn room_of(kernel: &Kernel, swap: &SwapDevice) -> u64 {
    let usage = || parse_mm_stat(&kernel.read_text(format!("/sys/block/{}/mm_stat", swap.zram_name()?)).ok()?);
    let Some(usage) = usage().filter(|usage| usage.limit > 0) else { return swap.free() };
    let ratio = if usage.original < TELLING { 1.0 } else { float(usage.original) / float(usage.used.max(1)) };
    swap.free().min(integer(ratio * float(usage.limit.saturating_sub(usage.used))))
}

/// The zram devices there are, with the bytes each holds at most (0: not set up).
pub fn devices(kernel: &Kernel) -> Vec<(String, u64)> {
    let names = kernel.list("/sys/block").unwrap_or_default();
    names
        .into_iter()
        .filter(|name| name.strip_prefix("zram").is_some_and(|number| number.parse::<u32>().is_ok()))
        .map(|name| {
            let bytes = kernel.read_number(format!("/sys/block/{name}/disksize")).unwrap_or(0);
            (name, bytes)
        })
        .collect()
}

/// The compressors that this kernel offers for a new device, as an existing device lists them; none is known if there
/// is none.
pub fn algorithms(kernel: &Kernel) -> Vec<String> {
    let text = devices(kernel)
        .first()
        .and_then(|(name, _)| kernel.read_text(format!("/sys/block/{name}/comp_algorithm")).ok())
        .unwrap_or_default();
    text.split_whitespace().map(|name| name.trim_matches(['[', ']']).to_owned()).collect()
}

/// A zram device of lowtide's own that is swapped to; taken down when this is dropped.
#[derive(Debug)]
pub struct Zram {
    kernel: Kernel,
    device: u32,
    lease: Lease,
}

impl Zram {
    /// Adds a device, sets it up and swaps to it, under lease.
    pub fn swap_on(kernel: &Kernel, journal: &Journal, setup: &ZramSetup) -> Result<Self> {
        if !kernel.is_running() || kernel.is_dry_run() {
            return Err(Error::missing("add", CONTROL, "swap can be switched on in the running kernel only"));
        }
        // Reading the file is what adds the device, so its number can be written down only afterwards. Killed in
        // between, lowtide leaves a device that is not set up and takes no memory.
        let number = kernel.read_number(format!("{CONTROL}/hot_add"))?;
        let device = u32::try_from(number).map_err(|e| Error::new("add", CONTROL, std::io::Error::other(e)))?;
        let lease = sequence(kernel, device).and_then(|sequence| journal.lease(&Device { device, sequence }));
        let lease = match lease {
            Ok(lease) => lease,
            Err(error) => {
                remove(kernel, device)?;
                return Err(error);
            }
        };
        let zram = Self { kernel: kernel.clone(), device, lease };
        if let Some(algorithm) = &setup.algorithm {
            kernel.write(zram.file("comp_algorithm"), algorithm)?;
        }
        kernel.write(zram.file("disksize"), &setup.bytes.to_string())?;
        zram.write_header(setup.bytes / PAGE)?;
        let node = zram.node();
        sys::swap_on(&node, setup.priority).map_err(|e| Error::new("swap to", node, e))?;
        Ok(zram)
    }

    /// Makes it a swap area: the kernel's `union swap_header` (include/linux/swap.h), version 1, no bad pages.
    fn write_header(&self, pages: u64) -> Result<()> {
        let node = self.node();
        let fail = |e| Error::new("write a swap header to", &node, e);
        let last = u32::try_from(pages.saturating_sub(1)).map_err(|e| fail(std::io::Error::other(e)))?;
        let mut page = [0u8; 4096];
        page[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
        page[1028..1032].copy_from_slice(&last.to_ne_bytes());
        page[4086..].copy_from_slice(b"SWAPSPACE2");
        let mut file = OpenOptions::new().write(true).open(&node).map_err(fail)?;
        file.write_all(&page).map_err(fail)?;
        file.sync_all().map_err(fail)
    }

    fn file(&self, name: &str) -> String {
        format!("/sys/block/zram{}/{name}", self.device)
    }

    /// Its device node.
    pub fn node(&self) -> PathBuf {
        format!("/dev/zram{}", self.device).into()
    }

    /// How it compresses.
    pub fn algorithm(&self) -> Result<String> {
        let path = self.file("comp_algorithm");
        let text = self.kernel.read_text(&path)?;
        chosen(&text).map(str::to_owned).ok_or_else(|| Error::unexpected(path, "no algorithm is chosen"))
    }

    /// Bytes stored and used.
    pub fn usage(&self) -> Result<ZramUsage> {
        let path = self.file("mm_stat");
        parse_mm_stat(&self.kernel.read_text(&path)?).ok_or_else(|| Error::unexpected(path, "not three numbers"))
    }

    /// Takes it down now.
    pub fn take_down(self) -> Result<()> {
        self.lease.give_back()
    }
}

/// A device that was added: swapping to it is ended, and it is removed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Device {
    /// Its number, which is given again once it is removed.
    pub device: u32,
    /// The kernel's own count of disks (`diskseq`, Linux 5.15): never given again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
}

/// A device's `diskseq`; `None` if there is no such device, or the kernel has none.
fn sequence(kernel: &Kernel, device: u32) -> Result<Option<u64>> {
    kernel.read_number(sequence_file(device)).unless_gone()
}

fn sequence_file(device: u32) -> String {
    format!("/sys/block/zram{device}/diskseq")
}

impl KernelChange for Device {
    const KIND: &'static str = "zram";

    fn describe(&self) -> String {
        format!("swap on /dev/zram{}", self.device)
    }

    fn take_back(&self, kernel: &Kernel) -> Result<()> {
        if self.sequence.is_some() {
            let file = sequence_file(self.device);
            if kernel.if_there(&file, kernel.read_number(&file))? != self.sequence {
                // It is gone, and what has its number by now is another.
                return Ok(());
            }
        }
        remove(kernel, self.device)
    }
}

/// Ends swapping to a device and removes it; at whatever step of its set-up it is.
fn remove(kernel: &Kernel, device: u32) -> Result<()> {
    let node = PathBuf::from(format!("/dev/zram{device}"));
    // System calls know neither an injected root nor a dry run.
    let callable = kernel.is_running() && !kernel.is_dry_run();
    if callable && swap::devices(kernel)?.iter().any(|swap| swap.device == node) {
        sys::swap_off(&node).map_err(|e| Error::new("end swapping to", &node, e))?;
    }
    // The device manager may still be reading a new device: it is busy for a moment.
    let remove = || kernel.write(format!("{CONTROL}/hot_remove"), &device.to_string());
    let removed = while_busy(50, Duration::from_millis(20), remove);
    kernel.if_there(format!("/sys/block/zram{device}"), removed).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_device_says() {
        let usage = parse_mm_stat("  8192     4096    12288        0    12288        0        0        0        0\n");
        assert_eq!(usage, Some(ZramUsage { original: 8192, compressed: 4096, used: 12288, limit: 0 }));
    }

    #[test]
    fn a_bound_on_its_memory_is_part_of_its_room() {
        let dir = tempfile::tempdir().unwrap();
        let room = |swap: &str, mm_stat: &str| {
            std::fs::create_dir_all(dir.path().join("sys/block/zram7")).unwrap();
            std::fs::write(dir.path().join("sys/block/zram7/mm_stat"), mm_stat).unwrap();
            let swap = SwapDevice { device: swap.into(), bytes: 1 << 30, used: 96 << 20, priority: 5 };
            super::room(&Kernel::at(dir.path()), &[swap]) >> 20
        };
        let stat = |original: u64, used: u64, limit: u64| {
            format!("{} 1 {} {} 0 0 0 0", original << 20, used << 20, limit << 20)
        };
        assert_eq!(room("/dev/zram7", &stat(96, 32, 0)), 928, "no bound");
        assert_eq!(room("/dev/zram7", &stat(96, 32, 128)), 288, "compressed to a third");
        assert_eq!(room("/dev/zram7", &stat(96, 32, 4096)), 928);
        assert_eq!(room("/dev/zram7", &stat(2, 1, 128)), 127, "too little is stored to say");
        assert_eq!(room("/dev/zram7", &stat(96, 130, 128)), 0);
        assert_eq!([room("/dev/sda7", ""), room("/dev/zram8", "")], [928; 2]);
    }

    #[test]
    fn a_device_that_has_its_number_later_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["sys/block/zram7", "sys/class/zram-control"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let removed = dir.path().join("sys/class/zram-control/hot_remove");
        std::fs::write(&removed, "").unwrap();
        let kernel = Kernel::at(dir.path());
        let diskseq = |number: &str| std::fs::write(dir.path().join("sys/block/zram7/diskseq"), number).unwrap();
        diskseq("41\n");
        let device = Device { device: 7, sequence: super::sequence(&kernel, 7).unwrap() };
        diskseq("42\n");
        device.take_back(&kernel).unwrap();
        assert_eq!(std::fs::read_to_string(&removed).unwrap(), "");
        diskseq("41\n");
        device.take_back(&kernel).unwrap();
        assert_eq!(std::fs::read_to_string(&removed).unwrap(), "7");
    }

    #[test]
    fn a_captured_tree_is_not_swapped_to() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Kernel::at(dir.path());
        let journal = Journal::open(kernel.clone(), &dir.path().join("run")).unwrap();
        let setup = ZramSetup { bytes: 1 << 20, algorithm: None, priority: 0 };
        assert!(Zram::swap_on(&kernel, &journal, &setup).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\PC|\\n)*") {
            let _ = parse_mm_stat(&text);
        }
    }
}
