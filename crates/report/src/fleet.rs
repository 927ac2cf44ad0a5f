//! What policies would have made of a fleet: saving, price, and how sure that is.

use std::io::Write;
use std::path::Path;

use jiff::Timestamp;
use lowtide_fleet::replay::{OfFleet, Trouble};
use lowtide_fleet::tally::{PolicyTally, Quantiles};
use lowtide_fleet::tune::{self, Search, TriedSettings};
use lowtide_model::units::human_bytes;
use serde::Serialize;

use super::draw::paint;
use super::text::{Grid, Look, bytes, figure};
use super::{Format, ReportError, painting};

mod draw;

/// What a saving is worth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Money {
    /// What paged out memory takes where it is kept, as a share of its size.
    pub kept: f64,
    /// What 10^9 bytes cost for a month; `None` = not told.
    pub price: Option<f64>,
}

/// Percentiles, in percent of what is meant by each.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Percentiles {
    p50: Option<f64>,
    p90: Option<f64>,
    p98: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

impl Percentiles {
    fn of(seen: &Quantiles) -> Self {
        let at = |share: f64| seen.at(share).map(|value| 100.0 * value);
        Self { p50: at(0.5), p90: at(0.9), p98: at(0.98), p99: at(0.99), max: at(1.0) }
    }
}

/// What one policy would have done. Bytes are means over the time of the telemetry, of all hosts together.
#[derive(Debug, Clone, Serialize)]
pub struct Policy {
    policy: String,
    /// What workloads had.
    had_bytes: f64,
    /// Of it, what had been idle for two minutes, or was paged out.
    cold_bytes: f64,
    anon_gone_bytes: f64,
    file_gone_bytes: f64,
    /// What would be free: what is gone, less what keeps it.
    net_bytes: f64,
    /// What is gone, of what workloads had.
    saved_percent: Option<f64>,
    /// 95 % interval of that, from how hosts differ; null for fewer than three, or where a few are most of the fleet.
    saved_interval_percent: Option<(f64, f64)>,
    /// What is gone, of what was cold.
    coverage_percent: Option<f64>,
    net_percent: Option<f64>,
    back_bytes_per_s: f64,
    /// Share of what is used that came back in a minute, of minutes in which something was gone.
    promotion_rate_percent: Percentiles,
    /// Time lost, of all time of all workloads.
    lost_percent: Option<f64>,
    /// Of minutes in which something was gone.
    lost_of_minutes_percent: Percentiles,
    /// Minutes in which a brake held.
    held_percent: Option<f64>,
    money_per_month: Option<f64>,
    #[serde(skip)]
    rates: Quantiles,
}

/// What policies would have done to a fleet.
#[derive(Debug, Clone, Serialize)]
pub struct Replayed {
    dir: String,
    from: Option<String>,
    until: Option<String>,
    hosts: usize,
    workloads: u64,
    rows: u64,
    files: u64,
    kept_percent: f64,
    policies: Vec<Policy>,
    /// The same by what a label says, where one was asked for.
    by: Option<By>,
    trouble: Troubles,
}

/// What policies would have done to the workloads of each value of a label.
#[derive(Debug, Clone, Serialize)]
struct By {
    label: String,
    /// Workloads that have no such label; they are in the sum alone.
    without: u64,
    values: Vec<OfLabel>,
}

/// Those of one value.
#[derive(Debug, Clone, Serialize)]
struct OfLabel {
    value: String,
    workloads: u64,
    policies: Vec<Policy>,
}

/// What of the telemetry is in no figure.
#[derive(Debug, Clone, Serialize)]
struct Troubles {
    files: u64,
    first: Vec<String>,
    senseless_rows: u64,
    repeated_rows: u64,
    missing_minutes: u64,
    rows_without_ages: u64,
}

#[expect(clippy::cast_precision_loss, reason = "figures to be looked at")]
fn float(sum: u128) -> f64 {
    sum as f64
}

