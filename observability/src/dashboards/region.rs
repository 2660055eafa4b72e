//! One region: its clusters as the manager sees them, and its agents as they see themselves.

use super::{Dashboard, Panel, Row, regions};
use crate::dialect::of_gpus;
use crate::query::{OfAgent, increase, quantile, rate, series, sum, utilisation_of_granted};
use meridian_agent::metrics::names;
use meridian_manager::metrics::{Metrics, Named};

const IN_REGION: &str = r#"region=~"$region""#;

pub(super) fn dashboard(m: &Metrics) -> Dashboard {
    Dashboard {
        uid: "meridian-region",
        title: "Meridian: one region",
        description: "The clusters of a region and their agents",
        variables: vec![regions(m, false)],
        rows: vec![clusters(m), accelerators(m), races(m), agents(m)],
    }
}

/// Only series of clusters in the region.
fn here(m: &Metrics, of: &str) -> String {
    format!("{of} and on (cluster) {}", series(&m.fleet.cluster_info, IN_REGION))
}

fn clusters(m: &Metrics) -> Row {
    let capacity = |state: &str| {
        let series = series(&m.fleet.capacity, &format!(r#"state="{state}""#));
        here(m, &sum("cluster, flavor, resource", &series))
    };
    let amounts = |title, text: &str, state: &str| {
        Panel::lines(title, "none", text).query("{{cluster}} {{flavor}} {{resource}}", capacity(state))
    };
    Row {
        title: "Clusters",
        panels: vec![
            Panel::number("Connected", "bool_yes_no", "Whether every agent of the region is connected")
                .query("", format!("min({})", series(&m.agents.connected, IN_REGION)))
                .runbook("cluster-disconnected"),
            Panel::lines("Time since the last sync", "s", "Grows while an agent is silent")
                .query("{{cluster}}", here(m, &series(&m.agents.last_sync_age_seconds, "")))
                .warn(60.0, 300.0)
                .runbook("cluster-disconnected"),
            Panel::stack("Legs", "none", "Workloads here by state")
                .query("{{cluster}} {{state}}", here(m, &series(&m.workloads.legs, ""))),
            amounts("Capacity", "What agents report, by flavor", "total"),
            amounts("Free", "As agents report", "free"),
            amounts("Held", "For offers that are not decided", "held"),
            amounts("Granted", "Of workloads that have the right to run", "granted"),
            Panel::stack("Evictions", "none", "Workloads evicted from these clusters in an hour").query(
                "{{cluster}} {{reason}}",
                here(m, &sum("cluster, reason", &increase(&m.kueue.events.evicted_by_cluster, "", "1h"))),
            ),
            Panel::stack("Lapses", "none", "Leases that lapsed in an hour")
                .query("{{cluster}}", here(m, &increase(&m.workloads.lapses, "", "1h")))
                .runbook("lease-lapsed"),
        ],
    }
}

fn accelerators(m: &Metrics) -> Row {
    let of_gpus = |of| here(m, &of_gpus(of));
    let of_agents = |of| here(m, &series(&OfAgent(of), ""));
    Row {
        title: "Accelerators",
        panels: vec![
            Panel::lines("Utilisation of granted GPUs", "percent", "Average of the GPUs that workloads have")
                .query("{{cluster}}", here(m, &utilisation_of_granted(m)))
                .runbook("accelerators-underused"),
            Panel::lines("Utilisation by GPU", "percent", "Part of the time in which a kernel ran")
                .query("{{cluster}} {{gpu}} {{modelName}}", of_gpus(names::GPU_UTILISATION)),
            Panel::lines("Memory by GPU", "mbytes", "Used memory")
                .query("{{cluster}} {{gpu}} {{modelName}}", of_gpus(names::GPU_MEMORY_USED)),
            Panel::lines("Power by GPU", "watt", "Power draw")
                .query("{{cluster}} {{gpu}} {{modelName}}", of_gpus(names::GPU_POWER)),
            Panel::lines("Requests for nodes", "none", "That wait for the provider, or have their nodes")
                .query("{{cluster}} {{state}}", of_agents(names::NODE_REQUESTS))
                .query("{{cluster}} limit, 0 without one", of_agents(names::NODE_REQUESTS_LIMIT))
                .runbook("node-requests-near-limit"),
            Panel::stack("Waits for the provider", "none", "Offers that wait for nodes, by its reason")
                .query("{{cluster}} {{reason}}", here(m, &series(&m.fleet.offers_waiting, "")))
                .runbook("stocked-out"),
            Panel::stack("Refusals of the provider", "none", "Offers without nodes in an hour, by reason")
                .query("{{cluster}} {{reason}}", here(m, &increase(&m.fleet.provider_refusals, "", "1h")))
                .runbook("stocked-out"),
            Panel::lines("Unused bookings", "s", "How long the provider's nodes have waited for their pods")
                .query("{{cluster}}", of_agents(names::UNUSED_BOOKING_AGE))
                .warn(300.0, 420.0)
                .runbook("booking-unused"),
        ],
    }
}

fn races(m: &Metrics) -> Row {
    let races = &m.fleet.race_seconds;
    Row {
        title: "Race with other regions",
        panels: vec![
            Panel::stack("Offers by outcome", "ops", "Ended offers per second").query(
                "{{cluster}} {{outcome}}",
                here(m, &sum("cluster, outcome", &rate(&m.fleet.offers, ""))),
            ),
            Panel::lines("Wait in won races", "s", "From the first offer until the cluster won")
                .query("{{cluster}} median", here(m, &quantile("0.5", "cluster", races, "")))
                .query("{{cluster}} 95 %", here(m, &quantile("0.95", "cluster", races, ""))),
            Panel::lines("Accelerators held twice", "none", "Held on average for offers that others won")
                .query("{{cluster}}", here(m, &rate(&m.fleet.held_twice, "")))
                .warn(1.0, 8.0)
                .runbook("held-twice"),
            Panel::lines("Reconnects", "none", "Sessions that agents opened in an hour")
                .query("{{cluster}}", here(m, &increase(&m.fleet.sessions, "", "1h")))
                .runbook("cluster-disconnected"),
            Panel::stack("Syncs", "reqps", "Requests of agents per second")
                .query("{{cluster}} {{lane}}", here(m, &rate(&m.agents.sync_requests, ""))),
        ],
    }
}

fn agents(m: &Metrics) -> Row {
    let (syncs, commits) = (OfAgent(names::SYNCS), OfAgent(names::COMMITS));
    let gauge = |of| here(m, &series(&OfAgent(of), ""));
    Row {
        title: "Agents",
        panels: vec![
            Panel::stack("Runs", "none", "Live attempts as the agent counts them")
                .query("{{cluster}} {{state}}", gauge(names::RUNS)),
            Panel::lines("Holds", "none", "Offers that hold resources")
                .query("{{cluster}}", gauge(names::HOLDS)),
            Panel::stack("Refused offers", "none", "Offers that the agent refused in an hour")
                .query("{{cluster}} {{reason}}", here(m, &increase(&OfAgent(names::REFUSED), "", "1h"))),
            Panel::lines("Sync time", "s", "95 % of requests to the manager; polls mostly wait")
                .query("{{cluster}} {{lane}}", here(m, &quantile("0.95", "cluster, lane", &syncs, ""))),
            Panel::stack("Syncs by outcome", "reqps", "Requests to the manager by outcome, per second")
                .query("{{cluster}} {{outcome}}", here(m, &rate_of(&syncs))),
            Panel::lines("Commit time", "s", "99 % of the durable transactions of the agent's store")
                .query("{{cluster}}", here(m, &quantile("0.99", "cluster", &commits, ""))),
            Panel::lines("Lease renewals", "ops", "That extended a deadline, per second")
                .query("{{cluster}}", here(m, &rate(&OfAgent(names::RENEWALS), ""))),
            Panel::lines("Certificate", "s", "Time until the agent's certificate ends")
                .query("{{cluster}}", {
                    let expiry = series(&OfAgent(names::CERTIFICATE_EXPIRY), "");
                    here(m, &format!("({expiry} - time())"))
                })
                .runbook("certificate-near-end"),
            Panel::lines("Moved and stranded gangs", "none", "Gangs that lost a node, in an hour")
                .query("{{cluster}} moved", here(m, &increase(&OfAgent(names::GANGS_MOVED), "", "1h")))
                .query("{{cluster}} stranded", here(m, &increase(&OfAgent(names::STRANDED), "", "1h"))),
            Panel::lines("Unreported nodes", "none", "Left out of the report because too many differ")
                .query("{{cluster}}", gauge(names::UNREPORTED_NODES))
                .warn(1.0, 1.0),
        ],
    }
}

/// Requests of agents per second by outcome.
fn rate_of(syncs: &OfAgent) -> String {
    format!("sum by (cluster, outcome) (rate({}_count[$__rate_interval]))", syncs.name())
}
