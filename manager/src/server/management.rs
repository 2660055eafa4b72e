//! The Kubernetes management cluster beside this manager.

use super::hosted::Host;
use super::settings::{AdmissionWebhook, Settings};
use crate::agents::CopySource;
use crate::api::{ADMISSION_PATH, InternalApi, admission_router};
use crate::engine::Handle;
use crate::random;
use crate::tls::Authorities;
use axum::Router;
use futures::future::BoxFuture;
use meridian_kubernetes::{ConnectionSettings, KubeconfigSource};
use meridian_manager_kubernetes::hosting::{HostedClusters, Hosting};
use meridian_manager_kubernetes::{
    CopyReader, Extras, Management, ManagementSettings, RequestCount, WebhookAddress, WebhookSettings,
    engine_client,
};
use meridian_shared::copies::CopyOutcome;
use meridian_shared::ids::JournalId;
use meridian_shared::protocol::Reference;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Connects to the management cluster, if one is set. Fails if it can't be used with these settings.
pub(super) async fn connect(settings: &Settings) -> anyhow::Result<Option<Management>> {
    let Some(cluster) = &settings.management_cluster else { return Ok(None) };
    let connection = ConnectionSettings {
        kubeconfig: cluster.kubeconfig.clone().map(KubeconfigSource::File),
        context: cluster.context.clone(),
    };
    let (lease, copied) = (cluster.lease.clone(), cluster.copied.clone());
    Ok(Some(Management::open(ManagementSettings { connection, lease, copied }).await?))
}

/// What worker clusters get copies of, if that is anything.
pub(super) fn copies(management: &Management) -> Option<Arc<dyn CopySource>> {
    management.copies().map(|reader| Arc::new(reader) as Arc<dyn CopySource>)
}

impl CopySource for CopyReader {
    fn read<'a>(
        &'a self,
        namespace: &'a str,
        reference: &'a Reference,
        with_content: bool,
    ) -> BoxFuture<'a, Result<CopyOutcome, String>> {
        let reading = CopyReader::read(self, namespace, reference, with_content);
        Box::pin(async { reading.await.map_err(|error| error.to_string()) })
    }
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

/// A host, and the clusters whose agents it runs.
pub(super) type HostTask = (Arc<Host>, watch::Receiver<HostedClusters>);

/// The host of agents for clusters that only a kubeconfig reaches, if it is on, and how the controllers reach
/// it.
pub(super) fn host(
    settings: &Settings,
    engine: &Handle,
    authorities: &Arc<Authorities>,
    url: &str,
    dir: PathBuf,
) -> Option<(Hosting, HostTask)> {
    let namespace = settings.management_cluster.as_ref()?.host_clusters.clone()?;
    let (clusters, wanted) = watch::channel(HostedClusters::new());
    let (failures, failed) = watch::channel(BTreeMap::new());
    let host = Host {
        engine: engine.clone(),
        authorities: Arc::clone(authorities),
        url: url.to_owned(),
        dir,
        failures,
    };
    Some((Hosting { namespace, clusters, failures: failed }, (Arc::new(host), wanted)))
}

/// A connection to the management cluster, and the API that its controllers use.
pub(super) struct ManagementTask {
    management: Management,
    journal: JournalId,
    api: Router,
    engine: Handle,
    duties: Duties,
}

/// What the settings ask of the controllers, beside keeping the cluster and this manager in line.
pub(super) struct Duties {
    pub(super) extras: Extras,
    pub(super) host: Option<HostTask>,
}

impl ManagementTask {
    pub(super) fn new(
        management: Management,
        journal: JournalId,
        api: Router,
        engine: Handle,
        duties: Duties,
    ) -> Self {
        Self { management, journal, api, engine, duties }
    }

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
        let Duties { extras, host } = self.duties;
        let host = host.map(|(host, clusters)| tokio::spawn(host.run(clusters, stop.clone())));
        self.management.run(replica, client, extras, Arc::new(count), stop).await;
        if let Some(host) = host {
            let _ = host.await;
        }
    }
}
