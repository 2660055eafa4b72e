//! Jobs of other kinds than Job: gangs of several pod sets, and clusters that can't run their kind.

use super::*;
use meridian_agent_core::runtime::ProviderEvent;
use meridian_shared::packing::Block;

/// A JobSet with a driver on cpus and `workers` pods with a GPU each, which may run on nodes of two pools.
fn job_set(name: &str, workers: u32) -> Value {
    let template = |pool: &str, requests: Value| {
        json!({"spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"pool": pool},
            "containers": [{"name": "c", "image": "i",
                "resources": {"requests": requests.clone(), "limits": requests}}],
        }})
    };
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "both"}},
        "spec": {"replicatedJobs": [
            {"name": "driver", "template": {"spec": {"template": template("small", json!({"cpu": 2}))}}},
            {"name": "workers", "replicas": workers, "template": {"spec": {
                "template": template("large", json!({"cpu": 1, GPU: 1}))}}},
        ]},
    })
}

fn node(pool: &str, gpus: i64) -> NodeSpec {
    NodeSpec {
        name: pool.into(),
        capacity: Amounts::from([(GPU.into(), gpus), ("cpu".into(), 8_000)]),
        labels: [("pool".to_owned(), pool.to_owned())].into(),
        ..NodeSpec::default()
    }
}

/// A cluster with one node of each pool, and a queue with quota of 4 cpus of each, and 4 GPUs.
fn two_pools(runner: RunnerKind) -> Fleet {
    let mut f = Fleet::without_agents(EU);
    f.runner = runner;
    f.add_agent("eu", 1_000);
    f.settle();
    set_nodes(&mut f, vec![node("small", 0), node("large", 8)], Vec::new());
    add_queue(&mut f);
    f
}

fn set_nodes(f: &mut Fleet, nodes: Vec<NodeSpec>, pools: Vec<Block>) {
    let eu = f.agents.values_mut().next().unwrap();
    eu.apply(now(f.now), AgentInput::Nodes { nodes, pools });
}

fn add_queue(f: &mut Fleet) {
    let flavor = |name: &str| kueue_object("ResourceFlavor", name, json!({"nodeLabels": {"pool": name}}));
    let flavor_quota = |name: &str, gpus: u32| {
        json!({"name": name, "resources": [
            {"name": "cpu", "nominalQuota": 4}, {"name": GPU, "nominalQuota": gpus}]})
    };
    let groups = json!([{"coveredResources": ["cpu", GPU],
        "flavors": [flavor_quota("small", 0), flavor_quota("large", 4)]}]);
    let queue =
        kueue_object("ClusterQueue", "both", json!({"namespaceSelector": {}, "resourceGroups": groups}));
    f.apply(vec![flavor("small"), flavor("large"), queue, local_queue("both", "both")]);
    f.settle();
}

/// What the queue has reserved, by flavor and resource.
fn reserved(f: &Fleet) -> Vec<(String, String, i64)> {
    let usage = f.world.queues().usage("both").cloned().unwrap_or_default();
    usage.into_iter().map(|((flavor, resource), amount)| (flavor.to_string(), resource, amount)).collect()
}

#[test]
fn each_pod_set_has_the_quota_of_its_own_flavor() {
    let mut f = two_pools(RunnerKind::Simulated);
    let uid = f.create(job_set("train", 3));
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    let expected = [("large", "cpu", 3_000), ("large", GPU, 3), ("small", "cpu", 2_000)];
    let charged = |expected: &[(&str, &str, i64)]| {
        expected.iter().map(|(flavor, of, amount)| (flavor.to_string(), of.to_string(), *amount)).collect()
    };
    let expected: Vec<_> = charged(&expected);
    assert_eq!(reserved(&f), expected);
    let pods: BTreeMap<_, u32> = f.starts[0].placement.iter().fold(BTreeMap::new(), |mut pods, pod| {
        *pods.entry((pod.pod_set.clone(), pod.node.clone())).or_default() += 1;
        pods
    });
    let at = |set: &str, node: &str| (set.to_owned(), node.to_owned());
    assert_eq!(pods, BTreeMap::from([(at("driver", "small"), 1), (at("workers", "large"), 3)]));
    // The workers' cpus are free on the large node, and the driver's aren't on the small one.
    let second = f.create(job_set("second", 1));
    f.settle();
    assert_eq!(f.phase(second), Some(Phase::Running), "{:#}", f.why(second));
    let third = f.create(job_set("third", 0));
    f.settle();
    assert_eq!(f.phase(third), Some(Phase::Pending), "the drivers of two JobSets use the small flavor up");
}

