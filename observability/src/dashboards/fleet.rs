//! All regions at once.

use super::{Dashboard, Panel, PanelKind, Row, regions};
use crate::query::{increase, quantile, rate, series, sum};
use crate::regions::located;
use meridian_manager::metrics::Metrics;

const IN_REGION: &str = r#"region=~"$region""#;
const ACCELERATORS: &str = r#"resource=~".+/.+""#;

pub(super) fn dashboard(m: &Metrics) -> Dashboard {
    Dashboard {
        uid: "meridian-fleet",
        title: "Meridian: fleet",
        description: "Every region: health, capacity, races, queues, residency and leases",
        variables: vec![regions(m, true)],
        rows: vec![health(m), capacity(m), races(m), queues(m), residency(m), leases(m)],
    }
}

/// A sum by region over a metric that only has the cluster.
fn by_region(m: &Metrics, of: &str) -> String {
    let places = series(&m.fleet.cluster_info, IN_REGION);
    format!("sum by (region) (sum by (cluster) ({of}) * on (cluster) group_left (region) {places})")
}

/// As [`by_region`], for each reason.
fn by_region_and_reason(m: &Metrics, of: &str) -> String {
    let places = series(&m.fleet.cluster_info, IN_REGION);
    let by_cluster = sum("cluster, reason", of);
    format!("sum by (region, reason) ({by_cluster} * on (cluster) group_left (region) {places})")
}

