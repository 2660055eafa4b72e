//! Applying a manifest to an existing object: a three-way merge of the stored object, the manifest and the
//! manifest that was applied last.

use super::*;
use meridian_manager_core::facts::outcome::RejectionReason;
use meridian_objects::last_applied;

#[path = "apply_merge/files.rs"]
mod files;

fn cluster(spec: &Value) -> Value {
    let mut whole = json!({"region": "europe-west4", "jurisdiction": "EU"});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    meridian_object("Cluster", "eu", whole)
}

fn namespace(labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": labels}})
}

fn eu_only() -> Value {
    let spec = json!({
        "applies": {"namespaceSelector": {"matchLabels": {"data": "personal"}}},
        "allow": {"jurisdictions": ["EU"]},
    });
    meridian_object("ResidencyPolicy", "eu-only", spec)
}

fn queue_in(namespace: &str) -> Value {
    local_queue_in(namespace, "lq", "cq")
}

impl Fleet {
    fn stored(&self, key: &Key) -> Object {
        let mut object = (*self.world.state().catalog().get(key).expect("it exists").object).clone();
        last_applied::remove(&mut object);
        object
    }

    /// A write as `PUT` and `PATCH` do it.
    fn replace(&mut self, value: Value) {
        let put =
            Change::Put { object: object(value), scope: None, uid: Uid(0), mode: PutMode::Replace(None) };
        assert!(matches!(self.write(vec![put]), Reply::Written(_)));
    }
}

fn warnings(reply: &Reply) -> &[String] {
    match reply {
        Reply::Written(written) => &written[0].warnings,
        other => panic!("not written: {other:?}"),
    }
}

#[test]
fn a_manifest_without_the_cordon_leaves_the_cluster_cordoned() {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster(&json!({}))]);
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("eu".into()) });
    f.apply(vec![cluster(&json!({}))]);
    let uid = f.submit("job", 1);
    f.settle();
    assert_eq!(f.cluster_of(uid), None);
    f.apply(vec![cluster(&json!({"cordoned": false}))]);
    f.settle();
    assert_eq!(f.cluster_of(uid).as_deref(), Some("eu"), "the manifest lifts the cordon");
}

#[test]
fn a_label_that_the_manifest_never_had_stays() {
    let mut f = Fleet::regions();
    let key = Key::global(Kind::Namespace, "ml");
    f.apply(vec![eu_only(), namespace(&json!({"team": "vision"})), queue_in("ml")]);
    let mut labelled = f.world.state().catalog().get(&key).unwrap().object.stored.clone();
    labelled["metadata"]["labels"]["data"] = json!("personal");
    f.replace(labelled);
    f.apply(vec![namespace(&json!({"team": "speech", "tier": "1"}))]);
    let labels: Vec<String> = f.stored(&key).labels.into_keys().collect();
    assert_eq!(labels, ["data", "team", "tier"]);
    let uids: Vec<Uid> = (0..6).map(|at| f.submit_in("ml", &format!("job-{at}"), 1, json!({}))).collect();
    f.settle();
    let clusters: Vec<String> = uids.iter().filter_map(|uid| f.cluster_of(*uid)).collect();
    assert!(!clusters.is_empty() && clusters.iter().all(|cluster| cluster == "eu"), "{clusters:?}");
    // A label that the manifest had before, and has no longer, is removed.
    f.apply(vec![namespace(&json!({"team": "speech"}))]);
    assert_eq!(f.stored(&key).labels.into_keys().collect::<Vec<_>>(), ["data", "team"]);
}

#[test]
fn the_first_apply_to_a_created_object_removes_nothing_and_warns() {
    let mut f = Fleet::regions();
    let key = Key::global(Kind::Cohort, "all");
    let cohort = |labels: Value| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort",
            "metadata": {"name": "all", "labels": labels},
        })
    };
    let create = Change::Put {
        object: object(cohort(json!({"a": "1"}))),
        scope: None,
        uid: Uid(7_000),
        mode: PutMode::Create,
    };
    f.write(vec![create]);
    let reply = f.apply(vec![cohort(json!({"b": "1"}))]);
    assert!(
        warnings(&reply).iter().any(|warning| warning.starts_with("the last applied object isn't known")),
        "{reply:?}"
    );
    assert_eq!(f.stored(&key).labels.into_keys().collect::<Vec<_>>(), ["a", "b"]);
    let (records, reply) = (f.records.len(), f.apply(vec![cohort(json!({"b": "1"}))]));
    assert_eq!(warnings(&reply), [""; 0]);
    assert_eq!(f.records.len(), records, "the second apply changes nothing");
    f.apply(vec![cohort(json!({}))]);
    assert_eq!(f.stored(&key).labels.into_keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn an_invalid_merge_result_refuses_the_whole_request() {
    let mut f = Fleet::regions();
    let queue = |preemption: Value| kueue_object("ClusterQueue", "other", json!({"preemption": preemption}));
    f.apply(vec![queue(json!({"reclaimWithinCohort": "Any"}))]);
    f.replace(queue(
        json!({"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}),
    ));
    let reply =
        f.apply(vec![namespace(&json!({"new": "1"})), queue(json!({"reclaimWithinCohort": "Never"}))]);
    let Reply::Rejected(why) = reply else { panic!("{reply:?}") };
    assert_eq!((why.len(), why[0].index, why[0].reason), (1, 1, RejectionReason::Invalid));
    assert_eq!(why[0].field.as_deref(), Some("spec.preemption.borrowWithinCohort.policy"));
    assert!(
        why[0]
            .message
            .starts_with("merged with the stored object, needs `reclaimWithinCohort` other than `Never`; "),
        "{}",
        why[0].message
    );
    assert!(f.world.state().catalog().get(&Key::global(Kind::Namespace, "ml")).is_none());
}

#[test]
fn a_large_manifest_can_be_read_back_from_the_journal() {
    let mut f = Fleet::new(EU);
    for bytes in [100_000, 130_000, 135_000, 190_000, 262_000] {
        let mut large = cluster(&json!({}));
        large["metadata"]["annotations"] = json!({"of/theirs": "x".repeat(bytes)});
        let reply = f.apply(vec![large]);
        assert!(matches!(reply, Reply::Written(_)), "{bytes}: {reply:?}");
        for action in [Operator::Drain, Operator::Uncordon] {
            assert!(
                matches!(
                    f.input(Input::Operator { actor: Actor::user("op"), action: action("eu".into()) }),
                    Reply::Done(_)
                ),
                "{bytes}"
            );
        }
        World::restore(&f.world.snapshot(), config()).unwrap_or_else(|error| panic!("{bytes}: {error}"));
    }
    for (_, record) in &f.records {
        let bytes = serde_json::to_vec(record).unwrap();
        serde_json::from_slice::<Record>(&bytes).unwrap();
    }
}
