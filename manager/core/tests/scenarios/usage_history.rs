//! Local queues that share one cluster queue by what they used before.

use super::*;
use meridian_queueing::settings::AdmissionFairSharing;

/// One cluster with four GPUs, and one cluster queue with as many that the local queues `a` and `b` lead to.
fn shared(sharing: Option<AdmissionFairSharing>, strategy: &str, weights: [&str; 2]) -> Fleet {
    let mut f = Fleet::new(&[("eu", "europe-west4", "EU")]);
    f.world.config.admission_fair_sharing = sharing;
    let local = |name: &str, weight: &str| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name, "namespace": "default"}, "spec": {
            "clusterQueue": "shared", "fairSharing": {"weight": weight}}})
    };
    let queue = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "shared"}, "spec": {
        "namespaceSelector": {}, "queueingStrategy": strategy, "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}, "resourceGroups": [
            {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 4}]}]}]}});
    f.apply(vec![queue, local("a", weights[0]), local("b", weights[1])]);
    f
}

/// Past use counts half after ten minutes and is sampled every five seconds.
fn slowly() -> Option<AdmissionFairSharing> {
    Some("half-life=10m,sampling=5s".parse().unwrap())
}

impl Fleet {
    /// A gang of four of this local queue runs for a minute.
    fn use_up(&mut self, queue: &str) {
        let uid = self.submit_to(queue, &format!("{queue}-old"), 4, None);
        self.settle();
        self.pass(Millis::mins(1));
        assert_eq!(self.phase(uid), Some(Phase::Running));
        self.end(uid, EndResult::Succeeded);
    }

    /// Of one gang each that needs everything, the older one of `a`: whose goes first. Both are over then.
    fn first_of_two(&mut self) -> &'static str {
        let blocks = self.submit_to("lq", "blocks", 4, None);
        self.settle();
        assert_eq!(self.phase(blocks), Some(Phase::Running));
        let both = ["a", "b"].map(|queue| self.submit_to(queue, &format!("{queue}-next"), 4, None));
        self.settle();
        assert_eq!(self.phases(&both), [Some(Phase::Pending); 2]);
        self.end(blocks, EndResult::Succeeded);
        let phases = self.phases(&both);
        assert_eq!(phases.iter().filter(|phase| **phase == Some(Phase::Running)).count(), 1, "{phases:?}");
        if phases[0] == Some(Phase::Running) { "a" } else { "b" }
    }

    fn samples(&self) -> usize {
        self.records.iter().filter(|(_, record)| matches!(record, Record::UsageSampled { .. })).count()
    }

    fn weighted_use(&self, queue: &str) -> Option<f64> {
        self.world.local_queue_rows(10).iter().find(|row| &*row.name == queue).unwrap().weighted_use
    }

    fn consumed(&self, queue: &str) -> Option<i128> {
        self.world.state.usage_history().get(&*format!("default/{queue}")).map(|past| past.consumed[GPU])
    }

    fn local_status(&self, queue: &str) -> Value {
        self.world
            .render(&Key::namespaced(Kind::LocalQueue, "default", queue), &self.bodies, now(self.now))
            .unwrap()["status"]
            .clone()
    }
}

#[test]
fn who_used_less_before_goes_first() {
    let mut f = shared(slowly(), "BestEffortFIFO", ["1", "1"]);
    f.use_up("a");
    assert_eq!(f.first_of_two(), "b");
    let mut f = shared(slowly(), "BestEffortFIFO", ["1", "1"]);
    assert_eq!(f.first_of_two(), "a", "nobody used anything: the older goes first");
}

#[test]
fn nothing_is_taken_down_where_it_is_off() {
    let mut f = shared(None, "BestEffortFIFO", ["1", "1"]);
    f.use_up("a");
    assert_eq!(f.first_of_two(), "a");
    assert_eq!((f.samples(), f.world.state.usage_history().len(), f.weighted_use("a")), (0, 0, None));
    assert_eq!(f.local_status("a").get("fairSharing"), None);
    let before = f.world.snapshot();
    assert!(!String::from_utf8_lossy(&before).contains("usage_history"), "a snapshot is what it was before");
}

