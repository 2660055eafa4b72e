//! When the controllers act: while this installation has the claim of the cluster, and this replica has the
//! Lease.

use super::{Extras, Management, Shared, WORKERS};
use crate::claim::{Claim, Owner};
use crate::perform::{Performer, RequestCounts};
use kube::Client;
use meridian_kubernetes::Error;
use meridian_kubernetes::election::{self, ElectionSettings, Leader};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Pause before a manager that may not act tries again.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// What identifies this manager to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Its journal: one process at a time uses it.
    pub journal: String,
    /// The pin of the authority that its agents trust.
    pub authority: String,
}

/// Called with the reason why the manager doesn't act for the cluster, and with `None` once it does.
pub type Absences = Arc<dyn Fn(Option<&Error>) + Send + Sync>;

impl Management {
    /// Fails if another installation acts for the cluster. `authority` is this installation's; `None` before
    /// its first start.
    pub async fn check_claim(&self, authority: Option<String>) -> Result<(), Error> {
        self.claim(authority).check().await
    }

    fn claim(&self, authority: Option<String>) -> Claim {
        let namespace = self.connection.namespace().to_owned();
        let own = Owner { namespace, lease: self.settings.lease.clone(), authority };
        Claim::new(self.connection.client.clone(), own)
    }

    /// Keeps the management cluster and the manager in line until `stop` is cancelled. `manager` is a client
    /// of the manager's own API.
    pub async fn run(
        self,
        installation: Installation,
        manager: Client,
        extras: Extras,
        count: RequestCounts,
        absence: Absences,
        stop: CancellationToken,
    ) {
        let claim = self.claim(Some(installation.authority));
        let mut known: Option<String> = None;
        while !stop.is_cancelled() {
            match self.lead(&claim, &installation.journal, &stop).await {
                Ok(Some(leader)) => {
                    known = None;
                    absence(None);
                    self.act(&leader, &claim, manager.clone(), &extras, count.clone(), &stop).await;
                }
                Ok(None) => return,
                Err(error) => {
                    absence(Some(&error));
                    // the same failure is logged once
                    let text = error.to_string();
                    if known.as_ref() != Some(&text) {
                        tracing::error!(%error, "this manager doesn't act for the management cluster");
                        known = Some(text);
                    }
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(TRY_AGAIN) => {}
                    }
                }
            }
        }
    }

    /// Waits until this replica may act, or returns `None` when `stop` is cancelled first. Fails if another
    /// installation acts, or a right is missing.
    async fn lead(
        &self,
        claim: &Claim,
        journal: &str,
        stop: &CancellationToken,
    ) -> Result<Option<Leader>, Error> {
        while claim.hold(stop).await? {
            let lease = ElectionSettings {
                namespace: self.connection.namespace().to_owned(),
                name: self.settings.lease.clone(),
                replica: journal.to_owned(),
                life: std::process::id().to_string(),
            };
            let Some(leader) = election::acquire(&self.connection, lease, stop, || ()).await? else {
                break;
            };
            // the wait for the Lease may have been long
            match claim.lost().await {
                Ok(None) => return Ok(Some(leader)),
                Ok(Some(why)) => {
                    tracing::warn!(why, "the claim was lost while this manager waited for the Lease");
                    leader.release().await;
                }
                Err(error) => {
                    leader.release().await;
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Runs the controllers until `stop` is cancelled, or this replica may no longer act.
    async fn act(
        &self,
        leader: &Leader,
        claim: &Claim,
        manager: Client,
        extras: &Extras,
        count: RequestCounts,
        stop: &CancellationToken,
    ) {
        tracing::info!(lease = self.settings.lease, "this manager acts for the management cluster");
        let cluster = self.connection.client.clone();
        let performer = Performer::new(cluster.clone(), manager.clone(), count);
        let shared = Arc::new(Shared::new(performer, leader.clone()));
        let mut tasks = JoinSet::new();
        for _ in 0..WORKERS {
            tasks.spawn(Arc::clone(&shared).work());
        }
        tasks.spawn(Arc::clone(&shared).vouch_for_rules());
        if let Some(webhook) = extras.webhook.clone() {
            tasks.spawn(Arc::clone(&shared).keep_webhook(webhook));
        }
        if let Some(hosting) = extras.hosting.clone() {
            tasks.spawn(Arc::clone(&shared).follow_kubeconfigs(hosting));
        }
        tasks.spawn(Arc::clone(&shared).follow_kinds(cluster, manager));
        tokio::select! {
            () = stop.cancelled() => {}
            why = leader.keep_unless(|| claim.lost()) => {
                tracing::error!(why, "this manager no longer acts for the management cluster");
            }
        }
        tasks.shutdown().await;
        leader.release().await;
    }
}
