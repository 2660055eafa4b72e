//! Plans on queue state built by hand. Golden snapshots pin the report schema.

#[path = "plans/stage.rs"]
mod stage;

use meridian_planning::decide::Ending;
use meridian_planning::report::HolderState;
use meridian_planning::what_if::{ChangeKind, Loss, ObjectChange};
use meridian_planning::{CycleLimits, PlanReport, WhatIf};
use meridian_queueing::model::{ClusterQueuePreemption, PreemptionRule, QueueSetup};
use meridian_queueing::settings::{FairSharing, Settings};
use stage::{GPU, Stage, reclaims, stopped, strict};

/// Two teams of a cohort, spot before on-demand, with one workload for each outcome.
fn two_teams() -> Stage {
    let quotas =
        [("spot", "cpu", 32_000), ("spot", GPU, 8), ("on-demand", "cpu", 16_000), ("on-demand", GPU, 4)];
    let mut stage = Stage::new(Settings::default())
        .flavor("spot", true)
        .flavor("on-demand", false)
        .cohort("org", None)
        .cohort("research", Some("org"))
        .queue("vision", Some("research"), &quotas)
        .with(reclaims)
        .queue("speech", Some("research"), &quotas)
        .queue("batch", None, &[("on-demand", "cpu", 4_000)])
        .with(strict)
        .queue("old", None, &[("on-demand", "cpu", 4_000)])
        .with(stopped)
        .note("localqueue/ml/lost names cluster queue `gone`, which isn't there")
        .open();
    let eight = [("cpu", 4_000), (GPU, 4)];
    let borrower = stage.job("borrower", "speech", 0, 4, &eight).tolerates("spot");
    let owner = stage.job("owner", "vision", 0, 2, &eight).tolerates("spot");
    let shrinks = stage.job("shrinks", "speech", 5, 4, &[(GPU, 1)]).at_least(1);
    let picky = stage.job("picky", "speech", 0, 1, &[("example.com/tpu", 1)]);
    let huge = stage.job("huge", "vision", 0, 100, &eight).tolerates("spot");
    let twin = stage.job("huge-twin", "vision", 0, 100, &eight).tolerates("spot");
    let first = stage.job("first", "batch", 0, 1, &[("cpu", 6_000)]);
    let second = stage.job("second", "batch", 0, 1, &[("cpu", 1_000)]);
    let late = stage.job("late", "old", 0, 1, &[("cpu", 1_000)]);
    let stranger =
        stage.job("stranger", "batch", 0, 1, &[("cpu", 1_000)]).marked(|m| m.wrong_namespace = true);
    stage
        .running(borrower, "spot")
        .pending(owner)
        .pending(shrinks)
        .pending(picky)
        .pending(huge)
        .pending(twin)
        .pending(first)
        .pending(second)
        .pending(late)
        .parked(stranger)
}

#[test]
fn each_outcome_is_reported() {
    let report = two_teams().plan(&CycleLimits::default());
    assert_eq!(report.run.end, Ending::Settled);
    insta::assert_json_snapshot!("two_teams", report);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(
        serde_json::from_str::<PlanReport>(&text).unwrap(),
        report,
        "the report survives a round trip"
    );
    assert_eq!(
        serde_json::to_string(&two_teams().plan(&CycleLimits::default())).unwrap(),
        text,
        "the same input gives the same bytes"
    );
}

#[test]
fn victims_are_still_stopping_after_the_last_requested_cycle() {
    let report = two_teams().plan(&CycleLimits { cycles: Some(2), heads_per_queue: 1 });
    assert_eq!((report.run.cycles, report.run.end), (2, Ending::CyclesReached));
    let borrower = report.admitted.iter().find(|h| h.workload == "ml/borrower").unwrap();
    assert_eq!((borrower.state, borrower.cycle), (HolderState::Stopping, None));
    let owner = report.waiting.iter().find(|w| w.workload == "ml/owner").unwrap();
    assert_eq!(owner.obstacle.as_deref(), Some("WaitingForPreemptedWorkloads"));
    assert_eq!(owner.waits_for, ["ml/borrower"]);
    assert_eq!(owner.message, "starts when `ml/borrower` has stopped");
}

