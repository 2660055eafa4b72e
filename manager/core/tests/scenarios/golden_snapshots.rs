//! Snapshots of earlier formats can be read, and are written back unchanged.

use super::elastic::elastic;
use super::*;
use std::collections::BTreeSet;

/// One snapshot per line. Lines are added, never changed: a changed format is a new version with a reader for
/// the old one.
const GOLDEN: &str = include_str!("../golden/snapshots.jsonl");

/// A state in which every kind of object and phase occurs.
fn varied_state() -> World {
    let mut f = Fleet::regions();
    let backup = f.world.snapshot();
    f.submit("lost", 1);
    f.settle();
    f.lead_from_backup(&backup);
    f.confirm_rules();
    f.settle();
    let prioritized = f.submit_in("default", "finished", 1, json!({"kueue.x-k8s.io/queue-name": "lq"}));
    f.settle();
    f.end(
        prioritized,
        EndResult::Failed { reason: "BackoffLimitExceeded".into(), message: "of no use".into() },
    );
    let (gang, _) = f.put(elastic("gang", 1));
    let stopped = f.submit("stopped", 2);
    f.settle();
    let token = Operator::MintToken {
        hash: "00ff".into(),
        cluster: "eu".into(),
        region: "europe-west4".into(),
        jurisdiction: "EU".into(),
        ttl: Millis::secs(60),
        replace: true,
    };
    f.input(Input::Operator { actor: Actor::user("op"), action: token });
    f.hold_stops = true;
    f.input(Input::Operator {
        actor: Actor::user("op"),
        action: Operator::Drain(f.cluster_of(stopped).unwrap().as_str().into()),
    });
    f.settle();
    f.put(elastic("gang", 2));
    f.disconnected = ["eu", "us", "asia"].map(ClusterName::new).into();
    f.submit("offered", 3);
    f.submit("waits", 90);
    let phases: BTreeSet<Phase> = f.world.state().workloads().values().map(|w| w.phase()).collect();
    assert!(
        phases.len() >= 5
            && f.world.state().orphans().len() == 1
            && !f.world.state().tokens().is_empty()
            && f.phase(gang).is_some(),
        "{phases:?}"
    );
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Revoke("asia".into()) });
    f.world
}

/// Collects the names of all fields at any depth, without the keys of maps.
fn collect_fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_fields(item, found)),
        Value::Object(entries) => {
            for (key, value) in entries {
                found.extend(
                    Some(key).filter(|key| key.chars().all(|c| c.is_ascii_alphabetic() || c == '_')).cloned(),
                );
                collect_fields(value, found);
            }
        }
        _ => {}
    }
}

#[test]
fn golden_snapshots_are_read_and_written_unchanged() {
    for (at, line) in GOLDEN.lines().enumerate() {
        let world = World::restore(line.as_bytes(), config())
            .unwrap_or_else(|error| panic!("line {}: {error}", at + 1));
        assert_eq!(String::from_utf8(world.snapshot()).unwrap(), line, "line {}", at + 1);
        world.check().unwrap();
    }
}

#[test]
fn golden_snapshots_contain_every_field() {
    let mut known = BTreeSet::new();
    GOLDEN.lines().for_each(|line| collect_fields(&serde_json::from_str(line).unwrap(), &mut known));
    let now = String::from_utf8(varied_state().snapshot()).unwrap();
    let mut written = BTreeSet::new();
    collect_fields(&serde_json::from_str(&now).unwrap(), &mut written);

    assert!(written.len() > 60, "{written:?}");
    let new: Vec<&String> = written.difference(&known).collect();
    assert!(new.is_empty(), "{new:?} are new: add this line to golden/snapshots.jsonl\n{now}");
}
