//! Reclaim interfaces, swap, and memory pressure.

use std::os::fd::AsFd;

use lowtide_model::units::{float, human_bytes};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::{Absent, Finding, OrAbsent, PRIVILEGE, may_write, pages, writable};
use crate::pressure::StallTotals;
use crate::root::{Error, Kernel, Result, chosen};
use crate::sys::{self, Advice};
use crate::{swap as swaps, zram as zrams};

/// Asked about no range at all, of this process: nothing is advised. For others `CAP_SYS_NICE` is needed besides.
pub(super) fn process_madvise(kernel: &Kernel) -> Finding {
    let advised = pidfd_open(getpid(), PidfdFlags::empty())
        .map_err(std::io::Error::from)
        .and_then(|this| sys::process_madvise(this.as_fd(), &[], Advice::Pageout));
    match advised {
        Ok(_) => match pages::privilege(kernel, "CAP_SYS_NICE", 23) {
            Ok(_) => Ok("process_madvise(MADV_PAGEOUT) is accepted".to_owned()),
            Err(lacking) => {
                Err(Absent::blocked(format!("process_madvise is accepted; {}", lacking.how), lacking.enable))
            }
        },
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => {
            Err(Absent::no(format!("process_madvise: {e}"), "a kernel with CONFIG_ADVISE_SYSCALLS=y"))
        }
        Err(e) => Err(Absent::blocked(format!("process_madvise: {e}"), "allow it in the container's seccomp filter")),
    }
}

pub(super) fn node(kernel: &Kernel) -> Finding {
    let base = "/sys/devices/system/node";
    let nodes = kernel.list(base).or_absent("a kernel with CONFIG_NUMA=y")?;
    let file = nodes.iter().map(|name| format!("{base}/{name}/reclaim")).find(|file| kernel.exists(file));
    let none = || Absent::no(format!("{base}/node*/reclaim is not there"), "a newer kernel with CONFIG_NUMA=y");
    writable(kernel, &file.ok_or_else(none)?, "")
}

pub(super) fn swap(kernel: &Kernel) -> Finding {
    let on = swaps::devices(kernel).or_absent("a kernel with CONFIG_SWAP=y")?;
    let size = |bytes: u64| human_bytes(float(bytes));
    let names = on.iter().map(|device| {
        let (name, bytes, used) = (device.device.display(), size(device.bytes), size(device.used));
        format!("{name} ({bytes}, {used} used, priority {})", device.priority)
    });
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        return Err(Absent::no("/proc/swaps lists no device", "swapon a device, or `lowtide run --swap zram:1G`"));
    }
    Ok(format!("/proc/swaps: {}", names.join(", ")))
}

/// `hot_add` is not read: reading it makes a device.
pub(super) fn zram(kernel: &Kernel) -> Finding {
    let control = "/sys/class/zram-control";
    if !kernel.exists(format!("{control}/hot_add")) {
        return Err(Absent::no(format!("{control} is not there"), "modprobe zram (CONFIG_ZRAM)"));
    }
    may_write(kernel, &format!("{control}/hot_remove")).or_absent(PRIVILEGE)?;
    let devices = zrams::devices(kernel);
    let algorithms = devices
        .first()
        .and_then(|(name, _)| kernel.read_text(format!("/sys/block/{name}/comp_algorithm")).ok())
        .map_or(String::new(), |text| format!("; compresses with {}", text.trim()));
    let used = devices.iter().filter(|(_, bytes)| *bytes > 0).count();
    Ok(format!("{control}; {used} of {} devices set up{algorithms}", devices.len()))
}

pub(super) fn zswap(kernel: &Kernel) -> Finding {
    let path = "/sys/module/zswap/parameters/enabled";
    let text = kernel.read_text(path).or_absent("a kernel with CONFIG_ZSWAP=y")?;
    if text.trim() != "Y" {
        return Err(Absent::blocked(
            format!("{path}: {}, switched off", text.trim()),
            format!("echo Y > {path}, or boot with zswap.enabled=1 (it needs a swap device behind it)"),
        ));
    }
    Ok(format!("{path}: Y"))
}

pub(super) fn thp(kernel: &Kernel) -> Finding {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let text = kernel.read_text(path).or_absent("a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y")?;
    match chosen(&text) {
        Some("never") => Err(Absent::blocked(format!("{path}: never"), format!("echo madvise > {path}"))),
        Some(mode) => Ok(format!("{path}: {mode}")),
        None => Err(Absent::failed(&Error::unexpected(path, "no mode is chosen"), "")),
    }
}

pub(super) fn psi(kernel: &Kernel) -> Finding {
    let path = "/proc/pressure/memory";
    pressure(path, crate::pressure::read(kernel, path))
}

/// What reading a pressure file means. The file is there but refuses to be read when accounting is off.
pub(super) fn pressure(path: &str, read: Result<StallTotals>) -> Finding {
    match read {
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Err(Absent::blocked(
            format!("{error}: accounting is off"),
            "boot with psi=1; for one cgroup: echo 1 > cgroup.pressure",
        )),
        read => read
            .or_absent("a kernel with CONFIG_PSI=y; boot with psi=1")
            .map(|totals| format!("{path}: some {:.3} s so far", totals.some_s)),
    }
}

#[cfg(test)]
mod tests {
    use lowtide_model::capability::State;

    use super::*;

    #[test]
    fn a_kernel_booted_without_psi_says_so() {
        let error = Error::new("read", "/proc/pressure/memory", std::io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        let found = pressure("/proc/pressure/memory", Err(error)).unwrap_err();
        assert_eq!(found.state, State::Blocked);
        assert!(found.enable.contains("psi=1"));
        let ok = pressure("/proc/pressure/memory", Ok(StallTotals { some_s: 1.5, full_s: None }));
        assert_eq!(ok.unwrap(), "/proc/pressure/memory: some 1.500 s so far");
    }
}
