//! Scale-up: an elastic job requests more pods while it runs.

#[path = "scale_up/failures.rs"]
mod failures;

use super::elastic::elastic;
use super::*;
use meridian_manager_core::facts::lifecycle;
use meridian_manager_core::facts::outcome::WriteResult;
use meridian_manager_core::facts::record::WorkloadFact;

fn elastic_with_class(name: &str, pods: u32, class: &str) -> Value {
    let mut job = elastic(name, pods);
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
    job
}

impl Fleet {
    /// The number of a gang's pods in a cluster, including ended ones.
    fn pods_at(&self, cluster: &str, uid: Uid) -> u64 {
        let leg = self.world.state().workloads()[&uid]
            .legs()
            .values()
            .find(|leg| leg.cluster().as_str() == cluster);
        leg.and_then(|leg| leg.placement())
            .map_or(0, |placement| placement.pod_sets.iter().map(|set| set.pods()).sum())
    }

    fn summary(&self, uid: Uid) -> String {
        self.why(uid)["summary"].as_str().unwrap().to_owned()
    }

    fn scale_ups(&self) -> usize {
        self.records
            .iter()
            .filter(|(_, record)| {
                matches!(record, Record::Workload { fact: WorkloadFact::ScaleUpStarted { .. }, .. })
            })
            .count()
    }

    /// The numbers of accepted and refused scale-ups.
    fn scale_up_answers(&self) -> (usize, usize) {
        let count = |of: fn(&Record) -> bool| self.records.iter().filter(|(_, record)| of(record)).count();
        (
            count(|record| matches!(record, Record::Workload { fact: WorkloadFact::ScaledUp { .. }, .. })),
            count(|record| {
                matches!(record, Record::Workload { fact: WorkloadFact::ScaleUpRefused { .. }, .. })
            }),
        )
    }

    /// Replaces the nodes of a cluster: one node for each number of GPUs.
    pub(super) fn set_nodes(&mut self, cluster: &str, gpus: &[i64]) {
        let spec = |(at, gpus): (usize, &i64)| NodeSpec {
            name: format!("{cluster}-{}", at + 1),
            capacity: Amounts::from([(GPU.into(), *gpus)]),
            ..NodeSpec::default()
        };
        let nodes = gpus.iter().enumerate().map(spec).collect();
        let out = self
            .agents
            .get_mut(&ClusterName::new(cluster))
            .unwrap()
            .apply(now(self.now), AgentInput::Nodes { nodes, pools: Vec::new() });
        self.perform(&cluster.into(), out.into_effects());
    }
}

#[test]
fn a_stopped_local_queue_is_named_as_the_reason_for_no_scale_up() {
    let mut f = Fleet::regions();
    let (gang, _) = f.put(elastic("gang", 1));
    f.settle();
    let local = |stop: &str| {
        let mut queue = local_queue("lq", "cq");
        queue["spec"]["stopPolicy"] = json!(stop);
        queue
    };
    f.apply(vec![local("Hold")]);
    f.put(elastic("gang", 3));
    f.settle();
    assert!(
        f.summary(gang).contains("scale-up from 1 to 3 pods is pending: local queue `default/lq` is stopped"),
        "{}",
        f.summary(gang)
    );
    f.apply(vec![local("None")]);
    f.settle();
    assert_eq!((f.used(), f.scale_ups()), (3, 1), "{}", f.summary(gang));
}

/// A job runs at most as many pods as it has completions.
#[test]
fn a_parallelism_above_completions_counts_as_completions() {
    let mut f = Fleet::regions();
    let of = |parallelism: u32| {
        let mut job = elastic("gang", parallelism);
        job["spec"]["completions"] = json!(3);
        job
    };
    let (gang, _) = f.put(of(1));
    f.settle();
    for (parallelism, pods) in [(4, 3), (9, 3), (2, 2), (5, 3), (3, 3)] {
        assert_eq!(f.put(of(parallelism)), (gang, WriteResult::Configured));
        f.settle();
        f.settle();
        let home = f.cluster_of(gang).unwrap();
        assert_eq!(
            (f.used(), f.summary(gang).contains("is pending")),
            (pods, false),
            "{parallelism}: {:#}",
            f.why(gang)
        );
        assert_eq!(f.free_in(&home), 4 - pods);
    }
}

