//! Sources: where it is sampled which memory is used. One file each, and one ranked registry.
//!
//! Problem: four kernel interfaces report accesses; they differ in precision, in price, and in where they serve. Approach:
//! each is a [`Source`] that yields a [`Frame`] when it is due. [`SOURCES`] ranks them, and all code that chooses or names a source
//! uses it: `doctor` by what the kernel offers, `run`, `record` and the agent by opening them.

mod damon;
mod damon_stat;
mod idle;
mod mglru;
mod smaps;

use std::fmt;

use lowtide_kernel::damon::{Operations, SchemeStats};
use lowtide_kernel::error::ErrorKind;
use lowtide_kernel::monitor::Target;
use lowtide_kernel::monitor::smaps::ReferencedScan;
use lowtide_kernel::root::{Error, Kernel, Result};
use lowtide_kernel::undo::Journal;
use lowtide_model::capability::{Capability, State};
use lowtide_model::cohort::Picture;
use lowtide_model::episode::Episode;
use lowtide_model::generations::CgroupUse;
use lowtide_model::meta::Refusal;
use lowtide_model::scheme::Scheme;
use lowtide_record::RegionRow;
use serde::Serialize;

use crate::failure::{Failure, code, of_kernel};
use crate::price::Price;

/// What a source read at one time. A source fills what it knows.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    /// Working sets and idle ages, and when they were sampled, seconds.
    pub picture: Option<(f64, Picture)>,
    /// The use of single cgroups, where they were all read.
    pub cgroups: Option<Vec<CgroupUse>>,
    /// Regions of the map.
    pub regions: Vec<RegionRow>,
    /// Stretches of use of sampled pages.
    pub episodes: Vec<Episode>,
    /// Mappings with the bytes of each that were used.
    pub mappings: Option<ReferencedScan>,
    /// What schemes that the kernel carries out have done so far.
    pub tallies: Vec<SchemeStats>,
    /// Bytes that the sampled pages stand for.
    pub watched_bytes: Option<f64>,
    /// How many regions the map has.
    pub region_count: Option<f64>,
}

/// Samples a target's accesses.
pub trait Source: fmt::Debug {
    /// Its name in the record.
    fn backend(&self) -> &'static str;

    /// When there is something to read next, seconds; not after every tick's reading, `f64::INFINITY` never.
    fn next_due_s(&self) -> f64;

    /// The time near `tick_s` at which a tick finds the freshest samples.
    fn fresh_near_s(&self, tick_s: f64) -> f64 {
        tick_s
    }

    /// Reads what is due, as far as the price allows. Fails if it can serve no longer.
    fn read(&mut self, now_s: f64, target: &Target, price: &mut Price) -> Result<Frame>;

    /// What is known of stretches of use that go on: for rows that are about to be written.
    fn cut(&mut self) -> Frame {
        Frame::default()
    }

    /// Ends sampling: what was not read yet.
    fn finish(&mut self, _price: &mut Price) -> Frame {
        Frame::default()
    }

    /// Has the kernel carry out schemes on what it samples. False if it cannot.
    fn carry_out(&mut self, schemes: Vec<Scheme>) -> bool {
        schemes.is_empty()
    }

    /// Has mappings read that were idle for so many seconds. False if it knows no addresses.
    fn read_mappings_after(&mut self, _idle_s: f64) -> bool {
        false
    }

    /// CPU seconds that the kernel spent on schemes.
    fn schemes_cpu_s(&self) -> f64 {
        0.0
    }

    /// Seconds between two samples and over which they are aggregated; 0 where it has no such intervals.
    fn intervals_s(&self) -> (f64, f64) {
        (0.0, 0.0)
    }

    /// What a reader of the record must know of how it was made.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// `--map`: which addresses DAMON's map works on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Map {
    /// Virtual addresses where the kernel has them.
    #[default]
    Auto,
    /// Virtual addresses.
    Vaddr,
    /// Page frames, mapped back.
    Paddr,
}

/// What a source is opened for.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Where its leases are written down.
    pub journal: &'a Journal,
    /// What it samples.
    pub target: &'a Target,
    /// Start of the engine on the kernel's clock, nanoseconds.
    pub epoch_ns: u64,
    /// Its settings.
    pub settings: &'a SourceSettings,
    /// Sizes and intervals to begin with.
    pub price: &'a Price,
}

/// What may be chosen of a source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SourceSettings {
    /// Which one.
    pub choice: SourceChoice,
    /// Addresses that the map works on.
    pub map: Map,
    /// The same, where schemes that the kernel carries out demand it.
    pub map_for_schemes: Option<Operations>,
    /// Share of the possible accesses that the kernel shall tune the map's intervals for.
    pub map_goal: Option<f64>,
    /// Windows that generations are made for, seconds; all if there are none.
    pub windows_s: Vec<u32>,
    /// The target was running before.
    pub attached: bool,
    /// Addresses are needed, for advice to the kernel.
    pub needs_addresses: bool,
}

