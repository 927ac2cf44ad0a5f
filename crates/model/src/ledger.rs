//! The ledger of a run with schemes: what they saved, at what price, and what is left.

use serde::{Deserialize, Serialize};

use crate::meta::SchemeUse;
use crate::stats;
use crate::units::{rounded, signed};
use crate::usage::{Usage, rise};

/// What schemes saved and cost. Bytes are means over the ticks of the run; `None` = not measurable here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Anonymous memory that was paged out.
    pub saved_anon_bytes: Option<u64>,
    /// File memory that was taken and stayed away.
    pub saved_file_bytes: Option<u64>,
    /// Memory in which what was paged out is kept: zram or zswap, compressed, with the tables.
    pub kept_bytes: Option<u64>,
    /// What is left: saved minus kept. Below zero, it would have been better to do nothing.
    pub net_bytes: Option<i64>,
    /// Pages that came back.
    pub refaults: Option<u64>,
    /// Time in which some task waited for memory.
    pub stalled_s: Option<f64>,
    /// CPU seconds that the schemes took, where lowtide carried them out.
    pub action_cpu_s: Option<f64>,
    /// Anonymous memory in huge pages.
    pub huge_bytes: Option<u64>,
    /// Of it, memory that holds nothing but zeros.
    pub huge_wasted_bytes: Option<u64>,
    /// What each scheme did.
    pub schemes: Vec<SchemeUse>,
}

/// The ledger of a run; rows from the baseline on.
#[must_use]
pub fn ledger(schemes: &[SchemeUse], rows: &[Usage]) -> Option<Ledger> {
    if schemes.is_empty() {
        return None;
    }
    let mean = |get| mean(rows, get);
    let rise = |get: fn(&Usage) -> Option<f64>| rise(rows, get);
    let (anon, file) = (mean(|row| row.swap_bytes), mean(|row| row.taken_file_bytes));
    let kept = kept_bytes(rows);
    let refaults = [rise(|row| row.refault_anon), rise(|row| row.refault_file)];
    let cpu: Vec<f64> = schemes.iter().filter_map(|scheme| scheme.cpu_s).collect();
    Some(Ledger {
        saved_anon_bytes: anon.map(rounded),
        saved_file_bytes: file.map(rounded),
        kept_bytes: kept.map(rounded),
        net_bytes: anon.map(|anon| signed(anon + file.unwrap_or(0.0) - kept.unwrap_or(0.0))),
        refaults: refaults.iter().any(Option::is_some).then(|| rounded(refaults.into_iter().flatten().sum())),
        stalled_s: rise(|row| row.memory_some_s),
        action_cpu_s: (!cpu.is_empty()).then(|| cpu.iter().sum()),
        huge_bytes: mean(|row| row.huge_bytes).map(rounded),
        huge_wasted_bytes: mean(|row| row.huge_zero_bytes).map(rounded),
        schemes: schemes.to_vec(),
    })
}

/// Memory that zram and zswap took for what was paged out, mean over a run, bytes; rows from the baseline on.
#[must_use]
pub fn kept_bytes(rows: &[Usage]) -> Option<f64> {
    // What zram held before is not this target's; zswap is reported per cgroup.
    let before = rows.iter().find_map(|row| row.zram_bytes).unwrap_or(0.0);
    let zram = mean(rows, |row| row.zram_bytes).map(|bytes| (bytes - before).max(0.0));
    match (zram, mean(rows, |row| row.zswap_bytes)) {
        (Some(zram), zswap) => Some(zram + zswap.unwrap_or(0.0)),
        (None, zswap) => zswap,
    }
}

/// The mean of a run's readings after the baseline.
fn mean(rows: &[Usage], get: fn(&Usage) -> Option<f64>) -> Option<f64> {
    let live = rows.get(1..).unwrap_or_default();
    stats::mean(&live.iter().filter_map(get).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::scheme::{Action, Scheme};

    #[test]
    fn net_is_what_is_left_of_the_saving() {
        let row = |swap: f64, zram: f64| Usage { swap_bytes: Some(swap), zram_bytes: Some(zram), ..Usage::default() };
        let used = SchemeUse {
            scheme: Scheme::new(Action::Pageout),
            by: String::new(),
            dry_run: false,
            tried_bytes: 0,
            applied_bytes: 0,
            refused_bytes: None,
            returned_bytes: None,
            quota_exceeded: None,
            cpu_s: Some(0.5),
            held_s: BTreeMap::new(),
        };
        let rows = [row(0.0, 10.0), row(100.0, 40.0), row(300.0, 120.0)];
        let ledger = ledger(&[used.clone(), used], &rows).unwrap();
        assert_eq!((ledger.saved_anon_bytes, ledger.kept_bytes, ledger.net_bytes), (Some(200), Some(70), Some(130)));
        assert_eq!((ledger.action_cpu_s, ledger.refaults, ledger.saved_file_bytes), (Some(1.0), None, None));
        assert_eq!(super::ledger(&[], &rows), None);
    }
}
