//! The queue position that `why` reports, and the workload that comes first.

use super::*;
use meridian_manager_core::facts::record::WorkloadFact;
use meridian_manager_core::facts::submission::Submission;
use meridian_queueing::pending::COUNTED_MAX;
use meridian_queueing::settings::FairSharing;

/// Two local queues of one cluster queue with four GPUs. `a` has some past usage, and a workload of `b` uses
/// all GPUs.
fn usage_in_a(strategy: &str) -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    f.world.config_mut().admission_fair_sharing = Some("half-life=10m,sampling=5s".parse().unwrap());
    let mode = json!({
        "queueingStrategy": strategy,
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
    });
    f.apply(vec![cluster_queue("shared", 4, &mode), local_queue("a", "shared"), local_queue("b", "shared")]);
    let old = f.submit_to("a", "old", 4, None);
    f.advance(Millis::mins(2));
    f.end(old, EndResult::Succeeded);
    let running = f.submit_to("b", "runs", 4, None);
    f.settle();
    assert_eq!(f.phase(running), Some(Phase::Running));
    (f, running)
}

#[test]
fn with_usage_based_ordering_position_and_obstacle_follow_usage() {
    for strategy in ["BestEffortFIFO", "StrictFIFO"] {
        let (mut f, running) = usage_in_a(strategy);
        // The long run in `a` weighs more than the admission in `b`.
        let [first, second, third] = [("a", "first"), ("a", "second"), ("b", "third")]
            .map(|(queue, name)| f.submit_to(queue, name, 4, None));
        f.settle();
        let weighted_usage = |f: &Fleet, queue: &str| {
            meridian_views::metrics::local_queue_rows(&f.world, 10)
                .iter()
                .find(|row| &*row.name == queue)
                .unwrap()
                .weighted_use
                .unwrap()
        };
        assert!(
            weighted_usage(&f, "b") > weighted_usage(&f, "a") || f.positions(third) == ((1, 1), Some((1, 3))),
            "{:#}",
            f.why(third)
        );
        // The running workload of `b` adds usage until `b` has more than `a`.
        while weighted_usage(&f, "b") < weighted_usage(&f, "a") {
            f.advance(Millis::secs(5));
        }
        assert_eq!(
            (f.positions(first), f.positions(second), f.positions(third)),
            (((1, 2), Some((1, 3))), ((2, 2), Some((2, 3))), ((1, 1), Some((3, 3))))
        );
        let (summary, _) = f.summary_and_help(third);
        let (a, b) = (weighted_usage(&f, "a"), weighted_usage(&f, "b"));
        let (usage_b, usage_a) = if format!("{a:.2}") == format!("{b:.2}") {
            (format!("{b:.9}"), format!("{a:.9}"))
        } else {
            (format!("{b:.2}"), format!("{a:.2}"))
        };
        let order = format!(
            "local queue `default/b` has used more ({usage_b}) than `default/a` ({usage_a}), \
             so workload `default/first` comes first"
        );
        assert!(summary.contains(&order), "{summary}");
        if strategy == "StrictFIFO" {
            let head = "cluster queue `shared` is StrictFIFO, and its head, workload `default/first`, \
                        can't start: needs 4";
            assert!(summary.contains(head), "{summary}");
        }
        f.end(running, EndResult::Succeeded);
        assert_eq!(
            f.phases(&[first, second, third]),
            [Some(Phase::Running), Some(Phase::Pending), Some(Phase::Pending)]
        );
        // The admission of `first` costs `a` usage. The reported order is the order of admission.
        let order = (f.positions(second), f.positions(third));
        f.end(first, EndResult::Succeeded);
        let next = if order.0.1 == Some((1, 2)) { second } else { third };
        assert_eq!(f.phase(next), Some(Phase::Running), "{strategy}: {order:?}");
    }
}

/// Two queues without own quota in a cohort with quota.
fn cohort_of_two_queues(fair: bool) -> Fleet {
    let mut f = Fleet::regions();
    f.world.config_mut().fair_sharing = fair.then(FairSharing::default);
    let member = json!({"cohortName": "all"});
    f.apply(vec![
        cluster_queue("team-a", 0, &member),
        cluster_queue("team-b", 0, &member),
        local_queue("a", "team-a"),
        local_queue("b", "team-b"),
    ]);
    f.apply(vec![kueue_object("Cohort", "all", json!({"resourceGroups": gpu_quota(8)}))]);
    f
}

