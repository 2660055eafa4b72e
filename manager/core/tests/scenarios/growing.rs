//! Elastic jobs that want more pods while they run.

use super::elastic::{EU, elastic};
use super::*;
use meridian_manager_core::facts::lifecycle;
use meridian_manager_core::facts::outcome::{RejectionReason, WriteResult};
use meridian_manager_core::facts::record::WorkloadFact;

fn prioritized(name: &str, pods: u32, class: &str) -> Value {
    let mut job = elastic(name, pods);
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
    job
}

impl Fleet {
    /// How many pods an agent has of each gang, those that have ended too.
    fn pods_at(&self, cluster: &str, uid: Uid) -> u64 {
        let leg =
            self.world.state.workloads()[&uid].legs().values().find(|leg| leg.cluster.as_str() == cluster);
        leg.and_then(|leg| leg.placement.as_ref())
            .map_or(0, |placement| placement.pod_sets.iter().map(|set| set.pods()).sum())
    }

    fn summary(&self, uid: Uid) -> String {
        self.why(uid)["summary"].as_str().unwrap().to_owned()
    }

    fn grows(&self) -> usize {
        self.records
            .iter()
            .filter(|(_, record)| {
                matches!(record, Record::Workload { fact: WorkloadFact::ScaleUpStarted { .. }, .. })
            })
            .count()
    }

    fn answers(&self) -> (usize, usize) {
        let count = |of: fn(&Record) -> bool| self.records.iter().filter(|(_, record)| of(record)).count();
        (
            count(|record| matches!(record, Record::Workload { fact: WorkloadFact::ScaledUp { .. }, .. })),
            count(|record| {
                matches!(record, Record::Workload { fact: WorkloadFact::ScaleUpRefused { .. }, .. })
            }),
        )
    }

    /// Another node's worth of room, or other room than before.
    fn nodes(&mut self, cluster: &str, gpus: &[i64]) {
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
        self.perform(&cluster.into(), out.effects);
    }
}

#[test]
fn a_gang_whose_local_queue_is_stopped_is_told_why_it_doesnt_grow() {
    let mut f = Fleet::regions();
    let (gang, _) = f.put(elastic("gang", 1));
    f.settle();
    let local = |stop: &str| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "lq", "namespace": "default"},
            "spec": {"clusterQueue": "cq", "stopPolicy": stop}})
    };
    f.apply(vec![local("Hold")]);
    f.put(elastic("gang", 3));
    f.settle();
    assert!(
        f.summary(gang).contains("it waits to grow from 1 to 3 pods: local queue `default/lq` is stopped"),
        "{}",
        f.summary(gang)
    );
    f.apply(vec![local("None")]);
    f.settle();
    assert_eq!((f.used(), f.grows()), (3, 1), "{}", f.summary(gang));
}

/// No more pods than completions: more are asked for in vain, and those that there can be start.
#[test]
fn a_parallelism_beyond_completions_is_that_of_all_of_them() {
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
        let home = f.at(gang).unwrap();
        assert_eq!(
            (f.used(), f.summary(gang).contains("waits to grow")),
            (pods, false),
            "{parallelism}: {:#}",
            f.why(gang)
        );
        assert_eq!(f.free_in(&home), 4 - pods);
    }
}

#[test]
fn a_gang_that_runs_grows_where_it_is_and_nothing_of_it_is_started_anew() {
    let mut f = Fleet::regions();
    let (gang, _) = f.put(elastic("gang", 1));
    f.settle();
    let home = f.at(gang).unwrap();
    assert_eq!(f.put(elastic("gang", 3)), (gang, WriteResult::Configured));
    f.settle();
    let w = &f.world.state.workloads()[&gang];
    assert_eq!(
        (w.phase(), w.attempts(), f.at(gang)),
        (Phase::Running, 1, Some(home.clone())),
        "{:#}",
        f.why(gang)
    );
    assert_eq!((f.used(), f.free_in(&home), f.pods_at(&home, gang)), (3, 1, 3));
    assert_eq!((f.grows(), f.answers()), (1, (1, 0)));
    assert!(f.summary(gang).contains(": its 3 pods run there"), "{}", f.summary(gang));
    assert!(
        f.lifecycle_events
            .iter()
            .any(|event| event.event == lifecycle::Event::Replaced && &*event.owner.cluster_queue == "cq")
    );
    assert_eq!(f.put(elastic("gang", 3)).1, WriteResult::Unchanged);
    // As small as it was, and larger again: places that were given up aren't taken again.
    f.put(elastic("gang", 1));
    f.settle();
    assert_eq!((f.used(), f.free_in(&home)), (1, 3));
    f.put(elastic("gang", 4));
    f.settle();
    f.settle();
    assert_eq!((f.used(), f.free_in(&home), f.grows()), (4, 0, 2), "{}", f.summary(gang));
    f.end(gang, EndResult::Succeeded);
    assert_eq!((f.used(), f.free_in(&home), f.phase(gang)), (0, 4, Some(Phase::Finished)));
}

