//! The client of the API server, and the checks before its first use.

use crate::error::Error;
use crate::kubeconfig::KubeconfigSource;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, PostParams};
use kube::config::KubeConfigOptions;
use kube::{Api, Config};
use std::time::Duration;

pub use kube::Client;

/// Longest wait for one answer. Watches and logs are not bounded by it.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// The program that connects, and its requirements on the server.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// `agent` or `manager`.
    pub name: &'static str,
    /// The oldest supported minor version of Kubernetes 1.
    pub minor_min: u32,
    /// Features that older versions lack.
    pub needs: &'static str,
    pub permissions: &'static [Permission],
}

/// The API server to connect to, and the user to connect as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// `None`: the service account of the pod that this process runs in.
    pub kubeconfig: Option<KubeconfigSource>,
    /// A context of the kubeconfig; `None` for its current one.
    pub context: Option<String>,
}

/// A checked connection to one API server.
#[derive(Clone)]
pub struct Connection {
    pub client: Client,
    program: &'static str,
    server: String,
    version: String,
    /// The namespace of the program itself.
    namespace: String,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("server", &self.server).field("version", &self.version).finish()
    }
}

impl Connection {
    /// Connects, and checks the server's version and the account's permissions. Fails if the settings can't
    /// be used, the server doesn't answer or is too old, or permissions are missing, which the error lists.
    pub async fn open(settings: &ConnectionSettings, program: &Program) -> Result<Self, Error> {
        let config = config(settings).await?;
        let server = config.cluster_url.to_string();
        let doing = || format!("reach the API server `{server}`");
        let client = Client::try_from(config).map_err(|source| Error::request(doing(), source))?;
        let namespace = client.default_namespace().to_owned();
        let info = within(doing(), client.apiserver_version()).await?;
        let minor: String = info.minor.chars().take_while(char::is_ascii_digit).collect();
        if info.major == "1" && minor.parse::<u32>().is_ok_and(|minor| minor < program.minor_min) {
            let Program { name, minor_min, needs, .. } = *program;
            return Err(Error::TooOld { program: name, found: info.git_version, minor_min, needs });
        }
        let this = Self { client, program: program.name, server, version: info.git_version, namespace };
        this.check_permissions(program.permissions).await?;
        Ok(this)
    }

    /// The URL of the API server, for messages.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Version of the server, such as `v1.36.3`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The namespace of the program's own objects.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Identity of the cluster: the uid of its namespace `kube-system`, which lives as long as the cluster.
    /// `None` if the cluster has none. Fails if the API server refuses or doesn't answer.
    pub async fn cluster_uid(&self) -> Result<Option<String>, Error> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        // a list instead of a get, because a program that watches namespaces has permission to list them
        let named = ListParams::default().fields("metadata.name=kube-system");
        let found = within("read the namespace `kube-system`".to_owned(), namespaces.list(&named)).await?;
        Ok(found.items.into_iter().next().and_then(|namespace| namespace.metadata.uid))
    }

    /// Fails with all missing permissions.
    pub async fn check_permissions(&self, needed: &[Permission]) -> Result<(), Error> {
        let program = self.program;
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let mut missing = Vec::new();
        // collect first, because a future that holds closures over all lifetimes can't be sent to another
        // thread
        let mut all = Vec::new();
        for (group, resource, verbs) in needed {
            for verb in *verbs {
                all.push((*verb, *group, *resource));
            }
        }
        for (verb, group, resource) in all {
            let (plain, subresource) = match resource.split_once('/') {
                Some((plain, sub)) => (plain, Some(sub.to_owned())),
                None => (resource, None),
            };
            let attributes = ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                resource: Some(plain.to_owned()),
                subresource,
                ..ResourceAttributes::default()
            };
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(attributes),
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            let params = PostParams::default();
            let asked = reviews.create(&params, &review);
            let answer = within(format!("ask whether the {program} may {verb} {resource}"), asked).await?;
            if !answer.status.is_some_and(|status| status.allowed) {
                let dot = if group.is_empty() { "" } else { "." };
                missing.push(format!("`{verb}` `{resource}{dot}{group}` in all namespaces"));
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(Error::Forbidden { program, missing }) }
    }
}

/// API group, resource and verbs, in all namespaces.
pub type Permission = (&'static str, &'static str, &'static [&'static str]);

async fn config(settings: &ConnectionSettings) -> Result<Config, Error> {
    let Some(source) = &settings.kubeconfig else {
        return Config::incluster().map_err(|source| Error::NotInAPod(Box::new(source)));
    };
    let options = KubeConfigOptions { context: settings.context.clone(), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(source.read()?, &options).await;
    let config = config.map_err(|error| source.failed(error))?;
    if config.accept_invalid_certs { Err(Error::Insecure) } else { Ok(config) }
}

/// Waits for an answer for a limited time. Fails if the request fails, or when time is up.
pub async fn within<T>(doing: String, request: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(ANSWER_WITHIN, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(Error::request(doing, source)),
        Err(_) => Err(Error::NoAnswer { doing, seconds: ANSWER_WITHIN.as_secs() }),
    }
}
