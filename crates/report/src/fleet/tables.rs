//! Tables and CSV of a replay.

use lowtide_model::units::human_bytes;

use super::results::{By, ReplayResult};
use crate::text::{Grid, bytes, figure};

pub(super) fn title(result: &ReplayResult) -> String {
    let span = result.from.as_ref().zip(result.until.as_ref());
    let span = span.map_or_else(String::new, |(from, until)| format!(", {from} to {until}"));
    format!("{} hosts, {} workloads, {} rows{span}", result.hosts, result.workloads, result.rows)
}

pub(super) fn grids(result: &ReplayResult) -> Vec<Grid> {
    let head = ["policy", "memory", "cold", "evicted", "net saving", "", "95 %", "of cold"];
    let mut saved = Grid::new(&title(result), &head);
    let mut paid = Grid::new(
        "Cost: refaults, and promotion rate per minute",
        &["policy", "refaults", "rate, p50", "p98", "time lost", "p98", "held", "a month"],
    );
    for policy in &result.policies {
        let gone = policy.anon_gone_bytes + policy.file_gone_bytes;
        let sizes = [policy.had_bytes, policy.cold_bytes, gone];
        // The interval is of what is gone; net saving varies as it does.
        let factor = policy.net_percent.zip(policy.saved_percent).map_or(1.0, |(net, saved)| net / saved.max(1e-12));
        let interval = policy.saved_interval_percent;
        let interval = interval
            .map_or_else(|| "-".to_owned(), |(low, high)| format!("{:.1} to {:.1}", factor * low, factor * high));
        saved.row([policy.policy.clone()].into_iter().chain(sizes.map(|size| bytes(Some(size)))).chain([
            human_bytes(policy.net_bytes),
            figure(policy.net_percent, 1, " %"),
            interval,
            figure(policy.coverage_percent, 0, " %"),
        ]));
        paid.row([
            policy.policy.clone(),
            format!("{}/s", human_bytes(policy.back_bytes_per_s)),
            figure(policy.promotion_rate_percent.p50, 3, " %"),
            figure(policy.promotion_rate_percent.p98, 3, " %"),
            figure(policy.lost_percent, 4, " %"),
            figure(policy.lost_of_minutes_percent.p98, 4, " %"),
            figure(policy.held_percent, 1, " %"),
            figure(policy.money_per_month.map(|money| -money), 2, ""),
        ]);
    }
    [saved, paid].into_iter().chain(result.by.iter().map(by_label)).collect()
}

fn by_label(by: &By) -> Grid {
    // What fits on a line; the other formats have all.
    let head = [by.label.as_str(), "policy", "memory", "net saving", "", "rate, p98", "time lost"];
    let mut grid = Grid::new(&format!("By {}, and of how many workloads", by.label), &head);
    for of in &by.values {
        let mut name = format!("{}: {}", of.value, of.workloads);
        for policy in &of.policies {
            grid.row([
                std::mem::take(&mut name),
                policy.policy.clone(),
                bytes(Some(policy.had_bytes)),
                human_bytes(policy.net_bytes),
                figure(policy.net_percent, 1, " %"),
                figure(policy.promotion_rate_percent.p98, 3, " %"),
                figure(policy.lost_percent, 4, " %"),
            ]);
        }
    }
    grid
}

pub(super) fn csv(result: &ReplayResult, out: &mut dyn std::io::Write) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "label",
        "policy",
        "had_bytes",
        "cold_bytes",
        "anon_gone_bytes",
        "file_gone_bytes",
        "net_bytes",
        "back_bytes_per_s",
        "promotion_rate_p98_percent",
        "lost_percent",
        "money_per_month",
    ])?;
    let optional = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let all = result.policies.iter().map(|policy| ("", policy));
    let values = result.by.iter().flat_map(|by| &by.values);
    let each = values.flat_map(|of| of.policies.iter().map(|policy| (of.value.as_str(), policy)));
    for (label, policy) in all.chain(each) {
        csv.write_record([
            label.to_owned(),
            policy.policy.clone(),
            policy.had_bytes.to_string(),
            policy.cold_bytes.to_string(),
            policy.anon_gone_bytes.to_string(),
            policy.file_gone_bytes.to_string(),
            policy.net_bytes.to_string(),
            policy.back_bytes_per_s.to_string(),
            optional(policy.promotion_rate_percent.p98),
            optional(policy.lost_percent),
            optional(policy.money_per_month),
        ])?;
    }
    csv.flush()
}
