//! What `doctor --calibrate` measured on this machine, kept for records to come.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lowtide_kernel::refault;
use lowtide_kernel::root::Kernel;
use lowtide_model::PAGE;
use lowtide_model::curve::{MeasuredCosts, RefaultCosts};
use lowtide_record::atomic::{self, Care};

/// From so many bytes on, what the kernel reads around a fault takes several times as long as the page itself.
const MUCH_AROUND: u64 = 1 << 20;

/// Where it is kept: `$XDG_STATE_HOME`, or else `/var/lib` for root and `~/.local/state` for others. `None` where there is no
/// such place.
pub fn path() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let of_user = || {
        if rustix::process::geteuid().is_root() {
            Some(PathBuf::from("/var/lib"))
        } else {
            named("HOME").map(|home| home.join(".local/state"))
        }
    };
    Some(named("XDG_STATE_HOME").or_else(of_user)?.join("lowtide/calibration.json"))
}

/// What was measured; nothing if it never was, or cannot be read.
pub fn load() -> MeasuredCosts {
    let read = || serde_json::from_slice(&fs::read(path()?).ok()?).ok();
    read().unwrap_or_default()
}

/// The costs to size a limit by. Lowtide's own file says what the disk takes, if it was never measured, for a page, and for all that
/// the kernel reads around a fault on a mapped file: where either is more than usual (a network's disk, one with moving parts,
/// `read_ahead_kb` of some MiB), a budget by the usual cost would have the program wait for it. It is read once a process, mostly
/// within 30 milliseconds, on a slow disk in 600.
pub fn load_or_sample(kernel: &Kernel) -> MeasuredCosts {
    static SAMPLED: OnceLock<MeasuredCosts> = OnceLock::new();
    let known = load();
    with_known(known, *SAMPLED.get_or_init(|| sample(kernel, &known)))
}

/// The same at the end of a record that began with `before`, where those were more than usual: the lesser count, as what others read
/// and write in a burst has a page take a hundred times as long, and ends.
pub fn sample_again(kernel: &Kernel, before: MeasuredCosts) -> MeasuredCosts {
    if before.disk_s.or(before.around_s).is_none() {
        return before;
    }
    let known = load();
    lesser(before, with_known(known, sample(kernel, &known)))
}

/// What was measured, and of files what was only sampled.
fn with_known(known: MeasuredCosts, sampled: MeasuredCosts) -> MeasuredCosts {
    MeasuredCosts {
        swap_s: known.swap_s,
        swap_out_s: known.swap_out_s,
        disk_s: known.disk_s.or(sampled.disk_s),
        ..sampled
    }
}

/// What both samples of files take at least; none is as usual.
fn lesser(before: MeasuredCosts, now: MeasuredCosts) -> MeasuredCosts {
    let less = |a: Option<f64>, b: Option<f64>| Some(a?.min(b?));
    MeasuredCosts { disk_s: less(before.disk_s, now.disk_s), around_s: less(before.around_s, now.around_s), ..before }
}

/// What lowtide's own file takes from its disk where it is more than usual: a page, unless that was measured, and all that is read
/// around it.
fn sample(kernel: &Kernel, known: &MeasuredCosts) -> MeasuredCosts {
    let own = Path::new("/proc/self/exe");
    let slow = |bytes| refault::of_file(own, bytes).filter(|&s| s > RefaultCosts::default().disk_s);
    let around = refault::read_ahead(kernel, own).filter(|&bytes| bytes >= MUCH_AROUND);
    let disk_s = if known.disk_s.is_none() { slow(PAGE) } else { None };
    MeasuredCosts { disk_s, around_s: around.and_then(slow), around_bytes: around, ..MeasuredCosts::default() }
}

/// The measured costs. If the cost of paging out to swap and back was never measured, it is measured now: pages of this process
/// are paged out and touched again, which takes a tenth of a second, on a slow disk five. It is not saved, as the machine may be
/// busy.
pub fn load_or_measure(kernel: &Kernel) -> MeasuredCosts {
    let known = load();
    let measured = || refault::on_swap(kernel).ok()?.iter().find_map(refault::Refault::costs);
    if known.swap_s.is_some() {
        return known;
    }
    MeasuredCosts { disk_s: known.disk_s, ..measured().unwrap_or_default() }
}

/// Saves measured costs, and keeps earlier ones of other media. Returns the path. Fails if it cannot be written.
pub fn save(costs: MeasuredCosts) -> io::Result<PathBuf> {
    let path =
        path().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "neither XDG_STATE_HOME nor HOME is set"))?;
    let before = load();
    let swap = if costs.swap_s.is_some() { costs } else { before };
    let all = MeasuredCosts { disk_s: costs.disk_s.or(before.disk_s), ..swap };
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    fs::create_dir_all(folder)?;
    atomic::write(&path, Care { sync: true, ..Care::default() }, &serde_json::to_vec_pretty(&all)?)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_at_one_end_of_a_record_does_not_count() {
        let costs = |disk_s, around_s| MeasuredCosts { disk_s, around_s, ..MeasuredCosts::default() };
        let usual = costs(None, None);
        assert_eq!(lesser(costs(Some(2e-2), Some(0.1)), costs(Some(3e-4), Some(7e-3))), costs(Some(3e-4), Some(7e-3)));
        assert_eq!(lesser(costs(Some(2e-2), Some(7e-3)), costs(None, Some(0.1))), costs(None, Some(7e-3)));
        let network = costs(Some(8e-3), None);
        assert_eq!((lesser(network, network), lesser(usual, network)), (network, usual));
    }
}
