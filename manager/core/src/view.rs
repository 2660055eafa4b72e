//! Objects as readers see them: what people wrote, with a status of what is.

use crate::catalog::Stored;
use crate::input::{Bodies, Key};
use crate::record::Class;
use crate::{Workload, World};
use meridian_objects::{Kind, Spec};
use meridian_shared::ids::{ClusterName, RecordNumber, Uid};
use meridian_shared::protocol::RunnerKind;
use meridian_shared::time::{Now, Wall};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Kueue's name of a job's workload: `job-NAME-` and five characters that tell submissions of one name apart.
pub fn workload_name(job: &str, submitted: RecordNumber) -> Arc<str> {
    let mixed = meridian_shared::backoff::splitmix(submitted.0);
    Arc::from(format!("job-{job}-{:05x}", mixed & 0xf_ffff))
}

/// RFC 3339, in seconds, as Kubernetes writes times.
pub fn timestamp(at: Wall) -> String {
    // Civil date from days (Howard Hinnant, chrono-compatible low-level date algorithms).
    let (secs, days) = (at.0.div_euclid(1_000), at.0.div_euclid(86_400_000));
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let time = secs.rem_euclid(86_400);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3_600, time / 60 % 60, time % 60)
}

/// RFC 3339 with what is known below the second, as Kubernetes writes a `MicroTime`.
pub fn micro_timestamp(at: Wall) -> String {
    format!("{}.{:03}000Z", timestamp(at).trim_end_matches('Z'), at.0.rem_euclid(1_000))
}

impl World {
    /// Every key that a list shows, for readers that start anew.
    pub fn keys(&self) -> Vec<Key> {
        let jobs = self.state.workloads.values().flat_map(|w| [World::key_of(w), Self::workload_key(w)]);
        self.state.catalog.iter().map(|(k, _)| k.clone()).chain(jobs).collect()
    }

    /// The keys of what a workload is seen in: its job, itself, and its queues.
    pub fn keys_of(&self, uid: Uid) -> Vec<Key> {
        let Some(workload) = self.state.workloads.get(&uid) else { return Vec::new() };
        [World::key_of(workload), Self::workload_key(workload)]
            .into_iter()
            .chain(self.queue_keys(self.queues.class(workload.class)))
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
        let queue = self.state.catalog.local_queue(&class.namespace, &class.queue);
        std::iter::once(local).chain(queue.map(|queue| Key::global(Kind::ClusterQueue, &queue.cluster_queue)))
    }

    fn workload_key(w: &Workload) -> Key {
        Key {
            scope: None,
            kind: Kind::Workload,
            namespace: Some(w.namespace.clone()),
            name: workload_name(&w.name, w.submitted),
        }
    }

    /// One object with its status, in the storage version; `None` when it is gone.
    pub fn render(&self, key: &Key, bodies: &dyn Bodies, now: Now) -> Option<Value> {
        match key.kind {
            Kind::Job => {
                let uid = self.uid_of(key.namespace.as_deref()?, &key.name)?;
                let shown = self.shown(uid)?;
                let keeps = self.hindrance(shown.class().0);
                Some(shown.job(serde_json::from_str(&bodies.body(shown.body())?).ok()?, keeps.as_ref()))
            }
            Kind::Workload => {
                let (uid, workload) = self.workload_at(key)?;
                let keeps = self.hindrance(workload.class);
                Some(self.shown(uid)?.workload(keeps.as_ref()))
            }
            _ => self.state.catalog.get(key).map(|stored| self.render_stored(key, stored, now)),
        }
    }

    /// The workload behind the name of Kueue's object.
    pub fn workload_at(&self, key: &Key) -> Option<(Uid, &Workload)> {
        // Its name is made from its job's, so that nothing has to be searched.
        let job = key.name.strip_prefix("job-")?.rsplit_once('-')?.0;
        let uid = self.uid_of(key.namespace.as_deref()?, job)?;
        let workload = &self.state.workloads[&uid];
        (workload_name(&workload.name, workload.submitted) == key.name).then_some((uid, workload))
    }

