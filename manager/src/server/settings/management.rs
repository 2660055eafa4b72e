//! The settings of a Kubernetes management cluster.

use super::{Error, File};
use clap::Args;
use meridian_shared::copies::CopiedKind;
use meridian_shared::protocol::ReferenceKind;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Default name of the Lease.
const LEASE_NAME: &str = "meridian-manager";

/// The flags of the management cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct ManagementArgs {
    /// Take jobs, queues and policies from a Kubernetes management cluster too, and show their state there
    #[arg(long, env = "MERIDIAN_MANAGER_KUBERNETES")]
    pub kubernetes: bool,
    /// With `--kubernetes`: the kubeconfig of the management cluster [default: the cluster that this process
    /// is a pod of]
    #[arg(long, value_name = "FILE", env = "MERIDIAN_MANAGER_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// With `--kubernetes`: a context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", env = "MERIDIAN_MANAGER_CONTEXT")]
    pub context: Option<String>,
    /// With `--kubernetes`: name of the Lease by which one manager acts for the cluster [default:
    /// meridian-manager]
    #[arg(long, value_name = "NAME", env = "MERIDIAN_MANAGER_LEASE_NAME")]
    pub lease_name: Option<String>,
    /// With `--kubernetes`: its API servers ask this manager before they store a job, at `url`, the manager's
    /// own URL, or at a Service, `NAMESPACE/NAME:PORT` [default: they don't ask]
    #[arg(long, value_name = "WHERE", env = "MERIDIAN_MANAGER_ADMISSION_WEBHOOK")]
    pub admission_webhook: Option<String>,
    /// With `--kubernetes`: run the agents of MultiKueueClusters whose kubeconfig Secrets are in this
    /// namespace. Jobs then wait for a lost cluster, unless their policy requires guards [default: agents run
    /// in their clusters]
    #[arg(long, value_name = "NAMESPACE", env = "MERIDIAN_MANAGER_HOST_CLUSTERS")]
    pub host_clusters: Option<String>,
    /// With `--kubernetes`: what jobs name is copied into the worker clusters that run them: `config-maps`,
    /// `secrets` (those with the label `meridian.dev/copy: "true"`) or both [default: nothing]
    #[arg(long, value_name = "KINDS", env = "MERIDIAN_MANAGER_COPY_REFERENCES", value_delimiter = ',')]
    pub copy_references: Vec<CopiedKind>,
}

/// The Kubernetes cluster where people submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManagementCluster {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) context: Option<String>,
    pub(crate) lease: String,
    pub(crate) webhook: Option<AdmissionWebhook>,
    /// Namespace with the kubeconfigs of the clusters whose agents run here.
    pub(crate) host_clusters: Option<String>,
    /// Kinds of objects that worker clusters may get copies of.
    pub(crate) copied: BTreeSet<ReferenceKind>,
}

impl ManagementCluster {
    /// The name by which API servers call the webhook's Service. The server's certificate must contain it.
    pub(super) fn webhook_host(&self) -> Option<String> {
        match self.webhook.as_ref()? {
            AdmissionWebhook::Service { namespace, name, .. } => Some(format!("{name}.{namespace}.svc")),
            AdmissionWebhook::Url => None,
        }
    }
}

/// Address of the webhook for API servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionWebhook {
    /// At the manager's own URL.
    Url,
    Service {
        namespace: String,
        name: String,
        port: u16,
    },
}

impl AdmissionWebhook {
    fn parse(text: &str) -> Result<Self, Error> {
        if text == "url" {
            return Ok(Self::Url);
        }
        let service = || {
            let (namespace, rest) = text.split_once('/')?;
            let (name, port) = rest.split_once(':')?;
            let is_label = |text: &str| !text.is_empty() && !text.contains(['/', ':', '.']);
            let port = port.parse().ok().filter(|port| *port > 0)?;
            (is_label(namespace) && is_label(name)).then(|| Self::Service {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                port,
            })
        };
        service().ok_or_else(|| {
            let what = format!("`{text}` is neither `url` nor a Service, `NAMESPACE/NAME:PORT`");
            Error::invalid("admission-webhook", what)
        })
    }
}

