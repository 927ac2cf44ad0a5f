//! How memory is taken back, where it goes, and the signal that it hurts.

use lowtide_model::units::human_bytes;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::{Finding, PRIVILEGE, may_write, pages};
use crate::pressure::StallTotals;
use crate::root::{Error, Kernel, Result, chosen};
use crate::sys::{self, Advice};
use crate::{swap as swaps, zram as zrams};

pub(super) fn cap_sys_nice(kernel: &Kernel) -> Finding {
    pages::privilege(kernel, "CAP_SYS_NICE", 23)
}

/// Asked about no range at all, of this process: nothing is advised. For others `CAP_SYS_NICE` is needed besides.
pub(super) fn process_madvise(kernel: &Kernel) -> Finding {
    let advised = pidfd_open(getpid(), PidfdFlags::empty())
        .map_err(std::io::Error::from)
        .and_then(|this| sys::process_madvise(std::os::fd::AsFd::as_fd(&this), &[], Advice::Pageout));
    let privilege = cap_sys_nice(kernel);
    match advised {
        Ok(_) if privilege.enable.is_empty() => Finding::yes("process_madvise(MADV_PAGEOUT) is accepted"),
        Ok(_) => Finding::blocked(format!("process_madvise is accepted; {}", privilege.how), privilege.enable),
        Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => {
            Finding::no(format!("process_madvise: {e}"), "a kernel with CONFIG_ADVISE_SYSCALLS=y")
        }
        Err(e) => Finding::blocked(format!("process_madvise: {e}"), "allow it in the container's seccomp filter"),
    }
}

pub(super) fn node(kernel: &Kernel) -> Finding {
    let base = "/sys/devices/system/node";
    let nodes = match kernel.list(base) {
        Ok(names) => names,
        Err(error) => return Finding::failed(&error, "a kernel with CONFIG_NUMA=y"),
    };
    let file = nodes.iter().map(|name| format!("{base}/{name}/reclaim")).find(|file| kernel.exists(file));
    match file {
        Some(file) => super::writable(kernel, &file, ""),
        None => Finding::no(format!("{base}/node*/reclaim is not there"), "a newer kernel with CONFIG_NUMA=y"),
    }
}

pub(super) fn swap(kernel: &Kernel) -> Finding {
    let on = match swaps::devices(kernel) {
        Ok(on) => on,
        Err(error) => return Finding::failed(&error, "a kernel with CONFIG_SWAP=y"),
    };
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let size = |bytes: u64| human_bytes(bytes as f64);
    let names = on.iter().map(|device| {
        let (name, bytes, used) = (device.device.display(), size(device.bytes), size(device.used));
        format!("{name} ({bytes}, {used} used, priority {})", device.priority)
    });
    if on.is_empty() {
        return Finding::no("/proc/swaps lists no device", "swapon a device, or `lowtide run --swap zram:1G`");
    }
    Finding::yes(format!("/proc/swaps: {}", names.collect::<Vec<_>>().join(", ")))
}

/// `hot_add` is not read: reading it makes a device.
pub(super) fn zram(kernel: &Kernel) -> Finding {
    let (control, add) = ("/sys/class/zram-control", "/sys/class/zram-control/hot_add");
    let devices = zrams::devices(kernel);
    if !kernel.exists(add) {
        return Finding::no(format!("{control} is not there"), "modprobe zram (CONFIG_ZRAM)");
    }
    if let Err(error) = may_write(kernel, &format!("{control}/hot_remove")) {
        return Finding::failed(&error, PRIVILEGE);
    }
    let algorithms = devices
        .first()
        .and_then(|(name, _)| kernel.read_text(format!("/sys/block/{name}/comp_algorithm")).ok())
        .map_or(String::new(), |text| format!("; compresses with {}", text.trim()));
    let used = devices.iter().filter(|(_, bytes)| *bytes > 0).count();
    Finding::yes(format!("{control}; {used} of {} devices set up{algorithms}", devices.len()))
}

pub(super) fn zswap(kernel: &Kernel) -> Finding {
    let path = "/sys/module/zswap/parameters/enabled";
    match kernel.read_text(path) {
        Ok(text) if text.trim() == "Y" => Finding::yes(format!("{path}: Y")),
        Ok(text) => Finding::blocked(
            format!("{path}: {}, switched off", text.trim()),
            format!("echo Y > {path}, or boot with zswap.enabled=1 (it needs a swap device behind it)"),
        ),
        Err(error) => Finding::failed(&error, "a kernel with CONFIG_ZSWAP=y"),
    }
}

pub(super) fn thp(kernel: &Kernel) -> Finding {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let text = match kernel.read_text(path) {
        Ok(text) => text,
        Err(error) => return Finding::failed(&error, "a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y"),
    };
    match chosen(&text) {
        Some("never") => Finding::blocked(format!("{path}: never"), format!("echo madvise > {path}")),
        Some(mode) => Finding::yes(format!("{path}: {mode}")),
        None => Finding::failed(&Error::unexpected(path, "no mode is chosen"), ""),
    }
}

pub(super) fn psi(kernel: &Kernel) -> Finding {
    let path = "/proc/pressure/memory";
    pressure(path, crate::pressure::read(kernel, path))
}

/// What reading a pressure file tells. The file is there but refuses to be read when accounting is off.
pub(super) fn pressure(path: &str, read: Result<StallTotals>) -> Finding {
    match read {
        Ok(pressure) => Finding::yes(format!("{path}: some {:.3} s so far", pressure.some_s)),
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Finding::blocked(
            format!("{error}: accounting is off"),
            "boot with psi=1; for one cgroup: echo 1 > cgroup.pressure",
        ),
        Err(error) => Finding::failed(&error, "a kernel with CONFIG_PSI=y; boot with psi=1"),
    }
}

#[cfg(test)]
mod tests {
    use lowtide_model::capability::State;

    use super::*;

    #[test]
    fn a_kernel_booted_without_psi_says_so() {
        let error = Error::new("read", "/proc/pressure/memory", std::io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        let found = pressure("/proc/pressure/memory", Err(error));
        assert_eq!(found.state, State::Blocked);
        assert!(found.enable.contains("psi=1"));
        let ok = pressure("/proc/pressure/memory", Ok(StallTotals { some_s: 1.5, full_s: None }));
        assert_eq!((ok.state, ok.how.as_str()), (State::Yes, "/proc/pressure/memory: some 1.500 s so far"));
    }
}
