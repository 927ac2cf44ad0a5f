//! The agent's file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lowtide_kernel::cgroup::Selection;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::undo;
use lowtide_model::WINDOWS_S;
use lowtide_model::scheme::Scheme;
use lowtide_model::units::{Share, Span};
use lowtide_policy::machine::WorkloadPolicy;
use lowtide_policy::policies::{Policies, Spec};
use lowtide_policy::schemes::settings::Regions;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::metric::Measure;
use super::sampling::{self, SamplingConfig};
use super::serve::listen::{Listen, Serve};
use super::sinks::telemetry::TelemetrySettings;
use crate::failure::{self, Failure, code};
use crate::source::SourceChoice;
use crate::workloads::{By, NONE, Rules, WorkloadRule};

/// The agent's file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Time between two turns.
    pub every: Span,
    /// Idle ages that are sampled; policies choose among them. None = those that each source samples best.
    pub ages: Vec<Span>,
    /// What samples them: `auto`, or one source by its name.
    #[serde(deserialize_with = "monitor")]
    pub monitor: SourceChoice,
    /// Cgroups that are left alone, with all that is below them.
    pub exclude: Vec<String>,
    /// Nothing is taken while this file is there.
    pub stop_file: PathBuf,
    /// Where it keeps what it knows, for the agent that comes after it; empty = nowhere.
    pub state_file: PathBuf,
    /// Where the live page, its data and metrics are served.
    pub listen: Option<Listen>,
    /// What is asked of those who come there.
    pub serve: Serve,
    /// Policies, by name.
    pub policy: Policies,
    /// Workloads. The first that matches a cgroup counts.
    pub workload: Vec<WorkloadRule>,
    /// The policy for workloads in the background; none if not given.
    pub lifecycle: Option<LifeCycle>,
    /// What is done about huge pages that are mostly empty; nothing if not given.
    pub huge_pages: Option<HugePages>,
    /// Telemetry for the fleet; none if not given.
    pub telemetry: Option<TelemetrySettings>,
    /// Folder of a record of the guard, which an agent's file cannot name: it grows without bound.
    #[serde(skip)]
    pub out: Option<PathBuf>,
}

/// What is done about huge pages that are mostly empty.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HugePages {
    /// Those of which more than this share holds only zeros are split.
    pub most_empty: Share,
}

/// The policy for workloads in the background.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LifeCycle {
    /// Name of a policy of the file, or the one that is built in.
    pub policy: String,
    /// One that did nothing for so long counts as in the background; `None` = only those frozen, stopped or hinted at.
    pub idle_after: Option<Span>,
    /// The socket for hints.
    pub socket: PathBuf,
}

/// The socket for hints, by default.
pub const SOCKET: &str = "/run/lowtide/agent.sock";

impl Default for LifeCycle {
    fn default() -> Self {
        Self { policy: "lifecycle".to_owned(), idle_after: None, socket: SOCKET.into() }
    }
}

impl Default for Config {
    fn default() -> Self {
        let seconds = |seconds| Span(std::time::Duration::from_secs(seconds));
        Self {
            every: seconds(2),
            ages: Vec::new(),
            monitor: SourceChoice::Auto,
            exclude: Vec::new(),
            stop_file: "/run/lowtide/stop".into(),
            // Gone with the boot, as what is in it is of no use after that; and no disk is woken for it.
            state_file: undo::run_folder().join("agent.state"),
            listen: None,
            serve: Serve::default(),
            policy: Policies::new(),
            workload: Vec::new(),
            lifecycle: None,
            huge_pages: None,
            telemetry: None,
            out: None,
        }
    }
}

/// Sources that sample several cgroups at a time.
const MONITORS: [&str; 4] = ["auto", "damon", "mglru", "smaps"];

fn monitor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SourceChoice, D::Error> {
    let name = String::deserialize(deserializer)?;
    let known = MONITORS.contains(&name.as_str()).then(|| name.parse().ok()).flatten();
    known.ok_or_else(|| {
        D::Error::custom(format!("there is no monitor \"{name}\" here; there are {}", MONITORS.join(", ")))
    })
}

