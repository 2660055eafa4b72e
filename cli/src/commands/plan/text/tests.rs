use super::*;
use serde_json::{Value, json};

fn share() -> Value {
    json!({"weighted": 100, "weight": "0.5", "dominantResource": "nvidia.com/gpu"})
}

fn quota() -> Value {
    json!([{"flavor": "spot", "resource": "nvidia.com/gpu", "nominal": "8", "used": "10", "borrowed": "2", "lent": "0", "available": "6", "borrowingLimit": "4"}])
}

fn train() -> Value {
    let given = |flavor: &str, amount: &str| json!({"flavor": flavor, "amount": amount});
    let topology = json!({"levels": ["rack", "host"], "domains": [{"values": ["r1", "h1"], "count": 2}, {"values": ["r1", "h2"], "count": 1}]});
    json!({
        "workload": "ml/train", "clusterQueue": "vision", "localQueue": "ml/vision", "priority": 0, "state": "QuotaReserved", "cycle": 2, "checks": ["dws"],
        "borrowing": {"level": 1, "cohort": "research"},
        "podSets": [{"name": "main", "count": 3, "of": 4, "topology": topology,
            "resources": {"cpu": given("spot", "12"), "memory": given("spot", "3Gi"), "nvidia.com/gpu": given("a100", "3")}}],
    })
}

fn waits() -> Value {
    json!({
        "workload": "ml/big", "clusterQueue": "vision", "localQueue": "ml/vision", "priority": 7, "position": 1, "of": 2, "obstacle": "ExceedsMaxQuota",
        "blockedForGood": true, "message": "it asks for more than its queue could ever have",
        "reasons": [{"flavor": "spot", "resource": "cpu", "reason": "ExceedsMaxQuota", "message": "asks for 9 cpu\u{1b}[2J"}],
    })
}

fn preempted() -> Value {
    json!([{
        "workload": "ml/old", "clusterQueue": "speech", "path": "/research/speech", "by": "ml/train", "byClusterQueue": "vision", "byPath": "/research/vision",
        "reason": "InCohortReclamation", "message": "`ml/old` gives way to `ml/train`, whose queue takes back quota that others borrowed", "cycle": 1,
    }])
}

fn summary() -> Value {
    json!({
        "workloads": 3, "admitted": 0, "quotaReserved": 1, "stopping": 0, "waiting": 2, "blockedForGood": 1, "newlyAdmitted": 1, "preemptions": 1,
    })
}

#[test]
fn a_plan_reads_as_tables_and_sentences() {
    let twin = json!({
        "workload": "ml/twin", "clusterQueue": "vision", "localQueue": "ml/vision", "priority": 7, "position": 2, "of": 2, "message": "the same", "alike": "ml/big",
    });
    let report: Report = serde_json::from_value(json!({
        "apiVersion": "meridian.dev/plan/v1", "kind": "Plan", "run": {"cycles": 2, "headsPerQueue": 1, "end": "CyclesReached"}, "summary": summary(),
        "admitted": [train()], "preempted": preempted(), "waiting": [waits(), twin],
        "queues": [{"name": "vision", "cohort": "research", "path": "/research/vision", "strategy": "StrictFIFO", "inactive": "it is stopped", "waiting": 2,
            "holding": 1, "share": share(), "quota": quota()}],
        "cohorts": [{"name": "research", "path": "/research", "share": share(), "quota": []}], "notes": ["a note"],
    }))
    .unwrap();
    let expect = "\
2 cycles, as asked for
3 workloads: 0 admitted, 1 with quota, awaiting a check or a place, 2 waiting, 1 of them for good, 1 preemption

Hold quota:
WORKLOAD   QUEUE    POD SET   PODS     FLAVOR   RESOURCES            BORROWS                   STATE           CYCLE
ml/train   vision   main      3 of 4   a100     nvidia.com/gpu 3     from research (level 1)   QuotaReserved   2
ml/train   vision   main      3 of 4   spot     cpu 12, memory 3Gi   from research (level 1)   QuotaReserved   2
  `ml/train` awaits dws

Places:
WORKLOAD   POD SET   PODS   DOMAIN    LEVELS
ml/train   main      2      r1 / h1   rack / host
ml/train   main      1      r1 / h2   rack / host

Told to stop:
PREEMPTED   QUEUE              BY         ITS QUEUE          REASON                CYCLE
ml/old      /research/speech   ml/train   /research/vision   InCohortReclamation   1
  `ml/old` gives way to `ml/train`, whose queue takes back quota that others borrowed

Wait:
WORKLOAD   QUEUE    PLACE    PRIORITY   OBSTACLE          WHY
ml/big     vision   1 of 2   7          ExceedsMaxQuota   it asks for more than its queue could ever have
ml/twin    vision   2 of 2   7          -                 the same

Reasons:
WORKLOAD   POD SET   FLAVOR   RESOURCE   REASON
ml/big     -         spot     cpu        asks for 9 cpu\\x1b[2J
ml/twin    -         -        -          as `ml/big`, which is alike

Quota:
NAME     FLAVOR   RESOURCE         USED   NOMINAL   BORROWED   LENT   AVAILABLE
vision   spot     nvidia.com/gpu   10     8         2          0      6

Shares:
NAME              SHARE   DOMINANT         WEIGHT   HOLDING   WAITING   STRATEGY
vision            100     nvidia.com/gpu   0.5      1         2         StrictFIFO
cohort research   100     nvidia.com/gpu   0.5      -         -         -
  `vision` admits nothing: it is stopped

Notes:
  a note
";
    assert_eq!(plan(&report, false, false), expect);
    let wide = plan(&report, true, false);
    assert!(
        wide.contains("AVAILABLE   BORROWING LIMIT   LENDING LIMIT") && wide.contains("STRATEGY     PATH"),
        "{wide}"
    );
}

#[test]
fn a_comparison_tells_gains_and_losses() {
    let report: WhatIf = serde_json::from_value(json!({
        "apiVersion": "meridian.dev/plan/v1", "kind": "WhatIf", "changes": [{"object": "clusterqueue/vision", "change": "Replaced"}],
        "before": summary(), "after": summary(), "admitted": [train()], "preempted": preempted(), "starved": [{"loss": "BlockedForGood", "waits": waits()}],
        "moved": [{"workload": "ml/m", "fromClusterQueue": "a", "from": [], "toClusterQueue": "b", "to": train()["podSets"]}], "lost": ["ml/gone"], "notes": [],
    }))
    .unwrap();
    let text = what_if(&report, false);
    for line in [
        "clusterqueue/vision would be changed",
        "Would be admitted:",
        "ml/big     vision   blocked for good   1 of 2   7          ExceedsMaxQuota   it asks for more than its queue could ever have",
        "ml/m       a -> b   -       main 3 of 4: a100 nvidia.com/gpu 3, spot cpu 12, memory 3Gi",
        "  ml/gone",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains("no workload gains or loses"));
}
