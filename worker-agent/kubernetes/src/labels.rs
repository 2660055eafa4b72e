//! The labels and annotations by which this agent knows its own objects.

use kube::api::ObjectMeta;
use meridian_objects::job::JobKind;
use meridian_shared::ids::{Fence, OfferId, Uid};
use std::collections::BTreeMap;

/// Name and value of the label that everything made by an agent has; the watches select by it.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "meridian");
/// The workload's uid at the manager.
pub const UID: &str = "meridian.dev/uid";
/// The fence of the grant, which names the attempt.
pub const FENCE: &str = "meridian.dev/fence";
/// The offer that an object was made for.
pub const OFFER: &str = "meridian.dev/offer";
/// Label of an object that holds an offer's capacity: a placeholder pod or a Workload.
pub const HOLD: &str = "meridian.dev/hold";
/// Name and value of the label of a ConfigMap or Secret that was copied for gangs, which names the source.
pub const COPY_OF: (&str, &str) = ("meridian.dev/copy-of", "management-cluster");
/// Annotation of a job with the objects that are copied for the job, as JSON.
pub const COPIES: &str = "meridian.dev/copies";
/// The number of the attempt, from 1, for users.
pub const ATTEMPT: &str = "meridian.dev/attempt";
/// Label of everything made by an agent: the cluster's name at the manager, as [`origin`] writes it. Agents
/// of several clusters may share an API server, and each acts on its own objects only.
pub const ORIGIN: &str = "meridian.dev/cluster";
/// Label of a pod: its pod set.
pub const POD_SET: &str = "meridian.dev/pod-set";
/// Label of each pod of a group of pods: the group's name.
pub const GROUP: &str = "meridian.dev/pod-group";
/// Annotation of the first pod of a group: number of pods in the group.
pub const GROUP_SIZE: &str = "meridian.dev/pod-group-size";
/// Annotation of a job: when it was resumed.
pub const STARTED: &str = "meridian.dev/started";
/// Annotation of a job: the runner's notes, as JSON.
pub const NOTES: &str = "meridian.dev/run";
/// Annotation of a job that was ordered to stop; its value says why.
pub const STOPPED: &str = "meridian.dev/stopped";
/// Annotation of a provisioning request: a hash of everything that it asks for.
pub const FINGERPRINT: &str = "meridian.dev/fingerprint";
/// Annotation of a pod: its position in the gang, from 0.
pub const POSITION: &str = "meridian.dev/position";
/// Annotation of a pod: the lease that its guard reads.
pub const LEASE: &str = "meridian.dev/lease";
/// The gate that keeps a pod from being scheduled until its node is written into it.
pub const GATE: &str = "meridian.dev/placement";
/// The taint of nodes that are reserved for gangs; every gang tolerates it.
pub const OWNED: &str = "meridian.dev/owned";

/// Annotation of a pod: the provisioning request whose nodes it uses.
pub const CONSUMES: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
/// Annotation of a pod: the class of that request.
pub const CONSUMED_CLASS: &str = "autoscaling.x-k8s.io/provisioning-class-name";

/// Longest value of a label in characters.
const LABEL_CHARS_MAX: usize = 63;

/// One attempt of one workload.
pub type RunKey = (Uid, Fence);

/// The attempt that an object belongs to, or `None` for an object that no agent made.
pub fn run_of(labels: &BTreeMap<String, String>) -> Option<RunKey> {
    let (name, value) = MANAGED_BY;
    if labels.get(name).is_none_or(|is| is != value) {
        return None;
    }
    Some((labels.get(UID)?.parse().ok()?, labels.get(FENCE)?.parse().ok()?))
}

/// The offer whose capacity an object holds, or `None` for another object.
pub fn hold_of(labels: &BTreeMap<String, String>) -> Option<OfferId> {
    let (name, value) = MANAGED_BY;
    if labels.get(name).is_none_or(|is| is != value) || !labels.contains_key(HOLD) {
        return None;
    }
    labels.get(OFFER)?.parse().ok()
}

/// Whether an object is a copy that an agent made.
pub fn is_copy(metadata: &ObjectMeta) -> bool {
    let has = |(name, value): (&str, &str)| {
        metadata.labels.as_ref().and_then(|labels| labels.get(name)).is_some_and(|is| is == value)
    };
    has(MANAGED_BY) && has(COPY_OF)
}

