//! The executor of a scheme: lowtide itself by `process_madvise` where processes are paged out; else the kernel's DAMON where it can.

use std::fmt;

use lowtide_kernel::damon::{self, Damon, Features, Operations};
use lowtide_kernel::root::{Error, Kernel, Result};
use lowtide_kernel::undo::{self, Journal};
use lowtide_model::scheme::words::{Requirement, needs};
use lowtide_model::scheme::{Action, FilterType, Scheme};

/// The executor of a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Executor {
    /// The kernel, on the regions of the map.
    Kernel(Operations),
    /// lowtide itself.
    Own,
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(Operations::Vaddr) => f.write_str("the kernel's DAMON, on virtual addresses"),
            Self::Kernel(Operations::Paddr) => f.write_str("the kernel's DAMON, on page frames"),
            Self::Own => f.write_str("lowtide, by process_madvise"),
        }
    }
}

/// What the machine and the target allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    /// Addresses that DAMON offers; or why there is no DAMON.
    pub operations: std::result::Result<Vec<Operations>, String>,
    /// What DAMON knows of schemes.
    pub features: Features,
    /// The target is the system: there are no processes to advise.
    pub system: bool,
    /// The target has cgroups of its own, by which its page frames are distinguished from others'.
    pub cgroup: bool,
    /// Why lowtide may not advise other processes, if it may not.
    pub forbidden: Option<String>,
}

/// What this machine's DAMON offers, tried under lease on a kdamond made for it. Fails if DAMON is not there, not
/// permitted, or held by someone else.
pub fn offered(kernel: &Kernel, journal: &Journal) -> Result<(Vec<Operations>, Features)> {
    let damon = Damon::take(kernel, journal, 1)?;
    Ok((damon.operations(0)?, damon.features(0)?))
}

/// The same with a journal made for it; why not, in words. Fails as above.
pub fn offered_here(kernel: &Kernel) -> std::result::Result<(Vec<Operations>, Features), String> {
    let found = Journal::open(kernel.clone(), &undo::folder()).and_then(|journal| offered(kernel, &journal));
    found.map_err(|error| why_not_damon(kernel, &error))
}

/// Why lowtide may not advise other processes, if it may not.
pub fn forbidden(kernel: &Kernel) -> Option<String> {
    lowtide_kernel::caps::why_not_advise(kernel).map(|why| format!("lowtide itself may not: {why}"))
}

/// Why DAMON cannot be had for schemes.
pub fn why_not_damon(kernel: &Kernel, error: &Error) -> String {
    match error {
        e if e.is_gone() && damon::probe(kernel).is_err() => "this kernel has no DAMON in sysfs".to_owned(),
        e if e.is_busy() => format!("DAMON is held: {e}"),
        e => e.to_string(),
    }
}

/// Which of the needs DAMON on these addresses does not have.
fn lacking(needs: &[Requirement], operations: Operations, features: &Features) -> Option<String> {
    let on = |need: &Requirement| if operations == Operations::Vaddr { need.vaddr } else { need.paddr };
    let name = operations.name();
    if let Some(need) = needs.iter().find(|need| on(need).is_none()) {
        return Some(format!("DAMON on {name} has no {}", need.what));
    }
    let unknown = needs.iter().find(|need| !features.knows(&need.what))?;
    let since = on(unknown).unwrap_or_default();
    Some(format!("this kernel's DAMON has no {} (Linux {since})", unknown.what))
}

