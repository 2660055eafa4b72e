//! Admission fair sharing: local queues of one cluster queue are ordered by their usage history.

use super::*;
use meridian_queueing::settings::AdmissionFairSharing;

/// One cluster with four GPUs, and one cluster queue with the same quota, shared by the local queues `a` and
/// `b`.
fn shared_queue(sharing: Option<AdmissionFairSharing>, strategy: &str, weights: [&str; 2]) -> Fleet {
    let mut f = Fleet::new(EU);
    f.world.config_mut().admission_fair_sharing = sharing;
    let scope = json!({"admissionMode": "UsageBasedAdmissionFairSharing"});
    let queue = cluster_queue("shared", 4, &json!({"queueingStrategy": strategy, "admissionScope": scope}));
    f.apply(vec![queue, weighted_queue("a", weights[0]), weighted_queue("b", weights[1])]);
    f
}

fn weighted_queue(name: &str, weight: &str) -> Value {
    let mut queue = local_queue(name, "shared");
    queue["spec"]["fairSharing"] = json!({"weight": weight});
    queue
}

/// Usage has a half-life of ten minutes and is sampled every five seconds.
fn slow_decay() -> Option<AdmissionFairSharing> {
    Some("half-life=10m,sampling=5s".parse().unwrap())
}

impl Fleet {
    /// A gang of four GPUs from this local queue runs for a minute.
    fn run_for_a_minute(&mut self, queue: &str) {
        let uid = self.submit_to(queue, &format!("{queue}-old"), 4, None);
        self.settle();
        self.advance(Millis::mins(1));
        assert_eq!(self.phase(uid), Some(Phase::Running));
        self.end(uid, EndResult::Succeeded);
    }

    /// Submits a gang that needs the whole quota to each queue, first to `a`. Returns the queue of the gang
    /// that starts first.
    fn first_admitted(&mut self) -> &'static str {
        let blocker = self.submit_to("lq", "blocks", 4, None);
        self.settle();
        assert_eq!(self.phase(blocker), Some(Phase::Running));
        let both = ["a", "b"].map(|queue| self.submit_to(queue, &format!("{queue}-next"), 4, None));
        self.settle();
        assert_eq!(self.phases(&both), [Some(Phase::Pending); 2]);
        self.end(blocker, EndResult::Succeeded);
        let phases = self.phases(&both);
        assert_eq!(phases.iter().filter(|phase| **phase == Some(Phase::Running)).count(), 1, "{phases:?}");
        if phases[0] == Some(Phase::Running) { "a" } else { "b" }
    }

    fn samples(&self) -> usize {
        self.records.iter().filter(|(_, record)| matches!(record, Record::UsageSampled { .. })).count()
    }

    fn weighted_usage(&self, queue: &str) -> Option<f64> {
        meridian_views::metrics::local_queue_rows(&self.world, 10)
            .iter()
            .find(|row| &*row.name == queue)
            .unwrap()
            .weighted_use
    }

    fn consumed(&self, queue: &str) -> Option<i128> {
        self.world
            .state()
            .usage_history()
            .get(&*format!("default/{queue}"))
            .map(|history| history.consumed[GPU])
    }

    fn local_status(&self, queue: &str) -> Value {
        self.object_at(&Key::namespaced(Kind::LocalQueue, "default", queue)).unwrap()["status"].clone()
    }
}

#[test]
fn the_queue_with_less_past_usage_is_admitted_first() {
    let mut f = shared_queue(slow_decay(), "BestEffortFIFO", ["1", "1"]);
    f.run_for_a_minute("a");
    assert_eq!(f.first_admitted(), "b");
    let mut f = shared_queue(slow_decay(), "BestEffortFIFO", ["1", "1"]);
    assert_eq!(f.first_admitted(), "a", "without usage the older workload is first");
}

#[test]
fn without_fair_sharing_no_usage_is_recorded() {
    let mut f = shared_queue(None, "BestEffortFIFO", ["1", "1"]);
    f.run_for_a_minute("a");
    assert_eq!(f.first_admitted(), "a");
    assert_eq!((f.samples(), f.world.state().usage_history().len(), f.weighted_usage("a")), (0, 0, None));
    assert_eq!(f.local_status("a").get("fairSharing"), None);
    let before = f.world.snapshot();
    assert!(
        !String::from_utf8_lossy(&before).contains("usage_history"),
        "snapshots contain no usage history"
    );
}

