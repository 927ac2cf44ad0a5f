//! The settings of operation schemes: which ones, and the bounds that hold for all of them.

use lowtide_model::scheme::{Action, Scheme, builtin, line};
use lowtide_model::units::{Share, Size, Span};
use serde::{Deserialize, Serialize};

use super::{Operator, SchemeLimits};
use crate::policies::{AnyPolicy, PolicyError, PolicySettings};
use crate::replay::Replayed;

/// Operation schemes, and the bounds that hold for all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schemes {
    /// Names of schemes that are built in, or schemes of one line.
    #[serde(rename = "use")]
    pub schemes: Vec<String>,
    /// Share of the time that may be lost to what is refaulted; one percent if not given.
    pub slowdown: Option<Share>,
    /// What a page that is refaulted costs; 10 µs if not given.
    pub refault: Option<Span>,
    /// Nothing is taken while pressure is above; a tenth if not given.
    pub pressure: Option<Share>,
    /// Swap that is left alone; 16 MiB if not given.
    pub swap_free: Option<Size>,
}

/// Schemes, carried out on one workload at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Regions {
    /// The schemes.
    pub schemes: Vec<Scheme>,
    /// Bounds that hold for all of them.
    pub limits: SchemeLimits,
}

impl PolicySettings for Schemes {
    fn usual() -> Option<Self> {
        None
    }

    fn build(&self, seed: u64) -> Result<AnyPolicy, PolicyError> {
        Ok(AnyPolicy::regions(Operator::new(&self.simulated()?, self.limits(), seed)))
    }

    fn replayed(&self) -> Result<Replayed, &'static str> {
        Err("schemes go by regions, and histograms have none")
    }

    fn regions(&self) -> Option<Result<Regions, PolicyError>> {
        Some(self.parsed().map(|schemes| Regions { schemes, limits: self.limits() }))
    }

    #[cfg(test)]
    fn trial(quota: Option<u64>, seed: u64) -> Option<AnyPolicy> {
        let mut schemes = builtin::named("prcl-tuned").unwrap();
        for scheme in schemes.iter_mut().filter(|_| quota.is_some()) {
            scheme.quota.size = quota.map(Size);
            scheme.quota.every = Span(std::time::Duration::from_secs(1));
        }
        Some(AnyPolicy::regions(Operator::new(&schemes, SchemeLimits::default(), seed)))
    }
}

impl Schemes {
    fn parsed(&self) -> Result<Vec<Scheme>, PolicyError> {
        let mut schemes = Vec::new();
        for text in &self.schemes {
            let some = builtin::named(text).map_or_else(|| line::parse(text), Ok);
            schemes.extend(some.map_err(|error| PolicyError(format!("`{text}`: {}", error.message)))?);
        }
        Ok(schemes)
    }

    fn simulated(&self) -> Result<Vec<Scheme>, PolicyError> {
        let schemes = self.parsed()?;
        // Huge pages and what is near which node are no part of the simulated machine.
        if let Some(scheme) = schemes.iter().find(|scheme| !simulated(scheme.action)) {
            let why = "pageout, cold, willneed and stat are simulated";
            return Err(PolicyError(format!("`{}`: {} is not simulated; {why}", scheme.title(), scheme.action.name())));
        }
        Ok(schemes)
    }

    fn limits(&self) -> SchemeLimits {
        let usual = SchemeLimits::default();
        SchemeLimits {
            slowdown: self.slowdown.map_or(usual.slowdown, |share| share.0),
            refault_s: self.refault.map_or(usual.refault_s, |span| span.0.as_secs_f64()),
            pressure: self.pressure.map_or(usual.pressure, |share| share.0),
            swap_free: self.swap_free.map_or(usual.swap_free, |size| size.0),
        }
    }
}

fn simulated(action: Action) -> bool {
    matches!(action, Action::Pageout | Action::Cold | Action::Willneed | Action::Stat)
}
