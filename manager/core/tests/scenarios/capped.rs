//! Clusters that are believed to have no more than their objects and files say, whatever they report.

use super::queues::{priorities, teams};
use super::*;

const LOWER: &str = "LowerPriority";

fn limited(gpus: i64) -> Value {
    json!({"apiVersion": "meridian.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "eu"},
        "spec": {"region": "europe-west4", "jurisdiction": "EU", "limits": {GPU: gpus.to_string()}}})
}

/// One cluster of four accelerators, of which this many count.
fn only_eu(gpus: i64) -> Fleet {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.apply(vec![limited(gpus)]);
    f
}

#[test]
fn no_more_is_granted_than_the_object_says() {
    let mut f = only_eu(3);
    let all: Vec<Uid> = (0..4).map(|i| f.submit(&format!("one-{i}"), 1)).collect();
    f.settle();
    assert_eq!(all.iter().filter(|uid| f.at(**uid).is_some()).count(), 3);
    let waits = *all.iter().find(|uid| f.at(**uid).is_none()).unwrap();
    let why = f.why(waits)["summary"].as_str().unwrap().to_owned();
    assert!(why.contains("0 of the 3 that it may have are left"), "{why}");
    let runs = *all.iter().find(|uid| f.at(**uid).is_some()).unwrap();
    f.end(runs, EndResult::Succeeded);
    assert_eq!(f.at(waits).as_deref(), Some("eu"));
    // Less than runs there: nobody stops, and nothing more starts.
    f.apply(vec![limited(1)]);
    let next = f.submit("next", 1);
    f.settle();
    assert_eq!((f.running.len(), f.phase(next)), (3, Some(Phase::Pending)));
}

#[test]
fn who_may_displace_others_does_so_where_a_limit_and_not_the_room_is_used_up() {
    for limit in [4, 2] {
        let mut f = only_eu(limit);
        teams(&mut f, [12, 0], &json!({"withinClusterQueue": LOWER}));
        priorities(&mut f, 9);
        let low: Vec<Uid> =
            (0..limit).map(|i| f.submit_to("a", &format!("low-{i}"), 1, Some("low"))).collect();
        f.settle();
        assert_eq!(f.running.len(), low.len(), "limit {limit}");
        let high = f.submit_to("a", "high", 1, Some("high"));
        f.settle();
        f.settle();
        assert_eq!(f.at(high).as_deref(), Some("eu"), "limit {limit}: {:#}", f.why(high));
        assert_eq!(f.running.len(), low.len(), "limit {limit}: one gave way");
    }
}

#[test]
fn what_was_lent_is_taken_back_in_a_cluster_with_a_limit() {
    let mut f = only_eu(4);
    teams(&mut f, [2, 2], &json!({"reclaimWithinCohort": "Any"}));
    priorities(&mut f, 9);
    let lent: Vec<Uid> = (0..4).map(|i| f.submit_to("b", &format!("b-{i}"), 1, None)).collect();
    f.settle();
    assert_eq!(f.running.len(), 4);
    let mine = f.submit_to("a", "mine", 2, None);
    f.settle();
    f.settle();
    assert_eq!(f.at(mine).as_deref(), Some("eu"), "{:#}", f.why(mine));
    assert_eq!(lent.iter().filter(|uid| f.at(**uid).is_some()).count(), 2);
}
