//! Limits on the number of series: the values that each label may have, and how many.

/// The values of one label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub name: &'static str,
    /// Description of the values.
    pub values: &'static str,
    /// Number of different values, as text.
    pub bound: &'static str,
}

const fn label(name: &'static str, values: &'static str, bound: &'static str) -> Label {
    Label { name, values, bound }
}

/// Every label of the manager's metrics.
pub const LABELS: &[Label] = &[
    label("action", "what is done with a segment of the audit log", "at most 3"),
    label("active", "`True`, `False`, `Unknown`", "3"),
    label("class", "class of a connection", "4"),
    label("cluster", "clusters with an object", "one per cluster"),
    label("cluster_queue", "cluster queues", "one per cluster queue"),
    label("code", "status codes that the API answers with", "about 20"),
    label("cohort", "cohorts, or empty", "one per cohort"),
    label("flavor", "resource flavors", "one per flavor"),
    label("jurisdiction", "jurisdiction of the cluster", "1 for each cluster"),
    label("kind", "kinds of anomalies, or `join` and `renew`", "at most 5"),
    label("lane", "`poll`, `news`", "2"),
    label("name", "local queues", "at most 1,000 with `namespace`"),
    label("namespace", "namespaces of local queues", "at most 1,000 with `name`"),
    label("outcome", "`won`, `withdrawn`, `refused`, `expired`", "4"),
    label("parent_cohort", "the cohort above, or empty", "1 for each queue or cohort"),
    label("part", "parts of the journal", "4"),
    label("policy", "residency policies", "one per policy that ever denied"),
    label("preempting_cluster_queue", "cluster queues", "one per cluster queue"),
    label("priority_class", "priority classes that jobs name, or empty", "one per priority class"),
    label(
        "reason",
        "a closed list of reasons; for providers those of ProvisioningRequests, else `Other`",
        "at most 43",
    ),
    label("region", "region of the cluster", "1 for each cluster"),
    label("replica_role", "`leader`", "1"),
    label("resource", "resources with quota, or kinds of the API", "one per resource or kind"),
    label("result", "results that the metric's help lists", "at most 4"),
    label("root_cohort", "root of the cohort tree, or empty", "1 for each queue or cohort"),
    label("state", "states of workloads, legs or capacity", "at most 9"),
    label("status", "Kueue's statuses of queues or workloads", "at most 3"),
    label("underlying_cause", "a closed list of causes", "at most 20"),
    label("verb", "verbs of the API", "at most 10"),
    label("version", "version of this program", "1"),
];
