//! Events: what the loop makes known, and the sinks that take it.

use lowtide_model::numa::NodeUse;
use lowtide_model::usage::Usage;
use lowtide_record::{ActionRow, Writer};

use crate::source::Frame;

/// Something that happened. Every sink is given every event, and takes what concerns it.
#[derive(Debug)]
pub enum Event<'a> {
    /// The accounts of a recorded target were read, and which backend samples it.
    Usage(&'a Usage, &'a str),
    /// Its memory by node.
    Nodes(&'a [NodeUse]),
    /// A source was read.
    Frame(&'a Frame),
    /// Schemes were carried out.
    Actions(&'a [ActionRow]),
}

/// Takes events: a record, metrics, a log.
pub trait Sink {
    /// One event, and when it happened, seconds.
    fn take(&mut self, now_s: f64, event: &Event<'_>);
}

impl Sink for Writer {
    fn take(&mut self, now_s: f64, event: &Event<'_>) {
        match event {
            Event::Usage(usage, _) => self.usage((*usage).clone()),
            Event::Nodes(nodes) => self.nodes(now_s, nodes.to_vec()),
            Event::Actions(rows) => self.actions(rows.iter().cloned()),
            Event::Frame(frame) => {
                if let Some((at_s, picture)) = frame.picture.as_ref().filter(|(_, picture)| !picture.is_partial) {
                    self.ages(picture.ages_read_s.unwrap_or(*at_s), &picture.ages);
                }
                self.cgroups(now_s, frame.cgroups.clone().unwrap_or_default());
                self.regions(frame.regions.iter().cloned());
                self.episodes(frame.episodes.iter().cloned());
            }
        }
    }
}