fn health(m: &Metrics) -> Row {
    let (connected, states) = (series(&m.agents.connected, IN_REGION), &m.workloads.by_state);
    Row {
        title: "Health",
        panels: vec![
            Panel::number("Managers that answer", "none", "Managers whose metrics are collected")
                .query("", format!("count({})", series(&m.build_info, "")))
                .runbook("manager-silent"),
            Panel::number(
                "Clusters connected",
                "percentunit",
                "Part of the clusters whose agent is connected",
            )
            .query("", format!("avg({connected})"))
            .runbook("cluster-disconnected"),
            Panel::number("Running", "none", "Workloads whose pods all run")
                .query("", sum("", &series(states, r#"state="Running""#))),
            Panel::number("Pending", "none", "Workloads that wait for quota")
                .query("", sum("", &series(states, r#"state="Pending""#))),
            Panel::number(
                "Residency violations",
                "none",
                "Workloads in clusters that a policy forbids; stays 0",
            )
            .query("", sum("", &series(&m.fleet.residency_violations, "")))
            .warn(1.0, 1.0)
            .runbook("residency-violation"),
            Panel::number("Recovery", "bool_on_off", "On until all clusters have reported what they run")
                .query("", series(&m.engine.recovery_open, ""))
                .warn(1.0, 1.0)
                .runbook("recovery-open"),
            Panel::lines("Agents", "bool_yes_no", "Whether the agent of each cluster is connected")
                .query("{{region}} {{cluster}}", connected)
                .runbook("cluster-disconnected"),
            Panel::lines("Time since the last sync", "s", "Grows while an agent is silent")
                .query(
                    "{{cluster}}",
                    format!(
                        "{} and on (cluster) {}",
                        series(&m.agents.last_sync_age_seconds, ""),
                        series(&m.fleet.cluster_info, IN_REGION)
                    ),
                )
                .warn(60.0, 300.0)
                .runbook("cluster-disconnected"),
            Panel::new(
                PanelKind::Map,
                "Regions",
                "percentunit",
                "Part of each region's clusters whose agent is connected; of Google Cloud's regions",
            )
            .query("{{region}}", {
                located(|region| format!("avg by (region) ({})", series(&m.agents.connected, region)))
            })
            .runbook("cluster-disconnected"),
        ],
    }
}

fn capacity(m: &Metrics) -> Row {
    let state =
        |state: &str| by_region(m, &series(&m.fleet.capacity, &format!(r#"state="{state}",{ACCELERATORS}"#)));
    let panel =
        |title, text: &str, name: &str| Panel::stack(title, "none", text).query("{{region}}", state(name));
    Row {
        title: "Accelerators",
        panels: vec![
            panel("Accelerators in use", "Of workloads that have the right to run", "granted"),
            panel("Accelerators free", "As the agents report", "free"),
            panel("Accelerators held", "For offers that are not decided", "held"),
            panel("Accelerators", "All that agents report", "total"),
            Panel::stack(
                "Waits for providers",
                "none",
                "Offers that wait for nodes, by the provider's reason",
            )
            .query("{{region}} {{reason}}", by_region_and_reason(m, &series(&m.fleet.offers_waiting, "")))
            .runbook("stocked-out"),
            Panel::stack("Refusals of providers", "none", "Offers without nodes in an hour, by reason")
                .query("{{region}} {{reason}}", {
                    by_region_and_reason(m, &increase(&m.fleet.provider_refusals, "", "1h"))
                })
                .runbook("stocked-out"),
        ],
    }
}

fn races(m: &Metrics) -> Row {
    let (offers, races) = (&m.fleet.offers, &m.fleet.race_seconds);
    Row {
        title: "Race between regions",
        panels: vec![
            Panel::stack("Winners", "ops", "Workloads that each region won, per second")
                .query("{{region}}", by_region(m, &rate(offers, r#"outcome="won""#))),
            Panel::stack("Offers by outcome", "ops", "Ended offers per second")
                .query("{{outcome}}", sum("outcome", &rate(offers, ""))),
            Panel::lines("Wait in races", "s", "From the first offer until a cluster won")
                .query("median", quantile("0.5", "", races, ""))
                .query("95 %", quantile("0.95", "", races, "")),
            Panel::lines(
                "Accelerators held twice",
                "none",
                "Accelerators that clusters held on average for offers that they didn't win",
            )
            .query("{{region}}", by_region(m, &rate(&m.fleet.held_twice, "")))
            .warn(1.0, 8.0)
            .runbook("held-twice"),
        ],
    }
}

fn queues(m: &Metrics) -> Row {
    let (queues, events) = (&m.kueue.queues, &m.kueue.events);
    Row {
        title: "Queues",
        panels: vec![
            Panel::stack("Pending by queue", "none", "Workloads that wait for quota")
                .query("{{cluster_queue}}", sum("cluster_queue", &series(&queues.pending_workloads, ""))),
            Panel::lines("Oldest pending", "s", "Age of the oldest pending workload")
                .query(
                    "{{cluster_queue}}",
                    format!("max by (cluster_queue) ({})", series(&m.workloads.oldest_pending, "")),
                )
                .runbook("queue-too-old"),
            Panel::stack("Admissions", "ops", "Workloads that got a cluster, per second")
                .query("{{cluster_queue}}", sum("cluster_queue", &rate(&events.admitted, ""))),
            Panel::stack("Why workloads wait", "none", "Workloads that are not admitted")
                .query("{{reason}} {{underlying_cause}}", {
                    sum("reason, underlying_cause", &series(&queues.unadmitted, ""))
                })
                .runbook("stocked-out"),
            Panel::stack("Preemptions", "none", "Preempted workloads in an hour")
                .query("{{reason}}", sum("reason", &increase(&events.preempted, "", "1h"))),
            Panel::stack("Evictions", "none", "Evictions in an hour").query(
                "{{reason}} {{underlying_cause}}",
                sum("reason, underlying_cause", &increase(&events.evicted, "", "1h")),
            ),
        ],
    }
}

fn residency(m: &Metrics) -> Row {
    Row {
        title: "Residency",
        panels: vec![
            Panel::stack("Denials", "none", "Clusters that policies denied to workloads in an hour")
                .query("{{policy}}", sum("policy", &increase(&m.workloads.residency_denials, "", "1h"))),
            Panel::lines("Violations", "none", "Workloads in clusters that a policy forbids now; stays 0")
                .query("{{cluster}}", series(&m.fleet.residency_violations, ""))
                .warn(1.0, 1.0)
                .runbook("residency-violation"),
        ],
    }
}

fn leases(m: &Metrics) -> Row {
    let hour = "1h";
    Row {
        title: "Leases",
        panels: vec![
            Panel::lines("Renewals", "ops", "Leases renewed per second")
                .query("", rate(&m.workloads.lease_renewals, "")),
            Panel::stack("Lapses", "none", "Leases that lapsed in an hour")
                .query("{{region}}", by_region(m, &increase(&m.workloads.lapses, "", hour)))
                .runbook("lease-lapsed"),
            Panel::stack("Refusals", "none", "Offers and grants that agents refused in an hour")
                .query("{{reason}}", sum("reason", &increase(&m.workloads.refusals, "", hour))),
            Panel::lines("Reconnects", "none", "Sessions that agents opened in an hour")
                .query("{{region}}", by_region(m, &increase(&m.fleet.sessions, "", hour)))
                .runbook("cluster-disconnected"),
            Panel::lines("Orphans", "none", "Runs of unknown workloads that wait for an operator")
                .query("", series(&m.workloads.orphans, ""))
                .warn(1.0, 1.0)
                .runbook("orphans"),
        ],
    }
}
