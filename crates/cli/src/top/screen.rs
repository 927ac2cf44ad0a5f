//! The terminal: drawn on, read, and restored however the command ends.

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

use super::view::{Key, LineStyle, Next, TopView};
use lowtide_engine::agent::serve::client::Client;

/// The agent is asked this often.
const EVERY: Duration = Duration::from_secs(2);
/// Signals are checked this often while no key is pressed.
const CHECK: Duration = Duration::from_millis(200);

/// The terminal, taken; given back when dropped.
struct Taken;

impl Taken {
    fn take() -> io::Result<Self> {
        enable_raw_mode()?;
        let taken = Self;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        // The message of a panic would be lost with the alternate screen.
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

/// Shows a view until a key or a signal ends it.
///
/// # Errors
/// If the terminal cannot be used.
pub fn run(client: &Client, mut view: TopView, signals: &Signals) -> io::Result<()> {
    let _taken = Taken::take()?;
    let mut next = Instant::now() + EVERY;
    loop {
        draw(&mut view)?;
        let wait = next.saturating_duration_since(Instant::now()).min(CHECK);
        let mut step = Next::Draw;
        if event::poll(wait)?
            && let Event::Key(pressed) = event::read()?
        {
            let page = usize::from(size()?.1).saturating_sub(4).max(1);
            step = key(pressed).map_or(Next::Draw, |key| view.press(key, page));
            if is_interrupt(pressed) {
                step = Next::End;
            }
        }
        if step == Next::End || signals.next()?.is_some() {
            return Ok(());
        }
        if step == Next::Ask || Instant::now() >= next {
            draw(&mut view)?;
            ask(client, &mut view);
            next = Instant::now() + EVERY;
        }
    }
}

fn ask(client: &Client, view: &mut TopView) {
    let detail = view.open().map_or(Ok(None), |id| client.detail(id));
    match detail.and_then(|detail| Ok((client.overview()?, detail))) {
        Ok((overview, detail)) => view.take(overview, detail),
        Err(error) => view.lose(error.message),
    }
}

fn draw(view: &mut TopView) -> io::Result<()> {
    let (width, height) = size()?;
    let mut out = io::stdout().lock();
    queue!(out, BeginSynchronizedUpdate)?;
    for (row, (line, style)) in (0..height).zip(view.screen(width.into(), height.into())) {
        let attribute = match style {
            LineStyle::Plain => Attribute::Reset,
            LineStyle::Head | LineStyle::Bad => Attribute::Bold,
            LineStyle::Chosen => Attribute::Reverse,
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
