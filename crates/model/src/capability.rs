//! What a kernel may offer: whether it is there, how that was found out, what it gives, how to get it.

use serde::Serialize;

/// Whether a capability is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// There, and usable now.
    Yes,
    /// There, but held by someone else or not permitted now.
    Blocked,
    /// Not there.
    No,
}

/// One capability as found on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// Short name, for example `damon-paddr`.
    pub name: &'static str,
    /// Whether it is there.
    pub state: State,
    /// What was read, and its content.
    pub how: String,
    /// What lowtide does with it.
    pub gives: &'static str,
    /// How to get it; empty where it is there.
    pub enable: String,
}
