//! The multi-generational LRU (Documentation/admin-guide/mm/multigen_lru.rst).

use super::{Absent, Finding, OrAbsent, readable, writable};
use crate::lru_gen::{LruGen, SWITCH as ENABLED, switch};
use crate::root::Kernel;

const CONFIG: &str = "a kernel with CONFIG_LRU_GEN=y";

pub(super) fn core(kernel: &Kernel) -> Finding {
    let bits = switch(kernel).or_absent(CONFIG)?;
    if bits & 1 == 0 {
        return Err(Absent::blocked(format!("{ENABLED}: {bits:#06x}, switched off"), format!("echo y > {ENABLED}")));
    }
    let part = |bit: u32, name| if bits & bit == 0 { "" } else { name };
    Ok(format!("{ENABLED}: {bits:#06x}, on{}{}", part(2, ", leaf batches"), part(4, ", non-leaf entries")))
}

/// The file is opened only: reading it walks all cgroups.
pub(super) fn debugfs(kernel: &Kernel) -> Finding {
    let path = "/sys/kernel/debug/lru_gen";
    if !kernel.exists(ENABLED) {
        return Err(Absent::no(format!("{ENABLED} is not there"), CONFIG));
    }
    match kernel.open(path) {
        Err(error) if error.is_gone() => {
            if kernel.is_running() && LruGen::open(kernel).is_ok() {
                return Ok(format!("{path} is not there; lowtide mounts its own debugfs"));
            }
            let mount = "mount -t debugfs none /sys/kernel/debug (CONFIG_DEBUG_FS=y)";
            Err(Absent::blocked(format!("{path} is not there: debugfs is not mounted"), mount))
        }
        Err(error) if error.is_permission() => {
            Err(Absent::blocked(error.to_string(), "run as root; boot without lockdown and debugfs=off"))
        }
        _ => readable(kernel, path, CONFIG),
    }
}

pub(super) fn min_ttl(kernel: &Kernel) -> Finding {
    core(kernel)?;
    writable(kernel, "/sys/kernel/mm/lru_gen/min_ttl_ms", CONFIG)
}
