//! What is counted and shown of queues and workloads: standings, lifecycle_events, statuses, and that a restart changes none of it.

use super::*;
use meridian_manager_core::facts::end::{EvictionCause, PreemptionReason};
use meridian_manager_core::facts::lifecycle::{Event as Reached, LifecycleEvent};
use meridian_manager_core::views::format::workload_name;
use meridian_objects::PlanObject;
use meridian_queueing::settings::FairSharing;

/// Three kinds of priority and a queue that displaces lower ones, with six devices of its own.
fn strict_about_priority(f: &mut Fleet) {
    let class = |name: &str, value: i64| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value});
    f.apply(vec![class("high", 100), class("low", 1), queue("cq", 6, None)]);
}

fn queue(name: &str, nominal: u32, cohort: Option<&str>) -> Value {
    let mut queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {
        "namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"}, "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": nominal}]}]}]}});
    if let Some(cohort) = cohort {
        queue["spec"]["cohortName"] = json!(cohort);
    }
    queue
}

fn local(name: &str, leads_to: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": leads_to}})
}

fn labelled(class: &str) -> Value {
    json!({"kueue.x-k8s.io/priority-class": class})
}

impl Fleet {
    fn shown(&self, key: &Key) -> Value {
        self.world.render(key, &self.bodies, now(self.now)).unwrap_or_else(|| panic!("there is no {key}"))
    }

    fn cluster_queue(&self, name: &str) -> Value {
        self.shown(&Key::global(Kind::ClusterQueue, name))
    }

    fn kueue(&self, uid: Uid) -> Value {
        let workload = &self.world.state.workloads()[&uid];
        let key = Key::namespaced(
            Kind::Workload,
            &workload.namespace(),
            &workload_name(&workload.name(), workload.submitted()),
        );
        self.shown(&key)
    }

    /// Its conditions as `Type=Status Reason`.
    fn conditions(&self, uid: Uid) -> Vec<String> {
        let shown = self.kueue(uid);
        let text = |c: &Value, field: &str| c[field].as_str().unwrap().to_owned();
        shown["status"]["conditions"]
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
fn a_queue_shows_who_stands_where_and_a_restart_shows_the_same() {
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
    assert!(version(&full) > version(&empty), "its status has another version");
    let mine = f.shown(&Key::namespaced(Kind::LocalQueue, "default", "lq"));
    assert_eq!(counts(&mine), [1, 2, 2]);
    assert_eq!(
        mine["status"]["flavorsUsage"],
        json!([{"name": "any", "resources": [{"name": GPU, "total": "6"}]}])
    );

    let jobs: Vec<Value> = uids.iter().map(|uid| f.kueue(*uid)).collect();
    let counts_by_queue = f.world.counts_by_queue.clone();
    let mut rebuilt = World::restore(&f.world.snapshot(), config()).unwrap();
    assert_eq!(rebuilt.counts_by_queue, counts_by_queue);
    let again = rebuilt.render(&Key::global(Kind::ClusterQueue, "cq"), &f.bodies, now(f.now)).unwrap();
    assert_eq!(again, full);
    rebuilt.live = f.world.live.clone();
    f.world = rebuilt;
    assert_eq!(uids.iter().map(|uid| f.kueue(*uid)).collect::<Vec<_>>(), jobs);

    // Nothing is left of who is gone.
    for uid in uids {
        let name = f.world.state.workloads()[&uid].name().clone();
        f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", &name), uid: None }]);
    }
    f.settle();
    f.settle();
    assert_eq!(counts(&f.cluster_queue("cq")), [0, 0, 0]);
    assert_eq!(f.world.counts_by_queue, meridian_manager_core::queue::counts::QueueCounts::default());
}

#[test]
fn who_waits_counts_where_the_local_queue_leads_today() {
    let mut f = Fleet::regions();
    f.apply(vec![queue("cq", 0, None), queue("other", 0, None)]);
    f.submit("waits", 2);
    assert_eq!(counts(&f.cluster_queue("cq")), [1, 0, 0]);
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::LocalQueue, "default", "lq"), uid: None }]);
    assert_eq!(counts(&f.cluster_queue("cq")), [0, 0, 0]);
    let before = version(&f.cluster_queue("other"));
    f.apply(vec![local("lq", "other")]);
    let other = f.cluster_queue("other");
    assert_eq!(counts(&other), [1, 0, 0]);
    assert!(version(&other) > before);
    let rows = f.world.cluster_queue_rows();
    let asked: Vec<_> =
        rows.iter().map(|row| (row.name.to_string(), row.standing.asked.get(GPU).copied())).collect();
    assert_eq!(asked, [("cq".to_owned(), None), ("other".to_owned(), Some(2))]);
    assert_eq!((rows[1].awake, rows[1].shapes), (0, [0, 1]), "it was looked at, and there is no quota");
}

