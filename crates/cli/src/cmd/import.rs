//! `lowtide import`: makes a record of another tool's recording.

use std::path::PathBuf;

use crate::{output, session};
use lowtide_engine::failure::{Failure, code, of_file};
use lowtide_record::interchange;

/// Make a record from another tool's recording
#[derive(Debug, clap::Args)]
pub struct ImportArgs {
    /// damo's damon.data, text of `perf script` with damon_aggregated events, or WMO's CSV
    file: PathBuf,
    /// Folder of the record [default: ./lowtide-NAME-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the paths as JSON on stdout
    #[arg(long)]
    json: bool,
}

/// Reads the file, writes the record and draws its report.
///
/// # Errors
/// If the file is no recording, is damaged, or the record cannot be written.
pub fn run(args: &ImportArgs) -> anyhow::Result<i32> {
    let shown = args.file.display();
    let recording = interchange::read(&args.file).map_err(|error| failure(&format!("{shown}"), error))?;
    let name = args.file.file_stem().map_or_else(|| "import".into(), |stem| stem.to_string_lossy().into_owned());
    let dir = args.out.clone().unwrap_or_else(|| session::default_folder(&name));
    let command = vec!["lowtide".to_owned(), "import".to_owned(), shown.to_string()];
    interchange::to_record(recording, &dir, command).map_err(|error| failure(&format!("{}", dir.display()), error))?;
    lowtide_report::conclude(&dir)?;
    let report = dir.join("report.html");
    if args.json {
        let paths = serde_json::json!({ "schema": 1, "record": dir, "report": report });
        output::print(format_args!("{paths}\n"))?;
    } else {
        output::note(format_args!("record: {}\nreport: {}", dir.display(), report.display()));
    }
    Ok(0)
}

/// The failure of reading or writing `what`.
pub(super) fn failure(what: &str, error: interchange::RecordingError) -> anyhow::Error {
    match error {
        interchange::RecordingError::Store(error) => error.into(),
        interchange::RecordingError::Io(error) => of_file(what, &error, "check the path").into(),
        error => Failure::new(code::OTHER, format!("{what}: {error}")).into(),
    }
}
