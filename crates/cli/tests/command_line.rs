//! The command line as users meet it: helps, mistakes, exit codes, and what is printed to a pipe. Needs neither root nor a
//! feature of the kernel.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, missing_docs)]
#[path = "../examples/manuals.rs"]
mod manuals;
mod report_support;

use std::path::Path;
use std::process::Stdio;

use assert_cmd::Command;
use report_support::{RecordPlan, make};

/// Every command, in the order of the help.
const COMMANDS: [&str; 27] = [
    "run",
    "record",
    "watch",
    "report",
    "import",
    "export",
    "schemes",
    "schemes check",
    "schemes apply",
    "budget",
    "compare",
    "simulate",
    "agent",
    "guard",
    "fleet",
    "fleet replay",
    "fleet tune",
    "fleet import",
    "fleet generate",
    "top",
    "hint",
    "seff",
    "doctor",
    "recover",
    "completions",
    "help",
    "",
];

/// lowtide at 80 columns, in a folder, without the variables of the environment that it reads.
fn lowtide(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("lowtide").unwrap();
    command.current_dir(dir).env("COLUMNS", "80").env("XDG_STATE_HOME", dir.join("state")).args(arguments);
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "SLURM_PROCID", "PMI_RANK", "OMPI_COMM_WORLD_RANK"] {
        command.env_remove(name);
    }
    command
}

/// Its exit code, and what it printed on stdout and on stderr.
fn output(dir: &Path, line: &str) -> (i32, String, String) {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let output = lowtide(dir, &arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_command_has_a_help_that_fits_80_columns() {
    let dir = tempfile::tempdir().unwrap();
    for command in COMMANDS.iter().filter(|command| **command != "help") {
        let (code, stdout, stderr) = output(dir.path(), &format!("{command} --help"));
        assert_eq!((code, stderr.as_str()), (0, ""), "{command}");
        // clap does not wrap the line of usage.
        let fits = |line: &str| line.starts_with("Usage:") || line.chars().count() <= 80;
        assert!(stdout.lines().all(fits), "{command}: {stdout}");
        assert!(!stdout.contains('\u{1b}'), "{command} colours a pipe");
        let name = if command.is_empty() { "lowtide".to_owned() } else { command.replace(' ', "_") };
        insta::assert_snapshot!(format!("help_{name}"), stdout);
    }
}

/// The help names every command, so that the list above cannot miss one.
#[test]
fn the_list_of_commands_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    for (parent, own) in [("", "lowtide"), ("schemes", "schemes"), ("fleet", "fleet")] {
        let (_, help, _) = output(dir.path(), &format!("{parent} --help"));
        let listed = help.split("Commands:\n").nth(1).unwrap().lines().take_while(|line| !line.is_empty());
        // Lines that continue a description are indented further.
        let names = listed.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
        for name in names.map(|line| line.split(' ').next().unwrap()) {
            let command = format!("{parent} {name}");
            assert!(name == "help" || COMMANDS.contains(&command.trim()), "{own}: {name} has no snapshot of its help");
        }
    }
}

/// A mistake exits with the code of the contract, says what is wrong on stderr, and prints nothing on stdout.
#[test]
fn mistakes_have_an_exit_code_and_a_fix() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("wrong.toml"), "duration = '1h'\nmemroy = '1G'\n").unwrap();
    std::fs::write(dir.path().join("wrong.schemes"), "4K null 0 5 5s null pageoot\n").unwrap();
    let cases = [
        (2, ""),
        (2, "nonsense"),
        (2, "run"),
        (127, "run --monitor none -- /no/such/program"),
        (2, "run --interval 1ms -- true"),
        (2, "run --max-overhead 200% -- true"),
        (2, "run --max-overhead 1 -- true"),
        (2, "run --limit 512 -- true"),
        (2, "run --duration 5 -- true"),
        (2, "run --nonsense true"),
        (2, "run --quiet --verbose -- true"),
        (2, "run --color sometimes -- true"),
        (2, "compare --nonsense -- true"),
        (2, "seff"),
        (5, "seff 12"),
        (2, "completions nonsense"),
        (2, "compare --json --format csv -- true"),
        (2, "run --monitor damno -- true"),
        (2, "run --windows 7s -- true"),
        (2, "record"),
        (5, "record --pid 4294967295"),
        (2, "record --pid 1 --system"),
        (2, "watch"),
        (2, "watch job"),
        (5, "watch 4294967295"),
        (5, "report none"),
        (2, "report none --format nonsense"),
        (5, "import none"),
        (5, "export none --format damo --output out"),
        (5, "schemes check none"),
        (2, "schemes check wrong.schemes"),
        (5, "budget none"),
        (2, "budget none --slowdown fast"),
        (2, "budget --watch"),
        (2, "compare"),
        (2, "simulate"),
        (2, "simulate --scenario wrong.toml"),
        (5, "agent --config none --check"),
        (2, "agent --config wrong.toml --check"),
        (2, "guard --means nonsense"),
        (2, "fleet"),
        (5, "fleet replay none"),
        (2, "top --url nonsense"),
        (2, "hint background"),
        (2, "doctor --nonsense"),
        (2, "recover --nonsense"),
    ];
    let mut text = String::new();
    for (code, line) in cases {
        let (got, stdout, stderr) = output(dir.path(), line);
        assert_eq!(got, code, "{line}: {stderr}");
        assert_eq!(stdout, "", "{line}");
        assert!(!stderr.is_empty() && !stderr.contains("panicked"), "{line}: {stderr}");
        text += &format!("$ lowtide {line}\n{}{}\n\n", stderr.trim_end(), format_args!("\n-> {code}"));
    }
    insta::assert_snapshot!("mistakes", text.replace(&dir.path().display().to_string(), "DIR"));
}

