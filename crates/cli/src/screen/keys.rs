//! Keys, with the meanings that they have in `top`, `htop` and `less`.

use std::io;
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// One row up: the arrow, or `k`.
    Up,
    /// One row down: the arrow, or `j`.
    Down,
    /// A screen up.
    PageUp,
    /// A screen down.
    PageDown,
    /// The first row.
    Home,
    /// The last row.
    End,
    /// Into the row: Enter, or the arrow.
    Enter,
    /// Out of it: Backspace, or the arrow.
    Back,
    /// Esc: out of what is open, or the end.
    Escape,
    /// Help: `?`, `h`, or F1.
    Help,
    /// The order of rows: F6, or `s`.
    Order,
    /// Hold the picture: the space bar.
    Pause,
    /// Longer intervals: `+`.
    Slower,
    /// Shorter ones: `-`.
    Faster,
    /// The next interval of a round: `d`.
    Interval,
    /// The end: `q`, F10, Ctrl-C or Ctrl-D.
    Quit,
    /// Another letter.
    Letter(char),
}

/// The key of an event, if it has a meaning.
#[must_use]
pub fn key(pressed: KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    // In this mode the terminal sends Ctrl-C as a key.
    if pressed.modifiers.contains(KeyModifiers::CONTROL) {
        return matches!(pressed.code, KeyCode::Char('c' | 'd')).then_some(Key::Quit);
    }
    Some(match pressed.code {
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home | KeyCode::Char('g') => Key::Home,
        KeyCode::End | KeyCode::Char('G') => Key::End,
        KeyCode::Enter | KeyCode::Right => Key::Enter,
        KeyCode::Left | KeyCode::Backspace => Key::Back,
        KeyCode::Esc => Key::Escape,
        KeyCode::F(1) | KeyCode::Char('?' | 'h') => Key::Help,
        KeyCode::F(6) | KeyCode::Char('s') => Key::Order,
        KeyCode::F(10) | KeyCode::Char('q') => Key::Quit,
        KeyCode::Char(' ') => Key::Pause,
        KeyCode::Char('+' | '=') => Key::Slower,
        KeyCode::Char('-') => Key::Faster,
        KeyCode::Char('d') => Key::Interval,
        KeyCode::Char(letter) => Key::Letter(letter),
        _ => return None,
    })
}

/// What ended a wait for keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The time was over.
    Over,
    /// The terminal has another size, or a key without a meaning was pressed.
    Changed,
    /// A key was pressed.
    Pressed(Key),
}

/// Waits for a key, no longer than that.
///
/// # Errors
/// If the terminal cannot be read.
pub fn next(wait: Duration) -> io::Result<Waited> {
    if !event::poll(wait)? {
        return Ok(Waited::Over);
    }
    Ok(match event::read()? {
        Event::Key(pressed) => key(pressed).map_or(Waited::Changed, Waited::Pressed),
        _ => Waited::Changed,
    })
}

/// All keys that were pressed since the last time.
///
/// # Errors
/// If the terminal cannot be read.
pub fn waiting() -> io::Result<Vec<Key>> {
    let mut keys = Vec::new();
    while event::poll(Duration::ZERO)? {
        if let Event::Key(pressed) = event::read()? {
            keys.extend(key(pressed));
        }
    }
    Ok(keys)
}

/// Intervals between two pictures that keys choose among, seconds.
const INTERVALS_S: [f64; 6] = [1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// The interval that a key chooses instead of this one, seconds.
#[must_use]
pub fn interval(key: Key, now_s: f64) -> f64 {
    let longer = INTERVALS_S.into_iter().find(|of| *of > now_s);
    let next = match key {
        Key::Slower => longer,
        Key::Faster => INTERVALS_S.into_iter().rfind(|of| *of < now_s),
        Key::Interval => longer.or(Some(INTERVALS_S[0])),
        _ => None,
    };
    next.unwrap_or(now_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: KeyCode) -> Option<Key> {
        key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_mean_what_they_mean_to_peers() {
        let table = [
            (KeyCode::Char('q'), Key::Quit),
            (KeyCode::F(10), Key::Quit),
            (KeyCode::Char('h'), Key::Help),
            (KeyCode::Char('?'), Key::Help),
            (KeyCode::Char('j'), Key::Down),
            (KeyCode::Up, Key::Up),
            (KeyCode::Char('s'), Key::Order),
            (KeyCode::F(6), Key::Order),
            (KeyCode::Char(' '), Key::Pause),
            (KeyCode::Esc, Key::Escape),
            (KeyCode::Char('m'), Key::Letter('m')),
        ];
        for (code, wanted) in table {
            assert_eq!(of(code), Some(wanted), "{code:?}");
        }
        assert_eq!(of(KeyCode::F(3)), None);
        let with_control = |letter| key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
        assert_eq!((with_control('c'), with_control('q')), (Some(Key::Quit), None));
    }

    #[test]
    fn intervals_go_up_down_and_round() {
        let steps = |key, from_s, count| {
            (0..count).scan(from_s, |now_s, _| Some(std::mem::replace(now_s, interval(key, *now_s)))).last().unwrap()
        };
        assert_eq!(steps(Key::Slower, 1.0, 3), 5.0);
        assert_eq!(steps(Key::Slower, 1.0, 20), 60.0, "no longer than a minute");
        assert_eq!(steps(Key::Faster, 3.0, 2), 2.0, "from one that was given");
        assert_eq!(steps(Key::Faster, 1.0, 9), 1.0);
        assert_eq!(steps(Key::Interval, 30.0, 3), 1.0);
    }
}
