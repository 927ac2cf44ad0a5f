//! What a scheme will do, in words, and which kernels can do it.

use super::{Action, Bounds, Filter, FilterType, GoalMetric, Scheme};
use crate::units::{Share, Span, float, human_bytes};

/// What the scheme will do, as one sentence.
#[must_use]
pub fn sentence(scheme: &Scheme) -> String {
    let mut text = format!("{} {}", verb(scheme.action), pattern(scheme));
    if let Some(node) = scheme.target_node {
        text += &format!(", to memory node {node}");
    }
    if !scheme.destinations.is_empty() {
        let parts = scheme.destinations.iter().map(|to| format!("node {} (weight {})", to.node, to.weight));
        text += &format!(", to {}", listed(parts.collect(), "and"));
    }
    for filter in &scheme.filters {
        text += &format!("; {}", filtered(filter));
    }
    if let Some(interval) = scheme.apply_interval {
        text += &format!("; every {}", time(interval));
    }
    let quota = &scheme.quota;
    let limits = [
        quota.size.map(|size| human_bytes(float(size.0))),
        quota.time.map(|spent| format!("{} of CPU time", time(spent))),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if !limits.is_empty() {
        let first = if scheme.action.prefers_cold() { "coldest" } else { "hottest" };
        text += &format!("; at most {} every {}, {first} first", listed(limits, "and"), time(quota.every));
    }
    for goal in &quota.goals {
        text += &format!("; as fast as it takes to bring {} to {}", goal.metric.name(), goal.target);
    }
    if let Some(marks) = scheme.watermarks {
        text += &format!(
            "; once less than {} of the system's memory is free, until more than {} or less than {} is (checked every {})",
            marks.mid,
            marks.high,
            marks.low,
            time(marks.every)
        );
    }
    text
}

/// A time with a space before its unit.
fn time(span: Span) -> String {
    let text = span.to_string();
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

fn verb(action: Action) -> &'static str {
    match action {
        Action::Willneed => "reads ahead",
        Action::Cold => "makes the first to be reclaimed",
        Action::Pageout => "pages out",
        Action::Hugepage => "allows huge pages for",
        Action::Nohugepage => "forbids huge pages for",
        Action::Collapse => "makes huge pages of",
        Action::LruPrio => "makes the last to be reclaimed of their kind",
        Action::LruDeprio => "makes the first to be reclaimed of their kind",
        Action::MigrateHot | Action::MigrateCold => "moves",
        Action::Stat => "counts",
    }
}

fn pattern(scheme: &Scheme) -> String {
    let size = between(&scheme.size, |size| human_bytes(float(size.0)));
    let of = size.map_or_else(|| "regions of any size".to_owned(), |size| format!("regions of {size}"));
    let Bounds { min, max } = scheme.access;
    let used = match (min.map(|share| share.0), max.map(|share| share.0)) {
        (None | Some(0.0), Some(0.0)) => Some("that no sample found in use".to_owned()),
        _ => between(&scheme.access, Share::to_string).map(|share| format!("that {share} of the samples found in use")),
    };
    let age = between(&scheme.age, |age| time(*age));
    match (used, age) {
        (None, None) => of,
        (Some(used), None) => format!("{of} {used}"),
        (Some(used), Some(age)) => format!("{of} {used} for {age}"),
        (None, Some(age)) => format!("{of} whose use has not changed for {age}"),
    }
}

fn between<T: PartialEq>(bounds: &Bounds<T>, print: impl Fn(&T) -> String) -> Option<String> {
    match (&bounds.min, &bounds.max) {
        (None, None) => None,
        (Some(min), None) => Some(format!("at least {}", print(min))),
        (None, Some(max)) => Some(format!("at most {}", print(max))),
        (Some(min), Some(max)) if min == max => Some(format!("exactly {}", print(min))),
        (Some(min), Some(max)) => Some(format!("{} to {}", print(min), print(max))),
    }
}

fn filtered(filter: &Filter) -> String {
    let what = match &filter.of {
        FilterType::Anon => "anonymous pages".to_owned(),
        FilterType::Active => "pages on the active list".to_owned(),
        FilterType::Memcg(cgroup) => format!("pages of cgroup {cgroup}"),
        FilterType::Young => "pages used since the last sample".to_owned(),
        FilterType::HugepageSize(min, max) => {
            format!("huge pages of {} to {}", human_bytes(float(min.0)), human_bytes(float(max.0)))
        }
        FilterType::Unmapped => "pages that no process maps".to_owned(),
        FilterType::Addr(start, end) => format!("addresses {start:#x} to {end:#x}"),
        FilterType::Target(index) => format!("target {index}"),
    };
    match (filter.allow, filter.matching) {
        (false, true) => format!("not {what}"),
        (false, false) => format!("only {what}"),
        (true, true) => format!("{what} in any case"),
        (true, false) => format!("all but {what} in any case"),
    }
}

fn listed(mut parts: Vec<String>, and: &str) -> String {
    match (parts.pop(), parts.is_empty()) {
        (Some(last), false) => format!("{} {and} {last}", parts.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
}

/// Something that a scheme needs of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// What of the scheme.
    pub what: String,
    /// First kernel whose DAMON has it on virtual addresses; `None`: none has.
    pub vaddr: Option<&'static str>,
    /// The same on physical addresses.
    pub paddr: Option<&'static str>,
    /// First kernel on which lowtide does it itself.
    pub own: Option<&'static str>,
}

/// All that a scheme needs, the action first. Versions are those of the mainline kernels that brought it (damo's list of
/// features, checked against the files that 6.1, 6.12, 6.18 and 7.0 have); whether a kernel has it is probed, not compared.
#[must_use]
pub fn needs(scheme: &Scheme) -> Vec<Requirement> {
    let mut needs = vec![action(scheme.action)];
    let mut need = |applies: bool, what: &str, since: &'static str, own: Option<&'static str>| {
        if applies {
            needs.push(Requirement { what: what.to_owned(), vaddr: Some(since), paddr: Some(since), own });
        }
    };
    let (quota, any) = (&scheme.quota, Some("5.18"));
    // Older kernels do not say whether it is in force.
    need(quota.is_limit(), "quota", "6.9", any);
    need(scheme.watermarks.is_some(), "watermarks", "5.18", any);
    need(scheme.apply_interval.is_some(), "apply_interval", "6.7", any);
    need(scheme.target_node.is_some(), "target_node", "6.11", None);
    need(!scheme.destinations.is_empty(), "destinations", "6.17", None);
    for goal in &quota.goals {
        let since = match goal.metric {
            GoalMetric::UserInput => "6.8",
            GoalMetric::SomeMemPsiUs => "6.9",
            GoalMetric::NodeMemUsedBp | GoalMetric::NodeMemFreeBp => "6.16",
            GoalMetric::NodeMemcgUsedBp | GoalMetric::NodeMemcgFreeBp => "6.19",
            GoalMetric::ActiveMemBp | GoalMetric::InactiveMemBp => "7.0",
        };
        need(true, &format!("goal {}", goal.metric.name()), since, None);
    }
    for filter in &scheme.filters {
        let (vaddr, paddr, own) = match &filter.of {
            FilterType::Addr(..) | FilterType::Target(_) => (Some("6.6"), Some("6.6"), any),
            FilterType::Anon => (None, Some("6.3"), any),
            FilterType::Memcg(_) => (None, Some("6.3"), None),
            FilterType::Young => (None, Some("6.10"), any),
            FilterType::Active | FilterType::Unmapped | FilterType::HugepageSize(..) => (None, Some("6.15"), None),
        };
        needs.push(Requirement { what: format!("filter {}", filter.of.name()), vaddr, paddr, own });
        if filter.allow {
            let what = "filter that allows".to_owned();
            needs.push(Requirement { what, vaddr: Some("6.14"), paddr: Some("6.14"), own: any });
        }
    }
    needs
}

fn action(action: Action) -> Requirement {
    let (vaddr, paddr, own) = match action {
        Action::Stat => (Some("5.18"), Some("5.18"), Some("5.18")),
        Action::Pageout => (Some("5.18"), Some("5.18"), Some("5.10")),
        Action::Willneed => (Some("5.18"), None, Some("5.13")),
        Action::Cold => (Some("5.18"), None, Some("5.10")),
        Action::Hugepage | Action::Nohugepage => (Some("5.18"), None, None),
        Action::Collapse => (None, None, Some("6.1")),
        Action::LruPrio | Action::LruDeprio => (None, Some("6.0"), None),
        Action::MigrateHot | Action::MigrateCold => (Some("6.17"), Some("6.11"), None),
    };
    Requirement { what: format!("action {}", action.name()), vaddr, paddr, own }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::{builtin, file};

    #[test]
    fn schemes_are_said_in_words() {
        let said = |name: &str| builtin::named(name).unwrap().iter().map(sentence).collect::<Vec<_>>();
        assert_eq!(
            said("ethp"),
            [
                "allows huge pages for regions of at least 2.00 MiB that at least 5% of the samples found in use",
                "forbids huge pages for regions of at least 2.00 MiB that at most 5% of the samples found in use for at least 1 s"
            ]
        );
        let text = "[[scheme]]\naction = 'pageout'\naccess = { max = '0%' }\nage = { min = '90s' }\n\
            quota = { size = '64M', time = '10ms', goal = [{ metric = 'some_mem_psi_us', target = 1000 }] }\n\
            watermarks = { every = '5s', high = '50%', mid = '40%', low = '5%' }\nfilter = [{ type = 'young' }]";
        assert_eq!(
            sentence(&file::parse(text).unwrap()[0]),
            "pages out regions of any size that no sample found in use for at least 90 s; not pages used since the last sample; \
             at most 64.0 MiB and 10 ms of CPU time every 1 s, coldest first; as fast as it takes to bring some_mem_psi_us \
             to 1000; once less than 40% of the system's memory is free, until more than 50% or less than 5% is (checked \
             every 5 s)"
        );
    }
}
