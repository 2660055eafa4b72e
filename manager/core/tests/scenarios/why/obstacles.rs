//! The obstacles that `why` names are the current ones: numbers, policies, objects and other workloads.

use super::*;

/// A cluster queue in the cohort `co`.
fn member(name: &str, nominal: i64, more: Value) -> Value {
    let mut all = json!({"cohortName": "co"});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    cluster_queue(name, nominal, &all)
}

/// Two cluster queues, each with a local queue of the same name, and a node that is large enough for all
/// workloads.
fn two_queues(first: &Value, second: &Value) -> Fleet {
    let mut f = Fleet::new(EU);
    suggestions::nodes(&mut f, "eu", &[("eu-1", 64, &[])]);
    let names = [first, second].map(|queue| queue["metadata"]["name"].as_str().unwrap().to_owned());
    f.apply(vec![first.clone(), second.clone()]);
    f.apply(names.iter().map(|name| local_queue(name, name)).collect());
    f
}

fn submit_running(f: &mut Fleet, queue: &str, name: &str, pods: u32) -> Uid {
    let uid = f.submit_to(queue, name, pods, None);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    uid
}

fn submit_pending(f: &mut Fleet, queue: &str, name: &str, pods: u32) -> Uid {
    let uid = f.submit_to(queue, name, pods, None);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Pending), "{:#}", f.why(uid));
    uid
}

fn delete(f: &mut Fleet, name: &str) {
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", name),
        uid: None,
        force: false,
    }]);
    f.settle();
}

#[test]
fn reported_numbers_are_current_not_those_of_the_last_evaluation() {
    let mut f = two_queues(&member("q1", 10, json!({})), &member("q2", 2, json!({})));
    submit_running(&mut f, "q1", "own", 5);
    let big = submit_pending(&mut f, "q2", "big", 9);
    assert!(
        f.summary_and_help(big)
            .0
            .contains("has 2 of 2 free in flavor `any` and can borrow 5 from cohort `co`"),
        "{}",
        f.summary_and_help(big).0
    );
    let small = submit_running(&mut f, "q2", "small", 6);
    let (summary, help) = f.summary_and_help(big);
    let shortage = "needs 9 nvidia.com/gpu; cluster queue `q2` has 0 of 2 free in flavor `any` \
                    and can borrow 1 from cohort `co`";
    assert!(summary.contains(shortage), "{summary}");
    assert!(help.starts_with("wait until workloads that use 8 nvidia.com/gpu end, or "), "{help}");
    f.end(small, EndResult::Succeeded);
    assert!(
        f.summary_and_help(big)
            .0
            .contains("has 2 of 2 free in flavor `any` and can borrow 5 from cohort `co`"),
        "{}",
        f.summary_and_help(big).0
    );
    // The same for the head of a workload behind it.
    f.apply(vec![member("q2", 2, json!({"queueingStrategy": "StrictFIFO"}))]);
    let behind = submit_pending(&mut f, "q2", "behind", 1);
    submit_running(&mut f, "q1", "more", 3);
    let (summary, _) = f.summary_and_help(behind);
    let head = "its head, workload `default/big`, can't start: needs 9 nvidia.com/gpu; \
                the queue has 2 of 2 free in flavor `any` and can borrow 2 from cohort `co`";
    assert!(summary.contains(head), "{summary}");
}

#[test]
fn a_workload_without_capacity_learns_that_its_quota_was_borrowed() {
    let mut f = two_queues(&member("a", 3, json!({})), &member("b", 3, json!({})));
    suggestions::nodes(&mut f, "eu", &[("eu-1", 4, &[])]);
    submit_running(&mut f, "a", "there", 2);
    let pending = submit_pending(&mut f, "b", "waits", 3);
    assert!(
        f.summary_and_help(pending)
            .0
            .starts_with("pending: the only cluster, `eu`, has no room: 2 of 3 pods of `main` fit"),
        "{}",
        f.summary_and_help(pending).0
    );
    submit_running(&mut f, "a", "took", 2);
    let (summary, help) = f.summary_and_help(pending);
    let lacks = "pending: needs 3 nvidia.com/gpu; cluster queue `b` has 2 of 3 free in flavor `any` (1 lent \
                 to other queues) and can borrow 0 from cohort `co`; ";
    assert!(summary.starts_with(lacks), "{summary}");
    assert!(
        summary.ends_with("; and then: the only cluster, `eu`, has no room: 0 of 3 pods of `main` fit now"),
        "{summary}"
    );
    assert!(help.contains("first: wait until workloads that use 1 nvidia.com/gpu end, or raise"), "{help}");
}

