//! The Kubernetes management cluster beside this manager.

use super::settings::{AdmissionWebhook, Settings};
use crate::api::{ADMISSION_PATH, InternalApi, admission_router};
use crate::engine::Handle;
use crate::random;
use crate::tls::Authorities;
use axum::Router;
use meridian_kubernetes::ConnectionSettings;
use meridian_manager_kubernetes::{
    Management, ManagementSettings, RequestCount, WebhookAddress, WebhookSettings, engine_client,
};
use meridian_shared::ids::JournalId;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Connects to the management cluster, if one is set. Fails if it can't be used with these settings.
pub(super) async fn connect(settings: &Settings) -> anyhow::Result<Option<Management>> {
    let Some(cluster) = &settings.management_cluster else { return Ok(None) };
    let connection =
        ConnectionSettings { kubeconfig: cluster.kubeconfig.clone(), context: cluster.context.clone() };
    Ok(Some(Management::open(ManagementSettings { connection, lease: cluster.lease.clone() }).await?))
}

/// Pause before the authority is published again after a failure.
const PUBLISH_AGAIN: Duration = Duration::from_secs(10);

/// Publishes the manager's authority in a ConfigMap, and tries until that is done.
pub(super) async fn publish_authority(name: String, pem: String) {
    while let Err(error) = meridian_manager_kubernetes::publish_authority(&name, &pem).await {
        tracing::warn!(
            config_map = name,
            %error,
            "the manager's authority could not be published: trying again"
        );
        tokio::time::sleep(PUBLISH_AGAIN).await;
    }
    tracing::info!(config_map = name, "published the manager's authority");
}

/// The webhook of the management cluster, if it is on: its settings, and the router that serves it.
pub(super) fn webhook(
    settings: &Settings,
    authorities: &Authorities,
    url: &str,
    api: &Router,
) -> anyhow::Result<Option<(WebhookSettings, Router)>> {
    let cluster = settings.management_cluster.as_ref();
    let Some(webhook) = cluster.and_then(|cluster| cluster.webhook.as_ref()) else { return Ok(None) };
    let address = match webhook.clone() {
        AdmissionWebhook::Url => WebhookAddress::Url(url.to_owned()),
        AdmissionWebhook::Service { namespace, name, port } => {
            WebhookAddress::Service { namespace, name, port }
        }
    };
    let secret = format!("{:032x}", u128::from_be_bytes(random::bytes()?));
    let path = format!("{ADMISSION_PATH}{secret}");
    let authority = authorities.server_ca_pem().to_owned();
    Ok(Some((WebhookSettings { address, path, authority }, admission_router(api.clone(), &secret))))
}

/// A connection to the management cluster, and the API that its controllers use.
pub(super) struct ManagementTask {
    pub(super) management: Management,
    pub(super) journal: JournalId,
    pub(super) api: Router,
    pub(super) engine: Handle,
    pub(super) webhook: Option<WebhookSettings>,
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
        let replica = self.journal.to_string();
        self.management.run(replica, client, self.webhook, Arc::new(count), stop).await;
    }
}