/// The selector of everything that belongs to an attempt.
pub fn selector(key: RunKey) -> String {
    let (uid, fence) = key;
    format!("{}={},{UID}={uid},{FENCE}={fence}", MANAGED_BY.0, MANAGED_BY.1)
}

/// The selector of everything that the agents of a cluster made.
pub fn all(cluster: &str) -> String {
    format!("{}={},{ORIGIN}={}", MANAGED_BY.0, MANAGED_BY.1, origin(cluster))
}

/// The selector of all objects with the mark of an agent, of this cluster or another one, which [`run_of`]
/// and [`hold_of`] require.
pub fn marked() -> String {
    format!("{}={}", MANAGED_BY.0, MANAGED_BY.1)
}

/// The selector of all objects without that mark: the label is missing or has another value.
pub fn unmarked() -> String {
    format!("{}!={}", MANAGED_BY.0, MANAGED_BY.1)
}

/// The value of the label [`ORIGIN`] for a cluster: its name, or the beginning of it and a hash if the name
/// is longer than a label's value may be.
pub fn origin(cluster: &str) -> String {
    if cluster.len() <= LABEL_CHARS_MAX {
        return cluster.to_owned();
    }
    // FNV-1a, which is the same in every version of the agent
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = cluster.bytes().fold(0x811c_9dc5, step);
    let kept: String = cluster.chars().take(LABEL_CHARS_MAX - 9).collect();
    format!("{}-{hash:08x}", kept.trim_end_matches(['-', '.']))
}

/// Removes the agent's mark from an object that the agent of another cluster made, so that it counts as any
/// foreign object.
pub fn disown_other(metadata: &mut ObjectMeta, cluster: &str) {
    let Some(labels) = &mut metadata.labels else { return };
    if labels.get(ORIGIN).is_some_and(|of| *of != origin(cluster)) {
        labels.remove(MANAGED_BY.0);
    }
}

/// Narrows a selector to jobs of this kind. A pod is a job only if it was not made for one; the first pod of
/// a group stands for the group.
pub fn of_kind(selector: String, kind: &JobKind) -> String {
    match (kind.is_of_pods(), kind.is_pod_group()) {
        (false, _) => selector,
        (true, false) => format!("{selector},{ATTEMPT},!{GROUP}"),
        (true, true) => format!("{selector},{ATTEMPT},{GROUP}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_labels_of_a_run_are_legal_and_read_back() {
        let key: RunKey = (
            Uid(0x0190_0000_0000_7000_8000_0000_0000_0001),
            Fence { epoch: 3, leadership: u64::MAX, counter: 12 },
        );
        let mut labels = BTreeMap::from([
            (MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned()),
            (UID.to_owned(), key.0.to_string()),
            (FENCE.to_owned(), key.1.to_string()),
        ]);
        assert_eq!(run_of(&labels), Some(key));
        for value in labels.values() {
            assert!(
                value.len() <= 63 && value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
            );
        }
        labels.insert(MANAGED_BY.0.to_owned(), "Helm".to_owned());
        assert_eq!(run_of(&labels), None);
    }

    #[test]
    fn objects_of_another_cluster_look_foreign() {
        let long = |end: &str| format!("{}.{end}", "a".repeat(62));
        let (one, other) = (long("one"), long("other"));
        assert_eq!(origin(&one).len(), 63);
        let cases =
            [("eu", "eu", true), ("eu-2", "eu", false), (&*one, &*one, true), (&*one, &*other, false)];
        for (made_by, seen_from, ours) in cases {
            let labels = [
                (MANAGED_BY.0, MANAGED_BY.1),
                (UID, "00000000-0000-0000-0000-000000000007"),
                (FENCE, "1-2-3"),
                (ORIGIN, &*origin(made_by)),
            ];
            let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let mut metadata = ObjectMeta { labels: Some(labels.into()), ..ObjectMeta::default() };
            disown_other(&mut metadata, seen_from);
            assert_eq!(run_of(metadata.labels.as_ref().unwrap()).is_some(), ours, "{made_by} at {seen_from}");
        }
    }
}
