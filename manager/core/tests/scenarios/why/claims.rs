//! What `why` says would start a workload does: every suggestion is read from its words, the change is made, and the workload
//! is seen to start. How often each kind was tried is counted, so that none goes untried.

use super::*;
use std::collections::BTreeSet;

/// Dice per kind of story.
const SEEDS: u64 = 40;
/// How long a start may take: a cluster that refused is asked again after a while.
const START_MAX: Millis = Millis::secs(90);

/// Random numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: i64) -> i64 {
        self.0 = meridian_shared::backoff::splitmix(self.0);
        i64::try_from(self.0 % 1_000_000).unwrap() % sides
    }

    fn pods(&mut self, sides: i64) -> u32 {
        1 + u32::try_from(self.roll(sides)).unwrap()
    }

    fn one_of(&mut self, all: &[Value]) -> Value {
        all[usize::try_from(self.roll(i64::try_from(all.len()).unwrap())).unwrap()].clone()
    }
}

/// A fleet in which a workload waits, and the objects that a suggestion may be about.
struct Story {
    f: Fleet,
    uid: Uid,
    objects: Vec<Value>,
    /// There is room for everybody.
    roomy: bool,
}

impl Story {
    fn object(&self, kind: &str, name: &str) -> Value {
        let found = self.objects.iter().rev().find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} `{name}` in the story")).clone()
    }

    fn started(&mut self) -> bool {
        let until = self.f.now + START_MAX.0;
        self.f.settle();
        while self.f.now < until && self.f.phase(self.uid) != Some(Phase::Running) {
            self.f.pass(Millis::secs(2));
        }
        self.f.phase(self.uid) == Some(Phase::Running)
    }

    fn end(&mut self, name: &str) {
        let uid = self.f.world.uid_of("default", name).unwrap();
        self.f.end(uid, EndResult::Succeeded);
    }

    /// The name of the cluster queue that the workload waits in.
    fn queue(&self) -> String {
        let class = self.f.world.queues.class(self.f.world.state.workloads[&self.uid].class).clone();
        self.object("LocalQueue", &class.queue)["spec"]["clusterQueue"].as_str().unwrap().to_owned()
    }
}

/// A fleet of one cluster whose only node has so many GPUs, with these objects.
fn fleet(gpus: i64, labels: &[(&str, &str)], objects: &[Value]) -> Fleet {
    sharing_fleet(gpus, labels, objects, None, None)
}

