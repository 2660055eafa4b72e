//! The user that a text is made for, and what the text may name.
//!
//! An explanation of one workload often mentions workloads of other tenants. A text calls a workload that the
//! asker may not read [`OTHER_TENANT`]. So texts depend on the asker: they are built when shown, and never
//! stored.

use meridian_manager_core::World;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::state::workload::Workload;
use meridian_objects::Kind;
use meridian_objects::rbac::{Access, Caller, MASTERS, Permissions, Policy};
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

/// Stands for a workload that the asker may not read.
pub const OTHER_TENANT: &str = "a workload of another tenant";

/// Subresource name for the objects of one worker cluster.
pub const OF_CLUSTER: &str = "cluster";

/// A user that reads.
#[derive(Clone, Debug)]
pub struct Asker {
    permissions: Arc<Permissions>,
    audience: Audience,
}

/// The readers of an asker's texts.
#[derive(Clone, Debug)]
enum Audience {
    Asker,
    /// Every reader of this namespace; with `None`, of objects without a namespace.
    Namespace(Option<Arc<str>>),
}

impl Asker {
    pub fn new(permissions: Arc<Permissions>) -> Self {
        Self { permissions, audience: Audience::Asker }
    }

    /// An asker that may read everything: the manager itself.
    pub fn unlimited() -> Self {
        let groups = BTreeSet::from([MASTERS.to_owned()]);
        let caller = Caller { user: "system".to_owned(), groups };
        Self::new(Arc::new(Policy::default().permissions(caller)))
    }

    /// An asker that publishes texts in the namespace of the object that they are about. All readers of that
    /// namespace see the texts, so they name only its objects.
    pub fn that_copies(permissions: Arc<Permissions>) -> Self {
        Self { permissions, audience: Audience::Namespace(None) }
    }

    /// The asker for texts about an object of this namespace.
    #[must_use]
    pub fn about(&self, namespace: Option<&Arc<str>>) -> Self {
        let audience = match &self.audience {
            Audience::Asker => Audience::Asker,
            Audience::Namespace(_) => Audience::Namespace(namespace.cloned()),
        };
        Self { permissions: Arc::clone(&self.permissions), audience }
    }

    /// Whether a text for this asker may name everything.
    fn reads_everything(&self) -> bool {
        matches!(self.audience, Audience::Asker) && self.permissions.is_master()
    }

    /// Whether a text may name this object.
    pub fn may_name(&self, key: &Key) -> bool {
        if let Audience::Namespace(namespace) = &self.audience
            && *namespace != key.namespace
        {
            return false;
        }
        let read = |kind: Kind, name| Access {
            verb: "get",
            group: kind.group(),
            resource: kind.plural(),
            subresource: if key.scope.is_some() { OF_CLUSTER } else { "" },
            // As in Kubernetes, reading a namespace is checked in that namespace itself.
            namespace: if kind == Kind::Namespace { Some(&*key.name) } else { key.namespace.as_deref() },
            name,
        };
        // A workload's name contains its job's name, so readers of either kind may see the name.
        self.permissions.allows(&read(key.kind, Some(&key.name)))
            || (key.kind.is_job() && self.permissions.allows(&read(Kind::Workload, None)))
    }

    /// Whether a text may name this object. `None`, an object that no longer exists, may be named only to a
    /// reader of everything.
    pub(crate) fn may_name_or_all(&self, key: Option<&Key>) -> bool {
        key.map_or(self.reads_everything(), |key| self.may_name(key))
    }

    fn may_name_workload(&self, workload: &Workload) -> bool {
        self.reads_everything() || self.may_name(&job_key(workload))
    }

    /// The job with this key, as a text names its workload.
    pub(crate) fn job(&self, key: &Key) -> String {
        match (self.may_name(key), key.namespace.as_deref()) {
            (true, Some(namespace)) => format!("workload `{namespace}/{}`", key.name),
            (true, None) => format!("workload `{}`", key.name),
            (false, _) => OTHER_TENANT.to_owned(),
        }
    }

    /// One workload: ``workload `namespace/name` ``, unless it is another tenant's.
    pub(crate) fn workload(&self, workload: &Workload) -> String {
        match self.may_name_workload(workload) {
            true => format!("workload `{}/{}`", workload.namespace(), workload.name()),
            false => OTHER_TENANT.to_owned(),
        }
    }

    /// The local queue `namespace/name` of a workload, unless the workload is another tenant's.
    pub(crate) fn local_queue(&self, queue: &str, of: &Workload) -> String {
        match self.may_name_workload(of) {
            true => format!("`{queue}`"),
            false => "a local queue of another tenant".to_owned(),
        }
    }

    /// Several workloads: those that may be named, then the number of the others.
    pub(crate) fn workloads<'w>(&self, all: impl IntoIterator<Item = &'w Workload>) -> Vec<String> {
        let (named, others): (Vec<&Workload>, Vec<&Workload>) =
            all.into_iter().partition(|workload| self.may_name_workload(workload));
        let named = named.iter().map(|w| format!("`{}/{}`", w.namespace(), w.name()));
        let others = match others.len() {
            0 => None,
            1 => Some(OTHER_TENANT.to_owned()),
            n => Some(format!("{n} workloads of other tenants")),
        };
        named.chain(others).collect()
    }
}

/// The key of a workload's job.
pub(crate) fn job_key(workload: &Workload) -> Key {
    Key {
        scope: None,
        kind: workload.job_kind().kind(),
        namespace: Some(workload.namespace().clone()),
        name: workload.name().clone(),
    }
}

/// The world, with the user that gets the explanation.
#[derive(Clone, Copy)]
pub(crate) struct AskedWorld<'w> {
    world: &'w World,
    pub(crate) asker: &'w Asker,
}

impl<'w> AskedWorld<'w> {
    pub(crate) fn new(world: &'w World, asker: &'w Asker) -> Self {
        Self { world, asker }
    }
}

impl Deref for AskedWorld<'_> {
    type Target = World;

    fn deref(&self) -> &World {
        self.world
    }
}
