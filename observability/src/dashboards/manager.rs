//! The manager itself: API, journal, agents' endpoint and engine.

use super::{Dashboard, Panel, Row};
use crate::query::{increase, quantile, rate, series, sum};
use meridian_manager::metrics::Metrics;

pub(super) fn dashboard(m: &Metrics) -> Dashboard {
    Dashboard {
        uid: "meridian-manager",
        title: "Meridian: the manager",
        description: "Requests, the journal, connections and the engine",
        variables: Vec::new(),
        rows: vec![api(m), journal(m), endpoint(m), engine(m)],
    }
}

fn api(m: &Metrics) -> Row {
    let api = &m.api;
    Row {
        title: "API",
        panels: vec![
            Panel::stack("Requests by status", "reqps", "Requests of users per second")
                .query("{{code}}", sum("code", &rate(&api.requests, "")))
                .runbook("slo-api"),
            Panel::stack("Requests by resource", "reqps", "Requests of users per second")
                .query("{{verb}} {{resource}}", sum("verb, resource", &rate(&api.requests, ""))),
            Panel::lines("Request time", "s", "99 % of requests, without watches and logs")
                .query("{{verb}}", quantile("0.99", "verb", &api.request_seconds, ""))
                .warn(0.5, 2.0)
                .runbook("slo-api"),
            Panel::stack("Submissions", "ops", "Jobs per second by result")
                .query("{{result}}", sum("result", &rate(&m.workloads.submissions, ""))),
            Panel::lines("Watches and lists", "none", "Open now")
                .query("watches", series(&api.watchers, ""))
                .query("lists", series(&api.lists, "")),
        ],
    }
}

fn journal(m: &Metrics) -> Row {
    let journal = &m.journal;
    Row {
        title: "Journal",
        panels: vec![
            Panel::lines("Commit time", "s", "Including the sync of the disk")
                .query("median", quantile("0.5", "", &journal.commit_seconds, ""))
                .query("99 %", quantile("0.99", "", &journal.commit_seconds, ""))
                .warn(0.2, 1.0)
                .runbook("journal-slow"),
            Panel::lines("Records in a commit", "none", "Median and 99 %")
                .query("median", quantile("0.5", "", &journal.commit_records, ""))
                .query("99 %", quantile("0.99", "", &journal.commit_records, "")),
            Panel::lines("Records", "ops", "Records and audit lines per second")
                .query("records", rate(&journal.records, ""))
                .query("audit lines", rate(&journal.audit_lines, "")),
            Panel::lines("Size", "bytes", "The file, the space kept back, and what is free on the disk")
                .query("journal", series(&journal.bytes, ""))
                .query("kept back", series(&journal.reserve_bytes, ""))
                .query("free", series(&journal.disk_free_bytes, ""))
                .runbook("journal-full"),
            Panel::number("Full", "bool_yes_no", "Whether only ends and deletions are accepted")
                .query("", series(&journal.full, ""))
                .warn(1.0, 1.0)
                .runbook("journal-full"),
            Panel::number("Damaged", "none", "Manifests and parts that can't be read")
                .query("", sum("", &series(&journal.damaged, "")))
                .warn(1.0, 1.0)
                .runbook("journal-damaged"),
            Panel::lines("Search for damage", "Bps", "Bytes read per second")
                .query("", rate(&journal.scrubbed_bytes, "")),
        ],
    }
}

fn endpoint(m: &Metrics) -> Row {
    let agents = &m.agents;
    Row {
        title: "Agents and connections",
        panels: vec![
            Panel::stack("Syncs", "reqps", "Requests of agents per second")
                .query("{{lane}}", sum("lane", &rate(&agents.sync_requests, ""))),
            Panel::lines("Sync time", "s", "99 % of syncs; polls mostly wait")
                .query("{{lane}}", quantile("0.99", "lane", &agents.sync_seconds, "")),
            Panel::stack("Connections", "none", "Open now")
                .query("{{class}}", series(&m.connections.open, "")),
            Panel::stack(
                "Refused connections",
                "none",
                "Closed because of a limit or a deadline, in an hour",
            )
            .query("{{reason}}", sum("reason", &increase(&m.connections.refused, "", "1h"))),
            Panel::stack("Refused requests of agents", "none", "Above the rate limit, or a void certificate")
                .query("{{cluster}}", increase(&agents.requests_refused, "", "1h")),
            Panel::lines("Anomalies of the protocol", "none", "In an hour")
                .query("{{kind}}", increase(&agents.link_events, "", "1h"))
                .query("put off", increase(&agents.events_put_off, "", "1h")),
            Panel::lines("Certificates", "none", "Issued in an hour")
                .query("{{kind}}", increase(&agents.certificates_issued, "", "1h")),
        ],
    }
}

fn engine(m: &Metrics) -> Row {
    let events = &m.kueue.events;
    Row {
        title: "Engine",
        panels: vec![
            Panel::stack("Workloads", "none", "By state")
                .query("{{state}}", series(&m.workloads.by_state, "")),
            Panel::stack("Scheduling rounds", "ops", "Per second by result")
                .query("{{result}}", sum("result", &rate(&events.admission_attempts, ""))),
            Panel::lines("Time of a scheduling round", "s", "99 %")
                .query("{{result}}", quantile("0.99", "result", &events.attempt_seconds, "")),
            Panel::lines("Recoveries", "none", "Opened in a day")
                .query("", increase(&m.engine.recoveries, "", "1d"))
                .runbook("recovery-open"),
            Panel::lines("Invariant violations", "none", "In a day; each is a bug")
                .query("", increase(&m.engine.invariant_violations, "", "1d"))
                .warn(1.0, 1.0)
                .runbook("invariant-violated"),
        ],
    }
}
