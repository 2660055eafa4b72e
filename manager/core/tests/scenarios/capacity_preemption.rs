//! Preemption for capacity: quota is free but the clusters are full, and the preemption policies for quota
//! decide which workloads may be preempted.

use super::*;
use meridian_manager_core::facts::record::WorkloadFact;

const LOWER: &str = "LowerPriority";

impl Fleet {
    /// Submits jobs of one pod with one GPU that run in a region.
    fn fill(&mut self, queue: &str, region: &str, jobs: usize) -> Vec<Uid> {
        let submit = |i| {
            let uid = self.bound(queue, &format!("{queue}-{region}-{i}"), 1, "low", region);
            self.settle();
            uid
        };
        let all: Vec<Uid> = (0..jobs).map(submit).collect();
        assert!(all.iter().all(|uid| self.phase(*uid) == Some(Phase::Running)), "{:?}", self.phases(&all));
        all
    }

    /// A job that may run in one region only.
    fn bound(&mut self, queue: &str, name: &str, pods: u32, class: &str, region: &str) -> Uid {
        let labels = json!({"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": class});
        let mut job = job("default", name, pods, &labels, "");
        job["metadata"]["annotations"] = json!({"meridian.dev/region": region});
        match self.apply(vec![job]) {
            Reply::Written(written) => written[0].uid,
            other => panic!("not submitted: {other:?}"),
        }
    }

    fn running_of(&self, uids: &[Uid]) -> usize {
        uids.iter().filter(|uid| self.phase(**uid) == Some(Phase::Running)).count()
    }
}

#[test]
fn a_higher_priority_preempts_the_newest_in_a_full_region() {
    let mut f = Fleet::regions();
    teams(&mut f, [12, 0], &json!({"withinClusterQueue": LOWER}));
    priority_classes(&mut f, 9);
    let there = f.fill("a", "europe-west4", 4);
    let elsewhere = f.fill("a", "us-east4", 1);
    let high = f.bound("a", "high", 2, "high", "europe-west4");
    // No more victims than needed, all in the only allowed cluster, the newest first.
    assert_eq!(
        f.phases(&there),
        [Phase::Running, Phase::Running, Phase::Stopping, Phase::Stopping].map(Some)
    );
    let reason = "waiting for workloads `default/a-europe-west4-2` and `default/a-europe-west4-3` to stop";
    assert_eq!(f.why(high)["summary"], format!("pending: preempting 2 workloads; {reason}"));
    let stopping = "stopping in cluster `eu`: preempted by workload `default/high` (priority 9); \
                    its capacity and quota stay reserved until its agent confirms the stop";
    assert_eq!(f.why(there[3])["summary"], stopping);
    f.settle();
    assert_eq!((f.cluster_of(high).as_deref(), f.running_of(&elsewhere)), (Some("eu"), 1));
    // Other regions have capacity, but the victims may run in this one only.
    f.advance(Millis::secs(30));
    assert_eq!((f.running_of(&there), f.phase(high)), (2, Some(Phase::Running)));
    let summary = f.why(there[3])["summary"].as_str().unwrap().to_owned();
    assert!(
        summary.starts_with("pending: ")
            && summary.ends_with("; it was preempted by workload `default/high` (priority 9)"),
        "{summary}"
    );
    f.end(high, EndResult::Succeeded);
    f.settle();
    assert_eq!(f.running_of(&there), 4);
}

#[test]
fn nothing_is_preempted_without_need_and_permission() {
    for policy in ["Never", LOWER] {
        let mut f = Fleet::regions();
        teams(&mut f, [12, 0], &json!({"withinClusterQueue": policy}));
        priority_classes(&mut f, 9);
        let there = f.fill("a", "europe-west4", 4);
        // A gang too large for any cluster, one without a higher priority, and one that fits elsewhere.
        let (huge, same) =
            (f.bound("a", "huge", 5, "high", "europe-west4"), f.bound("a", "same", 1, "low", "europe-west4"));
        let free = f.submit_to("a", "free", 4, Some("high"));
        f.settle();
        assert_eq!(
            f.phases(&[huge, same, free]),
            [Phase::Pending, Phase::Pending, Phase::Running].map(Some),
            "{policy}"
        );
        if policy == "Never" {
            let one = f.bound("a", "one", 1, "high", "europe-west4");
            f.settle();
            let why = f.why(one)["summary"].as_str().unwrap().to_owned();
            let forbidden = "workload `default/a-europe-west4-0` (priority 1) would be enough, \
                             but `withinClusterQueue: Never` forbids it";
            assert!(why.contains(forbidden), "{why}");
        }
        assert_eq!(f.running_of(&there), 4, "{policy}");
    }
}