/// A record of one minute.
fn recorded() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    make(&dir.path().join("job"), RecordPlan { seconds: 60, episodes: 20, ..RecordPlan::default() });
    dir
}

#[test]
fn a_record_is_reported_to_a_pipe_without_colours_or_progress() {
    let dir = recorded();
    for view in ["summary", "timeline", "workingset", "ages", "curve", "breakdown", "cgroups"] {
        for format in ["text", "json", "csv"] {
            let line = format!("report job {view} --format {format}");
            let (code, stdout, stderr) = output(dir.path(), &line);
            assert_eq!((code, stderr.as_str()), (0, ""), "{line}");
            assert!(!stdout.is_empty() && !stdout.contains('\u{1b}') && !stdout.contains('\r'), "{line}: {stdout}");
            if format == "json" {
                serde_json::from_str::<serde_json::Value>(&stdout).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }
}

/// The same figures in summary.json, in `lowtide budget`, and in what it emits.
#[test]
fn a_budget_is_the_same_wherever_it_is_shown() {
    let dir = recorded();
    // Without swap, as what is active here now must not matter.
    let (code, text, stderr) = output(dir.path(), "budget job --no-swap --json");
    assert_eq!(code, 0, "{stderr}");
    let budget: serde_json::Value = serde_json::from_str(&text).unwrap();
    output(dir.path(), "report job");
    let summary = std::fs::read_to_string(dir.path().join("job/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let of = |mechanism: &str| {
        let all = budget["budgets"].as_array().unwrap();
        all.iter().find(|one| one["mechanism"] == mechanism).map(|one| one["bytes"].clone()).unwrap()
    };
    for (mechanism, field) in [("unlimited", "unlimited_bytes"), ("sys-maxrss", "sys_max_rss_bytes")] {
        assert_eq!(of(mechanism), summary["budget"][field], "{mechanism}");
    }
    assert_eq!(budget["records"][0]["answer"], summary["answer"], "the bottom line");
    let (code, emitted, _) = output(dir.path(), "budget job --no-swap --emit systemd");
    assert_eq!(code, 0);
    let limit = summary["answer"]["give_bytes"].as_u64().or_else(|| summary["answer"]["limit_bytes"].as_u64());
    if let Some(limit) = limit {
        assert!(emitted.contains(&format!("MemoryMax={limit}")), "{emitted}");
    }
}

#[test]
fn a_simulation_is_the_same_every_time() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = "duration = '2m'\n[machine]\nmemory = '1G'\nswap = { size = '1G', medium = 'zram' }\n\
        [[workload]]\nname = 'web'\nmemory = [\n{ size = '200M', use = 'steady', every = '2s' },\n\
        { size = '200M', use = 'idle' },\n]\n";
    std::fs::write(dir.path().join("one.toml"), scenario).unwrap();
    let (code, first, stderr) = output(dir.path(), "simulate --scenario one.toml --json");
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(output(dir.path(), "simulate --scenario one.toml --json").1, first);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let dir = recorded();
    for line in ["report job ages --format csv", "budget job --no-swap", "budget job --no-swap --json"] {
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("lowtide"))
            .args(line.split(' '))
            .current_dir(dir.path())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.contains("pipe")), (Some(0), false), "{line}: {stderr}");
    }
}