#[test]
fn a_running_gang_scales_up_in_place_without_a_restart() {
    let mut f = Fleet::regions();
    let (gang, _) = f.put(elastic("gang", 1));
    f.settle();
    let home = f.cluster_of(gang).unwrap();
    assert_eq!(f.put(elastic("gang", 3)), (gang, WriteResult::Configured));
    f.settle();
    let w = &f.world.state().workloads()[&gang];
    assert_eq!(
        (w.phase(), w.attempts(), f.cluster_of(gang)),
        (Phase::Running, 1, Some(home.clone())),
        "{:#}",
        f.why(gang)
    );
    assert_eq!((f.used(), f.free_in(&home), f.pods_at(&home, gang)), (3, 1, 3));
    assert_eq!((f.scale_ups(), f.scale_up_answers()), (1, (1, 0)));
    assert!(f.summary(gang).contains(": 3 pods running"), "{}", f.summary(gang));
    assert!(
        f.lifecycle_events
            .iter()
            .any(|event| event.event == lifecycle::Event::Replaced && &*event.owner.cluster_queue == "cq")
    );
    assert_eq!(f.put(elastic("gang", 3)).1, WriteResult::Unchanged);
    // Scale down and up again: pod indexes that were given up aren't used again.
    f.put(elastic("gang", 1));
    f.settle();
    assert_eq!((f.used(), f.free_in(&home)), (1, 3));
    f.put(elastic("gang", 4));
    f.settle();
    f.settle();
    assert_eq!((f.used(), f.free_in(&home), f.scale_ups()), (4, 0, 2), "{}", f.summary(gang));
    f.end(gang, EndResult::Succeeded);
    assert_eq!((f.used(), f.free_in(&home), f.phase(gang)), (0, 4, Some(Phase::Finished)));
}

#[test]
fn a_scale_up_waits_for_quota_while_the_gang_runs() {
    let mut f = Fleet::regions();
    f.quota(4);
    let (gang, _) = f.put(elastic("gang", 2));
    let other = f.submit("other", 2);
    f.settle();
    f.put(elastic("gang", 3));
    let behind = f.submit("behind", 1);
    f.settle();
    assert_eq!(
        (f.used(), f.phase(gang), f.phase(behind), f.scale_ups()),
        (4, Some(Phase::Running), Some(Phase::Pending), 0)
    );
    let why = f.summary(gang);
    assert!(
        why.contains(": 2 pods running")
            && why.contains(
                "scale-up from 2 to 3 pods is pending: needs 1 nvidia.com/gpu; the queue has 0 of 4"
            ),
        "{why}"
    );
    assert!(
        f.why(gang)["wouldHelp"]
            .as_str()
            .unwrap()
            .contains("wait until workloads that use 1 nvidia.com/gpu end"),
        "{:#}",
        f.why(gang)
    );
    // `behind` has waited longer, so it comes first, and then the scale-up.
    f.end(other, EndResult::Succeeded);
    f.settle();
    assert_eq!((f.used(), f.phase(behind), f.scale_up_answers()), (4, Some(Phase::Running), (1, 0)));
    assert_eq!(f.world.state().workloads()[&gang].attempts(), 1);
}

