//! Jobs and the gangs behind them.

use super::*;
use crate::validate::not_honoured;
use meridian_shared::gang::{Amounts, Operator, TaintEffect};
use meridian_shared::topology::{Constraint, TopologyRequest};
use serde_json::{Value, json};

fn base() -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": {QUEUE_LABEL: "q"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}},
    })
}

/// `base` with the value at each JSON pointer replaced; parents must exist or be mappings.
fn with(changes: &[(&str, Value)]) -> Value {
    let mut job = base();
    for (path, value) in changes {
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        let mut at = &mut job;
        for key in parent.split('.').filter(|key| !key.is_empty()) {
            at = match key.parse::<usize>() {
                Ok(index) => &mut at[index],
                Err(_) => &mut at[key],
            };
        }
        at[name] = value.clone();
    }
    job
}

fn read(job: Value) -> Result<JobWorkload, Vec<String>> {
    match Object::from_value(job) {
        Ok((object, _)) => Ok(job_to_workload(&object).unwrap()),
        Err(errors) => Err(errors.iter().map(ToString::to_string).collect()),
    }
}

fn check_error(changes: &[(&str, Value)], expect: &str) {
    let errors = read(with(changes)).unwrap_err();
    assert!(errors.iter().any(|error| error.contains(expect)), "wanted `{expect}` in {errors:?}");
}

const POD: &str = "spec.template.spec";

#[test]
fn defaults_follow_kubernetes() {
    let job = read(base()).unwrap();
    assert_eq!(job.gang.pod_sets.len(), 1);
    assert_eq!((job.gang.pod_sets[0].name.as_str(), job.gang.pod_sets[0].count), ("main", 1));
    assert_eq!((job.backoff_limit, job.completions, job.parallelism), (6, Some(1), 1));
    assert_eq!((job.queue.as_str(), job.suspend, job.has_command, job.containers), ("q", false, false, 1));
    assert_eq!((job.grace_period, job.ttl_after_finished, job.gang.max_run), (None, None, None));
    assert!(job.regions.is_empty() && job.gang.pod_sets[0].per_pod.is_empty());
}

#[test]
fn pods_are_the_smaller_of_parallelism_and_completions() {
    let check = |parallelism: Value, completions: Value, expect: u32| {
        let job =
            read(with(&[("spec.parallelism", parallelism), ("spec.completions", completions)])).unwrap();
        assert_eq!(job.gang.pod_sets[0].count, expect);
    };
    check(json!(3), json!(3), 3);
    check(json!(4), json!(2), 2);
    check(json!(2), json!(9), 2);
    check(json!(5), Value::Null, 5);
    check(Value::Null, json!(5), 1);
    check_error(&[("spec.parallelism", json!(0))], "spec.parallelism: `0` is too small; the least is 1");
    check_error(&[("spec.completions", json!(-1))], "spec.completions: `-1` is too small");
    check_error(
        &[("spec.parallelism", json!("3"))],
        "spec.parallelism: must be a whole number, not a string; remove the quotes: 3",
    );
    check_error(&[("spec.parallelism", json!(1_000_000))], "the most is 100000");
    check_error(
        &[("spec.parallelism", json!(2)), ("spec.completionMode", json!("Indexed"))],
        "spec.completions: is missing",
    );
    let large = [
        ("spec.parallelism", json!(200_000)),
        ("spec.completions", json!(200_000)),
        ("spec.completionMode", json!("Indexed")),
    ];
    assert_eq!(read(with(&large)).unwrap_err().len(), 2, "what is too large is not missing");
    check_error(&[("spec.backoffLimit", json!(-1))], "spec.backoffLimit: `-1` is too small");
    check_error(
        &[("spec.ttlSecondsAfterFinished", json!(1.5))],
        "spec.ttlSecondsAfterFinished: must be a whole number",
    );
}

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
        json!([{"name": "s", "restartPolicy": "Always", "resources": ask("200m")}, {"name": "i", "resources": ask("3")}]),
        3_200,
    );
    check(
        json!([{"name": "i", "resources": ask("3")}, {"name": "s", "restartPolicy": "Always", "resources": ask("200m")}]),
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
        "2 pods of `7Ei` `memory` are too much to count",
    );
    check_error(&[("spec.template.spec.containers", json!([]))], "spec.template.spec.containers: is missing");
    check_error(
        &[("spec.template.spec.containers", json!([{"name": "a"}, {"name": "a"}]))],
        "the name `a` is there twice",
    );
    check_error(
        &[("spec.template.spec.containers", json!([{}]))],
        "spec.template.spec.containers[0].name: is missing",
    );
}

