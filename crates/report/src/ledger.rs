//! The ledger of a run with schemes, as tables: what was saved, at what price, and what each scheme did.

use lowtide_model::ledger::Ledger;
use lowtide_model::meta::SchemeUse;
use lowtide_model::units::{float, human_bytes, human_seconds};

use super::text::{Grid, count, whole_bytes};

/// What was saved, in a sentence after others.
pub(super) fn sentence(ledger: &Ledger) -> Option<String> {
    let net = human_bytes(float(ledger.net_bytes?));
    let back = ledger.refaults.map_or_else(String::new, |pages| format!("; {} refaults", count(Some(pages))));
    Some(format!(" Schemes saved {net} net, on average{back}."))
}

/// Savings, price, and what is left.
pub(super) fn ledger(ledger: &Ledger) -> Grid {
    let size = |bytes: Option<u64>| bytes.map(|bytes| human_bytes(float(bytes)));
    Grid::known(
        "Savings of schemes, on average, and their cost",
        [
            ("anonymous memory paged out", size(ledger.saved_anon_bytes)),
            ("file memory evicted", size(ledger.saved_file_bytes)),
            ("kept compressed, with its tables", size(ledger.kept_bytes)),
            ("net", ledger.net_bytes.map(|bytes| human_bytes(float(bytes)))),
            ("refaults, pages", ledger.refaults.map(|pages| count(Some(pages)))),
            ("time some task waited for memory", ledger.stalled_s.map(human_seconds)),
            ("CPU time of the actions", ledger.action_cpu_s.map(human_seconds)),
            ("in huge pages", size(ledger.huge_bytes.filter(|bytes| *bytes > 0))),
            ("of these, only zeros", size(ledger.huge_wasted_bytes)),
        ],
    )
}

/// What held schemes back, and for how long.
pub(super) fn held(uses: &[SchemeUse]) -> Grid {
    let rows = uses.iter().flat_map(|used| {
        let title = || used.scheme.title().to_owned();
        let row = |lasted: String, why: &str| [title(), lasted, why.to_owned()];
        let mut rows: Vec<_> = used.held_s.iter().map(|(why, held_s)| row(human_seconds(*held_s), why)).collect();
        let quota = used.quota_exceeded.filter(|times| *times > 0);
        rows.extend(quota.map(|times| row(format!("{} times", count(Some(times))), "its quota was used up")));
        if rows.is_empty() && used.tried_bytes == 0 {
            rows.push(row("always".to_owned(), "no memory matched it"));
        }
        rows
    });
    let rows: Vec<_> = rows.collect();
    Grid { remarks: true, ..Grid::of("What held schemes back", &["scheme", "for", "because"], rows) }
}

/// What each scheme did.
pub(super) fn schemes(uses: &[SchemeUse]) -> Grid {
    let head = ["scheme", "tried", "applied", "refused", "refaulted at once", "by"];
    let rows = uses.iter().map(|used| {
        let dry_run = if used.dry_run { " (dry run)" } else { "" };
        let sizes = [Some(used.tried_bytes), Some(used.applied_bytes), used.refused_bytes, used.returned_bytes];
        let [tried, applied, refused, returned] = sizes.map(whole_bytes);
        [format!("{}{dry_run}", used.scheme.title()), tried, applied, refused, returned, used.by.clone()]
    });
    Grid { remarks: true, ..Grid::of("What each scheme did", &head, rows) }
}
