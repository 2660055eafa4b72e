//! `why` promises only what it has tried, and names the obstacle that decides.

use super::suggestions::{nodes, send};
use super::*;

fn operate(f: &mut Fleet, action: Operator) {
    f.input(Input::Operator { actor: Actor::user("op"), action });
    f.settle();
}

/// What `why` suggests for the cluster `eu`.
fn help_at_eu(f: &Fleet, uid: Uid) -> String {
    f.why(uid)["clusters"][0]["wouldHelp"].as_str().unwrap().to_owned()
}

#[test]
fn uncordoning_a_full_cluster_needs_an_end_too() {
    let mut f = Fleet::new(EU);
    let there = f.submit("there", 4);
    f.settle();
    operate(&mut f, Operator::Cordon("eu".into()));
    let waits = f.submit("waits", 2);
    f.settle();
    let both = "uncordon the cluster, and wait until workload `default/there` ends";
    assert_eq!(help_at_eu(&f, waits), both);
    assert_eq!(f.summary_and_help(waits).1, format!("in cluster `eu`: {both}"));
    operate(&mut f, Operator::Uncordon("eu".into()));
    assert_eq!(f.phase(waits), Some(Phase::Pending));
    f.end(there, EndResult::Succeeded);
    assert_eq!(f.phase(waits), Some(Phase::Running));
}

#[test]
fn a_cluster_that_the_queue_does_not_list_may_be_cordoned_and_full_as_well() {
    let mut f = Fleet::new(EU);
    let there = f.submit("there", 4);
    f.settle();
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "some"});
    let check = kueue_object(
        "AdmissionCheck",
        "mk",
        json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}),
    );
    let config = |clusters: &[&str]| kueue_object("MultiKueueConfig", "some", json!({"clusters": clusters}));
    let checks = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}});
    f.apply(vec![config(&["us"]), check, cluster_queue("listed", 9, &checks), local_queue("a", "listed")]);
    operate(&mut f, Operator::Cordon("eu".into()));
    let waits = f.submit_to("a", "waits", 2, None);
    f.settle();
    let all = "add the cluster to the queue's MultiKueueConfig, and uncordon the cluster, \
               and wait until workload `default/there` ends";
    assert_eq!(help_at_eu(&f, waits), all);
    f.apply(vec![config(&["us", "eu"])]);
    operate(&mut f, Operator::Uncordon("eu".into()));
    assert_eq!(f.phase(waits), Some(Phase::Pending));
    f.end(there, EndResult::Succeeded);
    assert_eq!(f.phase(waits), Some(Phase::Running));
}

#[test]
fn the_lowest_priority_that_is_enough_is_named() {
    let mut f = Fleet::new(EU);
    nodes(&mut f, "eu", &[("eu-1", 64, &[])]);
    f.apply(vec![
        cluster_queue("cq", 6, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})),
        priority_class("high", 1_000),
        priority_class("low", 2),
    ]);
    f.submit_to("lq", "large", 3, Some("high"));
    for name in ["one", "two", "three"] {
        f.submit_to("lq", name, 1, Some("low"));
    }
    f.settle();
    let waits = f.submit_to("lq", "waits", 3, None);
    f.settle();
    let (_, help) = f.summary_and_help(waits);
    let lowest =
        "submit the job again with a priority above 2 (enough by itself: it would preempt 3 workloads)";
    assert!(help.contains(lowest) && !help.contains("above 1000"), "{help}");
    f.apply(vec![priority_class("three", 3)]);
    let again = f.submit_to("lq", "again", 3, Some("three"));
    f.settle();
    f.settle();
    assert_eq!(f.phase(again), Some(Phase::Running));
}

