//! Fleets in which a workload waits, told with dice.

use super::*;
use crate::queues::teams;

/// How long a start may take: a cluster that refused is asked again after a while.
const START_MAX: Millis = Millis::secs(90);

/// Random numbers that are the same in every run.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: i64) -> i64 {
        self.0 = meridian_shared::backoff::splitmix(self.0);
        i64::try_from(self.0 % 1_000_000).unwrap() % sides
    }

    pub(super) fn pods(&mut self, sides: i64) -> u32 {
        1 + u32::try_from(self.roll(sides)).unwrap()
    }

    pub(super) fn one_of(&mut self, all: &[Value]) -> Value {
        all[usize::try_from(self.roll(i64::try_from(all.len()).unwrap())).unwrap()].clone()
    }
}

/// A fleet in which a workload waits, and the objects that a suggestion may be about.
pub(super) struct Story {
    pub(super) f: Fleet,
    pub(super) uid: Uid,
    /// Its job.
    pub(super) asks: Value,
    pub(super) objects: Vec<Value>,
    /// There is room for everybody.
    pub(super) roomy: bool,
}

impl Story {
    pub(super) fn object(&self, kind: &str, name: &str) -> Value {
        let found = self.objects.iter().rev().find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} `{name}` in the story")).clone()
    }

    pub(super) fn started(&mut self) -> bool {
        let until = self.f.now + START_MAX.0;
        self.f.settle();
        while self.f.now < until && self.f.phase(self.uid) != Some(Phase::Running) {
            self.f.pass(Millis::secs(2));
        }
        self.f.phase(self.uid) == Some(Phase::Running)
    }

    pub(super) fn end(&mut self, name: &str) {
        let uid = self.f.world.uid_of("default", name).unwrap();
        if self.f.at(uid).is_some() {
            self.f.end(uid, EndResult::Succeeded);
        }
    }

    /// The name of the cluster queue that the workload waits in.
    pub(super) fn queue(&self) -> String {
        let class = self.f.world.queues.class(self.f.world.state.workloads()[&self.uid].class()).clone();
        self.object("LocalQueue", &class.queue)["spec"]["clusterQueue"].as_str().unwrap().to_owned()
    }
}

/// A fleet of one cluster whose only node has so many GPUs, with these objects.
pub(super) fn fleet(gpus: i64, labels: &[(&str, &str)], objects: &[Value]) -> Fleet {
    sharing_fleet(gpus, labels, objects, None, None)
}

/// The same, with fair sharing between cluster queues or between local queues.
pub(super) fn sharing_fleet(
    gpus: i64,
    labels: &[(&str, &str)],
    objects: &[Value],
    fair: Option<FairSharing>,
    admission: Option<meridian_queueing::settings::AdmissionFairSharing>,
) -> Fleet {
    let mut f = Fleet::new(EU);
    (f.world.config.fair_sharing, f.world.config.admission_fair_sharing) = (fair, admission);
    nodes(&mut f, "eu", &[("eu-1", gpus, labels)]);
    f.apply(objects.to_vec());
    f
}

/// Name, GPUs and labels of a node.
pub(in super::super) type Machine<'a> = (&'a str, i64, &'a [(&'a str, &'a str)]);

