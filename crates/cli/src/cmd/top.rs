//! `lowtide top`: what the agent does, in a terminal.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

use crate::screen::Screen;
use crate::session;
use crate::top::board::TopBoard;
use crate::top::order::{self, TopOrder};
use crate::top::{screen, table, view};
use lowtide_engine::agent::serve::client::Client;

/// Show what the agent does
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// Where the agent listens
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9465", conflicts_with = "socket")]
    url: String,
    /// Unix socket on which the agent listens
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print one table and end; the default without a terminal
    #[arg(long)]
    once: bool,
    /// Print the agent's answer as JSON, and end
    #[arg(long)]
    json: bool,
    /// Order of the workloads
    #[arg(long, value_enum, default_value = "memory")]
    sort: TopOrder,
    /// File with the token that the agent requires
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate of the agent, or of its authority, for an https URL
    #[arg(long, value_name = "FILE.pem")]
    certificate: Option<PathBuf>,
}

/// Timeouts of a request: of a single answer, as an agent of thousands of workloads may take a while, and on a live screen.
const PATIENCE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(3)];

/// Shows what the agent says.
///
/// # Errors
/// If no agent answers, or the terminal cannot be used.
pub fn run(args: &TopArgs) -> anyhow::Result<i32> {
    let watched = !args.once && !args.json && Screen::is_possible();
    let patience = PATIENCE[usize::from(watched)];
    let mut client = match &args.socket {
        Some(path) => Client::at_socket(path, patience),
        None => Client::at_url(&args.url, args.certificate.as_deref(), patience)?,
    };
    if let Some(path) = &args.token_file {
        client = client.with_token_of(path)?;
    }
    let mut overview = client.overview()?;
    if watched {
        let signals = session::ending_signals()?;
        screen::run(&client, TopBoard::new(overview, args.sort), &signals).context("top: the terminal")?;
        return Ok(0);
    }
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &overview)?;
        writeln!(out)?;
        return Ok(0);
    }
    for line in view::about(&overview.agent, overview.workloads.len()) {
        writeln!(out, "{line}")?;
    }
    order::order(&mut overview.workloads, args.sort, false);
    for line in table::lines(view::table(&overview.workloads), usize::MAX) {
        writeln!(out, "{line}")?;
    }
    Ok(0)
}
