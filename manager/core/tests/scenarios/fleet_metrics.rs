//! Metrics of clusters, waits and limits, from the state of a fleet.

use super::*;
use meridian_agent_core::ProviderEvent;
use meridian_shared::packing::Block;
use meridian_views::fleet;

/// Total, free, held and granted GPUs of a cluster.
fn gpus(f: &Fleet, cluster: &str) -> [i64; 4] {
    let rows = fleet::capacity_rows(&f.world);
    let row = rows.iter().find(|row| row.cluster.as_str() == cluster && &*row.resource == GPU).unwrap();
    assert_eq!(&*row.flavor, "any");
    [row.total, row.free, row.held, row.granted]
}

#[test]
fn capacity_is_what_agents_report_and_what_workloads_hold() {
    let mut f = Fleet::new(EU);
    assert_eq!(gpus(&f, "eu"), [4, 4, 0, 0]);
    let uid = f.submit("gang", 3);
    f.settle();
    assert_eq!(gpus(&f, "eu"), [4, 1, 0, 3]);
    f.end(uid, EndResult::Succeeded);
    f.settle();
    assert_eq!(gpus(&f, "eu"), [4, 4, 0, 0]);
}

#[test]
fn offers_that_wait_for_nodes_count_by_the_providers_documented_reason() {
    let mut f = Fleet::without_agents(EU);
    f.add_agent("eu", 1_000);
    let gpus = Amounts::from([(GPU.into(), 4)]);
    let pool =
        Block { nodes: 4, free: gpus.clone(), capacity: gpus, labels: BTreeMap::new(), taints: Vec::new() };
    let nodes = AgentInput::Nodes { nodes: Vec::new(), pools: vec![pool] };
    f.agents.get_mut(&ClusterName::from("eu")).unwrap().apply(now(f.now), nodes);
    f.settle();
    let waiting = |f: &Fleet| -> Vec<(&'static str, u64)> {
        let rows = fleet::waiting_offers(&f.world).into_iter();
        rows.map(|((cluster, reason), n)| {
            assert_eq!(cluster.as_str(), "eu");
            (reason.word(), n)
        })
        .collect()
    };
    for name in ["first", "second", "third"] {
        f.submit(name, 4);
    }
    f.settle();
    assert_eq!((f.node_requests.len(), waiting(&f)), (3, vec![("Other", 3)]), "the provider was only asked");
    let say = |f: &mut Fleet, at: usize, reason: &str| {
        let (offer, reason) = (f.node_requests[at].offer, reason.to_owned());
        let event = ProviderEvent::Waiting { offer, reason, estimate: None };
        let agent = f.agents.get_mut(&ClusterName::from("eu")).unwrap();
        agent.apply(now(f.now), AgentInput::Provider(event));
        f.settle();
    };
    say(&mut f, 0, "QuotaExceeded: NVIDIA_T4_GPUS, 4.0, europe-west4");
    say(&mut f, 1, "ResourcePoolExhausted: expected time is indefinite");
    say(&mut f, 2, "words of its own {\"a\"}");
    assert_eq!(waiting(&f), [("Other", 1), ("QuotaExceeded", 1), ("ResourcePoolExhausted", 1)]);
    say(&mut f, 0, "ResourcePoolExhausted: none now");
    assert_eq!(waiting(&f), [("Other", 1), ("ResourcePoolExhausted", 2)]);
}

#[test]
fn the_oldest_pending_workload_counts_by_queue_and_class() {
    let mut f = Fleet::new(EU);
    priority_classes(&mut f, 100);
    f.submit("runs", 4);
    f.settle();
    let old = |f: &Fleet| fleet::oldest_pending(&f.world, now(f.now).wall);
    assert!(old(&f).is_empty());
    f.submit_to("lq", "first", 4, Some("low"));
    f.advance(Millis::secs(20));
    f.submit_to("lq", "second", 4, Some("low"));
    f.submit_to("lq", "urgent", 4, Some("high"));
    f.advance(Millis::secs(5));
    let ages: Vec<(String, u64)> =
        old(&f).iter().map(|((queue, class), age)| (format!("{queue} {class}"), age.0 / 1_000)).collect();
    assert_eq!(ages, [("cq high".to_owned(), 5), ("cq low".to_owned(), 25)]);
}

#[test]
fn a_run_that_a_later_policy_only_flags_is_a_violation() {
    let mut f = Fleet::new(EU);
    f.submit("gang", 2);
    f.settle();
    let violations = |f: &Fleet| fleet::running_rows(&f.world, now(f.now).wall).violations[&"eu".into()];
    assert_eq!(violations(&f), 0);
    let spec = json!({
        "applies": {"namespaces": ["default"]}, "deny": {"clusters": ["eu"]}, "onChange": "Flag",
    });
    f.apply(vec![meridian_object("ResidencyPolicy", "later", spec)]);
    assert_eq!(violations(&f), 1);
}

#[test]
fn only_the_run_time_of_this_run_and_of_earlier_ones_counts_towards_the_limit() {
    let mut f = Fleet::new(EU);
    let mut limited = job("default", "job", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    limited["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("1000");
    let uid = f.create(limited);
    f.settle();
    f.stop(uid);
    f.settle();
    // It waits for almost the time that it may run.
    f.advance(Millis::secs(950));
    f.resume(uid);
    f.settle();
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    let near =
        |f: &Fleet| meridian_views::fleet::running_rows(&f.world, now(f.now).wall).near_run_limit["cq"];
    assert_eq!(near(&f), 0);
    f.advance(Millis::secs(950));
    assert_eq!((f.phase(uid), near(&f)), (Some(Phase::Running), 1));
}