pub(in super::super) fn nodes(f: &mut Fleet, cluster: &str, all: &[Machine<'_>]) {
    let node = |(name, gpus, labels): &Machine<'_>| NodeSpec {
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
    let uid = match f.apply(vec![job]) {
        Reply::Written(written) => written[0].uid,
        other => panic!("not submitted: {other:?}"),
    };
    f.settle();
    uid
}

/// One resource group of the flavor `any`.
pub(super) fn group(quotas: &[(&str, Value)]) -> Value {
    let resources: Vec<Value> =
        quotas.iter().map(|(name, nominal)| json!({"name": name, "nominalQuota": nominal})).collect();
    let covered: Vec<&str> = quotas.iter().map(|(name, _)| *name).collect();
    json!([{"coveredResources": covered, "flavors": [{"name": "any", "resources": resources}]}])
}

/// Two teams that share, with limits; some run, some wait before the one that asks.
pub(super) fn quota(dice: &mut Dice) -> Story {
    let limits = [json!(null), json!(0), json!(2)];
    let roomy = dice.roll(3) > 0;
    let with_limits = |dice: &mut Dice, name: &str, more: &Value| {
        let nominal = dice.roll(5);
        let mut queue = cluster_queue(name, nominal, more);
        let quota = &mut queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0];
        quota["borrowingLimit"] = dice.one_of(&limits);
        quota["lendingLimit"] =
            dice.one_of(&limits).as_i64().map_or(Value::Null, |limit| json!(limit.min(nominal)));
        queue
    };
    let strategy = dice.one_of(&[json!("BestEffortFIFO"), json!("StrictFIFO")]);
    let more = json!({"cohortName": "all", "queueingStrategy": strategy, "preemption": {"reclaimWithinCohort": dice.one_of(&[json!("Never"), json!("Any")])}});
    let objects = vec![
        with_limits(dice, "team-a", &more),
        with_limits(dice, "team-b", &more),
        local_queue("a", "team-a"),
        local_queue("b", "team-b"),
    ];
    let fair = (dice.roll(2) == 0).then(FairSharing::default);
    let mut f = sharing_fleet(if roomy { 64 } else { 4 + dice.roll(4) }, &[], &objects, fair, None);
    for (queue, name) in [("a", "there-a"), ("b", "there-b"), ("b", "there-too")] {
        if dice.roll(3) > 0 {
            send(&mut f, queue_job(queue, name, dice.pods(3)));
        }
    }
    for (queue, name) in [("a", "before"), ("b", "beside")] {
        if dice.roll(4) == 0 {
            send(&mut f, queue_job(queue, name, dice.pods(4)));
        }
    }
    let pods = dice.pods(4);
    let mut asks = queue_job("a", "asks", pods);
    if dice.roll(4) == 0 && pods > 1 {
        asks["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "1"});
    }
    let uid = send(&mut f, asks.clone());
    Story { f, uid, asks, objects, roomy }
}

/// Two resources, of which one or both are short.
pub(super) fn resources(dice: &mut Dice) -> Story {
    let mut queue = cluster_queue("team", 0, &json!({}));
    let (gpus, cpus) = (dice.roll(5), dice.roll(5));
    let mut groups = group(&[(GPU, json!(gpus)), ("cpu", json!(cpus))]);
    if dice.roll(2) == 0 {
        let other = group(&[("cpu", json!(cpus))]);
        groups = json!([group(&[(GPU, json!(gpus))])[0], other[0]]);
        groups[1]["flavors"][0]["name"] = json!("cpus");
    }
    queue["spec"]["resourceGroups"] = groups;
    let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "cpus"}});
    let objects = vec![flavor, queue, local_queue("a", "team")];
    let mut f = fleet(64, &[], &objects);
    let both = |name: &str, pods: u32| {
        let mut job = queue_job("a", name, pods);
        job["spec"]["template"]["spec"]["containers"][0]["resources"] =
            json!({"requests": {GPU: 1, "cpu": 1}, "limits": {GPU: 1, "cpu": 1}});
        job
    };
    for name in ["there", "too"] {
        if dice.roll(2) == 0 {
            send(&mut f, both(name, dice.pods(2)));
        }
    }
    let asks = both("asks", dice.pods(4));
    let uid = send(&mut f, asks.clone());
    Story { f, uid, asks, objects, roomy: true }
}

