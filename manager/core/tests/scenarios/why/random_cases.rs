//! Random fleets in which a workload is pending.

use super::*;
use meridian_queueing::settings::{AdmissionFairSharing, FairSharing};

/// Time limit for a start. A cluster that refused gets another offer only after a while.
const START_MAX: Millis = Millis::secs(90);

/// Random numbers from a seed.
pub(in super::super) struct Random(pub(in super::super) u64);

impl Random {
    pub(in super::super) fn below(&mut self, bound: i64) -> i64 {
        self.0 = meridian_shared::backoff::splitmix(self.0);
        i64::try_from(self.0 % 1_000_000).unwrap() % bound
    }

    /// A number of pods from 1 to `max`.
    pub(super) fn pods(&mut self, max: i64) -> u32 {
        1 + u32::try_from(self.below(max)).unwrap()
    }

    pub(super) fn one_of(&mut self, all: &[Value]) -> Value {
        all[usize::try_from(self.below(i64::try_from(all.len()).unwrap())).unwrap()].clone()
    }
}

/// A fleet in which a workload is pending, and the objects that a suggestion may change.
pub(super) struct Case {
    pub(super) f: Fleet,
    pub(super) uid: Uid,
    /// The job of the pending workload.
    pub(super) manifest: Value,
    pub(super) objects: Vec<Value>,
    /// All workloads fit in the clusters together.
    pub(super) enough_capacity: bool,
}

impl Case {
    pub(super) fn object(&self, kind: &str, name: &str) -> Value {
        let found = self.objects.iter().rev().find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("the case has no {kind} `{name}`")).clone()
    }

    pub(super) fn started(&mut self) -> bool {
        let until = self.f.now + START_MAX.0;
        self.f.settle();
        while self.f.now < until && self.f.phase(self.uid) != Some(Phase::Running) {
            self.f.advance(Millis::secs(2));
        }
        self.f.phase(self.uid) == Some(Phase::Running)
    }

    pub(super) fn end(&mut self, name: &str) {
        let uid = self.f.world.uid_of(Kind::Job, "default", name).unwrap();
        if self.f.cluster_of(uid).is_some() {
            self.f.end(uid, EndResult::Succeeded);
        }
    }

    /// The name of the workload's cluster queue.
    pub(super) fn queue(&self) -> String {
        let class = self.f.world.queues().class(self.f.world.state().workloads()[&self.uid].class()).clone();
        self.object("LocalQueue", &class.queue)["spec"]["clusterQueue"].as_str().unwrap().to_owned()
    }
}

/// A fleet of one cluster with one node of this number of GPUs, and these objects.
pub(super) fn fleet(gpus: i64, labels: &[(&str, &str)], objects: &[Value]) -> Fleet {
    sharing_fleet(gpus, labels, objects, None, None)
}

/// The same with fair sharing between cluster queues (`fair`) or between local queues (`admission`).
pub(super) fn sharing_fleet(
    gpus: i64,
    labels: &[(&str, &str)],
    objects: &[Value],
    fair: Option<FairSharing>,
    admission: Option<AdmissionFairSharing>,
) -> Fleet {
    let mut f = Fleet::new(EU);
    let config = f.world.config_mut();
    (config.fair_sharing, config.admission_fair_sharing) = (fair, admission);
    nodes(&mut f, "eu", &[("eu-1", gpus, labels)]);
    f.apply(objects.to_vec());
    f
}

/// Name, GPUs and labels of a node.
pub(in super::super) type Node<'a> = (&'a str, i64, &'a [(&'a str, &'a str)]);

pub(in super::super) fn nodes(f: &mut Fleet, cluster: &str, all: &[Node<'_>]) {
    let node = |(name, gpus, labels): &Node<'_>| NodeSpec {
        name: (*name).into(),
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        capacity: Amounts::from([(GPU.into(), *gpus), ("pods".into(), 110), ("cpu".into(), 1_000_000)]),
        ..NodeSpec::default()
    };
    let nodes = all.iter().map(node).collect();
    f.agents
        .get_mut(&ClusterName::from(cluster))
        .unwrap()
        .apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    f.settle();
}

pub(super) fn queue_job(queue: &str, name: &str, pods: u32) -> Value {
    job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": queue}), "")
}