#[test]
fn usage_over_quota_adds_to_what_must_end_first() {
    let mut f = Fleet::new(EU);
    suggestions::nodes(&mut f, "eu", &[("eu-1", 64, &[])]);
    let quota = |f: &mut Fleet, nominal: i64| f.apply(vec![cluster_queue("cq", nominal, &json!({}))]);
    quota(&mut f, 8);
    let [five, one, two] =
        [("five", 5), ("one", 1), ("two", 2)].map(|(name, pods)| submit_running(&mut f, "lq", name, pods));
    quota(&mut f, 4);
    let pending = submit_pending(&mut f, "lq", "waits", 1);
    assert!(
        f.summary_and_help(pending).1.starts_with("wait until workloads that use 5 nvidia.com/gpu end, or "),
        "{}",
        f.summary_and_help(pending).1
    );
    f.end(one, EndResult::Succeeded);
    assert!(
        f.summary_and_help(pending).1.starts_with("wait until workloads that use 4 nvidia.com/gpu end, or "),
        "{}",
        f.summary_and_help(pending).1
    );
    f.end(two, EndResult::Succeeded);
    assert_eq!(f.phase(pending), Some(Phase::Pending), "five of four GPUs are used");
    f.end(five, EndResult::Succeeded);
    assert_eq!(f.phase(pending), Some(Phase::Running));
}

#[test]
fn a_preemption_policy_is_named_only_if_it_could_allow_preemption() {
    for policy in ["Never", "Any"] {
        let mut f = two_queues(
            &member("q1", 10, json!({})),
            &member("q2", 2, json!({"preemption": {"reclaimWithinCohort": policy}})),
        );
        submit_running(&mut f, "q1", "own", 5);
        let big = submit_pending(&mut f, "q2", "big", 9);
        let words = "; preempting workload `default/own` (priority 0) would be enough, but no policy allows \
                     it: cluster queue `q1` uses only its own quota";
        assert!(f.summary_and_help(big).0.contains(words), "{policy}: {}", f.summary_and_help(big).0);
    }
    // A borrowing workload could be preempted with another policy, and that policy is named.
    let mut f = two_queues(&member("q1", 4, json!({})), &member("q2", 4, json!({})));
    submit_running(&mut f, "q1", "borrows", 8);
    let pending = submit_pending(&mut f, "q2", "waits", 4);
    assert!(
        f.summary_and_help(pending)
            .0
            .contains("would be enough, but `reclaimWithinCohort: Never` forbids it"),
        "{}",
        f.summary_and_help(pending).0
    );
}

#[test]
fn a_victim_in_a_stopped_queue_suggests_to_start_that_queue() {
    let reclaims = json!({"preemption": {"reclaimWithinCohort": "Any"}});
    let mut f = two_queues(&member("a", 4, json!({})), &member("b", 4, reclaims));
    let holder = submit_running(&mut f, "a", "holds", 8);
    f.apply(vec![member("a", 4, json!({"stopPolicy": "Hold"}))]);
    let pending = submit_pending(&mut f, "b", "waits", 4);
    let (summary, help) = f.summary_and_help(pending);
    let words = "would be enough, but cluster queue `a` is inactive: it is stopped";
    assert!(summary.contains(words), "{summary}");
    let alone = "set the stopPolicy of cluster queue `a` to `None` (enough by itself: it would preempt \
                 workload `default/holds`)";
    assert!(help.contains(alone), "{help}");
    // Starting the queue would also start a workload that is pending in it, so the suggestion is not made.
    let along = submit_pending(&mut f, "a", "along", 4);
    assert!(!f.summary_and_help(pending).1.contains("stopPolicy"), "{}", f.summary_and_help(pending).1);
    delete(&mut f, "along");
    assert_eq!(f.phase(along), None);
    f.apply(vec![member("a", 4, json!({}))]);
    f.settle();
    f.settle();
    assert_eq!(f.phases(&[pending, holder]), [Some(Phase::Running), Some(Phase::Pending)]);
}

