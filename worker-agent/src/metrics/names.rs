//! Names, help and labels of the agent's metrics, for their registration, for queries and for the reference.

/// The definition of one metric. Each also has the labels of [`CONSTANT_LABELS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    pub name: &'static str,
    pub help: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub labels: &'static [&'static str],
}

const fn counter(name: &'static str, help: &'static str) -> Definition {
    Definition { name, help, kind: "counter", labels: &[] }
}

const fn gauge(name: &'static str, help: &'static str) -> Definition {
    Definition { name, help, kind: "gauge", labels: &[] }
}

/// Labels of every metric: one agent has one value of each.
pub const CONSTANT_LABELS: [&str; 2] = ["cluster", "runner"];

pub const RUNS: Definition =
    Definition { labels: &["state"], ..gauge("meridian_agent_runs", "live attempts by state") };
pub const HOLDS: Definition = gauge("meridian_agent_holds", "offers that hold resources");
pub const REFUSED: Definition = Definition {
    labels: &["reason"],
    ..counter("meridian_agent_offers_refused_total", "refused offers by reason")
};
pub const SYNCS: Definition = Definition {
    name: "meridian_agent_sync_seconds",
    help: "duration of requests to the manager by lane and outcome",
    kind: "histogram",
    labels: &["lane", "outcome"],
};
pub const COMMITS: Definition = Definition {
    name: "meridian_agent_commit_seconds",
    help: "duration of durable transactions of the agent's store",
    kind: "histogram",
    labels: &[],
};
pub const RENEWALS: Definition =
    counter("meridian_agent_lease_renewals_total", "lease renewals that extended a deadline");
pub const LAPSES: Definition =
    counter("meridian_agent_lapse_stops_total", "runs that ended because their lease lapsed");
pub const GANGS_MOVED: Definition =
    counter("meridian_agent_gangs_moved_total", "finished moves of gangs away from lost nodes");
pub const PODS_MOVED: Definition =
    counter("meridian_agent_pods_moved_total", "pods that were moved from a lost node to another one");
pub const STRANDED: Definition = counter(
    "meridian_agent_gangs_stranded_total",
    "gangs that ended because pods of a lost node fit nowhere else",
);
pub const VIOLATIONS: Definition = counter(
    "meridian_agent_invariant_violations_total",
    "recounts of the ledger that found a violated invariant, a bug of this program",
);
pub const UNREPORTED_NODES: Definition = gauge(
    "meridian_agent_unreported_nodes",
    "nodes left out of the capacity report, because too many nodes differ",
);
pub const CERTIFICATE_EXPIRY: Definition =
    gauge("meridian_agent_certificate_expiry_timestamp_seconds", "end of the agent's certificate");
pub const NODE_REQUESTS: Definition = Definition {
    labels: &["state"],
    ..gauge(
        "meridian_agent_node_requests",
        "requests for nodes by state: waiting for the provider, or with nodes",
    )
};
pub const NODE_REQUESTS_LIMIT: Definition =
    gauge("meridian_agent_node_requests_limit", "requests for nodes that may be open, 0 without a limit");
pub const UNUSED_BOOKING_AGE: Definition = gauge(
    "meridian_agent_unused_booking_age_seconds",
    "longest time that a provider's nodes have waited for their gang's pods, 0 if none waits",
);

/// Labels of a GPU's metrics, with DCGM's names.
const GPU_LABELS: &[&str] = &["gpu", "UUID", "modelName"];

pub const GPU_UTILISATION: Definition = Definition {
    labels: GPU_LABELS,
    ..gauge(
        "DCGM_FI_DEV_GPU_UTIL",
        "utilisation of a GPU in percent: of the agent's machine from NVML, or of a simulated gang",
    )
};
pub const GPU_MEMORY_USED: Definition = Definition {
    labels: GPU_LABELS,
    ..gauge("DCGM_FI_DEV_FB_USED", "used memory of a GPU of the agent's machine in MiB, from NVML")
};
pub const GPU_POWER: Definition = Definition {
    labels: GPU_LABELS,
    ..gauge("DCGM_FI_DEV_POWER_USAGE", "power draw of a GPU of the agent's machine in watts, from NVML")
};

/// Every metric, in the order of the reference.
pub const ALL: [Definition; 19] = [
    RUNS,
    HOLDS,
    REFUSED,
    SYNCS,
    COMMITS,
    RENEWALS,
    LAPSES,
    GANGS_MOVED,
    PODS_MOVED,
    STRANDED,
    VIOLATIONS,
    UNREPORTED_NODES,
    CERTIFICATE_EXPIRY,
    NODE_REQUESTS,
    NODE_REQUESTS_LIMIT,
    UNUSED_BOOKING_AGE,
    GPU_UTILISATION,
    GPU_MEMORY_USED,
    GPU_POWER,
];
