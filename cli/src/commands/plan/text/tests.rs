use super::*;
use serde_json::{Value, json};

fn share() -> Value {
    json!({"weighted": 100, "weight": "0.5", "dominantResource": "nvidia.com/gpu"})
}

fn quota() -> Value {
    json!([{
        "flavor": "spot", "resource": "nvidia.com/gpu", "nominal": "8", "used": "10", "borrowed": "2",
        "lent": "0", "available": "6", "borrowingLimit": "4",
    }])
}

fn train() -> Value {
    let assigned = |flavor: &str, amount: &str| json!({"flavor": flavor, "amount": amount});
    let topology = json!({"levels": ["rack", "host"], "domains": [
        {"values": ["r1", "h1"], "count": 2}, {"values": ["r1", "h2"], "count": 1},
    ]});
    let resources = json!({
        "cpu": assigned("spot", "12"), "memory": assigned("spot", "3Gi"),
        "nvidia.com/gpu": assigned("a100", "3"),
    });
    json!({
        "workload": "ml/train", "clusterQueue": "vision", "localQueue": "ml/vision", "priority": 0,
        "state": "QuotaReserved", "cycle": 2, "checks": ["dws"],
        "borrowing": {"level": 1, "cohort": "research"},
        "podSets": [
            {"name": "main", "count": 3, "of": 4, "topology": topology, "resources": resources},
        ],
    })
}

fn waiting() -> Value {
    json!({
        "workload": "ml/big", "clusterQueue": "vision", "localQueue": "ml/vision", "priority": 7,
        "position": 1, "of": 2, "obstacle": "ExceedsMaxQuota", "blockedForGood": true,
        "message": "requests more than its cluster queue can ever provide",
        "reasons": [{
            "flavor": "spot", "resource": "cpu", "reason": "ExceedsMaxQuota",
            "message": "asks for 9 cpu\u{1b}[2J",
        }],
    })
}

fn preempted() -> Value {
    json!([{
        "workload": "ml/old", "clusterQueue": "speech", "path": "/research/speech", "by": "ml/train",
        "byClusterQueue": "vision", "byPath": "/research/vision", "reason": "InCohortReclamation",
        "message": "`ml/old` is preempted by `ml/train`, which is ahead of it in cluster queue `vision`",
        "cycle": 1,
    }])
}

fn summary() -> Value {
    json!({
        "workloads": 3, "admitted": 0, "quotaReserved": 1, "stopping": 0, "waiting": 2, "blockedForGood": 1,
        "newlyAdmitted": 1, "preemptions": 1,
    })
}

const PLAN: &str = "\
2 cycles, as requested
3 workloads: 0 admitted, 1 with quota reserved, 2 pending (1 for good), 1
  preemption

Admitted:
WORKLOAD   QUEUE    STATE           CYCLE   PODS     BORROWS FROM
ml/train   vision   QuotaReserved   2       3 of 4   research
  a100: 3 nvidia.com/gpu
  spot: 12 cpu, 3Gi memory
  2 pods in r1/h1
  1 pod in r1/h2
  waits for admission checks: dws

Preempted:
WORKLOAD   BY         REASON                CYCLE
ml/old     ml/train   InCohortReclamation   1
  `ml/old` is preempted by `ml/train`, which is ahead of it in cluster queue
    `vision`

Pending:
WORKLOAD   QUEUE    POSITION   PRIORITY   REASON
ml/big     vision   1 of 2     7          ExceedsMaxQuota
  requests more than its cluster queue can ever provide
  - asks for 9 cpu\\x1b[2J
ml/twin    vision   2 of 2     7          -
  the same
  same reasons as `ml/big`, which is equivalent

Cluster queue vision:
  share 100 (nvidia.com/gpu), weight 0.5, cohort research, 1 holding, 2 pending,
    StrictFIFO
  inactive: it is stopped
  FLAVOR   RESOURCE         USED   NOMINAL   BORROWED   LENT   AVAILABLE
  spot     nvidia.com/gpu   10     8         2          0      6

Cohort research:
  share 100 (nvidia.com/gpu), weight 0.5

Notes:
  a note
";

#[test]
fn a_plan_fits_a_terminal() {
    let twin = json!({
        "workload": "ml/twin", "clusterQueue": "vision", "localQueue": "ml/vision", "priority": 7,
        "position": 2, "of": 2, "message": "the same", "alike": "ml/big",
    });
    let queue = json!({
        "name": "vision", "cohort": "research", "path": "/research/vision", "strategy": "StrictFIFO",
        "inactive": "it is stopped", "waiting": 2, "holding": 1, "share": share(), "quota": quota(),
    });
    let report: PlanReport = serde_json::from_value(json!({
        "apiVersion": "meridian.dev/plan/v1", "kind": "Plan",
        "run": {"cycles": 2, "headsPerQueue": 1, "end": "CyclesReached"}, "summary": summary(),
        "admitted": [train()], "preempted": preempted(), "waiting": [waiting(), twin], "queues": [queue],
        "cohorts": [{"name": "research", "path": "/research", "share": share(), "quota": []}],
        "notes": ["a note"],
    }))
    .unwrap();
    let text = plan(&report, false, false);
    assert_eq!(text, PLAN);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let wide = plan(&report, true, false);
    assert!(wide.contains("AVAILABLE   BORROWING LIMIT   LENDING LIMIT"), "{wide}");
    assert!(wide.contains("weight 0.5, path /research\n"), "{wide}");
}

#[test]
fn a_comparison_lists_gains_and_losses() {
    let report: WhatIf = serde_json::from_value(json!({
        "apiVersion": "meridian.dev/plan/v1", "kind": "WhatIf",
        "changes": [{"object": "clusterqueue/vision", "change": "Replaced"}],
        "before": summary(), "after": summary(), "admitted": [train()], "preempted": preempted(),
        "starved": [{"loss": "BlockedForGood", "waiting": waiting()}],
        "moved": [{
            "workload": "ml/m", "fromClusterQueue": "a", "from": [], "toClusterQueue": "b",
            "to": train()["podSets"],
        }],
        "lost": ["ml/gone"], "notes": [],
    }))
    .unwrap();
    let text = what_if(&report, false);
    for line in [
        "clusterqueue/vision would be changed",
        "Would be admitted:",
        "ml/big     vision   blocked for good   1 of 2     7          ExceedsMaxQuota",
        "ml/m       a -> b",
        "  from: nothing",
        "  to: main 3 of 4 (a100: 3 nvidia.com/gpu; spot: 12 cpu, 3Gi memory)",
        "  ml/gone",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains("no workload is affected"));
}
