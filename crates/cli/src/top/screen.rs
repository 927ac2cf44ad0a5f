//! The terminal: drawn on, listened to, and given back as it was, however it ends.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use lowtide_kernel::sys::Signals;

use super::view::{Key, Look, Next, View};
use lowtide_engine::agent::serve::client::Client;

/// The agent is asked so often.
const EVERY: Duration = Duration::from_secs(2);
/// Signals are looked for so often while nobody types.
const LOOK: Duration = Duration::from_millis(200);

/// The terminal, taken; given back when dropped.
struct Taken;

impl Taken {
    fn take() -> io::Result<Self> {
        enable_raw_mode()?;
        let taken = Self;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        // What a panic says would be lost with the other screen.
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    let _ = execute!(io::stdout(), SetAttribute(Attribute::Reset), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}

/// Shows a view until somebody ends it, by a key or a signal.
///
/// # Errors
/// If the terminal cannot be used.
pub fn run(client: &Client, mut view: View, signals: &Signals) -> io::Result<()> {
    let _taken = Taken::take()?;
    let mut next = Instant::now() + EVERY;
    loop {
        draw(&mut view)?;
        let wait = next.saturating_duration_since(Instant::now()).min(LOOK);
        let mut told = Next::Draw;
        if event::poll(wait)?
            && let Event::Key(pressed) = event::read()?
        {
            let page = usize::from(size()?.1).saturating_sub(4).max(1);
            told = key(pressed).map_or(Next::Draw, |key| view.press(key, page));
            if is_interrupt(pressed) {
                told = Next::End;
            }
        }
        if told == Next::End || signals.next()?.is_some() {
            return Ok(());
        }
        if told == Next::Ask || Instant::now() >= next {
            draw(&mut view)?;
            ask(client, &mut view);
            next = Instant::now() + EVERY;
        }
    }
}

fn ask(client: &Client, view: &mut View) {
    let detail = view.open().map_or(Ok(None), |id| client.detail(id));
    match detail.and_then(|detail| Ok((client.overview()?, detail))) {
        Ok((overview, detail)) => view.take(overview, detail),
        Err(error) => view.lose(error.message),
    }
}

fn draw(view: &mut View) -> io::Result<()> {
    let (width, height) = size()?;
    let mut out = io::stdout().lock();
    queue!(out, BeginSynchronizedUpdate)?;
    for (row, (line, look)) in (0..height).zip(view.screen(width.into(), height.into())) {
        let attribute = match look {
            Look::Plain => Attribute::Reset,
            Look::Head | Look::Bad => Attribute::Bold,
            Look::Chosen => Attribute::Reverse,
        };
        queue!(out, MoveTo(0, row), SetAttribute(attribute), Print(line), SetAttribute(Attribute::Reset))?;
        queue!(out, Clear(ClearType::UntilNewLine))?;
    }
    queue!(out, EndSynchronizedUpdate)?;
    out.flush()
}

/// Ctrl-C: in this mode the terminal sends it as a key.
fn is_interrupt(key: KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c' | 'd'))
}

fn key(pressed: KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release || pressed.modifiers.contains(KeyModifiers::CONTROL) {
        return None;
    }
    Some(match pressed.code {
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown | KeyCode::Char(' ') => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter | KeyCode::Right => Key::Enter,
        KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => Key::Back,
        KeyCode::Char(letter) => Key::Letter(letter),
        _ => return None,
    })
}
