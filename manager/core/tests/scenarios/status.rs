//! Status of queues and workloads, metrics rows and lifecycle events, also after a restart.

use super::*;
use meridian_manager_core::facts::end::{EvictionCause, PreemptionReason};
use meridian_manager_core::facts::lifecycle::{self, LifecycleEvent};
use meridian_manager_core::live::counts::Count;
use meridian_objects::PlanObject;
use meridian_queueing::settings::FairSharing;
use meridian_shared::timestamp::timestamp;

/// Two priority classes, and a queue with a quota of six GPUs in which high priority preempts.
fn preempting_queue(f: &mut Fleet) {
    priority_classes(f, 100);
    f.apply(vec![queue("cq", 6, None)]);
}

fn queue(name: &str, nominal: u32, cohort: Option<&str>) -> Value {
    let mut queue =
        cluster_queue(name, nominal, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    if let Some(cohort) = cohort {
        queue["spec"]["cohortName"] = json!(cohort);
    }
    queue
}

fn class_label(class: &str) -> Value {
    json!({"kueue.x-k8s.io/priority-class": class})
}

impl Fleet {
    fn rendered(&self, key: &Key) -> Value {
        self.object_at(key).unwrap_or_else(|| panic!("there is no {key}"))
    }

    fn cluster_queue(&self, name: &str) -> Value {
        self.rendered(&Key::global(Kind::ClusterQueue, name))
    }

    fn workload_object(&self, uid: Uid) -> Value {
        let workload = &self.world.state().workloads()[&uid];
        let key = Key::namespaced(Kind::Workload, workload.namespace(), &workload.object_name());
        self.rendered(&key)
    }

    /// The workload's conditions as `Type=Status Reason`.
    fn conditions(&self, uid: Uid) -> Vec<String> {
        let workload = self.workload_object(uid);
        let text = |c: &Value, field: &str| c[field].as_str().unwrap().to_owned();
        workload["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| format!("{}={} {}", text(c, "type"), text(c, "status"), text(c, "reason")))
            .collect()
    }
}

fn counts(queue: &Value) -> [u64; 3] {
    ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"]
        .map(|field| queue["status"][field].as_u64().unwrap())
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[test]
fn queue_counts_and_usage_are_the_same_after_a_restart() {
    let mut f = Fleet::regions();
    f.apply(vec![queue("cq", 6, None)]);
    let empty = f.cluster_queue("cq");
    assert_eq!(counts(&empty), [0, 0, 0]);
    assert_eq!(
        empty["status"]["flavorsUsage"],
        json!([{"name": "any", "resources": [{"name": GPU, "total": "0", "borrowed": "0"}]}])
    );
    let uids: Vec<Uid> = (0..3).map(|i| f.submit(&format!("job-{i}"), 3)).collect();
    f.settle();
    let full = f.cluster_queue("cq");
    assert_eq!(counts(&full), [1, 2, 2], "{full:#}");
    assert_eq!(full["status"]["flavorsReservation"][0]["resources"][0]["total"], "6");
    assert_eq!(full["status"]["conditions"][0]["reason"], "Ready");
    assert!(version(&full) > version(&empty), "its status has a new version");
    let mine = f.rendered(&Key::namespaced(Kind::LocalQueue, "default", "lq"));
    assert_eq!(counts(&mine), [1, 2, 2]);
    assert_eq!(
        mine["status"]["flavorsUsage"],
        json!([{"name": "any", "resources": [{"name": GPU, "total": "6"}]}])
    );

    let jobs: Vec<Value> = uids.iter().map(|uid| f.workload_object(*uid)).collect();
    let counts_by_queue = f.world.counts_by_queue().clone();
    let mut rebuilt = World::restore(&f.world.snapshot(), config()).unwrap();
    assert_eq!(*rebuilt.counts_by_queue(), counts_by_queue);
    let again = meridian_views::objects::render(
        &rebuilt,
        &Key::global(Kind::ClusterQueue, "cq"),
        &f.bodies,
        now(f.now),
        &Asker::unlimited(),
    )
    .unwrap();
    assert_eq!(again, full);
    *rebuilt.live_mut() = f.world.live().clone();
    f.world = rebuilt;
    assert_eq!(uids.iter().map(|uid| f.workload_object(*uid)).collect::<Vec<_>>(), jobs);

    // Deleted workloads are counted no longer.
    for uid in uids {
        let name = f.world.state().workloads()[&uid].name().clone();
        f.write(vec![Change::Delete {
            key: Key::namespaced(Kind::Job, "default", &name),
            uid: None,
            force: false,
        }]);
    }
    f.settle();
    f.settle();
    assert_eq!(counts(&f.cluster_queue("cq")), [0, 0, 0]);
    assert_eq!(*f.world.counts_by_queue(), meridian_manager_core::queue::counts::QueueCounts::default());
}

#[test]
fn a_pending_workload_counts_where_its_local_queue_points_now() {
    let mut f = Fleet::regions();
    f.apply(vec![queue("cq", 0, None), queue("other", 0, None)]);
    f.submit("waits", 2);
    assert_eq!(counts(&f.cluster_queue("cq")), [1, 0, 0]);
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::LocalQueue, "default", "lq"),
        uid: None,
        force: true,
    }]);
    assert_eq!(counts(&f.cluster_queue("cq")), [0, 0, 0]);
    let before = version(&f.cluster_queue("other"));
    f.apply(vec![local_queue("lq", "other")]);
    let other = f.cluster_queue("other");
    assert_eq!(counts(&other), [1, 0, 0]);
    assert!(version(&other) > before);
    let rows = meridian_views::metrics::cluster_queue_rows(&f.world);
    let requested: Vec<_> =
        rows.iter().map(|row| (row.name.to_string(), row.standing.asked.get(GPU).copied())).collect();
    assert_eq!(requested, [("cq".to_owned(), None), ("other".to_owned(), Some(2))]);
    assert_eq!(
        (rows[1].active_shapes, rows[1].shapes),
        (0, [0, 1]),
        "the workload was evaluated, and there is no quota"
    );
}