/// The same, with fair sharing between cluster queues or between local queues.
fn sharing_fleet(
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
type Machine<'a> = (&'a str, i64, &'a [(&'a str, &'a str)]);

fn nodes(f: &mut Fleet, cluster: &str, all: &[Machine<'_>]) {
    let node = |(name, gpus, labels): &Machine<'_>| NodeSpec {
        name: (*name).into(),
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        capacity: Amounts::from([(GPU.into(), *gpus), ("pods".into(), 110), ("cpu".into(), 1_000_000)]),
        ..NodeSpec::default()
    };
    let nodes = all.iter().map(node).collect();
    f.agents.get_mut(&ClusterName::from(cluster)).unwrap().apply(now(f.now), AgentInput::Nodes { nodes, pools: Vec::new() });
    f.settle();
}

fn queue_job(queue: &str, name: &str, pods: u32) -> Value {
    job("default", name, pods, &json!({"kueue.x-k8s.io/queue-name": queue}), "")
}

fn send(f: &mut Fleet, job: Value) -> Uid {
    let uid = match f.apply(vec![job]) {
        Reply::Written(written) => written[0].uid,
        other => panic!("not submitted: {other:?}"),
    };
    f.settle();
    uid
}

/// One promise, as it is read from the words.
#[derive(Clone, Debug)]
enum Claim {
    /// Nominal quotas by flavor and resource, with the kind that it counts as.
    Raise(&'static str, Vec<(String, String, i64)>),
    End(&'static str, String),
    Delete(String),
    /// Words without numbers.
    Do(&'static str),
    /// Two of them together.
    Both(Box<Claim>, Box<Claim>),
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn number(text: &str) -> i64 {
    text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

fn job_name(text: &str) -> String {
    quoted(text)[0].strip_prefix("default/").unwrap().to_owned()
}

fn raise(text: &str) -> Option<Claim> {
    let (_, rest) = text.split_once("raise the queue's nominal quota of ")?;
    let one = |part: &str| {
        let names = quoted(part);
        (names[1].to_owned(), names[0].to_owned(), number(part.rsplit_once("` to ").unwrap().1))
    };
    let (quotas, rivals) = rest.split_once(", which is enough for ").map_or((rest, false), |(quotas, _)| (quotas, true));
    let quotas = quotas.split(", or ask for less").next().unwrap();
    let all: Vec<_> = quotas.split(" and of ").flat_map(|part| part.split(", and of ")).map(|part| one(part.trim_end_matches(','))).collect();
    let kind = match (all.len(), rivals) {
        (1, false) => "raise",
        (1, true) => "raise before rivals",
        (_, false) => "raise several",
        (_, true) => "raise several before rivals",
    };
    Some(Claim::Raise(kind, all))
}

/// What is promised without conditions.
const PLAIN: &[&str] = &[
    "uncordon it",
    "start or join its agent",
    "add it to the queue's MultiKueueConfig",
    "or a higher cap",
    "set the stopPolicy of",
    "create local queue",
    "create cluster queue",
    "create resource flavor",
    "namespaceSelector",
    "to a resource group",
    "add a flavor whose labels and taints fit",
    "meridian resume job",
    "other nodes there",
    "the end of a workload there",
    "the end of several workloads there",
    "it is asked again after a while",
    "a submission that doesn't narrow its regions",
];

fn at_cluster(text: &str) -> Option<Claim> {
    if text.contains("the end of `") && text.contains("` there") {
        let (_, rest) = text.split_once("the end of ").unwrap();
        return Some(Claim::End("end of one there", job_name(rest)));
    }
    PLAIN.iter().find(|plain| text.contains(**plain)).map(|plain| Claim::Do(plain))
}

/// Every promise of a text; the text is used up by them.
fn claims(helps: &str) -> Vec<Claim> {
    let (helps, rest) = helps.split_once("; and besides, at ").unwrap_or((helps, ""));
    let (besides, alone) = rest.split_once("; the end of").map_or((rest, String::new()), |(besides, alone)| (besides, format!("the end of{alone}")));
    let besides = Some(besides).filter(|besides| !besides.is_empty()).and_then(at_cluster);
    let conditional = helps.contains("may take it first");
    let mut found = Vec::new();
    for part in helps.split("; ").chain(Some(&*alone).filter(|alone| !alone.is_empty())) {
        let claim = if part.contains("alone would do") {
            Some(if part.starts_with("the end of") { Claim::End("end of one", job_name(part)) } else { Claim::Delete(job_name(part)) })
        } else {
            raise(part).or_else(|| at_cluster(part).filter(|_| !conditional))
        };
        found.extend(claim.map(|claim| match &besides {
            Some(other) if matches!(claim, Claim::Raise(..)) => Claim::Both(Box::new(claim), Box::new(other.clone())),
            _ => claim,
        }));
    }
    found
}

impl Claim {
    fn kind(&self) -> String {
        match self {
            Self::Raise(kind, _) | Self::End(kind, _) | Self::Do(kind) => (*kind).to_owned(),
            Self::Delete(_) => "deletion of the head".to_owned(),
            Self::Both(..) => "quota and room".to_owned(),
        }
    }

    /// Others may come first, and take the room.
    fn has_rivals(&self) -> bool {
        match self {
            Self::Raise(kind, _) => kind.contains("rivals"),
            Self::Both(one, _) => one.has_rivals(),
            Self::End(..) | Self::Delete(_) | Self::Do(_) => false,
        }
    }

    /// Makes the change.
    fn make(&self, story: &mut Story) {
        match self {
            Self::Raise(_, quotas) => {
                let mut queue = story.object("ClusterQueue", &story.queue());
                for (flavor, resource, to) in quotas {
                    let groups = queue["spec"]["resourceGroups"].as_array_mut().unwrap().iter_mut();
                    let flavors = groups.flat_map(|group| group["flavors"].as_array_mut().unwrap()).filter(|f| f["name"] == **flavor);
                    for quota in flavors.flat_map(|f| f["resources"].as_array_mut().unwrap()).filter(|r| r["name"] == **resource) {
                        let to = if resource == "cpu" { json!(format!("{to}m")) } else { json!(to) };
                        quota["nominalQuota"] = to;
                    }
                }
                story.objects.push(queue.clone());
                story.f.apply(vec![queue]);
            }
            Self::End(_, name) => story.end(name),
            Self::Delete(name) => drop(story.f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", name), uid: None }])),
            Self::Both(one, other) => {
                one.make(story);
                other.make(story);
            }
            Self::Do(what) => story.follow(what),
        }
    }
}

impl Story {
    fn follow(&mut self, what: &str) {
        let queue = self.queue();
        let change = |object: Value, at: &str, field: &str, value: Value| {
            let mut object = object;
            *object.pointer_mut(at).unwrap_or_else(|| panic!("{at}")).as_object_mut().unwrap().entry(field.to_owned()).or_insert(Value::Null) = value;
            object
        };
        let eu = || json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "eu"}, "spec": {"region": "europe-west4", "jurisdiction": "EU"}});
        let object = match what {
            "uncordon it" => {
                self.f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
                self.f.input(Input::Turn);
                return;
            }
            "start or join its agent" => {
                self.f.cut.clear();
                let us: ClusterName = "us".into();
                if self.f.world.state.catalog.cluster(&us).is_some() {
                    self.f.add_agent("us", 2_000);
                    nodes(&mut self.f, "us", &[("us-1", 64, &[])]);
                }
                return;
            }
            "meridian resume job" => return self.f.resume(self.uid),
            "it is asked again after a while" => return,
            "other nodes there" => return nodes(&mut self.f, "eu", &[("eu-1", 64, &[])]),
            "the end of a workload there" | "the end of several workloads there" => {
                let all: Vec<Uid> = self.f.running.iter().map(|(_, uid)| *uid).collect();
                let several = what.contains("several");
                return all.into_iter().take(if several { usize::MAX } else { 1 }).for_each(|uid| self.f.end(uid, EndResult::Succeeded));
            }
            "a submission that doesn't narrow its regions" => {
                self.f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "asks"), uid: None }]);
                self.uid = send(&mut self.f, queue_job("a", "asks", 2));
                return;
            }
            "or a higher cap" => eu(),
            "add it to the queue's MultiKueueConfig" => change(self.object("MultiKueueConfig", "some"), "/spec", "clusters", json!(["us", "eu"])),
            "create local queue" => self.object("LocalQueue", "a"),
            "create cluster queue" => self.object("ClusterQueue", &queue),
            "create resource flavor" => json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "rare"}}),
            "namespaceSelector" => change(self.object("ClusterQueue", &queue), "/spec", "namespaceSelector", json!({})),
            "to a resource group" => change(self.object("ClusterQueue", &queue), "/spec", "resourceGroups", group(&[(GPU, json!(8)), ("cpu", json!(8))])),
            "set the stopPolicy of" => {
                let all = [self.object("ClusterQueue", &queue), self.object("LocalQueue", "a")];
                self.f.apply(all.into_iter().map(|object| change(object, "/spec", "stopPolicy", json!("None"))).collect());
                return;
            }
            "add a flavor whose labels and taints fit" => {
                let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "other"}, "spec": {"nodeLabels": {"pool": "b"}}});
                let mut queue = self.object("ClusterQueue", &queue);
                let flavors = queue["spec"]["resourceGroups"][0]["flavors"].as_array_mut().unwrap();
                flavors.push(json!({"name": "other", "resources": [{"name": GPU, "nominalQuota": 8}]}));
                self.f.apply(vec![flavor]);
                queue
            }
            other => panic!("nobody knows how to follow `{other}`"),
        };
        self.f.apply(vec![object]);
    }
}