impl Config {
    /// Reads and checks a file. Fails with the place of the mistake, and what would be right.
    pub fn load(path: &Path, kernel: &Kernel) -> anyhow::Result<Self> {
        let wrong = |why: String| Failure::new(code::USAGE, format!("{}: {why}", path.display()));
        let unreadable = |error| failure::of_file(&path.display().to_string(), &error, "give another with --config");
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let config: Self = toml::from_str(&text).map_err(|error| failure::in_toml(path, &text, &error))?;
        config.check(kernel).map_err(wrong)?;
        Ok(config)
    }

    /// Whether all of it makes sense. Fails with what does not.
    pub fn check(&self, kernel: &Kernel) -> Result<(), String> {
        if !(0.1..=60.0).contains(&self.every.0.as_secs_f64()) {
            return Err(format!("every = {}: a time from 100ms to 1m", self.every));
        }
        let known =
            |age: &&Span| WINDOWS_S.iter().any(|window| f64::from(*window).total_cmp(&age.0.as_secs_f64()).is_eq());
        if let Some(age) = self.ages.iter().find(|age| !known(age)) {
            let windows = WINDOWS_S.map(|window| format!("{window}s")).join(", ");
            return Err(format!("ages: {age} is none of {windows}"));
        }
        if !(self.state_file.as_os_str().is_empty() || self.state_file.is_absolute()) {
            return Err(format!("state_file = {:?}: a path from / on; or \"\", to keep nothing", self.state_file));
        }
        if let Some(listen) = &self.listen {
            let is_same = |of: &LifeCycle| matches!(listen, Listen::Socket(path) if *path == of.socket);
            if self.lifecycle.as_ref().is_some_and(is_same) {
                return Err(format!("listen = \"{listen}\": hints are heard there; give another path"));
            }
            self.serve.check(listen)?;
        }
        if let Some(HugePages { most_empty }) = self.huge_pages.filter(|of| !(0.0..1.0).contains(&of.most_empty.0)) {
            return Err(format!("huge_pages: most_empty = {most_empty}: a share from 0% to less than 100%"));
        }
        if let Some(telemetry) = &self.telemetry {
            telemetry.check().map_err(|why| format!("telemetry: {why}"))?;
        }
        if self.workload.is_empty() && self.lifecycle.is_none() {
            return Err("there is no [[workload]]; give at least one, with cgroup = \"system.slice/*\"".to_owned());
        }
        for name in &self.exclude {
            Selection::new(kernel, name).map_err(|error| format!("exclude: \"{name}\": {error}"))?;
        }
        self.check_workloads(kernel)?;
        if let Some(lifecycle) = &self.lifecycle {
            let spec = self.policy(&lifecycle.policy).map_err(|why| format!("lifecycle: {why}"))?;
            if !matches!(spec, Spec::Lifecycle(_)) {
                return Err(format!("lifecycle: policy \"{}\" is of another kind", lifecycle.policy));
            }
            if lifecycle.idle_after.is_some_and(|time| time.0.as_secs() == 0) {
                return Err("lifecycle: idle_after is a second at least".to_owned());
            }
        }
        for (name, spec) in &self.policy {
            let right = match spec.settings().regions() {
                Some(regions) => regions.map_err(|error| error.to_string()).and_then(|regions| check_regions(&regions)),
                None => build(name, spec, 0).map(|_| ()),
            };
            right.map_err(|why| format!("policy {name}: {why}"))?;
        }
        Ok(())
    }

