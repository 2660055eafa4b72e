//! Fields of a job that may change after it was submitted.

use super::kind::{JobKind, Switch, remove, set_gates};
use super::pod_set_paths::resolve;
use serde_json::Value;

/// Fields of a pod template that direct pods to nodes. Kubernetes lets them change in a suspended Job
/// (KEP-2926).
const DIRECTIVES: [&str; 6] = [
    "/metadata/annotations",
    "/metadata/labels",
    "/spec/affinity/nodeAffinity",
    "/spec/nodeSelector",
    "/spec/schedulingGates",
    "/spec/tolerations",
];

impl JobKind {
    /// Removes the fields that may change while the job exists: its size and its suspend switch.
    pub fn remove_mutable_fields(&self, manifest: &mut Value) {
        let sizes = self.size.map(|paths| [paths.parallelism, paths.completions]);
        let suspend = match self.suspend {
            Switch::Flag(pointer) => Some(pointer),
            Switch::Replicas(_) => None,
            Switch::Gates { pods } => {
                set_gates(manifest, pods, false);
                None
            }
        };
        for pointer in sizes.into_iter().flatten().chain(suspend) {
            remove(manifest, pointer);
        }
    }

    /// Removes the fields that may change while the gang runs, at the price of a restart: those of
    /// [`Self::remove_mutable_fields`] and the numbers of pods.
    pub fn remove_counts(&self, manifest: &mut Value) {
        self.remove_mutable_fields(manifest);
        if let Switch::Replicas(pointer) = self.suspend {
            remove(manifest, pointer);
        }
        for paths in self.pod_sets {
            for set in resolve(manifest, paths.at) {
                paths.counts.iter().for_each(|count| remove(manifest, &format!("{set}{count}")));
            }
        }
    }

    /// Removes the fields that may change while no pod of the job runs: those of [`Self::remove_counts`], and
    /// those that direct the pods to nodes.
    pub fn remove_fields_mutable_while_waiting(&self, manifest: &mut Value) {
        for set in self.pod_sets(manifest) {
            for directive in DIRECTIVES {
                remove_with_empty_parents(manifest, &set.template, directive);
            }
        }
        self.remove_counts(manifest);
    }
}

/// Removes the value at `pointer` below `root`, and the mappings in between that are then empty: a manifest
/// with `affinity: {}` means the same as one without `affinity`.
fn remove_with_empty_parents(manifest: &mut Value, root: &str, pointer: &str) {
    remove(manifest, &format!("{root}{pointer}"));
    let mut at = pointer;
    while let Some((parent, _)) = at.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
        let path = format!("{root}{parent}");
        if manifest.pointer(&path).and_then(Value::as_object).is_some_and(|object| object.is_empty()) {
            remove(manifest, &path);
        }
        at = parent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;
    use serde_json::json;

    #[test]
    fn a_waiting_job_may_change_its_counts_and_what_directs_its_pods_but_not_what_they_run() {
        let kind = Kind::JobSet.job().unwrap();
        let manifest = |replicas: u32, directives: Value, image: &str| {
            let mut template = json!({"spec": {"containers": [{"name": "main", "image": image}]}});
            for (key, value) in directives.as_object().unwrap() {
                template["spec"][key] = value.clone();
            }
            json!({"spec": {"replicatedJobs": [{"name": "w", "replicas": replicas,
                "template": {"spec": {"parallelism": 2, "template": template}}}]}})
        };
        let rest = |mut manifest: Value| {
            kind.remove_fields_mutable_while_waiting(&mut manifest);
            manifest
        };
        let before = rest(manifest(1, json!({}), "a"));
        let affinity = json!({"affinity": {"nodeAffinity": {}}, "nodeSelector": {"zone": "b"}});
        assert_eq!(rest(manifest(3, affinity.clone(), "a")), before);
        assert_ne!(rest(manifest(1, json!({}), "b")), before);
        assert_ne!(rest(manifest(1, json!({"affinity": {"podAffinity": {}}}), "a")), before);
        let counts = |mut manifest: Value| {
            kind.remove_counts(&mut manifest);
            manifest
        };
        assert_eq!(counts(manifest(3, json!({}), "a")), counts(manifest(1, json!({}), "a")));
        assert_ne!(counts(manifest(1, affinity, "a")), counts(manifest(1, json!({}), "a")));
    }

    #[test]
    fn kinds_that_count_otherwise_may_change_these_counts_too() {
        let lws = |replicas: u32, size: u32, image: &str| {
            json!({"spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate":
                {"spec": {"containers": [{"name": "main", "image": image}]}}}}})
        };
        let train_job =
            |nodes: u32, image: &str| json!({"spec": {"trainer": {"numNodes": nodes, "image": image}}});
        let rest = |kind: Kind, mut manifest: Value| {
            kind.job().unwrap().remove_counts(&mut manifest);
            manifest
        };
        let of = Kind::LeaderWorkerSet;
        assert_eq!(rest(of, lws(1, 2, "a")), rest(of, lws(4, 3, "a")));
        assert_ne!(rest(of, lws(1, 2, "a")), rest(of, lws(1, 2, "b")));
        let of = Kind::TrainJob;
        assert_eq!(rest(of, train_job(1, "a")), rest(of, train_job(4, "a")));
        assert_ne!(rest(of, train_job(1, "a")), rest(of, train_job(1, "b")));
    }
}