#[test]
fn what_it_grows_by_waits_for_quota_and_the_gang_runs_on_meanwhile() {
    let mut f = Fleet::regions();
    f.quota(4);
    let (gang, _) = f.put(elastic("gang", 2));
    let other = f.submit("other", 2);
    f.settle();
    f.put(elastic("gang", 3));
    let behind = f.submit("behind", 1);
    f.settle();
    assert_eq!(
        (f.used(), f.phase(gang), f.phase(behind), f.grows()),
        (4, Some(Phase::Running), Some(Phase::Pending), 0)
    );
    let why = f.summary(gang);
    assert!(
        why.contains("its 2 pods run there")
            && why.contains(
                "it waits to grow from 2 to 3 pods: asks for 1 `nvidia.com/gpu`; the queue has 0 of 4"
            ),
        "{why}"
    );
    assert!(
        f.why(gang)["wouldHelp"].as_str().unwrap().contains("the end of workloads with 1 `nvidia.com/gpu`"),
        "{:#}",
        f.why(gang)
    );
    // Who waited longer comes first, then who asked after it.
    f.end(other, EndResult::Succeeded);
    f.settle();
    assert_eq!((f.used(), f.phase(behind), f.answers()), (4, Some(Phase::Running), (1, 0)));
    assert_eq!(f.world.state.workloads()[&gang].attempts(), 1);
}

#[test]
fn with_quota_alone_a_gang_doesnt_grow_where_its_cluster_is_full() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let (gang, _) = f.put(elastic("gang", 3));
    let other = f.submit("other", 1);
    f.settle();
    f.put(elastic("gang", 5));
    f.settle();
    let (why, helps) = (f.summary(gang), f.why(gang)["wouldHelp"].as_str().unwrap().to_owned());
    assert!(
        why.contains(
            "from 3 to 5 pods: first: asks for 5 `nvidia.com/gpu`, the queue could never use more than 4"
        ),
        "{why}"
    );
    assert!(
        why.contains("; then, where it runs: room for 0 of 2 pods of `main` now")
            && helps.contains("; then: "),
        "{why}: {helps}"
    );
    // Neither alone does, both do.
    f.quota(8);
    f.settle();
    assert!(
        f.summary(gang).contains("from 3 to 5 pods: room for 0 of 2 pods of `main` now"),
        "{}",
        f.summary(gang)
    );
    f.nodes("eu", &[4, 1]);
    f.settle();
    f.settle();
    assert_eq!((f.answers(), f.phase(other)), ((0, 0), Some(Phase::Running)), "one more is not two");
    f.nodes("eu", &[4, 2]);
    f.settle();
    f.settle();
    assert_eq!((f.used(), f.answers()), (6, (1, 0)), "{}", f.summary(gang));
}

#[test]
fn what_a_gang_could_never_have_in_all_waits_for_nobodys_end() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let (gang, _) = f.put(elastic("gang", 4));
    f.settle();
    f.put(elastic("gang", 5));
    f.settle();
    let (why, helps) = (f.summary(gang), f.why(gang)["wouldHelp"].as_str().unwrap().to_owned());
    assert!(why.contains("from 4 to 5 pods: first: asks for 5 `nvidia.com/gpu`, the queue could never use more than 4 of flavor `any`"), "{why}");
    assert!(why.contains("; then, where it runs: room for 0 of 1 pods"), "{why}");
    let help = "first: raise the queue's nominal quota of `nvidia.com/gpu` in flavor `any` to 5, or ask for less; then: other nodes there, or smaller pods";
    assert_eq!(helps, help, "{why}");
    f.nodes("eu", &[4, 1]);
    f.quota(5);
    f.settle();
    f.settle();
    assert_eq!((f.used(), f.answers()), (5, (1, 0)), "{}", f.summary(gang));
}