/// Local queues that are ordered by what they used, with somebody of each waiting.
pub(super) fn usage_history(dice: &mut Dice) -> Story {
    let strategy = dice.one_of(&[json!("BestEffortFIFO"), json!("StrictFIFO")]);
    let mode = json!({"queueingStrategy": strategy, "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}});
    let objects =
        vec![cluster_queue("shared", 4, &mode), local_queue("a", "shared"), local_queue("b", "shared")];
    let mut f = sharing_fleet(64, &[], &objects, None, Some("half-life=10m,sampling=5s".parse().unwrap()));
    let used = dice.one_of(&[json!("a"), json!("b")]);
    let old = send(&mut f, queue_job(used.as_str().unwrap(), "old", 4));
    f.pass(Millis::secs(20 + dice.roll(60).unsigned_abs()));
    f.end(old, EndResult::Succeeded);
    send(&mut f, queue_job("a", "runs", 1 + dice.pods(3)));
    let both = [queue_job("a", "first", dice.pods(4)), queue_job("b", "second", dice.pods(4))];
    let uids = both.clone().map(|job| send(&mut f, job));
    let which = usize::try_from(dice.roll(2)).unwrap();
    let (uid, asks) = (uids[which], both[which].clone());
    Story { f, uid, asks, objects, roomy: true }
}

/// A head that can't start, and somebody behind it.
pub(super) fn strict(dice: &mut Dice) -> Story {
    let nominal = 1 + dice.roll(4);
    let objects = vec![
        cluster_queue("strict", nominal, &json!({"queueingStrategy": "StrictFIFO"})),
        local_queue("a", "strict"),
    ];
    let mut f = fleet(64, &[], &objects);
    if dice.roll(2) == 0 {
        send(&mut f, queue_job("a", "there", 1));
    }
    send(&mut f, queue_job("a", "huge", u32::try_from(nominal).unwrap() + dice.pods(2)));
    if dice.roll(3) == 0 {
        send(&mut f, queue_job("a", "between", dice.pods(3)));
    }
    let asks = queue_job("a", "asks", dice.pods(4));
    let uid = send(&mut f, asks.clone());
    Story { f, uid, asks, objects, roomy: true }
}

/// Quota enough, and one cluster that is full.
pub(super) fn room(dice: &mut Dice) -> Story {
    let objects = vec![cluster_queue("wide", 100, &json!({})), local_queue("a", "wide")];
    let mut f = fleet(4 + dice.roll(3), &[], &objects);
    for name in ["one", "two", "three"] {
        send(&mut f, queue_job("a", name, dice.pods(3)));
    }
    let pods = 1 + dice.pods(4);
    let mut asks = queue_job("a", "asks", pods);
    if dice.roll(3) == 0 && pods > 2 {
        asks["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
    }
    let uid = send(&mut f, asks.clone());
    Story { f, uid, asks, objects, roomy: true }
}

/// Something about the cluster keeps everybody out.
pub(super) fn cluster(dice: &mut Dice) -> Story {
    let mut objects = vec![cluster_queue("wide", 100, &json!({})), local_queue("a", "wide")];
    let (check, config) = (
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "mk"}, "spec": {
            "controllerName": "kueue.x-k8s.io/multikueue", "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "some"}}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig", "metadata": {"name": "some"}, "spec": {"clusters": ["us"]}}),
    );
    let what = dice.roll(6);
    if what == 0 {
        objects[0]["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "mk"}]});
        objects.splice(0..0, [config, check]);
    }
    let mut f = fleet(8, &[], &objects);
    let mut asks = queue_job("a", "asks", 2);
    match what {
        0 => {}
        1 => {
            drop(f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("eu".into()) }))
        }
        2 => {
            f.cut.push("eu".into());
            f.pass(Millis::secs(60));
        }
        3 => {
            let capped =
                json!({"region": "europe-west4", "jurisdiction": "EU", "limits": {GPU: dice.roll(2)}});
            f.apply(vec![json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "eu"}, "spec": capped})]);
        }
        4 => asks["metadata"]["annotations"] = json!({"meridian.dev/region": "us-east4"}),
        _ => {
            asks["spec"]["template"]["spec"]["containers"][0]["resources"] =
                json!({"requests": {GPU: 9}, "limits": {GPU: 9}})
        }
    }
    let f_asks = f.apply(vec![asks.clone()]);
    let uid = match f_asks {
        Reply::Written(written) => written[0].uid,
        Reply::Rejected(_) => {
            // What no cluster could ever run is refused at once: one that was lost since could have.
            let us = json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "us"}, "spec": {"region": "us-east4", "jurisdiction": "US"}});
            f.apply(vec![us]);
            send(&mut f, asks.clone())
        }
        other => panic!("{other:?}"),
    };
    f.settle();
    Story { f, uid, asks, objects, roomy: true }
}

