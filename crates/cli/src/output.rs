//! What commands print: on a terminal, to a pipe or to a file; and bars that show how far they are.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lowtide_engine::failure::{Failure, code};
use lowtide_report::{Format, ReportError, Terminal};

/// Colours and verbosity, of every command.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct StyleArgs {
    /// Colours: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, global = true, value_enum, default_value_t, hide_possible_values = true, value_name = "WHEN")]
    color: Color,
    /// Print results and errors only
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Also print which monitor was chosen, and why
    #[arg(long, short, global = true)]
    verbose: bool,
}

/// `--color`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

static STYLE: OnceLock<StyleArgs> = OnceLock::new();

impl StyleArgs {
    /// Sets the style of this process, once.
    pub fn set(self) {
        let _ = STYLE.set(self);
    }

    /// The style that was set.
    #[must_use]
    pub fn get() -> Self {
        STYLE.get().copied().unwrap_or_default()
    }

    /// Whether notes are left out.
    #[must_use]
    pub fn is_quiet(self) -> bool {
        self.quiet
    }

    /// Whether to print more than usual.
    #[must_use]
    pub fn is_verbose(self) -> bool {
        self.verbose
    }

    /// The options that give another lowtide the same style.
    pub fn options(self) -> impl Iterator<Item = &'static str> {
        let color = match self.color {
            Color::Auto => None,
            Color::Always => Some("--color=always"),
            Color::Never => Some("--color=never"),
        };
        color.into_iter().chain(self.quiet.then_some("--quiet"))
    }
}

/// Prints a line to stderr that is neither a result nor an error: with `--quiet` it is left out.
pub fn note(text: impl std::fmt::Display) {
    if !StyleArgs::get().quiet {
        lowtide_kernel::message!("{text}");
    }
}

/// How and where results are printed.
#[derive(Debug, clap::Args)]
pub struct OutputArgs {
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write to this file instead of the standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl OutputArgs {
    /// Prints what `write` writes.
    ///
    /// # Errors
    /// If the output cannot be made or written. A pipe that its reader closed is no error.
    pub fn print(
        &self,
        write: impl FnOnce(Format, Terminal, &mut dyn Write) -> Result<(), ReportError>,
    ) -> anyhow::Result<()> {
        let format = if self.json { Format::Json } else { self.format };
        let Some(path) = &self.output else {
            let mut out = BufWriter::new(Pipe { out: io::stdout().lock(), closed: false });
            let written = write(format, terminal(), &mut out);
            let flushed = out.flush();
            if !out.get_ref().closed {
                written.map_err(failure)?;
                flushed?;
            }
            return Ok(());
        };
        // In memory first: the file is replaced by a complete report or left as it was.
        let mut bytes = Vec::new();
        write(format, Terminal::default(), &mut bytes).map_err(failure)?;
        std::fs::write(path, bytes).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
    }
}

/// Prints text to the standard output.
///
/// # Errors
/// If it cannot be written. A pipe that its reader closed is no error.
pub fn print(text: impl std::fmt::Display) -> anyhow::Result<()> {
    let mut out = Pipe { out: io::stdout().lock(), closed: false };
    let written = write!(out, "{text}").and_then(|()| out.flush());
    if out.closed { Ok(()) } else { written.context("the standard output") }
}

/// The failure of a report, with its exit code.
pub fn failure(error: ReportError) -> anyhow::Error {
    match error {
        ReportError::Store(error) => error.into(),
        ReportError::Usage(_) => Failure::new(code::USAGE, error.to_string()).into(),
        error => error.into(),
    }
}

/// The standard output; keeps in mind that its reader closed it, through any wrapping of the error.
struct Pipe<W> {
    out: W,
    closed: bool,
}

impl<W: Write> Pipe<W> {
    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        self.closed |= result.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe);
        result
    }
}

impl<W: Write> Write for Pipe<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.note(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.note(result)
    }
}

/// Width and colours of the standard output.
#[must_use]
pub fn terminal() -> Terminal {
    let out = io::stdout();
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let ansi = match StyleArgs::get().color {
        Color::Auto => out.is_terminal() && !no_color,
        Color::Always => true,
        Color::Never => false,
    };
    let plain = Terminal { ansi, ..Terminal::default() };
    if !out.is_terminal() {
        return plain;
    }
    let width = rustix::termios::tcgetwinsize(&out).map_or(0, |size| usize::from(size.ws_col));
    Terminal {
        // Longer lines are hard to read, however wide the terminal is.
        width: if width == 0 { plain.width } else { width.clamp(40, 120) },
        ansi,
    }
}

/// A mistake in what the user gave: exit code 2.
pub fn usage(message: impl Into<String>) -> Failure {
    Failure::new(code::USAGE, message)
}

/// A progress bar on stderr; it is hidden where that is no terminal.
#[must_use]
pub fn progress(length: usize, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}");
    let bar = ProgressBar::new(u64::try_from(length).unwrap_or(u64::MAX)).with_message(what);
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An output whose reader has closed it.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_noticed_through_any_wrapping_of_the_error() {
        let mut pipe = Pipe { out: Closed, closed: false };
        let wrapped = serde_json::to_writer(&mut pipe, &[1, 2, 3]);
        assert!(wrapped.is_err());
        assert!(pipe.closed);
    }
}
