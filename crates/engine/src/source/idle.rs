//! Page idle tracking: cohort and map as by DAMON, sampled by a thread of lowtide's own.

use lowtide_kernel::idle_bitmap::IdleBitmap;
use lowtide_kernel::monitor::damon::{DamonMonitor, RecordStart};
use lowtide_kernel::root::{Error, Kernel};

use super::SourceEntry;
use super::damon::{DamonSource, rhythm};

/// Where DAMON is missing or held, and the kernel was built with idle page tracking.
pub const ENTRY: SourceEntry = SourceEntry {
    name: "idle",
    is_automatic: true,
    needs: &["idle-page-bitmap", "pagemap-frames", "kpageflags"],
    has_addresses: true,
    reports: "which pages of programs are used, with a 95 % interval, and which addresses are hot",
    omits: "page cache that no process maps",
    backend: |_| ("idle-bitmap", None),
    open: |opening| {
        let rhythm = rhythm(&opening.price.plan(), opening.settings);
        let start = RecordStart { epoch_ns: opening.epoch_ns, attached: opening.settings.attached };
        let monitor = DamonMonitor::on_bitmap(opening.kernel, opening.journal, &rhythm, start)?;
        Ok(Box::new(DamonSource::new(monitor, opening)))
    },
    check: |kernel| IdleBitmap::open(kernel).map(drop),
    why_not,
};

fn why_not(_: &Kernel, error: &Error) -> String {
    if error.is_gone() {
        return "this kernel has no page idle tracking (CONFIG_IDLE_PAGE_TRACKING)".to_owned();
    }
    error.to_string()
}