#[test]
fn with_fair_sharing_the_obstacle_names_the_shares() {
    let mut f = cohort_of_two_queues(true);
    let in_a: Vec<Uid> = (0..3).map(|i| f.submit_to("a", &format!("a-{i}"), 2, None)).collect();
    let in_b = f.submit_to("b", "b-0", 2, None);
    f.settle();
    assert_eq!(f.phases(&in_a), [Some(Phase::Running); 3]);
    let (older, newer) = (f.submit_to("a", "older", 2, None), f.submit_to("b", "newer", 2, None));
    f.settle();
    let (summary, _) = f.summary_and_help(older);
    let order = "; workload `default/newer` of cluster queue `team-b` comes first: \
                 if it starts, the share on the side of `team-b` is 0.50; \
                 if this workload starts, the share on the side of `team-a` is 1.00";
    assert!(summary.ends_with(order), "{summary}");
    assert!(!f.summary_and_help(newer).0.contains("comes first"), "{}", f.summary_and_help(newer).0);
    f.end(in_a[0], EndResult::Succeeded);
    assert_eq!(
        f.phases(&[older, newer, in_b]),
        [Some(Phase::Pending), Some(Phase::Running), Some(Phase::Running)]
    );
    // Without fair sharing the older workload is first, and the reason says that.
    let mut f = cohort_of_two_queues(false);
    let running = [f.submit_to("a", "a-0", 4, None), f.submit_to("b", "b-0", 4, None)];
    f.settle();
    let (older, newer) = (f.submit_to("a", "older", 2, None), f.submit_to("b", "newer", 2, None));
    f.settle();
    assert!(
        f.summary_and_help(newer)
            .0
            .ends_with("; workload `default/older` of cluster queue `team-a` comes first: it is older"),
        "{}",
        f.summary_and_help(newer).0
    );
    f.end(running[0], EndResult::Succeeded);
    assert_eq!(f.phase(older), Some(Phase::Running));
}

#[test]
fn in_strict_order_the_blocking_head_is_named() {
    let mut f = Fleet::regions();
    f.apply(vec![cluster_queue("cq", 3, &json!({"queueingStrategy": "StrictFIFO"}))]);
    let (huge, small, smaller) = (f.submit("huge", 4), f.submit("small", 3), f.submit("smaller", 1));
    f.settle();
    assert_eq!((f.positions(huge).0, f.positions(small).0, f.positions(smaller).0), ((1, 3), (2, 3), (3, 3)));
    let head = "pending: cluster queue `cq` is StrictFIFO, and its head, workload `default/huge`, can't \
                start: needs 4 nvidia.com/gpu, but the queue can use at most 3 in flavor `any`, even with \
                borrowing";
    let help = "wait until workload `default/huge` starts, or delete it; \
                delete workload `default/huge` (enough by itself); \
                or submit the job again with a priority above 0 (enough by itself)";
    assert_eq!(f.summary_and_help(small), (head.to_owned(), help.to_owned()));
    let help = "wait until workload `default/huge` starts, or delete it; 1 more workload comes before it; \
                submit the job again with a priority above 0 (enough by itself)";
    assert_eq!(f.summary_and_help(smaller), (head.to_owned(), help.to_owned()));
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "huge"),
        uid: None,
        force: false,
    }]);
    f.settle();
    assert_eq!(f.phases(&[small, smaller]), [Some(Phase::Running), Some(Phase::Pending)]);
}

/// Among equivalent workloads, the first and the last position are known without counting. The others are
/// counted up to a limit, and estimated above it.
#[test]
fn a_position_among_too_many_workloads_is_an_estimate() {
    let mut f = Fleet::new(EU);
    let apply_queue = |f: &mut Fleet, stop_policy: &str| {
        f.apply(vec![
            cluster_queue("small", 1, &json!({"stopPolicy": stop_policy})),
            local_queue("a", "small"),
        ])
    };
    apply_queue(&mut f, "None");
    let first = f.submit_to("a", "w", 2, None);
    let submission = f.records.iter().find_map(|(_, record)| match record {
        Record::Workload { uid, fact: WorkloadFact::Submitted(submission) } if *uid == first => {
            Some(submission.clone())
        }
        _ => None,
    });
    let template = submission.expect("it was submitted");
    let uid = |at: usize| Uid(1_000_000 + u128::try_from(at).unwrap());
    let submit = |f: &mut Fleet, at: usize| {
        let submission = Submission { name: Arc::from(format!("w-{at}")), ..(*template).clone() };
        f.world.absorb(
            f.world.state().last().next(),
            &Record::Workload { uid: uid(at), fact: WorkloadFact::Submitted(Box::new(submission)) },
        );
    };
    let place = |f: &Fleet, of: Uid| {
        let position = f.why(of)["position"].clone();
        (
            position["place"].as_u64().unwrap(),
            position["of"].as_u64().unwrap(),
            position.get("about").is_some(),
        )
    };
    let mut next = 2;
    // One workload was evaluated and is parked by itself. The others are counted together.
    for last in [COUNTED_MAX, COUNTED_MAX + 2] {
        (next..=last).for_each(|at| submit(&mut f, at));
        next = last + 1;
        let n = u64::try_from(last).unwrap();
        let counted = last == COUNTED_MAX;
        for stop_policy in ["Hold", "None"] {
            apply_queue(&mut f, stop_policy);
            assert_eq!(
                (place(&f, first), place(&f, uid(last))),
                ((1, n, false), (n, n, false)),
                "{stop_policy}"
            );
            assert_eq!(
                place(&f, uid(8)),
                if counted { (8, n, false) } else { (n / 2 + 1, n, true) },
                "{stop_policy}"
            );
        }
    }
}

