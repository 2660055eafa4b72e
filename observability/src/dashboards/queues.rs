//! One tenant and one cluster queue, with the panels that users of Kueue know.

use super::{Dashboard, Panel, Row, Variable};
use crate::query::{increase, quantile, rate, series, sum};
use meridian_manager::metrics::{Metrics, Named};

const TENANT: &str = r#"namespace=~"$tenant""#;
const QUEUE: &str = r#"cluster_queue=~"$queue""#;

pub(super) fn tenant(m: &Metrics) -> Dashboard {
    let metric = m.kueue.local_queues.pending_workloads.name();
    let variable = Variable { name: "tenant", label: "Namespace", metric, value: "namespace", many: false };
    Dashboard {
        uid: "meridian-tenant",
        title: "Meridian: one tenant",
        description: "The local queues of a namespace",
        variables: vec![variable],
        rows: vec![tenant_workloads(m), tenant_waits(m)],
    }
}

fn tenant_workloads(m: &Metrics) -> Row {
    let (local, events) = (&m.kueue.local_queues, &m.kueue.events);
    let usage = |title, text: &str, expression| {
        Panel::stack(title, "none", text).query("{{name}} {{flavor}} {{resource}}", expression)
    };
    Row {
        title: "Workloads",
        panels: vec![
            Panel::stack("Pending", "none", "Considered now, or only after a change")
                .query("{{name}} {{status}}", series(&local.pending_workloads, TENANT)),
            Panel::lines("Admitted", "none", "Workloads that a cluster has the right to run")
                .query("{{name}}", series(&local.admitted_active, TENANT)),
            Panel::lines("With quota", "none", "Workloads that hold quota")
                .query("{{name}}", series(&local.reserving_active, TENANT)),
            Panel::stack("Why workloads wait", "none", "Workloads that are not admitted")
                .query("{{name}} {{reason}} {{underlying_cause}}", series(&local.unadmitted, TENANT)),
            usage("Quota used", "By admitted workloads", series(&local.usage, TENANT)),
            usage("Quota reserved", "By workloads that hold quota", series(&local.reservation, TENANT)),
            Panel::stack("Finished", "none", "Finished workloads in an hour")
                .query("{{name}}", sum("name", &increase(events.finished.local(), TENANT, "1h"))),
            Panel::stack("Evictions", "none", "Evictions in an hour").query(
                "{{name}} {{reason}} {{underlying_cause}}",
                sum("name, reason, underlying_cause", &increase(&events.local_evicted, TENANT, "1h")),
            ),
        ],
    }
}

fn tenant_waits(m: &Metrics) -> Row {
    let events = &m.kueue.events;
    let wait = |title, text: &str, metric| {
        Panel::lines(title, "s", text)
            .query("{{name}} median", quantile("0.5", "name", metric, TENANT))
            .query("{{name}} 95 %", quantile("0.95", "name", metric, TENANT))
    };
    let usage = &m.kueue.local_queues.fair_sharing_usage;
    Row {
        title: "Waits and shares",
        panels: vec![
            wait("Wait for quota", "From creation or requeueing", events.quota_reserved_wait.local()),
            wait("Wait for a cluster", "From creation or requeueing", events.admission_wait.local()),
            wait("Wait until all pods run", "From creation or requeueing", events.ready_wait.local()),
            wait("Run time", "Of finished workloads, over all attempts", events.execution_time.local()),
            Panel::lines("Usage history", "none", "By weight; exists only with admission fair sharing")
                .query("{{name}}", series(usage, TENANT)),
        ],
    }
}

pub(super) fn cluster_queue(m: &Metrics) -> Dashboard {
    let metric = m.kueue.queues.pending_workloads.name();
    let variable =
        Variable { name: "queue", label: "Cluster queue", metric, value: "cluster_queue", many: false };
    Dashboard {
        uid: "meridian-cluster-queue",
        title: "Meridian: one cluster queue",
        description: "Pending and admitted workloads, quota, waits and evictions, under Kueue's names",
        variables: vec![variable],
        rows: vec![queue_workloads(m), quota(m), queue_waits(m), changes(m)],
    }
}

