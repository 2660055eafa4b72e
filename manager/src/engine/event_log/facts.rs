//! Committed facts as lines of the log.

use super::{Line, job_name, whole_seconds};
use meridian_manager_core::World;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::end::{Preempted, refusal_text};
use meridian_manager_core::facts::record::{LeadershipFact, MemberFact, OrphanFact, Record, WorkloadFact};
use meridian_manager_core::state::workload::Workload;
use meridian_shared::ids::{ClusterName, Fence};
use meridian_shared::protocol::StopReason;
use meridian_shared::timestamp::timestamp;

/// The line's message; `None` if the fact isn't logged. Cheap, because it needs no world.
pub(super) fn message(record: &Record) -> Option<&'static str> {
    Some(match record {
        Record::Leadership(LeadershipFact::Started { recovery: Some(_), .. }) => "recovery opened",
        Record::Leadership(LeadershipFact::RecoveryClosed { .. }) => "recovery closed",
        Record::Leadership(LeadershipFact::CopiesRuledOut { .. }) => "copies of the journal were ruled out",
        Record::Leadership(LeadershipFact::RulesDoubted { .. }) => "policies and quotas may be outdated",
        Record::Leadership(LeadershipFact::RulesConfirmed { .. }) => "policies and quotas were confirmed",
        Record::Member { fact: MemberFact::SessionOpened { .. }, .. } => "an agent opened a session",
        Record::Member { fact: MemberFact::Admitted { .. }, .. } => "cluster admitted",
        Record::Member { fact: MemberFact::DeclaredLost { .. }, .. } => "cluster declared lost",
        Record::Member { fact: MemberFact::CertificatesVoided { .. }, .. } => {
            "earlier certificates of the cluster are void"
        }
        Record::Orphan { fact: OrphanFact::Seen { .. }, .. } => "an agent runs an unknown workload",
        Record::Orphan { fact: OrphanFact::Gone { .. }, .. } => "an unknown workload is gone",
        Record::Workload { fact, .. } => match fact {
            WorkloadFact::Granted { .. } => "dispatched",
            WorkloadFact::StopOrdered { preempted: Some(_), .. } => "preempted",
            WorkloadFact::StopOrdered { .. } => "a run is being stopped",
            WorkloadFact::QuotaReleased { preempted: Some(_), .. } => "preempted before its start",
            WorkloadFact::GrantRefused { .. } => "a cluster refused its grant",
            WorkloadFact::LedgerReplaced { .. } => "a cluster came back without its store",
            WorkloadFact::LeaseLapsed { declared: true, .. } => "a run was declared lost",
            WorkloadFact::LeaseLapsed { .. } => "a lease lapsed",
            WorkloadFact::Ended { .. } | WorkloadFact::EndLearned { .. } => "a run ended",
            WorkloadFact::Adopted { .. } => "a reported run was adopted",
            WorkloadFact::Deactivated { .. } => "stopped",
            WorkloadFact::Activated { .. } => "resumed",
            WorkloadFact::Finished { succeeded: false, .. } => "failed",
            _ => return None,
        },
        _ => return None,
    })
}

/// The line for a fact.
pub(super) fn line(world: &World, record: &Record) -> Option<Line> {
    let message = message(record)?;
    Some(match record {
        Record::Leadership(fact) => of_leadership(world, fact, message),
        Record::Member { cluster, fact } => {
            let line = match fact {
                MemberFact::SessionOpened { ledger, .. } => {
                    Line::info(message).because(format!("with the store {ledger}"))
                }
                MemberFact::DeclaredLost { ledger, by } => {
                    Line::warn(message).because(format!("by {by}; its store was {ledger}"))
                }
                MemberFact::Admitted { by } | MemberFact::CertificatesVoided { by, .. } => {
                    Line::info(message).because(format!("by {by}"))
                }
                MemberFact::CertificatesAdopted { .. } => Line::info(message),
            };
            line.at(Some(cluster.clone()))
        }
        Record::Orphan { uid, fence, fact } => {
            let line = match fact {
                OrphanFact::Seen { cluster, .. } => {
                    let why = format!("attempt {fence}; `meridian orphan list` shows how to settle it");
                    Line::warn(message).because(why).at(Some(cluster.clone()))
                }
                _ => Line::info(message).because(format!("attempt {fence}")),
            };
            Line { uid: Some(*uid), ..line }
        }
        Record::Workload { uid, fact } => {
            let workload = world.state().workloads().get(uid);
            let job = workload.map(job_name);
            Line { uid: Some(*uid), job, ..of_workload(world, workload, fact, message) }
        }
        Record::Object { .. } | Record::Token { .. } | Record::UsageSampled { .. } | Record::Audited(_) => {
            return None;
        }
    })
}

