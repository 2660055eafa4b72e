//! What pods request: defaults and limits of a namespace, runtime overhead, resource transformations, and
//! excluded or counted resources of a queue.

use super::priority_classes::priority;
use super::*;

fn limit_range(limits: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "most", "namespace": "default"},
        "spec": {"limits": limits},
    })
}

/// A cluster queue with these quotas in the flavor `any`, which excludes resources with these prefixes.
fn queue_with_quotas(name: &str, excluded_prefixes: &[&str], quotas: &[(&str, i64)]) -> Value {
    let covered: Vec<&str> = quotas.iter().map(|(resource, _)| *resource).collect();
    let resources: Vec<Value> =
        quotas.iter().map(|(resource, nominal)| json!({"name": resource, "nominalQuota": nominal})).collect();
    let flavors = json!([{"name": "any", "resources": resources}]);
    let spec = json!({
        "namespaceSelector": {}, "excludeResourcePrefixes": excluded_prefixes,
        "resourceGroups": [{"coveredResources": covered, "flavors": flavors}],
    });
    kueue_object("ClusterQueue", name, spec)
}

#[test]
fn limit_range_defaults_and_runtime_overhead_count_as_requests() {
    let mut f = Fleet::regions();
    f.apply(vec![
        limit_range(json!([
            {"type": "Container", "max": {GPU: 2}, "defaultRequest": {"cpu": "500m"}, "default": {"cpu": 1}},
        ])),
        json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "boxed"},
            "handler": "boxed", "overhead": {"podFixed": {"cpu": "250m"}},
        }),
        queue_with_quotas("cq", &["example.com/"], &[(GPU, 4), ("cpu", 1)]),
    ]);
    let mut boxed = job("default", "boxed", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    boxed["spec"]["template"]["spec"]["runtimeClassName"] = json!("boxed");
    for place in ["requests", "limits"] {
        boxed["spec"]["template"]["spec"]["containers"][0]["resources"][place]["example.com/license"] =
            json!(1);
    }
    let mut cheaper = boxed.clone();
    cheaper["metadata"]["name"] = json!("cheaper");
    cheaper["spec"]["template"]["spec"]["overhead"] = json!({"cpu": 0});
    let Reply::Rejected(why) = f.apply(vec![cheaper]) else { panic!("accepted") };
    assert!(why[0].message.contains("`overhead` isn't that of runtime class"), "{why:?}");
    let boxed = f.create(boxed);
    let class = f.world.queues().class(f.world.state().workloads()[&boxed].class()).clone();
    assert_eq!(
        class.gang.pod_sets[0].per_pod,
        Amounts::from([("cpu".into(), 750), (GPU.into(), 1), ("example.com/license".into(), 1)])
    );
    let second = f.submit("second", 1);
    let class = f.world.queues().class(f.world.state().workloads()[&second].class()).clone();
    assert_eq!(class.gang.pod_sets[0].per_pod["cpu"], 500, "the default request counts");
    let mut greedy = job("default", "greedy", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    greedy["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {GPU: 3}, "limits": {GPU: 3}});
    let Reply::Rejected(why) = f.apply(vec![greedy]) else { panic!("accepted") };
    assert_eq!(
        why[0].message,
        "containers[0] asks for more than the limit range allows; `nvidia.com/gpu` is `3`, the maximum is `2`"
    );
}

#[test]
fn resource_transformations_apply_to_quota() {
    let mut f = Fleet::new(EU);
    f.world.config_mut().resources = std::sync::Arc::new(
        meridian_objects::ResourceRules::from_json(&json!({
            "excludeResourcePrefixes": ["net.example/"],
            "transformations": [{"input": GPU, "strategy": "Replace", "outputs": {"credits": "10"}}],
        }))
        .unwrap(),
    );
    // Quota is in credits. The node labels of the flavor still apply to the pods.
    f.apply(vec![
        kueue_object("ResourceFlavor", "any", json!({"nodeLabels": {"pool": "none-has-it"}})),
        queue_with_quotas("cq", &[], &[("credits", 25)]),
    ]);
    let first = f.submit("labelled", 1);
    f.settle();
    assert_eq!(f.phase(first), Some(Phase::Pending), "no node has the label of the flavor");
    f.apply(vec![kueue_object("ResourceFlavor", "any", json!({}))]);
    f.settle();
    let (second, third) = (f.submit("second", 1), f.submit("third", 1));
    f.settle();
    assert_eq!(
        f.phases(&[first, second, third]),
        [Some(Phase::Running), Some(Phase::Running), Some(Phase::Pending)]
    );
    assert!(
        f.why(third)["summary"]
            .as_str()
            .unwrap()
            .starts_with("pending: needs 10 credits; cluster queue `cq` has 5 of 25 free in flavor `any`")
    );
    let key = Key::namespaced(Kind::LocalQueue, "default", "lq");
    let queue = f.object_at(&key).unwrap();
    assert_eq!(queue["status"]["flavorsUsage"][0]["resources"][0], json!({"name": "credits", "total": "20"}));
    f.restart(2, RECOVERY);
    f.settle();
    f.settle();
    f.end(second, EndResult::Succeeded);
    assert_eq!(f.phases(&[first, third]), [Some(Phase::Running), Some(Phase::Running)]);
}

#[test]
fn a_write_that_names_an_object_twice_is_refused() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("train", 1);
    let key = Key::namespaced(Kind::Job, "default", "train");
    let delete = || Change::Delete { key: key.clone(), uid: None, force: false };
    let put = Change::Put {
        object: object(job("default", "train", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "")),
        scope: None,
        uid: Uid(99),
        mode: PutMode::Apply,
    };
    for changes in [vec![delete(), delete()], vec![delete(), put]] {
        let Reply::Rejected(why) = f.write(changes) else { panic!("accepted") };
        assert!(why[0].index == 1 && why[0].message.ends_with("appears twice in one request"), "{why:?}");
    }
    assert!(f.world.state().workloads().contains_key(&uid), "no part of the write was applied");
}

#[test]
fn pods_count_in_a_queue_with_a_quota_for_pods() {
    let mut f = Fleet::regions();
    f.apply(vec![queue_with_quotas("few", &[], &[(GPU, 100), ("pods", 5)]), local_queue("few", "few")]);
    let (four, more) = (f.submit_to("few", "four", 4, None), f.submit_to("few", "more", 2, None));
    f.settle();
    assert_eq!(f.phases(&[four, more]), [Some(Phase::Running), Some(Phase::Pending)]);
    assert_eq!(f.world.queues().usage("few").unwrap()[&(Arc::from("any"), "pods".to_owned())], 4);
    f.restart(2, RECOVERY);
    f.settle();
    f.settle();
    f.end(four, EndResult::Succeeded);
    f.settle();
    assert_eq!(f.phase(more), Some(Phase::Running));
}

#[test]
fn a_newly_excluded_resource_admits_pending_workloads() {
    let mut f = Fleet::regions();
    let queue = |prefixes: &[&str]| queue_with_quotas("cq", prefixes, &[("cpu", 10)]);
    f.apply(vec![queue(&[])]);
    let (first, second) = (f.submit("first", 1), f.submit("second", 1));
    f.settle();
    assert_eq!(f.phases(&[first, second]), [Some(Phase::Pending), Some(Phase::Pending)]);
    f.apply(vec![queue(&["nvidia.com/"])]);
    f.settle();
    assert_eq!(f.phases(&[first, second]), [Some(Phase::Running), Some(Phase::Running)]);
}

#[test]
fn a_new_limit_range_doesnt_change_submitted_workloads() {
    let mut f = Fleet::regions();
    let range = |max: Value, default_cpu: u32| {
        limit_range(json!([{"type": "Container", "max": max, "defaultRequest": {"cpu": default_cpu}}]))
    };
    f.apply(vec![range(json!({}), 3), priority_class("hi", 10), priority_class("top", 20)]);
    let per_pod = |f: &Fleet, uid: Uid| {
        f.world.queues().class(f.world.state().workloads()[&uid].class()).gang.pod_sets[0].per_pod["cpu"]
    };
    let manifest = |pods: u32, class: &str| {
        let mut job = super::elastic::elastic("early", pods);
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
        job
    };
    let (uid, _) = f.put(manifest(2, "hi"));
    f.settle();
    assert_eq!(per_pod(&f, uid), 3_000);
    // A lower default, and then a maximum below the workload's request.
    for max in [json!({}), json!({"cpu": 2})] {
        f.apply(vec![range(max, 1)]);
        for (pods, class, expected) in [(2, "top", 20), (3, "hi", 10), (2, "hi", 10)] {
            assert_eq!(f.put(manifest(pods, class)).0, uid);
            f.settle();
            assert_eq!((per_pod(&f, uid), priority(&f, uid)), (3_000, expected), "{pods} {class}");
        }
    }
    let later = f.submit("later", 1);
    assert_eq!(per_pod(&f, later), 1_000);
}

#[test]
fn a_policy_without_times_leaves_those_of_the_manager() {
    let mut f = Fleet::new(EU);
    f.world.config_mut().term = Millis::mins(4 * 60);
    f.apply(vec![meridian_object(
        "DispatchPolicy",
        "wait",
        json!({"applies": {"queues": ["*"]}, "onClusterLoss": {"mode": "Wait"}}),
    )]);
    let uid = f.submit("job", 3);
    assert_eq!(f.world.state().workloads()[&uid].term(), Millis::mins(4 * 60));
    f.settle();
    let (_, leg) = f.world.state().workloads()[&uid].right().unwrap();
    let lease = f.world.live().leases().get(leg.fence().unwrap()).unwrap();
    assert_eq!(lease.term(), Millis::mins(4 * 60));
    // The scenarios' manager has a start timeout of 30 s.
    assert!(lease.start_by() <= Mono(f.now) + Millis::secs(30));
}

#[test]
fn a_dispatch_policy_for_a_queue_that_no_cluster_queue_has_causes_a_warning() {
    let mut f = Fleet::new(EU);
    let mut warnings = |queue: &str| {
        let policy = meridian_object("DispatchPolicy", "p", json!({"applies": {"queues": [queue]}}));
        match f.apply(vec![policy]) {
            Reply::Written(written) => written[0].warnings.clone(),
            other => panic!("refused: {other:?}"),
        }
    };
    assert_eq!(warnings("cq"), Vec::<String>::new());
    assert_eq!(warnings("*"), Vec::<String>::new());
    assert_eq!(warnings("cp"), ["spec.applies.queues: there is no cluster queue `cp`; there is `cq`"]);
    assert_eq!(
        warnings("lq"),
        ["spec.applies.queues: there is no cluster queue `lq`, only a local queue, which can't be named \
          here; there is `cq`"]
    );
    // A queue of the same request counts.
    let policy = meridian_object("DispatchPolicy", "p", json!({"applies": {"queues": ["new"]}}));
    let Reply::Written(written) = f.apply(vec![policy, cluster_queue("new", 1, &json!({}))]) else {
        panic!("refused")
    };
    assert!(written.iter().all(|written| written.warnings.is_empty()));
}
