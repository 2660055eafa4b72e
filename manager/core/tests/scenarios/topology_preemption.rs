//! Preemption for gangs that require a topology domain: a workload is stopped only if that helps to free a
//! whole domain.

use super::topology::{BLOCK, HOST, RACK, fleet, hosts, nodes, racks};
use super::*;
use meridian_shared::packing::Block;

/// A cluster with a queue in which higher priorities preempt lower ones.
fn preempting_fleet() -> Fleet {
    let mut f = fleet();
    teams(&mut f, [32, 0], &json!({"withinClusterQueue": "LowerPriority"}));
    priority_classes(&mut f, 9);
    f
}

fn submit_with_class(f: &mut Fleet, name: &str, pods: u32, class: &str, annotations: &Value) -> Uid {
    submit_to_queue(f, "a", name, pods, class, annotations)
}

fn submit_to_queue(
    f: &mut Fleet,
    queue: &str,
    name: &str,
    pods: u32,
    class: &str,
    annotations: &Value,
) -> Uid {
    let labels = json!({"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": class});
    let mut job = job("default", name, pods, &labels, "");
    job["spec"]["template"]["metadata"] = json!({"annotations": annotations});
    f.create(job)
}

#[test]
fn a_gang_too_large_for_any_domain_preempts_nothing() {
    let mut f = preempting_fleet();
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    let low: Vec<Uid> =
        (0..4).map(|i| submit_with_class(&mut f, &format!("low-{i}"), 8, "low", &rack)).collect();
    f.settle();
    assert_eq!(f.phases(&low), [Some(Phase::Running); 4]);
    let nine = submit_with_class(&mut f, "nine", 9, "high", &rack);
    f.advance(Millis::secs(30));
    assert_eq!(f.phases(&low), [Some(Phase::Running); 4]);
    let reason = "pod set `main` must be in one `cloud.provider.com/topology-rack`: \
                  the largest domain fits 8 of 9 pods even when empty";
    assert_eq!(f.why(nine)["clusters"][0]["reason"], reason, "{:#}", f.why(nine));
    let help = "add nodes to one `cloud.provider.com/topology-rack` there, or use fewer or smaller pods, or \
                prefer the topology instead of requiring it and wait for free capacity there";
    assert_eq!(f.why(nine)["clusters"][0]["wouldHelp"], help);
    // Eight pods fit in one rack. Only the gang in that rack is preempted.
    let eight = submit_with_class(&mut f, "eight", 8, "high", &rack);
    f.settle();
    f.settle();
    assert_eq!(f.phase(eight), Some(Phase::Running), "{:#}", f.why(eight));
    assert_eq!(low.iter().filter(|uid| f.phase(**uid) == Some(Phase::Running)).count(), 3);
    // A rack gets a third host. Now one preemption frees enough capacity for nine pods.
    let third = NodeSpec { name: "b0-r0-h2".into(), ..hosts().remove(0) };
    let third = NodeSpec {
        labels: third
            .labels
            .into_iter()
            .map(|(k, v)| if k == HOST { (k, "b0-r0-h2".to_owned()) } else { (k, v) })
            .collect(),
        ..third
    };
    let nodes = hosts().into_iter().chain([third]).collect();
    f.end(eight, EndResult::Succeeded);
    let out = f
        .agents
        .values_mut()
        .next()
        .unwrap()
        .apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    f.perform(&ClusterName::new("eu"), out.into_effects());
    for _ in 0..10 {
        f.settle();
        f.advance(Millis::secs(5));
    }
    assert_eq!(f.phase(nine), Some(Phase::Running), "{:#}", f.why(nine));
}

