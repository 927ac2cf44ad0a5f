//! What policies would have saved in a fleet: saving, price, and how sure that is.

mod draw;
mod results;
mod tables;

use std::io::Write;

use lowtide_fleet::tune::{Search, TriedSettings};
use serde::Serialize;

use crate::text::{Grid, Terminal, figure, printable};
use crate::{Format, ReportError, pretty};
pub use results::{Money, PolicyResult, RatePercentiles, ReplayResult};

/// What a search found.
#[derive(Debug, Clone, Serialize)]
pub struct Tuned {
    /// The settings, as a policy's file.
    toml: String,
    /// The limit that was to be kept, and what the settings did on the hosts on which they were chosen, percent.
    rate_limit_percent: f64,
    chosen_rate_percent: f64,
    chosen_saved_percent: f64,
    /// The other figures are of hosts that were not used to choose; false where there were too few to leave some out.
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
    /// From a finished search.
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

    /// The settings as a policy's file, and how they were chosen.
    fn words(&self) -> String {
        format!("{}\n# {}\n", self.toml, self.chosen())
    }

    /// The same as sentences.
    fn sentences(&self) -> String {
        let settings: Vec<&str> = self.toml.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        format!("{}. Settings: {}.", self.chosen(), settings.join(", ").replace("], ", "] "))
    }

    fn chosen(&self) -> String {
        let of = if self.held_out {
            "on half of the hosts; the figures above are of the other half"
        } else {
            "on all hosts, too few to leave some out: expect a little less"
        };
        format!(
            "Chosen among {} candidates {of}: {:.2} % saved there, rate {:.3} % of {:.3} % allowed",
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
    (replayed, tuned): (&ReplayResult, Option<&Tuned>),
    format: Format,
    terminal: Terminal,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    match format {
        Format::Text => {
            for grid in tables::grids(replayed) {
                writeln!(out, "{}", grid.text(terminal))?;
            }
            for remark in replayed.remarks() {
                writeln!(out, "note: {}", printable(&remark))?;
            }
            if let Some(tuned) = tuned {
                writeln!(out, "\n{}\n{}", tuned.grid().text(terminal), tuned.words())?;
            }
        }
        Format::Json => {
            #[derive(Serialize)]
            struct Document<'a> {
                #[serde(flatten)]
                replayed: &'a ReplayResult,
                tuned: Option<&'a Tuned>,
            }
            pretty(&Document { replayed, tuned }, out)?;
        }
        Format::Csv => tables::csv(replayed, out)?,
        Format::Html => out.write_all(draw::page(replayed, tuned)?.as_bytes())?,
        Format::Svg | Format::Png => draw::file(replayed, tuned, format, out)?,
    }
    Ok(())
}