/// Resolves the settings. Fails if a setting for a management cluster is given, but `kubernetes` isn't set.
pub(super) fn resolve(given: ManagementArgs, file: &mut File) -> Result<Option<ManagementCluster>, Error> {
    let is_used = given.kubernetes || file.kubernetes;
    let kubeconfig = given.kubeconfig.or(file.kubeconfig.take());
    let context = given.context.or(file.context.take());
    let lease = given.lease_name.or(file.lease_name.take());
    let webhook = given.admission_webhook.or(file.admission_webhook.take());
    let host_clusters = given.host_clusters.or(file.host_clusters.take());
    let filed = std::mem::take(&mut file.copy_references);
    let copied = if given.copy_references.is_empty() { filed } else { given.copy_references };
    let set = [
        ("kubeconfig", kubeconfig.is_some()),
        ("context", context.is_some()),
        ("lease-name", lease.is_some()),
        ("admission-webhook", webhook.is_some()),
        ("host-clusters", host_clusters.is_some()),
        ("copy-references", !copied.is_empty()),
    ];
    if let Some((flag, _)) = set.into_iter().find(|(_, is_set)| *is_set && !is_used) {
        return Err(Error::invalid(flag, "it is for a management cluster: set `kubernetes` too"));
    }
    let lease = lease.unwrap_or_else(|| LEASE_NAME.to_owned());
    let webhook = webhook.as_deref().map(AdmissionWebhook::parse).transpose()?;
    if host_clusters.as_ref().is_some_and(|namespace| namespace.is_empty() || namespace.contains('/')) {
        return Err(Error::invalid("host-clusters", "it must be the name of a namespace"));
    }
    let copied = copied.into_iter().map(CopiedKind::kind).collect();
    let cluster = ManagementCluster { kubeconfig, context, lease, webhook, host_clusters, copied };
    Ok(is_used.then_some(cluster))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_of_a_management_cluster() {
        let both = vec![CopiedKind::Secrets, CopiedKind::ConfigMaps];
        let alone = ManagementArgs { copy_references: both.clone(), ..ManagementArgs::default() };
        let error = resolve(alone, &mut File::default()).unwrap_err().to_string();
        assert_eq!(error, "`--copy-references`: it is for a management cluster: set `kubernetes` too");
        let mut file = File { kubernetes: true, copy_references: both, ..File::default() };
        let cluster = resolve(ManagementArgs::default(), &mut file).unwrap().unwrap();
        assert_eq!(cluster.copied, BTreeSet::from([ReferenceKind::ConfigMap, ReferenceKind::Secret]));
        let mut file = File { copy_references: vec![CopiedKind::Secrets], ..File::default() };
        let flag = ManagementArgs {
            kubernetes: true,
            copy_references: vec![CopiedKind::ConfigMaps],
            ..ManagementArgs::default()
        };
        let cluster = resolve(flag, &mut file).unwrap().unwrap();
        assert_eq!(cluster.copied, BTreeSet::from([ReferenceKind::ConfigMap]), "the flag wins");
    }

    #[test]
    fn a_webhook_is_at_the_managers_url_or_at_a_service() {
        assert_eq!(AdmissionWebhook::parse("url").unwrap(), AdmissionWebhook::Url);
        let service = AdmissionWebhook::parse("meridian/manager:7443").unwrap();
        let (namespace, name) = ("meridian".to_owned(), "manager".to_owned());
        assert_eq!(service, AdmissionWebhook::Service { namespace, name, port: 7443 });
        for wrong in ["", "manager", "manager:7443", "a/b", "a/b:0", "a/b:70000", "a.b/c:1", "a/b/c:1"] {
            let error = AdmissionWebhook::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("neither `url` nor a Service"), "{wrong}: {error}");
        }
        let cluster = ManagementArgs {
            kubernetes: true,
            admission_webhook: Some("meridian/manager:7443".to_owned()),
            ..ManagementArgs::default()
        };
        let cluster = resolve(cluster, &mut File::default()).unwrap().unwrap();
        assert_eq!(cluster.webhook_host().as_deref(), Some("manager.meridian.svc"));
    }
}