#[test]
fn nothing_is_preempted_if_all_victims_together_free_no_domain() {
    let mut f = preempting_fleet();
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    // In each rack of eight GPUs: six can't be preempted, one can, and one is free.
    let six: Vec<Uid> =
        (0..4).map(|i| submit_with_class(&mut f, &format!("six-{i}"), 6, "high", &rack)).collect();
    f.settle();
    let low: Vec<Uid> =
        (0..4).map(|i| submit_with_class(&mut f, &format!("low-{i}"), 1, "low", &json!({}))).collect();
    f.settle();
    assert_eq!(
        (f.phases(&six), f.phases(&low)),
        (vec![Some(Phase::Running); 4], vec![Some(Phase::Running); 4])
    );
    let eight = submit_with_class(&mut f, "eight", 8, "high", &rack);
    f.advance(Millis::secs(30));
    assert_eq!((f.phase(eight), f.phases(&low)), (Some(Phase::Pending), vec![Some(Phase::Running); 4]));
    // For a gang that may be anywhere, the same victims are enough.
    let anywhere = submit_with_class(&mut f, "anywhere", 8, "high", &json!({}));
    f.advance(Millis::secs(5));
    assert_eq!((f.phase(anywhere), f.phases(&low)), (Some(Phase::Running), vec![Some(Phase::Pending); 4]));
}

/// The racks of the workloads that are stopping, and the number of these workloads.
fn stopping(f: &Fleet, all: &[Uid]) -> (Vec<String>, usize) {
    let victims: Vec<Uid> =
        all.iter().copied().filter(|uid| f.phase(*uid) == Some(Phase::Stopping)).collect();
    let mut racks: Vec<String> = victims.iter().flat_map(|uid| racks(f, *uid)).collect();
    racks.sort();
    racks.dedup();
    (racks, victims.len())
}

/// Fills all hosts with jobs of one GPU. The newest jobs are spread over the racks, so that victims chosen by
/// age alone would be in all racks.
fn fill_with_small_jobs(f: &mut Fleet, annotations: &Value) -> Vec<Uid> {
    let mut low: Vec<Uid> = Vec::new();
    for i in 0..32 {
        low.push(submit_with_class(f, &format!("low-{i}"), 1, "low", annotations));
        f.settle();
    }
    for round in 0..2 {
        for rack in ["b1-r0", "b0-r1", "b0-r0", "b1-r1"] {
            let at = (0..32)
                .find(|at| {
                    racks(f, low[*at]) == [rack]
                        && f.world.state().workloads()[&low[*at]].name().starts_with("low")
                })
                .unwrap();
            f.end(low[at], EndResult::Succeeded);
            low[at] = submit_with_class(f, &format!("new-{round}-{rack}"), 1, "low", annotations);
            f.settle();
        }
    }
    assert_eq!(f.phases(&low), [Some(Phase::Running); 32]);
    low
}

/// Replaces the cluster's nodes and growable pools.
fn set_nodes(f: &mut Fleet, nodes: Vec<NodeSpec>, pools: Vec<Block>) {
    let out = f.agents.values_mut().next().unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools });
    f.perform(&ClusterName::new("eu"), out.into_effects());
    f.settle();
}

#[test]
fn all_victims_are_in_one_domain() {
    let near = || json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    let levels: Vec<Value> = [BLOCK, RACK].iter().map(|label| json!({"nodeLabel": label})).collect();
    let without_hosts = kueue_object("Topology", "default", json!({"levels": levels}));
    let cpus = || Amounts::from([("cpu".to_owned(), 4_000)]);
    let pool = Block { nodes: 5, free: cpus(), capacity: cpus(), ..Block::default() };
    for (pods, topology, low, pools) in [
        (2, None, json!({}), vec![]),
        (8, None, json!({}), vec![]),
        // Placements name the rack only.
        (8, Some(without_hosts), json!({"kueue.x-k8s.io/podset-preferred-topology": RACK}), vec![]),
        // A pool without GPUs.
        (8, None, json!({}), vec![pool]),
    ] {
        let mut f = preempting_fleet();
        f.apply(topology.into_iter().collect());
        let reported_pools = pools.clone();
        set_nodes(&mut f, hosts(), pools);
        let low = fill_with_small_jobs(&mut f, &low);
        let near = submit_with_class(&mut f, "near", pods, "high", &near());
        let victims: Vec<Uid> =
            low.iter().copied().filter(|uid| f.phase(*uid) == Some(Phase::Stopping)).collect();
        let freed = racks_of_all(&f, &victims);
        assert_eq!((freed.len(), victims.len()), (1, pods as usize), "{freed:?} {reported_pools:?}");
        f.settle();
        f.settle();
        assert_eq!(f.phase(near), Some(Phase::Running), "{:#}", f.why(near));
        assert_eq!(racks(&f, near), freed);
        f.advance(Millis::secs(30));
        assert_eq!(
            low.iter().filter(|uid| f.phase(**uid) == Some(Phase::Running)).count(),
            32 - pods as usize,
            "no other workload was preempted"
        );
    }
}

