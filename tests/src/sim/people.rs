//! What people do: the objects of the fleet, jobs, and changes of rules at any moment.
//!
//! Every request is repeated until it is answered; what was answered must be remembered (P1).

use super::Sim;
use super::activity::Activity;
use super::chance::Chance;
use super::elastic::Sizes;
use super::nearness::Near;
use super::oracle::{Job, Oracle};
use super::plan::Plan;
use super::queues::{Declared, PRIORITIES};
use super::runner::Behaviour;
use super::staying;
use meridian_manager_core::World;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::input::{Change, Input, Operator, PutMode, Write};
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::{Rejection, RejectionReason, Reply, WriteResult};
use meridian_objects::{Kind, Object};
use meridian_shared::ids::{ClusterName, ContentHash, Uid};
use meridian_shared::protocol::OnLoss;
use meridian_shared::time::Millis;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The accelerator that everything is about.
pub(super) const GPU: &str = "nvidia.com/gpu";
/// Name, region, jurisdiction.
pub(super) const PLACES: [(&str, &str, &str); 5] = [
    ("eu", "europe-west4", "EU"),
    ("us", "us-east4", "US"),
    ("asia", "asia-southeast1", "SG"),
    ("north", "europe-north1", "EU"),
    ("liar", "us-west1", "US"),
];
/// Index of the cluster that joins late, and of the one that lies.
pub(super) const LATE: usize = 3;
/// See [`LATE`].
pub(super) const LIAR: usize = 4;
/// Queue, its usual quota, its policy's mode, loss mode and term in seconds.
const QUEUES: [(&str, i64, &str, &str, u64, &str); 3] = [
    ("race", 12, "Race", "Fence", 8, "BestEffortFIFO"),
    ("direct", 8, "Direct", "Fence", 12, "StrictFIFO"),
    ("wait", 8, "Race", "Wait", 8, "BestEffortFIFO"),
];
/// Longest term of any queue.
pub(super) const TERM_LONGEST: Millis = Millis::secs(12);
/// How long a request waits for its answer before it is repeated.
const ANSWER_MS: u64 = 3_000;

/// What one request wants.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    /// Objects are as these.
    Objects(Vec<Value>),
    /// An object is gone.
    Remove(Key),
    /// A job is submitted.
    Submit { uid: Uid, manifest: Value },
    /// A job is deleted.
    Delete { uid: Uid, namespace: String, name: String },
    /// A job's workload is in the queue, or isn't.
    Activity { uid: Uid, namespace: String, name: String, active: bool },
    /// A job has another number of pods.
    Resize { uid: Uid, pods: usize, manifest: Value },
    /// An operator acts.
    Operate(Operator),
}

/// One request under way.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// What it wants.
    pub(super) wish: Wish,
    /// How often it was sent.
    pub(super) tries: u32,
}

/// Everybody outside.
#[derive(Debug, Default)]
pub(super) struct People {
    /// Requests that wait for an answer.
    pub(super) requests: BTreeMap<u64, Request>,
    next_request: u64,
    next_job: u64,
    /// What the newest answered change of an object said; `None` while it is unknown.
    pub(super) rules: BTreeMap<Key, Option<Value>>,
    /// Objects of which a change was sent twice.
    repeated: BTreeSet<Key>,
    /// The newest request about an object.
    newest: BTreeMap<Key, u64>,
    /// Which workloads were stopped and resumed.
    pub(super) activity: Activity,
    /// Which jobs were given other numbers of pods.
    pub(super) sizes: Sizes,
    /// Clusters that were cordoned.
    pub(super) cordoned: Vec<usize>,
    /// Whether the extra rule stands.
    pub(super) tightened: bool,
    /// Whether a quota was lowered.
    pub(super) lowered: bool,
    /// Queues and cohorts as they should be.
    pub(super) declared: Declared,
}