/// One resource group of the flavor `any`.
fn group(quotas: &[(&str, Value)]) -> Value {
    let resources: Vec<Value> = quotas.iter().map(|(name, nominal)| json!({"name": name, "nominalQuota": nominal})).collect();
    let covered: Vec<&str> = quotas.iter().map(|(name, _)| *name).collect();
    json!([{"coveredResources": covered, "flavors": [{"name": "any", "resources": resources}]}])
}

/// Two teams that share, with limits; some run, some wait before the one that asks.
fn quota(dice: &mut Dice) -> Story {
    let limits = [json!(null), json!(0), json!(2)];
    let roomy = dice.roll(3) > 0;
    let with_limits = |dice: &mut Dice, name: &str, more: &Value| {
        let nominal = dice.roll(5);
        let mut queue = cluster_queue(name, nominal, more);
        let quota = &mut queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0];
        quota["borrowingLimit"] = dice.one_of(&limits);
        quota["lendingLimit"] = dice.one_of(&limits).as_i64().map_or(Value::Null, |limit| json!(limit.min(nominal)));
        queue
    };
    let strategy = dice.one_of(&[json!("BestEffortFIFO"), json!("StrictFIFO")]);
    let more = json!({"cohortName": "all", "queueingStrategy": strategy, "preemption": {"reclaimWithinCohort": dice.one_of(&[json!("Never"), json!("Any")])}});
    let objects = vec![with_limits(dice, "team-a", &more), with_limits(dice, "team-b", &more), local_queue("a", "team-a"), local_queue("b", "team-b")];
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
    let uid = send(&mut f, asks);
    Story { f, uid, objects, roomy }
}