#[test]
fn victims_are_in_one_domain_while_another_offer_is_open() {
    let mut f = preempting_fleet();
    let low = fill_with_small_jobs(&mut f, &json!({}));
    f.end(low[5], EndResult::Succeeded);
    f.settle();
    // The offer is open, and no report contains it yet.
    submit_with_class(&mut f, "other", 1, "low", &json!({}));
    let near = submit_with_class(
        &mut f,
        "near",
        8,
        "high",
        &json!({"kueue.x-k8s.io/podset-required-topology": RACK}),
    );
    let (freed, victims) = stopping(&f, &low);
    assert_eq!((freed.len(), victims), (1, 8), "{freed:?}");
    f.settle();
    f.settle();
    assert_eq!((f.phase(near), racks(&f, near)), (Some(Phase::Running), freed), "{:#}", f.why(near));
}

fn racks_of_all(f: &Fleet, all: &[Uid]) -> Vec<String> {
    let mut racks: Vec<String> = all.iter().flat_map(|uid| racks(f, *uid)).collect();
    racks.sort();
    racks.dedup();
    racks
}

#[test]
fn victims_are_found_on_a_node_that_gets_a_label() {
    let mut f = preempting_fleet();
    let plain = |node: NodeSpec| NodeSpec {
        labels: node.labels.into_iter().filter(|(label, _)| label == "pool" || label == HOST).collect(),
        ..node
    };
    let mut nodes: Vec<NodeSpec> = hosts().into_iter().map(plain).collect();
    set_nodes(&mut f, nodes.clone(), Vec::new());
    let mut low: Vec<Uid> = Vec::new();
    for i in 0..32 {
        low.push(submit_with_class(&mut f, &format!("low-{i}"), 1, "low", &json!({})));
        f.settle();
    }
    nodes[3].labels.insert("feature".into(), "x".into());
    set_nodes(&mut f, nodes, Vec::new());
    let high = submit_with_class(&mut f, "high", 4, "high", &json!({}));
    assert_eq!(
        low.iter().filter(|uid| f.phase(**uid) == Some(Phase::Stopping)).count(),
        4,
        "{:#}",
        f.why(high)
    );
}

/// All nodes get a new label. The workloads of one rack only can be preempted.
#[test]
fn a_domain_is_found_after_all_nodes_changed_labels() {
    let mut f = preempting_fleet();
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    let mut gangs: Vec<Uid> = Vec::new();
    for (name, pods, class) in
        [("seven", 7, "high"), ("one", 8, "high"), ("other", 8, "high"), ("low", 8, "low")]
    {
        gangs.push(submit_with_class(&mut f, name, pods, class, &rack));
        f.settle();
    }
    assert_eq!(f.phases(&gangs), [Some(Phase::Running); 4]);
    let version = |mut node: NodeSpec| {
        node.labels.insert("version".into(), "2".into());
        node
    };
    set_nodes(&mut f, hosts().into_iter().map(version).collect(), Vec::new());
    let near = submit_with_class(&mut f, "near", 8, "high", &rack);
    f.settle();
    f.settle();
    assert_eq!(
        (f.phase(near), f.phase(gangs[3])),
        (Some(Phase::Running), Some(Phase::Pending)),
        "{:#}",
        f.why(near)
    );
}

