//! `lowtide report`: shows a record.

use std::fs;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

use lowtide_model::units::Span;

use lowtide_engine::failure::{Failure, code};
use lowtide_record::{Record, StoreError};
use lowtide_report::{Choices, Format, Look, Options, ReportError, Rule, View};

/// `lowtide report`
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Folder of the record, as made by `lowtide run` or `lowtide record`
    record: PathBuf,

    /// What to show
    #[arg(value_enum, default_value_t = View::Summary)]
    view: View,

    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Write to this file instead of the standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Only this process (heatmap, regions, workingset by damo's rule)
    #[arg(long)]
    pid: Option<u32>,

    /// By whose rule it is calculated (workingset, heatmap)
    #[arg(long, value_enum, default_value_t = Rule::Lowtide)]
    rule: Rule,

    /// The snapshot at this time since the start, for example 30s or 2m (regions)
    #[arg(long, value_name = "TIME")]
    at: Option<Span>,

    #[command(flatten)]
    damo: Choices,
}

/// Shows the record; finishes it first where its recorder was killed.
///
/// # Errors
/// If there is no record, it does not hold the view, or view and format do not go together.
pub fn run(args: &ReportArgs) -> anyhow::Result<i32> {
    show(args).map(|()| 0).map_err(failure)
}

/// The failure of a report, with its exit code.
pub(super) fn failure(error: ReportError) -> anyhow::Error {
    match error {
        ReportError::Store(error) => error.into(),
        ReportError::Usage(_) => Failure::new(code::USAGE, error.to_string()).into(),
        error => error.into(),
    }
}

fn show(args: &ReportArgs) -> Result<(), ReportError> {
    match lowtide_report::conclude(&args.record) {
        Ok(_) => {}
        Err(ReportError::Store(error @ StoreError::NotARecord { .. })) => return Err(error.into()),
        Err(ReportError::Store(StoreError::Live(_))) => {
            eprintln!("lowtide: still being recorded; this is what there is so far")
        }
        // A record on a full or read-only disk can be read all the same.
        Err(error) => eprintln!("lowtide: the record could not be finished: {error}"),
    }
    let record = Record::open(&args.record)?;
    let format = if args.json { Format::Json } else { args.format };
    let options = Options {
        pid: args.pid,
        at_s: args.at.map(|at| at.0.as_secs_f64()),
        rule: args.rule,
        damo: args.damo.clone(),
        look: if args.output.is_some() { Look::default() } else { terminal() },
    };
    match &args.output {
        None => {
            let mut out = BufWriter::new(Pipe { out: io::stdout().lock(), closed: false });
            let written = lowtide_report::write(&record, args.view, format, &options, &mut out);
            let flushed = out.flush();
            if !out.get_ref().closed {
                written?;
                flushed?;
            }
        }
        Some(path) => {
            // In memory first: a file is replaced by a whole report or left as it was.
            let mut bytes = Vec::new();
            lowtide_report::write(&record, args.view, format, &options, &mut bytes)?;
            fs::write(path, bytes)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        }
    }
    record.warnings().iter().for_each(|warning| eprintln!("lowtide: {warning}"));
    Ok(())
}

/// The standard output. Remembers that its reader went away, which is no error: it has seen enough.
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
pub(super) fn terminal() -> Look {
    let plain = Look::default();
    let out = io::stdout();
    if !out.is_terminal() {
        return plain;
    }
    let width = rustix::termios::tcgetwinsize(&out).map_or(0, |size| usize::from(size.ws_col));
    Look {
        // Lines longer than this are hard to read however wide the screen is.
        width: if width == 0 { plain.width } else { width.clamp(40, 120) },
        ansi: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that has seen enough.
    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_remembered_through_any_wrapping_of_the_error() {
        let mut pipe = Pipe { out: Gone, closed: false };
        let wrapped = serde_json::to_writer(&mut pipe, &[1, 2, 3]);
        assert!(wrapped.is_err());
        assert!(pipe.closed);
    }
}
