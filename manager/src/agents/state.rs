//! State that the handlers of agents share.

use super::budget::Budgets;
use super::joins::Joins;
use super::log_relay::LogRelay;
use super::request::Failure;
use crate::engine::Handle;
use crate::tls::Authorities;
use axum::http::StatusCode;
use meridian_manager_core::facts::key::Key;
use meridian_objects::Kind;
use meridian_shared::ids::{ClusterName, Jurisdiction, Region};
use meridian_shared::time::Millis;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

/// What the endpoints need from the rest of the manager.
#[derive(Clone, Debug)]
pub struct Parts {
    pub engine: Handle,
    pub authorities: Arc<Authorities>,
    pub relay: LogRelay,
    /// How long a poll is parked.
    pub poll: Millis,
    /// Validity of an agent's certificate.
    pub certificate_lifetime: Millis,
    /// Ends parked requests.
    pub stop: CancellationToken,
}

#[derive(Debug)]
pub(super) struct Agents {
    pub(super) parts: Parts,
    budgets: Budgets,
    pub(super) joins: Joins,
}

/// A cluster as the journal's `Cluster` object describes it.
#[derive(Clone, Debug)]
pub(super) struct ClusterPlace {
    pub(super) cluster: ClusterName,
    pub(super) region: Region,
    pub(super) jurisdiction: Jurisdiction,
}

impl Agents {
    pub(super) fn new(parts: Parts) -> Self {
        Self { parts, budgets: Budgets::default(), joins: Joins::default() }
    }

    /// Takes one request out of a cluster's budget, for as long as the permit lives. Fails if the budget is
    /// used up.
    pub(super) fn enter(&self, cluster: &ClusterName) -> Result<OwnedSemaphorePermit, Failure> {
        let entered = self.budgets.enter(cluster);
        if entered.is_err() {
            // a safe label: the name comes from a certificate that this manager issued
            self.parts.engine.metrics().agents.requests_refused.inc([cluster.as_str()]);
        }
        entered
    }

    /// The place of a cluster by its `Cluster` object. Fails if the object was removed, which revokes the
    /// agent.
    pub(super) fn place(&self, cluster: &ClusterName) -> Result<ClusterPlace, Failure> {
        let view = self.parts.engine.reads().get(&Key::global(Kind::Cluster, cluster.as_str()));
        let place = view.as_ref().and_then(|view| {
            let spec = view.value.get("spec")?;
            Some(ClusterPlace {
                cluster: cluster.clone(),
                region: Region::new(spec.get("region")?.as_str()?),
                jurisdiction: Jurisdiction::new(spec.get("jurisdiction")?.as_str()?),
            })
        });
        place.ok_or_else(|| {
            Failure::new(
                StatusCode::FORBIDDEN,
                format!("cluster `{cluster}` was removed, and its agent's access was revoked"),
            )
        })
    }
}
