//! Snapshots that were written once are read, and come out as they were.

use super::elastic::elastic;
use super::*;
use std::collections::BTreeSet;

/// One snapshot a line. Lines are added here, never changed: a change in what is written is a new version, with a reader for the old.
const WRITTEN: &str = include_str!("../golden/snapshots.jsonl");

/// A world with something of everything in it.
fn eventful() -> World {
    let mut f = Fleet::regions();
    let copy = f.world.snapshot();
    f.submit("lost", 1);
    f.settle();
    f.lead_with_copy(&copy);
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
    f.hold_ends = true;
    f.input(Input::Operator {
        actor: Actor::user("op"),
        action: Operator::Drain(f.at(stopped).unwrap().as_str().into()),
    });
    f.settle();
    f.put(elastic("gang", 2));
    f.cut = ["eu", "us", "asia"].map(ClusterName::new).into();
    f.submit("offered", 3);
    f.submit("waits", 90);
    let phases: BTreeSet<Phase> = f.world.state.workloads().values().map(|w| w.phase()).collect();
    assert!(
        phases.len() >= 5
            && f.world.state.orphans().len() == 1
            && !f.world.state.tokens().is_empty()
            && f.phase(gang).is_some(),
        "{phases:?}"
    );
    f.world
}

/// The names of fields, wherever they are: not what they are keyed by.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| fields(item, found)),
        Value::Object(entries) => {
            for (key, value) in entries {
                found.extend(
                    Some(key).filter(|key| key.chars().all(|c| c.is_ascii_alphabetic() || c == '_')).cloned(),
                );
                fields(value, found);
            }
        }
        _ => {}
    }
}

#[test]
fn what_was_written_is_read_and_written_the_same() {
    for (at, line) in WRITTEN.lines().enumerate() {
        let world = World::restore(line.as_bytes(), config())
            .unwrap_or_else(|error| panic!("line {}: {error}", at + 1));
        assert_eq!(String::from_utf8(world.snapshot()).unwrap(), line, "line {}", at + 1);
        world.check().unwrap();
    }
}

#[test]
fn every_field_is_in_a_line() {
    let mut known = BTreeSet::new();
    WRITTEN.lines().for_each(|line| fields(&serde_json::from_str(line).unwrap(), &mut known));
    let now = String::from_utf8(eventful().snapshot()).unwrap();
    let mut written = BTreeSet::new();
    fields(&serde_json::from_str(&now).unwrap(), &mut written);
    assert!(written.len() > 60, "{written:?}");
    let new: Vec<&String> = written.difference(&known).collect();
    assert!(new.is_empty(), "{new:?} are new: add this line to golden/snapshots.jsonl\n{now}");
}
