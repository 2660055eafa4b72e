//! Fleets in which a queue or the state of a cluster keeps a workload from starting, and changes that remove
//! the reason. [`capacity_fleets`](super::capacity_fleets) has those of capacity and of turns.

use super::promises::with_cores;
use super::suggestions::{nodes, send};
use super::*;
use meridian_manager_core::sessions::LiveCluster;
use meridian_placement::cluster_capacity::ClusterCapacity;

pub(super) fn operate(f: &mut Fleet, action: Operator) {
    f.input(Input::Operator { actor: Actor::user("op"), action });
    f.settle();
}

pub(super) fn delete(f: &mut Fleet, kind: Kind, name: &str) {
    let key = match kind {
        Kind::ClusterQueue => Key::global(kind, name),
        _ => Key::namespaced(kind, "default", name),
    };
    f.write(vec![Change::Delete { key, uid: None, force: true }]);
    f.settle();
}

/// Submits a workload of the queue `lq` and gives it time to start.
pub(super) fn wait(f: &mut Fleet, name: &str, pods: u32) -> Uid {
    let uid = f.submit(name, pods);
    f.settle();
    uid
}

/// One cluster in which this happens before the workload `waits` is submitted.
pub(super) fn eu(before: impl FnOnce(&mut Fleet), pods: u32) -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    before(&mut f);
    f.settle();
    let uid = wait(&mut f, "waits", pods);
    (f, uid)
}

/// The cluster queue `cq` with this in its spec.
fn eu_with_queue(more: Value) -> (Fleet, Uid) {
    eu(|f| drop(f.apply(vec![cluster_queue("cq", 9, &more)])), 2)
}

pub(super) fn plain_queue(f: &mut Fleet, uid: Uid) -> Uid {
    let open = json!({
        "stopPolicy": "None", "namespaceSelector": {},
        "admissionChecksStrategy": {"admissionChecks": []},
    });
    f.apply(vec![cluster_queue("cq", 9, &open)]);
    f.settle();
    uid
}

/// A workload of the local queue `a`, of which an object is deleted before it can start.
fn without(kind: Kind, name: &str, objects: Vec<Value>) -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    operate(&mut f, Operator::Cordon("eu".into()));
    f.apply(objects);
    let uid = f.submit_to("a", "waits", 1, None);
    delete(&mut f, kind, name);
    operate(&mut f, Operator::Uncordon("eu".into()));
    (f, uid)
}

pub(super) fn no_local_queue() -> (Fleet, Uid) {
    without(Kind::LocalQueue, "a", vec![local_queue("a", "cq")])
}

pub(super) fn no_cluster_queue() -> (Fleet, Uid) {
    without(Kind::ClusterQueue, "x", vec![cluster_queue("x", 9, &json!({})), local_queue("a", "x")])
}

pub(super) fn namespace_not_selected() -> (Fleet, Uid) {
    eu_with_queue(json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}))
}

pub(super) fn selects_no_namespace() -> (Fleet, Uid) {
    let mut queue = cluster_queue("cq", 9, &json!({}));
    queue["spec"].as_object_mut().unwrap().remove("namespaceSelector");
    eu(|f| drop(f.apply(vec![queue])), 2)
}

pub(super) fn stopped() -> (Fleet, Uid) {
    eu_with_queue(json!({"stopPolicy": "Hold"}))
}

pub(super) fn flavor_not_found() -> (Fleet, Uid) {
    let mut queue = cluster_queue("cq", 9, &json!({}));
    queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = json!("rare");
    eu(|f| drop(f.apply(vec![queue])), 2)
}

/// A cluster queue with quotas of GPUs and cores in one group.
pub(super) fn queue_with_cores(name: &str, gpus: i64, cores: i64) -> Value {
    let resources = json!([{"name": GPU, "nominalQuota": gpus}, {"name": "cpu", "nominalQuota": cores}]);
    let groups =
        json!([{"coveredResources": [GPU, "cpu"], "flavors": [{"name": "any", "resources": resources}]}]);
    cluster_queue(name, 0, &json!({"resourceGroups": groups}))
}

