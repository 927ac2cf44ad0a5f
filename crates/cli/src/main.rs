//! The `lowtide` binary: parses the command line, runs one command of the library, and turns its result into an exit code.

use std::process::ExitCode;

use clap::Parser;
use lowtide::cli::Cli;
use lowtide_engine::failure;

fn main() -> ExitCode {
    let code = Cli::parse().run().unwrap_or_else(|error| {
        failure::report(&error);
        failure::exit_code(&error)
    });
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
