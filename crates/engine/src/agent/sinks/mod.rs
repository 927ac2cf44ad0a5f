//! The sinks of the agent's events.

pub mod history;
pub mod log;
mod metrics;
pub mod record;
pub mod telemetry;
pub mod view;

use self::log::Log;
use self::record::AgentRecord;
use self::telemetry::Telemetry;
use self::view::LiveView;
use crate::event::{Event, Sink};

/// All of them.
pub struct Sinks {
    log: Log,
    /// The page and metrics.
    pub view: LiveView,
    /// Rows for the fleet, if there are settings for them.
    pub telemetry: Option<Telemetry>,
    /// The record, if one is made.
    pub record: Option<AgentRecord>,
}

impl Sinks {
    /// Log, page and metrics; telemetry if there are settings for it.
    pub fn new(view: LiveView, telemetry: Option<telemetry::TelemetrySettings>) -> Self {
        Self { log: Log, view, telemetry: telemetry.map(Telemetry::new), record: None }
    }

    /// Gives an event to all of them.
    pub fn publish(&mut self, now_s: f64, event: &Event<'_>) {
        self.log.take(now_s, event);
        self.view.take(now_s, event);
        if let Some(Err(error)) = self.record.as_mut().map(|record| record.take(now_s, event)) {
            self.publish(now_s, &Event::Error(&format!("the record: {error}")));
        }
        let Some(telemetry) = &mut self.telemetry else { return };
        telemetry.take(now_s, event);
        if let Some(text) = telemetry.take_trouble() {
            self.publish(now_s, &Event::Error(&text));
        }
    }

    /// A line of the log.
    pub fn log(&mut self, now_s: f64, event: &'static str, figures: &[(&str, String)]) {
        self.publish(now_s, &Event::Logged(event, figures));
    }

    /// Has telemetry go on by other settings, or as it was where they are the same.
    pub fn set_telemetry(&mut self, now_s: f64, settings: Option<&telemetry::TelemetrySettings>) {
        if self.telemetry.as_ref().map(|telemetry| &telemetry.settings) != settings {
            self.end_telemetry(now_s);
            self.telemetry = settings.cloned().map(Telemetry::new);
        }
    }

    /// Ends the record, if one is made.
    pub fn end_record(&mut self, now_s: f64) {
        if let Some(Err(error)) = self.record.take().map(|record| record.end(now_s)) {
            self.publish(now_s, &Event::Error(&format!("the record: {error}")));
        }
    }

    /// Writes what telemetry holds.
    pub fn end_telemetry(&mut self, now_s: f64) {
        if let Some(text) = self.telemetry.take().and_then(|mut telemetry| telemetry.end(now_s)) {
            self.publish(now_s, &Event::Error(&text));
        }
    }
}
