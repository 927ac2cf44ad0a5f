//! The loop of `lowtide top`: asks the agent, draws its answer, and reads keys.

use std::io;
use std::time::{Duration, Instant};

use lowtide_engine::agent::serve::client::Client;
use lowtide_kernel::sys::Signals;

use super::board::{TopBoard, TopNext};
use super::draw;
use crate::screen::Screen;
use crate::screen::keys::{self, Waited};
use crate::screen::style::Palette;

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
    // Of thousands of workloads, a picture that nobody changed is not drawn again.
    let mut is_new = true;
    loop {
        if is_new {
            screen.draw(|frame| draw::draw(frame, &mut board, palette))?;
        }
        let due = asked + Duration::from_secs_f64(board.every_s);
        let wait = due.saturating_duration_since(Instant::now()).min(CHECK);
        let waited = keys::next(wait)?;
        is_new = waited != Waited::Over;
        let step = if let Waited::Pressed(key) = waited { board.press(key) } else { TopNext::Draw };
        if step == TopNext::End || signals.next()?.is_some() {
            return Ok(());
        }
        if step == TopNext::Ask || (!board.is_paused && Instant::now() >= due) {
            if is_new {
                screen.draw(|frame| draw::draw(frame, &mut board, palette))?;
            }
            ask(client, &mut board);
            (asked, is_new) = (Instant::now(), true);
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
