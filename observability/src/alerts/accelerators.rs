//! Alerts about accelerators, and about the nodes that providers make.

use super::{Alert, case};
use crate::query::{OfAgent, series, sum, utilisation_of_granted};
use meridian_agent::metrics::names;
use meridian_manager::metrics::Metrics;

const CLUSTER: &str = r#"cluster="eu""#;

pub(super) fn alerts(m: &Metrics) -> Vec<Alert> {
    vec![underused(m), booking_unused(), node_requests_near_limit()]
}

/// The utilisation series of the GPU with this number, with the labels of its place.
fn gpu(place: &str, number: u32) -> String {
    let labels = format!(r#"{place},gpu="{number}",UUID="GPU-{number}",modelName="NVIDIA L4""#);
    series(&OfAgent(names::GPU_UTILISATION), &labels)
}

/// The labels of a series that Managed Prometheus collects in the cluster `gke`, with these before them.
fn in_gke(labels: &str) -> String {
    format!(r#"{labels}project_id="p",location="europe-west4",cluster="gke""#)
}

fn underused(m: &Metrics) -> Alert {
    let granted = |cluster: &str| {
        let of_flavor = r#"flavor="l4",resource="nvidia.com/gpu",state="granted""#;
        series(&m.fleet.capacity, &format!("{cluster},{of_flavor}"))
    };
    let managed = r#"exported_cluster="eu""#;
    let agent = |name: &str| {
        let labels = in_gke(&format!(r#"exported_cluster="{name}","#));
        (series(&OfAgent(names::HOLDS), &labels), "0x20")
    };
    let of_exporter = |number| gpu(&in_gke(""), number);
    let of_agent = |number| gpu(r#"exported_cluster="eu",cluster="machine""#, number);
    Alert {
        name: "MeridianAcceleratorsUnderused".into(),
        expression: format!("{} < 70", utilisation_of_granted(m)),
        hold: "5m",
        severity: "warning",
        summary: "Workloads use less than 70 % of their GPUs in cluster {{ $labels.cluster }}.".into(),
        description: "Jobs hold GPUs that they leave idle: they load data, wait for each other, or ask for \
                      too many."
            .into(),
        runbook: "accelerators-underused",
        of_agents: true,
        fires: case(
            "10m",
            [(gpu(CLUSTER, 0), "95x20"), (gpu(CLUSTER, 1), "10x20"), (granted(CLUSTER), "2x20")],
        )
        .in_managed([
            (of_exporter(0), "95x20"),
            (of_exporter(1), "10x20"),
            agent("eu"),
            (granted(managed), "2x20"),
        ])
        .fires(&[("cluster", "eu")]),
        // One of two GPUs is free, and the other one is busy.
        quiet: case(
            "10m",
            [(gpu(CLUSTER, 0), "95x20"), (gpu(CLUSTER, 1), "0x20"), (granted(CLUSTER), "1x20")],
        )
        // Two agents are in the exporter's cluster: the exporter's GPU counts for one of them, and the other
        // GPU is an agent's own.
        .in_managed([
            (of_exporter(0), "95x20"),
            agent("eu"),
            agent("us"),
            (of_agent(1), "95x20"),
            (granted(managed), "1x20"),
        ]),
    }
}

fn booking_unused() -> Alert {
    let age = OfAgent(names::UNUSED_BOOKING_AGE);
    Alert {
        name: "MeridianBookingUnused".into(),
        expression: format!("{} > 420", series(&age, "")),
        hold: "0m",
        severity: "warning",
        summary: "Nodes that a provider made in cluster {{ $labels.cluster }} still wait for their pods."
            .into(),
        description: "Seven of the ten minutes have passed after which the provider takes unused nodes back."
            .into(),
        runbook: "booking-unused",
        of_agents: true,
        fires: case("10m", [(series(&age, CLUSTER), "0+60x20")]).fires(&[("cluster", "eu")]),
        quiet: case("10m", [(series(&age, CLUSTER), "0+60x5 0x20")]),
    }
}

fn node_requests_near_limit() -> Alert {
    let (requests, limit) = (OfAgent(names::NODE_REQUESTS), OfAgent(names::NODE_REQUESTS_LIMIT));
    // Requests that got their nodes are no longer open at the provider.
    let open = sum("cluster", &series(&requests, r#"state="waiting""#));
    let most = sum("cluster", &series(&limit, ""));
    let of = |state: &str| series(&requests, &format!(r#"{CLUSTER},state="{state}""#));
    Alert {
        name: "MeridianNodeRequestsNearLimit".into(),
        expression: format!("{open} > 0.9 * ({most} > 0)"),
        hold: "5m",
        severity: "warning",
        summary: "Nearly all requests for nodes that cluster {{ $labels.cluster }} may have are open.".into(),
        description: "Above the limit offers are refused. Google allows 100 resize requests per project and \
                      region."
            .into(),
        runbook: "node-requests-near-limit",
        of_agents: true,
        fires: case(
            "10m",
            [(of("waiting"), "95x20"), (of("provided"), "15x20"), (series(&limit, CLUSTER), "100x20")],
        )
        .fires(&[("cluster", "eu")]),
        // The other cluster has no limit.
        quiet: case(
            "10m",
            [
                (of("waiting"), "80x20"),
                (of("provided"), "300x20"),
                (series(&limit, CLUSTER), "100x20"),
                (series(&requests, r#"cluster="us",state="waiting""#), "200x20"),
                (series(&limit, r#"cluster="us""#), "0x20"),
            ],
        ),
    }
}
