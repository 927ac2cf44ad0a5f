//! Single pages: privileges, page tables, frames, accessed bits.

use super::{Absent, Finding, OrAbsent, PRIVILEGE, readable, writable};
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
    let text = kernel.read_text(path).or_absent("mount /proc")?;
    let bits = parse_effective(&text).ok_or_else(|| Error::unexpected(path, "no CapEff line")).or_absent("")?;
    if bits >> bit & 1 == 0 {
        return Err(Absent::blocked(format!("{path}: CapEff {bits:016x} lacks {name}"), format!("run with {name}")));
    }
    Ok(format!("{path}: CapEff {bits:016x} has {name}"))
}

/// Flags and counts are always offered together, and the cohort needs both.
pub(super) fn kpageflags(kernel: &Kernel) -> Finding {
    readable(kernel, "/proc/kpagecount", PAGE_MONITOR)?;
    readable(kernel, "/proc/kpageflags", PAGE_MONITOR)
}

/// The kernel's own types.
pub(super) const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Whether the kernel's types hold a name. Its strings end with NUL (Documentation/bpf/btf.rst).
pub(super) fn btf_holds(types: &[u8], name: &str) -> bool {
    types.split(|byte| *byte == 0).any(|string| string == name.as_bytes())
}

/// `clear_refs` and the `Referenced` lines of smaps come together.
pub(super) fn referenced(kernel: &Kernel) -> Finding {
    let clear = writable(kernel, "/proc/self/clear_refs", PAGE_MONITOR)?;
    let rollup = "/proc/self/smaps_rollup";
    let text = kernel.read_text(rollup).or_absent(PAGE_MONITOR)?;
    if !text.contains("Referenced:") {
        return Err(Absent::failed(&Error::unexpected(rollup, "no Referenced line"), ""));
    }
    Ok(format!("{clear}; {rollup} has Referenced"))
}

/// Privileges do not decide it alone: in a user namespace the kernel shows zeros whatever `CapEff` says.
pub(super) fn frames(kernel: &Kernel) -> Finding {
    let path = "/proc/self/pagemap";
    let fail = |e| Error::new("read", path, e);
    let entry = PageMap::open(kernel, std::process::id()).and_then(|map| {
        let page = Area::anonymous(1, |_, bytes| bytes.fill(1)).map_err(fail)?;
        map.entry(page.first_page()).map_err(fail)
    });
    let entry = entry.or_absent(PAGE_MONITOR)?;
    if !entry.is_present() || entry.frame() == 0 {
        return Err(Absent::blocked(format!("{path} hides frames"), PRIVILEGE));
    }
    Ok(format!("{path} shows the frame of a page of lowtide's own"))
}

pub(super) fn scan(kernel: &Kernel) -> Finding {
    let path = "/proc/self/pagemap";
    let file = kernel.open(path).or_absent(PAGE_MONITOR)?;
    let mut ranges = [PageRange::default(); 1];
    match scan_pages(&file, (0, lowtide_model::PAGE), SCAN_PRESENT, &mut ranges) {
        Ok(_) => Ok(format!("{path} takes PAGEMAP_SCAN")),
        Err(e) => Err(Absent::no(
            format!("{path} refuses PAGEMAP_SCAN: {e}"),
            "a newer kernel; lowtide reads entry by entry instead",
        )),
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
    fn names_of_types_match_completely() {
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
