//! Fuzz targets for all that others write: recordings, records, telemetry, files of settings, hints, requests, saved
//! state, undo journals, kernel files.
//! `LOWTIDE_FUZZ` names the target, as libFuzzer has one in a binary; see `scripts/bench.sh fuzz`.

#![no_main]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use lowtide_engine::agent::serve::http;
use lowtide_engine::agent::{config, saved, socket};
use lowtide_fleet::store::Reader;
use lowtide_kernel::monitor::mapping_use;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::{lru_gen, pressure, proc, swap, system, undo, zram};
use lowtide_model::meta::Meta;
use lowtide_model::scheme;
use lowtide_record::{Record, interchange};

type Target = fn(&[u8], &Path);

const TARGETS: [(&str, Target); 10] = [
    ("recording", recording),
    ("record", record),
    ("telemetry", telemetry),
    ("scheme", scheme_text),
    ("config", config_file),
    ("hint", hint),
    ("request", request),
    ("state", state),
    ("journal", journal),
    ("kernel", kernel_text),
];

fuzz_target!(|data: &[u8]| {
    static CHOSEN: OnceLock<(Target, PathBuf)> = OnceLock::new();
    let (target, folder) = CHOSEN.get_or_init(|| {
        let name = std::env::var("LOWTIDE_FUZZ").unwrap_or_default();
        std::panic::set_hook(Box::new(|panic| {
            // What the Parquet reader does not survive, lowtide does.
            if !panic.location().is_some_and(|at| at.file().contains("/parquet-")) {
                eprintln!("{panic}\n{}", std::backtrace::Backtrace::force_capture());
                std::process::abort();
            }
        }));
        let target = TARGETS.iter().find(|(of, _)| *of == name);
        let Some((_, target)) = target else {
            panic!("LOWTIDE_FUZZ must be one of {:?}", TARGETS.map(|(name, _)| name))
        };
        // Never removed, as libFuzzer ends by _exit: the caller's TMPDIR is.
        (*target, tempfile::tempdir().expect("a temporary folder").keep())
    });
    target(data, folder);
});

/// The data as a file.
fn file(data: &[u8], folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, data).expect("a temporary file");
    path
}

fn text(data: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(data)
}

/// Recordings of other tools: damo's in all its formats, perf script, the WMO's CSV.
fn recording(data: &[u8], folder: &Path) {
    let _ = interchange::read(&file(data, folder, "recording"));
}

/// A record whose meta.json or whose tables are the data.
fn record(data: &[u8], folder: &Path) {
    if data.first() == Some(&b'{') {
        file(data, folder, "meta.json");
        let _ = Record::open(folder);
        return;
    }
    let meta = Meta { schema: lowtide_model::meta::SCHEMA, ..Meta::default() };
    file(&serde_json::to_vec(&meta).expect("a meta.json"), folder, "meta.json");
    for name in ["usage.parquet", "ages.parquet", "regions.parquet"] {
        file(data, folder, name);
    }
    let record = Record::open(folder).expect("a record");
    let _ = (record.usage(), record.ages(), record.regions().count());
}

/// A telemetry file.
fn telemetry(data: &[u8], folder: &Path) {
    let path = file(data, folder, "telemetry.parquet");
    if let Ok(reader) = Reader::open(&path, true) {
        let _ = reader.count();
    }
}

/// Schemes, as files and as damo's lines.
fn scheme_text(data: &[u8], _: &Path) {
    let text = text(data);
    let read = [scheme::file::parse(&text), scheme::line::parse(&text)];
    for schemes in read.into_iter().flatten().filter(|schemes| !schemes.is_empty()) {
        // What was read can be written, and is the same then.
        let toml = scheme::file::to_toml(&schemes).expect("schemes as TOML");
        assert_eq!(scheme::file::parse(&toml).as_ref(), Ok(&schemes), "{toml}");
        let _ = schemes.iter().map(scheme::line::print).collect::<Vec<_>>();
    }
}

/// The agent's file.
fn config_file(data: &[u8], folder: &Path) {
    let _ = config::Config::load(&file(data, folder, "agent.toml"), &Kernel::at(folder));
}

fn hint(data: &[u8], _: &Path) {
    let _ = serde_json::from_slice::<socket::Hint>(data);
}

/// What a peer sends to the agent's server.
fn request(data: &[u8], _: &Path) {
    let answer = http::answer(data).expect("sockets");
    // Whatever comes is answered in HTTP, if at all.
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", text(&answer));
}

/// The undo journal of a process that is dead.
fn journal(data: &[u8], _: &Path) {
    let _ = undo::outstanding(data).iter().map(ToString::to_string).collect::<Vec<_>>();
    // What follows a line that was cut counts.
    let next = b"\n{\"taken\":{\"id\":7,\"undo\":{}}}\n";
    assert!(!undo::outstanding(&[data, next].concat()).is_empty());
}

/// The agent's saved state: what follows its first line, which has the checksum.
fn state(data: &[u8], folder: &Path) {
    let head = format!("{{\"lowtide_agent_state\":2,\"bytes\":{},\"crc32\":{}}}\n", data.len(), crc32fast::hash(data));
    let _ = saved::load(&file(&[head.as_bytes(), data].concat(), folder, "state"), "boot", 1000.0);
}

/// Files of the kernel.
fn kernel_text(data: &[u8], _: &Path) {
    let text = text(data);
    let _ = (proc::parse_stat(&text), proc::parse_status(&text), proc::parse_mapping(&text));
    let _ = (mapping_use::parse_mappings(&text), lru_gen::parse(&text), pressure::parse(&text));
    let _ = (swap::parse(&text), system::parse_meminfo(&text), system::parse_cpu(&text), zram::parse_mm_stat(&text));
}