/// Why the kernel cannot do it on these addresses, if it cannot.
fn why_not_kernel(scheme: &Scheme, on: Operations, ground: &Ground) -> Option<String> {
    let offered = match &ground.operations {
        Err(why) => return Some(why.clone()),
        Ok(offered) => offered,
    };
    if !offered.contains(&on) {
        return Some(format!("this kernel's DAMON has no {}", on.name()));
    }
    if let Some(lack) = lacking(&needs(scheme), on, &ground.features) {
        return Some(lack);
    }
    let pageout = scheme.action == Action::Pageout;
    match on {
        Operations::Vaddr if ground.system => Some("virtual addresses are a process', not the system's".to_owned()),
        // Older kernels take the action and do nothing; `destinations` came with the change that does it.
        Operations::Vaddr if scheme.action.migrates() && !ground.features.knows("destinations") => {
            Some("this kernel's DAMON on vaddr moves nothing (Linux 6.17)".to_owned())
        }
        // All of a region is paged out, also pages in use.
        Operations::Vaddr if pageout => Some("DAMON on vaddr has no filter that spares used pages".to_owned()),
        Operations::Paddr if ground.system => None,
        Operations::Paddr if scheme.filters.iter().any(|filter| matches!(filter.of, FilterType::Addr(..))) => {
            Some("addresses of a filter are a process', not page frames".to_owned())
        }
        Operations::Paddr if !ground.cgroup || !ground.features.knows("filter memcg") => {
            Some("page frames of others could not be left out: the target has no cgroup of its own".to_owned())
        }
        Operations::Paddr if pageout && !ground.features.knows("filter young") => {
            Some("this kernel's DAMON has no filter young (Linux 6.10)".to_owned())
        }
        _ => None,
    }
}

/// Why lowtide cannot do it itself, if it cannot.
fn why_not_own(scheme: &Scheme, ground: &Ground) -> Option<String> {
    if ground.system {
        return Some("lowtide itself advises processes, not the system".to_owned());
    }
    let need = needs(scheme).into_iter().find(|need| need.own.is_none());
    let lack = need.map(|need| format!("lowtide itself has no {}", need.what));
    lack.or_else(|| ground.forbidden.clone())
}

/// The executor of each scheme. All that the kernel carries out is on the same addresses, as there is one map. Fails
/// with the first scheme that cannot be carried out, and why.
pub fn choose(schemes: &[Scheme], ground: &Ground) -> std::result::Result<Vec<Executor>, String> {
    let one = |scheme: &Scheme, on: Operations| {
        let own = why_not_own(scheme, ground);
        // By page frames, which of a program lie between others', few regions are idle as a whole, and what is refaulted is not
        // observed: of 13 programs on Linux 7.2 that saved 26 % net instead of 33 % (docs/evaluation.md).
        if scheme.action == Action::Pageout && own.is_none() {
            return Ok(Executor::Own);
        }
        match (why_not_kernel(scheme, on, ground), own) {
            (None, _) => Ok(Executor::Kernel(on)),
            (Some(_), None) => Ok(Executor::Own),
            (Some(kernel), Some(own)) => Err(format!("{}: {kernel}; {own}", scheme.title())),
        }
    };
    let all = |on: Operations| schemes.iter().map(|scheme| one(scheme, on)).collect::<std::result::Result<Vec<_>, _>>();
    let by_kernel = |plan: &[Executor]| plan.iter().filter(|means| **means != Executor::Own).count();
    match (all(Operations::Vaddr), all(Operations::Paddr)) {
        (Ok(vaddr), Ok(paddr)) => Ok(if by_kernel(&paddr) > by_kernel(&vaddr) { paddr } else { vaddr }),
        (Ok(plan), Err(_)) | (Err(_), Ok(plan)) => Ok(plan),
        (Err(why), Err(other)) if why == other => Err(why),
        (Err(why), Err(other)) => Err(format!("{why} (or {other})")),
    }
}