#[test]
fn a_gang_of_several_pod_sets_starts_whole_or_not_at_all() {
    let mut f = two_pools(RunnerKind::Simulated);
    let uid = f.create(job_set("large", 5));
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Pending), "four GPUs of quota are too few for five workers");
    assert_eq!((reserved(&f), f.starts.len()), (Vec::new(), 0), "the driver alone isn't started");
}

#[test]
fn charges_survive_a_restart_of_the_manager() {
    let mut f = two_pools(RunnerKind::Simulated);
    let uid = f.create(job_set("train", 2));
    f.settle();
    let before = reserved(&f);
    let record = f.records.iter().find_map(|(_, record)| {
        let json = serde_json::to_value(record).unwrap();
        json.pointer("/Workload/fact/QuotaReserved/flavors").cloned()
    });
    assert_eq!(record, Some(json!([{"cpu": "small"}, {"cpu": "large", GPU: "large"}])));
    f.restart(2, RECOVERY);
    f.settle();
    assert_eq!((f.phase(uid), reserved(&f)), (Some(Phase::Running), before));
}

#[test]
fn processes_refuse_every_kind_but_job_before_a_grant() {
    let mut f = two_pools(RunnerKind::Process);
    let uid = f.create(job_set("train", 1));
    f.settle();
    assert_eq!((f.phase(uid), f.starts.len()), (Some(Phase::Pending), 0));
    let why = f.why(uid).to_string();
    assert!(why.contains("this cluster runs processes, which can't be a JobSet"), "{why}");
}

#[test]
fn a_cluster_without_the_kind_says_so_and_runs_the_others() {
    let mut f = two_pools(RunnerKind::Kubernetes);
    let why = "the cluster has no JobSet of `jobset.x-k8s.io/v1alpha2`";
    let kinds = |kinds: &[(&str, &str)]| {
        let kinds = kinds.iter().map(|(kind, why)| (kind.to_string(), why.to_string()));
        AgentInput::UnavailableKinds(kinds.collect())
    };
    let at = now(f.now);
    f.agents.values_mut().next().unwrap().apply(at, kinds(&[("JobSet", why)]));
    let set = f.create(job_set("train", 1));
    let job = f.submit("plain", 1);
    f.settle();
    assert_eq!(f.phase(set), Some(Phase::Pending));
    assert!(f.why(set).to_string().contains(why), "{:#}", f.why(set));
    assert_eq!(f.phase(job), Some(Phase::Running), "{:#}", f.why(job));
    let at = now(f.now);
    f.agents.values_mut().next().unwrap().apply(at, kinds(&[]));
    f.advance(Millis::mins(2));
    assert_eq!(f.phase(set), Some(Phase::Running), "{:#}", f.why(set));
}

/// A group of pods with a driver on cpus and `workers` pods with a GPU each, as a file of pods gives it.
fn pod_group(name: &str, workers: u32) -> Object {
    let count = (workers + 1).to_string();
    let pod = |number: u32, pool: &str, requests: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{name}-{number}"), "namespace": "default",
                "labels": {"kueue.x-k8s.io/queue-name": "both", "kueue.x-k8s.io/pod-group-name": name},
                "annotations": {"kueue.x-k8s.io/pod-group-total-count": count},
            },
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {"pool": pool},
                "containers": [{"name": "c", "image": "i",
                    "env": [{"name": "RANK", "value": number.to_string()}],
                    "resources": {"requests": requests.clone(), "limits": requests}}],
            },
        })
    };
    let mut pods = vec![pod(0, "small", json!({"cpu": 2}))];
    pods.extend((1..=workers).map(|number| pod(number, "large", json!({"cpu": 1, GPU: 1}))));
    let mut parsed = meridian_objects::parse("pods.json", &Value::Array(pods).to_string());
    assert_eq!((parsed.errors.len(), parsed.objects.len()), (0, 1), "{:?}", parsed.errors);
    parsed.objects.remove(0).value
}

