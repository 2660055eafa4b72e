//! Deletions of what is in use.

use super::*;
use meridian_manager_core::facts::outcome::RejectionReason;

impl Fleet {
    /// Deletes an object; the message if that is refused.
    pub(super) fn delete(&mut self, key: &Key, force: bool) -> Result<(), String> {
        match self.write(vec![Change::Delete { key: key.clone(), uid: None, force }]) {
            Reply::Written(_) => Ok(()),
            Reply::Rejected(why) => {
                assert!(matches!(why[0].reason, RejectionReason::Conflict | RejectionReason::Forbidden));
                Err(meridian_views::rejections::message(&why[0], &Asker::unlimited()))
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn objects_that_others_refer_to_are_deleted_only_by_force() {
    let mut f = Fleet::new(EU);
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "some"});
    let check = json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters});
    let mut flavor = resource_flavor("racks");
    flavor["spec"] = json!({"nodeLabels": {"pool": "a"}, "topologyName": "racks"});
    let checks = json!({"cohortName": "all",
        "admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}});
    f.apply(vec![
        kueue_object("Topology", "racks", json!({"levels": [{"nodeLabel": "rack"}]})),
        flavor,
        kueue_object("MultiKueueConfig", "some", json!({"clusters": ["eu"]})),
        kueue_object("AdmissionCheck", "mk", check),
        kueue_object("Cohort", "all", json!({})),
        cluster_queue("other", 1, &checks),
    ]);
    for (kind, name, user) in [
        (Kind::Topology, "racks", "ResourceFlavor `racks`"),
        (Kind::ResourceFlavor, "any", "ClusterQueue `"),
        (Kind::MultiKueueConfig, "some", "AdmissionCheck `mk`"),
        (Kind::AdmissionCheck, "mk", "ClusterQueue `other`"),
        (Kind::Cohort, "all", "ClusterQueue `other`"),
    ] {
        let key = Key::global(kind, name);
        let refused = f.delete(&key, false).unwrap_err();
        assert!(refused.contains("still has ") && refused.contains(user), "{refused}");
        assert!(refused.contains("--force"), "{refused}");
    }
    // What a request deletes first uses nothing any more.
    let both = [Key::global(Kind::AdmissionCheck, "mk"), Key::global(Kind::MultiKueueConfig, "some")];
    f.apply(vec![cluster_queue("other", 1, &json!({"cohortName": "all"}))]);
    let deletions = both.map(|key| Change::Delete { key, uid: None, force: false });
    assert!(matches!(f.write(deletions.into()), Reply::Written(_)));
    assert_eq!(f.delete(&Key::global(Kind::Cohort, "all"), true), Ok(()));
}

#[test]
fn waiting_workloads_keep_their_queue_class_and_policy() {
    let mut f = Fleet::new(EU);
    let policy = json!({"applies": {"namespaces": ["default"]}, "allow": {"jurisdictions": ["EU"]}});
    f.apply(vec![priority_class("low", 1), meridian_object("ResidencyPolicy", "eu-only", policy)]);
    let labels = json!({"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/priority-class": "low"});
    let mut waits = job("default", "waits", 1, &labels, "");
    waits["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {GPU: 900}, "limits": {GPU: 900}});
    f.create(waits);
    f.settle();
    for key in [
        Key::namespaced(Kind::LocalQueue, "default", "lq"),
        Key::global(Kind::ClusterQueue, "cq"),
        Key::global(Kind::WorkloadPriorityClass, "low"),
        Key::global(Kind::ResidencyPolicy, "eu-only"),
    ] {
        let refused = f.delete(&key, false).unwrap_err();
        assert!(refused.contains("default/waits"), "{refused}");
    }
    assert_eq!(f.delete(&Key::global(Kind::ResidencyPolicy, "eu-only"), true), Ok(()));
    // Quota must not be charged to a queue that is gone.
    f.submit("runs", 1);
    f.settle();
    let refused = f.delete(&Key::namespaced(Kind::LocalQueue, "default", "lq"), true).unwrap_err();
    assert!(
        refused.contains("1 charged workload (default/runs) and 1 waiting workload (default/waits)"),
        "{refused}"
    );
}

#[test]
fn classes_that_a_pending_job_names_are_deleted_only_by_force() {
    let mut f = Fleet::new(EU);
    let class = |name: &str, value: i64| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value})
    };
    f.apply(vec![
        class("urgent", 7),
        class("other", 7),
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"},
            "handler": "runsc"}),
    ]);
    let mut waits = job("default", "waits", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    let pod = &mut waits["spec"]["template"]["spec"];
    pod["priorityClassName"] = json!("urgent");
    pod["runtimeClassName"] = json!("gvisor");
    pod["containers"][0]["resources"] = json!({"requests": {GPU: 900}, "limits": {GPU: 900}});
    f.create(waits);
    f.settle();
    for key in [Key::global(Kind::PriorityClass, "urgent"), Key::global(Kind::RuntimeClass, "gvisor")] {
        let refused = f.delete(&key, false).unwrap_err();
        assert!(refused.contains("1 workload (default/waits)") && refused.contains("--force"), "{refused}");
    }
    assert_eq!(f.delete(&Key::global(Kind::PriorityClass, "other"), false), Ok(()));
    assert_eq!(f.delete(&Key::global(Kind::PriorityClass, "urgent"), true), Ok(()));
    f.delete(&Key::namespaced(Kind::Job, "default", "waits"), false).unwrap();
    f.settle();
    assert_eq!(f.delete(&Key::global(Kind::RuntimeClass, "gvisor"), false), Ok(()));
}

#[test]
fn clusters_of_a_config_and_bound_roles_are_deleted_only_by_force() {
    let mut f = Fleet::new(EU);
    let rbac = "rbac.authorization.k8s.io";
    let version = format!("{rbac}/v1");
    let role = |kind: &str, name: &str| {
        let metadata = json!({"name": name});
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": []})
    };
    let binding = |kind: &str, of: &str, name: &str| {
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": "binds"},
            "roleRef": {"apiGroup": rbac, "kind": of, "name": name},
            "subjects": [{"kind": "User", "name": "sam"}]})
    };
    f.apply(vec![
        cluster_object("us", "us-east4", "US"),
        kueue_object("MultiKueueConfig", "all", json!({"clusters": ["us"]})),
        role("ClusterRole", "wide"),
        role("Role", "near"),
        role("Role", "free"),
        binding("ClusterRoleBinding", "ClusterRole", "wide"),
        binding("RoleBinding", "Role", "near"),
    ]);
    for (key, user) in [
        (Key::global(Kind::Cluster, "us"), "MultiKueueConfig `all`"),
        (Key::global(Kind::ClusterRole, "wide"), "ClusterRoleBinding `binds`"),
        (Key::namespaced(Kind::Role, "default", "near"), "default/binds"),
    ] {
        let refused = f.delete(&key, false).unwrap_err();
        assert!(refused.contains(user) && refused.contains("--force"), "{refused}");
    }
    assert_eq!(f.delete(&Key::namespaced(Kind::Role, "default", "free"), false), Ok(()));
    assert_eq!(f.delete(&Key::global(Kind::Cluster, "us"), true), Ok(()));
}

#[test]
fn the_default_namespace_stays() {
    let mut f = Fleet::new(EU);
    f.apply(vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})]);
    let refused = f.delete(&Key::global(Kind::Namespace, "default"), true).unwrap_err();
    assert!(refused.ends_with("can't be deleted"), "{refused}");
}
