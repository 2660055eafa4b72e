//! Connects this manager to its Kubernetes management cluster.

use super::hosted::Host;
use super::settings::{AdmissionWebhook, Settings};
use crate::agents::CopySource;
use crate::api::{ADMISSION_PATH, InternalApi, admission_router};
use crate::engine::Handle;
use crate::random;
use crate::tls::Authorities;
use axum::Router;
use futures::future::BoxFuture;
use meridian_kubernetes::{ConnectionSettings, Error, KubeconfigSource};
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Input, Operator};
use meridian_manager_kubernetes::hosting::{HostedClusters, Hosting};
use meridian_manager_kubernetes::{
    Absences, CopyReader, Extras, Installation, Management, ManagementSettings, RequestCount, WebhookAddress,
    WebhookSettings, engine_client,
};
use meridian_shared::copies::CopyOutcome;
use meridian_shared::ids::JournalId;
use meridian_shared::protocol::Reference;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

mod identity;

/// Longest wait for the management cluster before agents are served without it. Much shorter than the default
/// term, so that leases are renewed in time.
const FIRST_WAIT: Duration = Duration::from_secs(15);
/// Pause before the management cluster is tried again.
const CONNECT_AGAIN: Duration = Duration::from_secs(10);
/// The same failure is logged this often.
const LOG_AGAIN: Duration = Duration::from_secs(60);

/// Result of the first attempt to connect to the management cluster.
pub(super) struct Found {
    settings: ManagementSettings,
    data_dir: PathBuf,
    /// `None` while the management cluster can't be used.
    management: Option<Management>,
    /// Why the management cluster can't be used.
    absence: watch::Sender<Option<String>>,
    copies: Arc<Copies>,
}

/// Connects to the management cluster, if one is set. If the cluster is unreachable, a manager with a journal
/// starts without it, because agents need their leases renewed. Fails if the cluster can't be used with these
/// settings, or is unreachable at the first start. `identity` is the directory of the manager's authorities,
/// which may not exist yet.
pub(super) async fn connect(settings: &Settings, identity: &Path) -> anyhow::Result<Option<Found>> {
    let Some(cluster) = &settings.management_cluster else { return Ok(None) };
    let authority = Authorities::known_pin(identity)?.map(|pin| pin.to_string());
    let connection = ConnectionSettings {
        kubeconfig: cluster.kubeconfig.clone().map(KubeconfigSource::File),
        context: cluster.context.clone(),
    };
    let wanted =
        ManagementSettings { connection, lease: cluster.lease.clone(), copied: cluster.copied.clone() };
    let opening = open(wanted.clone(), &settings.data_dir, authority);
    let opened = if settings.init {
        opening.await
    } else {
        let late = || {
            let doing = "reach the management cluster".to_owned();
            Err(Error::NoAnswer { doing, seconds: FIRST_WAIT.as_secs() })
        };
        tokio::time::timeout(FIRST_WAIT, opening).await.unwrap_or_else(|_| late())
    };
    match opened {
        Ok(management) => Ok(Some(Found::new(wanted, &settings.data_dir, Some(management)))),
        Err(error) if settings.init || error.is_lasting() => Err(error.into()),
        Err(error) => {
            let found = Found::new(wanted, &settings.data_dir, None);
            found.absent(&error);
            tracing::warn!(
                %error,
                "the management cluster can't be used yet: nothing is dispatched until its policies are \
                 known, but agents are served; trying again"
            );
            Ok(Some(found))
        }
    }
}

/// Connects. Fails if the cluster is unreachable, if it isn't the cluster of earlier starts, or if another
/// manager acts for it.
async fn open(
    settings: ManagementSettings,
    data_dir: &Path,
    authority: Option<String>,
) -> Result<Management, Error> {
    let management = Management::open(settings).await?;
    match management.cluster_uid().await {
        Ok(Some(uid)) => identity::check(data_dir, management.server(), &uid)?,
        Ok(None) => {}
        Err(error) if error.is_refused() => {
            tracing::warn!(%error, "can't check that it is the management cluster of earlier starts");
        }
        Err(error) => return Err(error),
    }
    management.check_claim(authority).await?;
    Ok(management)
}

impl Found {
    fn new(settings: ManagementSettings, data_dir: &Path, management: Option<Management>) -> Self {
        let copies = Arc::new(Copies::default());
        if let Some(management) = &management {
            copies.fill(management);
        }
        let data_dir = data_dir.to_owned();
        Self { settings, data_dir, management, absence: watch::Sender::new(None), copies }
    }

    /// The source of copies for worker clusters, if any objects are copied.
    pub(super) fn copies(&self) -> Option<Arc<dyn CopySource>> {
        (!self.settings.copied.is_empty()).then(|| Arc::clone(&self.copies) as Arc<dyn CopySource>)
    }

