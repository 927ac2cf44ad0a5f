//! What takes the agent's events.

pub mod history;
pub mod log;
pub mod metrics;
pub mod telemetry;
pub mod view;

use self::log::Log;
use self::metrics::AgentMetrics;
use self::telemetry::Telemetry;
use self::view::LiveView;
use crate::event::{Event, Sink};

/// All of them.
pub struct Sinks {
    log: Log,
    metrics: AgentMetrics,
    /// The page.
    pub view: LiveView,
    telemetry: Option<Telemetry>,
}

impl Sinks {
    /// Log, metrics and page; telemetry if there are settings for it.
    #[must_use]
    pub fn new(view: LiveView, telemetry: Option<telemetry::Settings>) -> Self {
        Self { log: Log, metrics: view.metrics(), view, telemetry: telemetry.map(Telemetry::new) }
    }

    /// Gives an event to all of them.
    pub fn publish(&mut self, now_s: f64, event: &Event<'_>) {
        let telemetry = self.telemetry.as_mut().map(|sink| sink as &mut dyn Sink);
        let all: [&mut dyn Sink; 3] = [&mut self.log, &mut self.metrics, &mut self.view];
        all.into_iter().chain(telemetry).for_each(|sink| sink.take(now_s, event));
        if let Some(text) = self.telemetry.as_mut().and_then(Telemetry::take_trouble) {
            self.publish(now_s, &Event::Error(&text));
        }
    }

    /// A line of the log.
    pub fn log(&mut self, now_s: f64, event: &'static str, figures: &[(&str, String)]) {
        self.publish(now_s, &Event::Logged(event, figures));
    }

    /// Whether telemetry is written.
    #[must_use]
    pub fn has_telemetry(&self) -> bool {
        self.telemetry.is_some()
    }

    /// Has telemetry go on by other settings, or as it was where they are the same.
    pub fn set_telemetry(&mut self, now_s: f64, settings: Option<&telemetry::Settings>) {
        if self.telemetry.as_ref().map(Telemetry::settings) != settings {
            self.end_telemetry(now_s);
            self.telemetry = settings.cloned().map(Telemetry::new);
        }
    }

    /// Writes what telemetry holds.
    pub fn end_telemetry(&mut self, now_s: f64) {
        if let Some(text) = self.telemetry.take().and_then(|mut telemetry| telemetry.end(now_s)) {
            self.publish(now_s, &Event::Error(&text));
        }
    }
}
