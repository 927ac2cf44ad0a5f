//! Operation schemes given to DAMON, and what it did by them.

use std::time::Duration;

use lowtide_model::scheme::{Bounds, Filter, FilterType, Goal, Scheme};
use lowtide_model::units::integer;

use super::{ADMIN, Damon, KdamondSetup};
use crate::root::Result;

/// What the kernel did by one scheme since its kdamond was switched on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SchemeStats {
    /// Regions tried.
    pub tried: u64,
    /// Their bytes.
    pub tried_bytes: u64,
    /// Regions that something was done to.
    pub applied: u64,
    /// Bytes that something was done to.
    pub applied_bytes: u64,
    /// How often a quota kept it from going on.
    pub quota_exceeded: u64,
}

/// A kdamond with schemes that match nothing until their quotas are in force, each by itself: one whose watermarks keep it inactive
/// has none in force.
#[derive(Debug)]
pub(super) struct Starting {
    /// What it is given once more then.
    pub(super) setup: KdamondSetup,
    /// Their places among its schemes.
    waiting: Vec<usize>,
}

impl Starting {
    /// Of a kdamond that is to be switched on; `None` where no scheme has a quota.
    pub(super) fn of(setup: &KdamondSetup) -> Option<Self> {
        let waiting: Vec<usize> = (0..setup.schemes.len()).filter(|at| setup.schemes[*at].quota.is_limit()).collect();
        (!waiting.is_empty()).then(|| Self { setup: setup.clone(), waiting })
    }
}

/// Counts of a kdamond, from its intervals: DAMON counts accesses and ages in samples and aggregations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    sampling: Duration,
    aggregation: Duration,
}

impl Counts {
    pub(super) fn new(sampling: Duration, aggregation: Duration) -> Self {
        Self { sampling, aggregation }
    }

    /// Samples in an aggregation: the most accesses a region can have.
    fn samples(&self) -> f64 {
        (self.aggregation.as_secs_f64() / self.sampling.as_secs_f64()).floor().max(1.0)
    }
}

/// No bound, in DAMON's files: 0 would match nothing.
const NO_BOUND: u64 = u64::MAX;

/// Bounds in integer units: what lies in them lies in the bounds as meant.
fn integer_bounds<T: Copy>(bounds: &Bounds<T>, units: impl Fn(T) -> f64) -> (u64, u64) {
    // Shares like 5 % of 20 are a rounding error above or below the integer that is meant.
    let rounding = 1e-6;
    let min = bounds.min.map_or(0, |min| integer((units(min) - rounding).ceil()));
    let max = bounds.max.map_or(NO_BOUND, |max| integer((units(max) + rounding).floor()));
    (min, max)
}

/// The files of one scheme with their contents, in the order of writing. `has`: whether a file is there.
fn files(scheme: &Scheme, counts: &Counts, has: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = vec![("action".to_owned(), scheme.action.name().to_owned())];
    let mut put = |file: &str, value: String| files.push((file.to_owned(), value));
    let (aggregation, samples) = (counts.aggregation.as_secs_f64(), counts.samples());
    let size = (scheme.size.min.map_or(0, |size| size.0), scheme.size.max.map_or(NO_BOUND, |size| size.0));
    let access = integer_bounds(&scheme.access, |share| share.0 * samples);
    let age = integer_bounds(&scheme.age, |age| age.0.as_secs_f64() / aggregation);
    for (name, (min, max)) in [("sz", size), ("nr_accesses", access), ("age", age)] {
        put(&format!("access_pattern/{name}/min"), min.to_string());
        put(&format!("access_pattern/{name}/max"), max.to_string());
    }
    // Older kernels have none of these; schemes that need them were refused before.
    for (file, value) in [
        ("apply_interval_us", scheme.apply_interval.map_or(0, |interval| interval.0.as_micros()).to_string()),
        ("target_nid", scheme.target_node.map_or_else(|| "-1".to_owned(), |node| node.to_string())),
    ] {
        if has(file) {
            put(file, value);
        }
    }
    let quota = &scheme.quota;
    // Less than a millisecond would be 0, which the kernel takes for no limit.
    put("quotas/ms", quota.time.map_or(0, |time| time.0.as_millis().max(1)).to_string());
    put("quotas/bytes", quota.size.map_or(0, |size| size.0).to_string());
    put("quotas/reset_interval_ms", quota.every.0.as_millis().max(1).to_string());
    let weights = [("sz", quota.weights.size), ("nr_accesses", quota.weights.access), ("age", quota.weights.age)];
    let sum: u64 = weights.iter().map(|(_, weight)| u64::from(*weight)).sum();
    for (name, weight) in weights {
        put(&format!("quotas/weights/{name}_permil"), (u64::from(weight) * 1000 / sum.max(1)).to_string());
    }
    let marks = scheme.watermarks;
    put("watermarks/metric", if marks.is_some() { "free_mem_rate" } else { "none" }.to_owned());
    let permil = |share: f64| format!("{:.0}", share * 1000.0);
    if let Some(marks) = marks {
        put("watermarks/interval_us", marks.every.0.as_micros().to_string());
        for (name, share) in [("high", marks.high), ("mid", marks.mid), ("low", marks.low)] {
            put(&format!("watermarks/{name}"), permil(share.0));
        }
    }
    files
}