#[test]
fn weights_count() {
    for (weights, first) in [(["1", "1"], "b"), (["4", "1"], "a"), (["4", "4"], "b"), (["1", "0"], "a")] {
        let mut f = shared(slowly(), "BestEffortFIFO", weights);
        f.use_up("b");
        f.use_up("a");
        assert!(f.consumed("a") > f.consumed("b"), "half of what is older counts");
        assert_eq!(f.first_of_two(), first, "{weights:?}");
    }
    // A weight that is changed counts at once, and nothing that was used is forgotten with it.
    let mut f = shared(slowly(), "BestEffortFIFO", ["1", "1"]);
    f.use_up("a");
    let (used, weighed) = (f.consumed("a"), f.weighted_use("a").unwrap());
    let local = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "a", "namespace": "default"}, "spec": {
        "clusterQueue": "shared", "fairSharing": {"weight": "2"}}});
    f.apply(vec![local]);
    assert_eq!((f.consumed("a"), f.weighted_use("a")), (used, Some(weighed / 2.0)));
}

#[test]
fn use_is_an_average_that_forgets() {
    let mut f = shared(Some("half-life=2s,sampling=1s".parse().unwrap()), "BestEffortFIFO", ["1", "1"]);
    let uid = f.submit_to("a", "a-old", 4, None);
    f.settle();
    f.pass(Millis::secs(60));
    let used = f.consumed("a").unwrap();
    assert!(
        (3_999_000_000..=4_000_000_000).contains(&used),
        "after many half-lives it is what is used: {used}"
    );
    f.end(uid, EndResult::Succeeded);
    let (used, begun) = (f.consumed("a").unwrap(), f.now);
    f.pass(Millis::secs(2));
    let left = f.consumed("a").unwrap();
    assert!(left * 5 < used * 4 && left * 4 > used, "{left} of {used} after {} ms", f.now - begun);
    f.pass(Millis::secs(120));
    assert_eq!((f.consumed("a"), f.world.state.usage_history().len()), (None, 0));
    assert_eq!(f.local_status("a").get("fairSharing"), None);
    // Nothing is used and nothing is remembered: nothing is taken down, and nothing is waited for.
    let samples = f.samples();
    f.pass(Millis::secs(10));
    assert_eq!(f.samples(), samples);
    assert!(
        f.world.next_deadline(now(f.now)).is_none_or(|at| at > Mono(f.now + 1_000)),
        "{:?} at {}",
        f.world.next_deadline(now(f.now)),
        f.now
    );
    assert_eq!(f.first_of_two(), "a");
}

#[test]
fn without_a_half_life_nothing_is_remembered() {
    let mut f = shared(Some("half-life=0s,sampling=1s".parse().unwrap()), "BestEffortFIFO", ["1", "1"]);
    f.use_up("a");
    assert_eq!((f.samples(), f.world.state.usage_history().len()), (0, 0));
    assert_eq!(f.first_of_two(), "a");
}

#[test]
fn a_burst_alternates() {
    for (sharing, expect) in [
        (None, ["a-0", "a-1", "a-2", "a-3"]),
        (Some("half-life=1h,sampling=5m".parse().unwrap()), ["a-0", "a-1", "b-0", "b-1"]),
    ] {
        let mut f = shared(sharing, "BestEffortFIFO", ["1", "1"]);
        let one = |queue: &str, i: usize| {
            job("default", &format!("{queue}-{i}"), 1, &json!({"kueue.x-k8s.io/queue-name": queue}), "")
        };
        // All at once, before anything can be sampled.
        f.apply((0..4).map(|i| one("a", i)).chain((0..4).map(|i| one("b", i))).collect());
        f.settle();
        let mut runs: Vec<&str> = f
            .world
            .state
            .workloads()
            .values()
            .filter(|w| w.phase() == Phase::Running)
            .map(|w| &**w.name())
            .collect();
        runs.sort_unstable();
        assert_eq!(runs, expect);
    }
}

#[test]
fn a_run_that_no_sample_sees_is_not_free() {
    let mut f = shared(Some("half-life=5m,sampling=5m".parse().unwrap()), "BestEffortFIFO", ["1", "1"]);
    let uid = f.submit_to("a", "short", 4, None);
    f.settle();
    // Half of its four GPUs: as much as a whole interval would count.
    assert_eq!(f.consumed("a"), Some(2_000_000_000));
    assert_eq!(
        f.local_status("a")["fairSharing"]["admissionFairSharingStatus"]["consumedResources"],
        json!({GPU: "2"})
    );
    f.end(uid, EndResult::Succeeded);
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "short"), uid: None }]);
    assert_eq!(f.phase(uid), None);
    assert_eq!(f.consumed("a"), Some(2_000_000_000));
    assert_eq!(f.first_of_two(), "b");
}