#[test]
fn usage_is_divided_by_the_weight_of_the_queue() {
    for (weights, first) in [(["1", "1"], "b"), (["4", "1"], "a"), (["4", "4"], "b"), (["1", "0"], "a")] {
        let mut f = shared_queue(slow_decay(), "BestEffortFIFO", weights);
        f.run_for_a_minute("b");
        f.run_for_a_minute("a");
        assert!(f.consumed("a") > f.consumed("b"), "older usage counts less");
        assert_eq!(f.first_admitted(), first, "{weights:?}");
    }
    // A changed weight takes effect at once, and keeps the usage.
    let mut f = shared_queue(slow_decay(), "BestEffortFIFO", ["1", "1"]);
    f.run_for_a_minute("a");
    let (used, weighted) = (f.consumed("a"), f.weighted_usage("a").unwrap());
    f.apply(vec![weighted_queue("a", "2")]);
    assert_eq!((f.consumed("a"), f.weighted_usage("a")), (used, Some(weighted / 2.0)));
}

#[test]
fn usage_is_a_decaying_average() {
    let mut f = shared_queue(Some("half-life=2s,sampling=1s".parse().unwrap()), "BestEffortFIFO", ["1", "1"]);
    let uid = f.submit_to("a", "a-old", 4, None);
    f.settle();
    f.advance(Millis::secs(60));
    let next = f.world.next_deadline(now(f.now)).unwrap();
    assert!((f.now + 1..=f.now + 1_000).contains(&next.0), "a sample a second: {next:?} at {}", f.now);
    let used = f.consumed("a").unwrap();
    assert!(
        (3_999_000_000..=4_000_000_000).contains(&used),
        "after many half-lives it is the current usage: {used}"
    );
    f.end(uid, EndResult::Succeeded);
    let (used, start) = (f.consumed("a").unwrap(), f.now);
    f.advance(Millis::secs(2));
    let left = f.consumed("a").unwrap();
    assert!(left * 5 < used * 4 && left * 4 > used, "{left} of {used} after {} ms", f.now - start);
    f.advance(Millis::secs(120));
    assert_eq!((f.consumed("a"), f.world.state().usage_history().len()), (None, 0));
    assert_eq!(f.local_status("a").get("fairSharing"), None);
    // Without usage and history there are no samples, and no timer for them.
    let samples = f.samples();
    f.advance(Millis::secs(10));
    assert_eq!(f.samples(), samples);
    assert!(
        f.world.next_deadline(now(f.now)).is_none_or(|at| at > Mono(f.now + 1_000)),
        "{:?} at {}",
        f.world.next_deadline(now(f.now)),
        f.now
    );
    assert_eq!(f.first_admitted(), "a");
}

#[test]
fn a_half_life_of_zero_keeps_no_history() {
    let mut f = shared_queue(Some("half-life=0s,sampling=1s".parse().unwrap()), "BestEffortFIFO", ["1", "1"]);
    f.run_for_a_minute("a");
    assert_eq!((f.samples(), f.world.state().usage_history().len()), (0, 0));
    assert_eq!(f.first_admitted(), "a");
}

#[test]
fn a_burst_of_submissions_is_admitted_alternately() {
    for (sharing, expected) in [
        (None, ["a-0", "a-1", "a-2", "a-3"]),
        (Some("half-life=1h,sampling=5m".parse().unwrap()), ["a-0", "a-1", "b-0", "b-1"]),
    ] {
        let mut f = shared_queue(sharing, "BestEffortFIFO", ["1", "1"]);
        let one = |queue: &str, i: usize| {
            job("default", &format!("{queue}-{i}"), 1, &json!({"kueue.x-k8s.io/queue-name": queue}), "")
        };
        // All in one request, before the first sample.
        f.apply((0..4).map(|i| one("a", i)).chain((0..4).map(|i| one("b", i))).collect());
        f.settle();
        let mut running: Vec<&str> = f
            .world
            .state()
            .workloads()
            .values()
            .filter(|w| w.phase() == Phase::Running)
            .map(|w| &**w.name())
            .collect();
        running.sort_unstable();
        assert_eq!(running, expected);
    }
}

#[test]
fn a_run_between_two_samples_is_charged_at_admission() {
    let mut f = shared_queue(Some("half-life=5m,sampling=5m".parse().unwrap()), "BestEffortFIFO", ["1", "1"]);
    let uid = f.submit_to("a", "short", 4, None);
    f.settle();
    // Half of the four GPUs: what a run over a whole sampling interval adds.
    assert_eq!(f.consumed("a"), Some(2_000_000_000));
    assert_eq!(
        f.local_status("a")["fairSharing"]["admissionFairSharingStatus"]["consumedResources"],
        json!({GPU: "2"})
    );
    f.end(uid, EndResult::Succeeded);
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "short"),
        uid: None,
        force: false,
    }]);
    assert_eq!(f.phase(uid), None);
    assert_eq!(f.consumed("a"), Some(2_000_000_000));
    assert_eq!(f.first_admitted(), "b");
}