/// Scripts rely on the program's own exit code, whatever happens to the output of lowtide.
#[test]
fn run_keeps_the_exit_code_when_nobody_reads_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let closed = || std::io::pipe().unwrap().1;
    for (number, (out, err)) in [
        (Stdio::null(), Stdio::from(full())),
        (Stdio::null(), Stdio::from(closed())),
        (Stdio::from(full()), Stdio::null()),
        (Stdio::from(closed()), Stdio::null()),
    ]
    .into_iter()
    .enumerate()
    {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("lowtide"));
        command.args([
            "run",
            "--json",
            "-v",
            "--monitor",
            "none",
            "--out",
            &number.to_string(),
            "--",
            "sh",
            "-c",
            "exit 7",
        ]);
        let status = command.current_dir(dir.path()).stdout(out).stderr(err).status().unwrap();
        assert_eq!(status.code(), Some(7), "{number}");
        assert!(dir.path().join(number.to_string()).join("meta.json").exists());
    }
}

#[test]
fn programs_that_start_in_one_second_have_a_folder_each() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("lowtide"));
        command.args(["run", "--monitor", "none", "--quiet", "--", "true"]).current_dir(dir.path()).spawn().unwrap()
    };
    let mut all: Vec<_> = (0..4).map(|_| start()).collect();
    assert!(all.iter_mut().all(|child| child.wait().unwrap().success()));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
}

#[test]
fn colours_are_chosen_and_quiet_is_quiet() {
    let dir = recorded();
    for (options, colours) in [("", false), ("--color always", true), ("--color never", false)] {
        let (code, stdout, _) = output(dir.path(), &format!("report job heatmap {options}"));
        assert_eq!((code, stdout.contains('\u{1b}')), (0, colours), "{options}");
    }
    let (code, stdout, stderr) = output(dir.path(), "run --quiet --monitor none --out quiet -- true");
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "", ""));
    let (code, stdout, _) = output(dir.path(), "report quiet --json");
    assert_eq!((code, stdout.starts_with('{')), (0, true));
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    manuals::write(dir.path()).unwrap();
    for command in COMMANDS.iter().filter(|command| **command != "help") {
        let page = format!("lowtide {command}").trim_end().replace(' ', "-") + ".1";
        let text = std::fs::read_to_string(dir.path().join(&page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
}

#[test]
fn shells_complete_options_of_commands() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, stderr) = output(dir.path(), &format!("completions {shell}"));
        assert_eq!((code, stderr.as_str(), script.contains("max-overhead")), (0, "", true), "{shell}");
    }
}

