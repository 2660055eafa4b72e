//! Authorization: one table of roles, consulted before anything else.
//!
//! Everything is forbidden unless the table allows it. A role holds for every namespace and for all objects
//! in it.

use super::response::error::Error;
use crate::auth::{self, Role, User, Users};
use axum::http::HeaderMap;
use meridian_objects::Kind;

/// A verb of the Kubernetes API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    /// The verb as Kubernetes names it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    /// The verbs that the API serves for this kind.
    pub(crate) const fn of(kind: Kind) -> &'static [Self] {
        // of a workload only `spec.active` can be written
        const WORKLOAD: [Verb; 5] = [Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch];
        const ALL: [Verb; 7] =
            [Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch];
        match kind {
            Kind::Workload => &WORKLOAD,
            _ => &ALL,
        }
    }
}

/// Meridian's own endpoints, as far as roles distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Why a workload is pending.
    Why,
    /// The output of a gang.
    Logs,
    /// All actions of operators on clusters, recovery, rules and orphans.
    Operate,
    Recovery,
    Audit,
    /// Metrics name queues and clusters.
    Metrics,
}

/// The user behind a request. Fails without a known token, and if the request asks for impersonation.
pub(crate) fn authenticate(users: &Users, headers: &HeaderMap) -> Result<User, Error> {
    let user = auth::bearer(headers).and_then(|token| users.find(token)).ok_or(Error::Unauthorized)?;
    match auth::refuses_impersonation(headers) {
        Some(words) => Err(Error::Forbidden(words.to_owned())),
        None => Ok(user),
    }
}

/// Fails unless the user may do this to objects of a kind. `scoped` objects are one worker cluster's caps and
/// settings.
pub(crate) fn check_object(user: &User, verb: Verb, kind: Kind, scoped: bool) -> Result<(), Error> {
    let may = match user.role {
        Role::Admin => true,
        Role::Submitter => !scoped && submitter_may(verb, kind),
        Role::Viewer => reads(verb),
    };
    if may { Ok(()) } else { Err(forbidden(user, &format!("{} `{}`", verb.name(), kind.plural()))) }
}

const fn reads(verb: Verb) -> bool {
    matches!(verb, Verb::Get | Verb::List | Verb::Watch)
}

fn submitter_may(verb: Verb, kind: Kind) -> bool {
    let reads = reads(verb);
    match kind {
        Kind::Job => reads || matches!(verb, Verb::Create | Verb::Delete),
        // the permission to delete a job includes stopping and resuming it
        Kind::Workload => reads || matches!(verb, Verb::Update | Verb::Patch),
        // queues, and objects that a job's file may name
        Kind::LocalQueue
        | Kind::ClusterQueue
        | Kind::Cohort
        | Kind::ResourceFlavor
        | Kind::WorkloadPriorityClass
        | Kind::PriorityClass
        | Kind::Namespace
        | Kind::Topology
        | Kind::LimitRange
        | Kind::RuntimeClass => reads,
        Kind::AdmissionCheck
        | Kind::MultiKueueConfig
        | Kind::MultiKueueCluster
        | Kind::ProvisioningRequestConfig
        | Kind::Cluster
        | Kind::ResidencyPolicy
        | Kind::DispatchPolicy => false,
    }
}

/// Fails unless the user may use this endpoint.
pub(crate) fn check_endpoint(user: &User, endpoint: Endpoint) -> Result<(), Error> {
    let may = match (user.role, endpoint) {
        (Role::Admin, _) | (Role::Submitter, Endpoint::Why | Endpoint::Logs) => true,
        (Role::Submitter, Endpoint::Operate | Endpoint::Recovery | Endpoint::Audit | Endpoint::Metrics) => {
            false
        }
        (Role::Viewer, Endpoint::Why | Endpoint::Recovery | Endpoint::Metrics) => true,
        (Role::Viewer, Endpoint::Logs | Endpoint::Operate | Endpoint::Audit) => false,
    };
    let what = match endpoint {
        Endpoint::Why => "explain workloads",
        Endpoint::Logs => "read logs",
        Endpoint::Operate => "operate clusters, recovery and rules",
        Endpoint::Recovery => "read the state of recovery",
        Endpoint::Audit => "read the audit log",
        Endpoint::Metrics => "read the metrics",
    };
    if may { Ok(()) } else { Err(forbidden(user, what)) }
}

fn forbidden(user: &User, what: &str) -> Error {
    let role = match user.role {
        Role::Admin => "admin",
        Role::Submitter => "submitter",
        Role::Viewer => "viewer",
    };
    Error::Forbidden(format!("user `{}` (role `{role}`) cannot {what}: ask an admin", user.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_of_roles_verbs_and_kinds() {
        let submitter = User { name: "s".into(), role: Role::Submitter };
        let admin = User { name: "a".into(), role: Role::Admin };
        let viewer = User { name: "v".into(), role: Role::Viewer };
        for kind in Kind::ALL {
            for verb in
                [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Update, Verb::Patch, Verb::Delete]
            {
                let expect = match (kind, verb) {
                    (Kind::Job, Verb::Update | Verb::Patch) => false,
                    (Kind::Job, _) | (Kind::Workload, Verb::Update | Verb::Patch) => true,
                    (
                        Kind::Workload | Kind::LocalQueue | Kind::ClusterQueue | Kind::Cohort,
                        Verb::Get | Verb::List | Verb::Watch,
                    )
                    | (
                        Kind::ResourceFlavor
                        | Kind::WorkloadPriorityClass
                        | Kind::PriorityClass
                        | Kind::Namespace,
                        Verb::Get | Verb::List | Verb::Watch,
                    ) => true,
                    (
                        Kind::Topology | Kind::LimitRange | Kind::RuntimeClass,
                        Verb::Get | Verb::List | Verb::Watch,
                    ) => true,
                    _ => false,
                };
                assert_eq!(check_object(&submitter, verb, kind, false).is_ok(), expect, "{verb:?} {kind}");
                assert!(check_object(&submitter, verb, kind, true).is_err());
                let reads = matches!(verb, Verb::Get | Verb::List | Verb::Watch);
                assert!(
                    [false, true]
                        .iter()
                        .all(|scoped| check_object(&viewer, verb, kind, *scoped).is_ok() == reads),
                    "{verb:?} {kind}"
                );
                assert!(
                    check_object(&admin, verb, kind, true).is_ok()
                        && check_object(&admin, verb, kind, false).is_ok()
                );
            }
        }
        for endpoint in [
            Endpoint::Why,
            Endpoint::Logs,
            Endpoint::Operate,
            Endpoint::Recovery,
            Endpoint::Audit,
            Endpoint::Metrics,
        ] {
            assert_eq!(
                check_endpoint(&viewer, endpoint).is_ok(),
                matches!(endpoint, Endpoint::Why | Endpoint::Recovery | Endpoint::Metrics),
                "{endpoint:?}"
            );
            assert_eq!(
                check_endpoint(&submitter, endpoint).is_ok(),
                matches!(endpoint, Endpoint::Why | Endpoint::Logs),
                "{endpoint:?}"
            );
            assert!(check_endpoint(&admin, endpoint).is_ok());
        }
    }
}
