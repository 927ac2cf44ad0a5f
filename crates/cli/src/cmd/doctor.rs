//! `lowtide doctor`: what this machine offers, how to get the rest, and what one refault costs here.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use lowtide_kernel::caps::{self, Purpose};
use lowtide_kernel::refault::{self, Medium, Refault};
use lowtide_kernel::root::Kernel;
use lowtide_kernel::swap;
use lowtide_kernel::zram::{Zram, ZramSetup};
use lowtide_model::capability::{Capability, State};
use lowtide_model::curve::MeasuredCosts;
use serde::Serialize;

use super::calibrate::{self, MonitorCost};
use crate::output::{print, terminal};
use crate::session;
use lowtide_engine::calibration;
use lowtide_engine::failure::words as reason;
use lowtide_engine::recording;
use lowtide_engine::source;
use lowtide_report::text::{Grid, Terminal, figure, whole_bytes, wrap};

/// Bytes of the zram device that is set up for `--with-zram`.
const ZRAM_BYTES: u64 = 128 << 20;
/// The highest priority there is: the pages that are measured go to this device and to no other.
const FILLED_FIRST: u16 = 32_767;

/// Show what this machine offers, and how to enable the rest
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Also measure: each monitor against a known program (15 s each), and what one refault costs on each swap device
    /// and on the disk of --dir
    #[arg(long)]
    calibrate: bool,
    /// The disk that holds this folder is measured; takes 64 MiB there for a moment
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Swap to 128 MiB of zram for a moment and measure that too
    #[arg(
        long,
        value_name = "ALGORITHM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        requires = "calibrate"
    )]
    with_zram: Option<String>,
    /// Also list every capability, and how to enable those that are missing
    #[arg(long)]
    all: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// All that is printed.
#[derive(Debug, Serialize)]
struct Diagnosis {
    schema: u32,
    kernel: String,
    monitor: source::Expected,
    capabilities: Vec<Row>,
    calibration: Option<Calibration>,
}

#[derive(Debug, Serialize)]
struct Row {
    purpose: Option<Purpose>,
    #[serde(flatten)]
    capability: Capability,
}

/// What was measured on this machine.
#[derive(Debug, Serialize)]
struct Calibration {
    monitors: Vec<MonitorCost>,
    disk: Refault,
    /// `None`: no swap device is on.
    swap: Option<Vec<Refault>>,
    /// `None`: not asked for.
    zram: Option<Refault>,
}

