//! Labels and annotations of jobs.

use super::simulated::{SIMULATED_DURATION, SIMULATED_EXIT_CODE, SIMULATED_FAIL_FIRST, SIMULATED_STAGGER};
use crate::kind::KUEUE_GROUP;

/// Label: the job's local queue.
pub const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// Scheduling gates of a pod that waits for its admission: Kueue's, which Meridian writes, and Meridian's
/// own.
pub const ADMISSION_GATES: [&str; 2] = ["kueue.x-k8s.io/admission", "meridian.dev/admission"];
/// Label of a pod: the group that is admitted with it.
pub const POD_GROUP_LABEL: &str = "kueue.x-k8s.io/pod-group-name";
/// Annotation of a pod: number of pods in its group.
pub const POD_GROUP_TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";
/// Annotation of a pod: whether another pod of its group replaces it if it fails.
pub(crate) const RETRIABLE_IN_GROUP: &str = "kueue.x-k8s.io/retriable-in-group";
/// Prefix of Kueue's labels and annotations that make pods a group.
const POD_GROUP_KEYS: &str = "kueue.x-k8s.io/pod-group-";
/// Annotation that Kueue writes: a hash of the pod's shape.
const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
/// Prefix of the annotations of a pod template with a topology request.
pub(super) const POD_SET_KEYS: &str = "kueue.x-k8s.io/podset-";
/// Labels by which Kubernetes' job controller marks the pods of a job. Only the controller may write them.
pub const CONTROLLER_LABELS: [&str; 4] =
    ["controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"];
/// Label: the job's workload priority class.
pub const PRIORITY_LABEL: &str = "kueue.x-k8s.io/priority-class";
/// Workload priority class of jobs that name none.
pub const USUAL_PRIORITY_CLASS: &str = "default";
/// Priority classes that every Kubernetes cluster has.
pub const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
/// The controller of jobs for worker clusters; Meridian acts as this controller.
pub(super) const MULTIKUEUE_MANAGER: &str = "kueue.x-k8s.io/multikueue";
/// Label: longest run time, in seconds.
pub const MAX_EXEC_LABEL: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// Annotation: how long a provider provides the nodes, in seconds.
pub const MAX_RUN_ANNOTATION: &str = "provreq.kueue.x-k8s.io/maxRunDurationSeconds";
/// Annotation: fewest pods at the same time that the job accepts.
pub const MIN_PARALLELISM_ANNOTATION: &str = "kueue.x-k8s.io/job-min-parallelism";
/// Annotation (`true`): the job may be scaled while it runs.
pub const ELASTIC_ANNOTATION: &str = "kueue.x-k8s.io/elastic-job";
/// Annotation or label: the regions that a job is limited to, separated by commas.
pub const REGION_KEY: &str = "meridian.dev/region";
/// Annotation: identifies a submission, so that a repeated one is recognised.
pub const SUBMISSION_ANNOTATION: &str = "meridian.dev/submission";
/// Annotation: another store from which the object is synchronised.
pub const SOURCE_ANNOTATION: &str = "meridian.dev/source";
/// Value of [`SOURCE_ANNOTATION`]: the Kubernetes management cluster.
pub const SOURCE_CLUSTER: &str = "management-cluster";
/// Values of `spec.managedBy` that leave a job to Meridian instead of the cluster's own controller: Kueue's
/// name for jobs of worker clusters, and Meridian's own.
pub const REMOTE_MANAGERS: [&str; 2] = [MULTIKUEUE_MANAGER, "meridian.dev/manager"];
/// Label: added to objects that belong to one cluster.
pub const CLUSTER_LABEL: &str = "meridian.dev/cluster";
/// Domains of Meridian's own keys.
pub(super) const OUR_DOMAINS: [&str; 2] = ["meridian.dev", "simulated.meridian.dev"];
/// Labels and annotations in these domains and their subdomains affect admission.
const DECIDING_DOMAINS: [&str; 2] = ["kueue.x-k8s.io", "meridian.dev"];
/// Meridian's own annotations of a job.
pub(super) const OUR_ANNOTATIONS: [&str; 7] = [
    REGION_KEY,
    SOURCE_ANNOTATION,
    SUBMISSION_ANNOTATION,
    SIMULATED_DURATION,
    SIMULATED_STAGGER,
    SIMULATED_EXIT_CODE,
    SIMULATED_FAIL_FIRST,
];
/// Meridian's own labels of a job.
pub(super) const OUR_LABELS: [&str; 2] = [REGION_KEY, CLUSTER_LABEL];

/// Whether a label or annotation with this key can affect admission, so that it is part of the job's request.
pub fn affects_admission(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    DECIDING_DOMAINS
        .iter()
        .any(|of| domain.strip_suffix(of).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// Whether a label or annotation makes a pod a member of a group.
pub(crate) fn makes_a_group(key: &str) -> bool {
    key.starts_with(POD_GROUP_KEYS) || [RETRIABLE_IN_GROUP, ROLE_HASH].contains(&key)
}

/// Whether a label or annotation of a pod applies to its whole group, such as the queue.
pub(crate) fn is_about_the_group(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_kueue = domain == KUEUE_GROUP || domain.ends_with(".kueue.x-k8s.io");
    (is_kueue || OUR_DOMAINS.contains(&domain)) && !key.starts_with(POD_SET_KEYS)
}