    fn render_stored(&self, key: &Key, stored: &Stored, now: Now) -> Value {
        let mut value = stored.object.stored.clone();
        let metadata = metadata(&mut value);
        metadata.insert("uid".into(), json!(stored.uid.to_string()));
        let counts =
            matches!(key.kind, Kind::ClusterQueue | Kind::LocalQueue | Kind::Cohort) && key.scope.is_none();
        let version = self.status_version(key).filter(|_| counts).unwrap_or(stored.changed);
        metadata.insert("resourceVersion".into(), json!(version.to_string()));
        metadata.insert("generation".into(), json!(stored.generation));
        metadata.insert("creationTimestamp".into(), json!(timestamp(stored.created)));
        if let Some(scope) = &key.scope {
            metadata.entry("labels").or_insert_with(|| json!({}))[meridian_objects::job::CLUSTER_LABEL] =
                json!(scope.as_str());
        }
        let status = match &stored.object.spec {
            Spec::ClusterQueue(spec) if key.scope.is_none() => {
                Some(self.cluster_queue_status(&key.name, spec, stored.created))
            }
            Spec::LocalQueue(spec) => Some(self.local_queue_status(key, spec, stored.created)),
            Spec::Cohort(_) => self.cohort_status(&key.name),
            Spec::Cluster(_) => Some(self.cluster_status(&ClusterName::new(&key.name), now)),
            Spec::MultiKueueCluster(_) => {
                let live = self.live.clusters.contains_key(&ClusterName::new(&key.name));
                Some(condition(
                    "Active",
                    live,
                    if live { "Active" } else { "NotConnected" },
                    if live { "Connected" } else { "no agent of this name is connected" },
                    stored.created,
                ))
            }
            Spec::AdmissionCheck(spec) => Some(self.admission_check_activity(spec).condition(stored.created)),
            _ => None,
        };
        if let Some(status) = status {
            value["status"] = status;
        }
        value
    }

    fn cluster_status(&self, name: &ClusterName, now: Now) -> Value {
        let live = self.live.clusters.get(name);
        let member = self.state.members.get(name);
        let silent = live
            .is_some_and(|l| now.mono.since(l.heard) > meridian_shared::lease::silence(self.config.term_min));
        let state = match live {
            None if member.is_none() => "NeverJoined",
            None => "NotConnected",
            Some(_) if silent => "Silent",
            Some(_) if self.located_elsewhere(name).is_some() => "Quarantined",
            Some(l) if !l.inventoried => "Recovering",
            Some(_) => "Connected",
        };
        let cordoned = self.state.catalog.cluster(name).is_some_and(|c| c.cordoned);
        let mut resources = Map::new();
        for resource in live.into_iter().flat_map(|l| l.rooms.blocks()).flat_map(|b| b.capacity.keys()) {
            let rooms = &live.expect("it has blocks").rooms;
            resources.entry(resource.clone()).or_insert_with(
                || json!({"capacity": rooms.capacity(resource), "free": rooms.free(resource)}),
            );
        }
        json!({
            "state": if cordoned { format!("{state},Cordoned") } else { state.to_owned() },
            "ledger": member.map(|m| m.ledger.to_string()),
            "session": member.map(|m| m.session.to_string()),
            "workloads": self.loads.get(name).map_or(0, |l| l.len()),
            "resources": resources,
            "runner": live.map(|l| match l.rooms.runner() { RunnerKind::Simulated => "simulated", RunnerKind::Process => "process", RunnerKind::Kubernetes => "kubernetes" }),
            "enforcement": live.map(|l| if l.rooms.guarded() { "guarded: a gang ends by itself at the lapse" } else { "supervised: a gang's end at the lapse needs its agent" }),
            "silentForMs": live.map(|l| now.mono.since(l.heard).0),
        })
    }
}

pub(crate) fn metadata(value: &mut Value) -> &mut Map<String, Value> {
    if !value["metadata"].is_object() {
        value["metadata"] = json!({});
    }
    value["metadata"].as_object_mut().expect("made an object above")
}

pub(crate) fn condition(kind: &str, is: bool, reason: &str, message: &str, at: Wall) -> Value {
    json!({"conditions": [{"type": kind, "status": if is { "True" } else { "False" }, "reason": reason, "message": message, "lastTransitionTime": timestamp(at)}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_rfc_3339() {
        assert_eq!(timestamp(Wall(0)), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(Wall(951_782_400_000)), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(Wall(1_795_219_199_999)), "2026-11-20T23:59:59Z");
        assert_eq!(timestamp(Wall(-1)), "1969-12-31T23:59:59Z");
        assert_eq!(micro_timestamp(Wall(1_795_219_199_009)), "2026-11-20T23:59:59.009000Z");
        assert_eq!(micro_timestamp(Wall(-1)), "1969-12-31T23:59:59.999000Z");
    }
}