#[test]
fn only_borrowed_capacity_is_reclaimed() {
    let mut f = Fleet::regions();
    teams(&mut f, [6, 2], &json!({"reclaimWithinCohort": "Any"}));
    priority_classes(&mut f, 9);
    let owned = f.fill("b", "us-east4", 2);
    let early = f.bound("a", "early", 4, "low", "us-east4");
    f.settle();
    assert_eq!((f.phase(early), f.running_of(&owned)), (Some(Phase::Pending), 2), "`b` borrows nothing yet");
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "early"),
        uid: None,
        force: false,
    }]);
    let borrowed = f.fill("b", "asia-southeast1", 2);
    // Two of the four jobs borrow quota. Only a victim in the region frees capacity there.
    let mine = f.bound("a", "mine", 3, "low", "us-east4");
    f.settle();
    f.settle();
    assert_eq!(f.phase(mine), Some(Phase::Running), "{:#}", f.why(mine));
    assert_eq!((f.running_of(&owned), f.running_of(&borrowed)), (1, 2));
}

#[test]
fn capacity_is_reclaimed_as_soon_as_another_queue_borrows() {
    let mut f = Fleet::regions();
    teams(&mut f, [6, 2], &json!({"reclaimWithinCohort": "Any"}));
    priority_classes(&mut f, 9);
    let owned = f.fill("b", "us-east4", 2);
    let mine = f.bound("a", "mine", 4, "low", "us-east4");
    f.settle();
    let borrowed = f.bound("b", "borrowed-0", 1, "low", "asia-southeast1");
    f.settle();
    assert_eq!(
        (f.phase(mine), f.running_of(&owned), f.phase(borrowed)),
        (Some(Phase::Pending), 2, Some(Phase::Running)),
        "one victim is not enough, and the other job is within nominal quota"
    );
    // No capacity is freed, and no object changes.
    f.bound("b", "borrowed-1", 1, "low", "asia-southeast1");
    f.settle();
    f.settle();
    assert_eq!((f.phase(mine), f.running_of(&owned)), (Some(Phase::Running), 0), "{:#}", f.why(mine));
}