/// Probes the machine and prints the result; a missing capability is a result, not an error.
///
/// # Errors
/// If the result cannot be printed, or signals cannot be blocked while zram is swapped to.
pub fn run(args: &DoctorArgs) -> anyhow::Result<i32> {
    let kernel = Kernel::default();
    let capabilities = caps::probe(&kernel);
    let monitor = source::expected(&capabilities);
    let (calibration, signal) = match args.calibrate {
        true => calibrate(&kernel, &args.dir, args.with_zram.as_deref())?,
        false => (None, None),
    };
    if let Some(signal) = signal {
        return Ok(128 + signal);
    }
    if let Some(calibration) = &calibration {
        keep(calibration);
    }
    let row = |capability: Capability| Row { purpose: caps::purpose(capability.name), capability };
    let diagnosis = Diagnosis {
        schema: 1,
        kernel: kernel.read_text("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        monitor,
        capabilities: capabilities.into_iter().map(row).collect(),
        calibration,
    };
    let printed = if args.json {
        serde_json::to_string_pretty(&diagnosis)? + "\n"
    } else {
        text(&diagnosis, args.all, terminal())
    };
    print(printed)?;
    Ok(0)
}

/// Measures what was asked for, or returns the signal that came meanwhile.
fn calibrate(
    kernel: &Kernel,
    dir: &Path,
    with_zram: Option<&str>,
) -> anyhow::Result<(Option<Calibration>, Option<i32>)> {
    let disk = refault::on_disk(kernel, dir)
        .unwrap_or_else(|error| Refault::unmeasured(Medium::Disk, dir.display().to_string(), error.to_string()));
    let swap = match swap::devices(kernel) {
        Ok(devices) if devices.is_empty() => None,
        _ => Some(refault::on_swap(kernel).unwrap_or_else(|error| {
            vec![Refault::unmeasured(Medium::Swap, "/proc/swaps".to_owned(), error.to_string())]
        })),
    };
    let monitors = calibrate::monitors(std::io::stderr().is_terminal());
    let mut answer = Calibration { monitors, disk, swap, zram: None };
    if let Some(algorithm) = with_zram {
        // An interrupted lowtide takes its device down like any other; it takes a fraction of a second.
        let signals = session::ending_signals()?;
        let why = |error: anyhow::Error| Refault::unmeasured(Medium::Swap, "zram".to_owned(), reason(&error));
        answer.zram = Some(on_zram(kernel, algorithm).unwrap_or_else(why));
        if let Some(signal) = signals.next()? {
            return Ok((None, Some(signal.number)));
        }
    }
    Ok((Some(answer), None))
}

/// Keeps the costs for later records; it is no error if that fails.
fn keep(calibration: &Calibration) {
    let swap = calibration.swap.iter().flatten().chain(&calibration.zram).find_map(Refault::costs);
    let costs = MeasuredCosts { disk_s: calibration.disk.mean_s, ..swap.unwrap_or_default() };
    match calibration::save(costs) {
        Ok(path) => lowtide_kernel::message!("lowtide: kept for records to come in {}", path.display()),
        Err(error) => lowtide_kernel::message!("lowtide: the costs could not be kept for records to come: {error}"),
    }
}

/// Cost of a refault on zram, on a device that is there only for this.
fn on_zram(kernel: &Kernel, algorithm: &str) -> anyhow::Result<Refault> {
    let journal = recording::journal(kernel)?;
    let algorithm = (!algorithm.is_empty()).then(|| algorithm.to_owned());
    let zram = Zram::swap_on(kernel, &journal, &ZramSetup { bytes: ZRAM_BYTES, algorithm, priority: FILLED_FIRST })?;
    let node = zram.node().display().to_string();
    let measured = refault::on_swap(kernel);
    zram.take_down()?;
    let own = measured?.into_iter().find(|refault| refault.device == node);
    Ok(own.unwrap_or_else(|| Refault::unmeasured(Medium::Swap, node, "the kernel paged nothing out to it".to_owned())))
}

/// The monitor that serves, what it reports and omits, and what would help most.
fn first_lines(diagnosis: &Diagnosis, all: bool, terminal: Terminal) -> String {
    let monitor = &diagnosis.monitor;
    let entry = source::entry(monitor.name);
    let (reports, omits) =
        entry.map_or(("memory, faults and pressure", "which memory is used"), |entry| (entry.reports, entry.omits));
    let better: Vec<&str> = monitor.refused.iter().map(|refusal| refusal.backend.as_str()).collect();
    let instead = if better.is_empty() {
        ", the best there is".to_owned()
    } else {
        format!(", as these are not available: {}", better.join(", "))
    };
    let count = |state| diagnosis.capabilities.iter().filter(|row| row.capability.state == state).count();
    let (yes, blocked, no) = (count(State::Yes), count(State::Blocked), count(State::No));
    let hint = if all { "" } else { " (--all lists them)" };
    let lines = [
        ("monitor", format!("{}{instead}", monitor.backend)),
        ("reports", format!("{reports}; it does not report {omits}")),
        ("to do", improvement(diagnosis).unwrap_or_else(|| "nothing; all that lowtide uses is here".to_owned())),
        ("kernel", format!("{}: {yes} capabilities, {blocked} blocked, {no} missing{hint}", diagnosis.kernel)),
    ];
    let mut out = String::new();
    for (name, words) in lines {
        let text = wrap(&words, terminal.width.saturating_sub(9), "");
        for (at, line) in text.lines().enumerate() {
            out += &format!("{:9}{line}\n", if at == 0 { name } else { "" });
        }
    }
    out
}

/// Capabilities beside those of monitors that help most, the most important first.
const WANTED: [&str; 6] = ["swap", "memory-reclaim", "process-madvise", "memory-cgroup", "psi", "memory-low"];

/// What would help most: what the best monitor that is not available needs, else what reclaim needs.
fn improvement(diagnosis: &Diagnosis) -> Option<String> {
    let refused = diagnosis.monitor.refused.iter().filter_map(|refusal| source::entry(&refusal.backend));
    let needs = refused.take(1).flat_map(|entry| entry.needs.iter().copied());
    let is_missing = |name: &str| {
        diagnosis.capabilities.iter().find(|row| row.capability.name == name && row.capability.state != State::Yes)
    };
    let row = needs.chain(WANTED).find_map(is_missing)?;
    let Capability { name, how, gives, enable, .. } = &row.capability;
    let state = if row.capability.state == State::Blocked { how.as_str() } else { "missing" };
    Some(format!("{name}: {state}; {enable}. Then: {gives}"))
}

/// The diagnosis for people.
fn text(diagnosis: &Diagnosis, all: bool, terminal: Terminal) -> String {
    let mut out = first_lines(diagnosis, all, terminal);
    if all {
        for refusal in &diagnosis.monitor.refused {
            out += &wrap(&format!("not {}: {}", refusal.backend, refusal.why), terminal.width, "         ");
        }
        for purpose in Purpose::ALL {
            out += &format!("\n{}", grid_of(&diagnosis.capabilities, purpose).text(terminal));
        }
    }
    if let Some(calibration) = &diagnosis.calibration {
        out += &format!("\n{}\n{}", exactness(calibration).text(terminal), costs(calibration).text(terminal));
    }
    out
}

/// The capabilities for one purpose, and what enables those that are missing.
fn grid_of(all: &[Row], purpose: Purpose) -> Grid {
    let longest = all.iter().map(|row| row.capability.name.len()).max().unwrap_or(0);
    let mut grid = Grid { remarks: true, ..Grid::new(purpose.title(), &["", "", ""]) };
    for Row { capability, .. } in all.iter().filter(|row| row.purpose == Some(purpose)) {
        let mark = match capability.state {
            State::Yes => "yes",
            State::Blocked => "blocked",
            State::No => "no",
        };
        // All groups have the same columns.
        let name = format!("{:longest$}", capability.name);
        grid.row([name, format!("{mark:>7}"), capability.gives.to_owned()]);
        let fix = (!capability.enable.is_empty()).then(|| format!("fix: {}", capability.enable));
        for line in [Some(capability.how.clone()), fix].into_iter().flatten() {
            grid.row([String::new(), String::new(), line]);
        }
    }
    grid
}

fn exactness(calibration: &Calibration) -> Grid {
    let head = ["", "known", "measured", "error", "±", "CPU", "memory", ""];
    let mut grid = Grid { remarks: true, ..Grid::new("monitors against a known program", &head) };
    for cost in &calibration.monitors {
        grid.row([
            cost.monitor.to_owned(),
            whole_bytes(Some(cost.known_bytes)),
            whole_bytes(cost.measured_bytes),
            figure(cost.error_percent, 1, " %"),
            figure(cost.ci95_percent, 1, " %"),
            figure(cost.cpu_percent, 1, " %"),
            whole_bytes(cost.own_peak_rss_bytes),
            cost.why.clone(),
        ]);
    }
    grid
}

fn costs(calibration: &Calibration) -> Grid {
    let head = ["", "device", "median", "p95", "mean", "page out", "refaults", ""];
    let mut grid = Grid { remarks: true, ..Grid::new("cost of one refault", &head) };
    let disk = std::iter::once(("disk", &calibration.disk));
    let swap = calibration.swap.iter().flatten().map(|refault| ("swap", refault));
    for (medium, refault) in disk.chain(swap).chain(calibration.zram.iter().map(|refault| ("zram", refault))) {
        let times = [refault.median_s, refault.p95_s, refault.mean_s, refault.out_s].map(latency);
        let device = [medium.to_owned(), refault.device.clone()];
        grid.row(device.into_iter().chain(times).chain([refault.samples.to_string(), refault.note.clone()]));
    }
    if calibration.swap.is_none() {
        grid.row(["swap", "-", "", "", "", "", "", "no swap device"].map(str::to_owned));
    }
    grid
}

/// Seconds with three digits, in microseconds or milliseconds.
fn latency(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else { return "-".to_owned() };
    let (value, unit) = match seconds * 1e6 {
        us if us < 999.5 => (us, "us"),
        us => (us / 1e3, "ms"),
    };
    let digits = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use lowtide_model::meta::Refusal;

    use super::*;

    fn diagnosis() -> Diagnosis {
        let row = |name, state, enable: &str| Row {
            purpose: caps::purpose(name),
            capability: Capability {
                name,
                state,
                how: format!("saw {name}"),
                gives: "much",
                enable: enable.to_owned(),
            },
        };
        let disk = Refault {
            medium: Medium::Disk,
            device: "/dev/vda (ext4)".to_owned(),
            median_s: Some(72.1e-6),
            p95_s: Some(0.0083),
            mean_s: Some(0.0001),
            out_s: None,
            samples: 4000,
            note: "not read ahead".to_owned(),
        };
        Diagnosis {
            schema: 1,
            kernel: "6.18.44".to_owned(),
            monitor: source::Expected {
                name: "smaps",
                backend: "smaps",
                refused: vec![Refusal { backend: "damon".to_owned(), why: "no damon-paddr".to_owned() }],
            },
            capabilities: vec![
                row("psi", State::Blocked, "boot with psi=1"),
                row("damon-paddr", State::No, "a kernel with CONFIG_DAMON_PADDR=y"),
                row("swap", State::Yes, ""),
            ],
            calibration: Some(Calibration { monitors: Vec::new(), disk, swap: None, zram: None }),
        }
    }

    #[test]
    fn the_monitor_comes_first_and_fixes_below_what_is_missing() {
        for width in [80, 200] {
            let text = text(&diagnosis(), true, Terminal { width, ansi: false });
            let short = super::text(&diagnosis(), false, Terminal { width, ansi: false });
            assert!(text.starts_with(short.split("\nkernel").next().unwrap()) && !short.contains("psi"), "{short}");
            assert!(
                text.starts_with("monitor  smaps, as these are not available: damon\nreports  ")
                    && text.contains("\nto do    damon-paddr: missing; a kernel with"),
                "{text}"
            );
            let places: Vec<usize> =
                ["\nmeasure\n", "fix: a kernel with CONFIG_DAMON_PADDR=y", "\nreclaim\n", "\nprotect\n"]
                    .iter()
                    .map(|part| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}")))
                    .collect();
            assert!(places.is_sorted(), "{text}");
            assert!(text.contains("blocked") && text.contains("fix: boot with psi=1"), "{text}");
            assert!(text.contains("no swap device") && text.contains("72.1 us") && text.contains("8.30 ms"), "{text}");
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(width), "{longest:?} of {width}: {text}");
        }
    }

    #[test]
    fn json_keeps_the_contract() {
        let value = serde_json::to_value(diagnosis()).unwrap();
        assert_eq!(value["schema"], 1);
        assert_eq!(value["capabilities"][0]["state"], "blocked");
        assert_eq!(value["capabilities"][0]["purpose"], "protect");
        assert_eq!(value["calibration"]["swap"], serde_json::Value::Null);
        assert_eq!(value["calibration"]["disk"]["medium"], "disk");
        let without = serde_json::to_value(Diagnosis { calibration: None, ..diagnosis() }).unwrap();
        assert!(without.as_object().unwrap().contains_key("calibration"));
    }

    #[test]
    fn a_cause_is_said_once() {
        let cause = std::io::Error::other("no such thing");
        let kernel = lowtide_kernel::root::Error::new("read", "/x", cause);
        let error = anyhow::Error::from(kernel).context("the journal cannot be kept");
        assert_eq!(reason(&error), "the journal cannot be kept: cannot read /x: no such thing");
    }

    #[test]
    fn short_times() {
        let table = [(2.877e-6, "2.88 us"), (99.96e-6, "100 us"), (999.6e-6, "1.00 ms"), (0.0123, "12.3 ms")];
        for (seconds, said) in table {
            assert_eq!(latency(Some(seconds)), said);
        }
        assert_eq!(latency(None), "-");
    }
}