#[test]
fn an_offer_without_a_grant_costs_no_usage() {
    let mut f = shared_queue(Some("half-life=5m,sampling=5m".parse().unwrap()), "BestEffortFIFO", ["1", "1"]);
    f.disconnected.push("eu".into());
    let uid = f.submit_to("a", "asked", 4, None);
    assert_eq!(f.phase(uid), Some(Phase::Dispatching));
    assert_eq!(
        (f.weighted_usage("a"), f.consumed("a")),
        (Some(2.0), None),
        "an open offer weighs, but isn't recorded"
    );
    f.advance(Millis::secs(30));
    assert_eq!(f.phase(uid), Some(Phase::Pending), "the cluster is disconnected");
    assert_eq!((f.weighted_usage("a"), f.consumed("a"), f.samples()), (Some(0.0), None, 0));
    f.disconnected.clear();
    f.advance(Millis::secs(5));
    assert_eq!(f.phase(uid), Some(Phase::Running));
    let used = f.consumed("a").unwrap();
    assert_eq!(used, 2_000_000_000, "one admission is charged");
    assert_eq!(f.weighted_usage("a"), Some(2.0));
}

#[test]
fn usage_history_survives_a_restart() {
    let mut f = shared_queue(slow_decay(), "BestEffortFIFO", ["1", "1"]);
    let (before, from) = (f.world.snapshot(), f.records.len());
    f.run_for_a_minute("a");
    let used = f.consumed("a").unwrap();
    assert!(used > 0);
    // Replaying the records gives the same history with other settings too.
    let mut replayed = World::restore(&before, config()).unwrap();
    for (number, record) in &f.records[from..] {
        replayed.absorb(*number, record);
    }
    assert_eq!(replayed.state(), f.world.state());
    f.restart(2, None);
    assert_eq!(f.consumed("a"), Some(used));
    f.settle();
    assert!(f.consumed("a").unwrap() < used, "usage decays during the restart too");
    assert_eq!(f.first_admitted(), "b");
    assert!(f.consumed("a").is_some());
}

#[test]
fn deleting_a_local_queue_deletes_its_usage_history() {
    let mut f = shared_queue(slow_decay(), "BestEffortFIFO", ["1", "1"]);
    f.run_for_a_minute("a");
    let status = f.local_status("a")["fairSharing"]["admissionFairSharingStatus"].clone();
    assert!(
        status["lastUpdate"].as_str().unwrap().ends_with('Z') && status["consumedResources"][GPU].is_string(),
        "{status}"
    );
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::Job, "default", "a-old"),
        uid: None,
        force: false,
    }]);
    f.write(vec![Change::Delete {
        key: Key::namespaced(Kind::LocalQueue, "default", "a"),
        uid: None,
        force: true,
    }]);
    assert_eq!(f.world.state().usage_history().len(), 0);
    let samples = f.samples();
    f.advance(Millis::secs(10));
    assert_eq!(f.samples(), samples);
}

/// In strict order only the head is evaluated, and decaying usage alone can change the head.
#[test]
fn a_sample_reevaluates_a_queue_with_a_new_head() {
    let mut f = shared_queue(Some("half-life=30s,sampling=1s".parse().unwrap()), "StrictFIFO", ["1", "1"]);
    f.run_for_a_minute("a");
    let running = f.submit_to("b", "runs", 2, None);
    f.settle();
    let big = f.submit_to("b", "big", 4, None);
    let small = f.submit_to("a", "small", 2, None);
    f.settle();
    assert_eq!(
        f.phases(&[running, big, small]),
        [Some(Phase::Running), Some(Phase::Pending), Some(Phase::Pending)]
    );
    f.advance(Millis::secs(120));
    assert_eq!(
        f.phases(&[running, big, small]),
        [Some(Phase::Running), Some(Phase::Pending), Some(Phase::Running)]
    );
}

#[test]
fn usage_is_sampled_but_not_used_without_an_admission_scope() {
    let mut f = shared_queue(slow_decay(), "BestEffortFIFO", ["1", "1"]);
    let uid = f.submit("plain", 4);
    f.settle();
    f.advance(Millis::secs(20));
    assert!(
        f.consumed("lq").is_some_and(|used| used > 0 && used < 400_000_000),
        "sampled, and its admission cost nothing: {:?}",
        f.consumed("lq")
    );
    f.end(uid, EndResult::Succeeded);
}