#[test]
fn a_rack_that_could_never_hold_all_of_a_gang_waits_for_nobodys_end() {
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
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "default"}, "spec": {"levels": [
            {"nodeLabel": RACK}, {"nodeLabel": HOST}]}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {
            "nodeLabels": {"pool": "a"}, "topologyName": "default"}}),
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
    assert!(f.summary(gang).contains("it waits to grow from 4 to 10 pods: "), "{why:#}");
    let help = "more room within one `rack` there, or fewer or smaller pods, or a topology that is preferred instead of required";
    assert_eq!(why["wouldHelp"], help, "{why:#}");
    // What the rack has room for it gets, once its agent is asked again.
    f.put(near(8));
    f.pass(Millis::secs(60));
    assert_eq!(f.used(), 8, "{}", f.summary(gang));
}

#[test]
fn what_it_grows_by_is_found_in_the_cluster_where_it_runs_or_not_at_all() {
    let mut f = Fleet::regions();
    let (gang, _) = f.put(elastic("gang", 3));
    f.settle();
    let home = f.at(gang).unwrap();
    f.put(elastic("gang", 6));
    f.settle();
    assert_eq!((f.used(), f.grows()), (3, 0), "there is room elsewhere");
    assert!(
        f.summary(gang).contains("it waits to grow from 3 to 6 pods: room for 1 of 3 pods of `main` now"),
        "{}",
        f.summary(gang)
    );
    // All of it or nothing; and it is looked at again when there is room.
    f.nodes(&home, &[4, 2]);
    f.settle();
    f.settle();
    assert_eq!((f.used(), f.free_in(&home), f.answers(), f.at(gang)), (6, 0, (1, 0), Some(home)));
}

#[test]
fn an_agent_without_room_is_asked_again_and_what_was_charged_goes_back() {
    let mut f = Fleet::new(EU);
    f.nodes("eu", &[2, 2]);
    let (gang, _) = f.put(elastic("gang", 2));
    f.settle();
    // Its room shrinks before it is told, and its manager doesn't know.
    f.cut = vec!["eu".into()];
    f.put(elastic("gang", 4));
    assert_eq!((f.used(), f.grows()), (4, 1));
    assert!(
        f.summary(gang).contains("its 2 pods run there")
            && f.summary(gang).contains("it grows to 4 pods: its agent is told"),
        "{}",
        f.summary(gang)
    );
    f.nodes("eu", &[2]);
    f.cut.clear();
    f.exchange();
    f.exchange();
    f.input(Input::Turn);
    assert_eq!((f.used(), f.answers(), f.phase(gang)), (2, (0, 1), Some(Phase::Running)));
    assert!(f.summary(gang).contains("it waits to grow from 2 to 4 pods"), "{}", f.summary(gang));
    f.nodes("eu", &[2, 3]);
    f.pass(Millis::secs(12));
    assert_eq!((f.used(), f.answers(), f.free_in("eu"), f.pods_at("eu", gang)), (4, (1, 1), 1, 4));
    assert_eq!(f.world.state.workloads()[&gang].attempts(), 1);
}

#[test]
fn what_a_gang_of_high_priority_grows_by_displaces_others_and_never_itself() {
    let mut f = Fleet::new(EU);
    let class = |name: &str, value: i64| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value});
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {
        "namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"}, "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 4}]}]}]}});
    f.apply(vec![class("high", 10), class("low", 1), queue]);
    let (low, _) = f.put(prioritized("low", 2, "low"));
    let (high, _) = f.put(prioritized("high", 2, "high"));
    f.settle();
    f.put(prioritized("high", 4, "high"));
    f.settle();
    f.settle();
    assert_eq!(
        (f.phase(low), f.phase(high), f.used(), f.answers()),
        (Some(Phase::Pending), Some(Phase::Running), 4, (1, 0)),
        "{}",
        f.summary(high)
    );
    assert_eq!(f.world.state.workloads()[&high].attempts(), 1);
    // Nobody is left whom it may displace.
    f.put(prioritized("high", 5, "high"));
    f.settle();
    assert_eq!((f.phase(high), f.used()), (Some(Phase::Running), 4));
    assert!(f.summary(high).contains("it waits to grow from 4 to 5 pods"), "{}", f.summary(high));
}

