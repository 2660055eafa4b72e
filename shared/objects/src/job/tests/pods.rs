//! Pods of a Job: requests, node selection, containers.

use super::*;

#[test]
fn effective_requests_follow_the_scheduler() {
    let ask = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let job = read(with(&[
        (
            "spec.template.spec.containers",
            json!([
                {"name": "a", "resources": ask("1")},
                {"name": "b", "resources": {"limits": {"cpu": "500m", "nvidia.com/gpu": 2}}},
            ]),
        ),
        ("spec.template.spec.overhead", json!({"cpu": "10m"})),
    ]));
    assert_eq!(
        job.unwrap().gang.pod_sets[0].per_pod,
        Amounts::from([("cpu".into(), 1_510), ("nvidia.com/gpu".into(), 2)])
    );

    let check = |init: Value, expect: i64| {
        let job = with(&[
            ("spec.template.spec.initContainers", init),
            ("spec.template.spec.containers", json!([{"name": "a", "resources": ask("1")}])),
        ]);
        assert_eq!(read(job).unwrap().gang.pod_sets[0].per_pod["cpu"], expect);
    };
    check(json!([{"name": "i", "resources": ask("500m")}]), 1_000);
    check(json!([{"name": "i", "resources": ask("3")}, {"name": "k", "resources": ask("2")}]), 3_000);
    check(json!([{"name": "s", "restartPolicy": "Always", "resources": ask("200m")}]), 1_200);
    check(
        json!([{"name": "s", "restartPolicy": "Always", "resources": ask("200m")},
            {"name": "i", "resources": ask("3")}]),
        3_200,
    );
    check(
        json!([{"name": "i", "resources": ask("3")},
            {"name": "s", "restartPolicy": "Always", "resources": ask("200m")}]),
        3_000,
    );

    let whole = with(&[
        ("spec.template.spec.resources", json!({"requests": {"cpu": "4"}})),
        (
            "spec.template.spec.containers",
            json!([{"name": "a", "resources": {"requests": {"cpu": 1, "memory": "1Ki"}}}]),
        ),
    ]);
    assert_eq!(
        read(whole).unwrap().gang.pod_sets[0].per_pod,
        Amounts::from([("cpu".into(), 4_000), ("memory".into(), 1_024)])
    );
}

#[test]
fn a_whole_pod_requests_at_least_what_its_containers_do() {
    let check = |resources: Value, containers: Value, expect: Result<(&str, i64), &str>| {
        let job = with(&[
            (&format!("{POD}.resources"), resources),
            (&format!("{POD}.containers"), json!([{"name": "a", "resources": containers}])),
        ]);
        match (read(job), expect) {
            (Ok(job), Ok((resource, amount))) => {
                assert_eq!(job.gang.pod_sets[0].per_pod[resource], amount);
            }
            (Err(errors), Err(expect)) => {
                assert!(errors.iter().any(|error| error.contains(expect)), "wanted `{expect}` in {errors:?}");
            }
            (found, expect) => panic!("{expect:?}: {:?}", found.map(|job| job.gang)),
        }
    };
    let cpu = |place: &str, cpu: Value| json!({place: {"cpu": cpu}});
    check(
        cpu("requests", json!("100m")),
        cpu("requests", json!(8)),
        Err(
            "spec.template.spec.resources.requests.cpu: `100m` is less than its containers request together, \
            `8`; write at least `8`",
        ),
    );
    check(cpu("requests", json!(9)), cpu("requests", json!(8)), Ok(("cpu", 9_000)));
    // A limit of the pod is a request only where no container has one.
    check(cpu("limits", json!(8)), cpu("requests", json!("500m")), Ok(("cpu", 500)));
    check(cpu("limits", json!(8)), json!({}), Ok(("cpu", 8_000)));
    check(
        cpu("limits", json!(1)),
        cpu("limits", json!(2)),
        Err("spec.template.spec.resources.limits.cpu: `1` is less than the limit of a container, `2`"),
    );
    check(
        json!({"limits": {"nvidia.com/gpu": 1}}),
        json!({}),
        Err("spec.template.spec.resources.limits[nvidia.com/gpu]: a pod as a whole can't have \
            `nvidia.com/gpu`"),
    );
    check(
        json!({"requests": {"ephemeral-storage": "1Gi"}}),
        json!({}),
        Err("can't have `ephemeral-storage`"),
    );
    check(
        json!({"claims": [{"name": "x"}]}),
        json!({}),
        Err("resources.claims: can't be claimed by the pod"),
    );
}

