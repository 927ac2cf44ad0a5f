//! Runs the program on small patterns and checks what it logs and how it ends.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const M: u64 = 1 << 20;

struct Case {
    dir: TempDir,
}

impl Case {
    fn new(pattern: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("p.toml"), pattern).unwrap();
        Case { dir }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("truth.jsonl")
    }

    fn start(&self, options: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_pattern"))
            .arg(self.dir.path().join("p.toml"))
            .arg("--truth")
            .arg(self.log())
            .arg("--dir")
            .arg(self.dir.path())
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn run(&self, options: &[&str]) -> Output {
        self.start(options).wait_with_output().unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.log()).unwrap();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    /// Waits until the log has `lines` lines.
    fn wait_for(&self, lines: usize) {
        let begun = Instant::now();
        while fs::read_to_string(self.log()).map_or(0, |t| t.lines().count()) < lines {
            assert!(begun.elapsed() < Duration::from_secs(8), "no {lines} log lines");
            sleep(Duration::from_millis(10));
        }
    }
}

fn stats(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn cold(line: &Value, age: u64) -> &Value {
    let ages = line["cold"].as_array().unwrap();
    &ages.iter().find(|c| c["age_s"] == age).unwrap()["bytes"]
}

/// The `Rss` of the mapping that starts at `start`.
fn resident(pid: u64, start: u64) -> u64 {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mapping = format!("{start:x}-");
    let after = smaps.lines().skip_while(|l| !l.starts_with(&mapping)).find_map(|l| l.strip_prefix("Rss:")).unwrap();
    after.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// A run that was on time. On a busy machine one can be behind its own schedule, which it reports; then neither its lines nor its
/// passes are on time.
fn on_time(run: impl Fn() -> (Case, Value)) -> (Case, Value) {
    let is_on_time = |stats: &Value| stats["late_s"].as_f64().unwrap() < 0.2;
    (0..10).map(|_| run()).find(|(_, stats)| is_on_time(stats)).expect("ten runs were late")
}

/// A run of three seconds, while which the kernel holds what its log says; its figures.
fn tiny() -> (Case, Value) {
    let case = Case::new(
        r#"
        name = "tiny"
        [[area]]
        name = "heap"
        size = "8M"
        [[area]]
        name = "grow"
        size = "4M"
        populate = false
        [[phase]]
        seconds = 2
        [[phase.access]]
        area = "heap"
        hot = { offset = "2M", size = "1M" }
        passes_per_second = 20
        [[phase.access]]
        area = "grow"
        hot = { size = "512K" }
        passes_per_second = 20
        [[phase]]
        seconds = 1
        "#,
    );
    let child = case.start(&[]);
    case.wait_for(2);
    let header = &case.lines()[0];
    let start = |n: usize| header["areas"][n]["start"].as_u64().unwrap();
    let pid = header["pid"].as_u64().unwrap();
    assert_eq!(resident(pid, start(0)), 8 * M);
    assert_eq!(resident(pid, start(1)), M / 2);
    let stats = stats(&child.wait_with_output().unwrap());
    (case, stats)
}

#[test]
fn the_log_reports_what_was_touched() {
    let (case, stats) = on_time(tiny);
    let header = &case.lines()[0];
    let start = |n: usize| header["areas"][n]["start"].as_u64().unwrap();
    let lines = case.lines();
    assert_eq!(header["header"], true);
    assert_eq!(header["name"], "tiny");
    assert_eq!(header["areas"][0]["granule_bytes"], 4096);
    assert_eq!(header["areas"][0]["end"].as_u64().unwrap() - start(0), 8 * M);
    assert_eq!(lines.len(), 4);
    for (n, line) in lines[1..].iter().enumerate() {
        let since = line["t_s"].as_f64().unwrap() - header["start_s"].as_f64().unwrap();
        let late = since - (n as f64 + 1.0);
        assert!((0.0..0.5).contains(&late), "line {n} is late by {late} s");
        assert_eq!(line["resident_bytes"], 8 * M + M / 2);
    }
    let expected = serde_json::json!([[start(0) + 2 * M, start(0) + 3 * M], [start(1), start(1) + M / 2]]);
    let mut hot = lines[1]["hot"].as_array().unwrap().clone();
    hot.sort_by_key(|r| r[0] != start(0) + 2 * M);
    // What was populated is a second old by the first line.
    assert_eq!(lines[1]["ws"]["1"], M + M / 2);
    assert_eq!(Value::from(hot), expected);
    assert_eq!(lines[2]["hot"], "same");
    assert_eq!(lines[2]["ws"]["1"], M + M / 2);
    assert_eq!([1, 120].map(|age| cold(&lines[2], age).as_u64()), [Some(7 * M), Some(0)]);
    assert_eq!((lines[1]["phase"].clone(), lines[3]["phase"].clone()), (0.into(), 1.into()));
    // In the idle phase nothing is touched; what was last touched just before it is about a second old.
    assert!(lines[3]["ws"]["1"].as_u64().unwrap() <= M + M / 2);
    assert_eq!(lines[3]["ws"]["60"], 8 * M + M / 2);
    // 20 passes a second, twice for 2 seconds; a busy machine may begin the last of them too late.
    let passes = stats["passes"].as_u64().unwrap();
    assert!((70..=80).contains(&passes), "{stats}");
    let touches = stats["touches"].as_u64().unwrap();
    assert!((70 * 128..=40 * 256 + 40 * 128).contains(&touches), "{stats}");
    assert!((3.0..3.5).contains(&stats["seconds"].as_f64().unwrap()));
}

#[test]
fn a_signal_ends_it_in_order() {
    let case = Case::new(
        r#"
        name = "long"
        [[area]]
        name = "data"
        size = "4M"
        backing = "file"
        [[area]]
        name = "bytes"
        size = "4M"
        backing = "read"
        [[phase]]
        seconds = 600
        [[phase.access]]
        area = "data"
        passes_per_second = "max"
        [[phase.access]]
        area = "bytes"
        hot = { size = "1M" }
        passes_per_second = 10
        "#,
    );
    let child = case.start(&[]);
    case.wait_for(3);
    let files = || {
        let entries = fs::read_dir(case.dir.path()).unwrap();
        entries.filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|x| x == "data")).count()
    };
    assert_eq!(files(), 2);
    let killed = Command::new("kill").arg(child.id().to_string()).status();
    assert!(killed.unwrap().success());
    let stats = stats(&child.wait_with_output().unwrap());
    assert!(stats["touches"].as_u64().unwrap() > 1024);
    assert_eq!(files(), 0);
    let lines = case.lines();
    assert_eq!(lines[0]["areas"][1]["start"], 0);
    assert_eq!(lines[2]["ws"]["1"], 5 * M);
    let hot = lines[1..].iter().find(|l| l["hot"] != "same").unwrap();
    assert!(hot["hot"].as_array().unwrap().iter().any(|r| r[0] == 0));
}