impl People {
    /// Nobody has done anything yet.
    pub(super) fn of(declared: Declared) -> Self {
        Self { declared, ..Self::default() }
    }

    /// An older copy of the journal took over. Whoever had sent a job that ran by then and waits for an answer doesn't send it again: to
    /// the copy it would be another job, with a uid of its own, beside an orphan of the same name (simulation seed 6008684).
    pub(super) fn history_is_gone(&mut self, world: Option<&World>, oracle: &Oracle) {
        let known = |uid: &Uid| world.is_some_and(|world| world.state.workloads.contains_key(uid));
        self.requests.retain(|_, request| !matches!(&request.wish, Wish::Submit { uid, .. } if oracle.was_granted(*uid) && !known(uid)));
    }
}

/// The object of a manifest.
pub(super) fn object(manifest: &Value) -> Box<Object> {
    Box::new(Object::from_value(manifest.clone()).expect("the simulation's own objects are right").0)
}

pub(super) fn key_of(manifest: &Value) -> Key {
    let object = object(manifest);
    let namespace = object.namespace_or_default().map(std::sync::Arc::from);
    Key { scope: None, kind: object.kind, namespace, name: std::sync::Arc::from(object.name.as_str()) }
}

/// What a plan declares about queues.
pub(super) fn declared(plan: &Plan) -> Declared {
    Declared::of(plan, &QUEUES.map(|(name, quota, _, _, _, strategy)| (name, quota, strategy)))
}

fn cluster(place: usize, limit: Option<i64>) -> Value {
    let (name, region, jurisdiction) = PLACES[place];
    let limits = limit.map_or_else(|| json!({}), |limit| json!({GPU: limit.to_string()}));
    let spec = json!({"region": region, "jurisdiction": jurisdiction, "limits": limits});
    json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec})
}

fn policies() -> Vec<Value> {
    let mut all: Vec<Value> = QUEUES
        .iter()
        .map(|(name, _, mode, loss, term, _)| {
            json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "DispatchPolicy", "metadata": {"name": name}, "spec": {
                "applies": {"queues": [name]}, "mode": mode, "onClusterLoss": {"mode": loss, "term": format!("{term}s"), "requires": "Supervised"}, "startTimeout": "15s"}})
        })
        .collect();
    all.push(json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "eu-only"}, "spec": {
        "applies": {"namespaceSelector": {"matchLabels": {"data": "personal"}}}, "allow": {"jurisdictions": ["EU"]}, "onChange": "Evict"}}));
    all
}

/// Everything that a fleet needs before its first job.
pub(super) fn fleet(declared: &Declared, places: &[usize]) -> Vec<Value> {
    let mut all = declared.manifests();
    all.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "personal", "labels": {"data": "personal"}}}));
    for name in declared.names() {
        for namespace in ["open", "personal"] {
            all.push(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": name}}));
        }
    }
    all.extend(policies());
    all.extend(places.iter().map(|p| cluster(*p, declared.limits[*p])));
    all
}

/// A job as its submitter wrote it.
pub(super) fn manifest_of(job: &Job, pods: usize) -> Value {
    let Job { name, namespace, queue, least, gpus, priority, sizes, near, tolerates, .. } = job;
    let mut labels = json!({"kueue.x-k8s.io/queue-name": queue});
    if let Some((class, _)) = PRIORITIES.iter().find(|(_, value)| value == priority) {
        labels["kueue.x-k8s.io/priority-class"] = json!(class);
    }
    let mut annotations = least
        .map_or_else(|| json!({}), |least| json!({"kueue.x-k8s.io/job-min-parallelism": least.to_string()}));
    if !sizes.is_empty() {
        annotations["kueue.x-k8s.io/elastic-job"] = json!("true");
    }
    let mode = if sizes.is_empty() { "NonIndexed" } else { "Indexed" };
    let wish = near.map_or_else(|| json!({}), Near::annotations);
    let mut manifest = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations},
        "spec": {"parallelism": pods, "completions": pods, "completionMode": mode, "suspend": true,
            "template": {"metadata": {"annotations": wish}, "spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "secret-image", "command": ["work"], "resources": {"requests": {GPU: gpus}, "limits": {GPU: gpus}}}]}}},
    });
    if !tolerates.is_empty() {
        manifest["spec"]["template"]["spec"]["tolerations"] = staying::tolerations(tolerates);
    }
    manifest
}

