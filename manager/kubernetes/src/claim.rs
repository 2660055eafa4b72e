//! The claim of a management cluster: it names the only installation of the manager that acts for the
//! cluster.
//!
//! Leases exclude managers of one namespace only. The claim is an annotation of one ClusterRole of the chart,
//! which is in no namespace, and which tenants of the cluster may not change. Unlike a Lease, it doesn't
//! lapse: while its manager is away, no other manager may start the same jobs a second time.
//!
//! Invariants:
//! - A claim of another installation is never replaced. An operator releases it.
//! - A claim that was free counts only if it is still ours after a wait.

use crate::MANAGER;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use meridian_kubernetes::Error;
use meridian_kubernetes::connection::within;
use meridian_kubernetes::election::DURATION;
use serde_json::json;
use std::fmt;
use tokio_util::sync::CancellationToken;

/// Name of the ClusterRole, which has the rights to itself. The chart makes it.
const NAME: &str = "meridian-management-cluster";
/// The annotation that names the installation.
const ANNOTATION: &str = "meridian.dev/manager";
/// Names the manager as the writer of fields.
const FIELD_MANAGER: &str = "meridian";

/// An installation of the manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Namespace of its Lease, which selects the replica that acts.
    pub(crate) namespace: String,
    pub(crate) lease: String,
    /// Pin of the authority that its agents trust: it outlives a lost journal. `None` before the first start.
    pub(crate) authority: Option<String>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.lease)?;
        self.authority.iter().try_for_each(|authority| write!(f, " {authority}"))
    }
}

/// Text for people about the installation that an annotation names.
fn described(annotation: &str) -> String {
    let (place, authority) = annotation.split_once(' ').unwrap_or((annotation, ""));
    match place.split_once('/') {
        Some((namespace, lease)) if authority.is_empty() => {
            format!("in namespace `{namespace}` with the Lease `{lease}`")
        }
        Some((namespace, lease)) => {
            format!("in namespace `{namespace}` with the Lease `{lease}` and the authority `{authority}`")
        }
        None => format!("that is called `{annotation}`"),
    }
}

/// The installation that a claim names, if any.
#[derive(Debug, PartialEq, Eq)]
enum Holder<'a> {
    Nobody,
    Own,
    Another(&'a str),
}

fn holder<'a>(object: &'a DynamicObject, own: &Owner) -> Holder<'a> {
    let annotations = object.metadata.annotations.as_ref();
    match annotations.and_then(|annotations| annotations.get(ANNOTATION)) {
        None => Holder::Nobody,
        Some(text) if own.authority.is_some() && *text == own.to_string() => Holder::Own,
        Some(text) => Holder::Another(text),
    }
}

/// The claim of one management cluster, for one installation.
#[derive(Clone)]
pub(crate) struct Claim {
    roles: Api<DynamicObject>,
    own: Owner,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("own", &self.own).finish_non_exhaustive()
    }
}

impl Claim {
    pub(crate) fn new(client: Client, own: Owner) -> Self {
        let gvk = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "ClusterRole");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "clusterroles");
        Self { roles: Api::all_with(client, &resource), own }
    }

    /// Fails if the claim names another installation, or can't be read.
    pub(crate) async fn check(&self) -> Result<(), Error> {
        let Some(object) = self.read().await? else { return Ok(()) };
        match holder(&object, &self.own) {
            Holder::Nobody | Holder::Own => Ok(()),
            Holder::Another(owner) => Err(self.another(owner)),
        }
    }

    /// Why the claim is lost; `None` if it is still ours. Fails if it can't be read.
    pub(crate) async fn lost(&self) -> Result<Option<String>, Error> {
        let object = self.read().await?;
        Ok(match object.as_ref().map(|object| holder(object, &self.own)) {
            Some(Holder::Own) => None,
            Some(Holder::Another(owner)) => Some(self.another(owner).to_string()),
            Some(Holder::Nobody) | None => {
                Some(format!("the ClusterRole `{NAME}` no longer names this manager"))
            }
        })
    }

    /// Takes the claim, and returns once it counts. False if `stop` is cancelled first. Fails if another
    /// installation has it, or a right is missing.
    pub(crate) async fn hold(&self, stop: &CancellationToken) -> Result<bool, Error> {
        while self.take().await? {
            tracing::info!(
                seconds = DURATION.as_secs(),
                "claimed the management cluster; waiting before acting for it"
            );
            // An installation whose claim was released by mistake stops writing meanwhile.
            tokio::select! {
                () = stop.cancelled() => return Ok(false),
                () = tokio::time::sleep(DURATION) => {}
            }
        }
        Ok(true)
    }

    /// Makes the claim ours. Returns whether it was free until now.
    pub(crate) async fn take(&self) -> Result<bool, Error> {
        let annotations = json!({ ANNOTATION: self.own.to_string() });
        let Some(object) = self.read().await? else {
            self.create(annotations).await?;
            return Ok(true);
        };
        match holder(&object, &self.own) {
            Holder::Own => Ok(false),
            Holder::Another(owner) => Err(self.another(owner)),
            Holder::Nobody => {
                // the version, so that of two installations only one gets it
                let version = &object.metadata.resource_version;
                let patch = json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
                let params =
                    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                asked("patch", self.roles.patch(NAME, &params, &Patch::Merge(patch))).await?;
                Ok(true)
            }
        }
    }

    async fn read(&self) -> Result<Option<DynamicObject>, Error> {
        asked("get", self.roles.get_opt(NAME)).await
    }

    /// Creates the same ClusterRole as the chart, if the manager's account has the right to.
    async fn create(&self, annotations: serde_json::Value) -> Result<(), Error> {
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "name": NAME, "labels": {"app.kubernetes.io/part-of": "meridian"}, "annotations": annotations,
            },
            "rules": [{
                "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
                "resourceNames": [NAME], "verbs": ["get", "patch"],
            }],
        });
        let doing = || format!("create the ClusterRole `{NAME}`");
        let object = serde_json::from_value(object)
            .map_err(|error| Error::request(doing(), kube::Error::SerdeError(error)))?;
        asked("create", self.roles.create(&PostParams::default(), &object)).await.map(drop)
    }

    fn another(&self, owner: &str) -> Error {
        Error::AnotherManager {
            owner: described(owner),
            own: described(&self.own.to_string()),
            release: format!("kubectl annotate clusterrole {NAME} {ANNOTATION}-"),
        }
    }
}

/// Fails with the right that is missing, if one is.
async fn asked<T>(verb: &str, request: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    let answer = within(format!("{verb} the ClusterRole `{NAME}`"), request).await;
    answer.map_err(|error| match error {
        Error::Request { source, .. } if matches!(&*source, kube::Error::Api(status) if status.code == 403) =>
        {
            let missing = vec![format!("`{verb}` `clusterroles.rbac.authorization.k8s.io` `{NAME}`")];
            Error::Forbidden { program: MANAGER.name, missing }
        }
        other => other,
    })
}

#[cfg(test)]
mod tests;