#[test]
fn a_queue_says_why_it_is_not_active() {
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
        f.shown(&Key::namespaced(Kind::LocalQueue, "default", "lq"))["status"]["conditions"][0]["reason"],
        "ClusterQueueIsInactive"
    );
    f.apply(vec![with("admissionChecksStrategy", json!({"admissionChecks": [{"name": "absent"}]}))]);
    assert_eq!(reason(&f), "AdmissionCheckNotFound");
    // Each check by itself would do, and `why` says which doesn't go with what.
    let check = |name: &str, controller: &str, config: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": name}, "spec": {"controllerName": controller, "parameters": config}});
    let workers = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"});
    f.apply(vec![
        check("far", "kueue.x-k8s.io/multikueue", workers.clone()),
        check("further", "kueue.x-k8s.io/multikueue", workers),
        check("nodes", "kueue.x-k8s.io/provisioning-request", Value::Null),
        check("budget", "example.com/budget", Value::Null),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig", "metadata": {"name": "all"}, "spec": {"clusters": ["eu", "us", "asia"]}}),
    ]);
    let waits = f.submit("waits", 1);
    let rules = |rules: Value| with("admissionChecksStrategy", json!({"admissionChecks": rules}));
    for (checks, expect, help) in [
        (
            json!([{"name": "budget"}]),
            "AdmissionCheckInactive",
            "see why admission check `budget` isn't active, or take it out of cluster queue `cq`",
        ),
        (
            json!([{"name": "far"}, {"name": "further"}]),
            "MultipleMultiKueueAdmissionChecks",
            "leave one check of worker clusters in cluster queue `cq`",
        ),
        (
            json!([{"name": "nodes"}, {"name": "far"}]),
            "MultiKueueWithProvisioningRequest",
            "take the check that provisions nodes out of cluster queue `cq`: each worker cluster provisions its own",
        ),
    ] {
        f.apply(vec![rules(checks)]);
        assert_eq!(reason(&f), expect, "{:#}", f.cluster_queue("cq"));
        assert_eq!(f.why(waits)["wouldHelp"], help, "{:#}", f.why(waits));
    }
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "waits"), uid: None }]);
    f.apply(vec![queue("cq", 1, Some("a"))]);
    assert_eq!(reason(&f), "Ready");
    f.apply(vec![queue("cq", 1, None)]);
    f.write(vec![Change::Delete { key: Key::global(Kind::ResourceFlavor, "any"), uid: None }]);
    assert_eq!(reason(&f), "FlavorNotFound");
    assert!(!f.world.cluster_queue_rows()[0].active);
}

#[test]
fn an_admission_and_an_end_are_milestones_with_their_times() {
    let mut f = Fleet::regions();
    let uid = f.submit("one", 2);
    f.settle();
    f.end(uid, EndResult::Succeeded);
    let mine: Vec<&LifecycleEvent> = f.lifecycle_events.iter().collect();
    assert!(
        mine.iter().all(|m| (&*m.owner.cluster_queue, &*m.owner.namespace, &*m.owner.local_queue)
            == ("cq", "default", "lq"))
    );
    let [reserved, admitted, ready, finished] = mine.iter().map(|m| &m.event).collect::<Vec<_>>()[..] else {
        panic!("{mine:#?}")
    };
    assert_eq!(*reserved, Reached::QuotaReserved { waited: Millis(0) });
    let Reached::Admitted { waited, checked, .. } = admitted else { panic!("{admitted:?}") };
    assert!(*waited > Millis(0) && *checked == Some(*waited), "quota came at once: {admitted:?}");
    let Reached::Ready { waited: until_ready, started } = ready else { panic!("{ready:?}") };
    assert_eq!(*until_ready, *waited + *started);
    assert_eq!(*finished, Reached::Finished { ran: Millis(10) });
    assert_eq!(f.world.live.counts.attempts_fruitful, 1);
}

