//! Swap without read-ahead, while memory is evicted to be counted. Everything is a lease.

use anyhow::Context;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::swap;
use lowtide_kernel::undo::{Journal, Lease};
use lowtide_kernel::zram::{Zram, ZramSetup};
use lowtide_model::PAGE;

const READ_AHEAD: &str = "/proc/sys/vm/page-cluster";
const AROUND: &str = "/sys/kernel/debug/fault_around_bytes";
/// `fault_around_bytes` of every kernel since 3.16.
const USUAL_AROUND: u64 = 65_536;
/// Capacity beyond the size of the program at the beginning.
const SPARE: u64 = 1 << 30;

/// Taken back when dropped.
#[derive(Debug)]
pub struct CountSwap {
    /// Pages of a file that one fault can map.
    pub around: u64,
    /// The device made for this; `None` where swap was on already.
    pub own: Option<Zram>,
    _settings: Vec<Lease>,
}

impl CountSwap {
    /// Switches read-ahead off, and swap on where there is none, for a program of so many bytes. Fails if the kernel has no
    /// zram, swap is too small, or it is not permitted.
    pub fn ready(kernel: &Kernel, journal: &Journal, bytes: u64) -> anyhow::Result<Self> {
        let mut settings = vec![journal.write(READ_AHEAD.as_ref(), "0")?];
        // Pages of files can be counted one by one where the kernel can be set to map one page a fault.
        let around = match kernel.exists(AROUND).then(|| journal.write(AROUND.as_ref(), &PAGE.to_string())) {
            Some(Ok(lease)) => {
                settings.push(lease);
                1
            }
            _ => USUAL_AROUND / PAGE,
        };
        let devices = swap::devices(kernel)?;
        let free: u64 = devices.iter().map(swap::SwapDevice::free).sum();
        anyhow::ensure!(devices.is_empty() || free > bytes, "swap has {free} bytes free, of {bytes} that are needed");
        let own = if devices.is_empty() {
            let setup = ZramSetup { bytes: (2 * bytes + SPARE).next_multiple_of(PAGE), algorithm: None, priority: 100 };
            Some(Zram::swap_on(kernel, journal, &setup).context("no swap is on, and no zram device can be added")?)
        } else {
            None
        };
        Ok(Self { around, own, _settings: settings })
    }
}
