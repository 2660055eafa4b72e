//! Fleets in which capacity, or the turn of others, keeps a workload from starting, and changes that remove
//! the reason.

use super::reason_fleets::{cordoned, end, eu, eu_and_declared_us, flavor_in_pool, operate, queue_of, wait};
use super::suggestions::{nodes, send};
use super::*;

pub(super) fn capped() -> (Fleet, Uid) {
    let spec = json!({"region": "europe-west4", "jurisdiction": "EU", "limits": {GPU: 1}});
    eu_and_declared_us(|f| drop(f.apply(vec![meridian_object("Cluster", "eu", spec)])))
}

pub(super) fn no_such_node() -> (Fleet, Uid) {
    let before = |f: &mut Fleet| {
        nodes(f, "eu", &[("eu-1", 8, &[("pool", "b")])]);
        f.apply(vec![flavor_in_pool("any", "a")]);
    };
    eu(before, 2)
}

pub(super) fn pod_too_large() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_object("us", "us-east4", "US")]);
    let mut large = job("default", "waits", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    large["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"requests": {GPU: 9}, "limits": {GPU: 9}});
    let uid = send(&mut f, large);
    (f, uid)
}

/// A job whose pods are too many for the cluster. Each asks for one device, so it can't be smaller.
pub(super) fn too_many_pods() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_object("us", "us-east4", "US")]);
    let uid = wait(&mut f, "waits", 9);
    (f, uid)
}

pub(super) fn no_device() -> (Fleet, Uid) {
    eu(|f| nodes(f, "eu", &[("eu-1", 0, &[])]), 1)
}

fn submit_again(f: &mut Fleet, pods: u32) -> Uid {
    f.delete(&Key::namespaced(Kind::Job, "default", "waits"), false).unwrap();
    wait(f, "waits", pods)
}

pub(super) fn fewer_pods(f: &mut Fleet, _: Uid) -> Uid {
    submit_again(f, 2)
}

pub(super) fn smaller_pods(f: &mut Fleet, _: Uid) -> Uid {
    submit_again(f, 1)
}

pub(super) fn larger_nodes(f: &mut Fleet, uid: Uid) -> Uid {
    nodes(f, "eu", &[("eu-1", 64, &[])]);
    f.advance(Millis::secs(90));
    uid
}

pub(super) fn not_enough_capacity() -> (Fleet, Uid) {
    let before = |f: &mut Fleet| {
        wait(f, "there", 3);
    };
    eu(before, 2)
}

const RACK: &str = "rack";

pub(super) fn no_domain() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    nodes(
        &mut f,
        "eu",
        &[("h0", 4, &[("pool", "a"), (RACK, "r0")]), ("h1", 4, &[("pool", "a"), (RACK, "r1")])],
    );
    let topology = kueue_object("Topology", "racks", json!({"levels": [{"nodeLabel": RACK}]}));
    let flavor = json!({"nodeLabels": {"pool": "a"}, "topologyName": "racks"});
    f.apply(vec![topology, kueue_object("ResourceFlavor", "any", flavor)]);
    let mut near = job("default", "waits", 5, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    near["spec"]["template"]["metadata"] =
        json!({"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}});
    let uid = send(&mut f, near);
    (f, uid)
}

pub(super) fn larger_rack(f: &mut Fleet, uid: Uid) -> Uid {
    nodes(f, "eu", &[("h0", 4, &[("pool", "a"), (RACK, "r0")]), ("h1", 8, &[("pool", "a"), (RACK, "r1")])]);
    f.settle();
    uid
}

/// A gang waits for the whole cluster longer than the guard allows, and a smaller workload of another queue
/// would fit.
pub(super) fn kept() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    f.world.config_mut().starvation_guard = Some(Millis::secs(30));
    f.apply(vec![cluster_queue("other", 100, &json!({})), local_queue("other", "other")]);
    wait(&mut f, "there", 2);
    wait(&mut f, "gang", 4);
    f.advance(Millis::secs(62));
    let uid = f.submit_to("other", "waits", 2, None);
    f.settle();
    (f, uid)
}

pub(super) fn end_gang(f: &mut Fleet, uid: Uid) -> Uid {
    end(f, "there");
    f.settle();
    end(f, "gang");
    f.settle();
    uid
}

/// The nodes shrink between the offer and its arrival.
pub(super) fn refused() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    let uid = f.submit("waits", 2);
    nodes(&mut f, "eu", &[("eu-1", 1, &[])]);
    (f, uid)
}

/// The pods of a workload don't start, and it is stopped after the start timeout.
fn starts_in_vain() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    f.hold_starts = true;
    let uid = f.submit("waits", 2);
    f.advance(Millis::secs(31));
    while f.phase(uid) != Some(Phase::Pending) {
        f.advance(Millis::secs(1));
    }
    (f, uid)
}

pub(super) fn backed_off() -> (Fleet, Uid) {
    starts_in_vain()
}