/// A source of the registry.
pub struct SourceEntry {
    /// Its name on the command line.
    pub name: &'static str,
    /// Whether `auto` may choose it; else it is used by its name only.
    pub is_automatic: bool,
    /// Capabilities that it cannot do without, as `doctor` names them.
    pub needs: &'static [&'static str],
    /// Whether it knows addresses.
    pub has_addresses: bool,
    /// What it reports, for people.
    pub reports: &'static str,
    /// What it cannot report, for people.
    pub omits: &'static str,
    /// The backend that the record will name, where the needs are met; and what would have been better.
    pub backend: fn(&[Capability]) -> (&'static str, Option<Refusal>),
    /// Opens it.
    pub open: fn(&Opening<'_>) -> Result<Box<dyn Source>>,
    /// Whether it could be opened, before there is a target.
    pub check: fn(&Kernel) -> Result<()>,
    /// Why it cannot be had, for people.
    pub why_not: fn(&Kernel, &Error) -> String,
}

/// All sources, the best first. A new one is a file and a line here.
pub const SOURCES: &[SourceEntry] = &[damon::ENTRY, idle::ENTRY, mglru::ENTRY, smaps::ENTRY, damon_stat::ENTRY];

/// The one of this name.
pub fn entry(name: &str) -> Option<&'static SourceEntry> {
    SOURCES.iter().find(|entry| entry.name == name)
}

/// Those that `auto` chooses among, the best first.
pub fn automatic() -> impl Iterator<Item = &'static SourceEntry> {
    SOURCES.iter().filter(|entry| entry.is_automatic)
}

/// Which source to use: `--monitor`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SourceChoice {
    /// The best that serves.
    #[default]
    Auto,
    /// One by its name.
    Named(&'static str),
    /// None: accounts only.
    None,
}

impl SourceChoice {
    /// All that may be chosen, in words.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["auto"].into_iter().chain(SOURCES.iter().map(|entry| entry.name)).chain(["none"])
    }

    /// Whether any source that may be used knows addresses.
    pub fn has_addresses(self) -> bool {
        SOURCES.iter().any(|entry| entry.has_addresses && self.admits(entry.name))
    }

    /// Whether this source may be used.
    pub fn admits(self, name: &str) -> bool {
        match self {
            Self::Auto => automatic().any(|entry| entry.name == name),
            Self::Named(chosen) => chosen == name,
            Self::None => false,
        }
    }
}

impl std::str::FromStr for SourceChoice {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            _ => entry(text).map(|entry| Self::Named(entry.name)).ok_or_else(|| format!("there is no source '{text}'")),
        }
    }
}

/// Why a source that was asked for by name cannot serve, with its exit code.
fn refusal(entry: &SourceEntry, kernel: &Kernel, error: &Error) -> Failure {
    let code = match error.kind() {
        kind @ (ErrorKind::Busy | ErrorKind::Permission) => of_kernel(kind),
        // Whatever else stands in the way, this machine cannot.
        _ => code::IMPOSSIBLE,
    };
    let why = (entry.why_not)(kernel, error);
    Failure::new(code, format!("--monitor {}: {why}; use --monitor auto for the next best", entry.name))
}

/// Why a source of this name cannot serve, for people.
pub(crate) fn why_not(name: &str, kernel: &Kernel, error: &Error) -> String {
    entry(name).map_or_else(|| error.to_string(), |entry| (entry.why_not)(kernel, error))
}

/// A source that was asked for by name must be able to serve before anything is started. Fails with what is missing.
pub fn check(choice: SourceChoice, kernel: &Kernel) -> std::result::Result<(), Failure> {
    let SourceChoice::Named(name) = choice else { return Ok(()) };
    let named = SOURCES.iter().filter(|entry| entry.name == name);
    named.into_iter().try_for_each(|entry| (entry.check)(kernel).map_err(|error| refusal(entry, kernel, &error)))
}

/// The source that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The source; `None` where only accounts can be read, or were asked for.
    pub source: Option<Box<dyn Source>>,
    /// Better ones, and why not.
    pub refused: Vec<Refusal>,
}

/// Opens the best source that serves. Fails if one was asked for by name and cannot serve.
pub fn open(opening: &Opening<'_>) -> std::result::Result<Opened, Failure> {
    let settings = opening.settings;
    let mut refused = Vec::new();
    let mut refuse = |name: &str, why: String| refused.push(Refusal { backend: name.to_owned(), why });
    for entry in SOURCES.iter().filter(|entry| settings.choice.admits(entry.name)) {
        let by_name = settings.choice != SourceChoice::Auto;
        if settings.needs_addresses && !entry.has_addresses && !by_name {
            refuse(entry.name, format!("schemes need addresses, and {} reports none", entry.name));
            continue;
        }
        match (entry.open)(opening) {
            Ok(source) => return Ok(Opened { source: Some(source), refused }),
            Err(error) if by_name => return Err(refusal(entry, opening.kernel, &error)),
            Err(error) => refuse(entry.name, (entry.why_not)(opening.kernel, &error)),
        }
    }
    Ok(Opened { source: None, refused })
}