#[test]
fn amounts_are_checked() {
    let container = |resources: Value| {
        [("spec.template.spec.containers", json!([{"name": "a", "resources": resources}]))]
    };
    let at = "spec.template.spec.containers[0].resources";
    check_error(
        &container(json!({"requests": {"cpu": "1 core"}})),
        &format!("{at}.requests.cpu: `1 core` has the unknown suffix"),
    );
    check_error(
        &container(json!({"requests": {"cpu": "-1"}})),
        &format!("{at}.requests.cpu: `-1` is negative"),
    );
    check_error(&container(json!({"requests": {"memory": "9Ei"}})), "`9Ei` is too large");
    check_error(
        &container(json!({"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}})),
        "must equal the limit of `nvidia.com/gpu`",
    );
    check_error(
        &container(json!({"requests": {"cpu": 2}, "limits": {"cpu": 1}})),
        "is more than the limit of `cpu`; write at most `1`",
    );
    check_error(&container(json!({"requests": {"a b": 2}})), "`a b` is not a resource name");
    check_error(
        &[
            container(json!({"requests": {"memory": "7Ei"}}))[0].clone(),
            ("spec.parallelism", json!(2)),
            ("spec.completions", json!(2)),
        ],
        "2 pods of `7Ei` `memory` are too many to count",
    );
    check_error(&[("spec.template.spec.containers", json!([]))], "spec.template.spec.containers: is missing");
    check_error(
        &[("spec.template.spec.containers", json!([{"name": "a"}, {"name": "a"}]))],
        "the name `a` appears twice",
    );
    check_error(
        &[("spec.template.spec.containers", json!([{}]))],
        "spec.template.spec.containers[0].name: is missing",
    );
}

#[test]
fn node_selectors_affinity_and_tolerations_are_read() {
    let required = json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
        {},
    ]});
    let job = read(with(&[
        (&format!("{POD}.nodeSelector"), json!({"gpu": "t4"})),
        (
            &format!("{POD}.tolerations"),
            json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"},
            {"operator": "Exists"},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]),
        ),
        (
            &format!("{POD}.affinity"),
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}),
        ),
        (&format!("{POD}.terminationGracePeriodSeconds"), json!(5)),
    ]))
    .unwrap();
    let set = &job.gang.pod_sets[0];
    assert_eq!(set.node_selector["gpu"], "t4");
    assert_eq!(set.tolerations[0].effect, Some(TaintEffect::NoSchedule));
    assert_eq!((set.tolerations[1].key.as_deref(), set.tolerations[1].exists), (None, true));
    assert_eq!(
        set.tolerations.iter().map(|toleration| toleration.seconds).collect::<Vec<_>>(),
        [None, None, Some(300)]
    );
    assert_eq!(set.affinity.len(), 1, "a term without requirements matches nothing");
    assert_eq!(
        (set.affinity[0][0].operator, set.affinity[0][1].key.as_str()),
        (Operator::In, "kubernetes.io/hostname")
    );
    assert_eq!(job.grace_period, Some(Millis::secs(5)));
    check_error(
        &[(&format!("{POD}.tolerations"), json!([{"key": "k", "effect": "Never"}]))],
        "`Never` is not a choice",
    );
    check_error(
        &[(&format!("{POD}.tolerations"), json!([{"value": "v"}]))],
        "must be `Exists` when there is no key",
    );
    let terms = json!({"nodeSelectorTerms": [{}]});
    let empty = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    check_error(&[(&format!("{POD}.affinity"), empty)], "matches no node");
}

#[test]
fn commands_of_every_container_count() {
    let check = |containers: Value, expect: bool| {
        assert_eq!(read(with(&[("spec.template.spec.containers", containers)])).unwrap().has_command, expect);
    };
    check(json!([{"name": "a", "command": ["sh"], "args": ["-c", "true"]}]), true);
    check(json!([{"name": "a", "args": ["120s"]}]), false);
    check(json!([{"name": "a", "command": []}]), false);
    check(json!([{"name": "a", "command": ["sh"]}, {"name": "b"}]), false);
    check_error(
        &[("spec.template.spec.containers", json!([{"name": "a", "command": "sh"}]))],
        "command: must be a list, not a string",
    );
}

#[test]
fn wrong_types_in_containers_are_reported_at_their_field() {
    let check = |part: &str, value: Value, expect: &str| {
        let mut container = json!({"name": "a"});
        container[part] = value;
        check_error(&[("spec.template.spec.containers", json!([container]))], expect);
    };
    check(
        "env",
        json!([{"name": "A", "value": 1}]),
        "containers[0].env[0].value: must be a string, not the number `1`",
    );
    check("env", json!([{"name": "A", "value": true}]), "containers[0].env[0].value: must be a string, not");
    check("env", json!({"A": "1"}), "containers[0].env: must be a list, not a mapping");
    check("env", json!(["A=1"]), "containers[0].env[0]: must be a mapping, not a string");
    check("env", json!([{"value": "x"}]), "containers[0].env[0].name: is missing");
    check(
        "env",
        json!([{"name": "a=b", "value": "x"}]),
        "containers[0].env[0].name: `a=b` can't be the name of a variable",
    );
    check("args", json!([1]), "containers[0].args[0]: must be a string, not the number `1`");
    check("workingDir", json!(5), "containers[0].workingDir: must be a string, not the number `5`");
    check("image", json!(["x"]), "containers[0].image: must be a string, not a list");
    check(
        "ports",
        json!([{"containerPort": "80"}]),
        "containers[0].ports[0].containerPort: must be a whole number, not a string",
    );
    let fine = json!([{"name": "a", "env": [{"name": "A", "value": "1"}, {"name": "B"},
        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"containerPort": 80, "protocol": "TCP"}], "args": [], "workingDir": "/"}]);
    assert!(read(with(&[("spec.template.spec.containers", fine)])).is_ok());
}