/// A node with a pod of the workload is lost.
pub(super) fn back_off() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    let uid = wait(&mut f, "waits", 2);
    f.end_unreported(uid, EndResult::NodeLost { message: "gone".into() });
    f.now += 20;
    f.exchange();
    (f, uid)
}

pub(super) fn start_pods(f: &mut Fleet, uid: Uid) -> Uid {
    f.hold_starts = false;
    f.advance(Millis::mins(10));
    uid
}

/// A starved workload has quota and waits for capacity. Another queue would borrow that quota.
pub(super) fn reserved_for_starved() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    f.world.config_mut().starvation_guard = Some(Millis::secs(30));
    teams(&mut f, [6, 0], &json!({}));
    f.submit_to("a", "there", 2, None);
    f.settle();
    f.submit_to("a", "gang", 4, None);
    f.advance(Millis::secs(62));
    let uid = f.submit_to("b", "waits", 2, None);
    f.settle();
    (f, uid)
}

pub(super) fn not_chosen() -> (Fleet, Uid) {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU"), ("us", "us-east4", "US")]);
    let uid = wait(&mut f, "runs", 2);
    (f, uid)
}

pub(super) fn recovery_open() -> (Fleet, Uid) {
    let (mut f, uid) = cordoned();
    f.disconnected.push("eu".into());
    operate(&mut f, Operator::Uncordon("eu".into()));
    f.restart(2, RECOVERY);
    f.settle();
    (f, uid)
}

pub(super) fn rules_unheard() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    f.disconnected.push("eu".into());
    f.restart(2, RECOVERY);
    let uid = wait(&mut f, "waits", 2);
    (f, uid)
}

pub(super) fn rules_doubted() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    let backup = f.world.snapshot();
    f.apply(vec![cluster_queue("cq", 50, &json!({}))]);
    f.settle();
    f.lead_from_backup(&backup);
    f.settle();
    let uid = wait(&mut f, "waits", 2);
    (f, uid)
}

pub(super) fn preempts() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    priority_classes(&mut f, 10);
    f.apply(vec![cluster_queue("cq", 4, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}))]);
    f.submit_to("lq", "victim", 4, Some("low"));
    f.settle();
    f.hold_stops = true;
    let uid = f.submit_to("lq", "waits", 4, Some("high"));
    f.settle();
    (f, uid)
}

pub(super) fn stop_victims(f: &mut Fleet, uid: Uid) -> Uid {
    f.hold_stops = false;
    let victim = f.world.uid_of(Kind::Job, "default", "victim").unwrap();
    f.end(victim, EndResult::Stopped);
    uid
}

pub(super) fn overtaken() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    nodes(&mut f, "eu", &[("eu-1", 64, &[])]);
    let reclaims = json!({"reclaimWithinCohort": "LowerPriority"});
    let strict = json!({"cohortName": "co", "queueingStrategy": "StrictFIFO", "preemption": reclaims});
    f.apply(vec![
        cluster_queue("s", 2, &strict),
        cluster_queue("p", 0, &json!({"cohortName": "co"})),
        kueue_object("Cohort", "co", json!({"resourceGroups": gpu_quota(2)})),
    ]);
    f.apply(vec![local_queue("s", "s"), local_queue("p", "p")]);
    let names = [("s", "s0", 3), ("s", "head", 2), ("p", "waits", 1)];
    let uids = names.map(|(queue, name, pods)| {
        let uid = f.submit_to(queue, name, pods, None);
        f.settle();
        uid
    });
    (f, uids[2])
}

fn with_checks(checks: Vec<Value>, names: &[&str]) -> (Fleet, Uid) {
    let names: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": names}});
    eu(
        |f| {
            f.apply(checks);
            f.apply(vec![cluster_queue("cq", 9, &strategy)]);
        },
        2,
    )
}

pub(super) fn check_missing() -> (Fleet, Uid) {
    with_checks(Vec::new(), &["budget"])
}

pub(super) fn check_inactive() -> (Fleet, Uid) {
    let budget = kueue_object("AdmissionCheck", "budget", json!({"controllerName": "example.com/budget"}));
    with_checks(vec![budget], &["budget"])
}

pub(super) fn two_workers_checks() -> (Fleet, Uid) {
    let mut objects = queue_of(&["eu"]);
    let mut second = objects[1].clone();
    second["metadata"]["name"] = json!("mk2");
    objects.truncate(2);
    objects.push(second);
    with_checks(objects, &["mk", "mk2"])
}

pub(super) fn damaged() -> (Fleet, Uid) {
    let (mut f, uid) = cordoned();
    f.lose_manifest(uid);
    f.report_manifest(uid, false);
    operate(&mut f, Operator::Uncordon("eu".into()));
    (f, uid)
}

pub(super) fn repair(f: &mut Fleet, uid: Uid) -> Uid {
    f.apply(vec![job("default", "waits", 2, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "")]);
    f.advance(Millis::secs(60));
    uid
}
