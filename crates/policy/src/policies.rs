//! Policies as they stand in a file: a table for each, by a name of the user's, that says which policy it is.
//!
//! ```toml
//! [wmo.age]
//! anon = "10s"
//!
//! [prcl.schemes]
//! use = ["prcl-tuned"]
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use lowtide_model::AGE_EDGES_S;
use lowtide_model::scheme::{Action, Scheme, builtin, line};
use lowtide_model::units::{Share, Size, Span};
use serde::{Deserialize, Serialize};

use crate::guard::{self, Guard};
use crate::lifecycle::{self, Lifecycle};
use crate::machine::{
    Observation, Policy, RegionAction, RegionObservation, RegionPolicy, WorkloadAction, WorkloadPolicy,
};
use crate::reclaim::{Reclaimer, age, auto, pressure, promotion};
use crate::schemes::{Operator, SchemeLimits};

/// A file's policies, by name.
pub type Policies = BTreeMap<String, Spec>;

/// A policy with its settings. A new one is a line here and one in [`Spec::build`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spec {
    /// Everything colder than a threshold.
    Age(age::AgeSettings),
    /// The youngest age of which few pages come back, found from the last hours.
    Promotion(promotion::PromotionSettings),
    /// A little at a time, as long as nobody waits for it.
    Pressure(pressure::PressureSettings),
    /// The youngest age that is predicted to cost little, found from the last minutes.
    Auto(auto::AutoSettings),
    /// What is in the background.
    Lifecycle(lifecycle::LifecycleSettings),
    /// What thrashes has its memory one after the other.
    Guard(guard::GuardSettings),
    /// Operation schemes.
    Schemes(Schemes),
}

/// Operation schemes, and the bounds that hold for all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schemes {
    /// Names of schemes that are built in, or schemes of one line.
    #[serde(rename = "use")]
    pub schemes: Vec<String>,
    /// Share of the time that may be lost to what comes back; one percent if not given.
    pub slowdown: Option<Share>,
    /// What a page that comes back costs; 10 µs if not given.
    pub refault: Option<Span>,
    /// Nothing is taken while pressure is above; a tenth if not given.
    pub pressure: Option<Share>,
    /// Swap that is left alone; 16 MiB if not given.
    pub swap_free: Option<Size>,
}

/// Schemes for whoever carries them out on one workload at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Regions {
    /// The schemes.
    pub schemes: Vec<Scheme>,
    /// Bounds that hold for all of them.
    pub limits: SchemeLimits,
}

/// A policy of either kind.
pub enum AnyPolicy {
    /// Of workloads.
    Workloads(Box<WorkloadPolicy>),
    /// Of ranges of processes' memory.
    Regions(Box<RegionPolicy>),
}

impl AnyPolicy {
    /// A policy of workloads.
    pub fn workloads(policy: impl Policy<Frame = Observation, Action = WorkloadAction> + 'static) -> Self {
        Self::Workloads(Box::new(policy))
    }

    /// A policy of ranges.
    pub fn regions(policy: impl Policy<Frame = RegionObservation, Action = RegionAction> + 'static) -> Self {
        Self::Regions(Box::new(policy))
    }

    /// The policy of workloads, if it is one.
    pub fn into_workloads(self) -> Option<Box<WorkloadPolicy>> {
        match self {
            Self::Workloads(policy) => Some(policy),
            Self::Regions(_) => None,
        }
    }
}

/// Why a policy cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

impl From<&str> for PolicyError {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}

impl Spec {
    /// Names of policies that need no file: each with its usual settings.
    pub const BUILT_IN: [&str; 6] = ["age", "auto", "guard", "lifecycle", "pressure", "promotion"];

    /// The policy of that name with its usual settings.
    pub fn built_in(name: &str) -> Option<Self> {
        Some(match name {
            "age" => Self::Age(age::AgeSettings::default()),
            "auto" => Self::Auto(auto::AutoSettings::default()),
            "guard" => Self::Guard(guard::GuardSettings::default()),
            "lifecycle" => Self::Lifecycle(lifecycle::LifecycleSettings::default()),
            "pressure" => Self::Pressure(pressure::PressureSettings::default()),
            "promotion" => Self::Promotion(promotion::PromotionSettings::default()),
            _ => return None,
        })
    }

