//! Permissions from roles and bindings, decided as Kubernetes' RBAC authorizer does.
//!
//! A [`Policy`] has all roles and bindings; [`Policy::permissions`] are those of one caller. Everything is
//! forbidden unless a rule permits it; no rule forbids. Members of [`MASTERS`] may do everything, regardless
//! of roles, so that no mistake in a role locks everybody out.
//!
//! Pure. The API checks each request with it, the views each workload that a text would name.

mod covering;
mod rules;

use crate::object::Object;
use crate::spec::{PolicyRule, RoleBindingSpec, RoleRef, Spec, Subject};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use covering::missing;

/// The group whose members may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of every user with a valid token.
pub const AUTHENTICATED: &str = "system:authenticated";

/// A user that makes a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Caller {
    pub user: String,
    pub groups: BTreeSet<String>,
}

impl Caller {
    fn is(&self, subject: &Subject) -> bool {
        match subject {
            Subject::User(name) => *name == self.user,
            Subject::Group(name) => self.groups.contains(name),
        }
    }
}

/// The access that a request needs, in the terms of rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access<'a> {
    pub verb: &'a str,
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural, such as `jobs`.
    pub resource: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// `None` for all namespaces, and for objects without one.
    pub namespace: Option<&'a str>,
    /// `None` for a collection.
    pub name: Option<&'a str>,
}

/// Rules of one role.
type Rules = Arc<[PolicyRule]>;

/// All roles and bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    cluster_roles: BTreeMap<String, Rules>,
    /// By namespace and name.
    roles: BTreeMap<(String, String), Rules>,
    everywhere: Vec<RoleBindingSpec>,
    by_namespace: BTreeMap<String, Vec<RoleBindingSpec>>,
}

impl Policy {
    /// The policy of these objects. Objects of other kinds are ignored.
    pub fn new<'o>(objects: impl IntoIterator<Item = &'o Object>) -> Self {
        let mut policy = Self::default();
        for object in objects {
            let namespace = || object.namespace_or_default().unwrap_or_default().to_owned();
            match &object.spec {
                Spec::ClusterRole(role) => {
                    policy.cluster_roles.insert(object.name.clone(), role.rules.clone().into());
                }
                Spec::Role(role) => {
                    policy.roles.insert((namespace(), object.name.clone()), role.rules.clone().into());
                }
                Spec::ClusterRoleBinding(binding) => policy.everywhere.push(binding.clone()),
                Spec::RoleBinding(binding) => {
                    policy.by_namespace.entry(namespace()).or_default().push(binding.clone());
                }
                _ => {}
            }
        }
        policy
    }

    /// The rules of the role that a binding in `namespace` refers to. `None` if the role doesn't exist.
    pub fn rules_of(&self, namespace: Option<&str>, role: &RoleRef) -> Option<&[PolicyRule]> {
        self.bound(namespace, role).map(|rules| &**rules)
    }

    fn bound(&self, namespace: Option<&str>, role: &RoleRef) -> Option<&Rules> {
        match (role.is_cluster_role, namespace) {
            (true, _) => self.cluster_roles.get(&role.name),
            (false, Some(namespace)) => self.roles.get(&(namespace.to_owned(), role.name.clone())),
            (false, None) => None,
        }
    }

    /// Permissions of `caller`.
    pub fn permissions(&self, caller: Caller) -> Permissions {
        let bound = |namespace: Option<&str>, bindings: &[RoleBindingSpec]| -> Vec<Rules> {
            let mine = bindings.iter().filter(|binding| binding.subjects.iter().any(|of| caller.is(of)));
            mine.filter_map(|binding| self.bound(namespace, &binding.role).cloned()).collect()
        };
        let by_namespace = self.by_namespace.iter();
        let by_namespace = by_namespace
            .map(|(namespace, bindings)| (namespace.clone(), bound(Some(namespace), bindings)))
            .filter(|(_, rules)| !rules.is_empty());
        Permissions {
            is_master: caller.groups.contains(MASTERS),
            everywhere: bound(None, &self.everywhere),
            by_namespace: by_namespace.collect(),
            caller,
        }
    }
}

/// Permissions of one caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    caller: Caller,
    is_master: bool,
    everywhere: Vec<Rules>,
    by_namespace: BTreeMap<String, Vec<Rules>>,
}

impl Permissions {
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Whether the caller may do everything, regardless of roles.
    pub fn is_master(&self) -> bool {
        self.is_master
    }

    pub fn allows(&self, access: &Access<'_>) -> bool {
        self.is_master || self.rules(access.namespace).any(|rule| rules::allows(rule, access))
    }

    /// Whether the caller may do this in any namespace, or to an object of any name.
    pub fn allows_somewhere(&self, verb: &str, group: &str, resource: &str, subresource: &str) -> bool {
        let mut all = self.everywhere.iter().chain(self.by_namespace.values().flatten());
        self.is_master
            || all.any(|rules| {
                rules.iter().any(|rule| rules::allows_some(rule, verb, group, (resource, subresource)))
            })
    }

    /// Whether the caller may do this to a path that isn't an object.
    pub fn allows_path(&self, verb: &str, path: &str) -> bool {
        self.is_master || self.rules(None).any(|rule| rules::allows_path(rule, verb, path))
    }

    /// The rules that hold in a namespace, or outside all namespaces.
    pub fn rules(&self, namespace: Option<&str>) -> impl Iterator<Item = &PolicyRule> {
        let here = namespace.and_then(|namespace| self.by_namespace.get(namespace));
        self.everywhere.iter().chain(here.into_iter().flatten()).flat_map(|rules| rules.iter())
    }
}