#[test]
fn an_inactive_queue_has_the_reason_in_its_condition() {
    let mut f = Fleet::regions();
    let reason =
        |f: &Fleet| f.cluster_queue("cq")["status"]["conditions"][0]["reason"].as_str().unwrap().to_owned();
    let with = |field: &str, value: Value| {
        let mut queue = queue("cq", 1, None);
        queue["spec"][field] = value;
        queue
    };
    f.apply(vec![with("stopPolicy", json!("Hold"))]);
    assert_eq!(reason(&f), "Stopped");
    assert_eq!(
        f.rendered(&Key::namespaced(Kind::LocalQueue, "default", "lq"))["status"]["conditions"][0]["reason"],
        "ClusterQueueIsInactive"
    );
    f.apply(vec![with("admissionChecksStrategy", json!({"admissionChecks": [{"name": "absent"}]}))]);
    assert_eq!(reason(&f), "AdmissionCheckNotFound");
    // Each check is valid by itself. `why` names the checks that can't be combined.
    let check = |name: &str, controller: &str, config: Value| {
        kueue_object("AdmissionCheck", name, json!({"controllerName": controller, "parameters": config}))
    };
    let workers = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"});
    f.apply(vec![
        check("far", "kueue.x-k8s.io/multikueue", workers.clone()),
        check("further", "kueue.x-k8s.io/multikueue", workers),
        check("nodes", "kueue.x-k8s.io/provisioning-request", Value::Null),
        check("budget", "example.com/budget", Value::Null),
        kueue_object("MultiKueueConfig", "all", json!({"clusters": ["eu", "us", "asia"]})),
    ]);
    let pending = f.submit("waits", 1);
    let with_checks = |checks: Value| with("admissionChecksStrategy", json!({"admissionChecks": checks}));
    for (checks, expected, help) in [
        (
            json!([{"name": "budget"}]),
            "AdmissionCheckInactive",
            "check why admission check `budget` is inactive, or remove it from cluster queue `cq`",
        ),
        (
            json!([{"name": "far"}, {"name": "further"}]),
            "MultipleMultiKueueAdmissionChecks",
            "keep only one MultiKueue admission check in cluster queue `cq`",
        ),
        (
            json!([{"name": "nodes"}, {"name": "far"}]),
            "MultiKueueWithProvisioningRequest",
            "remove the provisioning check from cluster queue `cq`: \
             each worker cluster provisions its own nodes",
        ),
    ] {
        f.apply(vec![with_checks(checks)]);
        assert_eq!(reason(&f), expected, "{:#}", f.cluster_queue("cq"));
        assert_eq!(f.why(pending)["wouldHelp"], help, "{:#}", f.why(pending));
    }
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "waits"),
        uid: None,
        force: false,
    }]);
    f.apply(vec![queue("cq", 1, Some("a"))]);
    assert_eq!(reason(&f), "Ready");
    f.apply(vec![queue("cq", 1, None)]);
    f.write(vec![Change::Delete { key: Key::global(Kind::ResourceFlavor, "any"), uid: None, force: true }]);
    assert_eq!(reason(&f), "FlavorNotFound");
    assert!(!meridian_views::metrics::cluster_queue_rows(&f.world)[0].active);
}