/// A job with one GPU and one core per pod.
pub(super) fn with_cores(queue: &str, name: &str, pods: u32) -> Value {
    let mut job = job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": queue}), "");
    job["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {GPU: 1, "cpu": 1}, "limits": {GPU: 1, "cpu": 1}});
    job
}

/// A cluster queue of the cohort `all` with quotas of GPUs and cores.
pub(super) fn gpus_and_cores(name: &str, gpus: i64, cores: i64) -> Value {
    let group = |resource: &str, flavor: &str, nominal: i64| {
        let resources = json!([{"name": resource, "nominalQuota": nominal}]);
        json!({"coveredResources": [resource], "flavors": [{"name": flavor, "resources": resources}]})
    };
    let reclaims = json!({"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "Never"}});
    let mut queue = cluster_queue(name, 0, &json!({"cohortName": "all", "preemption": reclaims}));
    queue["spec"]["resourceGroups"] = json!([group("cpu", "cores", cores), group(GPU, "any", gpus)]);
    queue
}

#[test]
fn the_resource_whose_borrowing_forbids_to_reclaim_is_named() {
    for guests in [1, 4] {
        let mut f = Fleet::new(EU);
        nodes(&mut f, "eu", &[("eu-1", 64, &[])]);
        let queues = [gpus_and_cores("owner", 4, 2), gpus_and_cores("other", 0, 20)];
        f.apply([resource_flavor("cores")].into_iter().chain(queues).collect());
        f.apply(vec![local_queue("owner", "owner"), local_queue("other", "other")]);
        for at in 0..guests {
            send(&mut f, with_cores("other", &format!("guest-{at}"), 4 / guests));
        }
        let mine = send(&mut f, with_cores("owner", "mine", 4));
        let (summary, help) = f.summary_and_help(mine);
        let names = "cluster queue `owner` would have to borrow 2 cpu in flavor `cores` (it would use 4, its \
                     nominal quota is 2), and with `borrowWithinCohort: Never` a borrowing queue can't \
                     preempt in its cohort";
        assert!(summary.contains(names), "{guests}: {summary}");
        let raise = "raise the queue's nominal quota of `cpu` in flavor `cores` to 4 (enough by itself: it \
                     would preempt ";
        assert!(help.contains(raise), "{guests}: {help}");
        f.apply(vec![gpus_and_cores("owner", 4, 4)]);
        f.settle();
        f.settle();
        assert_eq!(f.phase(mine), Some(Phase::Running), "{guests}: {:#}", f.why(mine));
    }
}

#[test]
fn a_node_label_that_no_node_has_is_named_with_its_flavor() {
    const POOL: &str = "cloud.google.com/gke-nodepool";
    let mut f = Fleet::new(EU);
    nodes(&mut f, "eu", &[("eu-1", 4, &[(POOL, "default-pool")]), ("eu-2", 4, &[(POOL, "spot")])]);
    let flavor = |pool: &str| kueue_object("ResourceFlavor", "any", json!({"nodeLabels": {POOL: pool}}));
    f.apply(vec![flavor("dws-nodepool")]);
    let waits = f.submit("waits", 2);
    f.settle();
    let expected = "flavor `any` wants `cloud.google.com/gke-nodepool=dws-nodepool`; nodes of `eu` have \
                    `cloud.google.com/gke-nodepool=default-pool` and `cloud.google.com/gke-nodepool=spot`";
    let (summary, help) = f.summary_and_help(waits);
    assert!(summary.contains(expected), "{summary}");
    let label = "in cluster `eu`: add nodes with this label there, or correct the nodeLabels of flavor `any`";
    assert_eq!(help, label);
    assert_eq!(f.why(waits)["clusters"][0]["reason"], expected);
    f.apply(vec![flavor("spot")]);
    f.settle();
    assert_eq!(f.phase(waits), Some(Phase::Running), "{:#}", f.why(waits));
}

/// Also where the gang requires a topology, whose domains have too few such nodes.
#[test]
fn a_missing_node_label_is_no_lack_of_large_domains() {
    const RACK: &str = "rack";
    let mut f = Fleet::new(EU);
    nodes(&mut f, "eu", &[("h0", 8, &[("pool", "a"), (RACK, "r0")])]);
    let topology = kueue_object("Topology", "racks", json!({"levels": [{"nodeLabel": RACK}]}));
    let flavor = json!({"nodeLabels": {"pool": "b"}, "topologyName": "racks"});
    f.apply(vec![topology, kueue_object("ResourceFlavor", "any", flavor)]);
    let mut near = job("default", "near", 2, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    near["spec"]["template"]["metadata"] =
        json!({"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}});
    let waits = send(&mut f, near);
    let (summary, help) = f.summary_and_help(waits);
    assert!(summary.contains("flavor `any` wants `pool=b`; nodes of `eu` have `pool=a`"), "{summary}");
    assert!(help.contains("add nodes with this label there") && !help.contains("smaller"), "{help}");
}