#[test]
fn uncordoning_is_suggested_if_preemption_does_the_rest() {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    suggestions::nodes(&mut f, "eu", &[("eu-1", 8, &[])]);
    suggestions::nodes(&mut f, "us", &[("us-1", 4, &[])]);
    let reclaims = json!({"preemption": {"reclaimWithinCohort": "Any"}});
    f.apply(vec![
        member("a", 4, reclaims),
        member("b", 4, json!({})),
        local_queue("a", "a"),
        local_queue("b", "b"),
    ]);
    let running = [submit_running(&mut f, "b", "b0", 4), submit_running(&mut f, "b", "b1", 4)];
    for cluster in ["eu", "us"] {
        f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon(cluster.into()) });
    }
    let pending = submit_pending(&mut f, "a", "waits", 4);
    let (_, help) = f.summary_and_help(pending);
    assert!(
        help.contains("; uncordon cluster `eu` (enough by itself: it would preempt workload `default/b"),
        "{help}"
    );
    assert!(!help.contains("no single change"), "{help}");
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
    f.settle();
    f.settle();
    assert_eq!(f.phase(pending), Some(Phase::Running), "{:#}", f.why(pending));
    assert_eq!(running.iter().filter(|uid| f.phase(**uid) == Some(Phase::Running)).count(), 1);
}

#[test]
fn a_workload_overtaken_in_each_cycle_names_the_other_one() {
    let strict =
        json!({"queueingStrategy": "StrictFIFO", "preemption": {"reclaimWithinCohort": "LowerPriority"}});
    let mut f = two_queues(&member("s", 2, strict), &member("p", 0, json!({})));
    f.apply(vec![kueue_object("Cohort", "co", json!({"resourceGroups": gpu_quota(2)}))]);
    submit_running(&mut f, "s", "s0", 3);
    let head = submit_pending(&mut f, "s", "head", 2);
    let part = submit_pending(&mut f, "p", "part", 1);
    let (summary, help) = f.summary_and_help(part);
    let rival = "pending: another workload in its cohort comes first; \
                 workload `default/head` of cluster queue `s` comes first";
    assert!(summary.starts_with(rival), "{summary}");
    assert!(help.starts_with("wait until workload `default/head` starts, or delete it"), "{help}");
    assert!(help.ends_with("; delete workload `default/head` (enough by itself)"), "{help}");
    delete(&mut f, "head");
    assert_eq!((f.phase(head), f.phase(part)), (None, Some(Phase::Running)));
}

#[test]
fn a_missing_multikueue_config_is_named_and_its_queue_is_inactive() {
    let mut f = Fleet::regions();
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "nope"});
    let check = kueue_object(
        "AdmissionCheck",
        "mk",
        json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}),
    );
    let config = |clusters: &[&str]| kueue_object("MultiKueueConfig", "nope", json!({"clusters": clusters}));
    let budget = kueue_object("AdmissionCheck", "budget", json!({"controllerName": "example.com/budget"}));
    f.apply(vec![
        check,
        budget,
        cluster_queue("cq", 4, &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}})),
    ]);
    let active = |f: &Fleet, kind: Kind, name: &str| {
        let object = f.object_at(&Key::global(kind, name)).unwrap();
        let condition = &object["status"]["conditions"][0];
        ["status", "reason"].map(|field| condition[field].as_str().unwrap().to_owned()).join(" ")
    };
    assert_eq!(active(&f, Kind::AdmissionCheck, "mk"), "False BadConfig");
    assert_eq!(active(&f, Kind::AdmissionCheck, "budget"), "False NoController");
    assert_eq!(active(&f, Kind::ClusterQueue, "cq"), "False AdmissionCheckInactive");
    let uid = f.submit("job", 2);
    f.settle();
    let missing = "MultiKueueConfig `nope` of admission check `mk` doesn't exist";
    let help = "create MultiKueueConfig `nope`; what comes next depends on the clusters that it lists";
    assert_eq!(
        f.summary_and_help(uid),
        (format!("pending: cluster queue `cq` is inactive: {missing}"), help.to_owned())
    );
    assert_eq!(f.why(uid)["clusters"][0]["reason"], missing);
    // The check is active if at least one of its clusters is.
    f.disconnected.push("us".into());
    f.apply(vec![config(&["moon"])]);
    assert_eq!(active(&f, Kind::AdmissionCheck, "mk"), "False NoUsableClusters");
    f.apply(vec![config(&["moon", "us"])]);
    assert_eq!(active(&f, Kind::AdmissionCheck, "mk"), "True SomeActiveClusters");
    f.apply(vec![config(&["us"])]);
    assert_eq!(
        (active(&f, Kind::AdmissionCheck, "mk"), active(&f, Kind::ClusterQueue, "cq")),
        ("True Active".to_owned(), "True Ready".to_owned())
    );
    f.disconnected.clear();
    f.advance(Millis::secs(60));
    assert_eq!((f.phase(uid), f.cluster_of(uid).as_deref()), (Some(Phase::Running), Some("us")));
    // Without the list the running workload continues, and nothing new starts.
    f.write(vec![Change::Delete {
        key: Key::global(Kind::MultiKueueConfig, "nope"),
        uid: None,
        force: true,
    }]);
    let next = submit_pending(&mut f, "lq", "next", 1);
    assert!(
        f.phase(uid) == Some(Phase::Running)
            && f.summary_and_help(next).1.starts_with("create MultiKueueConfig `nope`"),
        "{}",
        f.summary_and_help(next).1
    );
}

