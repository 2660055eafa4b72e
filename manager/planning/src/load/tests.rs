//! Who holds, who waits, who waits nowhere; and what each asks for.

use super::*;
use crate::report::Waiting;
use crate::what_if::Loss;
use crate::{Limits, Report, WhatIf, decide};
use meridian_queueing::model::{Inactive, Workload};
use meridian_queueing::places::Anywhere;
use serde_json::{Value, json};

const NOW: Moment = 1_780_315_200_000;

fn kueue(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn cluster_queue(name: &str, more: Value) -> Value {
    let mut spec = json!({
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "9"}]}]}],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    kueue("ClusterQueue", name, spec)
}

fn local_queue(name: &str, leads_to: &str) -> Value {
    let mut queue = kueue("LocalQueue", name, json!({"clusterQueue": leads_to}));
    queue["metadata"]["namespace"] = json!("n");
    queue
}

fn workload(name: &str, queue: &str, status: Value) -> Value {
    let template = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let mut workload = kueue(
        "Workload",
        name,
        json!({"queueName": queue, "podSets": [{"name": "main", "count": 3, "template": template}]}),
    );
    workload["metadata"]["namespace"] = json!("n");
    workload["metadata"]["creationTimestamp"] = json!("2026-06-01T11:00:00Z");
    workload["status"] = status;
    workload
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-06-01T11:30:00Z"})
}

fn base() -> Vec<Value> {
    vec![kueue("ResourceFlavor", "f", json!({})), cluster_queue("q", json!({})), local_queue("l", "q")]
}

fn read_with(more: Vec<Value>, options: &Options) -> Loaded {
    let objects: Vec<PlanObject> =
        base().iter().chain(&more).map(|object| PlanObject::lenient(object).unwrap()).collect();
    load(&objects, &Options { now: NOW, ..options.clone() })
}

fn read(more: Vec<Value>) -> Loaded {
    read_with(more, &Options::default())
}

fn planned(more: Vec<Value>) -> Report {
    let mut loaded = read(more);
    let outcome = decide(&mut loaded, &mut Anywhere, &Limits::default());
    Report::new(&loaded, &outcome)
}

fn waits<'a>(report: &'a Report, workload: &str) -> &'a Waiting {
    report.waiting.iter().find(|w| w.workload == workload).expect("it waits")
}

fn found<'a>(loaded: &'a Loaded, key: &str) -> &'a Workload {
    loaded.brain.workload(loaded.brain.find(key).expect("it is there")).expect("it is there")
}