fn queue_workloads(m: &Metrics) -> Row {
    let queues = &m.kueue.queues;
    Row {
        title: "Workloads",
        panels: vec![
            Panel::number("Active", "bool_yes_no", "Whether the queue admits workloads").query(
                "",
                format!("max({})", series(&queues.status, &format!(r#"status="active",{QUEUE}"#))),
            ),
            Panel::number("Oldest pending", "s", "Age of the oldest pending workload")
                .query("", format!("max({})", series(&m.workloads.oldest_pending, QUEUE)))
                .warn(3_600.0, 86_400.0)
                .runbook("queue-too-old"),
            Panel::number("Head starves", "bool_yes_no", "Whether the guard reserves capacity for its head")
                .query("", format!("max({})", series(&m.workloads.starved_heads, QUEUE)))
                .warn(1.0, 1.0)
                .runbook("tenant-starved"),
            Panel::number(
                "Near the run limit",
                "none",
                "Running workloads with less than a tenth of their limit left",
            )
            .query("", sum("", &series(&m.workloads.near_run_limit, QUEUE)))
            .runbook("run-limit-near"),
            Panel::stack("Pending", "none", "Considered now, or only after a change")
                .query("{{status}}", sum("status", &series(&queues.pending_workloads, QUEUE))),
            Panel::stack("Why workloads wait", "none", "Workloads that are not admitted").query(
                "{{reason}} {{underlying_cause}}",
                sum("reason, underlying_cause", &series(&queues.unadmitted, QUEUE)),
            ),
            Panel::lines("Admitted", "none", "Workloads that hold quota, and that a cluster may run")
                .query("hold quota", sum("", &series(&queues.reserving_active, QUEUE)))
                .query("admitted", sum("", &series(&queues.admitted_active, QUEUE))),
            Panel::lines("Oldest pending by class", "s", "Age of the oldest pending workload")
                .query("{{priority_class}}", series(&m.workloads.oldest_pending, QUEUE))
                .runbook("queue-too-old"),
        ],
    }
}

fn quota(m: &Metrics) -> Row {
    let queues = &m.kueue.queues;
    let cells = |title, text: &str, metric| {
        Panel::lines(title, "none", text).query("{{flavor}} {{resource}}", series(metric, QUEUE))
    };
    let part = format!("{} / {}", series(&queues.usage, QUEUE), series(&queues.nominal_quota, QUEUE));
    Row {
        title: "Quota",
        panels: vec![
            Panel::lines("Use of the nominal quota", "percentunit", "Above 100 % the queue borrows")
                .query("{{flavor}} {{resource}}", part)
                .warn(0.9, 1.0),
            cells("Used", "By admitted workloads", &queues.usage),
            cells("Reserved", "By workloads that hold quota", &queues.reservation),
            cells("Nominal quota", "What the queue owns", &queues.nominal_quota),
            cells("Borrowing limit", "Infinite without a limit", &queues.borrowing_limit),
            Panel::stack("Requested by pending workloads", "none", "Resources with quota")
                .query("{{resource}}", series(&queues.resource_pending, QUEUE)),
            Panel::lines("Weighted share", "none", "Of borrowed resources; exists only with fair sharing")
                .query("{{cohort}}", series(&queues.weighted_share, QUEUE)),
        ],
    }
}

fn queue_waits(m: &Metrics) -> Row {
    let events = &m.kueue.events;
    let wait = |title, text: &str, metric| {
        Panel::lines(title, "s", text)
            .query("median", quantile("0.5", "", metric, QUEUE))
            .query("95 %", quantile("0.95", "", metric, QUEUE))
            .query("99 %", quantile("0.99", "", metric, QUEUE))
    };
    Row {
        title: "Waits",
        panels: vec![
            wait("Wait for quota", "From creation or requeueing", &events.quota_reserved_wait),
            wait("Wait for a cluster", "From creation or requeueing", &events.admission_wait),
            wait("From quota to cluster", "The time that the race takes", &events.checks_wait),
            wait("Wait until all pods run", "From creation or requeueing", &events.ready_wait),
            wait("From admission until all pods run", "The start", &events.admitted_until_ready),
            wait("Run time", "Of finished workloads, over all attempts", &events.execution_time),
        ],
    }
}

fn changes(m: &Metrics) -> Row {
    let events = &m.kueue.events;
    let latency = &events.eviction_latency;
    Row {
        title: "Admissions and evictions",
        panels: vec![
            Panel::stack("Admissions", "ops", "Workloads that got a cluster, per second")
                .query("{{cluster}}", sum("cluster", &rate(&events.admitted_by_cluster, QUEUE))),
            Panel::stack("Finished", "none", "Finished workloads in an hour")
                .query("{{priority_class}}", sum("priority_class", &increase(&events.finished, QUEUE, "1h"))),
            Panel::stack("Evictions", "none", "Evictions in an hour").query(
                "{{reason}} {{underlying_cause}}",
                sum("reason, underlying_cause", &increase(&events.evicted, QUEUE, "1h")),
            ),
            Panel::stack("Preemptions for this queue", "none", "Workloads that it preempted in an hour")
                .query(
                    "{{reason}}",
                    sum(
                        "reason",
                        &increase(&events.preempted, r#"preempting_cluster_queue=~"$queue""#, "1h"),
                    ),
                ),
            Panel::lines("Time to stop evicted workloads", "s", "Until their quota is free")
                .query("95 % {{reason}}", quantile("0.95", "reason", latency, QUEUE)),
        ],
    }
}