/// The same for whoever gives an orphan its job back, of the size that it was granted with.
pub(super) fn written_job(job: &Job, uid: Uid, granted: ContentHash) -> Box<Object> {
    let of_size = |pods: &usize| object(&manifest_of(job, *pods));
    let is_granted = |object: &Object| {
        let mut manifest = object.stored.clone();
        manifest["metadata"]["uid"] = json!(uid.to_string());
        ContentHash::of(manifest.to_string().as_bytes()) == granted
    };
    job.sizes.iter().map(of_size).find(|object| is_granted(object)).unwrap_or_else(|| of_size(&job.pods))
}

impl Sim {
    /// One more thing that people do.
    pub(super) fn people_act(&mut self) {
        let roll = self.chance.people.below(100);
        match roll {
            0..62 => self.submit(),
            62..76 => self.delete_one(),
            76..84 => self.change_residency(),
            84..89 => self.change_quota(),
            // Where quota is shared it changes more often, and less is cordoned.
            89..93 if self.people.declared.shared => self.change_quota(),
            89..95 => self.cordon_or_not(),
            95..97 => {
                let place = self.some_place();
                self.people.cordoned.push(place);
                self.counters.one("drains");
                self.ask(Wish::Operate(Operator::Drain(ClusterName::new(PLACES[place].0))));
            }
            _ => self.submit(),
        }
        self.stop_or_resume();
        self.resize_one();
        self.revalue_one();
    }

    fn some_place(&mut self) -> usize {
        let places = self.places();
        *self.chance.people.pick(&places).expect("a fleet has clusters")
    }

    fn submit(&mut self) {
        let chance = &mut self.chance.people;
        let uid = Uid(chance.wide());
        let (queue, _, _, loss, term, _) = *chance.pick(&QUEUES).expect("not empty");
        let shared = self.people.declared.shared;
        let priority =
            if shared && chance.of_1000(600) { chance.pick(&PRIORITIES).expect("not empty").1 } else { 0 };
        let namespace = if chance.of_1000(350) { "personal" } else { "open" };
        let pods = chance.between(1, 4);
        let gpus = if pods <= 3 { chance.between(1, 2) } else { 1 };
        self.people.next_job += 1;
        let name = format!("job-{}", self.people.next_job);
        let duration =
            if chance.of_1000(150) { chance.between(15_000, 40_000) } else { chance.between(300, 9_000) };
        let (startup, succeeds) = (Millis(chance.between(0, 1_500)), chance.of_1000(850));
        let on_loss = if loss == "Wait" { OnLoss::Wait } else { OnLoss::Fence };
        let pods = usize::try_from(pods).expect("few pods");
        let gpus = i64::try_from(gpus).expect("few accelerators");
        // Drawn beside everything else, so that seeds stay what they were.
        let mut fewer = Chance::new(self.plan.seed, &format!("least {name}"));
        let least = (pods > 1 && fewer.of_1000(200)).then(|| 1 + fewer.index(pods - 1));
        self.counters.add("jobs that may shrink", u64::from(least.is_some()));
        let mut early = Chance::new(self.plan.seed, &format!("early {name}"));
        let mut leaves: Vec<Millis> = if early.of_1000(400) {
            (1..pods).map(|_| Millis(early.between(0, duration))).collect()
        } else {
            Vec::new()
        };
        leaves.sort_unstable();
        let elastic = pods > 1
            && least.is_none()
            && Chance::new(self.plan.seed, &format!("elastic {name}")).of_1000(400);
        let sizes = if elastic { vec![pods] } else { Vec::new() };
        let behaviour = Behaviour { startup, duration: Millis(duration), succeeds, leaves };
        let near = Near::of(&self.plan, &name, gpus * i64::try_from(pods).expect("few pods"));
        let tolerates = staying::tolerates(&self.plan, &name);
        let (namespace, queue, term) = (namespace.into(), queue.into(), Millis::secs(term));
        let job = Job {
            name,
            namespace,
            queue,
            pods,
            least,
            sizes,
            gpus,
            behaviour,
            term,
            on_loss,
            priority,
            near,
            tolerates,
        };
        let manifest = manifest_of(&job, job.pods);
        self.oracle.jobs.insert(uid, job);
        self.ask(Wish::Submit { uid, manifest });
    }

