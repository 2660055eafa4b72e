//! What users do while there are faults: submit and delete jobs, change policies and quotas, cordon and drain
//! clusters.

use crate::sim::clusters::CLUSTERS;
use crate::sim::fleet::job::{Behaviour, SimulatedJob};
use crate::sim::fleet::objects::{QUEUES, declared_queues, job_manifest};
use crate::sim::fleet::queues::PRIORITIES;
use crate::sim::fleet::tolerations::toleration_seconds;
use crate::sim::fleet::topology::TopologyRequest;
use crate::sim::random::Random;
use crate::sim::requests::request::RequestBody;
use crate::sim::world::Simulation;
use meridian_manager_core::facts::input::Operator;
use meridian_manager_core::facts::key::Key;
use meridian_objects::Kind;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::Millis;
use serde_json::json;

/// The residency policy that is applied and removed again.
pub(super) fn extra_policy() -> Key {
    Key::global(Kind::ResidencyPolicy, "extra")
}

/// The quota of a queue while it is lowered.
const LOWERED_QUOTA: i64 = 6;

impl Simulation {
    /// One random action.
    pub(crate) fn act_as_users(&mut self) {
        let roll = self.cx.random.users.below(100);
        match roll {
            0..62 => self.submit_job(),
            62..76 => self.delete_some_job(),
            76..84 => self.change_residency(),
            84..89 => self.change_quota(),
            // Shared quota changes more often, and then clusters are cordoned less often.
            89..93 if self.users.declared.shared => self.change_quota(),
            89..95 => self.cordon_or_uncordon(),
            95..97 => {
                let cluster = self.some_cluster();
                self.users.cordoned.push(cluster);
                self.cx.counters.one("drains");
                self.request(RequestBody::Operate(Operator::Drain(cluster_name(cluster))));
            }
            _ => self.submit_job(),
        }
        self.deactivate_or_activate();
        self.resize_some_job();
        self.change_some_rigid_job();
        self.change_some_priority();
    }

    fn some_cluster(&mut self) -> usize {
        let clusters = self.cx.scenario.cluster_indexes();
        *self.cx.random.users.pick(&clusters).expect("a fleet has clusters")
    }

    fn submit_job(&mut self) {
        let uid = Uid(self.cx.random.users.wide());
        let job = self.random_job();
        self.cx.name(uid, format!("{}/{}", job.namespace, job.name));
        let manifest = job_manifest(&job, job.pods);
        self.invariants.jobs.insert(uid, job);
        self.request(RequestBody::Submit { uid, manifest });
    }

    /// A random job. Properties that were added later use separate random streams, so that older draws don't
    /// change.
    fn random_job(&mut self) -> SimulatedJob {
        let random = &mut self.cx.random.users;
        let queue = *random.pick(&QUEUES).expect("not empty");
        let shared = self.users.declared.shared;
        let priority =
            if shared && random.permille(600) { random.pick(&PRIORITIES).expect("not empty").1 } else { 0 };
        let namespace = if random.permille(350) { "personal" } else { "open" };
        let pods = random.between(1, 4);
        let gpus = if pods <= 3 { random.between(1, 2) } else { 1 };
        let name = format!("job-{}", self.users.next_job());
        let duration =
            if random.permille(150) { random.between(15_000, 40_000) } else { random.between(300, 9_000) };
        let (startup, succeeds) = (Millis(random.between(0, 1_500)), random.permille(850));
        let pods = usize::try_from(pods).expect("few pods");
        let gpus = i64::try_from(gpus).expect("few accelerators");
        let total_gpus = gpus * i64::try_from(pods).expect("few pods");
        let scenario = &self.cx.scenario;
        let min_pods = random_min_pods(scenario.seed, &name, pods);
        self.cx.counters.add("jobs with partial admission", u64::from(min_pods.is_some()));
        let mut elastic = Random::new(scenario.seed, &format!("elastic {name}"));
        let is_elastic = pods > 1 && min_pods.is_none() && elastic.permille(400);
        SimulatedJob {
            namespace: namespace.into(),
            queue: queue.name.into(),
            pods,
            min_pods,
            elastic: is_elastic,
            sizes: if is_elastic { vec![pods] } else { Vec::new() },
            gpus,
            behaviour: Behaviour {
                startup,
                duration: Millis(duration),
                succeeds,
                early_exits: random_early_exits(scenario.seed, &name, pods, duration),
            },
            term: queue.term,
            on_loss: queue.on_loss,
            deadline: random_deadline(scenario.seed, &name, startup + Millis(duration)),
            priority,
            topology: TopologyRequest::of(scenario, &name, total_gpus),
            tolerates: toleration_seconds(scenario, &name),
            name,
        }
    }

