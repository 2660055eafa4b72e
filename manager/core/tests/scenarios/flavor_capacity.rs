//! The capacity of a flavor: only nodes with its labels count, for assignment and for preemption.

use super::*;

const LOWER: &str = "LowerPriority";

#[test]
fn preemption_frees_capacity_in_the_assigned_flavor() {
    let mut f = Fleet::new(EU);
    let node = |name: &str, pool: &str| NodeSpec {
        name: name.into(),
        labels: [("pool".to_owned(), pool.to_owned())].into(),
        capacity: Amounts::from([(GPU.into(), 4)]),
        ..NodeSpec::default()
    };
    let nodes = vec![node("old", "old"), node("new", "new")];
    f.agents.values_mut().next().unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    let flavor = |name: &str| kueue_object("ResourceFlavor", name, json!({"nodeLabels": {"pool": name}}));
    let queue = |name: &str, flavors: Value| {
        kueue_object(
            "ClusterQueue",
            name,
            json!({
                "namespaceSelector": {},
                "preemption": {"withinClusterQueue": LOWER},
                "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
            }),
        )
    };
    let local = |name: &str| local_queue(name, name);
    f.apply(vec![
        flavor("old"),
        flavor("new"),
        queue("other", json!([flavor_quota("new", 4)])),
        queue("both", json!([flavor_quota("new", 8), flavor_quota("old", 4)])),
        local("other"),
        local("both"),
    ]);
    priority_classes(&mut f, 9);
    f.settle();
    // Another queue uses half of the new node. Both queues have quota there, `both` also for the old node.
    let others = f.submit_to("other", "others", 2, Some("low"));
    f.settle();
    let new = f.submit_to("both", "new", 2, Some("low"));
    f.settle();
    let first = f.submit_to("both", "first", 2, Some("high"));
    f.settle();
    assert_eq!(f.phases(&[others, new, first]), [Some(Phase::Running); 3], "the old node has free GPUs");
    let second = f.submit_to("both", "second", 4, Some("high"));
    f.settle();
    assert_eq!(
        f.phases(&[others, new, first, second]),
        [Phase::Running, Phase::Running, Phase::Running, Phase::Pending].map(Some),
        "no flavor has four GPUs left"
    );
    let third = f.submit_to("both", "third", 2, Some("high"));
    f.settle();
    assert_eq!(
        f.phases(&[others, new, third]),
        [Phase::Running, Phase::Running, Phase::Running].map(Some),
        "the old node has two more free GPUs"
    );
    let fourth = f.submit_to("both", "fourth", 2, Some("high"));
    f.settle();
    f.settle();
    assert_eq!(
        f.phases(&[others, new, fourth]),
        [Phase::Running, Phase::Pending, Phase::Running].map(Some),
        "{:#}",
        f.why(fourth)
    );
}

/// No node has the labels of both flavors.
#[test]
fn flavors_with_contradicting_labels_are_not_assigned_together() {
    let mut f = Fleet::new(EU);
    let node = |kind: &str| NodeSpec {
        name: kind.into(),
        capacity: Amounts::from([(GPU.into(), 4), ("cpu".into(), 8_000)]),
        labels: [("kind".to_owned(), kind.to_owned())].into(),
        ..NodeSpec::default()
    };
    f.agents
        .values_mut()
        .next()
        .unwrap()
        .apply(now(f.now), AgentInput::Nodes { nodes: vec![node("x"), node("y")], pools: Vec::new() });
    let flavor =
        |name: &str| kueue_object("ResourceFlavor", name, json!({"nodeLabels": {"kind": &name[..1]}}));
    let quota = |flavor: &str, resource: &str| {
        let resource = json!({"name": resource, "nominalQuota": 8});
        json!({"name": flavor, "resources": [resource]})
    };
    let queue = kueue_object(
        "ClusterQueue",
        "both",
        json!({"namespaceSelector": {}, "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [quota("x-gpu", GPU), quota("y-gpu", GPU)]},
            {"coveredResources": ["cpu"], "flavors": [quota("y-cpu", "cpu")]},
        ]}),
    );
    f.apply(vec![flavor("x-gpu"), flavor("y-gpu"), flavor("y-cpu"), queue, local_queue("both", "both")]);
    let mut one = job("default", "one", 1, &json!({"kueue.x-k8s.io/queue-name": "both"}), "");
    one["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {GPU: 1, "cpu": 1}, "limits": {GPU: 1}});
    let Reply::Written(written) = f.apply(vec![one]) else { panic!("not submitted") };
    f.settle();
    let assigned: Vec<&str> = f.world.state().workloads()[&written[0].uid]
        .flavors()
        .names()
        .into_iter()
        .map(|flavor| &**flavor)
        .collect();
    assert_eq!(assigned, ["y-cpu", "y-gpu"], "{:#}", f.why(written[0].uid));
}

/// Preemption would free enough quota in the second flavor, but no node of it is large enough for the pod.
#[test]
fn a_workload_borrows_if_preemption_would_free_only_small_nodes() {
    let mut f = Fleet::new(EU);
    let node = |name: &str, gpus: i64| NodeSpec {
        name: name.to_owned(),
        labels: BTreeMap::from([("kind".to_owned(), name[..1].to_owned())]),
        capacity: Amounts::from([(GPU.into(), gpus)]),
        ..NodeSpec::default()
    };
    let nodes =
        ["b0", "b1", "b2", "b3"].map(|name| node(name, 1)).into_iter().chain([node("a0", 4)]).collect();
    f.agents.values_mut().next().unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    let flavor = |name: &str| kueue_object("ResourceFlavor", name, json!({"nodeLabels": {"kind": name}}));
    let queue = |name: &str, flavors: Value| {
        let group = json!([{"coveredResources": [GPU], "flavors": flavors}]);
        let fungibility = json!({
            "whenCanBorrow": "TryNextFlavor",
            "whenCanPreempt": "TryNextFlavor",
            "preference": "PreemptionOverBorrowing",
        });
        cluster_queue(
            name,
            0,
            &json!({
                "cohortName": "all",
                "resourceGroups": group,
                "flavorFungibility": fungibility,
                "preemption": {"withinClusterQueue": LOWER},
            }),
        )
    };
    f.apply(vec![
        flavor("a"),
        flavor("b"),
        queue("mine", json!([flavor_quota("a", 0), flavor_quota("b", 4)])),
        queue("lends", json!([flavor_quota("a", 4)])),
        local_queue("mine", "mine"),
    ]);
    priority_classes(&mut f, 9);
    let low = f.submit_to("mine", "low", 4, Some("low"));
    f.settle();
    assert_eq!(f.phase(low), Some(Phase::Running), "{:#}", f.why(low));
    let mut large = job(
        "default",
        "large",
        1,
        &json!({"kueue.x-k8s.io/queue-name": "mine", "kueue.x-k8s.io/priority-class": "high"}),
        "",
    );
    for part in ["requests", "limits"] {
        large["spec"]["template"]["spec"]["containers"][0]["resources"][part] = json!({GPU: 2});
    }
    let Reply::Written(written) = f.apply(vec![large]) else { panic!("refused") };
    f.settle();
    assert_eq!(f.phases(&[low, written[0].uid]), [Some(Phase::Running); 2], "{:#}", f.why(written[0].uid));
}
