//! What tells about single pages: privileges, page tables, frames, accessed bits.

use super::{Finding, PRIVILEGE, readable};
use crate::pagemap::PageMap;
use crate::root::{Error, Kernel};
use crate::sys::{Area, PageRange, SCAN_PRESENT, scan_pages};

/// Why there may be no file about pages (mm/Kconfig).
const PAGE_MONITOR: &str = "a kernel with CONFIG_PROC_PAGE_MONITOR=y";

/// The effective capabilities (capabilities(7)) of `/proc/self/status`.
fn parse_effective(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

/// Whether this process has a privilege; `bit` as in include/uapi/linux/capability.h.
pub(super) fn privilege(kernel: &Kernel, name: &str, bit: u32) -> Finding {
    let path = "/proc/self/status";
    let text = match kernel.read_text(path) {
        Ok(text) => text,
        Err(error) => return Finding::failed(&error, "mount /proc"),
    };
    match parse_effective(&text) {
        Some(bits) if bits >> bit & 1 == 1 => Finding::yes(format!("{path}: CapEff {bits:016x} has {name}")),
        Some(bits) => Finding::blocked(format!("{path}: CapEff {bits:016x} lacks {name}"), format!("run with {name}")),
        None => Finding::failed(&Error::unexpected(path, "no CapEff line"), ""),
    }
}

pub(super) fn cap_sys_admin(kernel: &Kernel) -> Finding {
    privilege(kernel, "CAP_SYS_ADMIN", 21)
}

pub(super) fn cap_sys_ptrace(kernel: &Kernel) -> Finding {
    privilege(kernel, "CAP_SYS_PTRACE", 19)
}

/// Flags and counts are always offered together, and the cohort needs both.
pub(super) fn kpageflags(kernel: &Kernel) -> Finding {
    let flags = readable(kernel, "/proc/kpageflags", PAGE_MONITOR);
    let counts = readable(kernel, "/proc/kpagecount", PAGE_MONITOR);
    if counts.enable.is_empty() { flags } else { counts }
}

pub(super) fn kpagecgroup(kernel: &Kernel) -> Finding {
    readable(kernel, "/proc/kpagecgroup", "a kernel with CONFIG_PROC_PAGE_MONITOR=y and CONFIG_MEMCG=y")
}

pub(super) fn btf(kernel: &Kernel) -> Finding {
    readable(kernel, BTF, "a kernel with CONFIG_DEBUG_INFO_BTF=y")
}

/// The kernel's own types.
pub(super) const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Whether the kernel's types hold a name. Its strings end with NUL (Documentation/bpf/btf.rst).
pub(super) fn btf_holds(types: &[u8], name: &str) -> bool {
    types.split(|byte| *byte == 0).any(|string| string == name.as_bytes())
}

pub(super) fn idle_bitmap(kernel: &Kernel) -> Finding {
    let enable = "a kernel with CONFIG_IDLE_PAGE_TRACKING=y";
    super::writable(kernel, "/sys/kernel/mm/page_idle/bitmap", enable)
}

/// `clear_refs` and the `Referenced` lines of smaps come together.
pub(super) fn referenced(kernel: &Kernel) -> Finding {
    let clear = super::writable(kernel, "/proc/self/clear_refs", PAGE_MONITOR);
    if !clear.enable.is_empty() {
        return clear;
    }
    let rollup = "/proc/self/smaps_rollup";
    match kernel.read_text(rollup) {
        Ok(text) if text.contains("Referenced:") => Finding::yes(format!("{}; {rollup} has Referenced", clear.how)),
        Ok(_) => Finding::failed(&Error::unexpected(rollup, "no Referenced line"), ""),
        Err(error) => Finding::failed(&error, PAGE_MONITOR),
    }
}

/// Privileges alone do not tell: in a user namespace the kernel shows zeros whatever `CapEff` says.
pub(super) fn frames(kernel: &Kernel) -> Finding {
    let path = "/proc/self/pagemap";
    let fail = |e| Error::new("read", path, e);
    let looked = PageMap::open(kernel, std::process::id()).and_then(|map| {
        let page = Area::anonymous(1, |_, bytes| bytes.fill(1)).map_err(fail)?;
        map.entry(page.address() as u64 / lowtide_model::PAGE).map_err(fail)
    });
    match looked {
        Ok(entry) if entry.is_present() && entry.frame() != 0 => {
            Finding::yes(format!("{path} tells the frame of a page of lowtide's own"))
        }
        Ok(_) => Finding::blocked(format!("{path} hides frames"), PRIVILEGE),
        Err(error) => Finding::failed(&error, PAGE_MONITOR),
    }
}

pub(super) fn scan(kernel: &Kernel) -> Finding {
    let path = "/proc/self/pagemap";
    let file = match kernel.open(path) {
        Ok(file) => file,
        Err(error) => return Finding::failed(&error, PAGE_MONITOR),
    };
    let mut ranges = [PageRange::default(); 1];
    match scan_pages(&file, (0, lowtide_model::PAGE), SCAN_PRESENT, &mut ranges) {
        Ok(_) => Finding::yes(format!("{path} takes PAGEMAP_SCAN")),
        Err(e) => Finding::no(
            format!("{path} refuses PAGEMAP_SCAN: {e}"),
            "a newer kernel; lowtide reads entry by entry instead",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn privileges_are_bits() {
        assert_eq!(parse_effective("CapPrm:\t0\nCapEff:\t000001fffeffffff\n"), Some(0x1ff_feff_ffff));
    }

    #[test]
    fn names_of_types_are_whole() {
        let types = b"\x9f\xeb\x01\0\0DAMOS_FILTER_TYPE_YOUNGER\0DAMOS_FILTER_TYPE_YOUNG\0";
        assert!(btf_holds(types, "DAMOS_FILTER_TYPE_YOUNG"));
        assert!(!btf_holds(types, "DAMOS_FILTER_TYPE_YOUN"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(text in "(\\PC|\\n|CapEff:)*", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (parse_effective(&text), btf_holds(&bytes, "x"));
        }
    }
}