fn of_leadership(world: &World, fact: &LeadershipFact, message: &'static str) -> Line {
    match fact {
        LeadershipFact::Started { .. } => {
            let members: Vec<&str> = world.state().members().keys().map(ClusterName::as_str).collect();
            let awaited = if members.is_empty() { "no cluster".to_owned() } else { members.join(", ") };
            Line::warn(message).because(format!(
                "another copy of this journal may have run; waiting for the inventories of: {awaited}; \
                 `meridian journal recovery` shows the rest"
            ))
        }
        LeadershipFact::RulesDoubted { until_heard, .. } => Line::warn(message).because(if *until_heard {
            "nothing is offered until all clusters have reported, or until `meridian journal confirm`"
        } else {
            "there may be newer rules; nothing is offered until the rules of the management cluster have \
             been read, or until `meridian journal confirm`"
        }),
        LeadershipFact::RecoveryClosed { by }
        | LeadershipFact::CopiesRuledOut { by }
        | LeadershipFact::RulesConfirmed { by } => Line::info(message).because(format!("by {by}")),
    }
}

fn of_workload(
    world: &World,
    workload: Option<&Workload>,
    fact: &WorkloadFact,
    message: &'static str,
) -> Line {
    let cluster = |fence: &Fence| {
        let attempts = workload.map(Workload::history).unwrap_or_default();
        attempts.iter().rev().find(|attempt| attempt.fence == *fence).map(|attempt| attempt.cluster.clone())
    };
    match fact {
        WorkloadFact::Granted { fence, .. } => {
            let attempt = workload.map(Workload::attempts).unwrap_or_default();
            Line::info(message).because(format!("attempt {attempt}, fence {fence}")).at(cluster(fence))
        }
        WorkloadFact::StopOrdered { fence, preempted: Some(preempted), .. } => {
            Line::info(message).because(preemptor(world, preempted)).at(cluster(fence))
        }
        WorkloadFact::StopOrdered { fence, reason, by, .. } => {
            let why = match (reason, by) {
                // `meridian stop`, for which the protocol has no separate reason
                (StopReason::Evicted, Actor::User(_)) => format!("stopped by {by}"),
                _ => format!("{}; by {by}", stop_reason(*reason)),
            };
            Line::info(message).because(why).at(cluster(fence))
        }
        WorkloadFact::QuotaReleased { preempted: Some(preempted), .. } => {
            Line::info(message).because(preemptor(world, preempted))
        }
        WorkloadFact::GrantRefused { fence, why } => {
            Line::warn(message).because(refusal_text(why)).at(cluster(fence))
        }
        WorkloadFact::LedgerReplaced { fence, until } => {
            let until = until.map_or_else(
                || "until `meridian cluster declare-lost`".to_owned(),
                |until| format!("until its lease has lapsed at {}", timestamp(until)),
            );
            Line::warn(message).because(format!("the run is assumed to continue {until}")).at(cluster(fence))
        }
        WorkloadFact::LeaseLapsed { fence, declared, .. } => {
            let next = if *declared { "" } else { "nothing runs there any more; " };
            Line::warn(message).because(format!("{next}it may start elsewhere")).at(cluster(fence))
        }
        WorkloadFact::Ended { fence, result, ran, unknown, .. } => {
            let how = if *unknown { "its agent has no record of it".to_owned() } else { result.to_string() };
            Line::info(message).because(format!("{how}, after {}", whole_seconds(*ran))).at(cluster(fence))
        }
        WorkloadFact::EndLearned { cluster, result, ran, .. } => {
            let how = format!("{result}, after {}", whole_seconds(*ran));
            Line::info(message).because(how).at(Some(cluster.clone()))
        }
        WorkloadFact::Adopted { cluster, .. } => Line::warn(message).at(Some(cluster.clone())),
        WorkloadFact::Deactivated { by, max_execution_time_reached, .. } => {
            let limit =
                if *max_execution_time_reached { "; it reached its maximum execution time" } else { "" };
            Line::info(message).because(format!("by {by}{limit}"))
        }
        WorkloadFact::Activated { by, .. } => Line::info(message).because(format!("by {by}")),
        WorkloadFact::Finished { reason, message: text, .. } => {
            Line::info(message).because(format!("{reason}: {text}"))
        }
        _ => Line::info(message),
    }
}