/// Two resources, of which one or both are short.
fn resources(dice: &mut Dice) -> Story {
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
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {GPU: 1, "cpu": 1}, "limits": {GPU: 1, "cpu": 1}});
        job
    };
    for name in ["there", "too"] {
        if dice.roll(2) == 0 {
            send(&mut f, both(name, dice.pods(2)));
        }
    }
    let uid = send(&mut f, both("asks", dice.pods(4)));
    Story { f, uid, objects, roomy: true }
}

/// Local queues that are ordered by what they used, with somebody of each waiting.
fn past_use(dice: &mut Dice) -> Story {
    let strategy = dice.one_of(&[json!("BestEffortFIFO"), json!("StrictFIFO")]);
    let mode = json!({"queueingStrategy": strategy, "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}});
    let objects = vec![cluster_queue("shared", 4, &mode), local_queue("a", "shared"), local_queue("b", "shared")];
    let mut f = sharing_fleet(64, &[], &objects, None, Some("half-life=10m,sampling=5s".parse().unwrap()));
    let used = dice.one_of(&[json!("a"), json!("b")]);
    let old = send(&mut f, queue_job(used.as_str().unwrap(), "old", 4));
    f.pass(Millis::secs(20 + dice.roll(60).unsigned_abs()));
    f.end(old, EndResult::Succeeded);
    send(&mut f, queue_job("a", "runs", 1 + dice.pods(3)));
    let first = send(&mut f, queue_job("a", "first", dice.pods(4)));
    let second = send(&mut f, queue_job("b", "second", dice.pods(4)));
    let uid = if dice.roll(2) == 0 { first } else { second };
    Story { f, uid, objects, roomy: true }
}

/// A head that can't start, and somebody behind it.
fn strict(dice: &mut Dice) -> Story {
    let nominal = 1 + dice.roll(4);
    let objects = vec![cluster_queue("strict", nominal, &json!({"queueingStrategy": "StrictFIFO"})), local_queue("a", "strict")];
    let mut f = fleet(64, &[], &objects);
    if dice.roll(2) == 0 {
        send(&mut f, queue_job("a", "there", 1));
    }
    send(&mut f, queue_job("a", "huge", u32::try_from(nominal).unwrap() + dice.pods(2)));
    if dice.roll(3) == 0 {
        send(&mut f, queue_job("a", "between", dice.pods(3)));
    }
    let uid = send(&mut f, queue_job("a", "asks", dice.pods(4)));
    Story { f, uid, objects, roomy: true }
}

/// Quota enough, and one cluster that is full.
fn room(dice: &mut Dice) -> Story {
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
    let uid = send(&mut f, asks);
    Story { f, uid, objects, roomy: true }
}

/// Something about the cluster keeps everybody out.
fn cluster(dice: &mut Dice) -> Story {
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
        1 => drop(f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("eu".into()) })),
        2 => {
            f.cut.push("eu".into());
            f.pass(Millis::secs(60));
        }
        3 => {
            let capped = json!({"region": "europe-west4", "jurisdiction": "EU", "limits": {GPU: dice.roll(2)}});
            f.apply(vec![json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "eu"}, "spec": capped})]);
        }
        4 => asks["metadata"]["annotations"] = json!({"meridian.dev/region": "us-east4"}),
        _ => asks["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {GPU: 9}, "limits": {GPU: 9}}),
    }
    let f_asks = f.apply(vec![asks.clone()]);
    let uid = match f_asks {
        Reply::Written(written) => written[0].uid,
        Reply::Rejected(_) => {
            // What no cluster could ever run is refused at once: one that was lost since could have.
            let us = json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "us"}, "spec": {"region": "us-east4", "jurisdiction": "US"}});
            f.apply(vec![us]);
            send(&mut f, asks)
        }
        other => panic!("{other:?}"),
    };
    f.settle();
    Story { f, uid, objects, roomy: true }
}