    fn delete_one(&mut self) {
        let known: Vec<Uid> = self.oracle.wanted();
        let Some(uid) = self.chance.people.pick(&known).copied() else { return };
        let job = &self.oracle.jobs[&uid];
        let (namespace, name) = (job.namespace.clone(), job.name.clone());
        self.oracle.delete_asked(uid);
        self.ask(Wish::Delete { uid, namespace, name });
    }

    fn change_residency(&mut self) {
        let key = Key::global(Kind::ResidencyPolicy, "extra");
        if self.people.tightened {
            self.people.tightened = false;
            return self.ask(Wish::Remove(key));
        }
        // Never both EU clusters: what is bound to the EU must stay feasible.
        let banned: Vec<&str> = PLACES[1..3].iter().map(|p| p.0).collect();
        let banned = *self.chance.people.pick(&banned).expect("not empty");
        let applies =
            if self.chance.people.of_1000(500) { json!({}) } else { json!({"namespaces": ["open"]}) };
        self.people.tightened = true;
        self.counters.one("policies tightened");
        // Drawn beside everything else, so that seeds stay what they were.
        let flags =
            Chance::new(self.plan.seed, &format!("flags {}", self.counters.get("policies tightened")))
                .of_1000(300);
        self.counters.add("policies that only flag", u64::from(flags));
        let rule = json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "extra"}, "spec": {
            "applies": applies, "deny": {"clusters": [banned]}, "onChange": if flags { "Flag" } else { "Evict" }}});
        self.ask(Wish::Objects(vec![rule]));
    }

    fn change_quota(&mut self) {
        if self.people.declared.shared {
            let objects = self.people.declared.change(&mut self.chance.people, self.plan.fair);
            self.counters.one("forest changes");
            return self.ask(Wish::Objects(objects));
        }
        let (name, usual, ..) = *self.chance.people.pick(&QUEUES).expect("not empty");
        let quota = if self.people.lowered { usual } else { 6 };
        self.people.lowered = !self.people.lowered;
        self.counters.one("quota changes");
        let objects = self.people.declared.lower(name, quota);
        self.ask(Wish::Objects(objects));
    }

    fn cordon_or_not(&mut self) {
        let action = match self.people.cordoned.pop() {
            Some(place) => Operator::Uncordon(ClusterName::new(PLACES[place].0)),
            None => {
                let place = self.some_place();
                self.people.cordoned.push(place);
                Operator::Cordon(ClusterName::new(PLACES[place].0))
            }
        };
        self.counters.one("cordons");
        self.ask(Wish::Operate(action));
    }

    /// Puts everything back to what lets every job end.
    pub(super) fn people_heal(&mut self) {
        for place in self.places() {
            self.ask(Wish::Operate(Operator::Uncordon(ClusterName::new(PLACES[place].0))));
        }
        self.people.declared = declared(&self.plan);
        let quotas = self.people.declared.changeable();
        self.ask(Wish::Objects(quotas));
        self.ask(Wish::Remove(Key::global(Kind::ResidencyPolicy, "extra")));
        self.resume_most();
    }

    /// Sends a request to whoever seems to lead.
    pub(super) fn ask(&mut self, wish: Wish) {
        self.people.next_request += 1;
        let id = self.people.next_request;
        for key in wish.keys() {
            self.people.newest.insert(key.clone(), id);
            self.people.rules.insert(key, None);
        }
        if let Wish::Activity { uid, active, .. } = &wish {
            self.people.activity.asked(*uid, id, *active);
        }
        if let Wish::Resize { uid, .. } = &wish {
            self.people.sizes.asked(*uid, id);
        }
        self.people.requests.insert(id, Request { wish, tries: 0 });
        self.send_request(id);
    }

    /// Sends or repeats a request.
    pub(super) fn send_request(&mut self, id: u64) {
        let Some(request) = self.people.requests.get_mut(&id) else { return };
        request.tries += 1;
        let wish = request.wish.clone();
        if request.tries > 1 {
            let keys = wish.keys();
            self.people.repeated.extend(keys);
            if let Wish::Activity { uid, .. } = &wish {
                self.people.activity.repeated(*uid);
            }
            if let Wish::Resize { uid, .. } = &wish {
                self.people.sizes.repeated(*uid);
            }
        }
        let input = self.input_of(wish);
        self.trace.say(self.now, || format!("people ask {id}: {}", self.people.requests[&id].wish));
        let at = self.now + self.chance.people.between(1, 5);
        let manager = self.chance.people.index(self.managers.len());
        self.at(at, super::Happening::Asked { manager, id, input: Box::new(input) });
        self.at(self.now + ANSWER_MS, super::Happening::Unanswered { id });
    }

    fn input_of(&mut self, wish: Wish) -> Input {
        let write = |actor, changes| Input::Write(Box::new(Write::new(actor, changes, false)));
        match wish {
            Wish::Objects(manifests) => {
                let chance = &mut self.chance.people;
                let put = |m: &Value| Change::Put {
                    object: object(m),
                    scope: None,
                    uid: Uid(chance.wide()),
                    mode: PutMode::Apply,
                };
                write(Actor::user("operator"), manifests.iter().map(put).collect())
            }
            Wish::Remove(key) => write(Actor::user("operator"), vec![Change::Delete { key, uid: None }]),
            Wish::Submit { uid, manifest } => write(
                Actor::user("submitter"),
                vec![Change::Put { object: object(&manifest), scope: None, uid, mode: PutMode::Create }],
            ),
            Wish::Delete { uid, namespace, name } => write(
                Actor::user("submitter"),
                vec![Change::Delete { key: Key::namespaced(Kind::Job, &namespace, &name), uid: Some(uid) }],
            ),
            Wish::Activity { namespace, name, active, .. } => {
                let key = Key::namespaced(Kind::Job, &namespace, &name);
                write(Actor::user("submitter"), vec![Change::SetActive { key, active, version: None }])
            }
            Wish::Resize { uid, manifest, .. } => write(
                Actor::user("submitter"),
                vec![Change::Put {
                    object: object(&manifest),
                    scope: None,
                    uid,
                    mode: PutMode::Replace(None),
                }],
            ),
            Wish::Operate(action) => Input::Operator { actor: Actor::user("operator"), action },
        }
    }

    /// An answer arrived.
    pub(super) fn answered(&mut self, id: u64, reply: &Reply) {
        let Some(request) = self.people.requests.remove(&id) else { return };
        self.trace.say(self.now, || format!("people hear {id}: {}", words(reply)));
        match (&request.wish, reply) {
            (Wish::Submit { .. }, Reply::Written(written)) => {
                for w in written
                    .iter()
                    .filter(|w| matches!(w.result, WriteResult::Created | WriteResult::Unchanged))
                {
                    self.counters.one("submissions");
                    self.oracle.acknowledged(w.uid);
                }
            }
            // A repetition finds the job of an earlier try: that is success, and the job must be remembered from now on.
            (Wish::Submit { uid, .. }, Reply::Rejected(why))
                if request.tries > 1 && is(why, RejectionReason::AlreadyExists) =>
            {
                self.oracle.acknowledged(*uid)
            }
            (Wish::Submit { .. }, Reply::Rejected(_)) => self.counters.one("submissions rejected"),
            (Wish::Delete { uid, .. }, Reply::Written(_)) => {
                self.counters.one("deletions");
                self.oracle.delete_acknowledged(*uid);
            }
            (Wish::Activity { uid, .. }, Reply::Written(_)) if !self.is_asked_about(*uid) => {
                self.people.activity.taken(*uid, id);
                self.resume_if_crossed(*uid);
            }
            (Wish::Resize { uid, pods, .. }, Reply::Written(_)) => {
                self.counters.one("sizes taken");
                if !self.is_resized(*uid) {
                    self.people.sizes.taken(*uid, id, *pods);
                }
            }
            (Wish::Resize { .. }, Reply::Rejected(_)) => self.counters.one("sizes rejected"),
            (Wish::Objects(manifests), Reply::Written(_)) => {
                for manifest in manifests {
                    let key = key_of(manifest);
                    let value = Some(manifest.clone()).filter(|_| !self.in_doubt(id, &key));
                    self.rule_is(key, value);
                }
            }
            _ => {}
        }
    }

    fn rule_is(&mut self, key: Key, manifest: Option<Value>) {
        let busy = self.people.requests.values().any(|r| r.wish.keys().contains(&key));
        self.people.rules.insert(key, manifest.filter(|_| !busy).map(|m| object(&m).stored));
    }

    /// A request that was sent more than once may arrive again after its answer, and after later ones.
    fn in_doubt(&self, id: u64, key: &Key) -> bool {
        self.people.repeated.contains(key) || self.people.newest.get(key) != Some(&id)
    }
}

