//! The results of trials as tables.

use lowtide_model::budget::Mechanism;
use lowtide_model::budget::trials::Slowdown;
use lowtide_model::interval;
use lowtide_model::units::human_seconds;

use super::trials::name;
use super::{TrialResult, Verdicts};
use lowtide_report::forest::{Chapter, Mark};
use lowtide_report::text::{Grid, whole_bytes};

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

impl TrialResult {
    fn name(&self) -> String {
        name(self.mechanism, self.swap)
    }

    /// In words.
    fn verdict(&self) -> String {
        match &self.failure {
            Some(_) => format!("{} of {} failed", self.failed, self.runs),
            None => {
                let verdict = if self.holds { "holds" } else { "slower" };
                match self.slowdown.map_or(0, |of| of.pairs) {
                    _ if self.certain => verdict.to_owned(),
                    // The mean decides, and nothing says how far off it may be.
                    1 => format!("{verdict}, perhaps (1 run)"),
                    pairs if pairs < interval::FEWEST => format!("{verdict}, perhaps ({pairs} runs)"),
                    _ => format!("{verdict}, perhaps"),
                }
            }
        }
    }
}

impl Verdicts {
    /// The tables.
    #[must_use]
    pub fn grids(&self, unlimited: Option<u64>) -> Vec<Grid> {
        let dash = || "-".to_owned();
        let head = ["", "limit", "runs", "runtime", "slower by", "95 % interval", "verdict"];
        let mut runs = Grid::new("Run under each budget", &head);
        let mut costs = Grid::new("Cost of each", &["", "runtime varies by", "waits for I/O", "performance per GB"]);
        let per_gb = |value: Option<f64>| value.map_or_else(dash, |value| format!("{value:.2}"));
        let free = Mechanism::Unlimited.name().to_owned();
        let none = || [dash(), dash(), "no limit".to_owned()];
        let all = [free.clone(), whole_bytes(unlimited), dash(), human_seconds(self.runtime_s)];
        runs.row(all.into_iter().chain(none()));
        costs.row([free, percent(self.variability), percent(self.io_wait), per_gb(self.perf_per_gb)]);
        for one in &self.tried {
            let interval = one.slowdown.and_then(|of| of.interval);
            runs.row([
                one.name(),
                whole_bytes(Some(one.bytes)),
                one.runs.to_string(),
                one.runtime_s.map_or_else(dash, human_seconds),
                percent(one.slowdown.map(|of| of.mean)),
                interval.map_or_else(dash, |[low, high]| format!("{:.1} to {:.1} %", 100.0 * low, 100.0 * high)),
                one.verdict(),
            ]);
            costs.row([one.name(), percent(one.variability), percent(one.io_wait), per_gb(one.perf_per_gb)]);
        }
        let mut failed = Grid::new("Runs that failed", &["", "why"]);
        failed.remarks = true;
        for one in &self.tried {
            failed.rows.extend(one.failure.iter().map(|why| vec![one.name(), why.clone()]));
        }
        let mut least = Grid::new("Smallest limit that held", &["", "predicted", "least", "slower by", "runs"]);
        for one in &self.verified {
            least.row([
                if one.swap { "with swap" } else { "without swap" }.to_owned(),
                whole_bytes(Some(one.predicted_bytes)),
                whole_bytes(Some(one.bytes)),
                percent(Some(one.measured.mean)),
                one.measured.pairs.to_string(),
            ]);
        }
        [runs, costs, failed, least].into_iter().filter(|grid| !grid.rows.is_empty()).collect()
    }

    /// Which budgets held.
    #[must_use]
    pub fn sentence(&self) -> String {
        let of = |one: &TrialResult| format!("{} ({}): {}.", one.name(), whole_bytes(Some(one.bytes)), one.verdict());
        self.tried.iter().map(of).collect::<Vec<_>>().join(" ")
    }

    /// The same as part of a page.
    #[must_use]
    pub fn chapter(&self, unlimited: Option<u64>) -> Chapter {
        let mark = |one: &TrialResult| {
            let Slowdown { mean, interval, .. } = one.slowdown?;
            Some(Mark { group: one.name(), name: "runtime".to_owned(), mean, interval })
        };
        Chapter {
            title: "Run under each budget".to_owned(),
            meaning:
                "runtime: percent over runs without a limit in the same round, geometric mean and its 95 % interval; \
                      none of fewer than three rounds."
                    .to_owned(),
            marks: self.tried.iter().filter_map(mark).collect(),
            grids: self.grids(unlimited),
            ..Chapter::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(pairs: &[(f64, f64)], certain: bool) -> TrialResult {
        TrialResult {
            mechanism: Mechanism::Lowtide,
            bytes: 1 << 20,
            swap: true,
            runs: pairs.len(),
            failed: 0,
            failure: None,
            runtime_s: None,
            variability: None,
            slowdown: Slowdown::of(pairs),
            io_wait: None,
            perf_per_gb: None,
            holds: true,
            certain,
        }
    }

    #[test]
    fn a_verdict_says_what_it_rests_on() {
        let pairs = [(1.0, 1.0), (1.1, 1.0), (1.0, 1.0)];
        assert_eq!(tried(&pairs[..1], false).verdict(), "holds, perhaps (1 run)");
        assert_eq!(tried(&pairs[..2], false).verdict(), "holds, perhaps (2 runs)");
        assert_eq!(tried(&pairs, false).verdict(), "holds, perhaps");
        assert_eq!(tried(&pairs, true).verdict(), "holds");
    }
}