#[test]
fn two_gangs_that_preempt_at_once_free_different_domains() {
    let mut f = fleet();
    teams(&mut f, [64, 64], &json!({"withinClusterQueue": "LowerPriority"}));
    priority_classes(&mut f, 9);
    let mut low: Vec<Uid> = Vec::new();
    for i in 0..32 {
        low.push(submit_to_queue(
            &mut f,
            if i % 2 == 0 { "a" } else { "b" },
            &format!("low-{i}"),
            1,
            "low",
            &json!({}),
        ));
        f.settle();
    }
    for rack in ["b1-r0", "b0-r1", "b0-r0", "b1-r1"] {
        let at = (0..32).find(|at| at % 2 == 1 && racks(&f, low[*at]) == [rack]).unwrap();
        f.end(low[at], EndResult::Succeeded);
        low[at] = submit_to_queue(&mut f, "b", &format!("new-{rack}"), 1, "low", &json!({}));
        f.settle();
    }
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    f.hold_stops = true;
    let one = submit_to_queue(&mut f, "a", "one", 4, "high", &rack);
    f.settle();
    let other = submit_to_queue(&mut f, "b", "other", 4, "high", &rack);
    f.settle();
    for (queue, from) in [("a", 0), ("b", 1)] {
        let stopping: Vec<Uid> = low
            .iter()
            .copied()
            .skip(from)
            .step_by(2)
            .filter(|uid| f.phase(*uid) == Some(Phase::Stopping))
            .collect();
        assert_eq!((racks_of_all(&f, &stopping).len(), stopping.len()), (1, 4), "{queue}");
    }
    let stopping: Vec<Uid> =
        low.iter().copied().filter(|uid| f.phase(*uid) == Some(Phase::Stopping)).collect();
    f.hold_stops = false;
    stopping.into_iter().for_each(|uid| f.end(uid, EndResult::Stopped));
    f.settle();
    assert_eq!(f.phases(&[one, other]), [Some(Phase::Running); 2], "{:#}", f.why(other));
}

#[test]
fn a_freed_domain_is_reserved_against_other_queues_for_two_minutes() {
    for hangs in [false, true] {
        let mut f = fleet();
        teams(&mut f, [64, 64], &json!({"withinClusterQueue": "LowerPriority"}));
        priority_classes(&mut f, 9);
        let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
        // Each rack has two free GPUs. Only the gang in the first rack can be preempted.
        let mut six: Vec<Uid> = Vec::new();
        for i in 0..4 {
            six.push(submit_with_class(
                &mut f,
                &format!("six-{i}"),
                6,
                if i == 0 { "low" } else { "high" },
                &rack,
            ));
            f.settle();
        }
        let eight = submit_with_class(&mut f, "eight", 8, "high", &rack);
        f.hold_stops = true;
        f.settle();
        assert_eq!(f.phase(six[0]), Some(Phase::Stopping));
        let small = f.submit_to("b", "small", 1, Some("low"));
        f.settle();
        assert_eq!(f.phase(small), Some(Phase::Pending));
        assert!(
            f.why(small)["clusters"][0]["reason"].as_str().unwrap().contains("default/eight"),
            "{:#}",
            f.why(small)
        );
        if hangs {
            // If the victim doesn't stop in time, the capacity is open to others again.
            f.advance(Millis::secs(125));
            assert_eq!(
                f.phases(&[eight, small]),
                [Phase::Pending, Phase::Running].map(Some),
                "{:#}",
                f.why(small)
            );
            continue;
        }
        f.hold_stops = false;
        f.end(six[0], EndResult::Stopped);
        f.settle();
        assert_eq!(f.phases(&[eight, small]), [Some(Phase::Running); 2], "{:#}", f.why(eight));
        assert_eq!(
            (racks(&f, eight), six.iter().filter(|uid| f.phase(**uid) == Some(Phase::Running)).count()),
            (vec!["b0-r0".to_owned()], 3)
        );
    }
}

#[test]
fn partial_admission_takes_as_many_pods_as_fit_in_a_domain() {
    let mut f = preempting_fleet();
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    for i in 0..4 {
        submit_with_class(&mut f, &format!("five-{i}"), 5, "high", &rack);
        f.settle();
    }
    let labels = json!({"kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/priority-class": "low"});
    let mut job = job("default", "part", 8, &labels, "");
    job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "3"});
    job["spec"]["template"]["metadata"] = json!({"annotations": rack});
    let uid = f.create(job);
    f.settle();
    assert_eq!((f.phase(uid), nodes(&f, uid).len()), (Some(Phase::Running), 3), "{:#}", f.why(uid));
}

