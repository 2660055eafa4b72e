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
fn a_drained_job_names_the_quota_that_it_lacks_for_the_rest() {
    let (mut f, gang, _) = drained_beside(2);
    let lacks = "scale-up from 2 to 4 pods is pending: needs 2 nvidia.com/gpu; the queue has 0 of 4";
    assert!(f.why(gang)["summary"].to_string().contains(lacks), "{:#}", f.why(gang));
    assert!(!f.why(gang)["wouldHelp"].as_str().unwrap().is_empty(), "{:#}", f.why(gang));
    // A new leader evaluates it before the cluster is connected, and not again after that.
    f.restart(2, None);
    f.settle();
    f.advance(Millis::secs(5));
    assert!(f.why(gang)["summary"].to_string().contains(lacks), "{:#}", f.why(gang));
}

#[test]
fn a_drained_job_behind_a_strict_head_names_the_head_and_the_quota_that_it_lacks() {
    let mut f = Fleet::regions();
    let strict = |quota: i64| cluster_queue("cq", quota, &json!({"queueingStrategy": "StrictFIFO"}));
    f.apply(vec![strict(4)]);
    let (gang, _) = f.put(elastic("gang", 2));
    f.settle();
    let other = f.submit("other", 2);
    f.settle();
    let head = f.submit("head", 3);
    f.put(elastic("gang", 4));
    f.settle();
    f.drain(&f.cluster_of(gang).unwrap());
    f.advance(Millis::secs(10));
    assert_eq!(f.phases(&[gang, other, head]), [Phase::Running, Phase::Running, Phase::Pending].map(Some));
    let blocked = "cluster queue `cq` is StrictFIFO, and its head, workload `default/head`, can't start";
    let summary = f.why(gang)["summary"].to_string();
    let lacks = "scale-up from 2 to 4 pods is pending: needs 2 nvidia.com/gpu; the queue has 0 of 4";
    assert!(summary.contains(lacks) && summary.contains(blocked), "{summary}");
    // With enough quota for itself alone, only the head is in its way.
    f.apply(vec![strict(6)]);
    f.settle();
    assert_eq!(f.phase(head), Some(Phase::Pending), "{:#}", f.why(head));
    let why = f.why(gang);
    assert!(why["summary"].to_string().contains(&format!("is pending: {blocked}")), "{why:#}");
    assert_eq!(why["wouldHelp"], "wait until workload `default/head` starts, or delete it");
    f.delete(&Key::namespaced(Kind::Job, "default", "head"), false).unwrap();
    f.settle();
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
