//! Who may do what: one table of roles, asked before anything else is looked at.
//!
//! Closed by default: what is not named for a role is not for it. Whose objects they are makes no difference; a role holds
//! for every namespace.

use super::error::Error;
use crate::auth::{self, Role, User, Users};
use axum::http::HeaderMap;
use meridian_objects::Kind;

/// What is done to objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// One object.
    Get,
    /// Many.
    List,
    /// Their changes.
    Watch,
    /// A new one.
    Create,
    /// Another content.
    Update,
    /// Some fields.
    Patch,
    /// Away with it.
    Delete,
}

impl Verb {
    /// As Kubernetes names it.
    pub(crate) const fn word(self) -> &'static str {
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

    /// What can be done to objects of this kind at all.
    pub(crate) const fn of(kind: Kind) -> &'static [Self] {
        // Of a workload only whether it is active is written.
        const WORKLOAD: [Verb; 5] = [Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch];
        const ALL: [Verb; 7] =
            [Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch];
        match kind {
            Kind::Workload => &WORKLOAD,
            _ => &ALL,
        }
    }
}

/// Meridian's own endpoints, as far as roles go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// Why a workload waits.
    Why,
    /// What a gang printed.
    Logs,
    /// Everything that operators do to clusters, recovery, rules and orphans.
    Operate,
    /// The state of recovery.
    Recovery,
    /// The audit log.
    Audit,
    /// What Prometheus reads: it names queues and clusters.
    Metrics,
}

/// Who asks; an error for everybody who isn't known, and for those who want to be somebody else.
pub(crate) fn identify(users: &Users, headers: &HeaderMap) -> Result<User, Error> {
    let user = auth::bearer(headers).and_then(|token| users.find(token)).ok_or(Error::Unauthorized)?;
    match auth::refuses_impersonation(headers) {
        Some(words) => Err(Error::Forbidden(words.to_owned())),
        None => Ok(user),
    }
}

/// Whether the user may do this to objects of a kind. `scoped` objects are one worker cluster's caps and settings.
pub(crate) fn object(user: &User, verb: Verb, kind: Kind, scoped: bool) -> Result<(), Error> {
    let may = match user.role {
        Role::Admin => true,
        Role::Submitter => !scoped && submitter_may(verb, kind),
        Role::Viewer => reads(verb),
    };
    if may { Ok(()) } else { Err(forbidden(user, &format!("{} `{}`", verb.word(), kind.plural()))) }
}

const fn reads(verb: Verb) -> bool {
    matches!(verb, Verb::Get | Verb::List | Verb::Watch)
}

fn submitter_may(verb: Verb, kind: Kind) -> bool {
    let reads = reads(verb);
    match kind {
        Kind::Job => reads || matches!(verb, Verb::Create | Verb::Delete),
        // whose jobs may be deleted may also be stopped and resumed
        Kind::Workload => reads || matches!(verb, Verb::Update | Verb::Patch),
        // queues, and what a job's file names
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

/// Whether the user may use this endpoint.
pub(crate) fn own(user: &User, endpoint: Own) -> Result<(), Error> {
    let may = match (user.role, endpoint) {
        (Role::Admin, _) | (Role::Submitter, Own::Why | Own::Logs) => true,
        (Role::Submitter, Own::Operate | Own::Recovery | Own::Audit | Own::Metrics) => false,
        (Role::Viewer, Own::Why | Own::Recovery | Own::Metrics) => true,
        (Role::Viewer, Own::Logs | Own::Operate | Own::Audit) => false,
    };
    let what = match endpoint {
        Own::Why => "ask why workloads wait",
        Own::Logs => "read logs",
        Own::Operate => "operate clusters, recovery and rules",
        Own::Recovery => "see the state of recovery",
        Own::Audit => "read the audit log",
        Own::Metrics => "read the metrics",
    };
    if may { Ok(()) } else { Err(forbidden(user, what)) }
}

fn forbidden(user: &User, what: &str) -> Error {
    let role = match user.role {
        Role::Admin => "admin",
        Role::Submitter => "submitter",
        Role::Viewer => "viewer",
    };
    Error::Forbidden(format!("user `{}` with the role `{role}` may not {what}: ask an admin", user.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_matrix() {
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
                assert_eq!(object(&submitter, verb, kind, false).is_ok(), expect, "{verb:?} {kind}");
                assert!(object(&submitter, verb, kind, true).is_err());
                let looks = matches!(verb, Verb::Get | Verb::List | Verb::Watch);
                assert!(
                    [false, true].iter().all(|scoped| object(&viewer, verb, kind, *scoped).is_ok() == looks),
                    "{verb:?} {kind}"
                );
                assert!(
                    object(&admin, verb, kind, true).is_ok() && object(&admin, verb, kind, false).is_ok()
                );
            }
        }
        for endpoint in [Own::Why, Own::Logs, Own::Operate, Own::Recovery, Own::Audit, Own::Metrics] {
            assert_eq!(
                own(&viewer, endpoint).is_ok(),
                matches!(endpoint, Own::Why | Own::Recovery | Own::Metrics),
                "{endpoint:?}"
            );
            assert_eq!(
                own(&submitter, endpoint).is_ok(),
                matches!(endpoint, Own::Why | Own::Logs),
                "{endpoint:?}"
            );
            assert!(own(&admin, endpoint).is_ok());
        }
    }
}