/// A workload that holds quota of `q` and runs.
fn running(name: &str, queue: &str) -> Value {
    let admission = json!({"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}}]});
    workload(
        name,
        queue,
        json!({"admission": admission, "conditions": [condition("QuotaReserved", "True", "R"), condition("Admitted", "True", "R")]}),
    )
}

#[test]
fn who_holds_quota_keeps_what_it_was_given() {
    let admission = json!({"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 2, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}}]});
    let conditions = [
        condition("QuotaReserved", "True", "R"),
        condition("Admitted", "True", "R"),
        condition("Evicted", "True", "R"),
    ];
    let loaded = read(vec![workload(
        "w",
        "l",
        json!({"admission": admission, "conditions": conditions, "reclaimablePods": [{"name": "main", "count": 2}]}),
    )]);
    let of = found(&loaded, "n/w");
    let holding = of.holding.as_ref().unwrap();
    assert_eq!(
        (holding.since, holding.evicted, holding.admitted, holding.given[0].count),
        (NOW - 1_800_000, true, true, 2)
    );
    assert_eq!(
        loaded.brain.shape_of(of.shape).counts.as_deref(),
        Some([1].as_slice()),
        "two of three pods need nothing any more"
    );
}

#[test]
fn who_waits_nowhere_is_noted() {
    let mut parked = workload("parked", "l", json!({}));
    parked["spec"]["active"] = json!(false);
    let more = vec![
        parked,
        workload("lost", "elsewhere", json!({})),
        workload("over", "l", json!({"conditions": [condition("Finished", "True", "R")]})),
        workload("gone", "l", json!({"conditions": [condition("QuotaReserved", "True", "R")]})),
        local_queue("astray", "nothing"),
        workload("strayed", "astray", json!({})),
    ];
    let loaded = read(more);
    assert_eq!(loaded.brain.workloads().count(), 0);
    for name in ["parked", "lost", "gone", "strayed"] {
        assert!(
            loaded.notes.iter().any(|note| note.contains(&format!("`n/{name}`"))),
            "{name}: {:?}",
            loaded.notes
        );
    }
    assert!(!loaded.notes.iter().any(|note| note.contains("over")), "who has finished is no surprise");
}

#[test]
fn an_eviction_that_was_not_its_own_doing_moves_a_workload_back() {
    let evicted =
        |reason: &str| workload("w", "l", json!({"conditions": [condition("Evicted", "True", reason)]}));
    let since =
        |reason: &str, options: &Options| found(&read_with(vec![evicted(reason)], options), "n/w").since;
    let (created, moved) = (NOW - 3_600_000, NOW - 1_800_000);
    let usual = Options::default();
    assert_eq!(since("Preempted", &usual), created);
    assert_eq!((since("PodsReadyTimeout", &usual), since("AdmissionCheck", &usual)), (moved, moved));
    assert_eq!(
        since("PodsReadyTimeout", &Options { unready_keep_their_place: true, ..Options::default() }),
        created
    );
    let mut by_age = Options::default();
    by_age.settings.gates.priority_sorting_within_cohort = false;
    let preempted = workload(
        "w",
        "l",
        json!({"conditions": [condition("Preempted", "True", "InCohortReclaimWhileBorrowing")]}),
    );
    assert_eq!(found(&read_with(vec![preempted.clone()], &by_age), "n/w").since, moved + 1);
    assert_eq!(found(&read(vec![preempted]), "n/w").since, created);
}

#[test]
fn what_must_wait_is_set_aside() {
    let later =
        workload("later", "l", json!({"requeueState": {"count": 1, "requeueAt": "2026-06-01T12:00:01Z"}}));
    let sooner =
        workload("sooner", "l", json!({"requeueState": {"count": 1, "requeueAt": "2026-06-01T12:00:00Z"}}));
    let mut stopped = local_queue("stopped", "q");
    stopped["spec"]["stopPolicy"] = json!("Hold");
    let loaded = read(vec![later, sooner, stopped, workload("held", "stopped", json!({}))]);
    let pending = loaded.brain.pending(loaded.brain.queue_id("q").unwrap());
    let names = |places: Vec<WorkloadId>| -> Vec<String> {
        places.iter().map(|id| loaded.brain.workload(*id).unwrap().key.to_string()).collect()
    };
    assert_eq!(names(pending.awake().map(|place| place.workload).collect()), ["n/sooner"]);
    let mut asleep = names(pending.asleep().map(|place| place.workload).collect());
    asleep.sort();
    assert_eq!(asleep, ["n/held", "n/later"]);
}

#[test]
fn priorities_are_written_or_of_a_class_and_may_be_boosted() {
    let class = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 50});
    let mut of_class = workload("w", "l", json!({}));
    of_class["spec"]["priorityClassRef"] =
        json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"});
    of_class["metadata"]["annotations"] = json!({"kueue.x-k8s.io/priority-boost": "7"});
    let priority = |options: &Options| {
        let loaded = read_with(vec![class.clone(), of_class.clone()], options);
        loaded.brain.shape_of(found(&loaded, "n/w").shape).priority
    };
    assert_eq!(priority(&Options::default()), 50);
    assert_eq!(priority(&Options { priority_boost: true, ..Options::default() }), 57);
}

#[test]
fn a_job_has_the_priority_that_the_manager_would_give_it() {
    let job = |name: &str, class: Option<&str>, pods: Option<&str>| {
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "n", "labels": {"kueue.x-k8s.io/queue-name": "l"}},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}},
        });
        if let Some(class) = class {
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
        }
        if let Some(class) = pods {
            job["spec"]["template"]["spec"]["priorityClassName"] = json!(class);
        }
        job
    };
    let pod_class = |name: &str, value: i32| json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, "globalDefault": true});
    let class = |name: &str, value: i32| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value});
    let jobs = || {
        vec![
            job("none", None, None),
            job("pods", None, Some("b")),
            job("system", None, Some("system-node-critical")),
            job("both", Some("high"), Some("b")),
        ]
    };
    let of = |loaded: &Loaded| {
        ["none", "pods", "system", "both"]
            .map(|name| loaded.brain.shape_of(found(loaded, &format!("n/{name}")).shape).priority)
    };
    let classes = vec![pod_class("a", 9), pod_class("b", 4), class("high", 50)];
    assert_eq!(
        of(&read([classes.clone(), jobs()].concat())),
        [4, 4, 2_000_001_000, 50],
        "of several for all the lowest counts"
    );
    assert_eq!(
        of(&read([classes, vec![class("default", 7)], jobs()].concat())),
        [7, 7, 7, 50],
        "of the one that is called so"
    );
    let loaded = read(vec![job("typo", Some("hihg"), None), job("pod-typo", None, Some("hihg"))]);
    let unfit = |name: &str| found(&loaded, name).marks().unfit.clone().unwrap_or_default().to_string();
    assert_eq!(unfit("n/typo"), "its WorkloadPriorityClass `hihg` isn't there");
    assert_eq!(unfit("n/pod-typo"), "its PriorityClass `hihg` isn't there");
}