#[test]
fn admission_and_finish_publish_lifecycle_events_with_times() {
    let mut f = Fleet::regions();
    let uid = f.submit("one", 2);
    f.settle();
    f.end(uid, EndResult::Succeeded);
    let all: Vec<&LifecycleEvent> = f.lifecycle_events.iter().collect();
    assert!(
        all.iter().all(|m| (&*m.owner.cluster_queue, &*m.owner.namespace, &*m.owner.local_queue)
            == ("cq", "default", "lq"))
    );
    let [reserved, admitted, ready, finished] = all.iter().map(|m| &m.event).collect::<Vec<_>>()[..] else {
        panic!("{all:#?}")
    };
    assert_eq!(*reserved, lifecycle::Event::QuotaReserved { waited: Millis(0) });
    let lifecycle::Event::Admitted { waited, checked, .. } = admitted else { panic!("{admitted:?}") };
    assert!(*waited > Millis(0) && *checked == Some(*waited), "quota was reserved at once: {admitted:?}");
    let lifecycle::Event::Ready { waited: until_ready, started } = ready else { panic!("{ready:?}") };
    assert_eq!(*until_ready, *waited + *started);
    assert_eq!(*finished, lifecycle::Event::Finished { ran: Millis(10) });
    assert_eq!(f.world.live().counts().of(Count::AttemptsFruitful), 1);
}

/// One eviction was published: the first one of a preempted workload of the class `low`.
fn assert_preemption_is_published(f: &Fleet) {
    let evictions: Vec<_> =
        f.lifecycle_events.iter().filter(|m| matches!(m.event, lifecycle::Event::Evicted { .. })).collect();
    let [
        LifecycleEvent {
            uid: _,
            owner,
            event: lifecycle::Event::Evicted { cause, first: true, ran, cluster, preempted },
        },
    ] = evictions[..]
    else {
        panic!("{evictions:#?}")
    };
    assert_eq!((&*owner.priority_class, *cause), ("low", EvictionCause::Preempted));
    assert!(ran.is_some() && cluster.is_some());
    assert_eq!(*preempted, Some(("cq".into(), PreemptionReason::InClusterQueue)));
    assert!(
        f.lifecycle_events
            .iter()
            .any(|m| matches!(&m.event, lifecycle::Event::Stopped { cause: EvictionCause::Preempted, .. }))
    );
}

