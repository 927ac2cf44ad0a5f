//! The `lowtide` binary: parses the command line, runs one command of the library, and turns its result into an exit code.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use lowtide::cli::Cli;
use lowtide_engine::failure;

/// How long the last lines of a log are waited for.
const LAST_LINES: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let code = Cli::parse().run().unwrap_or_else(|error| {
        failure::report(&error);
        failure::exit_code(&error)
    });
    // What a command had a thread write.
    lowtide_kernel::log::flush(LAST_LINES);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
