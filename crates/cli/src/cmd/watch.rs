//! `lowtide watch`: what a process, a cgroup or the system does with its memory, live.

use std::io::{self, ErrorKind, IsTerminal};

use anyhow::Context;
use lowtide_engine::recorder::{RecordOptions, RecordSubject, Recorder, Tick};
use lowtide_engine::recording;
use lowtide_engine::scheduler::{self, LoopTask, Reason};
use lowtide_engine::source::{self, SourceSettings};
use lowtide_kernel::root::Kernel;
use lowtide_kernel::sys::{Signal as Received, Signals};
use lowtide_model::meta::End;
use lowtide_model::units::Span;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::record::{self, TargetArgs};
use super::run::MonitorArgs;
use crate::output::{note, usage};
use crate::screen::style::Palette;
use crate::screen::{Screen, keys};
use crate::session;
use crate::watch::board::{WatchBoard, WatchPicture};
use crate::watch::draw;
use crate::watch::figures::WatchFigures;
use crate::watch::history::SharedHistory;
use crate::watch::lines::WatchLines;

/// Show live how a process, a cgroup or the system uses memory
///
/// On a terminal it draws a screen; ? shows its keys. Without a terminal it prints a line for each interval. Nothing is
/// recorded, and no agent is needed.
#[derive(Debug, clap::Args)]
pub struct LiveArgs {
    /// A pid, or the path of a cgroup, which begins with /
    #[arg(value_name = "TARGET", group = "TargetArgs")]
    word: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    by: MonitorArgs,
    /// Time between two pictures or lines
    #[arg(long, short = 'd', value_name = "TIME", default_value = "1s")]
    every: Span,
    /// Print so many lines, and end
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<usize>,
    /// Print a JSON object a line, with sizes in bytes
    #[arg(long)]
    json: bool,
}

/// Ticks are no further apart, seconds: windows of a second are read at ticks.
const TICK_S: f64 = 1.0;
/// Reasons for the end.
const ENDED: Reason = "target ended";
const STOPPED: Reason = "stopped";

/// Shows the target until a key, a signal, or its end.
///
/// # Errors
/// If there is no such target, the monitor that was asked for cannot serve, or the terminal cannot be used.
pub fn run(args: &LiveArgs) -> anyhow::Result<i32> {
    let every_s = args.every.0.as_secs_f64();
    if !(0.05..=3600.0).contains(&every_s) {
        anyhow::bail!(usage(format!("--every {}: out of range; give a time from 50ms to 1h", args.every)));
    }
    let word = args.word.as_deref().map(TargetArgs::of_word).transpose()?;
    let target = word.as_ref().unwrap_or(&args.target);
    let options = RecordOptions {
        out: None,
        source: SourceSettings { choice: args.by.monitor, attached: true, ..SourceSettings::default() },
        interval_s: every_s.min(TICK_S),
        max_overhead: args.by.cap()?,
        plan: None,
    };
    let kernel = Kernel::default();
    let (name, accountant, text) = record::target(&kernel, target)?;
    let wanted = [Signal::INT, Signal::TERM, Signal::HUP, Signal::WINCH].map(Signal::as_raw);
    // Before anything is made that has to be given back.
    let signals = Signals::block(&wanted)?;
    let journal = recording::journal(&kernel)?;
    source::check(options.source.choice, &kernel)?;
    let meta = recording::meta(&kernel, Vec::new(), &options, &accountant.cgroups);
    let mut recorder = Recorder::open(&kernel, &journal, options, RecordSubject { accountant, meta })?;
    if let Some(text) = text {
        recorder.note(text);
    }
    let history = SharedHistory::default();
    recorder.add_sink(Box::new(history.clone()));
    let is_live = !args.json && args.count.is_none() && Screen::is_possible();
    let shown = if is_live {
        let screen = Screen::take().context("watch: the terminal")?;
        Shown::Live(Box::new(LiveScreen { screen, palette: Palette::of_output() }))
    } else {
        // On a screen, the key i shows it.
        session::explain(&mut recorder);
        Shown::Lines(WatchLines::new(args.json, io::stdout().is_terminal()))
    };
    let words = target.words();
    // Records of processes have the pid in their name.
    let name = words.strip_prefix("pid ").and_then(|pid| name.strip_suffix(pid)?.strip_suffix('-')).unwrap_or(&name);
    let board = WatchBoard::new(name.to_owned(), words.clone(), every_s);
    let mut watching = Watching { recorder, history, board, shown, most: args.count.unwrap_or(usize::MAX) };
    let ended = scheduler::run(&kernel, &signals, &mut watching);
    let last = watching.close();
    drop(journal);
    // Printed once the terminal was given back, as what is on the alternate screen is lost.
    if ended? == ENDED {
        note(format_args!("lowtide: {ENDED}"));
    }
    if let Some(line) = last.bottom_line.filter(|_| is_live) {
        note(format_args!("lowtide: used {line}"));
    }
    Ok(0)
}