    /// Why the management cluster can't be used, for probes.
    pub(super) fn absence(&self) -> watch::Receiver<Option<String>> {
        self.absence.subscribe()
    }

    fn absent(&self, error: &Error) {
        self.absence.send_replace(Some(absence_message(error)));
    }

    /// Tries until the cluster can be used. Also returns the channel for the reason why it can't be used
    /// later.
    async fn connected(mut self, authority: &str) -> (Management, watch::Sender<Option<String>>) {
        let mut logged = Instant::now();
        loop {
            if let Some(management) = self.management.take() {
                self.copies.fill(&management);
                self.absence.send_replace(None);
                return (management, self.absence);
            }
            tokio::time::sleep(CONNECT_AGAIN).await;
            match open(self.settings.clone(), &self.data_dir, Some(authority.to_owned())).await {
                Ok(management) => self.management = Some(management),
                Err(error) => {
                    self.absent(&error);
                    if logged.elapsed() >= LOG_AGAIN {
                        logged = Instant::now();
                        tracing::warn!(%error, "the management cluster still can't be used: trying again");
                    }
                }
            }
        }
    }
}

/// Why the cluster can't be used, for probes.
fn absence_message(error: &Error) -> String {
    format!("the management cluster can't be used: {error}")
}

/// Reads objects that are copied to worker clusters, once the management cluster can be used.
#[derive(Debug, Default)]
struct Copies {
    reader: OnceLock<CopyReader>,
}

impl Copies {
    fn fill(&self, management: &Management) {
        if let Some(reader) = management.copies() {
            let _ = self.reader.set(reader);
        }
    }
}

impl CopySource for Copies {
    fn read<'a>(
        &'a self,
        namespace: &'a str,
        reference: &'a Reference,
        with_content: bool,
    ) -> BoxFuture<'a, Result<CopyOutcome, String>> {
        let Some(reader) = self.reader.get() else {
            return Box::pin(async { Err("the management cluster can't be used yet".to_owned()) });
        };
        let reading = reader.read(namespace, reference, with_content);
        Box::pin(async { reading.await.map_err(|error| error.to_string()) })
    }
}

/// Pause before the authority is published again after a failure.
const PUBLISH_AGAIN: Duration = Duration::from_secs(10);

/// Publishes the manager's authority in a ConfigMap. Retries until that succeeds.
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

/// The host of agents for clusters that are reached by a kubeconfig, if it is on, and the channel by which
/// the controllers tell it the clusters.
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

/// The management cluster, and the API that its controllers use.
pub(super) struct ManagementTask {
    found: Found,
    installation: Installation,
    api: Router,
    engine: Handle,
    duties: Duties,
}

/// Tasks of the controllers that the settings enable, besides synchronising the cluster with this manager.
pub(super) struct Duties {
    pub(super) extras: Extras,
    pub(super) host: Option<HostTask>,
}

impl ManagementTask {
    pub(super) fn new(
        found: Found,
        journal: JournalId,
        authorities: &Authorities,
        api: Router,
        engine: Handle,
        duties: Duties,
    ) -> Self {
        let authority = authorities.ca_pin().to_string();
        let installation = Installation { journal: journal.to_string(), authority };
        Self { found, installation, api, engine, duties }
    }

    /// Synchronises the cluster with this manager, as soon as this manager leads and the cluster can be used.
    pub(super) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = self.engine.led() => {}
            () = stop.cancelled() => return,
        }
        let (management, absence) = tokio::select! {
            connected = self.found.connected(&self.installation.authority) => connected,
            () = stop.cancelled() => return,
        };
        let requests = self.engine.metrics().management.requests.clone();
        let count = move |request: RequestCount| requests.inc([request.verb, request.resource.as_str()]);
        let client = engine_client(InternalApi::new(self.api));
        let absences = absences(absence, self.engine);
        let Duties { extras, host } = self.duties;
        let host = host.map(|(host, clusters)| tokio::spawn(host.run(clusters, stop.clone())));
        management.run(self.installation, client, extras, Arc::new(count), absences, stop).await;
        if let Some(host) = host {
            let _ = host.await;
        }
    }
}

/// Says in probes why the manager doesn't act for the cluster. If another one does, this one dispatches
/// nothing more, because the other one has the same jobs.
fn absences(absence: watch::Sender<Option<String>>, engine: Handle) -> Absences {
    Arc::new(move |error| {
        absence.send_replace(error.map(absence_message));
        if error.is_some_and(Error::is_another_manager) {
            let engine = engine.clone();
            let doubt = Input::Operator { actor: Actor::System, action: Operator::DoubtRules };
            tokio::spawn(async move {
                if let Err(error) = engine.ask(doubt).await {
                    tracing::error!(%error, "another manager may have the same jobs, but dispatch goes on");
                }
            });
        }
    })
}

#[cfg(test)]
mod tests;
