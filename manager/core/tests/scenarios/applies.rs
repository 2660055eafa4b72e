//! What becomes of an object that is applied where there is one already: a file speaks of what is in it, and of what it had before.

use super::*;
use meridian_manager_core::facts::outcome::RejectionReason;
use meridian_objects::applied;

fn cluster(spec: &Value) -> Value {
    let mut whole = json!({"region": "europe-west4", "jurisdiction": "EU"});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "eu"}, "spec": whole})
}

fn namespace(labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": labels}})
}

fn eu_only() -> Value {
    json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "eu-only"}, "spec": {
        "applies": {"namespaceSelector": {"matchLabels": {"data": "personal"}}}, "allow": {"jurisdictions": ["EU"]}}})
}

fn queue_in(namespace: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "lq", "namespace": namespace}, "spec": {"clusterQueue": "cq"}})
}

impl Fleet {
    fn stored(&self, key: &Key) -> Object {
        let mut object = (*self.world.state.catalog().get(key).expect("it is there").object).clone();
        applied::forget(&mut object);
        object
    }

    /// As `PUT` and `PATCH` write it.
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
fn a_cordoned_cluster_whose_file_says_nothing_of_it_stays_cordoned() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.apply(vec![cluster(&json!({}))]);
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("eu".into()) });
    f.apply(vec![cluster(&json!({}))]);
    let uid = f.submit("job", 1);
    f.settle();
    assert_eq!(f.at(uid), None);
    f.apply(vec![cluster(&json!({"cordoned": false}))]);
    f.settle();
    assert_eq!(f.at(uid).as_deref(), Some("eu"), "it says so");
}

#[test]
fn a_label_that_binds_a_namespace_stays_where_the_file_never_had_it() {
    let mut f = Fleet::regions();
    let key = Key::global(Kind::Namespace, "ml");
    f.apply(vec![eu_only(), namespace(&json!({"team": "vision"})), queue_in("ml")]);
    let mut labelled = f.world.state.catalog().get(&key).unwrap().object.stored.clone();
    labelled["metadata"]["labels"]["data"] = json!("personal");
    f.replace(labelled);
    f.apply(vec![namespace(&json!({"team": "speech", "tier": "1"}))]);
    let labels: Vec<String> = f.stored(&key).labels.into_keys().collect();
    assert_eq!(labels, ["data", "team", "tier"]);
    let uids: Vec<Uid> = (0..6).map(|at| f.submit_in("ml", &format!("job-{at}"), 1, json!({}))).collect();
    f.settle();
    let ran: Vec<String> = uids.iter().filter_map(|uid| f.at(*uid)).collect();
    assert!(!ran.is_empty() && ran.iter().all(|at| at == "eu"), "{ran:?}");
    // What the file had and has no longer goes.
    f.apply(vec![namespace(&json!({"team": "speech"}))]);
    assert_eq!(f.stored(&key).labels.into_keys().collect::<Vec<_>>(), ["data", "team"]);
}

#[test]
fn what_was_created_otherwise_keeps_what_the_file_leaves_out_and_that_is_told_once() {
    let mut f = Fleet::regions();
    let (key, cohort) = (
        Key::global(Kind::Cohort, "all"),
        |extra: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "all", "labels": extra}}),
    );
    let made = Change::Put {
        object: object(cohort(json!({"a": "1"}))),
        scope: None,
        uid: Uid(7_000),
        mode: PutMode::Create,
    };
    f.write(vec![made]);
    let reply = f.apply(vec![cohort(json!({"b": "1"}))]);
    assert!(
        warnings(&reply).iter().any(|warning| warning.starts_with("what was applied before isn't known")),
        "{reply:?}"
    );
    assert_eq!(f.stored(&key).labels.into_keys().collect::<Vec<_>>(), ["a", "b"]);
    let (records, reply) = (f.records.len(), f.apply(vec![cohort(json!({"b": "1"}))]));
    assert_eq!(warnings(&reply), [""; 0]);
    assert_eq!(f.records.len(), records, "applied twice, nothing changes");
    f.apply(vec![cohort(json!({}))]);
    assert_eq!(f.stored(&key).labels.into_keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn what_comes_to_no_valid_object_is_refused_with_all_that_came_with_it() {
    let mut f = Fleet::regions();
    let queue = |preemption: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "other"}, "spec": {"preemption": preemption}});
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
            .starts_with("with what is there already, needs `reclaimWithinCohort` other than `Never`; "),
        "{}",
        why[0].message
    );
    assert!(f.world.state.catalog().get(&Key::global(Kind::Namespace, "ml")).is_none());
}

#[test]
fn however_large_what_is_applied_is_the_journal_can_be_read_again() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
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