fn goal_files(goal: &Goal) -> Vec<(&'static str, String)> {
    let mut files = vec![("target_metric", goal.metric.name().to_owned()), ("target_value", goal.target.to_string())];
    files.extend(goal.current.map(|current| ("current_value", current.to_string())));
    files.extend(goal.node.map(|node| ("nid", node.to_string())));
    files.extend(goal.cgroup.clone().map(|cgroup| ("path", cgroup)));
    files
}

fn filter_files(filter: &Filter, can_allow: bool) -> Vec<(&'static str, String)> {
    let flag = |flag: bool| if flag { "Y" } else { "N" }.to_owned();
    let mut files = vec![("type", filter.of.name().to_owned()), ("matching", flag(filter.matching))];
    if can_allow {
        files.push(("allow", flag(filter.allow)));
    }
    match &filter.of {
        FilterType::Memcg(cgroup) => files.push(("memcg_path", cgroup.clone())),
        FilterType::HugepageSize(min, max) => files.extend([("min", min.0.to_string()), ("max", max.0.to_string())]),
        FilterType::Addr(start, end) => {
            files.extend([("addr_start", start.to_string()), ("addr_end", end.to_string())])
        }
        FilterType::Target(index) => files.push(("damon_target_idx", index.to_string())),
        FilterType::Anon | FilterType::Active | FilterType::Young | FilterType::Unmapped => {}
    }
    files
}

impl Damon {
    /// Gives a kdamond these schemes; they take effect when it is switched on, or with the next commit.
    pub(super) fn write_schemes(&self, kdamond: usize, schemes: &[Scheme], counts: &Counts) -> Result<()> {
        let folder = format!("{kdamond}/contexts/0/schemes");
        // Making them again would reset what the kernel has counted.
        let there = self.read_number(&format!("{folder}/nr_schemes"))?;
        if usize::try_from(there) != Ok(schemes.len()) {
            self.write(&format!("{folder}/nr_schemes"), &schemes.len().to_string())?;
        }
        for (index, scheme) in schemes.iter().enumerate() {
            let folder = format!("{folder}/{index}");
            let has = |file: &str| self.has(&format!("{folder}/{file}"));
            for (file, value) in files(scheme, counts, has) {
                self.write(&format!("{folder}/{file}"), &value)?;
            }
            if self.starting.get(&kdamond).is_some_and(|starting| starting.waiting.contains(&index)) {
                // No region is so large.
                self.write(&format!("{folder}/access_pattern/sz/min"), &u64::MAX.to_string())?;
            }
            let goals = format!("{folder}/quotas/goals");
            self.write_list(&goals, "nr_goals", &scheme.quota.goals, |folder, goal| {
                let mut files = goal_files(goal);
                // The first kernels with goals have one metric, and no file for it.
                files.retain(|(file, _)| *file != "target_metric" || self.has(&format!("{folder}/0/{file}")));
                files
            })?;
            let can_allow = |folder: &str| self.has(&format!("{folder}/0/allow"));
            let write = |filters: &[&Filter], name: &str| {
                let folder = format!("{folder}/{name}");
                self.write_list(&folder, "nr_filters", filters, |folder, filter| {
                    filter_files(filter, can_allow(folder))
                })
            };
            if has("core_filters") {
                let (core, ops): (Vec<&Filter>, Vec<&Filter>) =
                    scheme.filters.iter().partition(|filter| filter.of.is_core());
                write(&core, "core_filters")?;
                write(&ops, "ops_filters")?;
            } else if has("filters") {
                write(&scheme.filters.iter().collect::<Vec<_>>(), "filters")?;
            }
            if has("dests") {
                self.write_list(&format!("{folder}/dests"), "nr_dests", &scheme.destinations, |_, to| {
                    vec![("id", to.node.to_string()), ("weight", to.weight.to_string())]
                })?;
            }
        }
        Ok(())
    }

