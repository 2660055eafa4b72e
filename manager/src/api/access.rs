//! Authentication and authorization: each request is checked before anything else.
//!
//! Everything is forbidden unless permitted by a role that is bound to the user or to one of its groups.
//! Roles and bindings are objects of the API. Discovery is open to every user.

pub(crate) mod authority;
pub(crate) mod grants;
pub(crate) mod shipped;

pub(crate) use authority::{Authority, OpenStream};

use super::request::query::Options;
use super::request::resource_path::ResourcePath;
use super::response::error::Error;
use crate::auth;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::key::Key;
use meridian_objects::Kind;
use meridian_objects::kind::MERIDIAN_GROUP;
use meridian_objects::rbac::{Access, Permissions};
use meridian_views::asker::{Asker, OF_CLUSTER};
use std::sync::Arc;

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
        // the only field of a workload that can be written is `spec.active`
        const WORKLOAD: [Verb; 5] = [Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch];
        const ALL: [Verb; 7] =
            [Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch];
        match kind {
            Kind::Workload => &WORKLOAD,
            _ => &ALL,
        }
    }
}

/// Meridian's own endpoints, as rules name them: resources of its API group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// A subresource of a cluster, such as `cordon`; its verb is `create`.
    Cluster(&'static str),
    Recovery,
    ConfirmRecovery,
    ConfirmRules,
    StopOrphan,
    AdoptOrphan,
    Audit,
    ListTokens,
    CreateToken,
    RevokeToken,
}

impl Endpoint {
    /// Verb, resource and subresource.
    pub(crate) const fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Cluster(action) => ("create", "clusters", action),
            Self::Recovery => ("get", "recovery", ""),
            Self::ConfirmRecovery => ("create", "recovery", "confirm"),
            Self::ConfirmRules => ("create", "rules", "confirm"),
            Self::StopOrphan => ("create", "orphans", "stop"),
            Self::AdoptOrphan => ("create", "orphans", "adopt"),
            Self::Audit => ("get", "audit", ""),
            Self::ListTokens => ("list", "tokens", ""),
            Self::CreateToken => ("create", "tokens", ""),
            Self::RevokeToken => ("delete", "tokens", ""),
        }
    }
}

/// The path of the metrics, which isn't an object.
pub(crate) const METRICS: &str = "/metrics";

/// The user behind a request, with everything that it may do.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    identity: auth::User,
    permissions: Arc<Permissions>,
    actor: Actor,
}

impl User {
    /// The user as the cause of a change.
    pub(crate) fn actor(&self) -> Actor {
        self.actor.clone()
    }

    /// Whether this is the management cluster, which may set the uids of its objects.
    pub(crate) fn is_management_cluster(&self) -> bool {
        self.actor == Actor::ManagementCluster
    }

    pub(crate) fn permissions(&self) -> &Arc<Permissions> {
        &self.permissions
    }

    /// The user as a reader of texts. The management cluster copies them into the objects' namespaces.
    pub(crate) fn asker(&self) -> Asker {
        let permissions = Arc::clone(&self.permissions);
        if self.is_management_cluster() { Asker::that_copies(permissions) } else { Asker::new(permissions) }
    }

    /// Fails unless the user may do this.
    pub(crate) fn check(&self, access: &Access<'_>) -> Result<(), Error> {
        if self.permissions.allows(access) { Ok(()) } else { Err(forbidden(&self.name, access)) }
    }

    /// Fails unless the user may use this endpoint; `name` is that of its object.
    pub(crate) fn check_endpoint(&self, endpoint: Endpoint, name: Option<&str>) -> Result<(), Error> {
        let (verb, resource, subresource) = endpoint.words();
        let group = MERIDIAN_GROUP;
        self.check(&Access { verb, group, resource, subresource, namespace: None, name })
    }

    /// Fails unless the user may read the metrics.
    pub(crate) fn check_metrics(&self) -> Result<(), Error> {
        if self.permissions.allows_path("get", METRICS) {
            return Ok(());
        }
        let name = &self.name;
        Err(Error::Forbidden(format!("forbidden: User \"{name}\" cannot get path \"{METRICS}\"")))
    }