impl Policy {
    fn new(name: &str, tally: &PolicyTally, interval: Option<(f64, f64)>, lasts_s: f64, money: Money) -> Self {
        // Means over the time of the whole, so that hosts and workloads that were not always there count for what they were.
        let ms = (1e3 * lasts_s).max(1.0);
        let mean = |sum: u128| float(sum) / ms;
        let gone = tally.gone.map(mean);
        let net_bytes = gone.anon * (1.0 - money.kept) + gone.file;
        let percent = |share: Option<f64>| share.map(|share| 100.0 * share);
        let rows = (tally.rows > 0).then(|| float(u128::from(tally.held)) / float(u128::from(tally.rows)));
        Self {
            policy: name.to_owned(),
            had_bytes: mean(tally.had),
            cold_bytes: mean(tally.cold),
            anon_gone_bytes: gone.anon,
            file_gone_bytes: gone.file,
            net_bytes,
            saved_percent: percent(tally.saved()),
            saved_interval_percent: interval.map(|(low, high)| (100.0 * low, 100.0 * high)),
            coverage_percent: percent(tally.coverage()),
            net_percent: (tally.had > 0).then(|| 100.0 * net_bytes / mean(tally.had)),
            back_bytes_per_s: float(u128::from(tally.back.total())) / lasts_s.max(1e-3),
            promotion_rate_percent: Percentiles::of(&tally.rates),
            lost_percent: percent(tally.lost()),
            lost_of_minutes_percent: Percentiles::of(&tally.losses),
            held_percent: percent(rows),
            money_per_month: money.price.map(|price| price * net_bytes / 1e9),
            rates: tally.rates.clone(),
        }
    }
}

/// A time as it is told.
fn time(unix_s: f64) -> Option<String> {
    #[expect(clippy::cast_possible_truncation, reason = "saturates; not a time then")]
    let seconds = unix_s as i64;
    Timestamp::from_second(seconds).ok().map(|time| time.to_string())
}

impl Replayed {
    /// From what a replay added up, under these names of policies.
    #[must_use]
    pub fn new(dir: &Path, of: &OfFleet, names: &[&str], money: Money) -> Self {
        let lasts_s = of.lasts_s();
        let policies = names.iter().zip(&of.tallies).enumerate();
        let policies =
            policies.map(|(at, (name, tally))| Policy::new(name, tally, tune::interval(of, at), lasts_s, money));
        let Trouble { files, first, senseless, repeated, missing, untold } = of.trouble.clone();
        Self {
            dir: dir.display().to_string(),
            from: of.span_s.and_then(|(from_s, _)| time(from_s)),
            until: of.span_s.and_then(|(_, until_s)| time(until_s)),
            hosts: of.hosts.len(),
            workloads: of.workloads,
            rows: of.tallies.first().map_or(0, |tally| tally.rows),
            files: of.files,
            kept_percent: 100.0 * money.kept,
            policies: policies.collect(),
            by: None,
            trouble: Troubles {
                files,
                first,
                senseless_rows: senseless,
                repeated_rows: repeated,
                missing_minutes: missing,
                rows_without_ages: untold,
            },
        }
    }

    /// The same told apart by a label, by which the replay was asked to tell them apart.
    #[must_use]
    pub fn by(mut self, label: Option<&str>, of: &OfFleet, money: Money) -> Self {
        let names: Vec<String> = self.policies.iter().map(|policy| policy.policy.clone()).collect();
        let value = |(value, (workloads, tallies)): (&String, &(u64, Vec<PolicyTally>))| {
            // Hosts were drawn anew for all of them together only.
            let policies =
                names.iter().zip(tallies).map(|(name, tally)| Policy::new(name, tally, None, of.lasts_s(), money));
            OfLabel { value: value.clone(), workloads: *workloads, policies: policies.collect() }
        };
        self.by = label.map(|label| {
            let values: Vec<OfLabel> = of.labels.iter().map(value).collect();
            let with: u64 = values.iter().map(|of| of.workloads).sum();
            By { label: label.to_owned(), without: of.workloads - with, values }
        });
        self
    }

    /// What is in no figure, in words; empty = nothing.
    fn remarks(&self) -> Vec<String> {
        let trouble = &self.trouble;
        let mut remarks = Vec::new();
        let mut say = |number: u64, what: &str| {
            if number > 0 {
                remarks.push(format!("{number} {what}"));
            }
        };
        say(trouble.files, "files could not be read to their end; the rest of them is in no figure");
        say(trouble.senseless_rows, "rows cannot be true and were left out");
        say(trouble.repeated_rows, "rows were there twice, or of a clock that was set back, and were left out");
        say(trouble.missing_minutes, "minutes of workloads are missing between others; they are in no figure");
        say(trouble.rows_without_ages, "rows tell of no idle ages: nothing is said to go of them");
        if let Some(by) = &self.by {
            say(by.without, &format!("workloads have no label {}; they are in the sum alone", by.label));
        }
        remarks.extend(trouble.first.iter().cloned());
        remarks
    }
}

/// What a search found.
#[derive(Debug, Clone, Serialize)]
pub struct Tuned {
    /// The settings, as a policy's file.
    toml: String,
    /// The limit that was to be kept, and what the settings did on the hosts on which they were chosen, percent.
    rate_limit_percent: f64,
    chosen_rate_percent: f64,
    chosen_saved_percent: f64,
    /// The other figures are of hosts that had no say in it; false where there were too few to leave some out.
    held_out: bool,
    tried: Vec<Candidate>,
    frontier: Vec<Candidate>,
}

