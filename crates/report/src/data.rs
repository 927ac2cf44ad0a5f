//! A record's rows, read when a view needs them and kept for the next view.

use std::cell::OnceCell;

use lowtide_model::curve::Curve;
use lowtide_model::meta::{IMPORTED, Meta};
use lowtide_model::summary::Summary;
use lowtide_model::usage::Usage;

use super::text::printable;
use lowtide_record::{AgeRow, Record};

/// Seconds after which every monitor has reported which memory is used: it reads for ten, and the price cap may delay that.
const LONG_ENOUGH_S: f64 = 20.0;

/// What views are made from.
pub(super) struct RecordData<'a> {
    pub record: &'a Record,
    usage: OnceCell<Vec<Usage>>,
    ages: OnceCell<Vec<AgeRow>>,
    curve: OnceCell<Option<Curve>>,
}

impl<'a> RecordData<'a> {
    pub(super) fn new(record: &'a Record) -> Self {
        Self { record, usage: OnceCell::new(), ages: OnceCell::new(), curve: OnceCell::new() }
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

    pub(super) fn summary(&self) -> Summary {
        self.record.summary_of(self.usage(), self.ages(), self.curve())
    }

    /// The tide curve; `None` where the record has not the measurements for it.
    pub(super) fn curve(&self) -> Option<&Curve> {
        self.curve.get_or_init(|| self.record.curve(self.usage(), self.ages())).as_ref()
    }

    /// Whether another tool recorded it.
    pub(super) fn is_imported(&self) -> bool {
        self.meta().end.as_ref().is_some_and(|end| end.reason == IMPORTED)
    }

    /// Why it is not known which memory is used, with the reasons of each monitor or without.
    pub(super) fn why_unmeasured(&self, reasons: bool) -> String {
        let monitor = &self.meta().monitor;
        let short = self.usage().last().and_then(|row| row.t_s).is_none_or(|t_s| t_s < LONG_ENOUGH_S);
        let why = match (monitor.backend.as_str(), monitor.refused.is_empty()) {
            _ if self.is_imported() => "the imported recording does not hold it".to_owned(),
            ("none" | "", true) => "no monitor was asked to sample accesses".to_owned(),
            ("none" | "", false) => "no monitor could sample accesses".to_owned(),
            (backend, _) if short => {
                format!("the run was too short for the monitor {backend}, which needs 20 s")
            }
            (backend, true) => format!("the monitor {backend} does not measure it"),
            (backend, false) => format!("the monitor {backend} does not measure it, and better ones could not serve"),
        };
        if !reasons || monitor.refused.is_empty() {
            return why;
        }
        let refused = monitor.refused.iter().map(|no| format!("{}: {}", no.backend, no.why.trim_end_matches('.')));
        format!("{why} ({})", refused.collect::<Vec<_>>().join("; "))
    }
}
