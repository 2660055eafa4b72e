//! The kinds that are kept equal on both sides, and the version in which the management cluster serves each.

use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, Discovery, Scope};
use kube::{Client, Result};
use meridian_kubernetes::connection::within;
use meridian_objects::Kind;

/// How a kind is synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Specs are copied to the manager, and statuses back to the cluster.
    Settings,
    /// As for settings, but only jobs with a queue are copied, and they keep the uid of the cluster's object.
    Job,
    /// A group of pods is one job at the manager; the cluster has only its pods.
    Group,
    /// The cluster gets a copy of the manager's object.
    Workload,
}

/// A kind that both sides serve.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) kind: Kind,
    pub(crate) flow: Flow,
    pub(crate) api: ApiResource,
    /// Whether the management cluster has its status as a subresource.
    pub(crate) has_status: bool,
}

/// How a kind is synchronised; `None` for kinds that only the manager has.
pub(crate) fn flow(kind: Kind) -> Option<Flow> {
    match kind {
        Kind::PodGroup => Some(Flow::Group),
        kind if kind.is_job() => Some(Flow::Job),
        Kind::Workload => Some(Flow::Workload),
        // users and roles of the manager are not those of the cluster
        kind if kind.grants() => None,
        _ => Some(Flow::Settings),
    }
}

/// The kinds that the management cluster serves. Fails if it can't be asked.
pub(crate) async fn served(client: &Client) -> Result<Vec<Resource>, meridian_kubernetes::Error> {
    let groups: Vec<&str> = Kind::ALL.iter().map(|kind| kind.group()).collect();
    let asked = Discovery::new(client.clone()).filter(&groups).run();
    let discovery = within("list the kinds of the management cluster".to_owned(), asked).await?;
    Ok(Kind::ALL.into_iter().filter_map(|kind| find(&discovery, kind)).collect())
}

fn find(discovery: &Discovery, kind: Kind) -> Option<Resource> {
    let flow = flow(kind)?;
    if flow == Flow::Group {
        let gvk = GroupVersionKind::gvk(kind.group(), kind.storage_version(), kind.name());
        let api = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
        return Some(Resource { kind, flow, has_status: false, api });
    }
    // the manager's preferred version first
    kind.versions().iter().find_map(|version| {
        let gvk = GroupVersionKind::gvk(kind.group(), version, kind.name());
        let (api, capabilities) = discovery.resolve_gvk(&gvk)?;
        let is_alike = (capabilities.scope == Scope::Namespaced) == kind.namespaced();
        is_alike.then(|| Resource { kind, flow, has_status: has_status(&capabilities), api })
    })
}

fn has_status(capabilities: &ApiCapabilities) -> bool {
    capabilities.subresources.iter().any(|(resource, _)| resource.plural.ends_with("status"))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn every_kind_but_those_of_users_is_kept_in_line() {
        let left: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| flow(*kind).is_none()).collect();
        assert!(left.iter().all(|kind| kind.grants()), "{left:?}");
        assert_eq!((flow(Kind::Pod), flow(Kind::PodGroup)), (Some(Flow::Job), Some(Flow::Group)));
        assert_eq!(flow(Kind::Workload), Some(Flow::Workload));
        assert_eq!(flow(Kind::Namespace), Some(Flow::Settings));
    }
}
