//! Roles and their bindings: the subset of `rbac.authorization.k8s.io/v1` that applies to Meridian's API.
//! [`crate::rbac`] evaluates them.

use crate::fields::{Fields, Item};
use crate::kind::RBAC_GROUP;

/// Most rules of one role.
const MAX_RULES: usize = 256;
/// Most entries of one list of a rule.
const MAX_ENTRIES: usize = 256;
/// Most subjects of one binding.
const MAX_SUBJECTS: usize = 1_000;

/// Permissions of a rule: each of its verbs on each of its resources, or on each of its paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyRule {
    /// Verbs; `*` means every verb.
    pub verbs: Vec<String>,
    /// API groups; `*` means every group, the empty string the core group.
    pub api_groups: Vec<String>,
    /// `RESOURCE`, `RESOURCE/SUBRESOURCE` or `*/SUBRESOURCE`; `*` means everything.
    pub resources: Vec<String>,
    /// Empty for objects of any name.
    pub resource_names: Vec<String>,
    /// Paths outside the API of objects; a `*` at the end matches any rest.
    pub non_resource_urls: Vec<String>,
}

/// A Role or a ClusterRole.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleSpec {
    pub rules: Vec<PolicyRule>,
}

/// A user or a group that a binding names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    User(String),
    Group(String),
}

#[derive(Clone, Copy)]
enum SubjectKind {
    User,
    Group,
    ServiceAccount,
}

/// The role that a binding grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleRef {
    /// Whether the role is a ClusterRole. Otherwise it is a Role in the binding's namespace.
    pub is_cluster_role: bool,
    pub name: String,
}

/// A RoleBinding or a ClusterRoleBinding.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleBindingSpec {
    pub role: RoleRef,
    pub subjects: Vec<Subject>,
}

/// Reads a role. `of_cluster`: it is a ClusterRole.
pub(crate) fn read_role(root: &Fields<'_>, of_cluster: bool) -> RoleSpec {
    if of_cluster && root.get("aggregationRule").is_some() {
        root.error("aggregationRule", "is not supported", "write the rules into `rules`");
    }
    let rules = root.list("rules", MAX_RULES, |item| Some(read_rule(item.fields()?, of_cluster)));
    RoleSpec { rules }
}

fn read_rule(rule: Fields<'_>, of_cluster: bool) -> PolicyRule {
    let read = PolicyRule {
        verbs: rule.names("verbs", MAX_ENTRIES),
        // not read as names, because the core group is the empty string
        api_groups: rule.list("apiGroups", MAX_ENTRIES, |item| item.text().map(str::to_owned)),
        resources: rule.names("resources", MAX_ENTRIES),
        resource_names: rule.names("resourceNames", MAX_ENTRIES),
        non_resource_urls: rule.names("nonResourceURLs", MAX_ENTRIES),
    };
    if read.verbs.is_empty() {
        rule.error("verbs", "is missing", "list at least one verb, such as `get`");
    }
    if read.non_resource_urls.is_empty() {
        for (name, is_empty) in
            [("apiGroups", read.api_groups.is_empty()), ("resources", read.resources.is_empty())]
        {
            if is_empty {
                rule.error(name, "is missing", "a rule names groups and resources, or `nonResourceURLs`");
            }
        }
    } else if !of_cluster {
        rule.error("nonResourceURLs", "belongs to no namespace", "write it into a ClusterRole");
    } else if !read.api_groups.is_empty() || !read.resources.is_empty() || !read.resource_names.is_empty() {
        rule.error("nonResourceURLs", "can't be combined with resources", "write two rules");
    }
    rule.finish();
    read
}

/// Reads a binding. `of_cluster`: it is a ClusterRoleBinding.
pub(crate) fn read_binding(root: &Fields<'_>, of_cluster: bool) -> RoleBindingSpec {
    let role = root.require("roleRef").and_then(|item| item.fields());
    RoleBindingSpec {
        role: role.map(|role| read_role_ref(role, of_cluster)).unwrap_or_default(),
        subjects: root.list("subjects", MAX_SUBJECTS, |item| read_subject(&item)),
    }
}

fn read_role_ref(role: Fields<'_>, of_cluster: bool) -> RoleRef {
    check_group(&role);
    let all: [(&str, bool); 2] = [("ClusterRole", true), ("Role", false)];
    // a ClusterRoleBinding has no namespace, so it can't refer to a Role
    let words = if of_cluster { &all[..1] } else { &all[..] };
    let read = RoleRef {
        is_cluster_role: role.require("kind").and_then(|item| item.word(words)).unwrap_or_default(),
        name: role.require_text("name").unwrap_or_default().to_owned(),
    };
    role.finish();
    read
}

/// Reads a subject. `None` for a service account, because Meridian has none.
fn read_subject(item: &Item<'_>) -> Option<Subject> {
    let subject = item.fields()?;
    let words = [
        ("User", SubjectKind::User),
        ("Group", SubjectKind::Group),
        ("ServiceAccount", SubjectKind::ServiceAccount),
    ];
    let kind = subject.require("kind").and_then(|kind| kind.word(&words))?;
    let name = subject.require_text("name").unwrap_or_default().to_owned();
    let read = match kind {
        SubjectKind::User => Some(Subject::User(name)),
        SubjectKind::Group => Some(Subject::Group(name)),
        SubjectKind::ServiceAccount => {
            subject.known(&["namespace"]);
            let message = "has no effect: Meridian has users and groups, and no service accounts";
            subject.warn("kind", message, "name a user, and give it a token");
            None
        }
    };
    check_group(&subject);
    subject.finish();
    read
}

fn check_group(fields: &Fields<'_>) {
    if let Some(group) = fields.text("apiGroup").filter(|group| ![RBAC_GROUP, ""].contains(group)) {
        fields.error("apiGroup", format!("`{group}` is not the group"), format!("write `{RBAC_GROUP}`"));
    }
}
