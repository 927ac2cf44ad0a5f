//! Policies as they stand in a file: a table for each, by a name of the user's, that says which policy it is.
//!
//! ```toml
//! [wmo.age]
//! anon = "10s"
//!
//! [prcl.schemes]
//! use = ["prcl-tuned"]
//! ```
//!
//! A new policy is a file with its settings, which implement [`PolicySettings`], and a line in the registry below.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use lowtide_model::units::Span;
use serde::{Deserialize, Serialize};

use crate::guard::GuardSettings;
use crate::lifecycle::LifecycleSettings;
use crate::machine::{
    Observation, Policy, RegionAction, RegionObservation, RegionPolicy, WorkloadAction, WorkloadPolicy,
};
use crate::reclaim::age::AgeSettings;
use crate::reclaim::auto::AutoSettings;
use crate::reclaim::headroom::HeadroomSettings;
use crate::reclaim::pressure::PressureSettings;
use crate::reclaim::promotion::PromotionSettings;
use crate::replay::Replayed;
use crate::schemes::settings::{Regions, Schemes};

/// A file's policies, by name.
pub type Policies = BTreeMap<String, Spec>;

/// The settings of a policy.
pub trait PolicySettings: Debug {
    /// The usual ones; `None` where a policy needs to be given some.
    fn usual() -> Option<Self>
    where
        Self: Sized;

    /// The policy; everything random in it follows from the seed.
    ///
    /// # Errors
    /// What makes no sense in the settings.
    fn build(&self, seed: u64) -> Result<AnyPolicy, PolicyError>;

    /// How it is replayed over recordings, or why it cannot be.
    ///
    /// # Errors
    /// Why it cannot be.
    fn replayed(&self) -> Result<Replayed, &'static str>;

    /// Idle ages that it must be given.
    fn ages(&self) -> Vec<Span> {
        Vec::new()
    }

    /// Its schemes, if it is made of schemes.
    fn regions(&self) -> Option<Result<Regions, PolicyError>> {
        None
    }

    /// The policy as the laws are tried on it, with a quota of bytes a second where it has quotas; `None` if it has laws of its own.
    #[cfg(test)]
    fn trial(quota: Option<u64>, seed: u64) -> Option<AnyPolicy>
    where
        Self: Sized;
}

macro_rules! registry {
    ($($(#[$doc:meta])* $policy:ident($name:literal, $settings:ty),)*) => {
        /// A policy with its settings.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub enum Spec {
            $($(#[$doc])* #[serde(rename = $name)] $policy($settings),)*
        }

        impl Spec {
            /// The policy of that name with its usual settings.
            pub fn built_in(name: &str) -> Option<Self> {
                match name {
                    $($name => <$settings>::usual().map(Self::$policy),)*
                    _ => None,
                }
            }

            /// Names of policies that need no file: each with its usual settings.
            pub fn built_in_names() -> Vec<&'static str> {
                [$($name),*].into_iter().filter(|name| Self::built_in(name).is_some()).collect()
            }

            /// Its settings.
            pub fn settings(&self) -> &dyn PolicySettings {
                match self {
                    $(Self::$policy(settings) => settings,)*
                }
            }

            /// Every policy as the laws are tried on it.
            #[cfg(test)]
            pub fn trials(quota: Option<u64>, seed: u64) -> Vec<(&'static str, AnyPolicy)> {
                let all = [$(($name, <$settings>::trial(quota, seed))),*];
                all.into_iter().filter_map(|(name, policy)| Some((name, policy?))).collect()
            }
        }
    };
}

registry! {
    /// Everything colder than a threshold.
    Age("age", AgeSettings),
    /// The youngest age that is predicted to cost little, found from the last minutes.
    Auto("auto", AutoSettings),
    /// Workloads that thrash get their memory one after the other.
    Guard("guard", GuardSettings),
    /// What was used within a window, and a share more.
    Headroom("headroom", HeadroomSettings),
    /// Workloads in the background.
    Lifecycle("lifecycle", LifecycleSettings),
    /// A little at a time, as long as nothing stalls.
    Pressure("pressure", PressureSettings),
    /// The youngest age with few refaults, found from the last hours.
    Promotion("promotion", PromotionSettings),
    /// Operation schemes.
    Schemes("schemes", Schemes),
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
pub struct PolicyError(pub String);

impl From<&str> for PolicyError {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}

impl Spec {
    /// The policy; everything random in it follows from the seed.
    ///
    /// # Errors
    /// What makes no sense in its settings.
    pub fn build(&self, seed: u64) -> Result<AnyPolicy, PolicyError> {
        self.settings().build(seed)
    }

    /// Whether it decides from regions rather than histograms.
    pub fn wants_regions(&self) -> bool {
        self.settings().regions().is_some()
    }
}

/// Checks a time between two rounds.
pub(crate) fn often(every: Span) -> Result<(), PolicyError> {
    if every.0 < Duration::from_millis(1) { Err("every is a time above 0".into()) } else { Ok(()) }
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