/// Words that make a command complete, but for what they name: `none` is not there, `file` is no record, `empty` an empty folder.
fn complete(command: &str, name: &str) -> Option<Vec<String>> {
    let words = match command {
        "run" | "compare" | "record" | "agent" | "guard" | "hint" | "doctor" | "top" | "recover" | "completions"
        | "" | "help" | "schemes" | "fleet" | "fleet generate" | "watch" => return None,
        "seff" => format!("seff 12 --dir {name}"),
        "export" => format!("export {name} --output out"),
        "simulate" => format!("simulate --record {name}"),
        "schemes apply" => format!("schemes apply {name} --pid 1"),
        "fleet import" => format!("fleet import out {name}"),
        _ => format!("{command} {name}"),
    };
    Some(words.split_whitespace().map(str::to_owned).collect())
}

/// Every command with twelve kinds of wrong use: the exit code of the contract, a message of its form, nothing on stdout.
#[test]
fn wrong_use_of_every_command_is_answered_in_one_form() {
    use std::os::unix::ffi::OsStringExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "text\n").unwrap();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    let mistakes =
        ["--nonsense", "-Z", "--color sometimes", "--color", "--quiet --verbose", "--quiet=1", "--version=1"];
    let mut wrong = Vec::new();
    let mut check = |arguments: Vec<std::ffi::OsString>, codes: &[i32]| {
        let output = lowtide(dir.path(), &[]).args(&arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().unwrap();
        let first = stderr.lines().next().unwrap_or_default();
        let of_clap = code == 2 && first.starts_with("error: ");
        let form = of_clap || first.starts_with("lowtide: ") && first.matches(": ").count() >= 2;
        if !codes.contains(&code) || !form || !output.stdout.is_empty() {
            wrong.push(format!("{arguments:?}: {code}, of {codes:?}: {stderr}"));
        }
    };
    for command in COMMANDS.iter().filter(|command| !matches!(**command, "" | "help")) {
        let words = |text: &str| -> Vec<std::ffi::OsString> {
            command.split_whitespace().chain(text.split_whitespace()).map(Into::into).collect()
        };
        for mistake in mistakes {
            check(words(mistake), &[2]);
        }
        let mut bytes = words("");
        bytes.push(std::ffi::OsString::from_vec(vec![b'-', b'-', 0xff]));
        check(bytes, &[2]);
        for (name, codes) in [("none", vec![5]), ("file", vec![1, 2, 5]), ("empty", vec![2, 5]), ("''", vec![2, 5])] {
            if let Some(words) = complete(command, name) {
                check(words.into_iter().map(Into::into).collect(), &codes);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A process that sleeps for so long; killed when dropped.
struct Sleeper(std::process::Child);

impl Sleeper {
    fn of(seconds: &str) -> Self {
        Self(std::process::Command::new("sleep").arg(seconds).spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn watch_prints_lines_and_json_and_leaves_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let sleeper = Sleeper::of("60");
    let options = format!("watch {} --monitor none --every 100ms --count 3", sleeper.0.id());
    let (code, stdout, stderr) = output(dir.path(), &options);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(stdout.lines().count(), 5, "two lines of heads, and three: {stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 80), "{stdout}");
    let (code, stdout, _) = output(dir.path(), &format!("{options} --json"));
    let objects: Vec<serde_json::Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, objects.len()), (0, 3));
    assert!(objects.iter().all(|object| object["resident_bytes"].is_u64() && object["monitor"] == "none"), "{stdout}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn watch_ends_with_its_target() {
    let dir = tempfile::tempdir().unwrap();
    let mut sleeper = Sleeper::of("1");
    let pid = sleeper.0.id().to_string();
    // Whoever started a process collects it: until then its pid is there.
    let collector = std::thread::spawn(move || sleeper.0.wait().unwrap());
    let (code, _, stderr) = output(dir.path(), &format!("watch --pid {pid} --monitor none --every 100ms"));
    collector.join().unwrap();
    assert_eq!((code, stderr.as_str()), (0, "lowtide: target ended\n"));
}
