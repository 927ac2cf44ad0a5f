//! Options by which commands act on their target: schemes, and swap to page out to.

use std::str::FromStr;

use lowtide_engine::calibration;
use lowtide_engine::failure::{Failure, code};
use lowtide_engine::recorder::RecordOptions;
use lowtide_engine::schemes::acting::SchemePlan;
use lowtide_engine::schemes::load;
use lowtide_engine::schemes::means::{self, Ground};
use lowtide_engine::source::Map;
use lowtide_kernel::damon::{Features, Operations};
use lowtide_kernel::root::Kernel;
use lowtide_kernel::undo::Journal;
use lowtide_kernel::zram::{self, Zram};
use lowtide_model::scheme::{Action, Scheme};
use lowtide_model::units::Size;
use lowtide_policy::schemes::SchemeLimits;

use crate::output::usage;

/// Options that `run` and `schemes apply` share.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Acts {
    /// Swap to a zram device of this size meanwhile; zram:SIZE:COMPRESSOR to choose the compressor (default: the fastest)
    #[arg(long, value_name = "zram:SIZE")]
    pub swap: Option<SwapTo>,
    /// Only count what the schemes would apply to
    #[arg(long)]
    pub dry_run: bool,
    /// The schemes.
    #[arg(skip)]
    pub schemes: Vec<Scheme>,
}

/// A zram device to swap to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapTo {
    /// What it holds, uncompressed.
    pub size: Size,
    compressor: Option<String>,
}

/// Compressors, the fastest to decompress first, as the program waits for what it refaults. What each costs on this machine,
/// `doctor --calibrate` measures.
const COMPRESSORS: [&str; 4] = ["lz4", "lzo-rle", "lzo", "zstd"];

impl std::fmt::Display for SwapTo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "zram:{}", self.size)?;
        self.compressor.as_ref().map_or(Ok(()), |compressor| write!(f, ":{compressor}"))
    }
}

impl FromStr for SwapTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no swap; write for example zram:1G or zram:1G:zstd");
        let mut parts = text.split(':');
        let (Some("zram"), Some(size), compressor, None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let size: Size = size.parse().map_err(|error| format!("{error}"))?;
        if size.0 < 1 << 20 {
            return Err(format!("{size} of swap is too little to be of use; give 1M or more"));
        }
        Ok(Self { size, compressor: compressor.map(str::to_owned) })
    }
}

impl SwapTo {
    /// Swaps to the device, before any other swap, until what is returned is dropped.
    ///
    /// # Errors
    /// If the kernel has no zram, or it may not be set up.
    pub fn begin(&self, kernel: &Kernel, journal: &Journal) -> Result<Zram, Failure> {
        let offered = zram::algorithms(kernel);
        let fastest = || COMPRESSORS.iter().find(|name| offered.iter().any(|o| o == *name)).map(ToString::to_string);
        let algorithm = self.compressor.clone().or_else(fastest);
        let setup = zram::ZramSetup { bytes: self.size.0, algorithm, priority: 32767 };
        Zram::swap_on(kernel, journal, &setup).map_err(|error| {
            let code = if error.is_permission() { code::PERMISSION } else { code::IMPOSSIBLE };
            let fix = if error.is_gone() { "modprobe zram" } else { "see `lowtide doctor`, or use swap that is there" };
            Failure::new(code, format!("--swap zram:{}: {error}; {fix}", self.size))
        })
    }
}

/// What schemes can act on.
#[derive(Debug, Clone, Copy)]
pub struct SchemeReach {
    /// The system.
    pub system: bool,
    /// A memory cgroup of the target's own.
    pub cgroup: bool,
}

impl Acts {
    /// Chooses an executor for each scheme, writes it into the options, and sets up swap. Called before anything is started.
    ///
    /// # Errors
    /// If a scheme cannot be carried out here, or the swap cannot be set up.
    pub fn prepare(
        &self,
        options: &mut RecordOptions,
        kernel: &Kernel,
        journal: &Journal,
        SchemeReach { system, cgroup }: SchemeReach,
    ) -> anyhow::Result<Option<Zram>> {
        if !self.schemes.is_empty() {
            let (operations, features) = offered(options, kernel, journal);
            let ground = Ground { operations, features, system, cgroup, forbidden: means::forbidden(kernel) };
            let means = means::choose(&self.schemes, &ground).map_err(|why| {
                Failure::new(code::IMPOSSIBLE, format!("--scheme {why}; see `lowtide schemes check`"))
            })?;
            let limits = SchemeLimits::default();
            let plan = SchemePlan { schemes: self.schemes.clone(), means, dry_run: self.dry_run, limits };
            if plan.acts_itself() && !options.source.choice.has_addresses() {
                anyhow::bail!(usage("--scheme: the monitor asked for reports no addresses; leave --monitor away"));
            }
            options.source.map_for_schemes = plan.map_on();
            options.source.needs_addresses = plan.acts_itself();
            options.plan = Some(plan);
        }
        let swap = self.swap.as_ref().map(|swap| swap.begin(kernel, journal)).transpose()?;
        if self.schemes.iter().any(|scheme| scheme.action == Action::Pageout) {
            let devices = lowtide_kernel::swap::devices(kernel);
            if devices.as_ref().is_ok_and(Vec::is_empty) {
                lowtide_kernel::message!("lowtide: there is no swap, so anonymous memory stays; add --swap zram:SIZE");
            } else if let Some(plan) = options.plan.as_mut().filter(|plan| plan.acts_itself() && !plan.dry_run) {
                // Machines differ by a factor of ten.
                let on_disk = devices.is_ok_and(|devices| lowtide_kernel::swap::any_on_disk(&devices));
                plan.limits.refault_s = calibration::load_or_measure(kernel).with_swap(on_disk).swap_s;
            }
        }
        Ok(swap)
    }
}

/// What DAMON offers, as far as the options allow it.
fn offered(options: &RecordOptions, kernel: &Kernel, journal: &Journal) -> (Result<Vec<Operations>, String>, Features) {
    if !options.source.choice.admits("damon") {
        return (Err("another monitor than DAMON was asked for".to_owned()), Features::default());
    }
    let wanted = match options.source.map {
        Map::Auto => None,
        Map::Vaddr => Some(Operations::Vaddr),
        Map::Paddr => Some(Operations::Paddr),
    };
    match means::offered(kernel, journal) {
        Ok((operations, features)) => {
            let allowed = operations.into_iter().filter(|on| wanted.is_none_or(|wanted| wanted == *on)).collect();
            (Ok(allowed), features)
        }
        Err(error) => (Err(means::why_not_damon(kernel, &error)), Features::default()),
    }
}

/// The schemes of several files or names.
///
/// # Errors
/// At the first mistake.
pub fn load_all(names: &[String]) -> Result<Vec<Scheme>, Failure> {
    let sets = names.iter().map(|name| load(name)).collect::<Result<Vec<_>, _>>()?;
    Ok(sets.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_are_read() {
        assert_eq!("zram:1G".parse(), Ok(SwapTo { size: Size(1 << 30), compressor: None }));
        assert_eq!("zram:64M:zstd".parse(), Ok(SwapTo { size: Size(64 << 20), compressor: Some("zstd".to_owned()) }));
        for text in ["1G", "zram", "zram:0", "zram:1X", "file:/swap", "zram:1G:lz4:x"] {
            assert!(text.parse::<SwapTo>().is_err(), "{text}");
        }
    }
}