/// The terminal, and how it is drawn on.
struct LiveScreen {
    screen: Screen,
    palette: Palette,
}

impl LiveScreen {
    fn draw(&mut self, board: &WatchBoard) -> io::Result<()> {
        self.screen.draw(|frame| draw::draw(frame, board, self.palette))
    }
}

/// Where figures are shown.
enum Shown {
    Live(Box<LiveScreen>),
    Lines(WatchLines),
}

/// A target under watch.
struct Watching {
    recorder: Recorder,
    history: SharedHistory,
    board: WatchBoard,
    shown: Shown,
    /// Lines to print.
    most: usize,
}

impl Watching {
    /// Gives the terminal and the source's leases back; the last figures.
    fn close(self) -> WatchFigures {
        drop(self.shown);
        let figures = WatchFigures::of(&self.history.read(), self.recorder.meta(), self.board.every_s);
        // There is no record whose end could fail to be written.
        let _ = self.recorder.close(End::default());
        figures
    }

    /// Shows a tick, if it is time for another picture.
    fn show(&mut self) -> io::Result<Option<Reason>> {
        if !self.board.is_due(self.history.read().now_s()) {
            return Ok(None);
        }
        self.board.picture = WatchPicture::of(&self.history.read(), self.recorder.meta(), self.board.every_s);
        let lines = match &mut self.shown {
            Shown::Live(live) => return live.draw(&self.board).map(|()| None),
            Shown::Lines(lines) => lines,
        };
        match lines.print(&self.board.picture.figures, &mut io::stdout().lock()) {
            // Its reader has enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Some(STOPPED)),
            printed => printed?,
        }
        Ok((lines.printed() >= self.most).then_some(STOPPED))
    }

    /// Does what keys ask for.
    fn press(&mut self) -> io::Result<Option<Reason>> {
        let Shown::Live(live) = &mut self.shown else { return Ok(None) };
        let keys = keys::waiting()?;
        if keys.iter().any(|key| self.board.press(*key)) {
            return Ok(Some(STOPPED));
        }
        if !keys.is_empty() {
            live.draw(&self.board)?;
        }
        Ok(None)
    }
}

impl LoopTask for Watching {
    fn now_s(&self) -> f64 {
        self.recorder.now_s()
    }

    fn next_due_s(&self) -> f64 {
        self.recorder.next_due_s()
    }

    fn wakers(&self) -> Vec<PollFd<'_>> {
        let mut wakers = self.recorder.wakers();
        if matches!(self.shown, Shown::Live(_)) {
            wakers.push(PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN));
        }
        wakers
    }

    fn woken(&mut self, events: &[PollFlags]) {
        // The last is that of the keyboard, which is read at every turn.
        let own = events.len() - usize::from(matches!(self.shown, Shown::Live(_)) && !events.is_empty());
        self.recorder.woken(&events[..own]);
    }

    fn signal(&mut self, signal: &Received) -> anyhow::Result<Option<Reason>> {
        if signal.number != Signal::WINCH.as_raw() {
            return Ok(Some("interrupted"));
        }
        if let Shown::Live(live) = &mut self.shown {
            live.draw(&self.board)?;
        }
        Ok(None)
    }

    fn turn(&mut self, _: &Signals) -> anyhow::Result<Option<Reason>> {
        if let Some(reason) = self.press()? {
            return Ok(Some(reason));
        }
        match self.recorder.turn()? {
            Tick::Row(_) => Ok(self.show()?),
            Tick::Gone => Ok(Some(ENDED)),
            Tick::NotDue => Ok(None),
        }
    }
}
