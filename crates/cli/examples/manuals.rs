//! Writes man pages and completions for shells, from the same definitions that the command line is parsed by:
//!
//!     cargo run --example manuals -- DIR      DIR/man/lowtide*.1, DIR/completions/{lowtide.bash,_lowtide,lowtide.fish}

use std::path::PathBuf;

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};

/// Without the pages of `help COMMAND`, which say nothing new.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

fn main() -> std::io::Result<()> {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(std::io::Error::other("which folder? give it as the argument"));
    };
    let (man, completions) = (dir.join("man"), dir.join("completions"));
    std::fs::create_dir_all(&man)?;
    std::fs::create_dir_all(&completions)?;
    let mut command = without_help(lowtide::cli::Cli::command());
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, "lowtide", &completions)?;
    }
    clap_mangen::generate_to(command, &man)
}