/// Something about the way to the queue, or the queue itself.
fn way(dice: &mut Dice) -> Story {
    let mut objects = vec![cluster_queue("wide", 8, &json!({})), local_queue("a", "wide")];
    let what = dice.roll(9);
    let mut asks = queue_job("a", "asks", 2);
    match what {
        0 => objects[0]["spec"]["stopPolicy"] = json!("Hold"),
        1 => objects[1]["spec"]["stopPolicy"] = json!("Hold"),
        2 => (objects[0]["spec"]["stopPolicy"], objects[1]["spec"]["stopPolicy"]) = (json!("Hold"), json!("HoldAndDrain")),
        3 => objects[0]["spec"]["resourceGroups"][0]["flavors"][0]["name"] = json!("rare"),
        4 => objects[0]["spec"]["namespaceSelector"] = json!({"matchLabels": {"team": "x"}}),
        5 => asks["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(1),
        6 => asks["spec"]["template"]["spec"]["nodeSelector"] = json!({"pool": "b"}),
        _ => {}
    }
    let mut all = objects.clone();
    all.insert(
        0,
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {"nodeLabels": {"pool": "a"}}}),
    );
    let mut f = fleet(8, &[("pool", if what == 6 { "b" } else { "a" })], &all);
    // Nothing starts yet, so that it still waits when the queue goes.
    if what > 6 {
        f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Cordon("eu".into()) });
    }
    let uid = send(&mut f, asks);
    if what > 6 {
        let key = if what == 7 { Key::namespaced(Kind::LocalQueue, "default", "a") } else { Key::global(Kind::ClusterQueue, "wide") };
        f.write(vec![Change::Delete { key, uid: None }]);
        f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Uncordon("eu".into()) });
        f.settle();
    }
    Story { f, uid, objects, roomy: true }
}

