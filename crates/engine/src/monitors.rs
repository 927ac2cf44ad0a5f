//! Which monitor serves: the best this machine has, and why the better ones could not.

use clap::ValueEnum;
use lowtide_kernel::caps::MONITORS;
use lowtide_kernel::damon::{self, Operations};
use lowtide_kernel::monitor::Target;
use lowtide_kernel::monitor::damon::{DamonMonitor, Rhythm};
use lowtide_kernel::monitor::mglru::MglruMonitor;
use lowtide_kernel::monitor::smaps::SmapsMonitor;
use lowtide_kernel::root::{Error, Kernel};
use lowtide_kernel::undo::{self, Journal};
use lowtide_model::meta::Refusal;
use lowtide_policy::governor::Plan;

use crate::failure::{Failure, code};
use crate::recorder::Options;
use crate::schemes::acting::SchemePlan;

/// `--monitor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Wish {
    /// The best that serves.
    Auto,
    /// DAMON: cohort and map.
    Damon,
    /// Page idle tracking: cohort and map as by DAMON, by lowtide itself.
    Idle,
    /// Generations of the multi-generational LRU, of a cgroup or the whole system.
    Mglru,
    /// `clear_refs` and smaps.
    Smaps,
    /// Accounts only.
    None,
}

/// `--map`: which addresses DAMON's map works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Map {
    /// Virtual addresses where the kernel has them.
    Auto,
    /// Virtual addresses.
    Vaddr,
    /// Page frames, mapped back.
    Paddr,
}

/// The monitor at work.
#[derive(Debug)]
pub enum Monitor {
    /// Cohort and map, by DAMON or on the idle bitmap.
    Damon(Box<DamonMonitor>),
    /// Generations.
    Mglru(Box<MglruMonitor>),
    /// Referenced bytes.
    Smaps(SmapsMonitor),
    /// None.
    None,
}

impl Monitor {
    /// Its name in the record.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Damon(damon) => damon.backend(),
            Self::Mglru(_) => "mglru",
            Self::Smaps(_) => "smaps",
            Self::None => "none",
        }
    }
}

/// The governor's plan as the kernel crate wants it.
#[must_use]
pub fn rhythm(plan: &Plan, options: &Options) -> Rhythm {
    Rhythm {
        cohort_pages: plan.cohort_pages,
        cohort_sampling_s: plan.cohort_sampling_s,
        map_regions: plan.map_regions,
        map_sampling_s: plan.map_sampling_s,
        map_aggregation_s: plan.map_aggregation_s(),
        map_goal: options.map_goal,
        map_on: match options.map {
            Map::Auto => options.plan.as_ref().and_then(SchemePlan::map_on),
            Map::Vaddr => Some(Operations::Vaddr),
            Map::Paddr => Some(Operations::Paddr),
        },
    }
}

/// What choosing found.
pub struct Choice {
    /// The monitor.
    pub monitor: Monitor,
    /// Better ones, and why not.
    pub refused: Vec<Refusal>,
}