    fn delete_some_job(&mut self) {
        let candidates: Vec<Uid> = self.invariants.submissions.without_deletion();
        let Some(uid) = self.cx.random.users.pick(&candidates).copied() else { return };
        let job = &self.invariants.jobs[&uid];
        let (namespace, name) = (job.namespace.clone(), job.name.clone());
        self.invariants.submissions.send_deletion(uid);
        self.request(RequestBody::Delete { uid, namespace, name });
    }

    /// Applies an additional residency policy, or removes it again.
    fn change_residency(&mut self) {
        if self.users.tightened {
            self.users.tightened = false;
            return self.request(RequestBody::Remove(extra_policy()));
        }
        // Never both clusters of the EU: a job that is bound to the EU must stay feasible.
        let candidates: Vec<&str> = CLUSTERS[1..3].iter().map(|cluster| cluster.0).collect();
        let denied = *self.cx.random.users.pick(&candidates).expect("not empty");
        let everywhere = self.cx.random.users.permille(500);
        let applies = if everywhere { json!({}) } else { json!({"namespaces": ["open"]}) };
        self.users.tightened = true;
        self.cx.counters.one("policies tightened");
        let stream = format!("flags {}", self.cx.counters.get("policies tightened"));
        let flags = Random::new(self.cx.scenario.seed, &stream).permille(300);
        self.cx.counters.add("policies that only flag", u64::from(flags));
        let policy = json!({
            "apiVersion": "meridian.dev/v1alpha1", "kind": "ResidencyPolicy", "metadata": {"name": "extra"},
            "spec": {
                "applies": applies, "deny": {"clusters": [denied]},
                "onChange": if flags { "Flag" } else { "Evict" },
            },
        });
        self.request(RequestBody::Apply(vec![policy]));
    }

    fn change_quota(&mut self) {
        let random = &mut self.cx.random.users;
        let objects = if self.users.declared.shared {
            let objects = self.users.declared.change(random, self.cx.scenario.fair);
            self.cx.counters.one("forest changes");
            objects
        } else {
            let queue = *random.pick(&QUEUES).expect("not empty");
            let quota = if self.users.lowered { queue.quota } else { LOWERED_QUOTA };
            self.users.lowered = !self.users.lowered;
            self.cx.counters.one("quota changes");
            self.users.declared.set_quota(queue.name, quota)
        };
        self.request(RequestBody::Apply(objects));
    }

    fn cordon_or_uncordon(&mut self) {
        let action = match self.users.cordoned.pop() {
            Some(cluster) => Operator::Uncordon(cluster_name(cluster)),
            None => {
                let cluster = self.some_cluster();
                self.users.cordoned.push(cluster);
                Operator::Cordon(cluster_name(cluster))
            }
        };
        self.cx.counters.one("cordons");
        self.request(RequestBody::Operate(action));
    }

    /// Restores everything that jobs need to end.
    pub(crate) fn restore_declarations(&mut self) {
        for cluster in self.cx.scenario.cluster_indexes() {
            self.request(RequestBody::Operate(Operator::Uncordon(cluster_name(cluster))));
        }
        self.users.declared = declared_queues(&self.cx.scenario);
        let quotas = self.users.declared.changeable();
        self.request(RequestBody::Apply(quotas));
        self.request(RequestBody::Remove(extra_policy()));
        self.activate_most();
    }
}

fn cluster_name(cluster: usize) -> ClusterName {
    ClusterName::new(CLUSTERS[cluster].0)
}

/// Fewest pods of a job with partial admission.
fn random_min_pods(seed: u64, job: &str, pods: usize) -> Option<usize> {
    let mut random = Random::new(seed, &format!("least {job}"));
    (pods > 1 && random.permille(200)).then(|| 1 + random.index(pods - 1))
}

/// When pods exit before the others, soonest first.
fn random_early_exits(seed: u64, job: &str, pods: usize, duration: u64) -> Vec<Millis> {
    let mut random = Random::new(seed, &format!("early {job}"));
    let mut exits: Vec<Millis> = if random.permille(400) {
        (1..pods).map(|_| Millis(random.between(0, duration))).collect()
    } else {
        Vec::new()
    };
    exits.sort_unstable();
    exits
}

/// A deadline that an attempt reaches only if it is moved again and again, and that two attempts together
/// often reach.
fn random_deadline(seed: u64, job: &str, needs: Millis) -> Option<Millis> {
    let mut random = Random::new(seed, &format!("deadline {job}"));
    let slack = random.between(5, 20);
    random.permille(300).then(|| Millis::secs(needs.0.div_ceil(1_000) + slack))
}