    /// Fails unless the user may write an object of these kinds in some namespace, by an apply or a bulk.
    /// Checked before a large body is read; afterwards each of its objects is checked.
    pub(crate) fn check_writes(&self, kinds: impl IntoIterator<Item = Kind>) -> Result<(), Error> {
        let may_write = |kind: Kind| {
            let verb = if kind.is_job() { Verb::Create } else { Verb::Update };
            ["", OF_CLUSTER].iter().any(|subresource| {
                self.permissions.allows_somewhere(verb.name(), kind.group(), kind.plural(), subresource)
            })
        };
        if kinds.into_iter().any(may_write) {
            return Ok(());
        }
        let name = &self.name;
        Err(Error::Forbidden(format!("forbidden: User \"{name}\" cannot write any object of these kinds")))
    }

    /// Fails unless the user may write this object by an apply: update it, and create it if it doesn't exist.
    /// For a job, the permission to create is enough, because an existing job isn't changed.
    pub(crate) fn check_apply(&self, key: &Key, exists: bool) -> Result<(), Error> {
        let check = |verb| self.check(&ObjectAccess::of_key(verb, key).access());
        if key.kind.is_job() {
            return check(Verb::Create);
        }
        // check this even if the object doesn't exist, because it may exist by the time of the write
        check(Verb::Update)?;
        if exists { Ok(()) } else { check(Verb::Create) }
    }
}

/// Access that a request asks for, with its own copies of the names.
#[derive(Clone, Debug)]
pub(crate) struct ObjectAccess {
    verb: Verb,
    kind: Kind,
    subresource: &'static str,
    namespace: Option<String>,
    name: Option<String>,
}

impl ObjectAccess {
    /// The access that a request for objects needs. A list or watch with a field selector for one name needs
    /// access to that object only.
    pub(crate) fn of_request(verb: Verb, target: &ResourcePath, options: &Options) -> Self {
        let selected = || options.selector.name().filter(|_| matches!(verb, Verb::List | Verb::Watch));
        let name = target.name.as_deref().or_else(selected).map(str::to_owned);
        Self {
            verb,
            kind: target.kind,
            subresource: if options.scope.is_some() { OF_CLUSTER } else { "" },
            // as in Kubernetes, access to a namespace is checked in that namespace itself
            namespace: if target.kind == Kind::Namespace { name.clone() } else { target.namespace.clone() },
            name,
        }
    }

    pub(crate) fn of_key(verb: Verb, key: &Key) -> Self {
        let name = key.name.to_string();
        Self {
            verb,
            kind: key.kind,
            subresource: if key.scope.is_some() { OF_CLUSTER } else { "" },
            namespace: if key.kind == Kind::Namespace {
                Some(name.clone())
            } else {
                key.namespace.as_deref().map(str::to_owned)
            },
            // as in Kubernetes, an object to be created has no name yet
            name: (verb != Verb::Create).then_some(name),
        }
    }

    /// The output of a job of this kind.
    pub(crate) fn logs(kind: Kind, namespace: &str, name: &str) -> Self {
        let key = Key::namespaced(kind, namespace, name);
        Self { subresource: "log", ..Self::of_key(Verb::Get, &key) }
    }

    pub(crate) fn access(&self) -> Access<'_> {
        Access {
            verb: self.verb.name(),
            group: self.kind.group(),
            resource: self.kind.plural(),
            subresource: self.subresource,
            namespace: self.namespace.as_deref(),
            name: self.name.as_deref(),
        }
    }
}

/// The refusal, in the words of Kubernetes.
fn forbidden(user: &str, access: &Access<'_>) -> Error {
    let Access { verb, group, resource, subresource, namespace, name } = *access;
    let of = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let named = name.map(|name| format!(" \"{name}\"")).unwrap_or_default();
    let slash = if subresource.is_empty() { "" } else { "/" };
    let place = match namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    Error::Forbidden(format!(
        "{of}{named} is forbidden: User \"{user}\" cannot {verb} resource \"{resource}{slash}{subresource}\" \
         in API group \"{group}\" {place}"
    ))
}
