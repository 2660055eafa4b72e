//! Alerts about the journal and about the programs themselves.

use super::{Alert, case};
use crate::query::{OfAgent, increase, quantile_over, series};
use meridian_agent::metrics::names;
use meridian_manager::metrics::{Metrics, Named};

/// Above this size the journal's reads at a start take longer than operators expect.
const BIG: &str = "8 * 1024 * 1024 * 1024";
/// Below this free space a burst of submissions can fill the disk before anybody looks.
const NEARLY_FULL: &str = "1024 * 1024 * 1024";

pub(super) fn alerts(m: &Metrics) -> Vec<Alert> {
    vec![
        slow(m),
        big(m),
        nearly_full(m),
        full(m),
        audit_chain_broken(m),
        damaged(m),
        invariant_violated(m),
        agent_invariant_violated(),
    ]
}

fn slow(m: &Metrics) -> Alert {
    let commits = &m.journal.commit_seconds;
    let bucket = |le: &str| format!("{}_bucket{{le=\"{le}\"}}", commits.name());
    let (fast, late) = ("0.0512", "3.2768");
    Alert {
        name: "MeridianJournalSlow".into(),
        expression: format!("{} > 1", quantile_over("0.99", "", commits, "", "5m")),
        hold: "10m",
        severity: "warning",
        summary: "One of a hundred journal commits takes longer than a second.".into(),
        description: "The disk is slow. After a few seconds without a commit the manager answers no agent."
            .into(),
        runbook: "journal-slow",
        of_agents: false,
        fires: case(
            "20m",
            [(bucket(fast), "0+50x30"), (bucket(late), "0+100x30"), (bucket("+Inf"), "0+100x30")],
        )
        .fires(&[]),
        quiet: case(
            "20m",
            [(bucket(fast), "0+100x30"), (bucket(late), "0+100x30"), (bucket("+Inf"), "0+100x30")],
        ),
    }
}

fn big(m: &Metrics) -> Alert {
    let bytes = series(&m.journal.bytes, "");
    Alert {
        name: "MeridianJournalBig".into(),
        expression: format!("{bytes} > {BIG}"),
        hold: "1h",
        severity: "warning",
        summary: "The journal is larger than 8 GiB.".into(),
        description: "Starts and backups take longer. Finished jobs and the audit log take the space.".into(),
        runbook: "journal-big",
        of_agents: false,
        fires: case("90m", [(bytes.clone(), "9e9x120")]).fires(&[]),
        quiet: case("90m", [(bytes, "1e9x120")]),
    }
}

fn nearly_full(m: &Metrics) -> Alert {
    let free = series(&m.journal.disk_free_bytes, "");
    Alert {
        name: "MeridianJournalNearlyFull".into(),
        expression: format!("{free} < {NEARLY_FULL}"),
        hold: "5m",
        severity: "warning",
        summary: "The disk of the journal has less than 1 GiB free.".into(),
        description: "When it is full, only ends and deletions are accepted.".into(),
        runbook: "journal-full",
        of_agents: false,
        fires: case("10m", [(free.clone(), "5e8x20")]).fires(&[]),
        quiet: case("10m", [(free, "5e9x20")]),
    }
}

fn full(m: &Metrics) -> Alert {
    let full = series(&m.journal.full, "");
    Alert {
        name: "MeridianJournalFull".into(),
        expression: format!("{full} == 1"),
        hold: "0m",
        severity: "critical",
        summary: "The disk of the journal is full.".into(),
        description: "Only ends and deletions are accepted until space is freed. Leases are still renewed."
            .into(),
        runbook: "journal-full",
        of_agents: false,
        fires: case("3m", [(full.clone(), "0x1 1x10")]).fires(&[]),
        quiet: case("3m", [(full, "0x10")]),
    }
}

fn audit_chain_broken(m: &Metrics) -> Alert {
    let audit = r#"part="audit""#;
    let damaged = series(&m.journal.damaged, audit);
    Alert {
        name: "MeridianAuditChainBroken".into(),
        expression: format!("{damaged} > 0"),
        hold: "0m",
        severity: "critical",
        summary: "The audit log can't be read as it was written.".into(),
        description: "A line is missing, was changed or is damaged. The manager continues.".into(),
        runbook: "audit-chain-broken",
        of_agents: false,
        fires: case("3m", [(damaged.clone(), "0x1 1x10")]).fires(&[("part", "audit")]),
        quiet: case("3m", [(damaged, "0x10")]),
    }
}

fn damaged(m: &Metrics) -> Alert {
    let of = |part: &str| series(&m.journal.damaged, &format!(r#"part="{part}""#));
    Alert {
        name: "MeridianJournalDamaged".into(),
        expression: format!("{} > 0", series(&m.journal.damaged, r#"part!="audit""#)),
        hold: "0m",
        severity: "critical",
        summary: "The journal's {{ $labels.part }} can't be read.".into(),
        description: "The manager continues with what it has in memory, and may not be able to start again."
            .into(),
        runbook: "journal-damaged",
        of_agents: false,
        fires: case("3m", [(of("records"), "0x1 1x10"), (of("audit"), "1x10")]).fires(&[("part", "records")]),
        quiet: case("3m", [(of("records"), "0x10"), (of("audit"), "1x10")]),
    }
}

fn invariant_violated(m: &Metrics) -> Alert {
    let violations = series(&m.engine.invariant_violations, "");
    Alert {
        name: "MeridianInvariantViolated".into(),
        expression: format!("{} > 0", increase(&m.engine.invariant_violations, "", "10m")),
        hold: "0m",
        severity: "critical",
        summary: "The manager found an inconsistency in its own state.".into(),
        description: "This is a bug. Keep the journal and report it.".into(),
        runbook: "invariant-violated",
        of_agents: false,
        fires: case("8m", [(violations.clone(), "0x5 1x10")]).fires(&[]),
        quiet: case("8m", [(violations, "2x20")]),
    }
}

fn agent_invariant_violated() -> Alert {
    let violations = OfAgent(names::VIOLATIONS);
    let of = series(&violations, r#"cluster="eu""#);
    Alert {
        name: "MeridianAgentInvariantViolated".into(),
        expression: format!("{} > 0", increase(&violations, "", "10m")),
        hold: "0m",
        severity: "critical",
        summary: "The agent of cluster {{ $labels.cluster }} found an inconsistency in its own state.".into(),
        description: "This is a bug. Keep the agent's data directory and report it.".into(),
        runbook: "invariant-violated",
        of_agents: true,
        fires: case("8m", [(of.clone(), "0x5 1x10")]).fires(&[("cluster", "eu")]),
        quiet: case("8m", [(of, "2x20")]),
    }
}