const TWO_STREAMS: &str = r#"
    name = "two"
    [[area]]
    name = "heap"
    size = "4M"
    [[phase]]
    seconds = 1
    [[phase.access]]
    area = "heap"
    hot = { pieces = 4, piece_size = "64K" }
    passes_per_second = 10
    [[phase.access]]
    area = "heap"
    hot = { random_share = 0.5 }
    order = "random"
    mode = "write"
    passes_per_second = "max"
"#;

#[test]
fn work_is_done_to_the_touch_without_waiting() {
    let case = Case::new(TWO_STREAMS);
    let begun = Instant::now();
    let first = stats(&case.run(&["--work", "3000001"]));
    assert_eq!(first["touches"], 3_000_001);
    assert_eq!(first["late_s"], 0.0);
    // 58 seconds of the pattern's time line.
    assert!(begun.elapsed() < Duration::from_secs(8));
    assert_eq!(stats(&case.run(&["--work", "3000001"]))["passes"], first["passes"]);
}

#[test]
fn work_that_never_comes_is_refused() {
    let case = Case::new("name='t'\n[[area]]\nname='a'\nsize='4K'\n[[phase]]\nseconds=1\n");
    let output = case.run(&["--work", "10"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no more touches"));
}

#[test]
fn time_can_be_cut_and_phases_repeated() {
    let (case, stats) = on_time(|| {
        let case = Case::new(&TWO_STREAMS.replace("seconds = 1", "seconds = 0.25"));
        let stats = stats(&case.run(&["--repeat", "--seconds", "1.1"]));
        (case, stats)
    });
    assert!((1.1..1.6).contains(&stats["seconds"].as_f64().unwrap()));
    assert_eq!(case.lines().len(), 2);
}

#[test]
fn a_wrong_pattern_is_explained() {
    let case = Case::new("name = \"t\"\n[[area]]\nname = \"a\"\nsize = \"4KX\"\n");
    let output = case.run(&[]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    for word in ["p.toml", "4KX", "4KiB", "line 4"] {
        assert!(errors.contains(word), "{word} is not in: {errors}");
    }
    assert!(!case.log().exists());
}