impl Wish {
    /// Objects whose content this leaves in doubt until it is answered.
    fn keys(&self) -> Vec<Key> {
        match self {
            Self::Objects(manifests) => manifests.iter().map(key_of).collect(),
            Self::Remove(key) => vec![key.clone()],
            Self::Operate(Operator::Cordon(c) | Operator::Uncordon(c) | Operator::Drain(c)) => {
                vec![Key::global(Kind::Cluster, c.as_str())]
            }
            _ => Vec::new(),
        }
    }
}

impl std::fmt::Display for Wish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Objects(manifests) => {
                f.write_str("apply")?;
                manifests.iter().try_for_each(|m| write!(f, " {}", key_of(m)))
            }
            Self::Remove(key) => write!(f, "remove {key}"),
            Self::Submit { uid, manifest } => write!(
                f,
                "submit {} {} as {uid}",
                manifest["metadata"]["namespace"], manifest["metadata"]["name"]
            ),
            Self::Delete { uid, .. } => write!(f, "delete {uid}"),
            Self::Activity { uid, active, .. } => {
                write!(f, "{} {uid}", if *active { "resume" } else { "stop" })
            }
            Self::Resize { uid, pods, .. } => write!(f, "give {uid} {pods} pods"),
            Self::Operate(action) => write!(f, "{action:?}"),
        }
    }
}

fn is(why: &[Rejection], reason: RejectionReason) -> bool {
    why.iter().all(|r| r.reason == reason)
}

fn words(reply: &Reply) -> String {
    match reply {
        Reply::Written(written) => {
            written.iter().map(|w| format!("{:?}", w.result)).collect::<Vec<_>>().join(" ")
        }
        Reply::Rejected(why) => {
            format!("rejected: {}", why.iter().map(|r| r.message.clone()).collect::<Vec<_>>().join("; "))
        }
        Reply::Done(words) => words.clone(),
        other => format!("{other:?}"),
    }
}
