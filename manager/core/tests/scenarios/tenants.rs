//! Texts name no workload that their reader may not read. [`assert_hides_others`] runs with every explanation
//! of every scenario.

use super::*;
use meridian_manager_core::state::workload::Workload;
use meridian_objects::rbac::{Caller, MASTERS, Permissions, Policy};

impl Fleet {
    pub(super) fn why(&self, uid: Uid) -> Value {
        assert_hides_others(self, uid);
        assert_hides_others_of_other_namespaces(self, uid);
        self.why_for(uid, &Asker::unlimited())
    }

    /// An object as a reader without limits sees it.
    pub(super) fn object_at(&self, key: &Key) -> Option<Value> {
        let asker = Asker::unlimited();
        meridian_views::objects::render(&self.world, key, &self.bodies, now(self.now), &asker)
    }

    pub(super) fn why_for(&self, uid: Uid, asker: &Asker) -> Value {
        meridian_views::explain::explain(&self.world, uid, now(self.now), asker).expect("it exists")
    }
}

/// A reader with these rules in namespace `default`.
fn asker(rules: &Value) -> Asker {
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "Role",
        "metadata": {"name": "r", "namespace": "default"}, "rules": rules,
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "b", "namespace": "default"},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "sam"}],
    });
    let objects = [role, binding].map(|manifest| Object::from_value(manifest).unwrap().0);
    let caller = Caller { user: "sam".to_owned(), ..Caller::default() };
    Asker::new(Arc::new(Policy::new(&objects).permissions(caller)))
}

/// Fails if a reader without rights finds the name of another workload in what is shown of this one.
pub(super) fn assert_hides_others(f: &Fleet, uid: Uid) {
    let nobody = Asker::new(Arc::new(Permissions::default()));
    let workload = f.world.state().workloads().get(&uid).expect("it exists");
    let name_of = |workload: &Workload| format!("`{}/{}`", workload.namespace(), workload.name());
    let own = name_of(workload);
    let shown = meridian_views::workloads::shown(&f.world, uid, now(f.now).mono).expect("it exists");
    let reason = f.world.pending_reason(shown.class().0);
    let status = shown.job_without_manifest(reason.as_ref(), &nobody)["status"].clone();
    let status_of_workload = shown.workload(reason.as_ref(), &nobody)["status"].clone();
    let texts = [f.why_for(uid, &nobody), status, status_of_workload].map(|value| value.to_string());
    for (other, workload) in f.world.state().workloads().iter() {
        // another submission of the same name is no other name
        let name = name_of(workload);
        if name == own {
            continue;
        }
        for text in &texts {
            assert!(!text.contains(&name), "{uid} learns the name of {other}, {name}: {text}");
            let id = other.to_string();
            assert!(*other == uid || !text.contains(&id), "{uid} learns the UID of {other}: {text}");
        }
    }
}

#[test]
fn a_preempted_job_names_its_preemptor_only_to_readers_with_the_right_to_read_it() {
    let mut f = Fleet::regions();
    f.apply(vec![
        priority_class("high", 9),
        cluster_queue("a", 4, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})),
        local_queue("a", "a"),
    ]);
    let labels = |class: Option<&str>| match class {
        Some(class) => json!({"kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/priority-class": class}),
        None => json!({"kueue.x-k8s.io/queue-name": "a"}),
    };
    let low = f.create(job("default", "low", 4, &labels(None), ""));
    f.settle();
    assert_eq!(f.phase(low), Some(Phase::Running));
    let high = f.create(job("default", "high", 4, &labels(Some("high")), ""));
    let preempted = |f: &Fleet, asker: &Asker| {
        let shown = meridian_views::workloads::shown(&f.world, low, now(f.now).mono).expect("it exists");
        shown.workload(None, asker)["status"]["conditions"].to_string()
    };
    let summary = |f: &Fleet, asker: &Asker| f.why_for(low, asker)["summary"].as_str().unwrap().to_owned();
    let rule = |resources: Value, names: Value| {
        json!([{"verbs": ["get"], "apiGroups": ["batch", "kueue.x-k8s.io"], "resources": resources,
            "resourceNames": names}])
    };
    let mine = asker(&rule(json!(["jobs"]), json!(["low"])));
    let both = asker(&rule(json!(["workloads"]), json!([])));
    for settled in [false, true] {
        if settled {
            f.settle();
        }
        assert!(summary(&f, &mine).contains("preempted by a workload of another tenant (priority 9)"));
        assert!(!f.why_for(low, &mine).to_string().contains("default/high"));
        assert!(summary(&f, &both).contains("preempted by workload `default/high` (priority 9)"));
        assert!(preempted(&f, &mine).contains("accommodate a workload of another tenant due to"));
        assert!(preempted(&f, &both).contains(&format!("JobUID: {high})")));
    }
}

/// The controllers of a management cluster: they may read everything, and copy texts into namespaces.
fn controllers() -> Asker {
    let caller = Caller { user: "controllers".to_owned(), groups: [MASTERS.to_owned()].into() };
    Asker::that_copies(Arc::new(Policy::default().permissions(caller)))
}

#[test]
fn a_text_that_is_copied_into_a_namespace_names_jobs_of_that_namespace_only() {
    let mut f = Fleet::regions();
    f.apply(vec![
        priority_class("high", 9),
        cluster_queue("a", 8, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})),
        local_queue("a", "a"),
        local_queue_in("team", "a", "a"),
    ]);
    let labels = json!({"kueue.x-k8s.io/queue-name": "a"});
    let own = f.create(job("default", "own", 4, &labels, ""));
    let other = f.create(job("team", "other", 4, &labels, ""));
    f.settle();
    let mut high = labels.clone();
    high["kueue.x-k8s.io/priority-class"] = json!("high");
    for name in ["high-1", "high-2"] {
        f.create(job("default", name, 4, &high, ""));
        f.settle();
    }
    let conditions = |uid: Uid, asker: &Asker| {
        let shown = meridian_views::workloads::shown(&f.world, uid, now(f.now).mono).expect("it exists");
        shown.workload(None, asker)["status"]["conditions"].to_string()
    };
    for uid in [own, other] {
        assert!(conditions(uid, &Asker::unlimited()).contains("JobUID: "), "it was preempted");
    }
    assert!(conditions(own, &controllers()).contains("JobUID: "), "by a job of its own namespace");
    let copied = conditions(other, &controllers());
    assert!(copied.contains("a workload of another tenant") && !copied.contains("JobUID: "), "{copied}");
    for (uid, names) in [(own, true), (other, false)] {
        let namespace = f.world.state().workloads()[&uid].namespace();
        let text = f.why_for(uid, &controllers().about(Some(namespace))).to_string();
        assert_eq!(text.contains("`default/high-"), names, "{text}");
    }
}

/// Fails if what controllers copy of this workload names one of another namespace.
fn assert_hides_others_of_other_namespaces(f: &Fleet, uid: Uid) {
    let namespace = f.world.state().workloads()[&uid].namespace();
    let shown = meridian_views::workloads::shown(&f.world, uid, now(f.now).mono).expect("it exists");
    let reason = f.world.pending_reason(shown.class().0);
    let job = shown.job_without_manifest(reason.as_ref(), &controllers())["status"].to_string();
    let workload = shown.workload(reason.as_ref(), &controllers())["status"].to_string();
    for (_, other) in f.world.state().workloads().iter().filter(|(_, other)| other.namespace() != namespace) {
        let name = format!("`{}/{}`", other.namespace(), other.name());
        assert!(!job.contains(&name) && !workload.contains(&name), "{uid} learns {name}: {job} {workload}");
    }
}
