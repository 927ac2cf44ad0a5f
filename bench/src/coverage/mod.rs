//! How often the intervals that lowtide prints hold the truth, on simulated programs.

mod cycles;
mod pages;
mod runs;
mod series;

use lowtide_model::random::{Random, mix};
use lowtide_model::units::count;
use rayon::prelude::*;

use crate::grid::{NONE, table};

const NOTES: &str = "\
Percent of simulated programs whose 95 % interval held the truth; in brackets the share that had an interval, where not all
did. A dash: no interval is given. n: runs, pairs of runs, hosts or seconds. Good intervals hold in 90 to 98 %.
Where the used memory lies in a few pieces, the interval always holds: it is at least about two sampled pages wide, and
the estimate is hardly ever off by more than one. Means of runs that are not in pairs count a machine that gets slower as
an error, and of three to ten runs too few meet the few slow ones: that is why nothing prints them.
";

const LENGTHS: [usize; 6] = [3, 5, 10, 30, 60, 300];

#[derive(Debug, clap::Args)]
pub struct CoverageArgs {
    /// Simulated programs for each figure
    #[arg(long, default_value = "2000")]
    programs: u32,
    /// The same seed gives the same figures
    #[arg(long, default_value = "1")]
    seed: u64,
}

/// How many programs of one figure had an interval, and how many of these held.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Held {
    programs: u32,
    given: u32,
    held: u32,
}

impl Held {
    /// Adds whether a program's interval held the truth; `None` if it had none.
    fn add(self, holds: Option<bool>) -> Self {
        Self {
            programs: self.programs + 1,
            given: self.given + u32::from(holds.is_some()),
            held: self.held + u32::from(holds == Some(true)),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self { programs: self.programs + other.programs, given: self.given + other.given, held: self.held + other.held }
    }

    fn text(self) -> String {
        let percent = |part: u32, all: u32| 100.0 * f64::from(part) / f64::from(all.max(1));
        match (self.given, self.programs) {
            (0, _) => NONE.to_owned(),
            (given, programs) if given == programs => format!("{:.1}", percent(self.held, given)),
            (given, programs) => format!("{:.1} ({:.0} %)", percent(self.held, given), percent(given, programs)),
        }
    }
}

/// One interval on one kind of program.
struct Line {
    interval: &'static str,
    program: &'static str,
    /// By length; `None` where it was not tried.
    held: Vec<Option<Held>>,
}

impl CoverageArgs {
    /// Counts the simulated programs whose interval holds the truth.
    fn count(&self, name: &str, length: usize, one: impl Fn(&mut Random) -> Option<bool> + Sync) -> Held {
        // Each figure has random numbers of its own, whatever else is counted.
        let start = name.bytes().fold(mix(self.seed ^ count(length)), |hash, byte| mix(hash ^ u64::from(byte)));
        (0..self.programs)
            .into_par_iter()
            .map(|program| Held::default().add(one(&mut Random::new(mix(start ^ u64::from(program))))))
            .reduce(Held::default, Held::plus)
    }

    /// A line of the table, for lengths up to `longest`.
    fn line(
        &self,
        (interval, program): (&'static str, &'static str),
        longest: usize,
        one: impl Fn(&mut Random, usize) -> Option<bool> + Sync,
    ) -> Line {
        let name = format!("{interval}, {program}");
        let held =
            LENGTHS.map(|length| (length <= longest).then(|| self.count(&name, length, |random| one(random, length))));
        Line { interval, program, held: held.to_vec() }
    }
}

fn print(title: &str, lines: &[Line]) {
    let head = format!("interval | program | n = {}", LENGTHS.map(|length| length.to_string()).join(" | n = "));
    let cells = |line: &Line| {
        let held = line.held.iter().map(|held| held.map_or_else(String::new, Held::text));
        [line.interval, line.program].into_iter().map(str::to_owned).chain(held).collect()
    };
    print!("{}", table(title, &head, &lines.iter().map(cells).collect::<Vec<Vec<String>>>()));
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of a command")]
pub fn run(args: &CoverageArgs) -> anyhow::Result<()> {
    let mut lines = runs::lines(args);
    lines.extend(series::lines(args));
    lines.extend(cycles::lines(args));
    lines.extend(pages::lines(args));
    print("Intervals that held the truth, %", &lines);
    print(
        "Trials that ended as certain, and wrong, %: the allowed slowdown equals the true one",
        &runs::mistakes(args),
    );
    print!("{NOTES}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_interval_does_not_count_as_held() {
        let answers = [Some(true), Some(true), Some(false), None];
        let held = answers.into_iter().fold(Held::default(), Held::add);
        assert_eq!(held, Held { programs: 4, given: 3, held: 2 });
        assert_eq!((held.text(), held.plus(held).programs), ("66.7 (75 %)".to_owned(), 8));
        assert_eq!(Held::default().add(None).text(), "–");
    }

    #[test]
    fn intervals_hold_the_truth_in_nine_of_ten_programs_and_more() {
        let args = CoverageArgs { programs: 200, seed: 1 };
        for line in runs::lines(&args).into_iter().chain(series::lines(&args)) {
            for (length, held) in LENGTHS.iter().zip(&line.held) {
                let Some(held) = held.filter(|held| held.given > 0) else { continue };
                let (name, text) = (line.interval, held.text());
                // Three standard deviations below 90 %, of 200.
                assert!(held.held * 100 >= held.given * 83, "{name}, {}, {length}: {text}", line.program);
            }
        }
    }
}