#[test]
fn a_preempted_workload_names_the_rule_and_only_the_preemptors_uid() {
    let mut f = Fleet::regions();
    preempting_queue(&mut f);
    let low: Vec<Uid> =
        (0..2).map(|i| f.submit_in("default", &format!("low-{i}"), 3, class_label("low"))).collect();
    f.settle();
    assert!(low.iter().all(|uid| f.phase(*uid) == Some(Phase::Running)));
    let granted = f.workload_object(low[0]);
    assert_eq!(
        granted["status"]["admission"]["podSetAssignments"],
        json!([{"name": "main", "flavors": {GPU: "any"}, "resourceUsage": {GPU: "3"}, "count": 3}])
    );
    assert_eq!(
        f.conditions(low[0]),
        ["QuotaReserved=True QuotaReserved", "Admitted=True Admitted", "PodsReady=True Started"]
    );
    f.lifecycle_events.clear();
    let high = f.submit_in("default", "secret-name", 3, class_label("high"));
    let victim = *low.iter().find(|uid| f.phase(**uid) == Some(Phase::Stopping)).expect("one is preempted");
    let conditions = f.conditions(victim);
    let expected = ["Evicted=True Preempted", "Preempted=True InClusterQueue"];
    assert_eq!(conditions[2..], expected, "{conditions:?}");
    let object = f.workload_object(victim).to_string();
    assert!(!object.contains("secret-name") && object.contains(&high.to_string()), "{object}");
    f.settle();
    assert_eq!(f.phase(high), Some(Phase::Running));
    assert_eq!(
        f.conditions(victim),
        [
            "QuotaReserved=False Pending",
            "Admitted=False NoReservation",
            "Evicted=True Preempted",
            "Preempted=True InClusterQueue",
            "Requeued=True Preempted"
        ]
    );
    assert_preemption_is_published(&f);
    let unadmitted: Vec<_> = meridian_views::metrics::unadmitted(&f.world)
        .into_iter()
        .map(|(row, n)| (row.reason, row.cause, n))
        .collect();
    assert_eq!(unadmitted, [("WaitingForQuota", "", 1)]);

    // Once the victim has quota again, the conditions about its eviction are gone.
    f.end(high, EndResult::Succeeded);
    f.settle();
    assert_eq!(
        f.conditions(victim),
        ["QuotaReserved=True QuotaReserved", "Admitted=True Admitted", "PodsReady=True Started"]
    );
    // Evictions are counted: the second one of the same workload isn't marked as its first.
    f.lifecycle_events.clear();
    for name in ["another", "third"] {
        f.submit_in("default", name, 3, class_label("high"));
    }
    f.settle();
    let first: Vec<bool> = f
        .lifecycle_events
        .iter()
        .filter_map(
            |m| if let lifecycle::Event::Evicted { first, .. } = m.event { Some(first) } else { None },
        )
        .collect();
    assert_eq!(
        (first.len(), first.iter().filter(|first| **first).count()),
        (2, 1),
        "one of the two victims is evicted for the first time"
    );
    let stats = f.workload_object(victim)["status"]["schedulingStats"].clone();
    assert_eq!(stats, json!({"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 2}]}));
}

#[test]
fn an_eviction_by_a_drained_queue_names_the_queue_as_reason() {
    let mut f = Fleet::regions();
    let uid = f.submit("one", 3);
    f.settle();
    let mut drained = local_queue("lq", "cq");
    drained["spec"]["stopPolicy"] = json!("HoldAndDrain");
    f.apply(vec![drained]);
    assert_eq!(f.phase(uid), Some(Phase::Stopping));
    assert_eq!(f.conditions(uid).last().map(String::as_str), Some("Evicted=True LocalQueueStopped"));
    f.settle();
    let requeued =
        |f: &Fleet| f.conditions(uid).into_iter().find(|condition| condition.starts_with("Requeued="));
    assert_eq!(requeued(&f).as_deref(), Some("Requeued=False LocalQueueStopped"));
    // The cluster queue is stopped too. Later it is active again, without enough quota.
    let mut stopped = queue("cq", 6, None);
    stopped["spec"]["stopPolicy"] = json!("Hold");
    f.apply(vec![stopped, local_queue("lq", "cq")]);
    assert_eq!(requeued(&f).as_deref(), Some("Requeued=False ClusterQueueStopped"));
    let all = vec![Change::Put {
        object: object(queue("cq", 1, None)),
        scope: None,
        uid: Uid(9_001),
        mode: PutMode::Apply,
    }];
    let out = f.world.apply(
        now(f.now),
        Input::Write(Box::new(Write::new(Actor::user("test"), all, false))),
        &f.bodies,
    );
    assert!(out.workloads.contains(&uid), "readers of the workload are notified");
    f.settle();
    assert_eq!(
        (f.phase(uid), requeued(&f).as_deref()),
        (Some(Phase::Pending), Some("Requeued=True LocalQueueRestarted"))
    );
}

#[test]
fn a_lost_cluster_evicts_with_its_own_cause() {
    let mut f = Fleet::regions();
    let uid = f.submit("one", 3);
    f.settle();
    let home: ClusterName = f.cluster_of(uid).unwrap().as_str().into();
    f.lifecycle_events.clear();
    f.disconnected.push(home.clone());
    f.running.retain(|(cluster, _)| *cluster != home);
    f.advance(Millis(TERM.0 * 2));
    let lost = f.lifecycle_events.iter().find_map(|m| match &m.event {
        lifecycle::Event::Evicted { cause, cluster, .. } => Some((*cause, cluster.clone())),
        _ => None,
    });
    assert_eq!(lost, Some((EvictionCause::ClusterLost, Some(home))));
}

#[test]
fn a_plan_can_read_a_rendered_workload() {
    let mut f = Fleet::regions();
    f.apply(vec![priority_class("high", 100)]);
    let mut manifest = job(
        "default",
        "rich",
        2,
        &json!({"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/priority-class": "high"}),
        "",
    );
    let pod = &mut manifest["spec"]["template"]["spec"];
    pod["containers"][0]["resources"]["requests"]["cpu"] = json!("1500m");
    pod["containers"][0]["resources"]["requests"]["memory"] = json!("3Gi");
    pod["nodeSelector"] = json!({"zone": "a"});
    pod["tolerations"] = json!([{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoSchedule"}]);
    let terms = json!([{"matchExpressions": [
        {"key": "gen", "operator": "In", "values": ["4", "5"]},
        {"key": "cores", "operator": "Gt", "values": ["8"]},
    ]}]);
    pod["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }});
    let uid = f.create(manifest);
    let rendered = f.workload_object(uid);
    let (read, _) = PlanObject::from_value(rendered.clone())
        .unwrap_or_else(|errors| panic!("{errors:#?} in {rendered:#}"));
    let PlanObject::Workload(read) = read else { panic!("{read:?}") };
    assert_eq!((read.spec.queue_name.as_str(), read.priority()), ("lq", 100));
    assert_eq!(read.spec.priority_class.unwrap().name, "high");
    let requested = &f.world.queues().class(f.world.state().workloads()[&uid].class()).gang.pod_sets[0];
    let set = &read.spec.pod_sets[0];
    assert_eq!((set.name.as_str(), set.count), (requested.name.as_str(), requested.count));
    let template = &set.template;
    assert_eq!(
        (&template.node_selector, &template.affinity, &template.tolerations),
        (&requested.node_selector, &requested.affinity, &requested.tolerations)
    );
    assert_eq!(template.requests(), requested.per_pod);
}

#[test]
fn fair_sharing_reports_shares_in_status_and_metrics() {
    let mut f = Fleet::regions();
    assert_eq!(f.cluster_queue("cq")["status"].get("fairSharing"), None);
    f.world.config_mut().fair_sharing = Some(FairSharing::default());
    let all = kueue_object("Cohort", "all", json!({}));
    f.apply(vec![all, queue("cq", 2, Some("all")), queue("lends", 6, Some("all"))]);
    f.submit("borrows", 4);
    f.settle();
    let queue = f.cluster_queue("cq");
    assert_eq!(queue["status"]["fairSharing"]["weightedShare"], 250, "2 of 8 are borrowed");
    assert_eq!(
        queue["status"]["flavorsReservation"][0]["resources"][0],
        json!({"name": GPU, "total": "4", "borrowed": "2"})
    );
    let cohort = f.rendered(&Key::global(Kind::Cohort, "all"));
    assert_eq!(cohort["status"]["fairSharing"]["weightedShare"], 0);
    assert!(version(&cohort) >= version(&queue), "the cohort has a new version with each new share");
    let rows = meridian_views::metrics::cohort_rows(&f.world);
    assert_eq!((rows.len(), rows[0].admitted, rows[0].cells[0].2, rows[0].cells[0].3), (1, 1, 8, 4));
    assert_eq!(meridian_views::metrics::cluster_queue_rows(&f.world)[0].share, Some(250.0));
}

#[test]
fn a_start_time_is_that_of_the_activation_and_absent_until_the_next_one() {
    let mut f = Fleet::new(EU);
    let (first, uid) = (f.now, f.submit("job", 2));
    f.settle();
    let start_time = |f: &Fleet| {
        let job = f.rendered(&Key::namespaced(Kind::Job, "default", "job"));
        job["status"]["startTime"].as_str().map(str::to_owned)
    };
    let wall = |at: u64| timestamp(now(at).wall);
    let began = start_time(&f).expect("it runs");
    assert!(began >= wall(first), "{began}");
    f.advance(Millis::secs(90));
    assert_eq!(start_time(&f), Some(began.clone()), "it still runs");
    f.stop(uid);
    f.settle();
    assert_eq!((f.phase(uid), start_time(&f)), (Some(Phase::Pending), None));
    f.advance(Millis::secs(90));
    let resumed = f.now;
    f.resume(uid);
    f.settle();
    f.settle();
    let again = start_time(&f).expect("it runs again");
    assert!(again >= wall(resumed) && again > began, "{again}");
    f.end(uid, EndResult::Succeeded);
    assert_eq!((f.phase(uid), start_time(&f)), (Some(Phase::Finished), Some(again)));
}
