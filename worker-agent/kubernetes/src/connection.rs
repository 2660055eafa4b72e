//! The agent's connection to its cluster's API server, and the rights and versions that it needs there.

use crate::error::Error;
use meridian_kubernetes::connection::within;
use meridian_kubernetes::{Connection, ConnectionSettings, Permission, Program};
use meridian_objects::job::JobKind;

/// The verbs that the runner needs for jobs of each kind.
const JOB_VERBS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

/// The rights that the runner needs outside of the agent's own namespace.
const PERMISSIONS: [Permission; 5] = [
    ("", "nodes", &["list", "watch"]),
    ("", "pods", &["list", "watch", "patch", "delete"]),
    ("", "pods/log", &["get"]),
    ("batch", "jobs", &JOB_VERBS),
    ("batch", "jobs/status", &["patch"]),
];

/// The first minor version of Kubernetes 1 whose servers stream lists, and send only objects before a list's
/// end.
const STREAMS_SINCE_MINOR: u32 = 34;

const AGENT: Program = Program {
    name: "agent",
    minor_min: 30,
    needs: "pods that wait at a scheduling gate",
    permissions: &PERMISSIONS,
};

/// Connects, and checks the server's version and the account's permissions. Fails if the settings can't be
/// used, the server doesn't answer or is too old, or a permission is missing; all missing ones are named.
pub async fn connect(settings: &ConnectionSettings) -> Result<Connection, Error> {
    Ok(Connection::open(settings, &AGENT).await?)
}

/// Whether a server of this version, such as `v1.36.3`, streams lists, unless the feature `WatchList` is off
/// there.
pub(crate) fn streams_lists(version: &str) -> bool {
    let minor = version.strip_prefix("v1.").and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    minor.and_then(|minor| minor.parse().ok()).is_some_and(|minor: u32| minor >= STREAMS_SINCE_MINOR)
}

/// Why jobs of this kind can't be run here: the cluster lacks the kind, or the agent a right to it. `None` if
/// jobs of this kind can run. Fails if the API server doesn't answer.
pub(crate) async fn lacks(connection: &Connection, kind: &JobKind) -> Result<Option<String>, Error> {
    let of = kind.cluster_kind();
    let (api_version, plural) = (of.api_version(of.storage_version()), of.plural());
    let asked = connection.client.list_api_group_resources(&api_version);
    let is_core = of.group().is_empty();
    let served = is_core
        || match within(format!("ask for the resources of `{api_version}`"), asked).await {
            Ok(list) => list.resources.iter().any(|resource| resource.name == plural),
            Err(error) if error.is_absent() => false,
            Err(error) => return Err(error.into()),
        };
    if !served {
        let name = kind.name();
        return Ok(Some(format!(
            "the cluster has no {name} of `{api_version}`: install the operator of that kind there"
        )));
    }
    let needed: [Permission; 1] = [(of.group(), plural, &JOB_VERBS)];
    match connection.check_permissions(&needed).await {
        Ok(()) => Ok(None),
        Err(missing @ meridian_kubernetes::Error::Forbidden { .. }) => Ok(Some(missing.to_string())),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_streamed_by_servers_that_are_new_enough() {
        for (version, streams) in [
            ("v1.34.0", true),
            ("v1.36.3-gke.1001", true),
            ("v1.100.0+k3s1", true),
            ("v1.33.9", false),
            ("v1.3", false),
            ("v2.40.0", false),
            ("1.36.3", false),
            ("", false),
        ] {
            assert_eq!(streams_lists(version), streams, "{version}");
        }
    }
}