/// Something about the way to the queue, or the queue itself; and sometimes more behind it.
pub(super) fn way(dice: &mut Dice) -> Story {
    let mut objects = vec![cluster_queue("wide", 1 + dice.roll(8), &json!({})), local_queue("a", "wide")];
    let what = dice.roll(9);
    let mut asks = queue_job("a", "asks", dice.pods(4));
    match what {
        0 => objects[0]["spec"]["stopPolicy"] = json!("Hold"),
        1 => objects[1]["spec"]["stopPolicy"] = json!("Hold"),
        2 => {
            (objects[0]["spec"]["stopPolicy"], objects[1]["spec"]["stopPolicy"]) =
                (json!("Hold"), json!("HoldAndDrain"))
        }
        3 => objects[0]["spec"]["resourceGroups"][0]["flavors"][0]["name"] = json!("rare"),
        4 => objects[0]["spec"]["namespaceSelector"] = json!({"matchLabels": {"team": "x"}}),
        5 => asks["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(1),
        6 => asks["spec"]["template"]["spec"]["nodeSelector"] = json!({"pool": "b"}),
        _ => {}
    }
    if dice.roll(2) == 0 {
        objects[0]["spec"]["queueingStrategy"] = json!("StrictFIFO");
    }
    let mut all = objects.clone();
    all.insert(
        0,
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {"nodeLabels": {"pool": "a"}}}),
    );
    all.extend([cluster_queue("beside", 100, &json!({})), local_queue("beside", "beside")]);
    let gpus = 4 + dice.roll(5);
    let mut f = fleet(gpus, &[("pool", if what == 6 { "b" } else { "a" })], &all);
    if dice.roll(2) == 0 && what != 6 {
        send(&mut f, queue_job("beside", "there", dice.pods(4)));
    }
    // Nothing starts yet, so that it still waits when the queue goes.
    if what > 6 {
        f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("eu".into()) });
    }
    if dice.roll(3) == 0 && what < 5 {
        send(&mut f, queue_job("a", "before", dice.pods(6)));
    }
    let uid = send(&mut f, asks.clone());
    if what > 6 {
        let key = if what == 7 {
            Key::namespaced(Kind::LocalQueue, "default", "a")
        } else {
            Key::global(Kind::ClusterQueue, "wide")
        };
        f.write(vec![Change::Delete { key, uid: None }]);
        f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
        f.settle();
    }
    Story { f, uid, asks, objects, roomy: gpus > 6 }
}

/// Taken out of its queue while it waited or ran, with quota and room that may be taken meanwhile.
pub(super) fn deactivated(dice: &mut Dice) -> Story {
    let strategy = dice.one_of(&[json!("BestEffortFIFO"), json!("StrictFIFO")]);
    let objects = vec![
        cluster_queue("wide", 4 + dice.roll(5), &json!({"queueingStrategy": strategy})),
        local_queue("a", "wide"),
    ];
    let mut f = fleet(4 + dice.roll(5), &[], &objects);
    f.cut.extend((dice.roll(2) == 0).then(|| "eu".into()));
    let asks = queue_job("a", "asks", dice.pods(4));
    let uid = send(&mut f, asks.clone());
    f.stop(uid);
    f.cut.clear();
    if dice.roll(2) == 0 {
        send(&mut f, queue_job("a", "there", dice.pods(6)));
    }
    f.pass(Millis::secs(40));
    Story { f, uid, asks, objects, roomy: true }
}