#[test]
fn preemption_for_all_pods_comes_before_partial_admission() {
    let mut f = Fleet::new(EU);
    teams(&mut f, [12, 0], &json!({"withinClusterQueue": LOWER}));
    priority_classes(&mut f, 9);
    let low = f.fill("a", "europe-west4", 3);
    let mut gang = job(
        "default",
        "gang",
        4,
        &json!({"kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/priority-class": "high"}),
        "",
    );
    gang["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "1"});
    f.apply(vec![gang]);
    f.settle();
    // The same order as for quota.
    assert_eq!(f.running_of(&low), 0);
}

#[test]
fn preemption_frees_one_whole_node_and_stops_nothing_else() {
    let mut f = Fleet::new(EU);
    let node = |at: u32| NodeSpec {
        name: format!("n{at}"),
        capacity: Amounts::from([(GPU.into(), 4)]),
        ..NodeSpec::default()
    };
    let nodes = (0..4).map(node).collect();
    f.agents.values_mut().next().unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    f.quota(100);
    teams(&mut f, [100, 0], &json!({"withinClusterQueue": LOWER}));
    priority_classes(&mut f, 9);
    f.settle();
    let mut all = f.fill("a", "europe-west4", 16);
    // The newest jobs are on different nodes.
    for at in [12, 8, 4, 0] {
        f.end(all[at], EndResult::Succeeded);
        all[at] = f.bound("a", &format!("late-{at}"), 1, "low", "europe-west4");
        f.settle();
    }
    assert_eq!(f.running_of(&all), 16);
    let mut whole = job(
        "default",
        "whole",
        1,
        &json!({"kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/priority-class": "high"}),
        "",
    );
    whole["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {GPU: 4}, "limits": {GPU: 4}});
    f.apply(vec![whole]);
    let victims: Vec<Uid> =
        all.iter().copied().filter(|uid| f.phase(*uid) == Some(Phase::Stopping)).collect();
    let node_of = |uid: &Uid| {
        f.world.state().workloads()[uid].legs().values().next().unwrap().placement().unwrap().pod_sets[0]
            .domains[0]
            .values
            .clone()
    };
    let nodes: std::collections::BTreeSet<Vec<String>> = victims.iter().map(node_of).collect();
    assert_eq!((victims.len(), nodes.len()), (4, 1), "{nodes:?}");
    f.settle();
    assert_eq!(f.running_of(&all), 12);
}

#[test]
fn nothing_is_preempted_before_a_new_cluster_reports_its_nodes() {
    let mut f = Fleet::without_agents(&[("asia", "asia-southeast1", "SG"), ("eu", "europe-west4", "EU")]);
    f.add_agent("asia", 1_000);
    f.settle();
    teams(&mut f, [12, 0], &json!({"withinClusterQueue": LOWER}));
    priority_classes(&mut f, 9);
    let low = f.fill("a", "asia-southeast1", 4);
    // The new agent has a session. Its next request contains its inventory.
    f.add_agent("eu", 1_001);
    f.exchange();
    let high = f.submit_to("a", "high", 2, Some("high"));
    f.settle();
    assert_eq!((f.running_of(&low), f.cluster_of(high).as_deref()), (4, Some("eu")));
}

#[test]
fn a_changed_pool_is_reported_without_a_changed_node() {
    let mut f = Fleet::new(EU);
    let nodes = vec![NodeSpec {
        name: "n".into(),
        capacity: Amounts::from([(GPU.into(), 4)]),
        ..NodeSpec::default()
    }];
    let set_pool = |f: &mut Fleet, can_grow: bool| {
        let gpus = || Amounts::from([(GPU.to_owned(), 8)]);
        let pool = meridian_shared::packing::Block {
            nodes: 2,
            free: gpus(),
            capacity: gpus(),
            ..Default::default()
        };
        let pools = if can_grow { vec![pool] } else { Vec::new() };
        let out = f
            .agents
            .values_mut()
            .next()
            .unwrap()
            .apply(now(f.now), AgentInput::Nodes { nodes: nodes.clone(), pools });
        f.perform(&ClusterName::new("eu"), out.into_effects());
        f.settle();
    };
    set_pool(&mut f, false);
    f.quota(100);
    let large = f.submit("large", 8);
    f.settle();
    let verdict = |f: &Fleet| f.why(large)["clusters"][0]["verdict"].clone();
    let before = verdict(&f);
    set_pool(&mut f, true);
    f.advance(Millis::secs(10));
    assert_ne!(verdict(&f), before, "the pool can grow: {:#}", f.why(large));
    set_pool(&mut f, false);
    f.advance(Millis::secs(30));
    let after = f.submit("after", 8);
    f.settle();
    assert_eq!(f.why(after)["clusters"][0]["verdict"], before, "the pool can't grow any more");
}

#[test]
fn victims_are_found_next_to_a_gang_with_ended_pods() {
    // The agent doesn't report which pods ended. With four GPUs per node all of them are on one known node.
    for gpus in [1, 4] {
        let mut f = Fleet::new(EU);
        let node = |i| NodeSpec {
            name: format!("n{i}"),
            capacity: Amounts::from([(GPU.into(), gpus)]),
            ..NodeSpec::default()
        };
        let nodes = (0..12 / gpus).map(node).collect();
        f.agents
            .values_mut()
            .next()
            .unwrap()
            .apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
        teams(&mut f, [12, 0], &json!({"withinClusterQueue": LOWER}));
        priority_classes(&mut f, 9);
        let gang = f.submit_to("a", "gang", 4, Some("high"));
        f.settle();
        let low = f.fill("a", "europe-west4", 8);
        f.succeed(gang, 1);
        let high = f.submit_to("a", "first", 3, Some("high"));
        f.settle();
        f.settle();
        assert_eq!(
            (f.phase(high), f.running_of(&low), f.phase(gang)),
            (Some(Phase::Running), 6, Some(Phase::Running)),
            "{gpus}: {:#}",
            f.why(high)
        );
    }
}

/// The agent doesn't report on which nodes of the gang pods have ended.
#[test]
fn a_gang_with_ended_pods_can_be_preempted() {
    let mut f = Fleet::new(EU);
    let node = |i| NodeSpec {
        name: format!("n{i}"),
        capacity: Amounts::from([(GPU.into(), 4)]),
        ..NodeSpec::default()
    };
    f.agents
        .values_mut()
        .next()
        .unwrap()
        .apply(now(f.now), AgentInput::Nodes { nodes: (0..3).map(node).collect(), pools: Vec::new() });
    teams(&mut f, [40, 0], &json!({"withinClusterQueue": LOWER}));
    priority_classes(&mut f, 9);
    let low = [f.submit_to("a", "six", 6, Some("low")), f.submit_to("a", "five", 5, Some("low"))];
    f.settle();
    f.succeed(low[0], 1);
    let high = f.submit_to("a", "high", 8, Some("high"));
    f.settle();
    f.settle();
    assert_eq!(f.phase(high), Some(Phase::Running), "{:#}", f.why(high));
}

/// All four jobs start in the same turn, so their start times are equal. A victim doesn't preempt the others.
#[test]
fn among_jobs_started_at_once_the_last_submitted_are_preempted() {
    for names in [["a", "b", "c", "d"], ["d", "c", "b", "a"]] {
        let mut f = Fleet::new(EU);
        teams(
            &mut f,
            [2, 2],
            &json!({"withinClusterQueue": "LowerOrNewerEqualPriority", "reclaimWithinCohort": "Any"}),
        );
        let jobs = names.map(|name| job("default", name, 1, &json!({"kueue.x-k8s.io/queue-name": "a"}), ""));
        let Reply::Written(written) = f.apply(jobs.to_vec()) else { panic!("not submitted") };
        let uids: Vec<Uid> = written.iter().map(|w| w.uid).collect();
        f.settle();
        assert_eq!(f.running_of(&uids), 4);
        let mine = f.submit_to("b", "mine", 2, None);
        let stopping = |f: &Fleet| {
            uids.iter().filter(|uid| f.phase(**uid) == Some(Phase::Stopping)).copied().collect::<Vec<_>>()
        };
        assert_eq!(stopping(&f), uids[2..]);
        for _ in 0..5 {
            f.settle();
        }
        assert_eq!((f.phase(mine), f.running_of(&uids[..2])), (Some(Phase::Running), 2));
        let stops = f
            .records
            .iter()
            .filter(|(_, record)| {
                matches!(record, Record::Workload { fact: WorkloadFact::StopOrdered { .. }, .. })
            })
            .count();
        assert_eq!(stops, 2, "no other workload is stopped");
    }
}

#[test]
fn a_victim_that_is_already_stopping_is_named_as_such() {
    let mut f = Fleet::new(EU);
    teams(&mut f, [4, 2], &json!({"withinClusterQueue": LOWER}));
    priority_classes(&mut f, 9);
    let [_, other] =
        [("a", "low"), ("b", "high")].map(|(queue, class)| f.submit_to(queue, class, 2, Some(class)));
    f.settle();
    f.world.config_mut().starvation_guard = Some(Millis::secs(30));
    let first = f.submit_to("a", "first", 4, Some("high"));
    f.advance(Millis::secs(62));
    f.hold_stops = true;
    f.end(other, EndResult::Succeeded);
    let summary = f.why(first)["summary"].as_str().unwrap().to_owned();
    assert!(
        summary.contains(
            "preempting workload `default/low` (priority 1) would be enough, but it is already stopping; \
             waiting for workload `default/low` to stop"
        ),
        "{summary}"
    );
}
