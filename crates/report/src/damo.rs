//! What can be chosen of views by damo's rule. Defaults are damo's own.

use std::str::FromStr;

use lowtide_model::units::{Size, Span, index};

/// What can be chosen with `--rule damo`.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "With --rule damo")]
pub struct Choices {
    /// Percentiles of the working set, as 50,90,99 or 0-100:5 [default: 0-100:25]
    #[arg(long, value_name = "LIST", conflicts_with = "every")]
    pub percentiles: Option<Percentiles>,

    /// Every working set instead of percentiles
    #[arg(long)]
    pub every: bool,

    /// What percentiles are counted off along [default: size]
    #[arg(long, value_enum)]
    pub sort: Option<Sort>,

    /// Snapshots left out at the start of every target [default: 20]
    #[arg(long, value_name = "N")]
    pub leave_out: Option<usize>,

    /// Samples that must have found an access for a region to be in the working set [default: 1]
    #[arg(long, value_name = "N")]
    pub least_accesses: Option<u64>,

    /// Size that a region must have to be in the working set
    #[arg(long, value_name = "SIZE")]
    pub least_size: Option<Size>,

    /// Snapshots are joined until they span this time
    #[arg(long, value_name = "TIME")]
    pub join: Option<Span>,

    /// A distribution for every target instead of one of their sums
    #[arg(long)]
    pub each_target: bool,

    /// Cells of the heatmap along time and addresses [default: 500x500]
    #[arg(long, value_name = "TIMExADDRESSES")]
    pub cells: Option<Cells>,

    /// Heatmaps of all ranges of addresses instead of the hottest
    #[arg(long)]
    pub all_ranges: bool,
}

/// What percentiles are counted off along.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// From the smallest working set to the largest
    #[default]
    Size,
    /// From the first to the last
    Time,
}

/// Percentiles in the order in which they are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Percentiles(pub Vec<u32>);

impl Default for Percentiles {
    fn default() -> Self {
        Self(vec![0, 25, 50, 75, 100])
    }
}

impl FromStr for Percentiles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u32>().ok().filter(|percent| *percent <= 100);
        let part = |part: &str| {
            let Some((from, to)) = part.split_once('-') else { return Some(vec![number(part)?]) };
            let (to, step) = to.split_once(':').unwrap_or((to, "1"));
            let (from, to, step) = (number(from)?, number(to)?, number(step)?);
            (from <= to && step > 0).then(|| (from..=to).step_by(index(step.into())).collect())
        };
        let parts: Option<Vec<Vec<u32>>> = text.split(',').map(|text| part(text.trim())).collect();
        parts
            .map(|parts| Self(parts.concat()))
            .ok_or_else(|| "percentiles are integers up to 100; write for example 50,90,99 or 0-100:5".to_owned())
    }
}

/// How many cells a heatmap has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cells {
    /// Along time.
    pub time: u32,
    /// Along addresses.
    pub addresses: u32,
}

impl Default for Cells {
    fn default() -> Self {
        Self { time: 500, addresses: 500 }
    }
}

impl FromStr for Cells {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A cell takes some tens of bytes.
        let number = |text: &str| text.parse().ok().filter(|cells| (1..=4000).contains(cells));
        let sides = text.split_once('x').and_then(|(time, addresses)| Some((number(time)?, number(addresses)?)));
        sides
            .map(|(time, addresses)| Self { time, addresses })
            .ok_or_else(|| "cells are 1 to 4000 each way; write for example 40x80".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_of_percentiles() {
        let parse = |text: &str| text.parse::<Percentiles>().map(|percentiles| percentiles.0).ok();
        assert_eq!(parse("50,90,99").unwrap(), [50, 90, 99]);
        assert_eq!(
            parse("0-100:25, 99").unwrap(),
            Percentiles::default().0.into_iter().chain([99]).collect::<Vec<_>>()
        );
        assert_eq!(parse("3-5").unwrap(), [3, 4, 5]);
        for wrong in ["", "101", "-1", "5-3", "0-100:0", "x", "1,,2"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sides_of_a_heatmap() {
        assert_eq!("40x80".parse(), Ok(Cells { time: 40, addresses: 80 }));
        for wrong in ["40", "0x1", "4001x1", "x", "-1x1"] {
            assert!(wrong.parse::<Cells>().is_err(), "{wrong}");
        }
    }
}