#[test]
fn a_scale_up_needs_quota_and_capacity() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let (gang, _) = f.put(elastic("gang", 3));
    let other = f.submit("other", 1);
    f.settle();
    f.put(elastic("gang", 5));
    f.settle();
    let (why, helps) = (f.summary(gang), f.why(gang)["wouldHelp"].as_str().unwrap().to_owned());
    assert!(
        why.contains("from 3 to 5 pods is pending: needs 5 nvidia.com/gpu, but the queue can use at most 4"),
        "{why}"
    );
    assert!(
        why.contains("; and then, in its cluster: 0 of 2 pods of `main` fit now")
            && helps.contains("; then: "),
        "{why}: {helps}"
    );
    // Neither quota nor capacity alone is enough.
    f.quota(8);
    f.settle();
    assert!(
        f.summary(gang).contains("from 3 to 5 pods is pending: 0 of 2 pods of `main` fit now"),
        "{}",
        f.summary(gang)
    );
    f.set_nodes("eu", &[4, 1]);
    f.settle();
    f.settle();
    assert_eq!(
        (f.scale_up_answers(), f.phase(other)),
        ((0, 0), Some(Phase::Running)),
        "one more GPU isn't enough"
    );
    f.set_nodes("eu", &[4, 2]);
    f.settle();
    f.settle();
    assert_eq!((f.used(), f.scale_up_answers()), (6, (1, 0)), "{}", f.summary(gang));
}

#[test]
fn no_end_is_suggested_if_the_cluster_is_too_small_for_a_scale_up() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let (gang, _) = f.put(elastic("gang", 4));
    f.settle();
    f.put(elastic("gang", 5));
    f.settle();
    let (why, helps) = (f.summary(gang), f.why(gang)["wouldHelp"].as_str().unwrap().to_owned());
    let reason = "from 4 to 5 pods is pending: needs 5 nvidia.com/gpu, \
                  but the queue can use at most 4 in flavor `any`";
    assert!(why.contains(reason), "{why}");
    assert!(why.contains("; and then, in its cluster: 0 of 1 pod of `main` fits"), "{why}");
    let help = "first: raise the queue's nominal quota of `nvidia.com/gpu` in flavor `any` to 5, or request \
                less; then: add or enlarge nodes there, or use fewer pods";
    assert_eq!(helps, help, "{why}");
    f.set_nodes("eu", &[4, 1]);
    f.quota(5);
    f.settle();
    f.settle();
    assert_eq!((f.used(), f.scale_up_answers()), (5, (1, 0)), "{}", f.summary(gang));
}

