//! `lowtide completions`: a script for a shell, from the definitions that the command line is parsed by.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::cli::Cli;
use crate::output::print;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// bash, zsh or fish, for example: `lowtide completions bash >/etc/bash_completion.d/lowtide`
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
///
/// # Errors
/// If it cannot be printed.
pub fn run(args: &CompletionsArgs) -> anyhow::Result<i32> {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "lowtide", &mut script);
    print(String::from_utf8(script)?)?;
    Ok(0)
}