#[derive(Debug, Clone, Serialize)]
struct Candidate {
    saved_percent: f64,
    rate_p98_percent: f64,
    toml: String,
}

impl From<&TriedSettings> for Candidate {
    fn from(tried: &TriedSettings) -> Self {
        Self { saved_percent: 100.0 * tried.saved, rate_p98_percent: 100.0 * tried.rate, toml: tried.toml.clone() }
    }
}

impl Tuned {
    /// From a search that has come to its end.
    #[must_use]
    pub fn new(search: &Search, best: &TriedSettings, rate: f64, held_out: bool) -> Self {
        Self {
            toml: best.toml.clone(),
            rate_limit_percent: 100.0 * rate,
            chosen_rate_percent: 100.0 * best.rate,
            chosen_saved_percent: 100.0 * best.saved,
            held_out,
            tried: search.tried.iter().map(Candidate::from).collect(),
            frontier: search.frontier().into_iter().map(Candidate::from).collect(),
        }
    }

    fn grid(&self) -> Grid {
        let mut grid =
            Grid::new("The frontier: no other saves more at so low a rate", &["saved", "rate, p98", "settings"]);
        grid.remarks = true;
        for candidate in &self.frontier {
            let settings: Vec<&str> = candidate.toml.lines().skip(1).collect();
            grid.row([
                figure(Some(candidate.saved_percent), 2, " %"),
                figure(Some(candidate.rate_p98_percent), 3, " %"),
                settings.join(", ").replace('"', ""),
            ]);
        }
        grid
    }

    fn words(&self) -> String {
        let of = if self.held_out {
            "on half of the hosts; what is told above is of the other half"
        } else {
            "on all hosts, too few to leave some out: expect a little less"
        };
        format!(
            "{}\n# Chosen among {} candidates {of}: {:.2} % saved there, rate {:.3} % of {:.3} % allowed\n",
            self.toml,
            self.tried.len(),
            self.chosen_saved_percent,
            self.chosen_rate_percent,
            self.rate_limit_percent
        )
    }
}

/// Writes a replay, and the search before it.
///
/// # Errors
/// If a drawing fails, or `out` does.
pub fn write(
    told: &Replayed,
    tuned: Option<&Tuned>,
    format: Format,
    look: Look,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    match format {
        Format::Text => {
            for grid in grids(told) {
                writeln!(out, "{}", grid.text(look))?;
            }
            for remark in told.remarks() {
                writeln!(out, "note: {}", super::text::printable(&remark))?;
            }
            if let Some(tuned) = tuned {
                writeln!(out, "\n{}\n{}", tuned.grid().text(look), tuned.words())?;
            }
        }
        Format::Json => {
            #[derive(Serialize)]
            struct Whole<'a> {
                #[serde(flatten)]
                told: &'a Replayed,
                tuned: Option<&'a Tuned>,
            }
            serde_json::to_writer_pretty(&mut *out, &Whole { told, tuned }).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        Format::Csv => csv(told, out)?,
        Format::Html => out.write_all(draw::page(told, tuned)?.as_bytes())?,
        Format::Svg => out.write_all(paint::svg_file(&draw::whole(told, tuned)).map_err(painting)?.as_bytes())?,
        Format::Png => out.write_all(&paint::png_file(&draw::whole(told, tuned)).map_err(painting)?)?,
    }
    Ok(())
}

fn title(told: &Replayed) -> String {
    let span = told.from.as_ref().zip(told.until.as_ref());
    let span = span.map_or_else(String::new, |(from, until)| format!(", {from} to {until}"));
    format!("{} hosts, {} workloads, {} rows{span}", told.hosts, told.workloads, told.rows)
}

fn grids(told: &Replayed) -> Vec<Grid> {
    let head = ["policy", "had", "cold", "gone", "net saving", "", "95 %", "of the cold"];
    let mut saved = Grid::new(&title(told), &head);
    let mut paid = Grid::new(
        "Price, and what of what is used came back in a minute",
        &["policy", "back", "a minute, p50", "p98", "time lost", "p98", "held", "a month"],
    );
    for policy in &told.policies {
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
    [saved, paid].into_iter().chain(told.by.iter().map(by_label)).collect()
}

fn by_label(by: &By) -> Grid {
    // What fits on a line; the other formats tell all.
    let head = [by.label.as_str(), "policy", "had", "net saving", "", "a minute, p98", "time lost"];
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

fn csv(told: &Replayed, out: &mut dyn Write) -> std::io::Result<()> {
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
    let all = told.policies.iter().map(|policy| ("", policy));
    let values = told.by.iter().flat_map(|by| &by.values);
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