pub(in super::super) fn send(f: &mut Fleet, job: Value) -> Uid {
    let uid = f.create(job);
    f.settle();
    uid
}

/// One resource group with the flavor `any`.
pub(super) fn group(quotas: &[(&str, Value)]) -> Value {
    let resources: Vec<Value> =
        quotas.iter().map(|(name, nominal)| json!({"name": name, "nominalQuota": nominal})).collect();
    let covered: Vec<&str> = quotas.iter().map(|(name, _)| *name).collect();
    json!([{"coveredResources": covered, "flavors": [{"name": "any", "resources": resources}]}])
}

/// Two teams in a cohort with limits. Some workloads run, and some are pending before the one in question.
pub(super) fn quota_case(random: &mut Random) -> Case {
    let limits = [json!(null), json!(0), json!(2)];
    let enough_capacity = random.below(3) > 0;
    let with_limits = |random: &mut Random, name: &str, more: &Value| {
        let nominal = random.below(5);
        let mut queue = cluster_queue(name, nominal, more);
        let quota = &mut queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0];
        quota["borrowingLimit"] = random.one_of(&limits);
        quota["lendingLimit"] =
            random.one_of(&limits).as_i64().map_or(Value::Null, |limit| json!(limit.min(nominal)));
        queue
    };
    let strategy = random.one_of(&[json!("BestEffortFIFO"), json!("StrictFIFO")]);
    let reclaim = random.one_of(&[json!("Never"), json!("Any")]);
    let more = json!({
        "cohortName": "all", "queueingStrategy": strategy,
        "preemption": {"reclaimWithinCohort": reclaim},
    });
    let objects = vec![
        with_limits(random, "team-a", &more),
        with_limits(random, "team-b", &more),
        local_queue("a", "team-a"),
        local_queue("b", "team-b"),
    ];
    let fair = (random.below(2) == 0).then(FairSharing::default);
    let mut f =
        sharing_fleet(if enough_capacity { 64 } else { 4 + random.below(4) }, &[], &objects, fair, None);
    for (queue, name) in [("a", "there-a"), ("b", "there-b"), ("b", "there-too")] {
        if random.below(3) > 0 {
            send(&mut f, queue_job(queue, name, random.pods(3)));
        }
    }
    for (queue, name) in [("a", "before"), ("b", "beside")] {
        if random.below(4) == 0 {
            send(&mut f, queue_job(queue, name, random.pods(4)));
        }
    }
    let pods = random.pods(4);
    let mut manifest = queue_job("a", "asks", pods);
    if random.below(4) == 0 && pods > 1 {
        manifest["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "1"});
    }
    let uid = send(&mut f, manifest.clone());
    Case { f, uid, manifest, objects, enough_capacity }
}

/// Two resources, with a shortage of one or both.
pub(super) fn resources_case(random: &mut Random) -> Case {
    let mut queue = cluster_queue("team", 0, &json!({}));
    let (gpus, cpus) = (random.below(5), random.below(5));
    let mut groups = group(&[(GPU, json!(gpus)), ("cpu", json!(cpus))]);
    if random.below(2) == 0 {
        let other = group(&[("cpu", json!(cpus))]);
        groups = json!([group(&[(GPU, json!(gpus))])[0], other[0]]);
        groups[1]["flavors"][0]["name"] = json!("cpus");
    }
    queue["spec"]["resourceGroups"] = groups;
    let flavor = resource_flavor("cpus");
    let objects = vec![flavor, queue, local_queue("a", "team")];
    let mut f = fleet(64, &[], &objects);
    let both = |name: &str, pods: u32| {
        let mut job = queue_job("a", name, pods);
        job["spec"]["template"]["spec"]["containers"][0]["resources"] =
            json!({"requests": {GPU: 1, "cpu": 1}, "limits": {GPU: 1, "cpu": 1}});
        job
    };
    for name in ["there", "too"] {
        if random.below(2) == 0 {
            send(&mut f, both(name, random.pods(2)));
        }
    }
    let manifest = both("asks", random.pods(4));
    let uid = send(&mut f, manifest.clone());
    Case { f, uid, manifest, objects, enough_capacity: true }
}

