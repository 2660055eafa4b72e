//! The settings of one agent, fixed for its life.

use meridian_shared::ids::ClusterName;
use meridian_shared::managed::ManagedResources;
use meridian_shared::planted::Planted;
use meridian_shared::protocol::{HoldMethod, RunnerKind};
use meridian_shared::time::Millis;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    pub cluster: ClusterName,
    pub runner: RunnerKind,
    /// Whether gangs end by themselves at the lapse of their lease.
    pub guarded: bool,
    /// The region that the agent detected, if it could.
    pub located: Option<Arc<str>>,
    /// Identity of this boot of the machine: boot-time deadlines are valid on one boot only.
    pub boot: u128,
    /// How long pods of a lost node wait for another node when none has capacity; zero ends their gang at
    /// once.
    pub replacement_wait: Millis,
    pub holds: HoldSettings,
    /// The resources that the provider makes nodes for.
    pub managed: ManagedResources,
    /// A bug planted by a test.
    pub planted: Planted,
}

/// What a hold needs in addition to the ledger's allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HoldSettings {
    /// Whether the objects that an offer's pods name are looked up in the cluster before anything is held.
    pub checks_references: bool,
    pub method: HoldMethod,
}