pub(super) fn not_covered() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    nodes(&mut f, "eu", &[("eu-1", 8, &[])]);
    let uid = send(&mut f, with_cores("lq", "waits", 1));
    (f, uid)
}

/// A flavor of the nodes with this label.
pub(super) fn flavor_in_pool(name: &str, pool: &str) -> Value {
    kueue_object("ResourceFlavor", name, json!({"nodeLabels": {"pool": pool}}))
}

pub(super) fn no_matching_flavor() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    nodes(&mut f, "eu", &[("eu-1", 8, &[("pool", "b")])]);
    f.apply(vec![flavor_in_pool("any", "a")]);
    let mut selects = job("default", "waits", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    selects["spec"]["template"]["spec"]["nodeSelector"] = json!({"pool": "b"});
    let uid = send(&mut f, selects);
    (f, uid)
}

pub(super) fn exceeds_quota() -> (Fleet, Uid) {
    eu(|f| drop(f.apply(vec![cluster_queue("cq", 1, &json!({}))])), 2)
}

pub(super) fn quota_used() -> (Fleet, Uid) {
    let before = |f: &mut Fleet| {
        nodes(f, "eu", &[("eu-1", 64, &[])]);
        f.apply(vec![cluster_queue("cq", 4, &json!({}))]);
        wait(f, "there", 3);
    };
    eu(before, 2)
}

/// The job of this name ends.
pub(super) fn end(f: &mut Fleet, name: &str) {
    let uid = f.world.uid_of(Kind::Job, "default", name).unwrap();
    f.end(uid, EndResult::Succeeded);
}

pub(super) fn end_there(f: &mut Fleet, uid: Uid) -> Uid {
    end(f, "there");
    uid
}

fn residency(allow: &Value, deny: &Value) -> Value {
    let spec = json!({"applies": {"namespaces": ["default"]}, "allow": allow, "deny": deny});
    meridian_object("ResidencyPolicy", "where", spec)
}

pub(super) fn permit(f: &mut Fleet, uid: Uid) -> Uid {
    f.apply(vec![residency(&json!({"jurisdictions": ["EU"]}), &json!({"clusters": []}))]);
    f.settle();
    uid
}

/// A workload that another cluster, which has no agent, might run.
pub(super) fn eu_and_declared_us(before: impl FnOnce(&mut Fleet)) -> (Fleet, Uid) {
    let declared = |f: &mut Fleet| {
        f.apply(vec![cluster_object("us", "us-east4", "US")]);
        before(f);
    };
    eu(declared, 2)
}

pub(super) fn listed() -> (Fleet, Uid) {
    eu_and_declared_us(|f| {
        drop(f.apply(vec![residency(&json!({"jurisdictions": ["EU", "US"]}), &json!({"clusters": ["eu"]}))]))
    })
}

pub(super) fn not_allowed() -> (Fleet, Uid) {
    eu_and_declared_us(|f| {
        drop(f.apply(vec![residency(&json!({"jurisdictions": ["US"]}), &json!({"clusters": []}))]))
    })
}

pub(super) fn no_policy() -> (Fleet, Uid) {
    let (mut f, uid) = cordoned();
    f.world.config_mut().residency_required = true;
    operate(&mut f, Operator::Uncordon("eu".into()));
    (f, uid)
}

pub(super) fn not_requested() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_object("us", "us-east4", "US")]);
    let mut wishes = job("default", "waits", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    wishes["metadata"]["annotations"] = json!({"meridian.dev/region": "us-east4"});
    let uid = send(&mut f, wishes);
    (f, uid)
}

/// A queue of these clusters.
pub(super) fn queue_of(clusters: &[&str]) -> Vec<Value> {
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "some"});
    let spec = json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters});
    let checks = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}});
    vec![
        kueue_object("MultiKueueConfig", "some", json!({"clusters": clusters})),
        kueue_object("AdmissionCheck", "mk", spec),
        cluster_queue("cq", 9, &checks),
    ]
}

pub(super) fn unknown_place() -> (Fleet, Uid) {
    let before = |f: &mut Fleet| {
        f.apply(queue_of(&["eu", "moon"]));
        let location =
            json!({"clusterSource": {"kubeConfig": {"location": "moon", "locationType": "Secret"}}});
        f.apply(vec![kueue_object("MultiKueueCluster", "moon", location)]);
        operate(f, Operator::Cordon("eu".into()));
    };
    eu(before, 2)
}