/// The quota would be enough for fewer pods, but is reserved for another preemptor (simulation seed
/// 1795574448503493).
#[test]
fn quota_reserved_for_a_preemptor_is_named_as_the_obstacle() {
    let reclaims = json!({"preemption": {"reclaimWithinCohort": "LowerPriority"}});
    let mut f = two_queues(&member("a", 4, reclaims.clone()), &member("b", 4, reclaims));
    f.apply(vec![member("c", 0, json!({})), local_queue("c", "c")]);
    let classes = [("low", 0), ("mid", 10), ("high", 1_000)];
    f.apply(classes.map(|(name, value)| priority_class(name, value)).into());
    let stay = f.submit_to("c", "stay", 4, Some("high"));
    let victim = f.submit_to("c", "victim", 2, Some("low"));
    f.settle();
    assert_eq!(f.phases(&[stay, victim]), [Some(Phase::Running); 2]);
    // The cluster is disconnected, so the victim doesn't stop yet.
    f.disconnected.push("eu".into());
    let owner = f.submit_to("a", "owner", 4, Some("mid"));
    let mut fewer = job(
        "default",
        "fewer",
        4,
        &json!({"kueue.x-k8s.io/queue-name": "b", "kueue.x-k8s.io/priority-class": "mid"}),
        "",
    );
    fewer["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    let fewer = f.create(fewer);
    assert_eq!(
        f.phases(&[victim, owner, fewer]),
        [Some(Phase::Stopping), Some(Phase::Pending), Some(Phase::Pending)]
    );
    let (summary, help) = f.summary_and_help(fewer);
    let rival = "pending: another workload in its cohort comes first; \
                 workload `default/owner` of cluster queue `a` comes first";
    assert!(summary.starts_with(rival), "{summary}");
    assert!(
        summary.ends_with("workloads are being preempted for it")
            && help.starts_with("wait until workload `default/owner` starts, or delete it"),
        "{summary}: {help}"
    );
    f.disconnected.clear();
    f.settle();
    delete(&mut f, "owner");
    f.settle();
    assert_eq!(f.phase(fewer), Some(Phase::Running), "{:#}", f.why(fewer));
}

#[test]
fn a_stopped_job_that_would_preempt_others_needs_only_its_resume() {
    let mut f = Fleet::regions();
    f.apply(vec![
        priority_class("high", 9),
        cluster_queue("a", 4, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})),
        local_queue("a", "a"),
    ]);
    let stopped = f.submit_to("a", "stopped", 4, Some("high"));
    f.settle();
    f.stop(stopped);
    f.settle();
    f.submit_to("a", "low", 4, None);
    f.settle();
    f.settle();
    let why = f.why(stopped);
    assert_eq!(why["obstacles"].as_array().unwrap().len(), 1, "{why:#}");
    let help = why["wouldHelp"].as_str().unwrap();
    assert!(help.contains("meridian resume job stopped"), "{help}");
    assert!(help.ends_with("; it would preempt workload `default/low`"), "{help}");
    f.resume(stopped);
    f.settle();
    f.settle();
    assert_eq!(f.phase(stopped), Some(Phase::Running), "{:#}", f.why(stopped));
    // a job that may not preempt has more before it
    let equal = f.submit_to("a", "equal", 4, None);
    f.stop(equal);
    f.settle();
    assert!(f.why(equal)["obstacles"].as_array().unwrap().len() > 1, "{:#}", f.why(equal));
}
