//! Replays and searches, drawn.

use std::io::Write;

use lowtide_fleet::tally::Quantiles;

use lowtide_model::units::float;
use plotters::style::text_anchor::HPos;

use super::results::{PolicyResult, ReplayResult};
use super::tables::{grids, title};
use super::{Candidate, Tuned};
use crate::draw::{Axis, Figure, Ink, Layout, Page, Plot, Track, Units, aligned, heading, lines, px};
use crate::page::{self, PageOpening, Section};
use crate::text::figure;
use crate::{Format, ReportError, drawing};

/// Rates that are drawn: 10^-4 to 100 % a minute.
const RATES: (f64, f64) = (-6.0, 0.0);

/// What the axis of rates is called.
const RATE: &str = "promotion rate, per minute";

/// Where a rate stands on its axis, which is of powers of ten.
fn place(rate: f64) -> f64 {
    rate.max(1e-12).log10().clamp(RATES.0, RATES.1)
}

fn rates_axis(page: Page) -> Axis {
    let names = ["0.0001 %", "0.001 %", "0.01 %", "0.1 %", "1 %", "10 %", "100 %"];
    Axis::new(RATES.0, RATES.1, (-6..=0).map(f64::from).zip(names.map(str::to_owned)).step_by(page.of(1, 2)))
}

/// Shares from 0 to the highest, in quarters of it.
fn shares_axis(most: f64) -> Axis {
    let quarter = |part: i32| (most * f64::from(part) / 4.0, format!("{:.0} %", 25.0 * most * f64::from(part)));
    Axis::new(0.0, most, (0..=4).map(quarter))
}

/// The share of the minutes in which so little came back.
fn rates(page: Page, result: &ReplayResult) -> Figure<'_> {
    let title = "Share of minutes, by promotion rate";
    let tracks = result.policies.iter().enumerate().map(|(at, policy)| {
        let all = float(policy.rates.count()).max(1.0);
        let mut below = 0u64;
        let mut line = Vec::new();
        for (key, count) in policy.rates.counts() {
            let value = place(Quantiles::from_counts([(key, 1)]).at(1.0).unwrap_or(0.0));
            line.push((value, float(below) / all));
            below += count;
            line.push((value, float(below) / all));
        }
        line.push((RATES.1, 1.0));
        Track::nth(at, &policy.policy, 7, line)
    });
    let axes = [rates_axis(page), shares_axis(1.0)];
    lines(page, (title, RATE), (axes, Units { x: "lg", y: "1" }), tracks.collect())
}

/// Candidates of a search, and the frontier.
fn candidates(page: Page, tuned: &Tuned) -> Figure<'_> {
    let title =
        page.of("Candidates: memory saved, by 98th percentile of the promotion rate", "Saved, by p98 of the rate");
    let label = format!("{title}. Line: the frontier. Candidates right of the dashed mark exceed the limit.");
    // A top that has round quarters.
    let most = tuned.tried.iter().map(|tried| tried.saved_percent / 4.0).fold(0.1, f64::max).ceil() * 4.0 / 100.0;
    Figure::new(page, px(280), &label, move |area| {
        let axes = [&rates_axis(page), &shares_axis(most)];
        let rest = heading(area, title)?;
        let layout = Layout { bottom: px(44), x_name: RATE, ..Layout::default() };
        let mut plot = Plot::new(&rest, axes, layout)?;
        let at = |candidate: &Candidate| (place(candidate.rate_p98_percent / 100.0), candidate.saved_percent / 100.0);
        let limit = place(tuned.rate_limit_percent / 100.0);
        plot.dashed(vec![(limit, 0.0), (limit, most)], Ink::Kernel, 5)?;
        plot.dots(tuned.tried.iter().map(at), Ink::Anon, px(2))?;
        plot.line(tuned.frontier.iter().map(at).collect(), Ink::File, 6)?;
        let chosen = (place(tuned.chosen_rate_percent / 100.0), tuned.chosen_saved_percent / 100.0);
        plot.dots([chosen], Ink::File, px(5))?;
        plot.text("chosen", &aligned(Ink::Text, HPos::Right), chosen, (px(-9), px(-12)))
    })
}

/// All of it on one sheet.
pub(super) fn file(
    result: &ReplayResult,
    tuned: Option<&Tuned>,
    format: Format,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let figures = [rates(Page::Wide, result)].into_iter().chain(tuned.map(|tuned| candidates(Page::Wide, tuned)));
    drawing(format, &Figure::sheet("Fleet", &title(result), figures.collect()), out)
}

/// All of it as a page.
///
/// # Errors
/// If it cannot be drawn.
pub(super) fn page(result: &ReplayResult, tuned: Option<&Tuned>) -> Result<String, ReportError> {
    let names: Vec<&str> = result.policies.iter().map(|policy| policy.policy.as_str()).collect();
    let remarks = result.remarks().join(". ");
    let meaning = format!(
        "Net saving: memory evicted on average, less the {:.0} % of evicted anonymous memory that its compressed copies take. \
         Coverage: share of cold memory that is evicted. Promotion rate: memory refaulted in a minute, as a share of the \
         working set. {remarks}",
        result.kept_percent
    );
    let mut chapters =
        vec![Section::chapter("What each policy would have saved and cost", &meaning, grids(result), |page| {
            Some(rates(page, result))
        })?];
    if let Some(tuned) = tuned {
        let drawn = Section::chapter("Candidates", &tuned.sentences(), vec![tuned.grid()], |page| {
            Some(candidates(page, tuned))
        })?;
        chapters.push(drawn);
    }
    let saved = |policy: &&PolicyResult| policy.net_percent.unwrap_or(0.0);
    let most = result.policies.iter().max_by(|a, b| saved(a).total_cmp(&saved(b)));
    let answer = most.filter(|policy| saved(policy) > 0.0).map_or_else(String::new, |policy| {
        let rate = figure(policy.promotion_rate_percent.p98, 3, " %");
        format!(
            "{} saves most: {:.1} % of memory, net, at a promotion rate of {rate} (98th percentile).",
            policy.policy,
            saved(&policy)
        )
    });
    page::chapters(PageOpening { command: "fleet", title: title(result), ran: names.join(", "), answer }, chapters)
}
