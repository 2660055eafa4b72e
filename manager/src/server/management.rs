//! The Kubernetes management cluster beside this manager.

use super::settings::Settings;
use crate::api::InternalApi;
use crate::engine::Handle;
use axum::Router;
use meridian_kubernetes::ConnectionSettings;
use meridian_manager_kubernetes::{Management, ManagementSettings, RequestCount, engine_client};
use meridian_shared::ids::JournalId;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Connects to the management cluster, if one is set. Fails if it can't be used with these settings.
pub(super) async fn connect(settings: &Settings) -> anyhow::Result<Option<Management>> {
    let Some(cluster) = &settings.management_cluster else { return Ok(None) };
    let connection =
        ConnectionSettings { kubeconfig: cluster.kubeconfig.clone(), context: cluster.context.clone() };
    Ok(Some(Management::open(ManagementSettings { connection, lease: cluster.lease.clone() }).await?))
}

/// A connection to the management cluster, and the API that its controllers use.
pub(super) struct ManagementTask {
    pub(super) management: Management,
    pub(super) journal: JournalId,
    pub(super) api: Router,
    pub(super) engine: Handle,
}

impl ManagementTask {
    /// Keeps the cluster and this manager in line, from the time when this manager leads.
    pub(super) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = self.engine.led() => {}
            () = stop.cancelled() => return,
        }
        let requests = self.engine.metrics().management.requests.clone();
        let count = move |request: RequestCount| requests.inc([request.verb, request.resource.as_str()]);
        let client = engine_client(InternalApi::new(self.api));
        self.management.run(self.journal.to_string(), client, Arc::new(count), stop).await;
    }
}