#[test]
fn a_group_of_pods_with_two_roles_is_admitted_whole_or_not_at_all() {
    let mut f = two_pools(RunnerKind::Simulated);
    let large = f.create(pod_group("large", 5).stored);
    f.settle();
    assert_eq!(f.phase(large), Some(Phase::Pending), "four GPUs of quota are too few for five workers");
    assert_eq!((reserved(&f), f.starts.len()), (Vec::new(), 0), "the driver alone isn't started");
    let group = f.create(pod_group("group", 3).stored);
    f.settle();
    assert_eq!(f.phase(group), Some(Phase::Running), "{:#}", f.why(group));
    let pods = &f.starts[0].placement;
    let mut at: Vec<(&str, &str)> =
        pods.iter().map(|pod| (pod.pod_set.as_str(), pod.node.as_str())).collect();
    at.sort_unstable();
    assert_eq!(at, [("role-1", "small"), ("role-2", "large"), ("role-2", "large"), ("role-2", "large")]);
}

/// The gang's search for flavors is to go on behind the driver's flavor when the quota comes free.
#[test]
fn a_gang_that_waits_for_quota_of_one_pod_set_starts_when_that_is_free() {
    let mut f = two_pools(RunnerKind::Simulated);
    let first = f.create(job_set("train", 2));
    f.settle();
    let second = f.create(job_set("group", 3));
    f.settle();
    assert_eq!((f.phase(first), f.phase(second)), (Some(Phase::Running), Some(Phase::Pending)));
    f.end(first, EndResult::Succeeded);
    f.advance(Millis::mins(2));
    assert_eq!(f.phase(second), Some(Phase::Running), "{:#}", f.why(second));
}

/// A cluster with a small node, and a pool of large ones that grows for GPUs.
fn provisioning_for_gpus(small: NodeSpec) -> Fleet {
    let mut f = Fleet::without_agents(EU);
    f.managed = [GPU.to_owned()].into_iter().collect();
    f.add_agent("eu", 1_000);
    f.settle();
    let NodeSpec { capacity, labels, .. } = node("large", 8);
    let pool = Block { nodes: 1, free: capacity.clone(), capacity, labels, ..Block::default() };
    set_nodes(&mut f, vec![small], vec![pool]);
    add_queue(&mut f);
    f
}

#[test]
fn only_the_pods_with_a_managed_resource_wait_for_nodes() {
    let mut f = provisioning_for_gpus(node("small", 0));
    let driver = f.create(job_set("driver", 0));
    f.settle();
    assert_eq!(f.phase(driver), Some(Phase::Running), "it needs no new node: {:#}", f.why(driver));
    let whole = f.create(job_set("whole", 2));
    f.settle();
    let eu = f.agents.values_mut().next().unwrap();
    let waiting: Vec<_> = eu.waiting().collect();
    let [offer] = waiting[..] else { panic!("{waiting:?}") };
    let free: i64 = eu.ledger().blocks().iter().map(|block| block.free["cpu"]).sum();
    assert_eq!(free, 8_000 - 2 * 2_000, "its driver has room beside the first one");
    let ready = ProviderEvent::Ready { offer, nodes: vec![node("large", 8)], keeps: None };
    let effects = eu.apply(now(f.now), AgentInput::Provider(ready)).into_effects();
    f.perform(&"eu".into(), effects);
    f.settle();
    assert_eq!(f.phase(whole), Some(Phase::Running), "{:#}", f.why(whole));
}

#[test]
fn a_cluster_is_asked_to_grow_only_if_the_other_pods_fit() {
    let mut small = node("small", 0);
    small.capacity.insert("cpu".to_owned(), 1_000);
    let mut f = provisioning_for_gpus(small);
    let whole = f.create(job_set("whole", 2));
    f.settle();
    let waiting = f.agents.values().next().unwrap().waiting().count();
    assert_eq!((f.phase(whole), waiting), (Some(Phase::Pending), 0));
    let why = f.why(whole).to_string();
    assert!(why.contains("driver"), "the workers are not the obstacle: {why}");
}
