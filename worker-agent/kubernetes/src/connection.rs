//! What the agent needs of its cluster's API server.

use crate::error::Error;
use meridian_kubernetes::connection::within;
use meridian_kubernetes::{Connection, ConnectionSettings, Permission, Program};
use meridian_objects::job::JobKind;

/// The verbs that the runner needs for jobs of each kind.
const JOB_VERBS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

/// Everything that the runner does outside of the agent's own namespace.
const PERMISSIONS: [Permission; 5] = [
    ("", "nodes", &["list", "watch"]),
    ("", "pods", &["list", "watch", "patch", "delete"]),
    ("", "pods/log", &["get"]),
    ("batch", "jobs", &JOB_VERBS),
    ("batch", "jobs/status", &["patch"]),
];

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

/// Why jobs of this kind can't be run here: the cluster lacks the kind, or the agent a right to it. `None` if
/// they can. Fails if the API server doesn't say.
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