#[test]
fn what_cannot_be_admitted_says_why() {
    let mut greedy = workload("greedy", "l", json!({}));
    greedy["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["limits"] =
        json!({"cpu": "500m"});
    let narrow = vec![
        cluster_queue("narrow", json!({"namespaceSelector": {"matchLabels": {"team": "a"}}})),
        local_queue("side", "narrow"),
    ];
    let loaded = read(
        [narrow, vec![greedy, workload("stranger", "side", json!({})), workload("fine", "l", json!({}))]]
            .concat(),
    );
    assert!(found(&loaded, "n/greedy").marks().unfit.is_some());
    let stranger = found(&loaded, "n/stranger").marks();
    assert!(stranger.wrong_namespace && stranger.unfit.is_some());
    assert_eq!(found(&loaded, "n/fine").marks, None);
    let strict = read_with(
        vec![workload("w", "l", json!({}))],
        &Options { namespaces_declared: true, ..Options::default() },
    );
    assert!(found(&strict, "n/w").marks().unfit.as_ref().is_some_and(|why| why.contains("isn't there")));
}

#[test]
fn queues_say_why_they_admit_nothing() {
    let group = |flavor: &str| json!([{"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}]);
    let more = vec![
        cluster_queue("stopped", json!({"stopPolicy": "Hold"})),
        cluster_queue("bare", json!({"resourceGroups": group("missing")})),
        cluster_queue(
            "unchecked",
            json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "nobody"}]}}),
        ),
        cluster_queue("circular", json!({"cohortName": "round"})),
        kueue("Cohort", "round", json!({"parentName": "round"})),
    ];
    let loaded = read(more);
    let why = |name: &str| loaded.brain.queue(loaded.brain.queue_id(name).unwrap()).setup.inactive.clone();
    assert_eq!(why("q"), None);
    assert_eq!(why("stopped"), Some(Inactive::Stopped));
    assert_eq!(why("bare"), Some(Inactive::FlavorNotFound("missing".into())));
    assert_eq!(why("unchecked"), Some(Inactive::AdmissionCheck("nobody".into())));
    assert_eq!(loaded.brain.queue(loaded.brain.queue_id("circular").unwrap()).node, None);
    assert_eq!(loaded.notes.len(), 4, "{:?}", loaded.notes);
    let check = kueue("AdmissionCheck", "silent", json!({"controllerName": "somebody"}));
    let asks =
        cluster_queue("asks", json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "silent"}]}}));
    let silent = |checks_say_active: bool| {
        let loaded = read_with(
            vec![check.clone(), asks.clone()],
            &Options { checks_say_active, ..Options::default() },
        );
        loaded.brain.queue(loaded.brain.queue_id("asks").unwrap()).setup.inactive.clone()
    };
    assert_eq!((silent(false), silent(true)), (None, Some(Inactive::CheckInactive("silent".into()))));
}

