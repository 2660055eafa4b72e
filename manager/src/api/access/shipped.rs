//! The roles that every manager has, and the bindings of its first users.
//!
//! The roles are written again at each start, so that a new version can extend them. Changes by users are
//! lost: they should create other roles. The bindings are written once.

use meridian_objects::job::JobKind;
use meridian_objects::kind::{KUEUE_GROUP, MERIDIAN_GROUP, RBAC_GROUP};
use meridian_objects::rbac::AUTHENTICATED;
use meridian_objects::{Kind, applies_to_clusters};
use meridian_views::asker::OF_CLUSTER;
use serde_json::{Value, json};

pub(crate) const SUBMITTER: &str = "meridian-submitter";
pub(crate) const VIEWER: &str = "meridian-viewer";
pub(crate) const OPERATOR: &str = "meridian-operator";
pub(crate) const COMPLIANCE: &str = "meridian-compliance";
pub(crate) const METRICS: &str = "meridian-metrics";
/// Role of every user: reading the objects that jobs name and that belong to no tenant.
pub(crate) const CATALOG: &str = "meridian-catalog";

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];

/// Kinds of objects that belong to no tenant and to which a job may refer.
const CATALOG_KINDS: [Kind; 5] = [
    Kind::ResourceFlavor,
    Kind::WorkloadPriorityClass,
    Kind::PriorityClass,
    Kind::Topology,
    Kind::RuntimeClass,
];
/// Kinds that operators manage.
const OPERATED_KINDS: [Kind; 16] = [
    Kind::ResourceFlavor,
    Kind::ClusterQueue,
    Kind::Cohort,
    Kind::LocalQueue,
    Kind::WorkloadPriorityClass,
    Kind::PriorityClass,
    Kind::AdmissionCheck,
    Kind::MultiKueueConfig,
    Kind::MultiKueueCluster,
    Kind::ProvisioningRequestConfig,
    Kind::Topology,
    Kind::RuntimeClass,
    Kind::Namespace,
    Kind::LimitRange,
    Kind::Cluster,
    Kind::DispatchPolicy,
];
/// Actions of operators on clusters.
const CLUSTER_ACTIONS: [&str; 7] =
    ["join-token", "cordon", "uncordon", "admit", "drain", "revoke", "declare-lost"];

fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources})
}

/// Rules for kinds, including their objects that apply to one worker cluster only.
fn kinds(verbs: &[&str], kinds: impl IntoIterator<Item = Kind>) -> Vec<Value> {
    let of_kind = |kind: Kind| {
        let of_cluster = applies_to_clusters(kind).then(|| format!("{}/{OF_CLUSTER}", kind.plural()));
        let resources: Vec<String> = std::iter::once(kind.plural().to_owned()).chain(of_cluster).collect();
        json!({"verbs": verbs, "apiGroups": [kind.group()], "resources": resources})
    };
    kinds.into_iter().map(of_kind).collect()
}

fn role(name: &str, rules: Vec<Value>) -> Value {
    json!({
        "apiVersion": format!("{RBAC_GROUP}/v1"), "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    })
}

/// The roles of every manager.
pub(crate) fn roles() -> Vec<Value> {
    let recovery = || rule(&["get"], MERIDIAN_GROUP, &["recovery"]);
    let of_jobs = JobKind::all().map(JobKind::kind).flat_map(|kind| {
        let logs = format!("{}/log", kind.plural());
        [
            rule(&["get", "list", "watch", "create", "delete"], kind.group(), &[kind.plural()]),
            rule(&["get"], kind.group(), &[&logs]),
        ]
    });
    let mut submitter: Vec<Value> = of_jobs.collect();
    submitter.extend([
        // the permission to delete a job includes stopping and resuming it
        rule(&["get", "list", "watch", "update", "patch"], KUEUE_GROUP, &["workloads"]),
        rule(READ, KUEUE_GROUP, &["localqueues"]),
        rule(READ, "", &["limitranges"]),
        rule(&["get"], "", &["namespaces"]),
    ]);
    let mut viewer = kinds(READ, Kind::ALL.into_iter().filter(|kind| !kind.grants()));
    viewer.push(recovery());
    let mut operator = kinds(WRITE, OPERATED_KINDS);
    let actions: Vec<String> = CLUSTER_ACTIONS.iter().map(|action| format!("clusters/{action}")).collect();
    let actions: Vec<&str> =
        actions.iter().map(String::as_str).chain(["recovery/confirm", "rules/confirm"]).collect();
    operator.extend(kinds(READ, [Kind::ResidencyPolicy, Kind::Workload]));
    operator.push(rule(&["create"], MERIDIAN_GROUP, &actions));
    operator.push(rule(&["create"], MERIDIAN_GROUP, &["orphans/stop", "orphans/adopt"]));
    operator.push(recovery());
    let read_by_compliance = [
        Kind::Workload,
        Kind::Cluster,
        Kind::Namespace,
        Kind::ClusterQueue,
        Kind::LocalQueue,
        Kind::DispatchPolicy,
        Kind::Role,
        Kind::ClusterRole,
        Kind::RoleBinding,
        Kind::ClusterRoleBinding,
    ];
    let mut compliance = kinds(WRITE, [Kind::ResidencyPolicy]);
    compliance.extend(kinds(READ, read_by_compliance));
    compliance.push(rule(&["get"], MERIDIAN_GROUP, &["audit", "recovery"]));
    compliance.push(rule(&["list"], MERIDIAN_GROUP, &["tokens"]));
    let metrics = vec![json!({"verbs": ["get"], "nonResourceURLs": [super::METRICS]})];
    vec![
        role(SUBMITTER, submitter),
        role(VIEWER, viewer),
        role(OPERATOR, operator),
        role(COMPLIANCE, compliance),
        role(METRICS, metrics),
        role(CATALOG, kinds(READ, CATALOG_KINDS)),
    ]
}

/// A binding of a ClusterRole: in one namespace, or in all.
fn binding(name: &str, namespace: Option<&str>, role: &str, subject: (&str, &str)) -> Value {
    let (subject_kind, subject_name) = subject;
    let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    json!({
        "apiVersion": format!("{RBAC_GROUP}/v1"), "kind": kind, "metadata": metadata,
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC_GROUP, "kind": subject_kind, "name": subject_name}],
    })
}