#[test]
fn a_displaced_workload_says_by_what_right_and_names_only_a_uid() {
    let mut f = Fleet::regions();
    strict_about_priority(&mut f);
    let low: Vec<Uid> =
        (0..2).map(|i| f.submit_in("default", &format!("low-{i}"), 3, labelled("low"))).collect();
    f.settle();
    assert!(low.iter().all(|uid| f.phase(*uid) == Some(Phase::Running)));
    let granted = f.kueue(low[0]);
    assert_eq!(
        granted["status"]["admission"]["podSetAssignments"],
        json!([{"name": "main", "flavors": {GPU: "any"}, "resourceUsage": {GPU: "3"}, "count": 3}])
    );
    assert_eq!(
        f.conditions(low[0]),
        ["QuotaReserved=True QuotaReserved", "Admitted=True Admitted", "PodsReady=True Started"]
    );
    f.lifecycle_events.clear();
    let high = f.submit_in("default", "secret-name", 3, labelled("high"));
    let victim = *low.iter().find(|uid| f.phase(**uid) == Some(Phase::Stopping)).expect("one has to go");
    let told = f.conditions(victim);
    assert_eq!(told[2..], ["Evicted=True Preempted", "Preempted=True InClusterQueue"], "{told:?}");
    let shown = f.kueue(victim).to_string();
    assert!(!shown.contains("secret-name") && shown.contains(&high.to_string()), "{shown}");
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
    let evictions: Vec<_> =
        f.lifecycle_events.iter().filter(|m| matches!(m.event, Reached::Evicted { .. })).collect();
    let [LifecycleEvent { owner, event: Reached::Evicted { cause, first: true, ran, cluster, preempted } }] =
        evictions[..]
    else {
        panic!("{evictions:#?}")
    };
    assert_eq!((&*owner.priority_class, *cause), ("low", EvictionCause::Preempted));
    assert!(ran.is_some() && cluster.is_some());
    assert_eq!(*preempted, Some(("cq".into(), PreemptionReason::InClusterQueue)));
    assert!(
        f.lifecycle_events
            .iter()
            .any(|m| matches!(&m.event, Reached::Stopped { cause: EvictionCause::Preempted, .. }))
    );
    let why: Vec<_> = f.world.unadmitted().into_iter().map(|(row, n)| (row.reason, row.cause, n)).collect();
    assert_eq!(why, [("WaitingForQuota", "", 1)]);

    // Where it gets its quota back, nothing is left of it.
    f.end(high, EndResult::Succeeded);
    f.settle();
    assert_eq!(
        f.conditions(victim),
        ["QuotaReserved=True QuotaReserved", "Admitted=True Admitted", "PodsReady=True Started"]
    );
    // How often is remembered, and a second time is no longer the first.
    f.lifecycle_events.clear();
    for name in ["another", "third"] {
        f.submit_in("default", name, 3, labelled("high"));
    }
    f.settle();
    let first: Vec<bool> = f
        .lifecycle_events
        .iter()
        .filter_map(|m| if let Reached::Evicted { first, .. } = m.event { Some(first) } else { None })
        .collect();
    assert_eq!(
        (first.len(), first.iter().filter(|first| **first).count()),
        (2, 1),
        "for the other one it is the first time"
    );
    let stats = f.kueue(victim)["status"]["schedulingStats"].clone();
    assert_eq!(stats, json!({"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 2}]}));
}

#[test]
fn a_drained_queue_evicts_in_its_own_name() {
    let mut f = Fleet::regions();
    let uid = f.submit("one", 3);
    f.settle();
    let mut drained = local("lq", "cq");
    drained["spec"]["stopPolicy"] = json!("HoldAndDrain");
    f.apply(vec![drained]);
    assert_eq!(f.phase(uid), Some(Phase::Stopping));
    assert_eq!(f.conditions(uid).last().map(String::as_str), Some("Evicted=True LocalQueueStopped"));
    f.settle();
    let requeued =
        |f: &Fleet| f.conditions(uid).into_iter().find(|condition| condition.starts_with("Requeued="));
    assert_eq!(requeued(&f).as_deref(), Some("Requeued=False LocalQueueStopped"));
    // Its cluster queue is stopped too, and without quota once it isn't any more.
    let mut stopped = queue("cq", 6, None);
    stopped["spec"]["stopPolicy"] = json!("Hold");
    f.apply(vec![stopped, local("lq", "cq")]);
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
    assert!(out.workloads.contains(&uid), "readers are told");
    f.settle();
    assert_eq!(
        (f.phase(uid), requeued(&f).as_deref()),
        (Some(Phase::Pending), Some("Requeued=True LocalQueueRestarted"))
    );
}

#[test]
fn a_lost_cluster_evicts_for_its_check() {
    let mut f = Fleet::regions();
    let uid = f.submit("one", 3);
    f.settle();
    let home: ClusterName = f.at(uid).unwrap().as_str().into();
    f.lifecycle_events.clear();
    f.cut.push(home.clone());
    f.running.retain(|(cluster, _)| *cluster != home);
    f.pass(Millis(TERM.0 * 2));
    let lost = f.lifecycle_events.iter().find_map(|m| match &m.event {
        Reached::Evicted { cause, cluster, .. } => Some((*cause, cluster.clone())),
        _ => None,
    });
    assert_eq!(lost, Some((EvictionCause::ClusterLost, Some(home))));
}

#[test]
fn a_plan_reads_a_workload_back() {
    let mut f = Fleet::regions();
    f.apply(vec![json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 100})]);
    let mut written = job(
        "default",
        "rich",
        2,
        &json!({"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/priority-class": "high"}),
        "",
    );
    let pod = &mut written["spec"]["template"]["spec"];
    pod["containers"][0]["resources"]["requests"]["cpu"] = json!("1500m");
    pod["containers"][0]["resources"]["requests"]["memory"] = json!("3Gi");
    pod["nodeSelector"] = json!({"zone": "a"});
    pod["tolerations"] = json!([{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoSchedule"}]);
    pod["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "gen", "operator": "In", "values": ["4", "5"]}, {"key": "cores", "operator": "Gt", "values": ["8"]}]}]}}});
    let Reply::Written(all) = f.apply(vec![written]) else { panic!("refused") };
    let shown = f.kueue(all[0].uid);
    let (read, _) =
        PlanObject::from_value(shown.clone()).unwrap_or_else(|errors| panic!("{errors:#?} in {shown:#}"));
    let PlanObject::Workload(read) = read else { panic!("{read:?}") };
    assert_eq!((read.spec.queue_name.as_str(), read.priority()), ("lq", 100));
    assert_eq!(read.spec.priority_class.unwrap().name, "high");
    let asked = &f.world.queues.class(f.world.state.workloads()[&all[0].uid].class()).gang.pod_sets[0];
    let set = &read.spec.pod_sets[0];
    assert_eq!((set.name.as_str(), set.count), (asked.name.as_str(), asked.count));
    let template = &set.template;
    assert_eq!(
        (&template.node_selector, &template.affinity, &template.tolerations),
        (&asked.node_selector, &asked.affinity, &asked.tolerations)
    );
    assert_eq!(template.requests(), asked.per_pod);
}

#[test]
fn shares_are_shown_where_sharing_is_fair() {
    let mut f = Fleet::regions();
    assert_eq!(f.cluster_queue("cq")["status"].get("fairSharing"), None);
    f.world.config.fair_sharing = Some(FairSharing::default());
    let all = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "all"}, "spec": {}});
    f.apply(vec![all, queue("cq", 2, Some("all")), queue("lends", 6, Some("all"))]);
    f.submit("borrows", 4);
    f.settle();
    let queue = f.cluster_queue("cq");
    assert_eq!(queue["status"]["fairSharing"]["weightedShare"], 250, "2 of 8 are borrowed");
    assert_eq!(
        queue["status"]["flavorsReservation"][0]["resources"][0],
        json!({"name": GPU, "total": "4", "borrowed": "2"})
    );
    let cohort = f.shown(&Key::global(Kind::Cohort, "all"));
    assert_eq!(cohort["status"]["fairSharing"]["weightedShare"], 0);
    assert!(version(&cohort) >= version(&queue), "its share follows");
    let rows = f.world.cohort_rows();
    assert_eq!((rows.len(), rows[0].admitted, rows[0].cells[0].2, rows[0].cells[0].3), (1, 1, 8, 4));
    assert_eq!(f.world.cluster_queue_rows()[0].share, Some(250.0));
}
