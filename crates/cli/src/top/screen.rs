//! The loop of `lowtide top`: asks the agent, draws its answer, and reads keys.

use std::io;
use std::time::{Duration, Instant};

use lowtide_engine::agent::serve::client::Client;
use lowtide_kernel::sys::Signals;

use super::board::{TopBoard, TopNext};
use super::draw;
use crate::screen::style::Palette;
use crate::screen::{Screen, keys};

/// Signals are checked this often while no key is pressed.
const CHECK: Duration = Duration::from_millis(200);

/// Shows a board until a key or a signal ends it.
///
/// # Errors
/// If the terminal cannot be used.
pub fn run(client: &Client, mut board: TopBoard, signals: &Signals) -> io::Result<()> {
    let palette = Palette::of_output();
    let mut screen = Screen::take()?;
    let mut asked = Instant::now();
    loop {
        screen.draw(|frame| draw::draw(frame, &mut board, palette))?;
        let due = asked + Duration::from_secs_f64(board.every_s);
        let wait = due.saturating_duration_since(Instant::now()).min(CHECK);
        let step = keys::next(wait)?.map_or(TopNext::Draw, |key| board.press(key));
        if step == TopNext::End || signals.next()?.is_some() {
            return Ok(());
        }
        if step == TopNext::Ask || (!board.is_paused && Instant::now() >= due) {
            screen.draw(|frame| draw::draw(frame, &mut board, palette))?;
            ask(client, &mut board);
            asked = Instant::now();
        }
    }
}

fn ask(client: &Client, board: &mut TopBoard) {
    let detail = board.open().map_or(Ok(None), |id| client.detail(id));
    match detail.and_then(|detail| Ok((client.overview()?, detail))) {
        Ok((overview, detail)) => board.take(overview, detail),
        Err(error) => board.lose(error.message),
    }
}
