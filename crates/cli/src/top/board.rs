//! Which part of the agent's answer `lowtide top` shows, and what a key does: without terminal, clock or connection.

use lowtide_engine::agent::serve::api::{AgentStatus, Detail, Overview, WorkloadRow};
use ratatui::widgets::TableState;

use super::order::{TopOrder, order};
use crate::screen::keys::{Key, interval};

/// Seconds between two questions to the agent, to begin with.
const EVERY_S: f64 = 2.0;

/// What a key leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopNext {
    /// The screen is drawn again.
    Draw,
    /// The agent is asked at once.
    Ask,
    /// The command ends.
    End,
}

/// What lies above the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TopOverlay {
    /// Nothing.
    #[default]
    None,
    /// The keys.
    Help,
    /// Orders to choose from, and the place of the one that Enter chooses.
    Orders(usize),
}

/// What is shown, and which part of it.
#[derive(Debug, Clone)]
pub struct TopBoard {
    overview: Overview,
    pub(super) detail: Option<Detail>,
    /// Why the agent did not answer.
    pub(super) lost: Option<String>,
    pub(super) sort: TopOrder,
    pub(super) reverse: bool,
    /// Id of the row that keys act on.
    chosen: Option<String>,
    pub(super) is_open: bool,
    /// The agent is not asked.
    pub is_paused: bool,
    /// Seconds between two questions to the agent.
    pub every_s: f64,
    pub(super) overlay: TopOverlay,
    /// First line that is shown of a workload.
    pub(super) first: usize,
    /// The rows that are shown of all.
    pub(super) table: TableState,
    /// Rows of the screen, as it was drawn last.
    pub(super) page: usize,
}

impl TopBoard {
    /// A board of an agent's answer.
    #[must_use]
    pub fn new(overview: Overview, sort: TopOrder) -> Self {
        let mut board = Self {
            overview: Overview { workloads: Vec::new(), ..overview.clone() },
            detail: None,
            lost: None,
            sort,
            reverse: false,
            chosen: None,
            is_open: false,
            is_paused: false,
            every_s: EVERY_S,
            overlay: TopOverlay::None,
            first: 0,
            table: TableState::new(),
            page: 1,
        };
        board.take(overview, None);
        board
    }

    /// Id of the workload that is shown alone.
    #[must_use]
    pub fn open(&self) -> Option<&str> {
        self.chosen.as_deref().filter(|_| self.is_open)
    }

    /// The agent.
    pub(super) fn agent(&self) -> &AgentStatus {
        &self.overview.agent
    }

    /// The workloads, in their order.
    pub(super) fn workloads(&self) -> &[WorkloadRow] {
        &self.overview.workloads
    }

    /// Takes the newest answer.
    pub fn take(&mut self, overview: Overview, detail: Option<Detail>) {
        (self.overview, self.lost) = (overview, None);
        // A workload that is gone is shown as it was last.
        self.detail = detail.or(self.detail.take().filter(|_| self.is_open));
        order(&mut self.overview.workloads, self.sort, self.reverse);
        if self.chosen.is_none() {
            self.chosen = self.workloads().first().map(|row| row.id.clone());
        }
    }

    /// The agent does not answer.
    pub fn lose(&mut self, why: String) {
        self.lost = Some(why);
    }

    /// Where the row is that keys act on.
    pub(super) fn at(&self) -> Option<usize> {
        self.workloads().iter().position(|row| Some(&row.id) == self.chosen.as_ref())
    }

    /// Does what a key asks for.
    pub fn press(&mut self, key: Key) -> TopNext {
        match (key, self.overlay) {
            (Key::Quit, _) => return TopNext::End,
            (_, TopOverlay::Orders(at)) => self.choose_order(key, at),
            (Key::Help, TopOverlay::None) => self.overlay = TopOverlay::Help,
            (Key::Help | Key::Escape | Key::Back | Key::Enter, TopOverlay::Help) => self.overlay = TopOverlay::None,
            (Key::Escape | Key::Back, _) => (self.is_open, self.detail, self.first) = (false, None, 0),
            (Key::Enter, _) if self.chosen.is_some() && !self.is_open => {
                (self.is_open, self.detail, self.first) = (true, None, 0);
                return TopNext::Ask;
            }
            (Key::Pause, _) => self.is_paused = !self.is_paused,
            (Key::Slower | Key::Faster | Key::Interval, _) => self.every_s = interval(key, self.every_s),
            (Key::Order, _) if !self.is_open => self.overlay = TopOverlay::Orders(self.sort.at()),
            (Key::Letter('r'), _) if !self.is_open => self.reverse = !self.reverse,
            (Key::Letter(letter), _) if !self.is_open => self.sort_by(TopOrder::of(letter)),
            _ if self.is_open => self.first = moved(self.first, key, self.page, usize::MAX),
            _ => {
                let last = self.workloads().len().saturating_sub(1);
                let at = moved(self.at().unwrap_or(0), key, self.page, last);
                self.chosen = self.workloads().get(at).map(|row| row.id.clone());
            }
        }
        order(&mut self.overview.workloads, self.sort, self.reverse);
        TopNext::Draw
    }

    fn sort_by(&mut self, sort: Option<TopOrder>) {
        if let Some(sort) = sort {
            (self.sort, self.reverse) = (sort, false);
        }
    }

    /// A key while orders are offered.
    fn choose_order(&mut self, key: Key, at: usize) {
        self.overlay = match key {
            Key::Up | Key::Down | Key::Home | Key::End | Key::PageUp | Key::PageDown => {
                TopOverlay::Orders(moved(at, key, TopOrder::ALL.len(), TopOrder::ALL.len() - 1))
            }
            Key::Enter => {
                self.sort_by(Some(TopOrder::ALL[at].0));
                TopOverlay::None
            }
            Key::Letter(letter) if TopOrder::of(letter).is_some() => {
                self.sort_by(TopOrder::of(letter));
                TopOverlay::None
            }
            Key::Escape | Key::Back | Key::Order => TopOverlay::None,
            _ => self.overlay,
        };
    }
}

fn moved(at: usize, key: Key, page: usize, last: usize) -> usize {
    match key {
        Key::Up => at.saturating_sub(1),
        Key::Down => at.saturating_add(1),
        Key::PageUp => at.saturating_sub(page),
        Key::PageDown => at.saturating_add(page),
        Key::Home => 0,
        Key::End => last,
        _ => at,
    }
    .min(last)
}

#[cfg(test)]
mod tests;
