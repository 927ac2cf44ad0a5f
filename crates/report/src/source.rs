//! A record's rows, read when a view asks for them and kept for the next.

use std::cell::OnceCell;

use lowtide_model::curve::{Curve, RefaultCosts};
use lowtide_model::meta::Meta;
use lowtide_model::numa::NodeRow;
use lowtide_model::summary::Summary;
use lowtide_model::usage::Usage;

use super::text::printable;
use lowtide_record::{AgeRow, Record};

/// Seconds after which every monitor has told which memory is used: ten are looked at, which the price may have begin late.
const LONG_ENOUGH_S: f64 = 20.0;

/// What views are taken from.
pub struct Source<'a> {
    record: &'a Record,
    usage: OnceCell<Vec<Usage>>,
    ages: OnceCell<Vec<AgeRow>>,
    curve: OnceCell<Option<Curve>>,
}

impl<'a> Source<'a> {
    /// Of that record.
    #[must_use]
    pub fn new(record: &'a Record) -> Self {
        Self { record, usage: OnceCell::new(), ages: OnceCell::new(), curve: OnceCell::new() }
    }

    pub(super) fn record(&self) -> &'a Record {
        self.record
    }

    pub(super) fn meta(&self) -> &'a Meta {
        self.record.meta()
    }

    /// The command as one line.
    pub(super) fn command(&self) -> String {
        printable(&self.meta().command.join(" "))
    }

    /// All ticks, the baseline from before the command's start first.
    pub(super) fn usage(&self) -> &[Usage] {
        self.usage.get_or_init(|| self.record.usage())
    }

    /// Ticks while the command ran.
    pub(super) fn ticks(&self) -> &[Usage] {
        self.usage().get(1..).unwrap_or_default()
    }

    pub(super) fn ages(&self) -> &[AgeRow] {
        self.ages.get_or_init(|| self.record.ages())
    }

    /// Memory by NUMA node.
    pub(super) fn nodes(&self) -> Vec<NodeRow> {
        self.record.rows()
    }

    pub(super) fn summary(&self) -> Summary {
        self.record.summary_of(self.usage(), self.ages(), self.curve())
    }

    /// The tide curve; `None` where the record has not the measurements for it.
    pub(super) fn curve(&self) -> Option<&Curve> {
        self.curve.get_or_init(|| self.record.curve(self.usage(), self.ages())).as_ref()
    }

    /// What a page costs that comes back: as measured on the machine, or else as is usual.
    pub(super) fn costs(&self) -> RefaultCosts {
        self.meta().refault_costs.or_usual()
    }

    /// Why there is no picture of which memory is used, in short; the reasons of each monitor are among the notes.
    pub(super) fn why_unmeasured(&self) -> String {
        let monitor = &self.meta().monitor;
        let short = self.usage().last().and_then(|row| row.t_s).is_none_or(|t_s| t_s < LONG_ENOUGH_S);
        match (monitor.backend.as_str(), monitor.refused.is_empty()) {
            ("none" | "", true) => "no monitor was asked to look which pages are touched".to_owned(),
            ("none" | "", false) => "no monitor could look which pages are touched".to_owned(),
            (backend, _) if short => {
                format!("it was over too soon for the monitor {backend}, which takes twenty seconds")
            }
            (backend, true) => format!("the monitor {backend} measured nothing of it"),
            (backend, false) => format!("the monitor {backend} does not give it, and better ones could not serve"),
        }
    }

    /// The same with the reasons.
    pub(super) fn why_unmeasured_and_why(&self) -> String {
        let refused = self.meta().monitor.refused.iter();
        let reasons: Vec<String> =
            refused.map(|no| format!("{}: {}", no.backend, no.why.trim_end_matches('.'))).collect();
        let short = self.why_unmeasured();
        if reasons.is_empty() { short } else { format!("{short} ({})", reasons.join("; ")) }
    }
}