/// Two local queues ordered by usage history, with a pending workload in each.
pub(super) fn usage_case(random: &mut Random) -> Case {
    let strategy = random.one_of(&[json!("BestEffortFIFO"), json!("StrictFIFO")]);
    let mode = json!({
        "queueingStrategy": strategy,
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
    });
    let objects =
        vec![cluster_queue("shared", 4, &mode), local_queue("a", "shared"), local_queue("b", "shared")];
    let mut f = sharing_fleet(64, &[], &objects, None, Some("half-life=10m,sampling=5s".parse().unwrap()));
    let used = random.one_of(&[json!("a"), json!("b")]);
    let old = send(&mut f, queue_job(used.as_str().unwrap(), "old", 4));
    f.advance(Millis::secs(20 + random.below(60).unsigned_abs()));
    f.end(old, EndResult::Succeeded);
    send(&mut f, queue_job("a", "runs", 1 + random.pods(3)));
    let both = [queue_job("a", "first", random.pods(4)), queue_job("b", "second", random.pods(4))];
    let uids = both.clone().map(|job| send(&mut f, job));
    let which = usize::try_from(random.below(2)).unwrap();
    let (uid, manifest) = (uids[which], both[which].clone());
    Case { f, uid, manifest, objects, enough_capacity: true }
}

/// A head that can't start in a queue with strict order, and a workload behind it.
pub(super) fn strict_order_case(random: &mut Random) -> Case {
    let nominal = 1 + random.below(4);
    let objects = vec![
        cluster_queue("strict", nominal, &json!({"queueingStrategy": "StrictFIFO"})),
        local_queue("a", "strict"),
    ];
    let mut f = fleet(64, &[], &objects);
    if random.below(2) == 0 {
        send(&mut f, queue_job("a", "there", 1));
    }
    send(&mut f, queue_job("a", "huge", u32::try_from(nominal).unwrap() + random.pods(2)));
    if random.below(3) == 0 {
        send(&mut f, queue_job("a", "between", random.pods(3)));
    }
    let manifest = queue_job("a", "asks", random.pods(4));
    let uid = send(&mut f, manifest.clone());
    Case { f, uid, manifest, objects, enough_capacity: true }
}

/// Enough quota, and one cluster that is full.
pub(super) fn full_cluster_case(random: &mut Random) -> Case {
    let objects = vec![cluster_queue("wide", 100, &json!({})), local_queue("a", "wide")];
    let mut f = fleet(4 + random.below(3), &[], &objects);
    for name in ["one", "two", "three"] {
        send(&mut f, queue_job("a", name, random.pods(3)));
    }
    let pods = 1 + random.pods(4);
    let mut manifest = queue_job("a", "asks", pods);
    if random.below(3) == 0 && pods > 2 {
        manifest["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    }
    let uid = send(&mut f, manifest.clone());
    Case { f, uid, manifest, objects, enough_capacity: true }
}

/// The cluster can't take the workload: it isn't listed, is cordoned or disconnected, has a limit, is in
/// another region, or is too small.
pub(super) fn cluster_case(random: &mut Random) -> Case {
    let mut objects = vec![cluster_queue("wide", 100, &json!({})), local_queue("a", "wide")];
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "some"});
    let check = kueue_object(
        "AdmissionCheck",
        "mk",
        json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}),
    );
    let config = kueue_object("MultiKueueConfig", "some", json!({"clusters": ["us"]}));
    let what = random.below(6);
    if what == 0 {
        objects[0]["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "mk"}]});
        objects.splice(0..0, [config, check]);
    }
    let mut f = fleet(8, &[], &objects);
    let mut manifest = queue_job("a", "asks", 2);
    match what {
        0 => {}
        1 => {
            drop(f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("eu".into()) }))
        }
        2 => {
            f.disconnected.push("eu".into());
            f.advance(Millis::secs(60));
        }
        3 => {
            let capped =
                json!({"region": "europe-west4", "jurisdiction": "EU", "limits": {GPU: random.below(2)}});
            f.apply(vec![meridian_object("Cluster", "eu", capped)]);
        }
        4 => manifest["metadata"]["annotations"] = json!({"meridian.dev/region": "us-east4"}),
        _ => {
            manifest["spec"]["template"]["spec"]["containers"][0]["resources"] =
                json!({"requests": {GPU: 9}, "limits": {GPU: 9}})
        }
    }
    let reply = f.apply(vec![manifest.clone()]);
    let uid = match reply {
        Reply::Written(written) => written[0].uid,
        Reply::Rejected(_) => {
            // A job that no cluster could ever run is refused. With a disconnected cluster of unknown size it
            // is pending.
            let us = cluster_object("us", "us-east4", "US");
            f.apply(vec![us]);
            send(&mut f, manifest.clone())
        }
        other => panic!("{other:?}"),
    };
    f.settle();
    Case { f, uid, manifest, objects, enough_capacity: true }
}