#[test]
fn queue_and_priority_come_from_labels() {
    let labels = json!({QUEUE_LABEL: "q", PRIORITY_LABEL: "high"});
    let job =
        read(with(&[("metadata.labels", labels), (&format!("{POD}.priorityClassName"), json!("pods"))]))
            .unwrap();
    assert_eq!(
        (job.priority_class.as_deref(), job.pod_priority_class.as_deref()),
        (Some("high"), Some("pods"))
    );
    check_error(
        &[("metadata.labels", json!({}))],
        "metadata.labels[kueue.x-k8s.io/queue-name]: is missing, so the job has no queue; name the job's local queue",
    );
    check_error(
        &[("metadata.labels", json!({})), ("metadata.annotations", json!({QUEUE_LABEL: "q"}))],
        "move it from the annotations to the labels: `kueue.x-k8s.io/queue-name: q`",
    );
}

#[test]
fn run_time_is_the_shortest_bound() {
    let check = |changes: &[(&str, Value)], expect: Option<Millis>| {
        assert_eq!(read(with(changes)).unwrap().gang.max_run, expect)
    };
    let annotated = |text: &str| ("metadata.annotations", json!({MAX_RUN_ANNOTATION: text}));
    check(&[("spec.activeDeadlineSeconds", json!(60))], Some(Millis::secs(60)));
    check(&[annotated("600")], Some(Millis::secs(600)));
    check(&[annotated("600"), ("spec.activeDeadlineSeconds", json!(60))], Some(Millis::secs(60)));
    check(
        &[annotated("600"), ("metadata.labels", json!({QUEUE_LABEL: "q", MAX_EXEC_LABEL: "30"}))],
        Some(Millis::secs(30)),
    );
    check_error(
        &[annotated("10m")],
        "metadata.annotations[provreq.kueue.x-k8s.io/maxRunDurationSeconds]: `10m` is not a number of seconds",
    );
    check_error(&[annotated("0")], "`0` is not a number of seconds");
    check(&[("metadata.annotations", json!({MAX_RUN_ANNOTATION: 600}))], Some(Millis::secs(600)));
    check_error(
        &[("metadata.annotations", json!({MAX_RUN_ANNOTATION: 600.5}))],
        "must be a string, not the number `600.5`; put it into quotes",
    );
    check_error(&[("spec.activeDeadlineSeconds", json!(0))], "`0` is too small");
}