#[test]
fn what_a_gang_grows_by_needs_the_room_of_its_flavor() {
    let mut f = Fleet::new(EU);
    let node = |name: &str| NodeSpec {
        name: name.into(),
        labels: [("pool".to_owned(), name.to_owned())].into(),
        capacity: Amounts::from([(GPU.into(), 4)]),
        ..NodeSpec::default()
    };
    let nodes = vec![node("old"), node("new")];
    f.agents.values_mut().next().unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    let flavor = |name: &str| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": {"pool": name}}});
    let quota = |name: &str, nominal: i64| json!({"name": name, "resources": [{"name": GPU, "nominalQuota": nominal}]});
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"}, "resourceGroups": [{"coveredResources": [GPU], "flavors": [quota("new", 8), quota("old", 8)]}]}});
    f.apply(vec![flavor("old"), flavor("new"), queue]);
    super::queues::priorities(&mut f, 9);
    f.settle();
    let (low, _) = f.put(prioritized("low", 2, "low"));
    f.settle();
    let (high, _) = f.put(prioritized("high", 2, "high"));
    f.settle();
    assert_eq!(f.phases(&[low, high]), [Some(Phase::Running); 2]);
    // Its flavor's node is full, and that of the other flavor is no use to it.
    f.put(prioritized("high", 4, "high"));
    for _ in 0..4 {
        f.settle();
    }
    let flavors = |uid: Uid| {
        f.world.state.workloads()[&uid].flavors().values().map(ToString::to_string).collect::<String>()
    };
    assert_eq!((f.pods_at("eu", high), flavors(high)), (4, "new".to_owned()), "{}", f.summary(high));
    assert_eq!((f.phase(low), flavors(low)), (Some(Phase::Running), "old".to_owned()), "{}", f.summary(low));
}

#[test]
fn who_changes_its_mind_before_it_grew_has_what_it_said_last() {
    let mut f = Fleet::new(EU);
    f.quota(3);
    let (gang, _) = f.put(elastic("gang", 2));
    f.settle();
    f.put(elastic("gang", 4));
    f.settle();
    assert_eq!((f.used(), f.grows()), (2, 0));
    // Back to what it has: nothing waits any more.
    f.put(elastic("gang", 2));
    f.quota(4);
    f.settle();
    assert_eq!((f.used(), f.grows()), (2, 0));
    assert!(!f.summary(gang).contains("grow"), "{}", f.summary(gang));
    // Charged, and not yet told: the agent's answer comes first, then what was said since.
    f.cut = vec!["eu".into()];
    f.put(elastic("gang", 4));
    assert_eq!((f.used(), f.grows()), (4, 1));
    f.put(elastic("gang", 1));
    f.settle();
    assert_eq!(f.used(), 4, "what was promised stays charged");
    f.cut.clear();
    f.settle();
    f.settle();
    assert_eq!((f.used(), f.free_in("eu"), f.phase(gang), f.answers()), (1, 3, Some(Phase::Running), (1, 0)));
    // Smaller and at once larger: first those end that are too many.
    f.put(elastic("gang", 4));
    f.settle();
    f.hold_ends = true;
    f.put(elastic("gang", 2));
    f.put(elastic("gang", 3));
    f.settle();
    let grown = f.grows();
    assert!(
        f.summary(gang).contains("it waits to grow from 2 to 3 pods: first those end that it was told to"),
        "{}",
        f.summary(gang)
    );
    let fence = f.agents[&ClusterName::new("eu")].runs().next().unwrap().1;
    let places = (1..9).map(|index| ("main".to_owned(), index)).filter(|(_, index)| *index != 4).collect();
    let out = f
        .agents
        .get_mut(&ClusterName::new("eu"))
        .unwrap()
        .apply(now(f.now), AgentInput::Runner(RunnerEvent::Spare { uid: gang, fence, places }));
    f.perform(&ClusterName::new("eu"), out.effects);
    f.settle();
    f.settle();
    assert_eq!((f.used(), f.grows() - grown), (3, 1), "{}", f.summary(gang));
}

#[test]
fn an_end_under_way_ends_what_it_grows_by_and_the_next_attempt_is_as_large_as_it_wants() {
    let mut f = Fleet::new(EU);
    f.quota(4);
    let (gang, _) = f.put(elastic("gang", 2));
    let other = f.submit("other", 2);
    f.settle();
    f.put(elastic("gang", 4));
    f.settle();
    f.end(gang, EndResult::NodeLost { message: "gone".into() });
    f.pass(Millis::secs(4));
    assert_eq!((f.phase(gang), f.used(), f.grows()), (Some(Phase::Pending), 2, 0));
    f.end(other, EndResult::Succeeded);
    f.pass(Millis::secs(4));
    assert_eq!(
        (f.phase(gang), f.used(), f.world.state.workloads()[&gang].attempts()),
        (Some(Phase::Running), 4, 2)
    );
    assert_eq!(f.world.state.workloads()[&gang].resized(), None, "it was given what it wants");
    // The same while its agent is told.
    f.put(elastic("gang", 2));
    f.settle();
    f.cut = vec!["eu".into()];
    f.put(elastic("gang", 3));
    assert_eq!((f.used(), f.grows()), (3, 1));
    f.end_unheard(gang, EndResult::Succeeded);
    f.cut.clear();
    f.settle();
    assert_eq!((f.phase(gang), f.used(), f.answers()), (Some(Phase::Finished), 0, (0, 0)));
    assert_eq!(f.refused(elastic("gang", 9)).reason, RejectionReason::Conflict);
    // Nobody counts what it would have grown by any more.
    let all = f.submit("all", 4);
    f.settle();
    assert_eq!(f.phase(all), Some(Phase::Running), "{}", f.summary(all));
}

