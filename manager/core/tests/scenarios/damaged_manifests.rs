//! Stored manifests that can't be read: their workloads are never granted, `why` says so, and the same
//! manifest repairs them.

use super::*;
use meridian_manager_core::facts::input::ManifestRead;
use meridian_manager_core::facts::outcome::WriteResult;
use meridian_manager_core::facts::record::WorkloadFact;

impl Fleet {
    fn hash_of(&self, uid: Uid) -> ContentHash {
        self.world.state().workloads()[&uid].body()
    }

    /// The disk loses the manifest of a workload; nobody has noticed yet.
    pub(super) fn lose_manifest(&mut self, uid: Uid) -> Arc<str> {
        let hash = self.hash_of(uid);
        self.bodies.0.remove(&hash).unwrap()
    }

    /// The shell has read the manifest of a workload.
    pub(super) fn report_manifest(&mut self, uid: Uid, intact: bool) {
        let read = ManifestRead { uid, hash: self.hash_of(uid), intact };
        self.input(Input::ManifestsRead(vec![read]));
        self.input(Input::Turn);
    }

    fn offers_and_grants(&self, uid: Uid) -> (usize, usize) {
        let fact_about = |record| match record {
            &(_, Record::Workload { uid: of, ref fact }) if of == uid => Some(fact),
            _ => None,
        };
        let facts: Vec<&WorkloadFact> = self.records.iter().filter_map(fact_about).collect();
        let count = |is: fn(&WorkloadFact) -> bool| facts.iter().filter(|fact| is(fact)).count();
        (
            count(|fact| matches!(fact, WorkloadFact::Offered { .. })),
            count(|fact| matches!(fact, WorkloadFact::Granted { .. })),
        )
    }

    fn assert_why_says_damaged(&self, uid: Uid) {
        let why = self.why(uid);
        let summary = why["summary"].as_str().unwrap();
        assert!(summary.contains("damaged: the stored manifest can't be read"), "{why:#}");
        assert!(why["wouldHelp"].as_str().unwrap().contains("restore the journal from a backup"), "{why:#}");
    }
}

#[test]
fn a_workload_with_a_damaged_manifest_is_never_offered() {
    let mut f = Fleet::new(EU);
    let holder = f.submit("holder", 4);
    f.settle();
    let damaged = f.submit("damaged", 2);
    let body = f.lose_manifest(damaged);
    f.report_manifest(damaged, false);
    f.assert_why_says_damaged(damaged);
    f.end(holder, EndResult::Succeeded);
    let equivalent = f.submit("equivalent", 2);
    f.advance(Millis::secs(50));
    assert_eq!(f.phases(&[damaged, equivalent]), [Some(Phase::Pending), Some(Phase::Running)]);
    assert_eq!(f.offers_and_grants(damaged), (0, 0));
    f.assert_why_says_damaged(damaged);
    let shown = meridian_views::workloads::shown(&f.world, damaged, now(f.now).mono)
        .unwrap()
        .job_without_manifest(None, &Asker::unlimited());
    assert_eq!(shown["metadata"]["name"], "damaged");
    assert_eq!(shown["status"]["conditions"][0]["type"], "Damaged");

    // A restart forgets what is on the disk, and finds it again.
    f.restart(2, None);
    f.advance(Millis::secs(5));
    assert_eq!((f.phase(damaged), f.offers_and_grants(damaged).1), (Some(Phase::Pending), 0));
    f.assert_why_says_damaged(damaged);

    // The shell reads it well again, as after an error of the disk that went away.
    f.bodies.0.insert(f.hash_of(damaged), body);
    f.report_manifest(damaged, true);
    f.settle();
    assert_eq!(f.phase(damaged), Some(Phase::Running), "{:#}", f.why(damaged));
}

#[test]
fn damage_that_a_grant_finds_costs_one_offer() {
    let mut f = Fleet::new(EU);
    let holder = f.submit("holder", 4);
    f.settle();
    let damaged = f.submit("damaged", 2);
    f.lose_manifest(damaged);
    f.end(holder, EndResult::Succeeded);
    f.advance(Millis::secs(50));
    assert_eq!((f.phase(damaged), f.offers_and_grants(damaged)), (Some(Phase::Pending), (1, 0)));
    assert_eq!(f.cluster_of(damaged), None);
    f.assert_why_says_damaged(damaged);
    assert!(f.agents.values().all(|agent| agent.runs().next().is_none()));
}