#[test]
fn no_end_is_suggested_if_the_rack_is_too_small_for_a_scale_up() {
    const RACK: &str = "rack";
    const HOST: &str = "kubernetes.io/hostname";
    let mut f = Fleet::new(EU);
    let host = |(name, rack): (&str, &str)| NodeSpec {
        name: name.into(),
        labels: [("pool", "a"), (RACK, rack), (HOST, name)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        capacity: Amounts::from([(GPU.into(), 4), ("pods".into(), 110)]),
        ..NodeSpec::default()
    };
    let nodes = [("h0", "r0"), ("h1", "r0"), ("h2", "r1"), ("h3", "r1")].map(host).into();
    f.agents
        .get_mut(&ClusterName::from("eu"))
        .unwrap()
        .apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    f.settle();
    f.apply(vec![
        kueue_object("Topology", "default", json!({"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]})),
        kueue_object(
            "ResourceFlavor",
            "any",
            json!({"nodeLabels": {"pool": "a"}, "topologyName": "default"}),
        ),
    ]);
    let near = |pods: u32| {
        let mut job = elastic("gang", pods);
        job["spec"]["template"]["metadata"] =
            json!({"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}});
        job
    };
    let (gang, _) = f.put(near(4));
    f.settle();
    f.put(near(10));
    f.settle();
    f.settle();
    let why = f.why(gang);
    assert!(f.summary(gang).contains("scale-up from 4 to 10 pods is pending: "), "{why:#}");
    let help = "add nodes to one `rack` there, or use fewer or smaller pods, or prefer the topology instead \
                of requiring it";
    assert_eq!(why["wouldHelp"], help, "{why:#}");
    // A size that fits in the rack is granted once the agent gets another offer.
    f.put(near(8));
    f.advance(Millis::secs(60));
    assert_eq!(f.used(), 8, "{}", f.summary(gang));
}

#[test]
fn a_scale_up_uses_only_the_cluster_where_the_gang_runs() {
    let mut f = Fleet::regions();
    let (gang, _) = f.put(elastic("gang", 3));
    f.settle();
    let home = f.cluster_of(gang).unwrap();
    f.put(elastic("gang", 6));
    f.settle();
    assert_eq!((f.used(), f.scale_ups()), (3, 0), "other clusters have capacity");
    assert!(
        f.summary(gang).contains("scale-up from 3 to 6 pods is pending: 1 of 3 pods of `main` fit now"),
        "{}",
        f.summary(gang)
    );
    // A scale-up is granted in full or not at all. It is evaluated again when there is capacity.
    f.set_nodes(&home, &[4, 2]);
    f.settle();
    f.settle();
    assert_eq!(
        (f.used(), f.free_in(&home), f.scale_up_answers(), f.cluster_of(gang)),
        (6, 0, (1, 0), Some(home))
    );
}

#[test]
fn a_refused_scale_up_is_uncharged_and_tried_again() {
    let mut f = Fleet::new(EU);
    f.set_nodes("eu", &[2, 2]);
    let (gang, _) = f.put(elastic("gang", 2));
    f.settle();
    // The cluster loses a node before its agent gets the command, and the manager doesn't know that.
    f.disconnected = vec!["eu".into()];
    f.put(elastic("gang", 4));
    assert_eq!((f.used(), f.scale_ups()), (4, 1));
    assert!(
        f.summary(gang).contains(": 2 pods running") && f.summary(gang).contains("scaling up to 4 pods"),
        "{}",
        f.summary(gang)
    );
    f.set_nodes("eu", &[2]);
    f.disconnected.clear();
    f.exchange();
    f.exchange();
    f.input(Input::Turn);
    assert_eq!((f.used(), f.scale_up_answers(), f.phase(gang)), (2, (0, 1), Some(Phase::Running)));
    assert!(f.summary(gang).contains("scale-up from 2 to 4 pods is pending"), "{}", f.summary(gang));
    f.set_nodes("eu", &[2, 3]);
    f.advance(Millis::secs(12));
    assert_eq!((f.used(), f.scale_up_answers(), f.free_in("eu"), f.pods_at("eu", gang)), (4, (1, 1), 1, 4));
    assert_eq!(f.world.state().workloads()[&gang].attempts(), 1);
}

#[test]
fn a_scale_up_preempts_others_but_never_its_own_gang() {
    let mut f = Fleet::new(EU);
    let class = |name: &str, value: i64| priority_class(name, value);
    let queue =
        cluster_queue("cq", 4, &json!({"preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"}}));
    f.apply(vec![class("high", 10), class("low", 1), queue]);
    let (low, _) = f.put(elastic_with_class("low", 2, "low"));
    let (high, _) = f.put(elastic_with_class("high", 2, "high"));
    f.settle();
    f.put(elastic_with_class("high", 4, "high"));
    f.settle();
    f.settle();
    assert_eq!(
        (f.phase(low), f.phase(high), f.used(), f.scale_up_answers()),
        (Some(Phase::Pending), Some(Phase::Running), 4, (1, 0)),
        "{}",
        f.summary(high)
    );
    assert_eq!(f.world.state().workloads()[&high].attempts(), 1);
    // No workload is left that it may preempt.
    f.put(elastic_with_class("high", 5, "high"));
    f.settle();
    assert_eq!((f.phase(high), f.used()), (Some(Phase::Running), 4));
    assert!(f.summary(high).contains("scale-up from 4 to 5 pods is pending"), "{}", f.summary(high));
}

#[test]
fn a_scale_up_needs_capacity_in_the_flavor_of_the_gang() {
    let mut f = Fleet::new(EU);
    let node = |name: &str| NodeSpec {
        name: name.into(),
        labels: [("pool".to_owned(), name.to_owned())].into(),
        capacity: Amounts::from([(GPU.into(), 4)]),
        ..NodeSpec::default()
    };
    let nodes = vec![node("old"), node("new")];
    f.agents.values_mut().next().unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    let flavor = |name: &str| kueue_object("ResourceFlavor", name, json!({"nodeLabels": {"pool": name}}));
    let flavors = [flavor_quota("new", 8), flavor_quota("old", 8)];
    let groups = json!([{"coveredResources": [GPU], "flavors": flavors}]);
    let preemption = json!({"withinClusterQueue": "LowerPriority"});
    let queue = cluster_queue("cq", 0, &json!({"preemption": preemption, "resourceGroups": groups}));

    f.apply(vec![flavor("old"), flavor("new"), queue]);
    priority_classes(&mut f, 9);
    f.settle();
    let (low, _) = f.put(elastic_with_class("low", 2, "low"));
    f.settle();
    let (high, _) = f.put(elastic_with_class("high", 2, "high"));
    f.settle();
    assert_eq!(f.phases(&[low, high]), [Some(Phase::Running); 2]);
    // The node of its flavor is full, and it can't use the node of the other flavor.
    f.put(elastic_with_class("high", 4, "high"));
    for _ in 0..4 {
        f.settle();
    }
    let flavors = |uid: Uid| {
        f.world.state().workloads()[&uid]
            .flavors()
            .names()
            .iter()
            .map(ToString::to_string)
            .collect::<String>()
    };
    assert_eq!((f.pods_at("eu", high), flavors(high)), (4, "new".to_owned()), "{}", f.summary(high));
    assert_eq!((f.phase(low), flavors(low)), (Some(Phase::Running), "old".to_owned()), "{}", f.summary(low));
}

#[test]
fn the_last_requested_size_counts() {
    let mut f = Fleet::new(EU);
    f.quota(3);
    let (gang, _) = f.put(elastic("gang", 2));
    f.settle();
    f.put(elastic("gang", 4));
    f.settle();
    assert_eq!((f.used(), f.scale_ups()), (2, 0));
    // Back to the current size: no scale-up is pending.
    f.put(elastic("gang", 2));
    f.quota(4);
    f.settle();
    assert_eq!((f.used(), f.scale_ups()), (2, 0));
    assert!(!f.summary(gang).contains("scal"), "{}", f.summary(gang));
    // The scale-up is charged, and the agent doesn't know it yet. Its answer comes first, then the later size
    // applies.
    f.disconnected = vec!["eu".into()];
    f.put(elastic("gang", 4));
    assert_eq!((f.used(), f.scale_ups()), (4, 1));
    f.put(elastic("gang", 1));
    f.settle();
    assert_eq!(f.used(), 4, "the commanded scale-up stays charged");
    f.disconnected.clear();
    f.settle();
    f.settle();
    assert_eq!(
        (f.used(), f.free_in("eu"), f.phase(gang), f.scale_up_answers()),
        (1, 3, Some(Phase::Running), (1, 0))
    );
    // Scale down, and up again at once: first the surplus pods end.
    f.put(elastic("gang", 4));
    f.settle();
    f.hold_stops = true;
    f.put(elastic("gang", 2));
    f.put(elastic("gang", 3));
    f.settle();
    let before = f.scale_ups();
    assert!(
        f.summary(gang).contains("scale-up from 2 to 3 pods is pending: its surplus pods have to end first"),
        "{}",
        f.summary(gang)
    );
    let fence = f.agents[&ClusterName::new("eu")].runs().next().unwrap().1;
    let places = (1..9).map(|index| ("main".to_owned(), index)).filter(|(_, index)| *index != 4).collect();
    let out = f
        .agents
        .get_mut(&ClusterName::new("eu"))
        .unwrap()
        .apply(now(f.now), AgentInput::Runner(RunnerEvent::Reclaimable { uid: gang, fence, places }));
    f.perform(&ClusterName::new("eu"), out.into_effects());
    f.settle();
    f.settle();
    assert_eq!((f.used(), f.scale_ups() - before), (3, 1), "{}", f.summary(gang));
}