#[test]
fn a_restart_in_the_middle_forgets_nothing_and_gives_nothing_twice() {
    for lost in [false, true] {
        let mut f = Fleet::new(EU);
        let (gang, _) = f.put(elastic("gang", 1));
        f.settle();
        f.cut = vec!["eu".into()];
        f.put(elastic("gang", 3));
        assert_eq!((f.used(), f.grows()), (3, 1));
        f.restart(2, if lost { RECOVERY } else { None });
        assert_eq!(f.used(), 3);
        f.cut.clear();
        f.settle();
        f.settle();
        assert_eq!(
            (f.used(), f.free_in("eu"), f.answers(), f.phase(gang)),
            (3, 1, (1, 0), Some(Phase::Running))
        );
        // And where it only waited.
        f.quota(3);
        f.put(elastic("gang", 4));
        f.settle();
        f.restart(3, if lost { RECOVERY } else { None });
        f.settle();
        assert_eq!((f.used(), f.grows()), (3, 1));
        f.quota(4);
        f.settle();
        f.settle();
        assert_eq!((f.used(), f.free_in("eu"), f.grows(), f.phase(gang)), (4, 0, 2, Some(Phase::Running)));
    }
}

#[test]
fn a_copy_from_before_learns_of_the_growth_from_the_agent_that_shows_its_code() {
    for known in [true, false] {
        let mut f = Fleet::new(EU);
        let gang = f.put(elastic("gang", 1)).0;
        let waits = f.world.snapshot();
        f.settle();
        let runs = f.world.snapshot();
        f.put(elastic("gang", 3));
        f.settle();
        assert_eq!(f.used(), 3);
        f.lead_with_copy(if known { &runs } else { &waits });
        f.settle();
        f.settle();
        assert_eq!(f.phase(gang), Some(Phase::Running), "{}", f.summary(gang));
        f.pass(Millis::secs(2));
        // By what the copy knows it wants one pod: the others are told to end.
        assert_eq!((f.used(), f.free_in("eu")), (1, 3));
    }
}

#[test]
fn an_older_agent_is_never_told_to_let_a_gang_grow() {
    let mut f = Fleet::new(EU);
    let (gang, _) = f.put(elastic("gang", 1));
    f.settle();
    let eu = ClusterName::new("eu");
    f.world.live.clusters.get_mut(&eu).unwrap().grows = false;
    let refused = f.refused(elastic("gang", 2));
    assert_eq!(refused.field.as_deref(), Some("spec.parallelism"));
    assert!(
        refused.message.contains("agent is of an older version")
            && refused.message.contains("meridian stop workload gang"),
        "{}",
        refused.message
    );
    // Asked for while nobody was connected, it waits with that reason.
    f.cut = vec!["eu".into()];
    f.restart(2, None);
    f.put(elastic("gang", 2));
    f.input(Input::Turn);
    assert_eq!((f.grows(), f.used()), (0, 1));
    assert!(
        f.summary(gang).contains("it waits to grow from 1 to 2 pods: no agent is connected"),
        "{}",
        f.summary(gang)
    );
}

#[test]
fn nodes_that_are_lost_while_it_grows_cost_nothing_that_was_promised() {
    let mut f = Fleet::new(EU);
    f.nodes("eu", &[2, 2, 2]);
    let (gang, _) = f.put(elastic("gang", 2));
    f.settle();
    f.put(elastic("gang", 4));
    f.settle();
    assert_eq!((f.used(), f.pods_at("eu", gang)), (4, 4));
    f.nodes("eu", &[2, 0, 2]);
    f.settle();
    f.pass(Millis::secs(2));
    f.settle();
    assert_eq!((f.phase(gang), f.used(), f.grows()), (Some(Phase::Running), 4, 1), "{}", f.summary(gang));
}