    fn check_workloads(&self, kernel: &Kernel) -> Result<(), String> {
        for (number, workload) in (1..).zip(&self.workload) {
            let place = |why: String| format!("workload {number}: {why}");
            Selection::new(kernel, &workload.cgroup).map_err(|error| place(error.to_string()))?;
            workload.metric.as_ref().map_or(Ok(()), Measure::check).map_err(place)?;
            if workload.policy == NONE {
                continue;
            }
            let spec = self.policy(&workload.policy).map_err(place)?;
            if workload.by == By::Process && !matches!(spec, Spec::Guard(_)) {
                return Err(place("by = \"process\" is for the guard; memory is reclaimed by cgroup".to_owned()));
            }
            let longest = self.ages.iter().map(|age| age.0).max().unwrap_or(sampling::LONGEST);
            if let Some(age) = spec.settings().ages().into_iter().find(|age| age.0 > longest) {
                let why =
                    format!("policy \"{}\" wants to know what is idle for {age}; add it to ages", workload.policy);
                return Err(place(why));
            }
            if let Spec::Lifecycle(_) = spec {
                let why = "a policy for what is in the background belongs into [lifecycle], as its policy";
                return Err(place(format!("policy \"{}\": {why}", workload.policy)));
            }
        }
        Ok(())
    }

    /// The policy of that name. Fails if there is none.
    pub fn policy(&self, name: &str) -> Result<Spec, String> {
        if let Some(spec) = self.policy.get(name) {
            return Ok(spec.clone());
        }
        Spec::built_in(name).ok_or_else(|| {
            let own = self.policy.keys().map(String::as_str);
            let names: Vec<&str> = own.chain(Spec::built_in_names()).collect();
            format!("there is no policy \"{name}\"; there are {}", names.join(", "))
        })
    }

    /// Schemes of those policies that have some, by name.
    pub fn schemes(&self) -> BTreeMap<String, Regions> {
        let named =
            self.policy.iter().filter_map(|(name, spec)| Some((name.clone(), spec.settings().regions()?.ok()?)));
        named.collect()
    }

    /// Policies of workloads that are guards.
    fn guard_names(&self) -> impl Iterator<Item = String> {
        let names = self.workload.iter().map(|workload| workload.policy.clone());
        names.filter(|name| self.policy(name).is_ok_and(|spec| matches!(spec, Spec::Guard(_))))
    }

    /// Which cgroups are workloads. Fails if a pattern makes no sense.
    pub fn rules(&self, kernel: &Kernel) -> lowtide_kernel::root::Result<Rules> {
        // Telemetry is of little use without idle ages.
        let unaged = self.telemetry.is_none().then(|| NONE.to_owned());
        let without_ages = self.guard_names().chain(unaged).collect();
        let every_s = self.every.0.as_secs_f64();
        Ok(Rules { without_ages, every_s, ..Rules::new(kernel, &self.workload, &self.exclude)? })
    }

    /// Whether a workload has a policy.
    pub fn reclaims(&self) -> bool {
        self.workload.iter().any(|workload| workload.policy != NONE)
    }

    /// What is to be sampled.
    pub fn sampling(&self) -> SamplingConfig {
        SamplingConfig {
            monitor: self.monitor,
            schemes: self.schemes(),
            windows_s: self.windows_s(),
            longest_s: self.longest_s(),
            every_s: self.every.0.as_secs_f64(),
        }
    }

    /// The longest age that a policy asks for by name, seconds; all that are sampled where telemetry reports them.
    fn longest_s(&self) -> u32 {
        let policies = self.workload.iter().filter_map(|workload| self.policy(&workload.policy).ok());
        let ages = policies.flat_map(|spec| spec.settings().ages());
        let telemetry = self.telemetry.is_some().then_some(sampling::LONGEST);
        let longest = ages.map(|age| age.0).chain(telemetry).max().unwrap_or_default();
        u32::try_from(longest.as_secs()).unwrap_or(u32::MAX)
    }

    /// The configured idle ages in seconds; none if it is left to the sources.
    pub fn windows_s(&self) -> Vec<u32> {
        let ages = |window: &u32| self.ages.iter().any(|age| age.0.as_secs() == u64::from(*window));
        WINDOWS_S.into_iter().filter(ages).collect()
    }
}

/// What schemes may do here: what a process can be advised on by another.
fn check_regions(regions: &Regions) -> Result<(), String> {
    use lowtide_model::scheme::Action::{Cold, Collapse, Pageout, Stat, Willneed};
    let known = |scheme: &&Scheme| !matches!(scheme.action, Cold | Collapse | Pageout | Stat | Willneed);
    regions.schemes.iter().find(known).map_or(Ok(()), |scheme| {
        let why = "the agent can collapse, pageout, cold, willneed and stat";
        Err(format!(
            "`{}`: {} can only be advised by a process on its own memory; {why}",
            scheme.title(),
            scheme.action.name()
        ))
    })
}

