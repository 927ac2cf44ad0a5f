//! `/proc/swaps`: the devices that anonymous memory is paged out to.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::cgroup::Cgroup;
use crate::root::{Kernel, Result};

/// A swap device that is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapDevice {
    /// The device or file.
    pub device: PathBuf,
    /// Bytes it can hold.
    pub bytes: u64,
    /// Bytes it holds.
    pub used: u64,
    /// The highest is filled first.
    pub priority: i32,
}

impl SwapDevice {
    /// Bytes that it can still take.
    pub fn free(&self) -> u64 {
        self.bytes.saturating_sub(self.used)
    }

    /// The device's name where it is a zram device: compressed memory, and no disk.
    pub fn zram_name(&self) -> Option<&str> {
        self.device.file_name()?.to_str().filter(|name| name.starts_with("zram"))
    }
}

/// A name as the kernel writes it into its tables: blanks, tabs, newlines and backslashes are octal (`\040`).
pub fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal.filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// Parses `/proc/swaps`: a heading, then one line per device in the kernel's order.
pub fn parse(text: &str) -> Vec<SwapDevice> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let device = unescape(words.next()?);
        let _kind = words.next()?;
        let mut kib = || words.next()?.parse::<u64>().ok()?.checked_mul(1024);
        let (bytes, used) = (kib()?, kib()?);
        Some(SwapDevice { device, bytes, used, priority: words.next()?.parse().ok()? })
    };
    text.lines().skip(1).filter_map(line).collect()
}

/// The swap devices that are on, in the kernel's order.
pub fn devices(kernel: &Kernel) -> Result<Vec<SwapDevice>> {
    Ok(parse(&kernel.read_text("/proc/swaps")?))
}

/// Whether any of them is on a disk, and not compressed memory.
pub fn any_on_disk(devices: &[SwapDevice]) -> bool {
    devices.iter().any(|device| device.zram_name().is_none())
}

/// Bytes of swap that a process in this cgroup can still count on: what is free on all devices, and no more than the limits of the
/// cgroup and of those above it allow (version 2).
///
/// # Errors
/// If the kernel does not list the devices.
pub fn available(kernel: &Kernel, cgroup: Option<&Cgroup>) -> Result<u64> {
    let free: u64 = devices(kernel)?.iter().map(SwapDevice::free).sum();
    Ok(cgroup.and_then(|cgroup| cgroup.lowest_swap_limit(kernel)).map_or(free, |limit| free.min(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn devices_and_files_with_blanks() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                    /dev/zram0                              partition\t131068\t\t16\t\t100\n\
                    /a\\040b                                 file\t\t8\t\t0\t\t-2\n";
        let swaps = parse(text);
        assert_eq!(swaps.len(), 2);
        assert_eq!((swaps[0].bytes, swaps[0].used, swaps[0].priority), (131_068 * 1024, 16 * 1024, 100));
        assert_eq!((swaps[1].device.to_str(), swaps[1].priority), (Some("/a b"), -2));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\PC|\\n)*") {
            let _ = (parse(&text), unescape(&text));
        }

        #[test]
        fn escaped_names_come_back(name in "[ -~]{1,20}") {
            let escaped: String = name
                .chars()
                .map(|c| if " \\".contains(c) { format!("\\{:03o}", u32::from(c)) } else { c.to_string() })
                .collect();
            prop_assert_eq!(unescape(&escaped), PathBuf::from(name));
        }
    }
}
