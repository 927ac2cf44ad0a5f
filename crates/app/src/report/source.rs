//! A record's rows, read when a view asks for them and kept for the next.

use std::cell::OnceCell;

use lowtide_model::meta::Meta;
use lowtide_model::summary::{Summary, summarise};
use lowtide_model::usage::Usage;

use crate::store::{AgeRow, Record, cold_rows};

/// What views are taken from.
pub struct Source<'a> {
    record: &'a Record,
    usage: OnceCell<Vec<Usage>>,
    ages: OnceCell<Vec<AgeRow>>,
}

impl<'a> Source<'a> {
    /// Of that record.
    #[must_use]
    pub fn new(record: &'a Record) -> Self {
        Self { record, usage: OnceCell::new(), ages: OnceCell::new() }
    }

    pub(super) fn record(&self) -> &'a Record {
        self.record
    }

    pub(super) fn meta(&self) -> &'a Meta {
        self.record.meta()
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
        summarise(self.meta(), self.usage(), &cold_rows(self.ages()))
    }

    /// Why there is no picture of which memory is used.
    pub(super) fn why_unmeasured(&self) -> String {
        let monitor = &self.meta().monitor;
        let refused: Vec<String> = monitor.refused.iter().map(|no| format!("{}: {}", no.backend, no.why)).collect();
        match (monitor.backend.as_str(), refused.is_empty()) {
            ("none" | "", true) => "no monitor was asked to look which pages are touched".to_owned(),
            ("none" | "", false) => format!("no monitor could look which pages are touched ({})", refused.join("; ")),
            (backend, true) => format!("the monitor {backend} measured nothing of it"),
            (backend, false) => {
                format!("the monitor {backend} does not give it, and better ones could not serve ({})", refused.join("; "))
            }
        }
    }
}