/// A queue is stopped, missing, or doesn't admit the workload; sometimes there is a further obstacle.
pub(super) fn queue_setup_case(random: &mut Random) -> Case {
    let mut objects = vec![cluster_queue("wide", 1 + random.below(8), &json!({})), local_queue("a", "wide")];
    let what = random.below(9);
    let mut manifest = queue_job("a", "asks", random.pods(4));
    match what {
        0 => objects[0]["spec"]["stopPolicy"] = json!("Hold"),
        1 => objects[1]["spec"]["stopPolicy"] = json!("Hold"),
        2 => {
            (objects[0]["spec"]["stopPolicy"], objects[1]["spec"]["stopPolicy"]) =
                (json!("Hold"), json!("HoldAndDrain"))
        }
        3 => objects[0]["spec"]["resourceGroups"][0]["flavors"][0]["name"] = json!("rare"),
        4 => objects[0]["spec"]["namespaceSelector"] = json!({"matchLabels": {"team": "x"}}),
        5 => manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(1),
        6 => manifest["spec"]["template"]["spec"]["nodeSelector"] = json!({"pool": "b"}),
        _ => {}
    }
    if random.below(2) == 0 {
        objects[0]["spec"]["queueingStrategy"] = json!("StrictFIFO");
    }
    let mut all = objects.clone();
    all.insert(0, kueue_object("ResourceFlavor", "any", json!({"nodeLabels": {"pool": "a"}})));
    all.extend([cluster_queue("beside", 100, &json!({})), local_queue("beside", "beside")]);
    let gpus = 4 + random.below(5);
    let mut f = fleet(gpus, &[("pool", if what == 6 { "b" } else { "a" })], &all);
    if random.below(2) == 0 && what != 6 {
        send(&mut f, queue_job("beside", "there", random.pods(4)));
    }
    // Nothing starts yet, so that the workload is still pending when its queue is deleted.
    if what > 6 {
        f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("eu".into()) });
    }
    if random.below(3) == 0 && what < 5 {
        send(&mut f, queue_job("a", "before", random.pods(6)));
    }
    let uid = send(&mut f, manifest.clone());
    if what > 6 {
        let key = if what == 7 {
            Key::namespaced(Kind::LocalQueue, "default", "a")
        } else {
            Key::global(Kind::ClusterQueue, "wide")
        };
        f.write(vec![Change::Delete { key, uid: None, force: true }]);
        f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
        f.settle();
    }
    Case { f, uid, manifest, objects, enough_capacity: gpus > 6 }
}

/// A workload that was deactivated while it was pending or running. Others may have taken its quota and
/// capacity.
pub(super) fn deactivated_case(random: &mut Random) -> Case {
    let strategy = random.one_of(&[json!("BestEffortFIFO"), json!("StrictFIFO")]);
    let objects = vec![
        cluster_queue("wide", 4 + random.below(5), &json!({"queueingStrategy": strategy})),
        local_queue("a", "wide"),
    ];
    let mut f = fleet(4 + random.below(5), &[], &objects);
    f.disconnected.extend((random.below(2) == 0).then(|| "eu".into()));
    let manifest = queue_job("a", "asks", random.pods(4));
    let uid = send(&mut f, manifest.clone());
    f.stop(uid);
    f.disconnected.clear();
    if random.below(2) == 0 {
        send(&mut f, queue_job("a", "there", random.pods(6)));
    }
    f.advance(Millis::secs(40));
    Case { f, uid, manifest, objects, enough_capacity: true }
}

