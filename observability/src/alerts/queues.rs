//! Alerts about waiting and running workloads.

use super::{Alert, case};
use crate::query::{increase, series, sum};
use meridian_manager::metrics::Metrics;

const QUEUE: &str = r#"cluster_queue="dws""#;

pub(super) fn alerts(m: &Metrics) -> Vec<Alert> {
    vec![stocked_out(m), tenant_starved(m), queue_too_old(m), run_limit_near(m)]
}

fn stocked_out(m: &Metrics) -> Alert {
    let (waits, admitted) = (&m.kueue.queues.unadmitted, &m.kueue.events.admitted);
    let of_causes = |causes: &str| {
        let labels = format!(r#"reason="UnsatisfiedAdmissionChecks",underlying_cause=~"{causes}""#);
        sum("cluster_queue", &series(waits, &labels))
    };
    let none_started = |within| {
        let starts = sum("cluster_queue", &increase(admitted, "", within));
        format!("unless on (cluster_queue) ({starts} > 0)")
    };
    let full = of_causes("NoCapacity|CapacityReserved|Capped|Refused|BackedOff");
    // All clusters were asked, and providers make no nodes. They usually take minutes for that.
    let asked = of_causes("ClustersAsked");
    let waits_for = |cause: &str| {
        let labels = format!(r#"{QUEUE},reason="UnsatisfiedAdmissionChecks",underlying_cause="{cause}""#);
        series(waits, &labels)
    };
    let starts = || series(admitted, &format!(r#"{QUEUE},priority_class="""#));
    Alert {
        name: "MeridianAllRegionsStockedOut".into(),
        expression: format!("({full} > 0 {}) or ({asked} > 0 {})", none_started("15m"), none_started("1h")),
        hold: "15m",
        severity: "warning",
        summary: "No region has capacity for queue {{ $labels.cluster_queue }}.".into(),
        description: "Workloads have quota, and none started: for 15 minutes because every allowed cluster \
                      is full, or for an hour because no provider has made nodes."
            .into(),
        runbook: "stocked-out",
        of_agents: false,
        fires: case(
            "100m",
            [(waits_for("NoCapacity"), "0x150"), (waits_for("ClustersAsked"), "3x150"), (starts(), "7x150")],
        )
        .fires(&[("cluster_queue", "dws")]),
        // One workload starts in half an hour: providers are slow, and not out of stock.
        quiet: case("100m", [(waits_for("ClustersAsked"), "3x150"), (starts(), "0x30 1x30 2x30 3x60")]),
    }
}

fn tenant_starved(m: &Metrics) -> Alert {
    let starved = &m.workloads.starved_heads;
    Alert {
        name: "MeridianTenantStarved".into(),
        expression: format!("{} > 0", series(starved, "")),
        hold: "30m",
        severity: "warning",
        summary: "The head of queue {{ $labels.cluster_queue }} has waited too long.".into(),
        description: "The starvation guard reserves capacity for it, and it still doesn't start.".into(),
        runbook: "tenant-starved",
        of_agents: false,
        fires: case("40m", [(series(starved, QUEUE), "1x60")]).fires(&[("cluster_queue", "dws")]),
        quiet: case("40m", [(series(starved, QUEUE), "1x5 0x55")]),
    }
}

fn queue_too_old(m: &Metrics) -> Alert {
    let oldest = &m.workloads.oldest_pending;
    let of = series(oldest, &format!(r#"{QUEUE},priority_class="""#));
    Alert {
        name: "MeridianQueueTooOld".into(),
        expression: format!("max by (cluster_queue) ({}) > 24 * 3600", series(oldest, "")),
        hold: "10m",
        severity: "warning",
        summary: "A workload has been pending in queue {{ $labels.cluster_queue }} for more than a day."
            .into(),
        description: "The oldest age is above its objective. `meridian why` says what it waits for.".into(),
        runbook: "queue-too-old",
        of_agents: false,
        fires: case("20m", [(of.clone(), "90000+60x30")]).fires(&[("cluster_queue", "dws")]),
        quiet: case("20m", [(of, "600+60x30")]),
    }
}

fn run_limit_near(m: &Metrics) -> Alert {
    let near = &m.workloads.near_run_limit;
    Alert {
        name: "MeridianRunLimitNear".into(),
        expression: format!("{} > 0", series(near, "")),
        // A tenth of a short limit is shorter than any time to hold.
        hold: "0m",
        severity: "warning",
        summary: "Workloads of queue {{ $labels.cluster_queue }} are about to reach their run limit.".into(),
        description: "Less than a tenth of their maximum execution time is left; then they are stopped."
            .into(),
        runbook: "run-limit-near",
        of_agents: false,
        fires: case("10m", [(series(near, QUEUE), "0x9 1x10")]).fires(&[("cluster_queue", "dws")]),
        quiet: case("10m", [(series(near, QUEUE), "0x20")]),
    }
}