    /// A folder of numbered folders, one per item.
    fn write_list<T>(
        &self,
        folder: &str,
        count: &str,
        items: &[T],
        files: impl Fn(&str, &T) -> Vec<(&'static str, String)>,
    ) -> Result<()> {
        // Kernels without the folder have no such thing; schemes that need it were refused before.
        if !self.has(folder) {
            return Ok(());
        }
        self.write(&format!("{folder}/{count}"), &items.len().to_string())?;
        for (index, item) in items.iter().enumerate() {
            for (file, value) in files(folder, item) {
                self.write(&format!("{folder}/{index}/{file}"), &value)?;
            }
        }
        Ok(())
    }

    /// Lets schemes act whose quotas are in force by now.
    fn release(&mut self, kdamond: usize) -> Result<()> {
        let Some(Starting { setup, waiting }) = self.starting.remove(&kdamond) else { return Ok(()) };
        let result = self.waiting_still(kdamond, &waiting).and_then(|still| {
            let released = still.len() < waiting.len();
            if !still.is_empty() {
                self.starting.insert(kdamond, Starting { setup: setup.clone(), waiting: still });
            }
            if released { self.commit(kdamond, &setup) } else { Ok(()) }
        });
        result.inspect_err(|_| drop(self.starting.insert(kdamond, Starting { setup, waiting })))
    }

    /// Those of these schemes whose quotas are not in force.
    fn waiting_still(&self, kdamond: usize, waiting: &[usize]) -> Result<Vec<usize>> {
        self.write(&format!("{kdamond}/state"), "update_schemes_effective_quotas")?;
        let mut still = Vec::new();
        for &index in waiting {
            if self.read_number(&format!("{kdamond}/contexts/0/schemes/{index}/quotas/effective_bytes"))? == 0 {
                still.push(index);
            }
        }
        Ok(still)
    }

    /// What the kernel did by each of so many schemes. It answers when the current sampling interval is over.
    pub fn scheme_stats(&mut self, kdamond: usize, schemes: usize) -> Result<Vec<SchemeStats>> {
        self.release(kdamond)?;
        self.write(&format!("{kdamond}/state"), "update_schemes_stats")?;
        let tally = |scheme: usize| {
            let read = |file: &str| self.read_number(&format!("{kdamond}/contexts/0/schemes/{scheme}/stats/{file}"));
            Ok(SchemeStats {
                tried: read("nr_tried")?,
                tried_bytes: read("sz_tried")?,
                applied: read("nr_applied")?,
                applied_bytes: read("sz_applied")?,
                quota_exceeded: read("qt_exceeds")?,
            })
        };
        (0..schemes).map(tally).collect()
    }

    fn has(&self, file: &str) -> bool {
        self.kernel.exists(format!("{ADMIN}/{file}"))
    }

    fn read_number(&self, file: &str) -> Result<u64> {
        super::patiently(|| self.kernel.read_number(format!("{ADMIN}/{file}")))
    }
}

/// What this kernel's DAMON knows of schemes, by trying.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// Words it takes, as `action pageout`, `filter young`, `goal user_input`, and files it has, as `apply_interval`.
    pub known: Vec<String>,
}

impl Features {
    /// Whether it knows this: see [`lowtide_model::scheme::words::Requirement`].
    pub fn knows(&self, what: &str) -> bool {
        self.known.iter().any(|known| known == what)
    }
}