#[test]
fn placement_is_carried_over() {
    let required = json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}], "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
        {},
    ]});
    let job = read(with(&[
        (&format!("{POD}.nodeSelector"), json!({"gpu": "t4"})),
        (&format!("{POD}.tolerations"), json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}, {"operator": "Exists"}, {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}])),
        (&format!("{POD}.affinity"), json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})),
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
    let empty = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}});
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
fn what_a_container_runs_is_read_where_it_is_written() {
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
    let fine = json!([{"name": "a", "env": [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
        "ports": [{"containerPort": 80, "protocol": "TCP"}], "args": [], "workingDir": "/"}]);
    assert!(read(with(&[("spec.template.spec.containers", fine)])).is_ok());
}

#[test]
fn regions_only_narrow() {
    let check = |metadata: (&str, &str), expect: &[&str]| {
        let mut job = base();
        job["metadata"][metadata.0][REGION_KEY] = json!(metadata.1);
        assert_eq!(read(job).unwrap().regions, expect.iter().map(Region::new).collect());
    };
    check(("annotations", "europe-west4, us-east4,"), &["europe-west4", "us-east4"]);
    check(("labels", "us-east4"), &["us-east4"]);
    check_error(&[("metadata.annotations", json!({REGION_KEY: " , "}))], "names no region");
    let both = [
        ("metadata.annotations", json!({REGION_KEY: "a"})),
        ("metadata.labels", json!({QUEUE_LABEL: "q", REGION_KEY: "b"})),
    ];
    check_error(&both, "differs from the annotation of the same name");
}

#[test]
fn our_own_keys_are_read_strictly() {
    let check = |place: &str, key: &str, expect: &str| {
        let mut job = base();
        let at = place.split('.').fold(&mut job, |at, step| &mut at[step]);
        at[key] = json!("x");
        let errors = read(job).unwrap_err();
        assert!(errors.iter().any(|error| error.to_string().contains(expect)), "{place} {key}: {errors:?}");
    };
    check(
        "metadata.annotations",
        "meridian.dev/regoin",
        "is not a key that we know, and would do nothing; did you mean the annotation `meridian.dev/region`?",
    );
    check(
        "metadata.annotations",
        "Meridian.dev/Region",
        "did you mean the annotation `meridian.dev/region`?",
    );
    check(
        "metadata.labels",
        "meridian.dev/queue",
        "remove it; the annotations of a job that we know are meridian.dev/region, ",
    );
    check(
        "metadata.labels",
        "simulated.meridian.dev/duration",
        "is not read here; write it into the job's own `metadata.annotations`",
    );
    check(
        "spec.template.metadata.annotations",
        "meridian.dev/region",
        "spec.template.metadata.annotations[meridian.dev/region]: is not read here",
    );
    let bad = "metadata.annotations[simulated.meridian.dev/duration]: `x` is no length of time of at most a year; write one such as";
    check("metadata.annotations", "simulated.meridian.dev/duration", bad);
    let others = json!({"example.com/meridian.dev": "x", "meridian.dev.example.com/region": "x", "simulated.meridian.dev/stagger": "1s"});
    assert!(read(with(&[("metadata.annotations", others)])).is_ok());
}

#[test]
fn what_stands_where_nobody_reads_it_is_warned_about() {
    let mut job = base();
    job["metadata"]["annotations"] = json!({MAX_EXEC_LABEL: "60", PRIORITY_LABEL: "high"});
    job["metadata"]["labels"][MAX_RUN_ANNOTATION] = json!("60");
    let (_, warnings) = Object::from_value(job).unwrap();
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.contains(&format!("metadata.annotations[{MAX_EXEC_LABEL}]: is not read here; write it into the job's `metadata.labels`")), "{told:?}");
}

#[test]
fn others_jobs_are_refused() {
    assert!(read(with(&[("spec.managedBy", json!("kueue.x-k8s.io/multikueue"))])).is_ok());
    check_error(
        &[("spec.managedBy", json!("example.com/mine"))],
        "spec.managedBy: `example.com/mine` would run this job, not Meridian",
    );
    check_error(
        &[(&format!("{POD}.restartPolicy"), json!("Always"))],
        "`Always` is not a choice; the choices are `Never`, `OnFailure`",
    );
    check_error(&[("spec.template", Value::Null)], "spec.template: is missing");
    check_error(&[("spec", json!([]))], "spec: must be a mapping, not a list");
}

#[test]
fn names_of_jobs_fit_their_pods_labels() {
    check_error(&[("metadata.name", json!("a".repeat(64)))], "the most is 63 characters");
    assert!(read(with(&[("metadata.name", json!("a".repeat(63)))])).is_ok());
}

#[test]
fn every_ignored_field_is_named() {
    let job = with(&[
        ("metadata.annotations", json!({"kueue.x-k8s.io/priority-boost": "3"})),
        ("spec.podFailurePolicy", json!({"rules": [{}]})),
        (
            "spec.template.metadata",
            json!({"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack", "kueue.x-k8s.io/podset-group-name": "g"}}),
        ),
        (&format!("{POD}.topologySpreadConstraints"), json!([])),
    ]);
    let (object, warnings) = Object::from_value(job).unwrap();
    assert_eq!(warnings, []);
    let fields: Vec<String> = not_honoured(&object).iter().map(|warning| warning.field.to_string()).collect();
    assert_eq!(
        fields,
        [
            "metadata.annotations[kueue.x-k8s.io/priority-boost]",
            "spec.template.metadata.annotations[kueue.x-k8s.io/podset-group-name]",
            "spec.podFailurePolicy",
        ]
    );
}

const LEVEL: &str = "cloud.provider.com/topology-rack";

/// A job of eight pods whose template has these annotations of Kueue's, without their prefix.
fn annotated(annotations: &[(&str, &str)]) -> Vec<(&'static str, Value)> {
    let all: serde_json::Map<String, Value> =
        annotations.iter().map(|(key, value)| (format!("kueue.x-k8s.io/{key}"), json!(value))).collect();
    vec![
        ("spec.parallelism", json!(8)),
        ("spec.completions", json!(8)),
        ("spec.template.metadata", json!({"annotations": all})),
    ]
}