#[test]
fn preemption_frees_domains_for_slices() {
    let mut f = preempting_fleet();
    let low: Vec<Uid> = (0..32)
        .map(|i| {
            let uid = submit_with_class(&mut f, &format!("low-{i}"), 1, "low", &json!({}));
            f.settle();
            uid
        })
        .collect();
    let slices = json!({
        "kueue.x-k8s.io/podset-slice-required-topology": HOST,
        "kueue.x-k8s.io/podset-slice-size": "3",
    });
    let sliced = submit_with_class(&mut f, "sliced", 6, "high", &slices);
    assert_eq!(stopping(&f, &low).1, 6, "{:#}", f.why(sliced));
    f.settle();
    f.settle();
    assert_eq!(f.phase(sliced), Some(Phase::Running), "{:#}", f.why(sliced));
    let mut hosts: BTreeMap<String, u32> = BTreeMap::new();
    nodes(&f, sliced).into_iter().for_each(|node| *hosts.entry(node).or_default() += 1);
    assert_eq!(hosts.into_values().collect::<Vec<_>>(), [3, 3]);
}

#[test]
fn free_capacity_spread_over_domains_doesnt_prevent_preemption() {
    let mut f = preempting_fleet();
    let rack = json!({"kueue.x-k8s.io/podset-required-topology": RACK});
    // Six of eight GPUs are used in each rack. Eight are free in total, but only two in each rack.
    let six: Vec<Uid> =
        (0..4).map(|i| submit_with_class(&mut f, &format!("six-{i}"), 6, "low", &rack)).collect();
    f.settle();
    assert_eq!(f.phases(&six), [Some(Phase::Running); 4]);
    let four = submit_with_class(&mut f, "four", 4, "high", &rack);
    assert_eq!(stopping(&f, &six).1, 1, "one gang is preempted, to free its rack: {:#}", f.why(four));
    f.settle();
    f.settle();
    assert_eq!(
        (f.phase(four), six.iter().filter(|uid| f.phase(**uid) == Some(Phase::Running)).count()),
        (Some(Phase::Running), 3)
    );
}

#[test]
fn a_small_job_takes_no_capacity_in_a_domain_that_is_being_freed() {
    let mut f = preempting_fleet();
    let mut low: Vec<Uid> = Vec::new();
    for i in 0..32 {
        low.push(submit_with_class(&mut f, &format!("low-{i}"), 1, "low", &json!({})));
        f.settle();
    }
    // The jobs in the first rack are the newest.
    for (i, uid) in low.iter_mut().enumerate().take(8) {
        f.end(*uid, EndResult::Succeeded);
        *uid = submit_with_class(&mut f, &format!("new-{i}"), 1, "low", &json!({}));
        f.settle();
    }
    let near = submit_with_class(
        &mut f,
        "near",
        8,
        "high",
        &json!({"kueue.x-k8s.io/podset-required-topology": RACK}),
    );
    let (freed, victims) = stopping(&f, &low);
    assert_eq!((freed.as_slice(), victims), (&["b0-r0".to_owned()][..], 8));
    // One victim and one job in another rack end early, so that a small job would fit in either rack.
    f.end_unreported(low[0], EndResult::Succeeded);
    f.end_unreported(low[20], EndResult::Succeeded);
    let small = submit_with_class(&mut f, "small", 1, "low", &json!({}));
    for _ in 0..4 {
        f.settle();
    }
    assert_eq!((f.phase(near), racks(&f, near)), (Some(Phase::Running), freed), "{:#}", f.why(near));
    let running =
        |f: &Fleet| low.iter().chain([&small]).filter(|uid| f.phase(**uid) == Some(Phase::Running)).count();
    assert_eq!(running(&f), 24, "the small job runs in the other rack");
    f.advance(Millis::secs(30));
    assert_eq!((f.phase(near), running(&f)), (Some(Phase::Running), 24));
}
