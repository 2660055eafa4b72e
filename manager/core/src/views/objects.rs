//! Objects as readers see them: what people wrote, with a status of what is.

use crate::capacity::readiness;
use crate::facts::key::Key;
use crate::facts::outcome::Bodies;
use crate::facts::submission::Class;
use crate::state::catalog::Stored;
use crate::state::workload::Workload;
use crate::views::{format, statuses};
use crate::world::World;
use meridian_objects::{Kind, Spec};
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::protocol::RunnerKind;
use meridian_shared::time::Now;
use serde_json::{Map, Value, json};

impl World {
    /// Every key that a list shows, for readers that start anew.
    pub fn keys(&self) -> Vec<Key> {
        let jobs = self.state.workloads().values().flat_map(|w| [w.key(), workload_key(w)]);
        self.state.catalog().iter().map(|(k, _)| k.clone()).chain(jobs).collect()
    }

    /// The keys of what a workload is seen in: its job, itself, and its queues.
    pub fn keys_of(&self, uid: Uid) -> Vec<Key> {
        let Some(workload) = self.state.workloads().get(&uid) else { return Vec::new() };
        [workload.key(), workload_key(workload)]
            .into_iter()
            .chain(self.queue_keys(self.queues.class(workload.class())))
            .collect()
    }

    /// The keys of the queues that a class waits in.
    pub fn queue_keys(&self, class: &Class) -> impl Iterator<Item = Key> {
        let local = Key {
            scope: None,
            kind: Kind::LocalQueue,
            namespace: Some(class.namespace.clone()),
            name: class.queue.clone(),
        };
        let queue = self.state.catalog().local_queue(&class.namespace, &class.queue);
        std::iter::once(local).chain(queue.map(|queue| Key::global(Kind::ClusterQueue, &queue.cluster_queue)))
    }

    /// One object with its status, in the storage version; `None` when it is gone.
    pub fn render(&self, key: &Key, bodies: &dyn Bodies, now: Now) -> Option<Value> {
        match key.kind {
            Kind::Job => {
                let uid = self.uid_of(key.namespace.as_deref()?, &key.name)?;
                let shown = self.shown(uid)?;
                let keeps = self.pending_reason(shown.class().0);
                Some(shown.job(serde_json::from_str(&bodies.body(shown.body())?).ok()?, keeps.as_ref()))
            }
            Kind::Workload => {
                let (uid, workload) = self.workload_at(key)?;
                let keeps = self.pending_reason(workload.class());
                Some(self.shown(uid)?.workload(keeps.as_ref()))
            }
            _ => self.state.catalog().get(key).map(|stored| render_stored(self, key, stored, now)),
        }
    }

    /// The workload behind the name of Kueue's object.
    pub fn workload_at(&self, key: &Key) -> Option<(Uid, &Workload)> {
        // Its name is made from its job's, so that nothing has to be searched.
        let job = key.name.strip_prefix("job-")?.rsplit_once('-')?.0;
        let uid = self.uid_of(key.namespace.as_deref()?, job)?;
        let workload = &self.state.workloads()[&uid];
        (format::workload_name(workload.name(), workload.submitted()) == key.name).then_some((uid, workload))
    }
}

fn workload_key(w: &Workload) -> Key {
    Key {
        scope: None,
        kind: Kind::Workload,
        namespace: Some(w.namespace().clone()),
        name: format::workload_name(w.name(), w.submitted()),
    }
}

fn render_stored(world: &World, key: &Key, stored: &Stored, now: Now) -> Value {
    let mut value = stored.object.stored.clone();
    let metadata = format::metadata(&mut value);
    metadata.insert("uid".into(), json!(stored.uid.to_string()));
    let counts =
        matches!(key.kind, Kind::ClusterQueue | Kind::LocalQueue | Kind::Cohort) && key.scope.is_none();
    let version = statuses::status_version(world, key).filter(|_| counts).unwrap_or(stored.changed);
    metadata.insert("resourceVersion".into(), json!(version.to_string()));
    metadata.insert("generation".into(), json!(stored.generation));
    metadata.insert("creationTimestamp".into(), json!(format::timestamp(stored.created)));
    if let Some(scope) = &key.scope {
        metadata.entry("labels").or_insert_with(|| json!({}))[meridian_objects::job::CLUSTER_LABEL] =
            json!(scope.as_str());
    }
    let status = match &stored.object.spec {
        Spec::ClusterQueue(spec) if key.scope.is_none() => {
            Some(statuses::cluster_queue_status(world, &key.name, spec, stored.created))
        }
        Spec::LocalQueue(spec) => Some(statuses::local_queue_status(world, key, spec, stored.created)),
        Spec::Cohort(_) => statuses::cohort_status(world, &key.name),
        Spec::Cluster(_) => Some(cluster_status(world, &ClusterName::new(&key.name), now)),
        Spec::MultiKueueCluster(_) => {
            let live = world.live.clusters.contains_key(&ClusterName::new(&key.name));
            Some(format::condition(
                "Active",
                live,
                if live { "Active" } else { "NotConnected" },
                if live { "Connected" } else { "no agent of this name is connected" },
                stored.created,
            ))
        }
        Spec::AdmissionCheck(spec) => {
            Some(statuses::admission_check_activity(world, spec).condition(stored.created))
        }
        _ => None,
    };
    if let Some(status) = status {
        value["status"] = status;
    }
    value
}

fn cluster_status(world: &World, name: &ClusterName, now: Now) -> Value {
    let live = world.live.clusters.get(name);
    let member = world.state.members().get(name);
    let silent = live
        .is_some_and(|l| now.mono.since(l.heard) > meridian_shared::lease::silence(world.config.term_min));
    let state = match live {
        None if member.is_none() => "NeverJoined",
        None => "NotConnected",
        Some(_) if silent => "Silent",
        Some(_) if readiness::located_elsewhere(world, name).is_some() => "Quarantined",
        Some(l) if !l.inventoried => "Recovering",
        Some(_) => "Connected",
    };
    let cordoned = world.state.catalog().cluster(name).is_some_and(|c| c.cordoned);
    let mut resources = Map::new();
    for resource in live.into_iter().flat_map(|l| l.capacity.blocks()).flat_map(|b| b.capacity.keys()) {
        let rooms = &live.expect("it has blocks").capacity;
        resources
            .entry(resource.clone())
            .or_insert_with(|| json!({"capacity": rooms.capacity(resource), "free": rooms.free(resource)}));
    }
    json!({
        "state": if cordoned { format!("{state},Cordoned") } else { state.to_owned() },
        "ledger": member.map(|m| m.ledger.to_string()),
        "session": member.map(|m| m.session.to_string()),
        "workloads": world.loads.get(name).map_or(0, |l| l.len()),
        "resources": resources,
        "runner": live.map(|l| match l.capacity.runner() { RunnerKind::Simulated => "simulated", RunnerKind::Process => "process", RunnerKind::Kubernetes => "kubernetes" }),
        "enforcement": live.map(|l| if l.capacity.guarded() { "guarded: a gang ends by itself at the lapse" } else { "supervised: a gang's end at the lapse needs its agent" }),
        "silentForMs": live.map(|l| now.mono.since(l.heard).0),
    })
}