#[test]
fn what_does_not_come_about_costs_nothing() {
    let mut f = shared(Some("half-life=5m,sampling=5m".parse().unwrap()), "BestEffortFIFO", ["1", "1"]);
    f.cut.push("eu".into());
    let uid = f.submit_to("a", "asked", 4, None);
    assert_eq!(f.phase(uid), Some(Phase::Dispatching));
    assert_eq!(
        (f.weighted_use("a"), f.consumed("a")),
        (Some(2.0), None),
        "it is felt before anybody answered"
    );
    f.pass(Millis::secs(30));
    assert_eq!(f.phase(uid), Some(Phase::Pending), "the cluster isn't heard");
    assert_eq!((f.weighted_use("a"), f.consumed("a"), f.samples()), (Some(0.0), None, 0));
    f.cut.clear();
    f.pass(Millis::secs(5));
    assert_eq!(f.phase(uid), Some(Phase::Running));
    let used = f.consumed("a").unwrap();
    assert_eq!(used, 2_000_000_000, "and it is felt once");
    assert_eq!(f.weighted_use("a"), Some(2.0));
}

#[test]
fn past_use_survives_a_restart() {
    let mut f = shared(slowly(), "BestEffortFIFO", ["1", "1"]);
    let (begin, from) = (f.world.snapshot(), f.records.len());
    f.use_up("a");
    let used = f.consumed("a").unwrap();
    assert!(used > 0);
    // From records alone, by a manager that is set otherwise: facts don't depend on settings.
    let mut replayed = World::restore(&begin, config()).unwrap();
    for (number, record) in &f.records[from..] {
        replayed.absorb(*number, record);
    }
    assert_eq!(replayed.state, f.world.state);
    f.restart(2, None);
    assert_eq!(f.consumed("a"), Some(used));
    f.settle();
    assert!(f.consumed("a").unwrap() < used, "time away counts");
    assert_eq!(f.first_of_two(), "b");
    assert!(f.consumed("a").is_some());
}

#[test]
fn what_a_queue_used_goes_with_it() {
    let mut f = shared(slowly(), "BestEffortFIFO", ["1", "1"]);
    f.use_up("a");
    let status = f.local_status("a")["fairSharing"]["admissionFairSharingStatus"].clone();
    assert!(
        status["lastUpdate"].as_str().unwrap().ends_with('Z') && status["consumedResources"][GPU].is_string(),
        "{status}"
    );
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::Job, "default", "a-old"), uid: None }]);
    f.write(vec![Change::Delete { key: Key::namespaced(Kind::LocalQueue, "default", "a"), uid: None }]);
    assert_eq!(f.world.state.usage_history().len(), 0);
    let samples = f.samples();
    f.pass(Millis::secs(10));
    assert_eq!(f.samples(), samples);
}

/// In strict order only the head is looked at, and time alone may make somebody else the head.
#[test]
fn a_sample_looks_again_at_who_is_first_now() {
    let mut f = shared(Some("half-life=30s,sampling=1s".parse().unwrap()), "StrictFIFO", ["1", "1"]);
    f.use_up("a");
    let runs = f.submit_to("b", "runs", 2, None);
    f.settle();
    let big = f.submit_to("b", "big", 4, None);
    let small = f.submit_to("a", "small", 2, None);
    f.settle();
    assert_eq!(
        f.phases(&[runs, big, small]),
        [Some(Phase::Running), Some(Phase::Pending), Some(Phase::Pending)]
    );
    f.pass(Millis::secs(120));
    assert_eq!(
        f.phases(&[runs, big, small]),
        [Some(Phase::Running), Some(Phase::Pending), Some(Phase::Running)]
    );
}

#[test]
fn local_queues_that_never_asked_for_it_are_watched_and_not_ordered() {
    let mut f = shared(slowly(), "BestEffortFIFO", ["1", "1"]);
    let uid = f.submit("plain", 4);
    f.settle();
    f.pass(Millis::secs(20));
    assert!(
        f.consumed("lq").is_some_and(|used| used > 0 && used < 400_000_000),
        "sampled, and its admission cost nothing: {:?}",
        f.consumed("lq")
    );
    f.end(uid, EndResult::Succeeded);
}