#[test]
fn a_job_waits_until_a_workload_stands_for_it() {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "namespace": "n", "uid": "u", "labels": {"kueue.x-k8s.io/queue-name": "l"}, "annotations": {"kueue.x-k8s.io/job-min-parallelism": "2"}},
        "spec": {"parallelism": 4, "completions": 4, "template": {
            "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        }},
    });
    let loaded = read(vec![job.clone()]);
    let shape = loaded.brain.shape_of(found(&loaded, "n/j").shape);
    assert_eq!(
        (shape.pod_sets[0].count, shape.pod_sets[0].min_count, shape.pod_sets[0].wants_topology()),
        (4, Some(2), true)
    );
    let mut stands = workload("job-j", "l", json!({}));
    stands["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}]);
    let loaded = read(vec![job, stands]);
    assert_eq!((loaded.brain.find("n/j"), loaded.brain.workloads().count()), (None, 1));
}

#[test]
fn requests_are_what_quota_sees() {
    let rule = meridian_objects::Transformation::from_json(
        &json!({"input": "cpu", "strategy": "Replace", "outputs": {"credits": "2"}}),
    )
    .unwrap();
    let loaded = read_with(
        vec![workload("w", "l", json!({}))],
        &Options {
            resources: ResourceRules { transformations: vec![rule], ..ResourceRules::default() },
            ..Options::default()
        },
    );
    let shape = loaded.brain.shape_of(found(&loaded, "n/w").shape);
    let named: Vec<(&str, i64)> = shape.pod_sets[0]
        .per_pod
        .iter()
        .map(|(resource, amount)| (&**loaded.brain.resource_name(*resource), *amount))
        .collect();
    assert_eq!(named, [("credits", 2)]);
    assert_eq!(shape.pod_sets[0].on_node["cpu"], 1_000, "nodes give what is really asked for");
}

#[test]
fn what_is_declared_anew_keeps_who_waits() {
    let mut loaded = read(vec![workload("w", "l", json!({}))]);
    let flavorless: Vec<PlanObject> = [cluster_queue("q", json!({"stopPolicy": "Hold"}))]
        .iter()
        .map(|object| PlanObject::lenient(object).unwrap())
        .collect();
    loaded.redeclare(&flavorless);
    let queue = loaded.brain.queue_id("q").unwrap();
    let flavor = loaded.brain.flavor_id("f");
    assert_eq!(
        (loaded.brain.queue(queue).setup.inactive.clone(), loaded.brain.flavor(flavor)),
        (Some(Inactive::Stopped), None)
    );
    assert_eq!(loaded.brain.pending(queue).len(), 1);
}

#[test]
fn a_job_asks_for_what_its_namespace_and_runtime_class_add_and_keeps_their_limits() {
    let limits = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "usual", "namespace": "n"}, "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "500m"}, "max": {"cpu": "2"}}]}});
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "vm"}, "handler": "h", "overhead": {"podFixed": {"cpu": "250m"}}});
    let job = |name: &str, resources: Value| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "n", "labels": {"kueue.x-k8s.io/queue-name": "l"}},
            "spec": {"parallelism": 4, "completions": 4, "template": {"spec": {"restartPolicy": "Never", "runtimeClassName": "vm", "containers": [{"name": "c", "resources": resources}]}}},
        })
    };
    let loaded =
        read(vec![limits, class, job("plain", json!({})), job("greedy", json!({"requests": {"cpu": "3"}}))]);
    let set = &loaded.brain.shape_of(found(&loaded, "n/plain").shape).pod_sets[0];
    assert_eq!(
        (set.per_pod.as_slice(), set.on_node["cpu"]),
        ([(loaded.brain.resource_id("cpu").unwrap(), 750)].as_slice(), 750)
    );
    assert_eq!(found(&loaded, "n/plain").marks, None);
    assert!(
        found(&loaded, "n/greedy").marks().unfit.as_ref().is_some_and(|why| why.contains("`cpu`")),
        "{:?}",
        found(&loaded, "n/greedy").marks()
    );
}

