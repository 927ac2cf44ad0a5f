//! What is written to stderr: at once, or by a thread of its own where nothing may wait for whoever reads it. A log that nobody
//! reads (a full pipe, a frozen file system) must not keep an agent from its work: what it froze would stay frozen.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Lines that may wait to be written, some hundred bytes each; more are left out.
const WAITING: usize = 4096;

/// What the thread is sent.
enum Order {
    Write(String),
    /// Answer once everything before it is written.
    Flush(SyncSender<()>),
}

/// The thread that writes, if there is one.
struct Background {
    orders: SyncSender<Order>,
    left_out: AtomicU64,
}

static BACKGROUND: OnceLock<Background> = OnceLock::new();

/// Text without what would steer a terminal: names and files of others may hold anything.
fn printable(text: &str) -> String {
    let steers = |letter: char| letter.is_control() && !['\n', '\t'].contains(&letter);
    text.chars().map(|letter| if steers(letter) { char::REPLACEMENT_CHARACTER } else { letter }).collect()
}

/// Writes text to stderr. One that cannot be written is no reason to end.
pub fn write(text: &str) {
    let text = &printable(text);
    let Some(background) = BACKGROUND.get() else {
        let _ = std::io::stderr().write_all(text.as_bytes());
        return;
    };
    if background.orders.try_send(Order::Write(text.to_owned())).is_err() {
        background.left_out.fetch_add(1, Ordering::Relaxed);
    }
}

/// Has a thread write from now on, so that nobody waits. To be called when signals are blocked, as the thread is to receive none.
///
/// # Errors
/// If there can be no thread.
pub fn in_background() -> std::io::Result<()> {
    let (orders, received) = sync_channel(WAITING);
    if BACKGROUND.set(Background { orders, left_out: AtomicU64::new(0) }).is_ok() {
        std::thread::Builder::new().name("log".to_owned()).spawn(move || work(&received))?;
    }
    Ok(())
}

fn work(received: &Receiver<Order>) {
    while let Ok(order) = received.recv() {
        match order {
            Order::Write(text) => {
                let left_out = BACKGROUND.get().map_or(0, |background| background.left_out.swap(0, Ordering::Relaxed));
                let note = format!("note text=\"{left_out} lines of the log were left out: it was not read\"\n");
                let note = if left_out > 0 { note } else { String::new() };
                let _ = std::io::stderr().write_all((note + &text).as_bytes());
            }
            Order::Flush(done) => drop(done.try_send(())),
        }
    }
}

/// Waits until everything is written, so long at most.
pub fn flush(at_most: Duration) {
    let Some(background) = BACKGROUND.get() else { return };
    let (done, is_done) = sync_channel(1);
    if background.orders.try_send(Order::Flush(done)).is_ok() {
        let _ = is_done.recv_timeout(at_most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_steers_the_terminal() {
        assert_eq!(printable("a\u{1b}[2J\tb\n\u{9b}"), "a\u{fffd}[2J\tb\n\u{fffd}");
    }
}