/// One full cluster, and several pending workloads of different size and priority, in one queue or two.
pub(super) fn competing_case(random: &mut Random) -> Case {
    let member = json!({"cohortName": "all"});
    let objects = vec![
        cluster_queue("wide", 100, &member),
        cluster_queue("other", 6, &member),
        local_queue("a", "wide"),
        local_queue("b", "other"),
    ];
    let fair = (random.below(3) == 0).then(FairSharing::default);
    let mut f = sharing_fleet(4 + random.below(3), &[], &objects, fair, None);
    f.apply((1..3).map(|n| priority_class(&format!("p{n}"), 10 * n)).collect());
    for name in ["one", "two"] {
        send(&mut f, queue_job("a", name, 1 + random.pods(2)));
    }
    let with_priority = |random: &mut Random, queue: &str, name: &str| {
        let mut job = queue_job(queue, name, random.pods(6));
        if let Some(n) = Some(random.below(3)).filter(|n| *n > 0) {
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(format!("p{n}"));
        }
        job
    };
    for (name, queue) in [("first", "a"), ("second", "b"), ("third", "a")] {
        if random.below(2) == 0 {
            let job = with_priority(random, queue, name);
            send(&mut f, job);
        }
    }
    let manifest = with_priority(random, "a", "asks");
    let uid = send(&mut f, manifest.clone());
    Case { f, uid, manifest, objects, enough_capacity: true }
}

/// A queue that preempts by priority, or a head that can't start. The job may accept fewer pods.
pub(super) fn priorities_case(random: &mut Random) -> Case {
    let policy = random.one_of(&[json!("LowerPriority"), json!("LowerOrNewerEqualPriority"), json!("Never")]);
    let nominal = 2 + random.below(3);
    let more = json!({"preemption": {"withinClusterQueue": policy}});
    let objects = vec![cluster_queue("wide", nominal, &more), local_queue("a", "wide")];
    let mut f = fleet(64, &[], &objects);
    f.apply(vec![priority_class("high", 10)]);
    let mut there = queue_job("a", "there", random.pods(2));
    if random.below(2) == 0 {
        there["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    }
    send(&mut f, there);
    if random.below(3) == 0 {
        send(&mut f, queue_job("a", "too", random.pods(2)));
    }
    let pods = 1 + random.pods(5);
    let mut manifest = queue_job("a", "asks", pods);
    if random.below(2) == 0 {
        let minimum = 1 + random.below(i64::from(pods) - 1);
        manifest["metadata"]["annotations"] =
            json!({"kueue.x-k8s.io/job-min-parallelism": minimum.to_string()});
    }
    let uid = send(&mut f, manifest.clone());
    Case { f, uid, manifest, objects, enough_capacity: true }
}

/// A gang that requires one rack, and two racks without enough capacity.
pub(super) fn rack_case(random: &mut Random) -> Case {
    const RACK: &str = "cloud.provider.com/topology-rack";
    let levels = json!([{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]);
    let topology = kueue_object("Topology", "default", json!({"levels": levels}));
    let flavor = kueue_object(
        "ResourceFlavor",
        "any",
        json!({"nodeLabels": {"pool": "a"}, "topologyName": "default"}),
    );
    let objects = vec![topology, flavor, cluster_queue("wide", 100, &json!({})), local_queue("a", "wide")];
    let mut f = Fleet::new(EU);
    nodes(
        &mut f,
        "eu",
        &[
            ("h0", 4, &[("pool", "a"), (RACK, "r0"), ("kubernetes.io/hostname", "h0")]),
            ("h1", 4, &[("pool", "a"), (RACK, "r1"), ("kubernetes.io/hostname", "h1")]),
        ],
    );
    f.apply(objects.clone());
    f.settle();
    let near = |name: &str, pods: u32| {
        let mut job = queue_job("a", name, pods);
        job["spec"]["template"]["metadata"] =
            json!({"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}});
        job
    };
    if random.pods(2) == 1 {
        for name in ["one", "two"] {
            send(&mut f, near(name, 3));
        }
    } else {
        // Small jobs fill both racks. Which jobs must end depends on their rack.
        for at in 0..8 {
            send(&mut f, near(&format!("small-{at}"), 1));
            f.settle();
        }
    }
    let manifest = near("asks", 1 + random.pods(5));
    let uid = send(&mut f, manifest.clone());
    Case { f, uid, manifest, objects, enough_capacity: true }
}