#[test]
fn who_waits_aside_says_why_and_not_what_is_said_of_others() {
    let mut stopped = local_queue("stopped", "q");
    stopped["spec"]["stopPolicy"] = json!("Hold");
    let mut large = workload("large", "l", json!({}));
    large["spec"]["podSets"][0]["count"] = json!(30);
    let of = |name: &str, queue: &str, status: Value| {
        let mut alike = large.clone();
        (alike["metadata"]["name"], alike["spec"]["queueName"], alike["status"]) =
            (json!(name), json!(queue), status);
        alike
    };
    let report = planned(vec![
        stopped,
        of("held", "stopped", json!({})),
        of("later", "l", json!({"requeueState": {"count": 1, "requeueAt": "2026-06-01T12:00:01Z"}})),
        of("off", "l", json!({"conditions": [condition("Requeued", "False", "PodsReadyTimeout")]})),
        of("twin", "l", json!({})),
        large,
    ]);
    let words =
        |name: &str| (waits(&report, name).obstacle.as_deref(), waits(&report, name).message.as_str());
    assert_eq!(words("n/held"), (Some("Suspended"), "local queue `n/stopped` is stopped"));
    assert_eq!(words("n/later"), (Some("PendingEvaluation"), "it queues again at 2026-06-01T12:00:01Z"));
    assert_eq!(
        words("n/off"),
        (Some("PendingEvaluation"), "it isn't to queue again yet (`PodsReadyTimeout`)")
    );
    assert!(["n/held", "n/later", "n/off"].iter().all(|name| waits(&report, name).alike.is_none()));
    assert!(report.waiting.iter().any(|w| w.alike.is_some()), "who may be admitted is told by his like");
}

#[test]
fn a_namespace_that_a_queue_does_not_take_is_each_workloads_own() {
    let mut elsewhere = local_queue("side", "narrow");
    elsewhere["metadata"]["namespace"] = json!("red");
    let mut red = workload("w", "side", json!({}));
    red["metadata"]["namespace"] = json!("red");
    let narrow = cluster_queue("narrow", json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}));
    let report = planned(vec![
        narrow,
        local_queue("side", "narrow"),
        elsewhere,
        workload("w", "side", json!({})),
        red,
    ]);
    for namespace in ["n", "red"] {
        let words = &waits(&report, &format!("{namespace}/w")).message;
        assert_eq!(*words, format!("cluster queue `narrow` takes no workloads of namespace `{namespace}`"));
    }
}

#[test]
fn who_runs_in_a_drained_queue_is_told_to_stop_and_waits() {
    let stopped = |mut queue: Value, policy: &str| {
        queue["spec"]["stopPolicy"] = json!(policy);
        queue
    };
    let of = |more: Vec<Value>| planned([more, vec![running("w", "l")]].concat());
    let told = |report: &Report| {
        report.evicted.iter().map(|e| (e.workload.clone(), e.reason.clone(), e.cycle)).collect::<Vec<_>>()
    };
    let runs = of(vec![]);
    let held = of(vec![stopped(cluster_queue("q", json!({})), "Hold")]);
    assert_eq!((held.summary.admitted, told(&held)), (1, vec![]), "who runs goes on");
    for (queue, reason, message) in [
        (
            cluster_queue("q", json!({})),
            "ClusterQueueStopped",
            "cluster queue `q` admits nothing: it is stopped",
        ),
        (local_queue("l", "q"), "LocalQueueStopped", "local queue `n/l` is stopped"),
    ] {
        let drained = of(vec![stopped(queue, "HoldAndDrain")]);
        assert_eq!(told(&drained), [("n/w".to_owned(), reason.to_owned(), 1)]);
        assert_eq!((drained.summary.admitted, waits(&drained, "n/w").message.as_str()), (0, message));
        let change = WhatIf::new(Vec::new(), &runs, &drained);
        assert_eq!(
            (change.evicted.len(), change.starved[0].loss, change.is_empty()),
            (1, Loss::Evicted, false)
        );
    }
}