/// What the kernel is given so that it takes nothing but the target's, and nothing in use: filters before the scheme's own.
pub fn guarded(scheme: &Scheme, on: Operations, cgroup: Option<String>) -> Scheme {
    use lowtide_model::scheme::Filter;
    let mut guarded = scheme.clone();
    let reject = |of: FilterType, matching: bool| Filter { of, matching, allow: false };
    if on == Operations::Paddr {
        let mut first: Vec<Filter> =
            cgroup.into_iter().map(|cgroup| reject(FilterType::Memcg(cgroup), false)).collect();
        let young = |filter: &Filter| matches!(filter.of, FilterType::Young);
        if matches!(scheme.action, Action::Pageout | Action::MigrateCold) && !scheme.filters.iter().any(young) {
            first.push(reject(FilterType::Young, true));
        }
        guarded.filters.splice(0..0, first);
    }
    guarded
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_model::scheme::builtin;

    fn ground(operations: &[Operations], known: &[&str]) -> Ground {
        let features = Features { known: known.iter().map(|word| (*word).to_owned()).collect() };
        Ground { operations: Ok(operations.to_vec()), features, system: false, cgroup: true, forbidden: None }
    }

    const ALL: [&str; 8] = [
        "action pageout",
        "action hugepage",
        "action nohugepage",
        "action lru_prio",
        "filter memcg",
        "filter young",
        "quota",
        "watermarks",
    ];

    #[test]
    fn the_kernel_does_what_it_can_without_hurting() {
        let both = [Operations::Vaddr, Operations::Paddr];
        let (prcl, ethp) = (builtin::named("prcl").unwrap(), builtin::named("ethp").unwrap());
        let full = ground(&both, &ALL);
        assert_eq!(choose(&prcl, &full).unwrap(), [Executor::Own], "what is refaulted is observed");
        assert_eq!(choose(&ethp, &full).unwrap(), [Executor::Kernel(Operations::Vaddr); 2]);
        let together: Vec<Scheme> = ethp.iter().chain(&prcl).cloned().collect();
        let vaddr = Executor::Kernel(Operations::Vaddr);
        assert_eq!(
            choose(&together, &full).unwrap(),
            [vaddr, vaddr, Executor::Own],
            "one map, on addresses that fit most"
        );
        let forbidden = Ground { forbidden: Some("not permitted".to_owned()), ..full.clone() };
        assert_eq!(choose(&prcl, &forbidden).unwrap(), [Executor::Kernel(Operations::Paddr)]);
        let strangers = Ground { cgroup: false, ..forbidden.clone() };
        assert!(choose(&prcl, &strangers).is_err(), "frames of others must be distinguished");
        let young = ALL.iter().filter(|word| **word != "filter young").copied().collect::<Vec<_>>();
        let old = Ground { features: ground(&both, &young).features, ..forbidden };
        assert!(choose(&prcl, &old).is_err(), "used pages must be spared");
        assert_eq!(choose(&prcl, &Ground { system: true, ..full }).unwrap(), [Executor::Kernel(Operations::Paddr)]);
    }

    #[test]
    fn memory_is_moved_by_frames_where_addresses_cannot() {
        let cold = Scheme { target_node: Some(1), ..Scheme::new(Action::MigrateCold) };
        let known = ["action migrate_cold", "target_node", "filter memcg", "filter young", "destinations"];
        let both = [Operations::Vaddr, Operations::Paddr];
        let on = |known: &[&str]| choose(std::slice::from_ref(&cold), &ground(&both, known)).unwrap();
        assert_eq!(on(&known[..4]), [Executor::Kernel(Operations::Paddr)]);
        assert_eq!(on(&known), [Executor::Kernel(Operations::Vaddr)]);
        let spared = guarded(&cold, Operations::Paddr, Some("/a".to_owned()));
        assert_eq!(spared.filters.iter().map(|filter| filter.of.name()).collect::<Vec<_>>(), ["memcg", "young"]);
    }

    #[test]
    fn what_nobody_can_do_is_refused_with_the_reason() {
        let held = Ground { operations: Err("DAMON is held".to_owned()), ..ground(&[], &[]) };
        let why = choose(&builtin::named("ethp").unwrap(), &held).unwrap_err();
        assert_eq!(why, "ethp: DAMON is held; lowtide itself has no action hugepage");
        assert_eq!(choose(&builtin::named("prcl").unwrap(), &held).unwrap(), [Executor::Own]);
        let forbidden = Ground { forbidden: Some("process_madvise needs CAP_SYS_NICE".to_owned()), ..held.clone() };
        assert!(choose(&builtin::named("prcl").unwrap(), &forbidden).unwrap_err().ends_with("needs CAP_SYS_NICE"));
        let system = Ground { system: true, ..held };
        assert!(choose(&builtin::named("prcl").unwrap(), &system).unwrap_err().contains("not the system"));
    }

    #[test]
    fn the_kernel_takes_nothing_of_others_and_nothing_in_use() {
        let prcl = &builtin::named("prcl").unwrap()[0];
        let filters = guarded(prcl, Operations::Paddr, Some("/job".to_owned())).filters;
        assert_eq!(filters.iter().map(|filter| filter.of.name()).collect::<Vec<_>>(), ["memcg", "young"]);
        assert!(!filters[0].matching && filters[1].matching && filters.iter().all(|filter| !filter.allow));
        assert_eq!(guarded(prcl, Operations::Vaddr, None), *prcl);
    }
}
