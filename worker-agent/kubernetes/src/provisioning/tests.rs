//! Orders and their objects, without an API server.

use super::ProvisioningSettings;
use super::manifest;
use super::order::{Action, Order, USABLE_FOR};
use super::ownership;
use crate::facts::{Condition, JobFacts, RequestFacts};
use crate::objects::Answer;
use crate::view::PoolNode;
use meridian_agent_core::runtime::{NodePool, NodeRequest, NodeSpec, ProviderEvent};
use meridian_objects::spec::{MergePolicy, ProvisioningRequestConfigSpec, RetryStrategy};
use meridian_shared::gang::{Amounts, Gang, PodSet, Toleration};
use meridian_shared::ids::{OfferId, Uid};
use meridian_shared::time::{Millis, Mono, Now, Wall};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

const OFFER: OfferId = OfferId { epoch: 1, leadership: 2, counter: 3 };
const WORKLOAD: Uid = Uid(7);
const GPU: &str = "nvidia.com/gpu";
const BEGIN: i64 = 1_000_000;

fn set(name: &str, count: u32, gpus: i64) -> PodSet {
    PodSet {
        name: name.into(),
        count,
        per_pod: Amounts::from([("cpu".into(), 500), (GPU.into(), gpus)]),
        node_selector: BTreeMap::from([("pool".into(), "dws".into())]),
        ..PodSet::default()
    }
}

fn request(pod_sets: Vec<PodSet>) -> NodeRequest {
    let gang = Gang { pod_sets, max_run: Some(Millis::secs(3_600)), ..Gang::default() };
    NodeRequest { offer: OFFER, uid: WORKLOAD, namespace: "ml".into(), gang: Arc::new(gang) }
}

fn order() -> Order {
    Order::new(request(vec![set("main", 2, 4)]), RetryStrategy::default())
}

fn now(seconds: u64) -> Now {
    Now { mono: Mono(seconds * 1_000), wall: Wall(BEGIN + i64::try_from(seconds).unwrap() * 1_000) }
}

fn facts(conditions: &[(&str, bool, &str, &str)]) -> RequestFacts {
    let condition = |(kind, holds, reason, message): &(&str, bool, &str, &str)| {
        let (reason, message) = ((*reason).to_owned(), (*message).to_owned());
        let since = Some(Wall(BEGIN));
        ((*kind).to_owned(), Condition { holds: *holds, reason, message, since })
    };
    RequestFacts {
        offer: Some(OFFER),
        namespace: "ml".into(),
        conditions: conditions.iter().map(condition).collect(),
        ..RequestFacts::default()
    }
}

fn nodes(count: u32) -> Vec<NodeSpec> {
    let node = |number| NodeSpec {
        name: format!("n{number}"),
        labels: BTreeMap::from([("pool".into(), "dws".into())]),
        capacity: Amounts::from([("cpu".into(), 8_000), (GPU.into(), 4)]),
        ..NodeSpec::default()
    };
    (0..count).map(node).collect()
}

/// An order whose request exists.
fn followed() -> Order {
    let mut order = order();
    assert_eq!(order.next(Mono(0)), Some(Action::Create { attempt: 1 }));
    assert_eq!(order.next(Mono(0)), None, "one action at a time");
    assert_eq!(order.answered(Mono(0), Action::Create { attempt: 1 }, Answer::Done), None);
    order
}