/// The bindings of the first users: `submitter` in a namespace, `viewer` everywhere.
pub(crate) fn bindings(namespace: &str, submitter: &str, viewer: &str) -> Vec<Value> {
    vec![
        binding("meridian-catalog", None, CATALOG, ("Group", AUTHENTICATED)),
        binding("meridian-submitter", Some(namespace), SUBMITTER, ("User", submitter)),
        binding("meridian-viewer", None, VIEWER, ("User", viewer)),
        binding("meridian-viewer-metrics", None, METRICS, ("User", viewer)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_objects::Object;
    use meridian_objects::rbac::{Access, Caller, Policy};

    #[test]
    fn the_shipped_roles_permit_what_they_are_for() {
        let mut manifests = roles();
        manifests.extend(bindings("default", "sam", "vic"));
        manifests.push(binding("o", None, OPERATOR, ("User", "op")));
        manifests.push(binding("c", None, COMPLIANCE, ("User", "con")));
        let objects: Vec<Object> =
            manifests.into_iter().map(|manifest| Object::from_value(manifest).unwrap().0).collect();
        let policy = Policy::new(&objects);
        let may = |user: &str, verb: &str, of: (&str, &str, &str), namespace: Option<&str>| {
            let caller = Caller { user: user.to_owned(), groups: [AUTHENTICATED.to_owned()].into() };
            let (group, resource, subresource) = of;
            let access = Access { verb, group, resource, subresource, namespace, name: None };
            policy.permissions(caller).allows(&access)
        };
        let (jobs, logs) = (("batch", "jobs", ""), ("batch", "jobs", "log"));
        let (audit, cordon) = ((MERIDIAN_GROUP, "audit", ""), (MERIDIAN_GROUP, "clusters", "cordon"));
        let flavors = (KUEUE_GROUP, "resourceflavors", "");
        let [here, there] = [Some("default"), Some("other")];
        assert!(may("sam", "create", jobs, here) && may("sam", "get", logs, here));
        for kind in JobKind::all().map(JobKind::kind) {
            assert!(may("sam", "create", (kind.group(), kind.plural(), ""), here), "{kind}");
            assert!(may("sam", "get", (kind.group(), kind.plural(), "log"), here), "{kind}");
        }
        assert!(!may("sam", "get", jobs, there) && !may("sam", "list", jobs, None));
        assert!(may("sam", "list", flavors, None) && !may("sam", "update", flavors, None));
        assert!(may("vic", "list", jobs, None) && !may("vic", "delete", jobs, here));
        assert!(!may("vic", "get", logs, here) && !may("vic", "get", audit, None));
        assert!(may("op", "create", cordon, None) && !may("op", "get", jobs, here));
        assert!(may("op", "get", (KUEUE_GROUP, "clusterqueues", OF_CLUSTER), None));
        assert!(may("con", "get", audit, None) && !may("con", "create", cordon, None));
        assert!(may("con", "update", (MERIDIAN_GROUP, "residencypolicies", ""), None));
        let vic = Caller { user: "vic".to_owned(), groups: [].into() };
        assert!(policy.permissions(vic).allows_path("get", "/metrics"));
    }
}