#[test]
fn a_resource_that_no_group_covers_is_waited_for_in_vain() {
    let mut picky = workload("picky", "l", json!({}));
    picky["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["example.com/tpu"] =
        json!("1");
    let report = planned(vec![picky]);
    let picky = waits(&report, "n/picky");
    assert_eq!((picky.obstacle.as_deref(), picky.blocked_for_good), (Some("NoMatchingFlavor"), true));
    assert_eq!(picky.message, "no flavor of its queue serves it");
}

#[test]
fn obstacle_and_reasons_agree_where_a_topology_has_no_place() {
    let placed = |name: &str, count: u32, priority: i64| {
        let mut workload = workload(name, "lt", json!({}));
        workload["spec"]["priority"] = json!(priority);
        let set = &mut workload["spec"]["podSets"][0];
        (set["count"], set["topologyRequest"]) =
            (json!(count), json!({"required": "kubernetes.io/hostname"}));
        workload
    };
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "tas", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]);
    let fleet = || {
        vec![
            kueue("Topology", "dc", json!({"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})),
            kueue("ResourceFlavor", "tas", json!({"nodeLabels": {"pool": "tas"}, "topologyName": "dc"})),
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "h", "labels": {"pool": "tas", "kubernetes.io/hostname": "h"}},
                "status": {"allocatable": {"cpu": "2", "pods": "9"}, "conditions": [{"type": "Ready", "status": "True"}]}}),
            cluster_queue(
                "t",
                json!({"resourceGroups": groups, "preemption": {"withinClusterQueue": "LowerPriority"}}),
            ),
            local_queue("lt", "t"),
        ]
    };
    let report = planned([fleet(), vec![placed("first", 1, 9), placed("second", 2, 0)]].concat());
    let second = waits(&report, "n/second");
    assert_eq!(second.obstacle.as_deref(), Some("TopologyPlacementFailed"));
    assert_eq!(second.message, "its pods have no place in the topology, and nobody may be displaced for one");
    let mut runs = placed("runs", 1, 0);
    let admission = json!({"clusterQueue": "t", "podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": "tas"}, "resourceUsage": {"cpu": "1"}}]});
    runs["status"] = json!({"admission": admission, "conditions": [condition("QuotaReserved", "True", "R"), condition("Admitted", "True", "R")]});
    let report = planned([fleet(), vec![runs, placed("wide", 4, 9)]].concat());
    let wide = waits(&report, "n/wide");
    assert_eq!(wide.obstacle.as_deref(), Some("TopologyPlacementFailed"));
    let words: Vec<&str> = wide.reasons.iter().map(|why| why.reason.as_str()).collect();
    assert_eq!(words, ["InsufficientUnusedQuota", "TopologyPlacementFailed"]);
}

#[test]
fn lost_nodes_are_replaced_where_the_gate_says_so() {
    let mut hit = running("w", "l");
    hit["status"]["unhealthyNodes"] = json!([{"name": "h"}]);
    let lost = |replaces: bool| {
        let mut options = Options::default();
        options.settings.gates.failed_node_replacement = replaces;
        found(&read_with(vec![hit.clone()], &options), "n/w").marks().lost_nodes.clone()
    };
    assert_eq!((lost(true), lost(false)), (vec!["h".to_owned()], vec![]));
}

#[test]
fn cohorts_above_themselves_are_named() {
    let cohort = |name: &str, parent: &str| {
        PlanObject::lenient(&kueue("Cohort", name, json!({"parentName": parent}))).unwrap()
    };
    let objects = [
        cohort("a", "b"),
        cohort("b", "c"),
        cohort("c", "a"),
        cohort("below", "a"),
        cohort("d", "d"),
        cohort("e", "f"),
    ];
    assert_eq!(cohorts_above_themselves(&objects), [("a", "b"), ("b", "c"), ("c", "a"), ("d", "d")]);
}