/// One cluster that is full, and several who wait for room in it: of different size and priority, in one queue or two.
pub(super) fn crowd(dice: &mut Dice) -> Story {
    let member = json!({"cohortName": "all"});
    let objects = vec![
        cluster_queue("wide", 100, &member),
        cluster_queue("other", 6, &member),
        local_queue("a", "wide"),
        local_queue("b", "other"),
    ];
    let fair = (dice.roll(3) == 0).then(FairSharing::default);
    let mut f = sharing_fleet(4 + dice.roll(3), &[], &objects, fair, None);
    f.apply(
        (1..3)
            .map(|n| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": format!("p{n}")}, "value": 10 * n}))
            .collect(),
    );
    for name in ["one", "two"] {
        send(&mut f, queue_job("a", name, 1 + dice.pods(2)));
    }
    let with_priority = |dice: &mut Dice, queue: &str, name: &str| {
        let mut job = queue_job(queue, name, dice.pods(6));
        if let Some(n) = Some(dice.roll(3)).filter(|n| *n > 0) {
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(format!("p{n}"));
        }
        job
    };
    for (name, queue) in [("first", "a"), ("second", "b"), ("third", "a")] {
        if dice.roll(2) == 0 {
            let job = with_priority(dice, queue, name);
            send(&mut f, job);
        }
    }
    let asks = with_priority(dice, "a", "asks");
    let uid = send(&mut f, asks.clone());
    Story { f, uid, asks, objects, roomy: true }
}

/// A queue whose policy goes by priority, or a head that can't start, and a job that makes do with fewer pods.
pub(super) fn priorities(dice: &mut Dice) -> Story {
    let policy = dice.one_of(&[json!("LowerPriority"), json!("LowerOrNewerEqualPriority"), json!("Never")]);
    let nominal = 2 + dice.roll(3);
    let more = json!({"preemption": {"withinClusterQueue": policy}});
    let objects = vec![cluster_queue("wide", nominal, &more), local_queue("a", "wide")];
    let mut f = fleet(64, &[], &objects);
    f.apply(vec![json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 10})]);
    let mut there = queue_job("a", "there", dice.pods(2));
    if dice.roll(2) == 0 {
        there["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    }
    send(&mut f, there);
    if dice.roll(3) == 0 {
        send(&mut f, queue_job("a", "too", dice.pods(2)));
    }
    let pods = 1 + dice.pods(5);
    let mut asks = queue_job("a", "asks", pods);
    if dice.roll(2) == 0 {
        asks["metadata"]["annotations"] =
            json!({"kueue.x-k8s.io/job-min-parallelism": (1 + dice.roll(i64::from(pods) - 1)).to_string()});
    }
    let uid = send(&mut f, asks.clone());
    Story { f, uid, asks, objects, roomy: true }
}

/// Two racks of which neither has room for a gang that wants to be in one.
pub(super) fn rack(dice: &mut Dice) -> Story {
    const RACK: &str = "cloud.provider.com/topology-rack";
    let topology = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "default"}, "spec": {"levels": [
        {"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]}});
    let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {
        "nodeLabels": {"pool": "a"}, "topologyName": "default"}});
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
    if dice.pods(2) == 1 {
        for name in ["one", "two"] {
            send(&mut f, near(name, 3));
        }
    } else {
        // Each is in one of the racks, and which it is counts.
        for at in 0..8 {
            send(&mut f, near(&format!("small-{at}"), 1));
            f.settle();
        }
    }
    let asks = near("asks", 1 + dice.pods(5));
    let uid = send(&mut f, asks.clone());
    Story { f, uid, asks, objects, roomy: true }
}

#[test]
fn who_could_never_use_it_is_no_rival() {
    let mut f = Fleet::regions();
    teams(&mut f, [2, 0], &json!({}));
    let holds = f.submit_to("a", "holds", 2, None);
    f.settle();
    // It asks for more than there ever is in its queue and cohort, and one of the other queue does too.
    f.submit_to("a", "huge", 3, None);
    f.submit_to("b", "vast", 4, None);
    let waits = f.submit_to("a", "waits", 1, None);
    f.settle();
    let why = f.why(waits);
    let helps = "the end of workloads with 1 `nvidia.com/gpu`, or raise the queue's nominal quota of `nvidia.com/gpu` in flavor `any` to 3; the end of `default/holds` alone would do";
    assert_eq!(why["wouldHelp"], helps, "{why:#}");
    f.end(holds, EndResult::Succeeded);
    assert_eq!(f.phase(waits), Some(Phase::Running));
}

#[test]
fn who_can_use_what_comes_for_others_is_one() {
    let mut f = Fleet::regions();
    teams(&mut f, [2, 0], &json!({}));
    f.submit_to("a", "holds", 2, None);
    f.settle();
    f.submit_to("a", "huge", 3, None);
    f.submit_to("a", "first", 2, None);
    let waits = f.submit_to("a", "waits", 1, None);
    f.settle();
    // With room for the other two there would be room for the large one, which comes before them.
    let helps = f.why(waits)["wouldHelp"].as_str().unwrap().to_owned();
    assert!(
        helps.contains("in flavor `any` to 8, which is enough for the 2 that may come first too"),
        "{helps}"
    );
    assert!(
        helps.starts_with("the end of workloads with 3 `nvidia.com/gpu`, or "),
        "no end makes room for the large one: {helps}"
    );
}
