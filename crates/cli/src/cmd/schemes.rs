//! `lowtide schemes`: explains schemes, and applies them to a running target.

use lowtide_kernel::damon::Features;
use lowtide_kernel::root::Kernel;
use lowtide_model::scheme::words::{Requirement, needs, sentence};
use lowtide_model::scheme::{Scheme, file, line};
use serde_json::json;

use super::record::{AttachArgs, record};
use crate::acts::{Acts, load_all};
use crate::output::{print, terminal};
use lowtide_engine::failure::{Failure, code};
use lowtide_engine::schemes::load;
use lowtide_engine::schemes::means::{self, Executor, Ground};
use lowtide_report::text::{Grid, Terminal, wrap};

/// Check operation schemes, and apply them
#[derive(Debug, clap::Args)]
pub struct SchemesArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Explain what schemes do, and which kernels can do it
    Check(Check),
    /// Apply schemes to what is running, and record the result
    Apply(Box<Apply>),
}

/// How `check` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// In words
    Text,
    /// In words and as data
    Json,
    /// The schemes as TOML
    Toml,
    /// The schemes in the one-line form
    Line,
}

/// `lowtide schemes check`
#[derive(Debug, clap::Args)]
struct Check {
    /// A file of schemes (one a line, TOML or JSON), or one that is built in: ethp, prcl, ethp-tuned, prcl-tuned
    #[arg(value_name = "FILE|NAME")]
    schemes: String,
    /// How to print
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Short for --format json
    #[arg(long)]
    json: bool,
}

/// `lowtide schemes apply`
#[derive(Debug, clap::Args)]
struct Apply {
    /// A file of schemes, or one that is built in
    #[arg(value_name = "FILE|NAME", required = true)]
    schemes: Vec<String>,
    #[command(flatten)]
    attach: AttachArgs,
    #[command(flatten)]
    acts: Acts,
}

/// Runs the command.
///
/// # Errors
/// If the schemes have a mistake.
pub fn run(args: &SchemesArgs) -> anyhow::Result<i32> {
    match &args.command {
        Command::Check(args) => check(args),
        Command::Apply(args) => {
            let acts = Acts { schemes: load_all(&args.schemes)?, ..args.acts.clone() };
            record(&args.attach, None, Some(&acts))
        }
    }
}

fn check(args: &Check) -> anyhow::Result<i32> {
    let schemes = load(&args.schemes)?;
    match if args.json { Format::Json } else { args.format } {
        Format::Text => print(text(&schemes, terminal()))?,
        Format::Json => print(serde_json::to_string_pretty(&data(&schemes)?)? + "\n")?,
        Format::Toml => print(file::to_toml(&schemes)?.trim_end().to_owned() + "\n")?,
        Format::Line => {
            for scheme in &schemes {
                let line = line::print(scheme).map_err(|what| {
                    let message = format!("{}: {what} has no place in a line; print --format toml", scheme.title());
                    Failure::new(code::USAGE, message)
                })?;
                print(line + "\n")?;
            }
        }
    }
    Ok(0)
}

/// The executor of each here, for a program that lowtide starts.
fn here(schemes: &[Scheme]) -> Result<Vec<Executor>, String> {
    let (operations, features) = match means::offered_here(&Kernel::default()) {
        Ok((operations, features)) => (Ok(operations), features),
        Err(why) => (Err(why), Features::default()),
    };
    let forbidden = means::forbidden(&Kernel::default());
    means::choose(schemes, &Ground { operations, features, system: false, cgroup: true, forbidden })
}

fn since(version: Option<&str>) -> String {
    version.map_or_else(|| "no".to_owned(), |version| format!("Linux {version}"))
}

fn text(schemes: &[Scheme], terminal: Terminal) -> String {
    let here = here(schemes);
    let mut text = String::new();
    for (index, scheme) in schemes.iter().enumerate() {
        text += &wrap(&format!("{}: {}", scheme.title(), sentence(scheme)), terminal.width, "  ");
        let mut grid = Grid::new("", &["needs", "DAMON vaddr", "DAMON paddr", "lowtide itself"]);
        for Requirement { what, vaddr, paddr, own } in needs(scheme) {
            grid.row([what, since(vaddr), since(paddr), since(own)]);
        }
        text += &grid.text(terminal);
        if let Ok(means) = &here {
            text += &format!("  here: {}\n", means[index]);
        }
        text.push('\n');
    }
    if let Err(why) = here {
        text += &wrap(&format!("Not possible here: {why}."), terminal.width, "");
    }
    text
}

fn data(schemes: &[Scheme]) -> anyhow::Result<serde_json::Value> {
    let here = here(schemes);
    let mut list = Vec::new();
    for (index, scheme) in schemes.iter().enumerate() {
        let needs: Vec<serde_json::Value> = needs(scheme)
            .into_iter()
            .map(|Requirement { what, vaddr, paddr, own }| {
                json!({ "what": what, "damon_vaddr_since": vaddr, "damon_paddr_since": paddr, "lowtide_since": own })
            })
            .collect();
        list.push(json!({
            "scheme": serde_json::to_value(scheme)?,
            "says": sentence(scheme),
            "line": line::print(scheme).ok(),
            "needs": needs,
            "here": here.as_ref().ok().map(|means| means[index].to_string()),
        }));
    }
    Ok(json!({ "schema": 1, "schemes": list, "not_possible_here": here.err() }))
}