/// Takes the best monitor that serves the wish, in the order in which `doctor` ranks them.
///
/// # Errors
/// If a monitor was asked for by name and cannot serve.
pub fn choose(
    kernel: &Kernel,
    journal: &Journal,
    target: &Target,
    rhythm: &Rhythm,
    epoch_ns: u64,
    options: &Options,
) -> Result<Choice, Failure> {
    let (wish, attached) = (options.monitor, options.attached);
    let needs_addresses = options.plan.as_ref().is_some_and(SchemePlan::acts_itself);
    let mut refused = Vec::new();
    for (name, _) in MONITORS {
        if wish != Wish::Auto && Wish::from_str(name, false) != Ok(wish) {
            continue;
        }
        let taken = match name {
            "damon" => DamonMonitor::take(kernel, journal, rhythm, epoch_ns, attached)
                .map(|damon| Monitor::Damon(Box::new(damon))),
            "idle" => DamonMonitor::on_bitmap(kernel, journal, rhythm, epoch_ns, attached)
                .map(|idle| Monitor::Damon(Box::new(idle))),
            "mglru" if wish == Wish::Auto && needs_addresses => {
                let why = "schemes want addresses, and generations have none".to_owned();
                refused.push(Refusal { backend: name.to_owned(), why });
                continue;
            }
            "mglru" => {
                MglruMonitor::new(kernel, target, &options.windows_s).map(|mglru| Monitor::Mglru(Box::new(mglru)))
            }
            _ if target.system && wish == Wish::Auto => continue,
            _ if target.system => {
                let message = "--monitor smaps: looks at processes, not at the whole system; give --pid or --cgroup";
                return Err(Failure::new(code::USAGE, message));
            }
            _ => SmapsMonitor::new(kernel, target).map(Monitor::Smaps),
        };
        match taken {
            Ok(monitor) => return Ok(Choice { monitor, refused }),
            Err(error) => {
                let why = match name {
                    "damon" => why_not_damon(kernel, &error),
                    "idle" => why_not_idle(&error),
                    "mglru" => why_not_mglru(&error),
                    _ => error.to_string(),
                };
                refuse(wish, name, why, &error, &mut refused)?;
            }
        }
    }
    Ok(Choice { monitor: Monitor::None, refused })
}

fn refuse(wish: Wish, name: &str, why: String, error: &Error, refused: &mut Vec<Refusal>) -> Result<(), Failure> {
    if wish == Wish::Auto {
        refused.push(Refusal { backend: name.to_owned(), why });
        return Ok(());
    }
    Err(refusal(name, &why, error))
}

/// The failure of a monitor that was asked for by name.
#[must_use]
pub fn refusal(name: &str, why: &str, error: &Error) -> Failure {
    let code = match error {
        e if e.is_busy() => code::BUSY,
        e if e.is_permission() => code::PERMISSION,
        _ => code::IMPOSSIBLE,
    };
    Failure::new(code, format!("--monitor {name}: {why}; use --monitor auto for the next best"))
}

/// Why the idle bitmap cannot be had.
#[must_use]
pub fn why_not_idle(error: &Error) -> String {
    if error.is_gone() {
        return "this kernel has no page idle tracking (CONFIG_IDLE_PAGE_TRACKING)".to_owned();
    }
    error.to_string()
}

/// Why generations cannot be had.
#[must_use]
pub fn why_not_mglru(error: &Error) -> String {
    if error.is_gone() {
        return "this kernel has no multi-generational LRU (CONFIG_LRU_GEN), or no debugfs".to_owned();
    }
    if error.is_permission() && rustix::process::geteuid().is_root() {
        return format!(
            "{error}: also refused to root, so the kernel is locked down (kernel_lockdown(7)) or booted with debugfs=off"
        );
    }
    error.to_string()
}

/// Why DAMON could not be had, and who has it.
fn why_not_damon(kernel: &Kernel, error: &Error) -> String {
    if error.is_permission() {
        let root = rustix::process::geteuid().is_root();
        return if root { error.to_string() } else { format!("{error} (page frames and DAMON need root)") };
    }
    if !error.is_busy() {
        if error.is_gone() && damon::probe(kernel).is_err() {
            return "this kernel has no DAMON in sysfs (CONFIG_DAMON_SYSFS)".to_owned();
        }
        return error.to_string();
    }
    if let Some((pid, command)) = undo::damon_holder(&undo::folder()) {
        return format!("DAMON is held by another lowtide, pid {pid} ({command})");
    }
    if let Some(module) = damon::exclusive_module(kernel) {
        return format!("DAMON is held by the kernel module {module}; echo N > {module}/parameters/enabled frees it");
    }
    match damon::running(kernel).first() {
        Some(pid) => format!("DAMON is held by someone: kdamond {pid} is on (`damo stop`, or echo off to its state)"),
        None => error.to_string(),
    }
}
