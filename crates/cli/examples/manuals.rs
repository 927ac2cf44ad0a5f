//! Writes the man pages, from the same definitions that the command line is parsed by:
//!
//!     cargo run --example manuals -- DIR      DIR/lowtide.1, DIR/lowtide-run.1, ...

use std::path::Path;

use clap::{Command, CommandFactory};

fn main() -> std::io::Result<()> {
    let dir =
        std::env::args_os().nth(1).ok_or_else(|| std::io::Error::other("which folder? give it as the argument"))?;
    write(Path::new(&dir))
}

/// Writes them into a folder, which is made.
pub fn write(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(without_help(lowtide::cli::Cli::command()), dir)
}

/// Without the pages of `help COMMAND`, which say nothing new.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}
