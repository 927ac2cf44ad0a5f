//! The multi-generational LRU (Documentation/admin-guide/mm/multigen_lru.rst).

use super::{Finding, readable, writable};
use crate::root::{Error, Kernel};

const ENABLED: &str = "/sys/kernel/mm/lru_gen/enabled";
const CONFIG: &str = "a kernel with CONFIG_LRU_GEN=y";

/// The components that are on, as bits: 1 the LRU itself, 2 leaf entries in batches, 4 non-leaf entries.
fn parse_enabled(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

pub(super) fn core(kernel: &Kernel) -> Finding {
    let text = match kernel.read_text(ENABLED) {
        Ok(text) => text,
        Err(error) => return Finding::failed(&error, CONFIG),
    };
    let Some(bits) = parse_enabled(&text) else {
        return Finding::failed(&Error::unexpected(ENABLED, "not a hexadecimal number"), "");
    };
    if bits & 1 == 0 {
        return Finding::blocked(format!("{ENABLED}: {bits:#06x}, switched off"), format!("echo y > {ENABLED}"));
    }
    let part = |bit: u32, name| if bits & bit == 0 { "" } else { name };
    Finding::yes(format!("{ENABLED}: {bits:#06x}, on{}{}", part(2, ", leaf batches"), part(4, ", non-leaf entries")))
}

/// The file is opened only: reading it walks all cgroups.
pub(super) fn debugfs(kernel: &Kernel) -> Finding {
    let path = "/sys/kernel/debug/lru_gen";
    if !kernel.exists(ENABLED) {
        return Finding::no(format!("{ENABLED} is not there"), CONFIG);
    }
    match kernel.open(path) {
        Err(error) if error.is_gone() => {
            let mount = "mount -t debugfs none /sys/kernel/debug (CONFIG_DEBUG_FS=y)";
            Finding::blocked(format!("{path} is not there: debugfs is not mounted"), mount)
        }
        Err(error) if error.is_permission() => {
            Finding::blocked(error.to_string(), "run as root; boot without lockdown and debugfs=off")
        }
        _ => readable(kernel, path, CONFIG),
    }
}

pub(super) fn min_ttl(kernel: &Kernel) -> Finding {
    let found = core(kernel);
    if found.enable.is_empty() { writable(kernel, "/sys/kernel/mm/lru_gen/min_ttl_ms", CONFIG) } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_the_switch_says() {
        assert_eq!(parse_enabled("0x0007\n"), Some(7));
        assert_eq!(parse_enabled("0x0000\n"), Some(0));
        assert_eq!(parse_enabled("y\n"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(0x)?\\PC*") {
            let _ = parse_enabled(&text);
        }
    }
}