fn waits(event: Option<ProviderEvent>) -> String {
    match event {
        Some(ProviderEvent::Waiting { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

fn failure(event: Option<ProviderEvent>) -> String {
    match event {
        Some(ProviderEvent::Failed { reason, offer: OFFER }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_providers_own_reason_is_passed_on_until_the_whole_gang_has_nodes() {
    let mut order = followed();
    assert_eq!(order.observe(now(0), None, &[]), None, "a watch may be behind");
    assert!(waits(order.observe(now(0), Some(&facts(&[])), &[])).contains("not accepted"));
    let queued = [("Accepted", true, "SuccessfullyQueued", "in the queue")];
    assert_eq!(waits(order.observe(now(1), Some(&facts(&queued)), &[])), "SuccessfullyQueued: in the queue");
    let stockout = [queued[0], ("Provisioned", false, "ResourcePoolExhausted", "no T4 in europe-west4")];
    let said = waits(order.observe(now(2), Some(&facts(&stockout)), &[]));
    assert_eq!(said, "ResourcePoolExhausted: no T4 in europe-west4");
    assert_eq!(order.observe(now(3), Some(&facts(&stockout)), &[]), None, "said once");
    let provisioned = [queued[0], ("Provisioned", true, "Provisioned", "")];
    let said = waits(order.observe(now(60), Some(&facts(&provisioned)), &nodes(1)));
    assert!(said.contains("1 node has joined"), "{said}");
    let Some(ProviderEvent::Ready { nodes, keeps, offer: OFFER }) =
        order.observe(now(90), Some(&facts(&provisioned)), &nodes(2))
    else {
        panic!("the gang has its nodes")
    };
    assert_eq!((nodes.len(), keeps), (2, Some(USABLE_FOR.saturating_sub(Millis::secs(90)))));
    assert_eq!(order.observe(now(99), Some(&facts(&provisioned)), &nodes), None);
    order.cancel();
    assert_eq!(order.next(Mono(99_000)), Some(Action::Delete { attempt: 1 }));
    order.answered(Mono(99_000), Action::Delete { attempt: 1 }, Answer::Done);
    assert!(order.is_over());
}

#[test]
fn a_failed_attempt_is_followed_by_others_that_come_later_and_later() {
    let mut order = followed();
    let failed = facts(&[("Failed", true, "WaitTimeExceeded", "it took too long")]);
    let mut at = 0;
    for (attempt, pause) in [(1_u32, 60), (2, 120), (3, 240)] {
        let said = waits(order.observe(now(at), Some(&failed), &[]));
        assert!(said.contains("WaitTimeExceeded: it took too long; attempt"), "{said}");
        let delete = Action::Delete { attempt };
        assert_eq!(order.next(now(at).mono), Some(delete));
        order.answered(now(at).mono, delete, Answer::Done);
        assert!(!order.is_open(), "a pause takes no place among the open requests");
        assert_eq!(order.next(now(at + pause - 1).mono), None);
        at += pause;
        let create = Action::Create { attempt: attempt + 1 };
        assert_eq!(order.next(now(at).mono), Some(create));
        order.answered(now(at).mono, create, Answer::Done);
    }
    assert_eq!(
        failure(order.observe(now(at), Some(&failed), &[])),
        "WaitTimeExceeded: it took too long (attempt 4)"
    );
    assert_eq!(order.next(now(at).mono), Some(Action::Delete { attempt: 4 }));
}

#[test]
fn what_another_attempt_cannot_change_fails_at_once() {
    let hopeless = facts(&[("Failed", true, "ZoneNotSupported", "no T4 there")]);
    assert_eq!(failure(followed().observe(now(0), Some(&hopeless), &[])), "ZoneNotSupported: no T4 there");
    let mut order = order();
    let create = order.next(Mono(0)).unwrap();
    let refused = Answer::Refused("namespaces \"ml\" not found".into());
    assert_eq!(failure(order.answered(Mono(0), create, refused)), "namespaces \"ml\" not found");
    assert_eq!(order.next(Mono(0)), Some(Action::Delete { attempt: 1 }), "a template may exist");
}

#[test]
fn nodes_that_come_too_late_are_not_waited_for() {
    let mut order = followed();
    let provisioned = facts(&[("Provisioned", true, "Provisioned", "")]);
    let late = waits(order.observe(now(8 * 60), Some(&provisioned), &nodes(1)));
    assert!(late.contains("did not join") && late.contains("attempt 2"), "{late}");
}

#[test]
fn an_order_that_is_cancelled_leaves_nothing_behind_whatever_was_going_on() {
    let mut new = order();
    new.cancel();
    assert!(new.is_over(), "nothing was created");

    let mut creating = order();
    let create = creating.next(Mono(0)).unwrap();
    creating.cancel();
    assert_eq!(creating.next(Mono(0)), None, "the create is still on its way");
    assert_eq!(creating.answered(Mono(0), create, Answer::Done), None);
    assert_eq!(creating.next(Mono(0)), Some(Action::Delete { attempt: 1 }));

    let mut unknown = order();
    let create = unknown.next(Mono(0)).unwrap();
    assert!(
        waits(unknown.answered(Mono(0), create, Answer::Unknown("no answer".into()))).contains("no answer")
    );
    unknown.cancel();
    let delete = unknown.next(Mono(0)).unwrap();
    assert_eq!(delete, Action::Delete { attempt: 1 }, "it may have been created");
    assert_eq!(unknown.answered(Mono(0), delete, Answer::Unknown("again".into())), None, "nobody waits");
    assert_eq!(unknown.next(Mono(100)), None);
    assert_eq!(unknown.next(Mono(60_000)), Some(delete));

    let mut gone = followed();
    let _ = gone.observe(now(0), Some(&facts(&[])), &[]);
    assert!(waits(gone.observe(now(1), None, &[])).contains("another client deleted the request"));
}

#[test]
fn requests_that_are_worked_on_count_against_the_limit_and_running_gangs_do_not() {
    let mut order = followed();
    let provisioned = facts(&[("Provisioned", true, "Provisioned", "")]);
    assert!(order.is_open());
    let ready = order.observe(now(0), Some(&provisioned), &nodes(2));
    assert!(matches!(ready, Some(ProviderEvent::Ready { .. })), "{ready:?}");
    assert!(!order.is_open(), "it got its nodes");
    let mut deleting = order.clone();
    deleting.cancel();
    assert!(deleting.is_open());

    let own = RequestFacts { name: manifest::name(OFFER, 1), ..facts(&[]) };
    let queued = facts(&[("Accepted", true, "SuccessfullyQueued", "")]);
    let failed = facts(&[("Failed", true, "ZoneNotSupported", "")]);
    let of_another = |request: &RequestFacts| RequestFacts { offer: None, ..request.clone() };
    let inherited = [&queued, &provisioned, &failed].map(of_another);
    for (orders, expect) in [(vec![], 1), (vec![followed()], 2), (vec![order], 1)] {
        let orders = orders.into_iter().map(|order| (order.offer(), order)).collect();
        let requests =
            inherited.iter().chain([&own]).filter(|r| r.offer.is_none() || !BTreeMap::is_empty(&orders));
        assert_eq!(ownership::open_requests(&orders, requests), expect, "one of an earlier agent is queued");
    }
}

/// A request that an earlier agent made for this offer, as this agent reads it.
fn left(wanted: &NodeRequest, created: i64) -> RequestFacts {
    let class = config("queued-provisioning.gke.io");
    let built = manifest::build(wanted, &manifest::name(wanted.offer, 2), &class, "v", "eu").unwrap();
    let read = RequestFacts::read(&serde_json::from_value(built.request).unwrap());
    RequestFacts { created: Some(Wall(BEGIN + created)), ..read }
}

#[test]
fn a_gang_continues_with_the_oldest_request_that_asks_for_the_same() {
    let of = |counter, pods| NodeRequest {
        offer: OfferId { counter, ..OFFER },
        ..request(vec![set("main", pods, 4)])
    };
    let (older, newer, smaller) = (left(&of(4, 2), 0), left(&of(5, 2), 9), left(&of(6, 1), -9));
    let failed = RequestFacts {
        conditions: facts(&[("Failed", true, "OutOfResources", "")]).conditions,
        ..left(&of(7, 2), -9)
    };
    let deleting = RequestFacts { deleting: true, ..left(&of(8, 2), -9) };
    let of_another = left(&NodeRequest { uid: Uid(8), ..of(9, 2) }, -9);
    let elsewhere = left(&NodeRequest { namespace: "other".into(), ..of(10, 2) }, -9);
    let by_an_older_agent = RequestFacts { fingerprint: None, ..left(&of(11, 2), -9) };
    let all = [&newer, &smaller, &failed, &deleting, &of_another, &elsewhere, &by_an_older_agent, &older];
    let asks_now = of(99, 2);
    let fingerprint = left(&asks_now, 0).fingerprint.unwrap();
    let adoptable = |from: &[&RequestFacts]| {
        let adopted = ownership::adoptable(from.iter().copied(), &asks_now, &fingerprint);
        adopted.map(|request| request.name.clone())
    };
    assert_eq!(adoptable(&all), Some(older.name.clone()));
    assert_eq!(adoptable(&all[..1]), Some(newer.name.clone()));
    assert_eq!(adoptable(&all[1..7]), None);
}

#[test]
fn an_adopted_request_is_followed_under_its_own_name_until_its_attempt_fails() {
    let name = left(&request(vec![set("main", 2, 4)]), 0).name;
    let wanted = NodeRequest { offer: OfferId { counter: 9, ..OFFER }, ..request(vec![set("main", 2, 4)]) };
    let adopting = || Order::adopting(wanted.clone(), RetryStrategy::default(), name.clone());
    let mut order = adopting();
    assert_eq!(order.next(Mono(0)), None, "it exists");
    assert!(order.is_open());
    let provisioned = facts(&[("Provisioned", true, "Provisioned", "")]);
    let ready = order.observe(now(0), Some(&provisioned), &nodes(2));
    assert!(matches!(ready, Some(ProviderEvent::Ready { offer, .. }) if offer == wanted.offer), "{ready:?}");
    order.cancel();
    assert_eq!(order.next(Mono(0)), Some(Action::Delete { attempt: 2 }));
    assert_eq!(order.name(), name);

    let mut order = adopting();
    let failed = facts(&[("Failed", true, "OutOfResources", "none is left")]);
    let Some(ProviderEvent::Waiting { reason, .. }) = order.observe(now(0), Some(&failed), &[]) else {
        panic!("another attempt follows")
    };
    assert!(reason.contains("attempt 3"), "{reason}");
    let delete = order.next(Mono(0)).unwrap();
    assert_eq!((delete, order.name()), (Action::Delete { attempt: 2 }, name.clone()));
    order.answered(Mono(0), delete, Answer::Done);
    assert_eq!(order.next(Mono(3_600_000)), Some(Action::Create { attempt: 3 }));
    assert_eq!(order.name(), manifest::name(wanted.offer, 3));

    let mut order = adopting();
    let event = order.observe(now(0), None, &[]);
    assert!(matches!(event, Some(ProviderEvent::Waiting { .. })), "it was deleted: {event:?}");
}

#[test]
fn a_request_belongs_to_its_order_or_its_run_and_not_to_the_offer_that_it_was_made_for() {
    let wanted = request(vec![set("main", 2, 4)]);
    let offer = |counter| OfferId { counter, ..OFFER };
    let requests = [left(&wanted, 0), left(&NodeRequest { offer: offer(4), ..wanted.clone() }, 0)];
    let renamed = NodeRequest { offer: offer(8), ..wanted.clone() };
    let order = Order::adopting(renamed, RetryStrategy::default(), requests[0].name.clone());
    let orders = BTreeMap::from([(offer(8), order)]);
    let consumed = BTreeMap::from([(requests[1].key(), Some(offer(9)))]);
    let offers = |orders: &BTreeMap<OfferId, Order>, consumed| -> Vec<u64> {
        let assigned = ownership::assigned(requests.iter(), orders, consumed);
        assigned.into_iter().map(|request| request.offer.unwrap().counter).collect()
    };
    assert_eq!(offers(&orders, &consumed), [8, 9]);
    assert_eq!(offers(&BTreeMap::new(), &BTreeMap::new()), [OFFER.counter, 4]);
    assert_eq!(ownership::open_requests(&orders, requests.iter()), 2, "the adopted one counts once");
}

/// A node of a pool that joined at this second.
fn pool_node(name: &str, created: i64, occupied: bool) -> PoolNode {
    let spec = NodeSpec { name: name.to_owned(), ..nodes(1).remove(0) };
    PoolNode { spec, created: Some(Wall(BEGIN + created * 1_000)), occupied }
}

#[test]
fn idle_nodes_of_the_pool_count_only_for_the_class_that_makes_what_is_missing() {
    let order = followed();
    let request = RequestFacts { created: Some(Wall(BEGIN)), ..facts(&[]) };
    let mut cordoned = pool_node("cordoned", -30, false);
    cordoned.spec.unschedulable = true;
    let claims = BTreeMap::from([("claimed".to_owned(), OfferId { counter: 9, ..OFFER })]);
    let old = [
        pool_node("idle", -60, false),
        pool_node("claimed", -50, false),
        pool_node("occupied", -40, true),
        cordoned,
        pool_node("idle-too", -20, false),
    ];
    let own = |class: &str, young: &[PoolNode]| -> Vec<String> {
        let all = [&old[..], young].concat();
        let own = ownership::own_nodes(&order, &request, &all, &claims, &config(class));
        own.into_iter().map(|node| node.name).collect()
    };
    let best_effort = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";
    let young = [pool_node("young", 1, false), pool_node("young-too", 2, false)];
    assert_eq!(own(best_effort, &[]), ["idle", "idle-too"], "the autoscaler found capacity, and made none");
    assert_eq!(own(best_effort, &young[..1]), ["young", "idle"], "it made what was missing");
    assert_eq!(own(best_effort, &young), ["young", "young-too"]);
    let queued = "queued-provisioning.gke.io";
    assert_eq!(own(queued, &young[..1]), ["young"]);
    assert!(own(queued, &[]).is_empty(), "its machines are always new");
}

#[test]
fn nodes_of_gangs_that_an_earlier_agent_started_stay_theirs() {
    let job = |consumes: Option<&str>, ended: bool| {
        let notes = r#"{"v":1,"nodes":["n1","n2"],"pods":[["main",0,0],["main",1,1]],"budget":5000}"#;
        let mut annotations = BTreeMap::from([("meridian.dev/run", notes)]);
        annotations.extend(consumes.map(|name| ("autoscaling.x-k8s.io/consume-provisioning-request", name)));
        let conditions = if ended { json!([{"type": "Complete", "status": "True"}]) } else { json!([]) };
        let labels = json!({"meridian.dev/offer": OFFER.to_string()});
        let object = json!({
            "metadata": {"name": "train", "namespace": "ml", "labels": labels, "annotations": annotations},
            "spec": {}, "status": {"conditions": conditions},
        });
        let kind = meridian_objects::job::JobKind::usual();
        JobFacts::read(kind, &serde_json::from_value(object).unwrap())
    };
    let claims = |job: JobFacts| ownership::inherited_claims(std::iter::once(&job), |node| node == "n2");
    assert_eq!(claims(job(Some("request"), false)), BTreeMap::from([("n1".to_owned(), OFFER)]));
    assert!(claims(job(Some("request"), true)).is_empty(), "it is over");
    assert!(claims(job(None, false)).is_empty(), "its nodes are the cluster's own");
}

fn config(class: &str) -> ProvisioningRequestConfigSpec {
    ProvisioningRequestConfigSpec {
        class_name: class.into(),
        parameters: BTreeMap::from([("ValidUntilSeconds".into(), "600".into())]),
        ..ProvisioningRequestConfigSpec::default()
    }
}

#[test]
fn the_objects_say_what_the_offer_says() {
    let mut main = set("main", 2, 4);
    main.tolerations = vec![Toleration {
        key: Some(GPU.into()),
        exists: true,
        value: String::new(),
        effect: None,
        seconds: None,
    }];
    let queued = config("queued-provisioning.gke.io");
    let version = "autoscaling.x-k8s.io/v1";
    let built =
        manifest::build(&request(vec![main]), &manifest::name(OFFER, 2), &queued, version, "eu").unwrap();
    let [template] = &built.templates[..] else { panic!("{built:?}") };
    let at = |path: &str| template.pointer(path).cloned();
    assert_eq!(at("/metadata/namespace"), Some(json!("ml")));
    assert_eq!(at("/metadata/labels/cloud.google.com~1apply-warden-policies"), Some(json!("true")));
    assert_eq!(at("/template/metadata"), None, "GKE reads the label from the object itself");
    let resources = at("/template/spec/containers/0/resources").unwrap();
    assert_eq!(resources["requests"], json!({"cpu": "500m", GPU: "4"}));
    assert_eq!(resources["limits"], json!({GPU: "4"}));
    assert_eq!(at("/template/spec/nodeSelector"), Some(json!({"pool": "dws"})));
    assert_eq!(at("/template/spec/tolerations/0"), Some(json!({"key": GPU, "operator": "Exists"})));
    let spec = &built.request["spec"];
    assert_eq!(spec["podSets"][0]["podTemplateRef"]["name"], template["metadata"]["name"]);
    assert_eq!(
        spec["parameters"],
        json!({"ValidUntilSeconds": "600", "maxRunDurationSeconds": "3600"}),
        "machines are asked for as long as the job runs"
    );
    assert!(built.request["metadata"]["name"].as_str().unwrap().ends_with("-2"), "one name for an attempt");
}

#[test]
fn a_jobs_own_time_for_its_machines_comes_before_the_configured_one() {
    let time = |max_run: Option<u64>, configured: &str| {
        let mut wanted = request(vec![set("main", 2, 4)]);
        let gang = Gang { max_run: max_run.map(Millis::secs), ..Gang::clone(&wanted.gang) };
        wanted.gang = Arc::new(gang);
        let mut config = config("queued-provisioning.gke.io");
        config.parameters.insert("maxRunDurationSeconds".into(), configured.into());
        let built = manifest::build(&wanted, "r", &config, "v", "eu").unwrap();
        built.request["spec"]["parameters"]["maxRunDurationSeconds"].as_str().unwrap().to_owned()
    };
    let wanted = request(vec![set("main", 2, 4)]);
    let machine_time = manifest::machine_time(&wanted, &config("queued-provisioning.gke.io"));
    assert_eq!(machine_time, Some(Millis::secs(3_600)), "as the request says");
    assert_eq!(time(Some(7_200), "3600"), "7200");
    assert_eq!(time(Some(600), "3600"), "600");
    assert_eq!(time(None, "3600"), "3600");
    assert_eq!(time(Some(8 * 24 * 3_600), "3600"), "604800", "GKE leases machines for at most seven days");
}

/// The number of pods of each entry of a request, or the refusal.
fn entries(pod_sets: &[PodSet], config: &ProvisioningRequestConfigSpec) -> Result<Vec<u64>, String> {
    let built = manifest::build(&request(pod_sets.to_vec()), "r", config, "v", "eu")?;
    let counts: Vec<u64> = built.request["spec"]["podSets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["count"].as_u64().unwrap())
        .collect();
    assert_eq!(built.templates.len(), counts.len());
    Ok(counts)
}

#[test]
fn the_policy_says_which_pod_sets_share_an_entry() {
    let alike = PodSet { same_template: Some("a".into()), ..set("b", 3, 4) };
    let elsewhere = PodSet {
        node_selector: BTreeMap::from([("pool".into(), "other".into())]),
        same_template: Some("a".into()),
        ..set("d", 5, 4)
    };
    let sets = [set("a", 2, 4), alike, set("c", 4, 4), elsewhere, set("e", 6, 8), set("none", 0, 1)];
    let templates = MergePolicy::IdenticalPodTemplates;
    let requirements = MergePolicy::IdenticalWorkloadSchedulingRequirements;
    for (merge_policy, expect) in [
        (None, vec![2, 3, 4, 5, 6]),
        (Some(templates), vec![5, 4, 5, 6]),
        (Some(requirements), vec![9, 5, 6]),
    ] {
        let class = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";
        let config = ProvisioningRequestConfigSpec { merge_policy, ..config(class) };
        assert_eq!(entries(&sets, &config), Ok(expect), "{merge_policy:?}");
    }
}

#[test]
fn gke_takes_one_entry_and_the_refusal_names_the_policy_that_helps() {
    let gke = config("queued-provisioning.gke.io");
    let equal = [set("a", 2, 4), set("b", 3, 4)];
    let refused = entries(&equal, &gke).unwrap_err();
    let policy = "write `podSetMergePolicy: IdenticalWorkloadSchedulingRequirements`";
    assert!(refused.contains("at most 1 pod set in one request") && refused.contains(policy), "{refused}");
    let merge_policy = Some(MergePolicy::IdenticalWorkloadSchedulingRequirements);
    let merging = ProvisioningRequestConfigSpec { merge_policy, ..gke };
    assert_eq!(entries(&equal, &merging), Ok(vec![5]));
    let refused = entries(&[set("a", 1, 1), set("b", 3, 4)], &merging).unwrap_err();
    assert!(refused.contains("at most 1 different shape") && !refused.contains(policy), "{refused}");
}

#[test]
fn settings_that_cannot_work_are_refused_with_a_remedy() {
    let labels = BTreeMap::from([("pool".into(), "dws".into())]);
    let pool = NodePool { name: "dws".into(), labels, max_nodes: 4, ..NodePool::default() };
    let settings = |class: &str, pools: &[NodePool]| ProvisioningSettings {
        config: config(class),
        pools: pools.to_vec(),
        requests_max: 100,
    };
    assert_eq!(settings("queued-provisioning.gke.io", std::slice::from_ref(&pool)).check(), Ok(()));
    let refused =
        settings("check-capacity.autoscaling.x-k8s.io", std::slice::from_ref(&pool)).check().unwrap_err();
    assert!(refused.contains("makes no nodes"), "{refused}");
    let bare = NodePool { labels: BTreeMap::new(), ..pool };
    assert!(settings("queued-provisioning.gke.io", &[bare]).check().unwrap_err().contains("has no labels"));
}