fn preemptor(world: &World, preempted: &Preempted) -> String {
    match world.state().workloads().get(&preempted.by) {
        Some(by) => format!("by {}/{} ({})", by.namespace(), by.name(), preempted.by),
        None => format!("by a job that is gone ({})", preempted.by),
    }
}

const fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Cancelled => "deleted or stopped",
        StopReason::Residency => "a residency policy no longer allows it there",
        StopReason::Drained => "the cluster is being drained",
        StopReason::Evicted => {
            "its queue was stopped, its maximum execution time is over, or its capacity is needed"
        }
        StopReason::Superseded => "its cluster may never have received the grant",
        StopReason::StartTimeout => "it did not start in time",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_manager_core::Config;
    use meridian_manager_core::facts::end::PreemptionReason;
    use meridian_shared::ids::{JournalId, Uid};
    use meridian_shared::mac::ReceiptKey;
    use meridian_shared::protocol::EndResult;
    use meridian_shared::time::{Millis, Wall};

    #[test]
    fn facts_have_what_an_operator_needs() {
        let world = World::empty(JournalId(1), Config::new(ReceiptKey([7; 32])));
        let fence: Fence = "1-2-3".parse().unwrap();
        let shown = |fact: WorkloadFact| {
            let line = line(&world, &Record::Workload { uid: Uid(7), fact }).unwrap();
            assert_eq!(line.uid, Some(Uid(7)));
            format!("{}: {}", line.message, line.why.unwrap_or_default())
        };
        let stop = |preempted| WorkloadFact::StopOrdered {
            fence,
            reason: StopReason::Drained,
            by: Actor::user("admin"),
            preempted,
            at: Wall(0),
        };
        assert_eq!(shown(stop(None)), "a run is being stopped: the cluster is being drained; by user:admin");
        let stopped = WorkloadFact::StopOrdered {
            fence,
            reason: StopReason::Evicted,
            by: Actor::user("admin"),
            preempted: None,
            at: Wall(0),
        };
        assert_eq!(shown(stopped), "a run is being stopped: stopped by user:admin");
        let preempted = Preempted { by: Uid(9), reason: PreemptionReason::InClusterQueue };
        assert_eq!(shown(stop(Some(preempted))), format!("preempted: by a job that is gone ({})", Uid(9)));
        let lapsed = WorkloadFact::LeaseLapsed { fence, at: Wall(0), declared: false, by: None };
        assert_eq!(shown(lapsed), "a lease lapsed: nothing runs there any more; it may start elsewhere");
        let ended = WorkloadFact::Ended {
            fence,
            result: EndResult::Failed { reason: "Crash".into(), message: "exit code 1".into() },
            pod_failures: 1,
            ran: Millis::secs(90),
            at: Wall(0),
            unknown: false,
        };
        assert_eq!(shown(ended), "a run ended: failed: Crash: exit code 1, after 90s");
        let closed = Record::Leadership(LeadershipFact::RecoveryClosed { by: Actor::System });
        assert_eq!(line(&world, &closed).unwrap(), Line::info("recovery closed").because("by system"));
        assert_eq!(message(&Record::Workload { uid: Uid(7), fact: WorkloadFact::Forgotten }), None);
    }
}