/// Taken out of its queue while it waited or ran.
fn deactivated(dice: &mut Dice) -> Story {
    let objects = vec![cluster_queue("wide", 8, &json!({})), local_queue("a", "wide")];
    let mut f = fleet(8, &[], &objects);
    f.cut.extend((dice.roll(2) == 0).then(|| "eu".into()));
    let uid = send(&mut f, queue_job("a", "asks", dice.pods(4)));
    f.stop(uid);
    f.cut.clear();
    f.pass(Millis::secs(40));
    Story { f, uid, objects, roomy: true }
}

/// Two racks of which neither has room for a gang that wants to be in one.
fn rack(dice: &mut Dice) -> Story {
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
        job["spec"]["template"]["metadata"] = json!({"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}});
        job
    };
    for name in ["one", "two"] {
        send(&mut f, near(name, 3));
    }
    let uid = send(&mut f, near("asks", 1 + dice.pods(3)));
    Story { f, uid, objects, roomy: true }
}

/// How often each kind was tried at least.
const MINIMA: &[(&str, usize)] = &[
    ("raise", 30),
    ("raise before rivals", 15),
    ("raise several", 8),
    ("raise several before rivals", 10),
    ("end of one", 15),
    ("deletion of the head", 8),
    ("end of one there", 15),
    ("the end of several workloads there", 4),
    ("quota and room", 3),
    ("uncordon it", 3),
    ("start or join its agent", 3),
    ("add it to the queue's MultiKueueConfig", 3),
    ("or a higher cap", 3),
    ("a submission that doesn't narrow its regions", 1),
    ("other nodes there", 1),
    ("set the stopPolicy of", 6),
    ("create local queue", 2),
    ("create cluster queue", 2),
    ("create resource flavor", 2),
    ("namespaceSelector", 2),
    ("to a resource group", 2),
    ("add a flavor whose labels and taints fit", 2),
    ("meridian resume job", 20),
    ("the end of a workload there", 10),
];

/// How a story comes about.
type Tell = fn(&mut Dice) -> Story;

#[test]
fn every_suggestion_starts_what_it_is_made_for() {
    let stories: &[(&str, Tell, u64)] = &[
        ("quota", quota, 10 * SEEDS),
        ("resources", resources, 2 * SEEDS),
        ("past use", past_use, SEEDS),
        ("strict", strict, SEEDS),
        ("room", room, 2 * SEEDS),
        ("cluster", cluster, SEEDS),
        ("way", way, SEEDS),
        ("deactivated", deactivated, SEEDS),
        ("rack", rack, SEEDS),
    ];
    let mut tried: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut silent = BTreeSet::new();
    for (name, tell, seeds) in stories {
        for seed in 0..*seeds {
            let before = tell(&mut Dice(seed));
            if before.f.phase(before.uid) != Some(Phase::Pending) {
                continue;
            }
            let (summary, helps) = before.f.words(before.uid);
            let mut all = claims(&helps);
            if summary.starts_with("waits: none of") {
                let by_cluster = before.f.why(before.uid)["clusters"].as_array().unwrap().clone();
                let wish = by_cluster.iter().filter_map(|cluster| at_cluster(cluster["wouldHelp"].as_str().unwrap()));
                all.extend(wish.filter(|claim| matches!(claim, Claim::Do("a submission that doesn't narrow its regions"))));
            }
            if all.is_empty() {
                silent.insert(format!("{name}: {helps}"));
            }
            for claim in all {
                let mut story = tell(&mut Dice(seed));
                if !story.roomy && claim.has_rivals() {
                    continue;
                }
                claim.make(&mut story);
                *tried.entry(claim.kind()).or_default() += 1;
                if !story.started() {
                    wrong.push(format!("{name} {seed}: {claim:?}\n   {summary}\n   {helps}\n   now: {}", story.f.words(story.uid).0));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {:?}:\n{}", wrong.len(), tried, wrong.join("\n"));
    for (kind, least) in MINIMA {
        let n = tried.get(*kind).copied().unwrap_or(0);
        assert!(n >= *least, "`{kind}` was tried {n} times, at least {least} are wanted: {tried:?}\nno promise: {silent:#?}");
    }
}