#[test]
fn a_queue_on_hold_keeps_its_order_and_names_the_stop_policy() {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_queue("cq", 4, &json!({"stopPolicy": "Hold"}))]);
    let [first, second] = ["first", "second"].map(|name| f.submit(name, 4));
    f.settle();
    assert_eq!((f.positions(first).0, f.positions(second).0), ((1, 2), (2, 2)));
    let mut stopped = local_queue("lq", "cq");
    stopped["spec"]["stopPolicy"] = json!("Hold");
    assert_eq!(
        f.summary_and_help(first),
        (
            "pending: cluster queue `cq` is stopped".to_owned(),
            "set the stopPolicy of cluster queue `cq` to `None`".to_owned()
        )
    );
    f.apply(vec![stopped]);
    let both = "set the stopPolicy of local queue `default/lq` and of cluster queue `cq` to `None`";
    assert_eq!(
        f.summary_and_help(first),
        ("pending: local queue `default/lq` and cluster queue `cq` are stopped".to_owned(), both.to_owned())
    );
    f.apply(vec![cluster_queue("cq", 4, &json!({})), local_queue("lq", "cq")]);
    f.settle();
    assert_eq!(f.phases(&[first, second]), [Some(Phase::Running), Some(Phase::Pending)]);
}

#[test]
fn workloads_behind_a_starved_head_name_it() {
    let mut f = Fleet::new(EU);
    f.world.config_mut().starvation_guard = Some(Millis::secs(30));
    let [a, b] = ["a", "b"].map(|name| f.submit(name, 2));
    f.settle();
    let gang = f.submit("gang", 4);
    f.advance(Millis::secs(62));
    let small = f.submit("small", 2);
    f.end(a, EndResult::Succeeded);
    assert_eq!((f.positions(gang).0, f.positions(small).0), ((1, 2), (2, 2)));
    let (summary, help) = f.summary_and_help(small);
    assert_eq!(
        summary,
        "pending: workload `default/gang` at the head of cluster queue `cq` has waited too long, so nothing \
         starts before it"
    );
    assert_eq!(
        help,
        "wait until workload `default/gang` starts, or delete it; delete workload `default/gang` (enough by \
         itself)"
    );
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "gang"),
        uid: None,
        force: false,
    }]);
    f.settle();
    assert_eq!(f.phases(&[small, b]), [Some(Phase::Running); 2]);
}

#[test]
fn a_strict_queue_on_hold_names_the_head_that_will_block_it() {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_queue("cq", 3, &json!({"stopPolicy": "Hold", "queueingStrategy": "StrictFIFO"}))]);
    let (huge, uid) = (f.submit("huge", 4), f.submit("job", 2));
    f.settle();
    let (summary, help) = f.summary_and_help(uid);
    let then = "; and then: cluster queue `cq` is StrictFIFO, and workload `default/huge`, \
                which comes first there, can't start: needs 4 ";
    assert!(summary.contains(then), "{summary}");
    assert_eq!(
        help,
        "no single change is known to start it; first: set the stopPolicy of cluster queue `cq` to `None`; \
         then: wait until workload `default/huge` starts, or delete it"
    );
    f.apply(vec![cluster_queue("cq", 3, &json!({"queueingStrategy": "StrictFIFO"}))]);
    f.settle();
    assert_eq!(f.phases(&[huge, uid]), [Some(Phase::Pending); 2]);
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "huge"),
        uid: None,
        force: false,
    }]);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
}

#[test]
fn a_workload_behind_a_head_doesnt_report_a_missing_cluster() {
    let mut f = Fleet::new(EU);
    let queue = cluster_queue("cq", 4, &json!({"queueingStrategy": "StrictFIFO"}));
    f.apply(vec![queue]);
    f.submit("small-1", 1);
    f.settle();
    f.submit("large", 4);
    let behind = f.submit("small-2", 1);
    f.settle();
    assert_eq!(f.phase(behind), Some(Phase::Pending));
    let key = Key::namespaced(Kind::Job, "default", "small-2");
    let rendered = f.object_at(&key).unwrap();
    let message = rendered["status"]["meridian"]["pendingReason"].as_str().unwrap();
    assert!(!message.contains("no cluster"), "{message}");
    assert!(f.why(behind)["summary"].as_str().unwrap().contains("large"), "{:#}", f.why(behind));
}