/// A borrower may preempt by priority, and the owner of the quota may reclaim it from the borrower.
#[test]
fn contradictory_preemption_policies_settle() {
    let rights = |reclaim, borrow| {
        move |queue: &mut QueueSetup| {
            queue.preemption = ClusterQueuePreemption {
                within_queue: PreemptionRule::LowerPriority,
                reclaim_within_cohort: reclaim,
                borrow_within_cohort: borrow,
            };
        }
    };
    let mut stage = Stage::new(Settings::default())
        .flavor("f", false)
        .cohort("all", None)
        .queue("a", Some("all"), &[("f", "cpu", 2_000)])
        .with(rights(PreemptionRule::LowerPriority, None))
        .queue("b", Some("all"), &[("f", "cpu", 2_000)])
        .with(rights(PreemptionRule::Any, Some(None)))
        .open();
    let all = [
        ("w5", "b", 1, 3_000),
        ("w7", "a", 0, 2_000),
        ("w0", "a", 2, 3_000),
        ("w3", "a", 2, 2_000),
        ("w6", "b", 0, 2_000),
        ("w2", "a", 1, 2_000),
    ];
    for (name, queue, priority, cpu) in all {
        let job = stage.job(name, queue, priority, 1, &[("cpu", cpu)]);
        stage = if name == "w0" { stage.running(job, "f") } else { stage.pending(job) };
    }
    let report = stage.plan(&CycleLimits::default());
    assert_eq!(report.run.end, Ending::Settled);
    let mut pairs: Vec<(&str, &str)> =
        report.preempted.iter().map(|p| (p.workload.as_str(), p.by.as_str())).collect();
    pairs.sort_unstable();
    assert!(
        !pairs.is_empty() && pairs.windows(3).all(|three| three[0] != three[2]),
        "no workload preempts the same victim three times: {:?}",
        report.preempted
    );
}

#[test]
fn more_heads_need_fewer_cycles() {
    let stage = || {
        let mut stage = Stage::new(Settings::default())
            .flavor("any", false)
            .queue("q", None, &[("any", "cpu", 3_000)])
            .open();
        for name in ["a", "b", "c", "d"] {
            let job = stage.job(name, "q", 0, 1, &[("cpu", 1_000)]);
            stage = stage.pending(job);
        }
        stage
    };
    let one = stage().plan(&CycleLimits::default());
    let four = stage().plan(&CycleLimits { cycles: None, heads_per_queue: 4 });
    assert_eq!((one.summary.admitted, four.summary.admitted), (3, 3));
    assert!(four.run.cycles < one.run.cycles, "{} {}", four.run.cycles, one.run.cycles);
    let pending = &one.waiting[0];
    assert_eq!((pending.workload.as_str(), pending.position, pending.of), ("ml/d", 1, 1));
    assert_eq!(pending.reasons[0].message, "insufficient unused quota for cpu in flavor any, 1 more needed");
}

#[test]
fn shares_and_lent_quota_add_up() {
    let settings = Settings { fair_sharing: Some(FairSharing::default()), ..Settings::default() };
    let mut stage = Stage::new(settings)
        .flavor("any", false)
        .cohort("all", None)
        .cohort("left", Some("all"))
        .queue("a", Some("left"), &[("any", GPU, 10)])
        .with(|q| q.weight /= 2)
        .queue("b", Some("left"), &[("any", GPU, 4)])
        .queue("c", Some("all"), &[("any", GPU, 6)])
        .open();
    let (a, c) = (stage.job("a1", "a", 0, 16, &[(GPU, 1)]), stage.job("c1", "c", 0, 1, &[(GPU, 1)]));
    let report = stage.running(a, "any").running(c, "any").plan(&CycleLimits::default());
    insta::assert_json_snapshot!("shares", (report.queues, report.cohorts));
}

#[test]
fn an_empty_plan_is_reported() {
    let report = Stage::new(Settings::default()).open().plan(&CycleLimits::default());
    assert_eq!((report.run.cycles, report.summary.workloads, report.run.end), (1, 0, Ending::Settled));
}

#[test]
fn a_comparison_lists_gains_and_losses() {
    let queues = |spare: i64, most: i64| {
        let mut stage = Stage::new(Settings::default())
            .flavor("any", false)
            .flavor("new", false)
            .queue("a", None, &[("any", "cpu", spare)])
            .queue("b", None, &[("any", "cpu", most), ("new", "cpu", 1_000)])
            .open();
        let jobs = [("keeps", "a", 1), ("loses", "a", 2), ("blocked", "b", 3), ("gains", "b", 1)];
        for (name, queue, cpu) in jobs {
            let job = stage.job(name, queue, 0, 1, &[("cpu", cpu * 1_000)]);
            stage = stage.pending(job);
        }
        stage.plan(&CycleLimits::default())
    };
    let changes = vec![ObjectChange {
        object: "clusterqueue/a".to_owned(),
        change: ChangeKind::Replaced,
        not_evaluated: false,
    }];
    let (before, after) = (queues(3_000, 3_000), queues(1_000, 2_000));
    let what_if = WhatIf::new(changes.clone(), &before, &after);
    let lost: Vec<(&str, Loss)> =
        what_if.starved.iter().map(|s| (s.waiting.workload.as_str(), s.loss)).collect();
    assert_eq!(lost, [("ml/loses", Loss::NotAdmitted), ("ml/blocked", Loss::NotAdmitted)]);
    assert_eq!(what_if.moved.iter().map(|m| m.workload.as_str()).collect::<Vec<_>>(), ["ml/gains"]);
    insta::assert_json_snapshot!("what_if", what_if);
    assert!(WhatIf::new(changes.clone(), &before, &before).is_empty());
    let back = WhatIf::new(changes, &after, &before);
    assert_eq!(
        back.admitted.iter().map(|h| h.workload.as_str()).collect::<Vec<_>>(),
        ["ml/blocked", "ml/loses"]
    );
}