/// The policy itself. Fails with what makes no sense in its settings, or that the agent cannot carry it out.
pub fn build(name: &str, spec: &Spec, seed: u64) -> Result<Box<WorkloadPolicy>, String> {
    let policy = spec.build(seed).map_err(|error| error.to_string())?;
    policy
        .into_workloads()
        .ok_or_else(|| format!("{name}: schemes are carried out for each workload, not for all together"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Config, String> {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            std::fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(path), text).unwrap();
        };
        put("proc/self/mountinfo", "30 29 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        put("cg/cgroup.controllers", "memory\n");
        put("agent.toml", text);
        let loaded = Config::load(&dir.path().join("agent.toml"), &Kernel::at(dir.path()));
        loaded.map_err(|error| error.to_string().rsplit_once("agent.toml:").unwrap().1.to_owned())
    }

    #[test]
    fn a_file_is_read() {
        let text = "every = '2s'\nages = ['1s', '30s']\n[policy.mild.auto]\nslowdown = '0.1%'\n\
                    [[workload]]\ncgroup = 'a/*'\npolicy = 'mild'\n[[workload]]\ncgroup = '**'\n";
        let config = load(text).unwrap();
        assert_eq!(config.windows_s(), [1, 30]);
        assert_eq!(config.workload[1].policy, "auto");
        assert!(config.policy("mild").unwrap() != config.policy("auto").unwrap());
    }

    #[test]
    fn mistakes_are_named() {
        let workload = "[[workload]]\ncgroup = 'a'\n";
        for (text, why) in [
            ("every = '5s'\nevry = '1s'\n", "2:1: unknown field `evry`"),
            ("", "there is no [[workload]]"),
            ("[[workload]]\ncgroup = 'a'\npolicy = 'x'\n", "workload 1: there is no policy \"x\"; there are age, auto"),
            ("[[workload]]\ncgroup = 'a['\n", "workload 1: "),
            (&format!("exclude = ['[']\n{workload}"), "exclude: \"[\""),
            (&format!("every = '0s'\n{workload}"), "every = 0us: a time"),
            (&format!("ages = ['7s']\n{workload}"), "ages: 7s is none of 1s, 5s, 10s"),
            (&format!("state_file = 'here'\n{workload}"), "state_file = \"here\": a path from / on"),
            (
                &format!("listen = '0.0.0.0:80'\n{workload}"),
                "listen = \"0.0.0.0:80\": others can come there; give token_file",
            ),
            (&format!("listen = 'here'\n{workload}"), "1:10: listen = \"here\": neither an address"),
            ("listen = 'unix:/x'\n[lifecycle]\nsocket = '/x'", "listen = \"unix:/x\": hints are heard there"),
            (&format!("[serve]\ntoken = 'x'\n{workload}"), "2:1: unknown field `token`"),
            (&format!("[policy.p.schemes]\nuse = ['ethp']\n{workload}"), "policy p: `ethp`: hugepage can only"),
            (&format!("[policy.p.age]\nevery = '1s'\n{workload}"), "policy p: neither anon nor file"),
            ("[policy.p.age]\nanon = '1m'\n[[workload]]\ncgroup = 'a'\npolicy = 'p'", "workload 1: policy \"p\" wants"),
            (&format!("{workload}metric = {{ command = [] }}"), "workload 1: metric: command is empty"),
            (&format!("{workload}by = 'process'"), "workload 1: by = \"process\" is for the guard"),
            ("[lifecycle]\nidle_after = '0s'", "lifecycle: idle_after"),
            (&format!("{workload}[huge_pages]\nmost_empty = '100%'"), "huge_pages: most_empty = 100%: a share"),
            ("[lifecycle]\npolicy = 'auto'", "lifecycle: policy \"auto\" is of another kind"),
        ] {
            let error = load(text).unwrap_err();
            assert!(error.trim_start().starts_with(why), "{text:?}: {error}");
        }
    }
}
