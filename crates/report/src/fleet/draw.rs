//! Replays and searches, drawn.

use lowtide_fleet::tally::Quantiles;

use super::{Candidate, Replayed, Tuned, float, grids, title};
use crate::ReportError;
use crate::draw::axis::{Frame, MARKS, Tick};
use crate::draw::{Anchor, Ink, Page, Scene};
use crate::sheet::{self, Drawn};

/// Colours of policies, in their order.
const INKS: [Ink; 6] = [Ink::Anon, Ink::Window1, Ink::Window30, Ink::Window120, Ink::File, Ink::Kernel];

/// Rates that are drawn: 10^-4 to 100 % a minute.
const RATES: (f64, f64) = (-6.0, 0.0);

/// Where a rate stands on its axis, which is of powers of ten.
fn place(rate: f64) -> f64 {
    rate.max(1e-12).log10().clamp(RATES.0, RATES.1)
}

fn rate_marks() -> Vec<Tick> {
    let name = |power: i32| match power {
        -6 => "0.0001 %".to_owned(),
        -5 => "0.001 %".to_owned(),
        -4 => "0.01 %".to_owned(),
        -3 => "0.1 %".to_owned(),
        -2 => "1 %".to_owned(),
        -1 => "10 %".to_owned(),
        _ => "100 %".to_owned(),
    };
    (-6..=0).map(|power| (f64::from(power), name(power))).collect()
}

fn share_rules(most: f64) -> Vec<Tick> {
    let rule = |part: i32| (most * f64::from(part) / 4.0, format!("{:.0} %", 25.0 * most * f64::from(part)));
    (0..=4).map(rule).collect()
}

/// Of which share of the minutes how little came back.
fn rates(page: Page, told: &Replayed) -> Scene {
    let title = "Minutes in which so little came back, of what is used";
    let mut scene = Scene::new(page, format!("{title}: a line for each policy."));
    scene.bold((0.0, 8.0), title, Ink::Text, Anchor::Start);
    let ink = |at: usize| INKS[at % INKS.len()];
    let key: Vec<(Ink, &str)> =
        told.policies.iter().enumerate().map(|(at, policy)| (ink(at), policy.policy.as_str())).collect();
    let top = 18.0 + scene.key((0.0, 18.0), scene.width, &key);
    let frame = Frame::on(page, top + 4.0, 170.0, RATES, 1.0);
    frame.rules(&mut scene, &share_rules(1.0));
    frame.marks(&mut scene, &rate_marks());
    for (at, policy) in told.policies.iter().enumerate() {
        let all = float(u128::from(policy.rates.count())).max(1.0);
        let mut below = 0u64;
        let mut line = Vec::new();
        for (key, count) in policy.rates.counts() {
            let value = Quantiles::from_counts([(key, 1)]).at(1.0).unwrap_or(0.0);
            let before = float(u128::from(below)) / all;
            line.push(frame.at(place(value), before));
            below += count;
            line.push(frame.at(place(value), float(u128::from(below)) / all));
        }
        line.push(frame.at(RATES.1, 1.0));
        scene.line(line, ink(at), 1.8);
    }
    scene.height = frame.bottom() + MARKS;
    scene
}

/// Candidates of a search, and the frontier.
fn candidates(page: Page, tuned: &Tuned) -> Scene {
    let title = "Candidates: memory saved, and the 98th percentile of what came back in a minute";
    let mut scene =
        Scene::new(page, format!("{title}. The frontier is a line; what is right of the mark is not allowed."));
    scene.bold(
        (0.0, 8.0),
        if page == Page::Wide { title } else { "Saved, over p98 of the rate" },
        Ink::Text,
        Anchor::Start,
    );
    // A top that has round quarters.
    let most = tuned.tried.iter().map(|tried| tried.saved_percent / 4.0).fold(0.1, f64::max).ceil() * 4.0 / 100.0;
    let frame = Frame::on(page, 30.0, 210.0, RATES, most);
    frame.rules(&mut scene, &share_rules(most));
    frame.marks(&mut scene, &rate_marks());
    let at =
        |candidate: &Candidate| frame.at(place(candidate.rate_p98_percent / 100.0), candidate.saved_percent / 100.0);
    let limit = place(tuned.rate_limit_percent / 100.0);
    scene.dashed(&[frame.at(limit, 0.0), frame.at(limit, most)], Ink::Kernel, 1.2);
    for candidate in &tuned.tried {
        let (x, y) = at(candidate);
        scene.rect((x - 2.0, y - 2.0), (4.0, 4.0), Ink::Anon, 0.6);
    }
    scene.line(tuned.frontier.iter().map(at).collect(), Ink::File, 1.6);
    let (x, y) = frame.at(place(tuned.chosen_rate_percent / 100.0), tuned.chosen_saved_percent / 100.0);
    scene.rect((x - 4.5, y - 4.5), (9.0, 9.0), Ink::File, 1.0);
    scene.text((x - 9.0, y - 12.0), "chosen", Ink::Text, Anchor::End);
    scene.height = frame.bottom() + MARKS;
    scene
}

/// All of it on one sheet.
pub(super) fn whole(told: &Replayed, tuned: Option<&Tuned>) -> Scene {
    let mut scene = rates(Page::Wide, told);
    if let Some(tuned) = tuned {
        scene.stack(candidates(Page::Wide, tuned), 22.0);
    }
    scene.titled("Fleet", &title(told))
}

/// All of it as a page.
///
/// # Errors
/// If it cannot be drawn.
pub(super) fn page(told: &Replayed, tuned: Option<&Tuned>) -> Result<String, ReportError> {
    let names: Vec<&str> = told.policies.iter().map(|policy| policy.policy.as_str()).collect();
    let remarks = told.remarks().join(". ");
    let meaning = format!(
        "Net saving: what would have been gone, on average, less the {:.0} % of anonymous memory that keeping it takes. Coverage: of what \
         was cold. Rate: what came back in a minute, of what is used. {remarks}",
        told.kept_percent
    );
    let mut chapters =
        vec![Drawn::new("What policies would have done", &meaning, grids(told), |page| Some(rates(page, told)))?];
    if let Some(tuned) = tuned {
        let drawn = Drawn::new("Candidates", &tuned.words(), vec![tuned.grid()], |page| Some(candidates(page, tuned)))?;
        chapters.push(drawn);
    }
    sheet::render("fleet", &title(told), &names.join(", "), chapters)
}