#[test]
fn annotations_of_the_template_say_how_near_pods_want_to_be() {
    let check = |annotations: &[(&str, &str)], expect: Option<TopologyRequest>| {
        let set = &read(with(&annotated(annotations))).unwrap().gang.pod_sets[0];
        assert_eq!(set.topology, expect, "{annotations:?}");
    };
    check(&[], None);
    check(&[("workload", "w")], None);
    check(&[("podset-required-topology", LEVEL)], Some(TopologyRequest::required(LEVEL)));
    check(&[("podset-preferred-topology", LEVEL)], Some(TopologyRequest::preferred(LEVEL)));
    let anywhere = TopologyRequest { constraint: Some(Constraint::Unconstrained), slices: Vec::new() };
    check(&[("podset-unconstrained-topology", "true")], Some(anywhere));
    let slices = [("podset-slice-required-topology", "rack"), ("podset-slice-size", "4")];
    check(&slices, Some(TopologyRequest::default().sliced("rack", 4)));
    let required = ("podset-required-topology", "block");
    check(&[required, slices[0], slices[1]], Some(TopologyRequest::required("block").sliced("rack", 4)));
    let layers = (
        "podset-slice-required-topology-constraints",
        r#"[{"topology": "rack", "size": 4}, {"topology": "host", "size": 2}]"#,
    );
    check(&[required, layers], Some(TopologyRequest::required("block").sliced("rack", 4).sliced("host", 2)));
    let grouped = read(with(&annotated(&[required, ("podset-group-name", "g")]))).unwrap();
    assert_eq!(grouped.gang.pod_sets[0].group.as_deref(), Some("g"));
}

#[test]
fn contradictory_wishes_for_nearness_are_refused() {
    let check = |annotations: &[(&str, &str)], expect: &str| check_error(&annotated(annotations), expect);
    let (required, preferred) = (("podset-required-topology", "rack"), ("podset-preferred-topology", "rack"));
    check(
        &[required, preferred],
        "podset-preferred-topology]: stands beside `kueue.x-k8s.io/podset-required-topology`; keep one of them",
    );
    check(
        &[preferred, ("podset-unconstrained-topology", "true")],
        "podset-unconstrained-topology]: stands beside",
    );
    check(
        &[("podset-unconstrained-topology", "false")],
        "`false` asks for nothing; write \"true\", or remove it",
    );
    check(&[("podset-required-topology", "a rack")], "`a rack` is not a node label; name a level");
    check(
        &[("podset-slice-size", "4")],
        "podset-slice-required-topology]: is missing beside `kueue.x-k8s.io/podset-slice-size`",
    );
    let level = ("podset-slice-required-topology", "rack");
    check(&[level], "podset-slice-size]: is missing");
    check(&[level, ("podset-slice-size", "0")], "`0` is not a number of pods");
    check(
        &[level, ("podset-slice-size", "3")],
        "the 8 pods that start together are no whole number of slices of 3",
    );
    check(&[level, ("podset-slice-size", "16")], "no whole number of slices of 16");
    let layers = |text| ("podset-slice-required-topology-constraints", text);
    check(
        &[layers(r#"[{"topology": "rack", "size": 4}]"#), level, ("podset-slice-size", "4")],
        "stands beside slices of one layer",
    );
    check(
        &[layers(r#"[{"topology": "rack", "size": 4}, {"topology": "host", "size": 3}]"#)],
        "slices of 3 pods don't divide the 4 around them",
    );
    check(&[layers("rack")], "can't be read");
    check(&[layers("[]")], "has 0 layers; write one to 3");
    check(&[("podset-group-name", "g")], "names a group that asks for no nearness");
    check(&[required, ("podset-group-name", "12")], "`12` can't name a group");
    check(
        &[required, level, ("podset-slice-size", "4"), ("podset-group-name", "g")],
        "stands beside slices; a group is placed whole",
    );
    check_error(
        &[("spec.template.metadata", json!({"annotations": {"kueue.x-k8s.io/podset-slice-size": true}}))],
        "must be a string, not the boolean `true`; quote it",
    );
}