/// The source that [`open`] would open on a kernel that was probed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Expected {
    /// Its name on the command line.
    pub name: &'static str,
    /// `damon-vaddr`, `damon-paddr`, `idle-bitmap`, `mglru`, `smaps` or `none`: the backend that the record of a run will name.
    pub backend: &'static str,
    /// What was better but cannot serve, and why.
    pub refused: Vec<Refusal>,
}

/// The source for a kernel that was probed.
pub fn expected(capabilities: &[Capability]) -> Expected {
    let mut refused = Vec::new();
    for entry in automatic() {
        let missing: Vec<String> = entry.needs.iter().filter_map(|name| missing(capabilities, name)).collect();
        if missing.is_empty() {
            let (backend, better) = (entry.backend)(capabilities);
            refused.extend(better);
            return Expected { name: entry.name, backend, refused };
        }
        refused.push(Refusal { backend: entry.name.to_owned(), why: missing.join("; ") });
    }
    Expected { name: "none", backend: "none", refused }
}

/// What stands in the way of a capability; `None` if it is there.
fn missing(capabilities: &[Capability], name: &str) -> Option<String> {
    match capabilities.iter().find(|capability| capability.name == name) {
        Some(Capability { state: State::Yes, .. }) => None,
        Some(Capability { state: State::Blocked, how, .. }) => Some(format!("{name} is blocked: {how}")),
        Some(Capability { state: State::No, how, .. }) => Some(format!("no {name}: {how}")),
        None => Some(format!("{name} was not probed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel with all that the sources need, but for some.
    fn without(names: &[&'static str]) -> Vec<Capability> {
        let all = SOURCES.iter().flat_map(|entry| entry.needs.iter().copied()).chain(["damon-vaddr"]);
        all.map(|name| {
            let state = if names.contains(&name) { State::Blocked } else { State::Yes };
            Capability { name, state, how: "held".to_owned(), gives: "", enable: String::new() }
        })
        .collect()
    }

    #[test]
    fn the_best_that_can_serve() {
        let table: [(&[&str], &str, &[&str]); 7] = [
            (&[], "damon-vaddr", &[]),
            (&["damon-vaddr"], "damon-paddr", &["damon-vaddr"]),
            (&["damon-paddr"], "idle-bitmap", &["damon"]),
            (&["damon-paddr", "idle-page-bitmap"], "mglru", &["damon", "idle"]),
            (&["kpageflags", "pagemap-frames"], "mglru", &["damon", "idle"]),
            (&["kpageflags", "cgroup-child"], "smaps", &["damon", "idle", "mglru"]),
            (&["kpageflags", "mglru", "referenced"], "none", &["damon", "idle", "mglru", "smaps"]),
        ];
        for (missing, backend, refused) in table {
            let expected = expected(&without(missing));
            assert_eq!(expected.backend, backend, "without {missing:?}");
            assert_eq!(expected.refused.iter().map(|refusal| refusal.backend.as_str()).collect::<Vec<_>>(), refused);
        }
    }

    #[test]
    fn every_need_is_a_capability_that_is_probed() {
        for name in SOURCES.iter().flat_map(|entry| entry.needs) {
            assert!(lowtide_kernel::caps::purpose(name).is_some(), "{name}");
        }
    }

    #[test]
    fn every_source_can_be_chosen_by_name_and_nothing_else() {
        for name in SourceChoice::names() {
            let choice: SourceChoice = name.parse().unwrap();
            let admitted: Vec<&str> =
                SOURCES.iter().map(|entry| entry.name).filter(|name| choice.admits(name)).collect();
            match name {
                "auto" => assert_eq!(admitted, ["damon", "idle", "mglru", "smaps"]),
                "none" => assert!(admitted.is_empty()),
                _ => assert_eq!(admitted, [name]),
            }
        }
        assert!("damno".parse::<SourceChoice>().is_err());
    }

    /// On a kernel without anything, every source says why not, and a named one fails with that.
    #[test]
    fn sources_that_cannot_be_had_say_why() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("run")).unwrap();
        let kernel = Kernel::at(dir.path()).dry_run();
        let journal = Journal::open(kernel.clone(), &dir.path().join("run")).unwrap();
        let (price, target) = (Price::new(0.01), Target { system: true, ..Target::default() });
        let mut settings = SourceSettings::default();
        let open_with = |settings: &SourceSettings| {
            open(&Opening { kernel: &kernel, journal: &journal, target: &target, epoch_ns: 0, settings, price: &price })
        };
        let opened = open_with(&settings).unwrap();
        assert!(opened.source.is_none());
        assert_eq!(
            opened.refused.iter().map(|of| of.backend.as_str()).collect::<Vec<_>>(),
            ["damon", "idle", "mglru", "smaps"]
        );
        assert!(opened.refused.iter().all(|refusal| !refusal.why.is_empty()));
        for entry in SOURCES {
            settings.choice = SourceChoice::Named(entry.name);
            let failure = open_with(&settings).unwrap_err();
            assert!(failure.message.starts_with(&format!("--monitor {}: ", entry.name)), "{}", failure.message);
        }
    }
}