#[test]
fn a_start_that_cannot_be_delivered_backs_off() {
    let mut f = Fleet::new(EU);
    let holder = f.submit("holder", 4);
    f.settle();
    let damaged = f.submit("damaged", 2);
    let body = f.lose_manifest(damaged);
    f.end(holder, EndResult::Succeeded);
    f.settle();
    for tries in 1..=2 {
        assert_eq!(f.offers_and_grants(damaged), (tries, 0));
        // The shell takes it for intact, and the next grant fails again.
        f.report_manifest(damaged, true);
        f.settle();
    }
    assert_eq!(f.offers_and_grants(damaged), (2, 0), "two failed starts in a row: the third waits");
    f.bodies.0.insert(f.hash_of(damaged), body);
    f.advance(Millis::secs(10));
    assert_eq!(f.offers_and_grants(damaged), (2, 0), "{:#}", f.why(damaged));
    assert!(
        f.world.live().clusters().values().all(|live| live.starts().in_a_row() == 0),
        "no cluster is to blame"
    );
    f.advance(Millis::secs(60));
    assert_eq!(f.phase(damaged), Some(Phase::Running), "{:#}", f.why(damaged));
}

#[test]
fn a_grant_whose_manifest_is_lost_before_it_arrives_is_stopped() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("lost", 2);
    // The agent holds capacity; the answer that grants is lost.
    while f.phase(uid) != Some(Phase::Granted) {
        f.now += 20;
        let agent = f.agents.get_mut(&ClusterName::from("eu")).unwrap();
        let request = agent.compose(now(f.now), Lane::News);
        let request = Box::new(request);
        let reply = f.input(Input::Sync { cluster: "eu".into(), request, may_park: false });
        let Reply::Sync(answer) = reply else { panic!("not answered") };
        if f.phase(uid) != Some(Phase::Granted) {
            let agent = f.agents.get_mut(&ClusterName::from("eu")).unwrap();
            let out = agent.apply(now(f.now), AgentInput::Answer(answer));
            f.perform(&"eu".into(), out.into_effects());
        }
    }
    f.lose_manifest(uid);
    f.advance(Millis::secs(50));
    assert_eq!((f.phase(uid), f.offers_and_grants(uid).1), (Some(Phase::Pending), 1), "{:#}", f.why(uid));
    assert_eq!(f.cluster_of(uid), None);
    f.assert_why_says_damaged(uid);
}

#[test]
fn the_same_manifest_repairs_a_damaged_workload_and_another_one_is_refused() {
    let mut f = Fleet::new(EU);
    let damaged = f.submit("damaged", 2);
    f.settle();
    f.lose_manifest(damaged);
    f.report_manifest(damaged, false);
    assert_eq!(f.phase(damaged), Some(Phase::Running), "what runs continues");
    let why = f.why(damaged);
    assert!(why["summary"].as_str().unwrap().contains("so it can't start again"), "{why:#}");
    let manifest =
        |argument: &str| job("default", "damaged", 2, &json!({"kueue.x-k8s.io/queue-name": "lq"}), argument);
    let Reply::Rejected(rejections) = f.apply(vec![manifest("other")]) else { panic!("accepted") };
    assert!(rejections[0].message.contains("apply it exactly as it was submitted"), "{rejections:?}");
    let Reply::Written(written) = f.apply(vec![manifest("")]) else { panic!("rejected") };
    assert_eq!((written[0].uid, written[0].result), (damaged, WriteResult::Configured));
    assert!(f.bodies.body(f.hash_of(damaged)).is_some(), "it is stored again");
    let why = f.why(damaged);
    assert!(!why["summary"].as_str().unwrap().contains("damaged"), "{why:#}");
    assert!(f.records.iter().any(|(_, record)| format!("{record:?}").contains("Repair")), "it is audited");
}
