//! State that the handlers of agents share.

use super::budget::Budgets;
use super::copies::CopySource;
use super::issuers::{Issuers, TrustedAgent};
use super::joins::Joins;
use super::log_relay::LogRelay;
use super::request::Failure;
use crate::engine::Handle;
use crate::log_limit::LogLimit;
use crate::tls::Authorities;
use meridian_shared::ids::ClusterName;
use meridian_shared::time::Millis;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

/// Parts of the manager that the endpoints use.
#[derive(Clone, Debug)]
pub struct Parts {
    pub engine: Handle,
    pub authorities: Arc<Authorities>,
    pub relay: LogRelay,
    /// How long a poll is parked.
    pub poll: Millis,
    /// Validity of an agent's certificate.
    pub certificate_lifetime: Millis,
    /// Agents that may join by their service account.
    pub trusted: Vec<TrustedAgent>,
    /// The source of copies for worker clusters; `None` if nothing is copied.
    pub copies: Option<Arc<dyn CopySource>>,
    /// Ends parked requests.
    pub stop: CancellationToken,
}

#[derive(Debug)]
pub(super) struct Agents {
    pub(super) parts: Parts,
    budgets: Budgets,
    /// Refused certificates that were logged.
    pub(super) refusals: LogLimit<ClusterName>,
    pub(super) joins: Joins,
    pub(super) issuers: Issuers,
}

impl Agents {
    pub(super) fn new(mut parts: Parts) -> Self {
        let issuers = Issuers::new(std::mem::take(&mut parts.trusted));
        Self {
            parts,
            budgets: Budgets::default(),
            refusals: LogLimit::default(),
            joins: Joins::default(),
            issuers,
        }
    }

    /// Takes one request out of a cluster's budget, for as long as the permit lives. Fails if the budget is
    /// used up.
    pub(super) fn enter(&self, cluster: &ClusterName) -> Result<OwnedSemaphorePermit, Failure> {
        let entered = self.budgets.enter(cluster);
        if entered.is_err() {
            // The label is bounded, because the name comes from a certificate that this manager issued.
            self.parts.engine.metrics().agents.requests_refused.inc([cluster.as_str()]);
        }
        entered
    }
}