impl Damon {
    /// Finds out what this kernel knows, on a kdamond of ours that is off.
    pub fn features(&self, kdamond: usize) -> Result<Features> {
        use lowtide_model::scheme::{Action, GoalMetric};
        let mut known = Vec::new();
        let context = format!("{kdamond}/contexts/0");
        self.write(&format!("{kdamond}/contexts/nr_contexts"), "1")?;
        self.write(&format!("{context}/schemes/nr_schemes"), "1")?;
        let scheme = format!("{context}/schemes/0");
        let mut note = |takes: bool, what: String| known.extend(takes.then_some(what));
        for action in Action::ALL {
            let takes = self.takes(&format!("{scheme}/action"), action.name())?;
            note(takes, format!("action {}", action.name()));
        }
        for (file, what) in [
            ("quotas/effective_bytes", "quota"),
            ("watermarks/metric", "watermarks"),
            ("apply_interval_us", "apply_interval"),
            ("target_nid", "target_node"),
            ("dests/nr_dests", "destinations"),
        ] {
            note(self.has(&format!("{scheme}/{file}")), what.to_owned());
        }
        if self.has(&format!("{scheme}/quotas/goals")) {
            self.write(&format!("{scheme}/quotas/goals/nr_goals"), "1")?;
            let file = format!("{scheme}/quotas/goals/0/target_metric");
            // The first kernels with goals have one metric, and no file for it.
            let any = self.has(&file);
            for metric in GoalMetric::ALL {
                let takes = if any { self.takes(&file, metric.name())? } else { metric == GoalMetric::UserInput };
                note(takes, format!("goal {}", metric.name()));
            }
        }
        for (folder, names) in [
            ("core_filters", &["addr", "target"][..]),
            ("ops_filters", &["anon", "active", "memcg", "young", "hugepage_size", "unmapped"]),
            ("filters", &["addr", "target", "anon", "memcg", "young"]),
        ] {
            if !self.has(&format!("{scheme}/{folder}"))
                || (folder == "filters" && self.has(&format!("{scheme}/core_filters")))
            {
                continue;
            }
            self.write(&format!("{scheme}/{folder}/nr_filters"), "1")?;
            for name in names {
                let takes = self.takes(&format!("{scheme}/{folder}/0/type"), name)?;
                note(takes, format!("filter {name}"));
            }
            let allows = folder != "ops_filters" && self.has(&format!("{scheme}/{folder}/0/allow"));
            note(allows, "filter that allows".to_owned());
        }
        self.write(&format!("{context}/schemes/nr_schemes"), "0")?;
        Ok(Features { known })
    }

    /// Whether a file takes a word; the kernel refuses those it does not know.
    fn takes(&self, file: &str, word: &str) -> Result<bool> {
        match self.write(file, word) {
            Err(error) if error.is_invalid() => Ok(false),
            other => other.map(|()| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_model::scheme::{builtin, file};

    fn written(scheme: &Scheme, sampling_ms: u64, aggregation_ms: u64) -> Vec<(String, String)> {
        let counts = Counts::new(Duration::from_millis(sampling_ms), Duration::from_millis(aggregation_ms));
        files(scheme, &counts, |_| true)
    }

    fn value<'a>(files: &'a [(String, String)], name: &str) -> &'a str {
        files.iter().find(|(file, _)| file == name).map_or("", |(_, value)| value)
    }

    #[test]
    fn shares_and_times_become_counts_that_lie_within() {
        let prcl = &builtin::named("prcl").unwrap()[0];
        let files = written(prcl, 5, 100);
        let get = |name: &str| value(&files, name).to_owned();
        assert_eq!(
            (get("access_pattern/nr_accesses/max"), get("access_pattern/age/min")),
            ("1".to_owned(), "50".to_owned())
        );
        assert_eq!(get("access_pattern/age/max"), u64::MAX.to_string());
        // Of ten samples, one is more than 5 %.
        assert_eq!(value(&written(prcl, 10, 100), "access_pattern/nr_accesses/max"), "0");
        assert_eq!(
            value(&written(&builtin::named("ethp").unwrap()[0], 10, 100), "access_pattern/nr_accesses/min"),
            "1"
        );
    }

    #[test]
    fn weights_are_parts_of_a_thousand() {
        let text = "[[scheme]]\naction='cold'\nquota={time='10us',weights={size=1,access=1,age=2}}";
        let files = written(&file::parse(text).unwrap()[0], 5, 100);
        assert_eq!(value(&files, "quotas/weights/age_permil"), "500");
        assert_eq!(value(&files, "quotas/ms"), "1");
    }
}