    /// The policy; everything random in it follows from the seed.
    ///
    /// # Errors
    /// What makes no sense in its settings.
    pub fn build(&self, seed: u64) -> Result<AnyPolicy, PolicyError> {
        Ok(match self {
            Self::Age(settings) => {
                often(settings.every)?;
                let longest = u64::from(AGE_EDGES_S[AGE_EDGES_S.len() - 1]);
                let unknown = |age: &Span| age.0 > Duration::from_secs(longest);
                if let Some(age) = [settings.anon, settings.file].into_iter().flatten().find(unknown) {
                    return Err(PolicyError(format!("{age}: ages are told up to {longest}s")));
                }
                if settings.anon.is_none() && settings.file.is_none() {
                    return Err(PolicyError("neither anon nor file has an age; give at least one".to_owned()));
                }
                AnyPolicy::workloads(Reclaimer::new(settings.clone(), settings.brakes.clone()))
            }
            Self::Promotion(settings) => {
                AnyPolicy::workloads(Reclaimer::new(settings.clone(), settings.brakes.clone()))
            }
            Self::Pressure(settings) => {
                often(settings.every)?;
                AnyPolicy::workloads(Reclaimer::new(settings.clone(), settings.brakes.clone()))
            }
            Self::Auto(settings) => AnyPolicy::workloads(Reclaimer::new(settings.clone(), settings.brakes.clone())),
            Self::Lifecycle(settings) => AnyPolicy::workloads(Lifecycle::new(settings.clone())),
            Self::Guard(settings) => AnyPolicy::workloads(Guard::new(settings.clone())),
            Self::Schemes(schemes) => AnyPolicy::regions(Operator::new(&schemes.simulated()?, schemes.limits(), seed)),
        })
    }

    /// Idle ages that it is bound to know of.
    pub fn ages(&self) -> Vec<Span> {
        match self {
            Self::Age(settings) => [settings.anon, settings.file].into_iter().flatten().collect(),
            _ => Vec::new(),
        }
    }

    /// Its schemes, if it is made of schemes.
    ///
    /// # Errors
    /// What makes no sense in them.
    pub fn regions(&self) -> Option<Result<Regions, PolicyError>> {
        let Self::Schemes(schemes) = self else { return None };
        Some(schemes.parsed().map(|parsed| Regions { schemes: parsed, limits: schemes.limits() }))
    }

    /// Whether it looks at regions rather than histograms.
    pub fn wants_regions(&self) -> bool {
        matches!(self, Self::Schemes(_))
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

/// A time between two rounds.
fn often(every: Span) -> Result<(), PolicyError> {
    if every.0 < Duration::from_millis(1) { Err(PolicyError("every is a time above 0".to_owned())) } else { Ok(()) }
}

fn simulated(action: Action) -> bool {
    matches!(action, Action::Pageout | Action::Cold | Action::Willneed | Action::Stat)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(text: &str) -> Result<Policies, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn policies_are_read_and_built() {
        let text = "[wmo.age]\nanon = '10s'\nevery = '40s'\n[prcl.schemes]\nuse = ['prcl-tuned', '4K null 0 5 5s null pageout']";
        let policies = policies(text).unwrap();
        assert_eq!(policies.keys().collect::<Vec<_>>(), ["prcl", "wmo"]);
        assert!(policies.values().all(|spec| spec.build(1).is_ok()));
        assert_eq!((policies["prcl"].wants_regions(), policies["wmo"].wants_regions()), (true, false));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(policies("[x.age]\nanon = '10s'\nannon = '1s'").unwrap_err().to_string().contains("annon"));
        assert!(policies("[x.aging]").unwrap_err().to_string().contains("aging"));
        let why = |text: &str| policies(text).unwrap()["x"].build(1).err().unwrap().to_string();
        assert!(why("[x.schemes]\nuse = ['ethp']").contains("not simulated"));
        assert!(why("[x.schemes]\nuse = ['4K null 0']").starts_with("`4K null 0`: "));
        assert!(why("[x.age]\nanon = '1s'\nevery = '0s'").contains("every"));
        assert!(why("[x.age]\nevery = '1s'").contains("neither"));
    }
}