pub(super) fn no_cluster() -> (Fleet, Uid) {
    let mut f = Fleet::without_agents(&[]);
    let uid = wait(&mut f, "waits", 2);
    (f, uid)
}

pub(super) fn not_in_queue() -> (Fleet, Uid) {
    eu_and_declared_us(|f| drop(f.apply(queue_of(&["us"]))))
}

pub(super) fn no_workers_config() -> (Fleet, Uid) {
    eu(|f| drop(f.apply(queue_of(&["us"]).split_off(1))), 2)
}

pub(super) fn list_eu(f: &mut Fleet, uid: Uid) -> Uid {
    f.apply(queue_of(&["us", "eu"]));
    f.settle();
    uid
}

pub(super) fn cordoned() -> (Fleet, Uid) {
    eu(|f| operate(f, Operator::Cordon("eu".into())), 2)
}

/// The agent of the cluster is lost before the workload is submitted.
pub(super) fn not_connected() -> (Fleet, Uid) {
    let before = |f: &mut Fleet| {
        f.disconnected.push("eu".into());
        f.advance(Millis::secs(60));
    };
    eu(before, 2)
}

pub(super) fn connect(f: &mut Fleet, uid: Uid) -> Uid {
    f.disconnected.clear();
    f.advance(Millis::secs(60));
    uid
}

pub(super) fn recovering() -> (Fleet, Uid) {
    let (mut f, uid) = cordoned();
    let live = f.world.live_mut().cluster_mut(&ClusterName::from("eu")).unwrap();
    *live = LiveCluster::opened(live.session(), live.heard(), Some(live));
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
    (f, uid)
}

pub(super) fn no_report() -> (Fleet, Uid) {
    let (mut f, uid) = cordoned();
    let live = f.world.live_mut().cluster_mut(&ClusterName::from("eu")).unwrap();
    *live.capacity_mut() = ClusterCapacity::default();
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
    (f, uid)
}

/// A new session, in which the agent reports everything again.
pub(super) fn report_again(f: &mut Fleet, uid: Uid) -> Uid {
    f.restart(2, None);
    f.settle();
    f.settle();
    uid
}

pub(super) fn not_admitted() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    operate(&mut f, Operator::Cordon("eu".into()));
    f.disconnected.push("eu".into());
    f.apply(vec![cluster_object("us", "us-east4", "US")]);
    f.add_agent("us", 2_000);
    f.settle();
    let uid = wait(&mut f, "waits", 2);
    (f, uid)
}

pub(super) fn quarantined() -> (Fleet, Uid) {
    let mut f = Fleet::without_agents(EU);
    f.add_agent_in("eu", 1_000, Some("us-east4".into()));
    f.settle();
    let uid = wait(&mut f, "waits", 2);
    (f, uid)
}

/// A dispatch policy with this requirement.
pub(super) fn requires(supervision: &str) -> Value {
    let spec = json!({"applies": {"queues": ["cq"]}, "onClusterLoss": {"requires": supervision}});
    meridian_object("DispatchPolicy", "p", spec)
}

/// An agent whose runner has no guards.
pub(super) fn not_guarded() -> (Fleet, Uid) {
    let mut f = Fleet::without_agents(EU);
    f.apply(vec![requires("Guarded")]);
    let config = AgentConfig {
        cluster: "eu".into(),
        runner: RunnerKind::Simulated,
        guarded: false,
        located: None,
        boot: 1,
        replacement_wait: Millis(0),
        holds: meridian_agent_core::HoldSettings::default(),
        managed: meridian_shared::managed::ManagedResources::default(),
        planted: Planted::NONE,
    };
    let (agent, _) = Agent::start(config, Durable::new(LedgerId(1_000)), Vec::new(), 1, now(f.now));
    f.agents.insert("eu".into(), agent);
    nodes(&mut f, "eu", &[("eu-1", 4, &[])]);
    let uid = wait(&mut f, "waits", 2);
    (f, uid)
}
