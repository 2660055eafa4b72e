//! Brains built by hand, decided on, and what the report says: golden snapshots of the schema.

#[path = "plans/stage.rs"]
mod stage;

use meridian_planning::report::{Ending, State};
use meridian_planning::what_if::{Change, Kind, Loss};
use meridian_planning::{Limits, Report, WhatIf};
use meridian_queueing::model::{Displaces, Preemption, QueueSetup};
use meridian_queueing::settings::{FairSharing, Settings};
use stage::{GPU, Stage, reclaims, stopped, strict};

/// Two teams of a cohort, spot before on-demand, and one of everything that can happen.
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
        .runs(borrower, "spot")
        .waits(owner)
        .waits(shrinks)
        .waits(picky)
        .waits(huge)
        .waits(twin)
        .waits(first)
        .waits(second)
        .waits(late)
        .aside(stranger)
}

#[test]
fn everything_that_can_happen() {
    let report = two_teams().plan(&Limits::default());
    assert_eq!(report.run.end, Ending::Settled);
    insta::assert_json_snapshot!("two_teams", report);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report, "it reads back as what it was");
    assert_eq!(
        serde_json::to_string(&two_teams().plan(&Limits::default())).unwrap(),
        text,
        "same input, same bytes"
    );
}

#[test]
fn victims_still_stop_after_the_last_cycle_asked_for() {
    let report = two_teams().plan(&Limits { cycles: Some(2), heads_per_queue: 1 });
    assert_eq!((report.run.cycles, report.run.end), (2, Ending::CyclesReached));
    let borrower = report.admitted.iter().find(|h| h.workload == "ml/borrower").unwrap();
    assert_eq!((borrower.state, borrower.cycle), (State::Stopping, None));
    let owner = report.waiting.iter().find(|w| w.workload == "ml/owner").unwrap();
    assert_eq!(owner.obstacle.as_deref(), Some("WaitingForPreemptedWorkloads"));
    assert_eq!(owner.waits_for, ["ml/borrower"]);
    assert_eq!(owner.message, "it starts when `ml/borrower` has stopped");
}

/// A borrower may stop by priority whom an owner stops by its quota, round after round.
#[test]
fn policies_that_contradict_each_other_come_to_rest() {
    let rights = |reclaim, borrow| {
        move |queue: &mut QueueSetup| {
            queue.preemption = Preemption {
                within_queue: Displaces::LowerPriority,
                reclaim_within_cohort: reclaim,
                borrow_within_cohort: borrow,
            };
        }
    };
    let mut stage = Stage::new(Settings::default())
        .flavor("f", false)
        .cohort("all", None)
        .queue("a", Some("all"), &[("f", "cpu", 2_000)])
        .with(rights(Displaces::LowerPriority, None))
        .queue("b", Some("all"), &[("f", "cpu", 2_000)])
        .with(rights(Displaces::Any, Some(None)))
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
        stage = if name == "w0" { stage.runs(job, "f") } else { stage.waits(job) };
    }
    let report = stage.plan(&Limits::default());
    assert_eq!(report.run.end, Ending::Settled);
    let mut pairs: Vec<(&str, &str)> =
        report.preempted.iter().map(|p| (p.workload.as_str(), p.by.as_str())).collect();
    pairs.sort_unstable();
    assert!(
        !pairs.is_empty() && pairs.windows(3).all(|three| three[0] != three[2]),
        "nobody stops three times for the same: {:?}",
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
            stage = stage.waits(job);
        }
        stage
    };
    let one = stage().plan(&Limits::default());
    let four = stage().plan(&Limits { cycles: None, heads_per_queue: 4 });
    assert_eq!((one.summary.admitted, four.summary.admitted), (3, 3));
    assert!(four.run.cycles < one.run.cycles, "{} {}", four.run.cycles, one.run.cycles);
    let waits = &one.waiting[0];
    assert_eq!((waits.workload.as_str(), waits.position, waits.of), ("ml/d", 1, 1));
    assert_eq!(waits.reasons[0].message, "insufficient unused quota for cpu in flavor any, 1 more needed");
}

#[test]
fn shares_and_loans_add_up() {
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
    let report = stage.runs(a, "any").runs(c, "any").plan(&Limits::default());
    insta::assert_json_snapshot!("shares", (report.queues, report.cohorts));
}

#[test]
fn nothing_at_all_is_a_plan_too() {
    let report = Stage::new(Settings::default()).open().plan(&Limits::default());
    assert_eq!((report.run.cycles, report.summary.workloads, report.run.end), (1, 0, Ending::Settled));
}

#[test]
fn a_change_tells_who_gains_and_who_loses() {
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
            stage = stage.waits(job);
        }
        stage.plan(&Limits::default())
    };
    let changes =
        vec![Change { object: "clusterqueue/a".to_owned(), change: Kind::Replaced, not_judged: false }];
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
