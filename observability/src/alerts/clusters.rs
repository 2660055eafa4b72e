//! Alerts about clusters, their agents and the leases.

use super::{Alert, case};
use crate::query::{OfAgent, increase, rate_over, series};
use meridian_agent::metrics::names;
use meridian_manager::metrics::Metrics;

const PLACE: &str = r#"cluster="eu",region="europe-west4""#;
const CLUSTER: &str = r#"cluster="eu""#;

pub(super) fn alerts(m: &Metrics) -> Vec<Alert> {
    vec![
        manager_silent(m),
        region_disconnected(m),
        cluster_disconnected(m),
        lease_lapsed(m),
        held_twice(m),
        orphans(m),
        recovery_open(m),
        residency_violation(m),
        certificate_near_end(),
    ]
}

fn manager_silent(m: &Metrics) -> Alert {
    let up = series(&m.build_info, "");
    Alert {
        name: "MeridianManagerSilent".into(),
        expression: format!("absent({up})"),
        hold: "5m",
        severity: "critical",
        summary: "The manager has sent no metrics for five minutes.".into(),
        description:
            "Nothing new starts while the manager is down. Running jobs continue until their leases end."
                .into(),
        runbook: "manager-silent",
        of_agents: false,
        fires: case("10m", [(format!("{up}{{version=\"1\"}}"), "1x2 stale")]).fires(&[]),
        quiet: case("10m", [(format!("{up}{{version=\"1\"}}"), "1x20")]),
    }
}

fn region_disconnected(m: &Metrics) -> Alert {
    let connected = &m.agents.connected;
    let other = r#"cluster="eu2",region="europe-west4""#;
    Alert {
        name: "MeridianRegionDisconnected".into(),
        expression: format!("max by (region) ({}) == 0", series(connected, "")),
        hold: "2m",
        severity: "critical",
        summary: "No cluster of region {{ $labels.region }} is connected.".into(),
        description: "Nothing new starts there. Leases there end when their term has passed.".into(),
        runbook: "cluster-disconnected",
        of_agents: false,
        fires: case("8m", [(series(connected, PLACE), "1x2 0x20"), (series(connected, other), "0x20")])
            .fires(&[("region", "europe-west4")]),
        quiet: case("8m", [(series(connected, PLACE), "1x20"), (series(connected, other), "0x20")]),
    }
}

fn cluster_disconnected(m: &Metrics) -> Alert {
    // Unlike the age of the last sync, it is known of agents that this manager has never heard.
    let connected = &m.agents.connected;
    Alert {
        name: "MeridianClusterDisconnected".into(),
        expression: format!("max by (cluster) ({}) == 0", series(connected, "")),
        hold: "5m",
        severity: "warning",
        summary: "The agent of cluster {{ $labels.cluster }} is silent.".into(),
        description: "Leases there end when their term has passed. Look at the agent and at the network."
            .into(),
        runbook: "cluster-disconnected",
        of_agents: false,
        fires: case("12m", [(series(connected, PLACE), "1x2 0x20")]).fires(&[("cluster", "eu")]),
        quiet: case("12m", [(series(connected, PLACE), "1x4 0x3 1x20")]),
    }
}

fn lease_lapsed(m: &Metrics) -> Alert {
    let lapses = &m.workloads.lapses;
    Alert {
        name: "MeridianLeaseLapsed".into(),
        expression: format!("{} > 0", increase(lapses, "", "10m")),
        hold: "0m",
        severity: "warning",
        summary: "A lease in cluster {{ $labels.cluster }} lapsed.".into(),
        description: "The cluster was lost, or the manager was away for longer than a term.".into(),
        runbook: "lease-lapsed",
        of_agents: false,
        fires: case("8m", [(series(lapses, CLUSTER), "0x5 1x10")]).fires(&[("cluster", "eu")]),
        quiet: case("8m", [(series(lapses, CLUSTER), "3x20")]),
    }
}

fn held_twice(m: &Metrics) -> Alert {
    let held = &m.fleet.held_twice;
    Alert {
        name: "MeridianHeldTwice".into(),
        expression: format!("{} > 4", rate_over(held, "", "15m")),
        hold: "15m",
        severity: "warning",
        summary: "Cluster {{ $labels.cluster }} holds more than 4 accelerators for offers that other \
                  clusters win."
            .into(),
        description: "Accelerators wait idle until a race is decided. Grants or withdrawals arrive late."
            .into(),
        runbook: "held-twice",
        of_agents: false,
        fires: case("40m", [(series(held, CLUSTER), "0+480x60")]).fires(&[("cluster", "eu")]),
        quiet: case("40m", [(series(held, CLUSTER), "0+60x60")]),
    }
}

fn orphans(m: &Metrics) -> Alert {
    let orphans = series(&m.workloads.orphans, "");
    Alert {
        name: "MeridianOrphans".into(),
        expression: format!("{orphans} > 0"),
        hold: "10m",
        severity: "warning",
        summary: "Runs of unknown workloads wait for an operator.".into(),
        description: "Usually an older journal was restored.".into(),
        runbook: "orphans",
        of_agents: false,
        fires: case("15m", [(orphans.clone(), "1x20")]).fires(&[]),
        quiet: case("15m", [(orphans, "1x8 0x20")]),
    }
}

fn recovery_open(m: &Metrics) -> Alert {
    let open = series(&m.engine.recovery_open, "");
    Alert {
        name: "MeridianRecoveryOpen".into(),
        expression: format!("{open} == 1"),
        hold: "30m",
        severity: "warning",
        summary: "Recovery has been open for half an hour.".into(),
        description: "Some workloads are held back until it is known what still runs.".into(),
        runbook: "recovery-open",
        of_agents: false,
        fires: case("40m", [(open.clone(), "1x60")]).fires(&[]),
        quiet: case("40m", [(open, "1x10 0x50")]),
    }
}

fn residency_violation(m: &Metrics) -> Alert {
    let violations = &m.fleet.residency_violations;
    Alert {
        name: "MeridianResidencyViolation".into(),
        expression: format!("{} > 0", series(violations, "")),
        hold: "0m",
        severity: "critical",
        summary: "Workloads run in cluster {{ $labels.cluster }} although a residency policy forbids it."
            .into(),
        description: "A policy was added or tightened while they ran, and it doesn't evict.".into(),
        runbook: "residency-violation",
        of_agents: false,
        fires: case("3m", [(series(violations, CLUSTER), "0x1 2x10")]).fires(&[("cluster", "eu")]),
        quiet: case("3m", [(series(violations, CLUSTER), "0x10")]),
    }
}

fn certificate_near_end() -> Alert {
    let expiry = OfAgent(names::CERTIFICATE_EXPIRY);
    Alert {
        name: "MeridianCertificateNearEnd".into(),
        expression: format!("{} - time() < 4 * 3600", series(&expiry, "")),
        hold: "10m",
        severity: "warning",
        summary: "The certificate of the agent of cluster {{ $labels.cluster }} ends within four hours."
            .into(),
        description: "Agents renew in time unless the manager can't be reached or refuses.".into(),
        runbook: "certificate-near-end",
        of_agents: true,
        fires: case("20m", [(series(&expiry, CLUSTER), "10000x30")]).fires(&[("cluster", "eu")]),
        quiet: case("20m", [(series(&expiry, CLUSTER), "80000x30")]),
    }
}
