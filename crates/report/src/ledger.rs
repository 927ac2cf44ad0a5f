//! The ledger of a run with schemes, as tables: what was saved, at what price, and what each scheme did.

use lowtide_model::ledger::Ledger;
use lowtide_model::meta::SchemeUse;
use lowtide_model::units::{human_bytes, human_seconds};

use super::text::{Grid, count, whole_bytes};

/// Bytes that may be below zero.
fn signed(bytes: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    human_bytes(bytes as f64)
}

/// What was saved, in a sentence that others go before.
pub(super) fn sentence(ledger: &Ledger) -> String {
    let Some(net) = ledger.net_bytes else { return String::new() };
    let back = ledger.refaults.map_or_else(String::new, |pages| format!("; {} pages came back", count(Some(pages))));
    format!(" Schemes saved {} net, on average{back}", signed(net))
}

/// Savings, price, and what is left.
pub(super) fn ledger(ledger: &Ledger) -> Grid {
    let mut grid = Grid::new("What the schemes saved, on average, and cost", &["", ""]);
    let rows = [
        ("anonymous memory paged out", ledger.saved_anon_bytes.map(|bytes| whole_bytes(Some(bytes)))),
        ("file memory taken", ledger.saved_file_bytes.map(|bytes| whole_bytes(Some(bytes)))),
        ("kept compressed, with tables", ledger.kept_bytes.map(|bytes| whole_bytes(Some(bytes)))),
        ("net", ledger.net_bytes.map(signed)),
        ("pages that came back", ledger.refaults.map(|pages| count(Some(pages)))),
        ("time some task waited for memory", ledger.stalled_s.map(human_seconds)),
        ("CPU time of the actions", ledger.action_cpu_s.map(human_seconds)),
        ("in huge pages", ledger.huge_bytes.filter(|bytes| *bytes > 0).map(|bytes| whole_bytes(Some(bytes)))),
        ("of it, nothing but zeros", ledger.huge_wasted_bytes.map(|bytes| whole_bytes(Some(bytes)))),
    ];
    for (name, value) in rows {
        if let Some(value) = value {
            grid.row([name.to_owned(), value]);
        }
    }
    grid
}

/// What each scheme did.
pub(super) fn schemes(uses: &[SchemeUse]) -> Grid {
    let mut grid =
        Grid::new("What each scheme did", &["scheme", "tried", "applied", "refused", "came back at once", "by"]);
    grid.remarks = true;
    for used in uses {
        let title = used.scheme.title();
        grid.row([
            if used.dry_run { format!("{title} (dry run)") } else { title.to_owned() },
            whole_bytes(Some(used.tried_bytes)),
            whole_bytes(Some(used.applied_bytes)),
            whole_bytes(used.refused_bytes),
            whole_bytes(used.returned_bytes),
            used.by.clone(),
        ]);
    }
    grid
}
