//! Renders objects for the API: the spec that users wrote, with a status.

use crate::asker::Asker;
use crate::{fields, statuses, workloads};
use meridian_manager_core::capacity::readiness;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::Bodies;
use meridian_manager_core::state::catalog::Stored;
use meridian_manager_core::world::World;
use meridian_objects::{Kind, Spec, any_job};
use meridian_placement::cluster_capacity::ClusterCapacity;
use meridian_shared::ids::ClusterName;
use meridian_shared::packing::Block;
use meridian_shared::protocol::{HoldMethod, RunnerKind};
use meridian_shared::time::Now;
use meridian_shared::timestamp::timestamp;
use serde_json::{Map, Value, json};

/// One object with its status, in the storage version, without names of workloads that `asker` may not read.
/// `None` if it doesn't exist.
pub fn render(world: &World, key: &Key, bodies: &dyn Bodies, now: Now, asker: &Asker) -> Option<Value> {
    match key.kind {
        any_job!() => {
            let uid = world.uid_of(key.kind, key.namespace.as_deref()?, &key.name)?;
            let shown = workloads::shown(world, uid, now.mono)?;
            let reason = world.pending_reason(shown.class().0);
            let manifest = bodies.body(shown.body()).and_then(|body| serde_json::from_str(&body).ok());
            Some(match manifest {
                Some(manifest) => shown.job(manifest, reason.as_ref(), asker),
                None => shown.job_without_manifest(reason.as_ref(), asker),
            })
        }
        Kind::Workload => {
            let (uid, workload) = world.workload_at(key)?;
            let reason = world.pending_reason(workload.class());
            Some(workloads::shown(world, uid, now.mono)?.workload(reason.as_ref(), asker))
        }
        _ => stored(world, key, now),
    }
}

/// An object that is neither a job nor a workload, so that its texts name no workload. `None` if it doesn't
/// exist.
pub fn stored(world: &World, key: &Key, now: Now) -> Option<Value> {
    world.state().catalog().get(key).map(|stored| render_stored(world, key, stored, now))
}

fn render_stored(world: &World, key: &Key, stored: &Stored, now: Now) -> Value {
    let mut value = stored.object.stored.clone();
    let metadata = fields::metadata(&mut value);
    metadata.insert("uid".into(), json!(stored.uid.to_string()));
    let has_counts =
        matches!(key.kind, Kind::ClusterQueue | Kind::LocalQueue | Kind::Cohort) && key.scope.is_none();
    let version = statuses::status_version(world, key).filter(|_| has_counts).unwrap_or(stored.changed);
    metadata.insert("resourceVersion".into(), json!(version.to_string()));
    metadata.insert("generation".into(), json!(stored.generation));
    metadata.insert("creationTimestamp".into(), json!(timestamp(stored.created)));
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
            let live = world.live().clusters().contains_key(&ClusterName::new(&key.name));
            Some(fields::condition(
                "Active",
                live,
                if live { "Active" } else { "NotConnected" },
                if live { "Connected" } else { "its agent isn't connected" },
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

/// Nodes that the pools of a cluster can still provide, one entry per kind of node.
fn provisionable(capacity: &ClusterCapacity) -> Vec<Value> {
    let (_, blocks) = capacity.machines();
    let entry =
        |block: &Block| json!({"nodes": block.nodes, "resources": block.capacity, "labels": block.labels});
    blocks.iter().map(entry).collect()
}

fn cluster_status(world: &World, name: &ClusterName, now: Now) -> Value {
    let live = world.live().cluster(name);
    let member = world.state().members().get(name);
    let is_disconnected = live.is_some_and(|l| {
        now.mono.since(l.heard()) > meridian_shared::lease::disconnect_after(world.config().term_min)
    });
    let state = match live {
        None if member.is_none() => "NeverJoined",
        None => "NotConnected",
        Some(_) if is_disconnected => "Disconnected",
        Some(_) if readiness::located_elsewhere(world, name).is_some() => "Quarantined",
        Some(l) if !l.inventory().is_taken() => "Recovering",
        Some(_) => "Connected",
    };
    let cordoned = world.state().catalog().cluster(name).is_some_and(|c| c.cordoned);
    let mut resources = Map::new();
    for resource in live.into_iter().flat_map(|l| l.capacity().blocks()).flat_map(|b| b.capacity.keys()) {
        let capacity = live.expect("it has blocks").capacity();
        resources.entry(resource.clone()).or_insert_with(
            || json!({"capacity": capacity.capacity(resource), "free": capacity.free(resource)}),
        );
    }
    json!({
        "state": if cordoned { format!("{state},Cordoned") } else { state.to_owned() },
        "ledger": member.map(|m| m.ledger().to_string()),
        "session": member.map(|m| m.session().to_string()),
        "certificates": {
            "valid": world.state().valid_certificates(name),
            "adoptedAbove": world.state().adopts_certificates_above(name),
        },
        "workloads": world.loads().get(name).map_or(0, |l| l.len()),
        "resources": resources,
        "provisionable": live.map(|l| provisionable(l.capacity())),
        "runner": live.map(|l| match l.capacity().runner() {
            RunnerKind::Simulated => "simulated",
            RunnerKind::Process => "process",
            RunnerKind::Kubernetes => "kubernetes",
        }),
        "enforcement": live.map(|l| if l.capacity().guarded() {
            "guarded: a gang stops by itself when its lease expires"
        } else {
            "supervised: only a running agent stops a gang when its lease expires"
        }),
        "holds": live.map(|l| match l.capacity().holds() {
            HoldMethod::Ledger => "ledger: only the agent places pods on its nodes",
            HoldMethod::Placeholders => "placeholders: pods of low priority hold the capacity for a gang",
            HoldMethod::Kueue => "kueue: the cluster's own Kueue admits each gang",
        }),
        "sinceLastSyncMs": live.map(|l| now.mono.since(l.heard()).0),
    })
}
