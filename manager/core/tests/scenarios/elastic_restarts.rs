//! Elastic jobs that were told to grow and then lost their place.

use super::elastic::elastic;
use super::*;

impl Fleet {
    fn drain(&mut self, cluster: &str) {
        self.input(Input::Operator { actor: Actor::user("op"), action: Operator::Drain(cluster.into()) });
        self.settle();
        self.settle();
    }
}

/// A job that ran with 2 pods, asks for 4, and is drained where others leave room for 2 or 3.
fn drained_beside(others: u32) -> (Fleet, Uid, Uid) {
    let mut f = Fleet::regions();
    f.quota(4);
    let (gang, _) = f.put(elastic("gang", 2));
    f.settle();
    let other = f.submit("other", others);
    f.settle();
    f.put(elastic("gang", 4));
    f.settle();
    assert!(f.why(gang)["summary"].as_str().unwrap().contains("scale-up from 2 to 4 pods is pending"));
    f.drain(&f.cluster_of(gang).unwrap());
    f.advance(Millis::secs(10));
    (f, gang, other)
}

#[test]
fn a_drained_job_starts_with_what_it_ran_with_and_keeps_asking_for_the_rest() {
    let (mut f, gang, other) = drained_beside(2);
    assert_eq!((f.phase(gang), f.used()), (Some(Phase::Running), 4), "{:#}", f.why(gang));
    assert_eq!(f.starts.last().unwrap().placement.len(), 2);
    let summary = f.why(gang)["summary"].to_string();
    assert!(summary.contains("2 pods running"), "{summary}");
    assert!(summary.contains("scale-up from 2 to 4 pods is pending"), "{summary}");
    f.restart(2, None);
    f.settle();
    f.end(other, EndResult::Succeeded);
    f.settle();
    assert_eq!((f.phase(gang), f.used()), (Some(Phase::Running), 4), "{:#}", f.why(gang));
    assert!(f.why(gang)["summary"].to_string().contains(": 4 pods running"), "{:#}", f.why(gang));
}

#[test]
fn a_drained_job_starts_with_as_many_pods_as_can_be_had() {
    let (mut f, gang, other) = drained_beside(1);
    assert_eq!((f.phase(gang), f.starts.last().unwrap().placement.len()), (Some(Phase::Running), 3));
    // A second drain: it now falls back to three.
    f.put(elastic("gang", 9));
    f.drain(&f.cluster_of(gang).unwrap());
    f.advance(Millis::secs(10));
    assert_eq!((f.phase(gang), f.used()), (Some(Phase::Running), 4), "{:#}", f.why(gang));
    f.put(elastic("gang", 4));
    f.end(other, EndResult::Succeeded);
    f.settle();
    assert!(f.why(gang)["summary"].to_string().contains(": 4 pods running"), "{:#}", f.why(gang));
}

#[test]
fn a_stopped_job_that_asks_for_more_falls_back_to_what_it_ran_with() {
    let mut f = Fleet::regions();
    f.quota(3);
    let (gang, _) = f.put(elastic("gang", 2));
    f.settle();
    f.stop(gang);
    f.settle();
    f.put(elastic("gang", 4));
    f.resume(gang);
    f.settle();
    f.settle();
    assert_eq!((f.phase(gang), f.used()), (Some(Phase::Running), 3), "{:#}", f.why(gang));
    // A job that never ran needs all its pods.
    let (new, _) = f.put(elastic("new", 4));
    f.settle();
    assert_eq!(f.phase(new), Some(Phase::Pending));
}
