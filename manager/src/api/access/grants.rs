//! Prevents users from granting permissions that they don't have, by roles, bindings or tokens, as in
//! Kubernetes.
//!
//! The verb `escalate` on roles permits writing any rule, `bind` binding a role, and `impersonate` creating a
//! token of another user or group.

use super::{Authority, User};
use crate::api::response::error::Error;
use meridian_objects::kind::RBAC_GROUP;
use meridian_objects::rbac::{Access, missing};
use meridian_objects::spec::{PolicyRule, RoleRef};
use meridian_objects::{Object, Spec};
use std::collections::BTreeSet;

/// Most missing rules that one refusal names.
const NAMED_MAX: usize = 5;

/// Fails if writing this object would grant permissions that the user doesn't have.
pub(crate) fn check_object(authority: &Authority, user: &User, object: &Object) -> Result<(), Error> {
    let namespace = object.namespace_or_default();
    let access = |verb, resource, name| Access {
        verb,
        group: RBAC_GROUP,
        resource,
        subresource: "",
        namespace,
        name: Some(name),
    };
    match &object.spec {
        Spec::Role(role) | Spec::ClusterRole(role) => {
            let may = user.permissions.allows(&access("escalate", object.kind.plural(), &object.name));
            if may { Ok(()) } else { check_rules(user, object, namespace, &role.rules) }
        }
        Spec::RoleBinding(binding) | Spec::ClusterRoleBinding(binding) => {
            let RoleRef { is_cluster_role, name } = &binding.role;
            let plural = if *is_cluster_role { "clusterroles" } else { "roles" };
            if user.permissions.allows(&access("bind", plural, name)) {
                return Ok(());
            }
            let policy = authority.policy();
            match policy.rules_of(namespace, &binding.role) {
                Some(rules) => check_rules(user, object, namespace, rules),
                None => Err(refusal(user, object, &format!("{plural}.{RBAC_GROUP} \"{name}\" not found"))),
            }
        }
        _ => Ok(()),
    }
}

/// Fails if the user may not create a token of this user and these groups.
pub(crate) fn check_token(user: &User, of_user: &str, groups: &BTreeSet<String>) -> Result<(), Error> {
    let impersonate = |resource, name| {
        let (verb, group) = ("impersonate", "");
        user.check(&Access { verb, group, resource, subresource: "", namespace: None, name: Some(name) })
    };
    if *of_user != user.name {
        impersonate("users", of_user)?;
    }
    let others = groups.iter().filter(|group| !user.identity.groups.contains(*group));
    others.into_iter().try_for_each(|group| impersonate("groups", group))
}

fn check_rules(
    user: &User,
    object: &Object,
    namespace: Option<&str>,
    rules: &[PolicyRule],
) -> Result<(), Error> {
    if user.permissions.is_master() {
        return Ok(());
    }
    let lacking = missing(user.permissions.rules(namespace), rules);
    if lacking.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = lacking.iter().take(NAMED_MAX).map(shown).collect();
    let more = lacking.len().saturating_sub(shown.len());
    let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
    let what = format!("attempting to grant RBAC permissions not currently held:\n{}", shown.join("\n"));
    Err(refusal(user, object, &format!("user \"{}\" is {what}{more}", user.name)))
}

fn refusal(user: &User, object: &Object, why: &str) -> Error {
    let (plural, name) = (object.kind.plural(), &object.name);
    tracing::debug!(user = user.name, object = object.title(), "a grant was refused");
    Error::Forbidden(format!("{plural}.{RBAC_GROUP} \"{name}\" is forbidden: {why}"))
}

/// A rule as Kubernetes shows it, such as `{APIGroups:["batch"], Resources:["jobs"], Verbs:["get"]}`.
fn shown(rule: &PolicyRule) -> String {
    let lists = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("ResourceNames", &rule.resource_names),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("Verbs", &rule.verbs),
    ];
    let written = lists.iter().filter(|(_, list)| !list.is_empty());
    format!("{{{}}}", written.map(|(name, list)| format!("{name}:{list:?}")).collect::<Vec<_>>().join(", "))
}
