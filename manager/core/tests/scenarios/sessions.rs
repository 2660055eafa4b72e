//! Which requests of an agent are taken, and what its reports change: repeated, forged, outdated, or over its
//! budget of journal writes.

use super::elastic::elastic;
use super::*;
use meridian_manager_core::facts::audit::Action;
use meridian_manager_core::facts::record::WorkloadFact;
use meridian_manager_core::live::counts::Count;
use meridian_manager_core::sessions::LiveCluster;
use meridian_shared::copies::CopyRequest;
use meridian_shared::ids::{Leadership, Session};
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::{
    Command, EVENTS_MAX, POD_REPORTS_MAX, PodReport, Reference, ReferenceKind, ScaleUp, Size, SyncRefusal,
};

/// The highest number that the first event of a request may have.
const EVENTS_FROM_MAX: u64 = u64::MAX / 4;

impl Fleet {
    fn eu(&self) -> &LiveCluster {
        &self.world.live().clusters()[&ClusterName::new("eu")]
    }

    fn running_in_eu(&mut self, pods: u32) -> Uid {
        let uid = self.submit(&format!("runs-{}", self.next_uid), pods);
        self.settle();
        assert_eq!((self.phase(uid), self.cluster_of(uid).as_deref()), (Some(Phase::Running), Some("eu")));
        uid
    }

    /// The manager's answer to the next request of the agent in `eu`, with these changes. It gets lost.
    fn forge(&mut self, change: impl FnOnce(&mut SyncRequest)) -> Result<(), SyncRefusal> {
        let mut request = self.compose("eu", Lane::News);
        change(&mut request);
        match *self.answer("eu", request) {
            SyncAnswer::Ok(_) => Ok(()),
            SyncAnswer::Refused(why) => Err(why),
        }
    }

    /// The agent in `eu` reports these events. Returns how many of them the manager took.
    fn report_events(&mut self, events: Vec<Event>) -> u64 {
        let before = self.eu().events_through();
        let events_last = before + events.len() as u64;
        self.forge(|request| {
            (request.events_from, request.events_last, request.events) = (before + 1, events_last, events);
        })
        .unwrap();
        self.eu().events_through() - before
    }

    /// The agent in `eu` reports these numbers of failed pods, one after the other.
    fn report_failures(&mut self, uid: Uid, failures: impl Iterator<Item = u32>) {
        let fence = self.world.state().workloads()[&uid].fence().unwrap();
        let report = |failures| PodReport {
            uid,
            fence,
            pods: BTreeMap::new(),
            failures,
            completed: Indexes::default(),
        };
        let spare = failures.map(report).collect();
        self.forge(|request| request.spare = spare).unwrap();
    }

    /// The agent in `eu` uses up its budget of journal writes.
    fn use_up_budget(&mut self, uid: Uid) {
        let size = u32::try_from(POD_REPORTS_MAX).unwrap();
        for batch in 1..=9 {
            self.report_failures(uid, batch * size..(batch + 1) * size);
        }
        let before = self.facts(is_pods_failed);
        self.report_failures(uid, [100_000].into_iter());
        assert_eq!(self.facts(is_pods_failed), before, "the budget is used up");
    }

    fn facts(&self, of: fn(&WorkloadFact) -> bool) -> usize {
        let is_counted = |(_, record): &&_| matches!(record, Record::Workload { fact, .. } if of(fact));
        self.records.iter().filter(is_counted).count()
    }
}

const fn is_pods_failed(fact: &WorkloadFact) -> bool {
    matches!(fact, WorkloadFact::PodsFailed { .. })
}

const fn is_ledger_replaced(fact: &WorkloadFact) -> bool {
    matches!(fact, WorkloadFact::LedgerReplaced { .. })
}

#[test]
fn events_are_numbered_from_one_and_bounded() {
    let mut f = Fleet::new(EU);
    let taken = f.eu().events_through();
    let malformed = |answer| matches!(answer, Err(SyncRefusal::Malformed(_)));
    for events_from in [0, EVENTS_FROM_MAX + 1, EVENTS_FROM_MAX + 2, u64::MAX] {
        assert!(malformed(f.forge(|request| request.events_from = events_from)), "{events_from}");
    }
    // A report about an offer that the manager doesn't have.
    let offer = OfferId { epoch: 1, leadership: 1, counter: 999 };
    let event = Event::Gone { offer, uid: Uid(1), expired: false };
    for more in [1, 2] {
        let events = vec![event.clone(); EVENTS_MAX + more];
        assert!(malformed(f.forge(|request| request.events = events)), "{more} more than allowed");
    }
    assert_eq!(f.eu().events_through(), taken, "nothing of a refused request is used");
    assert_eq!(
        f.report_events(vec![event; EVENTS_MAX]),
        EVENTS_MAX as u64,
        "an agent sends a backlog in such parts"
    );
    assert_eq!(f.forge(|request| request.events_from = EVENTS_FROM_MAX), Ok(()));
}

#[test]
fn a_request_of_an_older_session_is_refused() {
    let mut f = Fleet::new(EU);
    let older = f.compose("eu", Lane::News);
    let newer = Session { counter: older.session.counter + 1, id: 9 };
    assert_eq!(f.forge(|request| request.session = newer), Ok(()));
    let twin = Session { id: 10, ..newer };
    for session in [older.session, twin] {
        let refused = f.forge(|request| request.session = session);
        assert_eq!(refused, Err(SyncRefusal::Superseded { by: newer }), "{session:?}");
    }
    assert_eq!(f.eu().session(), newer);
    assert_eq!(f.forge(|request| request.session = newer), Ok(()));
}

#[test]
fn an_agent_that_follows_a_newer_leadership_is_refused() {
    let mut f = Fleet::new(EU);
    let uid = f.running_in_eu(2);
    f.end_unreported(uid, EndResult::Succeeded);
    let ours = f.world.state().leadership();
    for (epoch, id) in [(ours.epoch + 1, ours.id), (ours.epoch + 1, ours.id + 1), (ours.epoch, ours.id + 1)] {
        let follows = Leadership { epoch, id };
        let refused = f.forge(|request| request.follows = Some(follows));
        assert_eq!(refused, Err(SyncRefusal::NewerLeadership { follows }));
    }
    assert_eq!(f.phase(uid), Some(Phase::Running), "nothing of a refused request is used");
    assert_eq!(f.world.state().leadership(), ours, "without a proof it is ignored");
    let follows = Leadership { epoch: ours.epoch - 1, id: ours.id + 1 };
    assert_eq!(f.forge(|request| request.follows = Some(follows)), Ok(()));
    assert_eq!(f.phase(uid), Some(Phase::Finished));
}

/// A journal that is restored from before the leadership that the agent in `eu` follows. The agent runs a
/// gang.
fn restored() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    let uid = f.running_in_eu(2);
    let backup = f.world.snapshot();
    f.restart(2, None);
    f.settle();
    f.lead_from_backup(&backup);
    (f, uid)
}

#[test]
fn a_proof_of_the_newer_leadership_makes_the_manager_lead_above_it() {
    let (mut f, uid) = restored();
    let (ours, follows) = (f.world.state().leadership(), f.compose("eu", Lane::News).follows.unwrap());
    assert!(follows.epoch == ours.epoch && follows.id != ours.id);
    f.confirm_rules();
    f.settle();
    assert_eq!(f.world.state().leadership().epoch, follows.epoch + 1);
    assert!(f.world.state().recovery().is_none());
    assert_eq!((f.phase(uid), f.cluster_of(uid).as_deref()), (Some(Phase::Running), Some("eu")));
}

#[test]
fn a_proof_of_another_leadership_than_the_followed_one_proves_nothing() {
    let (mut f, _) = restored();
    let ours = f.world.state().leadership();
    let request = f.compose("eu", Lane::News);
    let refused = f.answer("eu", request);
    f.deliver("eu", refused);
    let follows = Leadership { epoch: 99, id: 99 };
    let refused = f.forge(|request| {
        assert!(request.inventory.as_ref().is_some_and(|inventory| inventory.receipts.len() > 1));
        request.follows = Some(follows);
    });
    assert_eq!(refused, Err(SyncRefusal::NewerLeadership { follows }));
    assert_eq!(f.world.state().leadership(), ours);
}

#[test]
fn a_gang_is_reported_as_lost_once_however_often_its_agent_loses_its_store() {
    let mut f = Fleet::new(EU);
    f.running_in_eu(2);
    for ledger in [7_777, 8_888, 9_999] {
        f.add_agent("eu", ledger);
        f.exchange();
    }
    assert_eq!(f.facts(is_ledger_replaced), 1);
}

#[test]
fn a_poll_stays_parked_until_leases_are_to_be_renewed() {
    let mut f = Fleet::new(EU);
    f.running_in_eu(2);
    let eu = ClusterName::new("eu");
    assert!(!f.world.owes(&eu, Mono(f.now)), "its agent asks again at once");
    assert!(f.world.owes(&eu, Mono(f.now + TERM.0 / 16)));
}

/// Only what an agent can repeat without end has to wait.
#[test]
fn a_gang_starts_and_ends_although_the_budget_is_used_up() {
    let mut f = Fleet::new(EU);
    let busy = f.running_in_eu(1);
    f.use_up_budget(busy);
    let uid = f.submit("next", 2);
    for _ in 0..6 {
        f.exchange();
    }
    assert_eq!(f.phase(uid), Some(Phase::Running), "{:#}", f.why(uid));
    f.end_unreported(uid, EndResult::Succeeded);
    f.exchange();
    assert_eq!(f.phase(uid), Some(Phase::Finished));
    assert_eq!(f.world.live().counts().of(Count::PutOff), 0);
}

#[test]
fn new_reasons_for_the_same_wait_are_put_off_over_the_budget() {
    let mut f = Fleet::new(EU);
    f.disconnected.push("eu".into());
    let uid = f.submit("job", 3);
    let offer = *f.world.state().workloads()[&uid].legs().keys().next().unwrap();
    let waiting = |reason: String| Event::Waiting { offer, uid, reason, estimate: None };
    let reasons = |n: usize| (0..EVENTS_MAX).map(move |at| waiting(format!("{:0500}", n * EVENTS_MAX + at)));
    assert_eq!(f.report_events(reasons(0).collect()), EVENTS_MAX as u64);
    let taken = f.report_events(reasons(1).collect());
    assert!(taken < EVENTS_MAX as u64, "such reports could fill the journal");
    let known = reasons(1).nth(usize::try_from(taken).unwrap() - 1).unwrap();
    assert_eq!(f.report_events(vec![known; 5]), 5, "a repeated reason isn't written");
}

#[test]
fn failed_pods_are_recorded_once_and_within_the_budget() {
    let mut f = Fleet::new(EU);
    let uid = f.running_in_eu(1);
    f.report_failures(uid, [0, 3, 3, 2, 3, 0].into_iter());
    assert_eq!(f.world.state().workloads()[&uid].pod_failures(), 3);
    assert_eq!(f.facts(is_pods_failed), 1);
    f.use_up_budget(uid);
    f.now += 1_000;
    f.world.committed(Mono(f.now));
    f.report_failures(uid, [200_000].into_iter());
    assert_eq!(f.world.state().workloads()[&uid].pod_failures(), 200_000, "the agent repeats its reports");
}

#[test]
fn the_audit_log_names_the_cluster_that_got_a_copy() {
    let mut f = Fleet::new(EU);
    f.hold_starts = true;
    let uid = Uid(0xfeed);
    let mut job = job("default", "reader", 1, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
    job["spec"]["template"]["spec"]["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "token"}}]);
    let change = Change::Put { object: object(job), scope: None, uid, mode: PutMode::Create };
    f.input(Input::Write(Box::new(Write::new(Actor::ManagementCluster, vec![change], false))));
    f.settle();
    let (offer, leg) = f.world.state().workloads()[&uid].right().unwrap();
    let (fence, references) =
        (leg.fence(), vec![Reference { kind: ReferenceKind::Secret, name: "token".into() }]);
    let request = CopyRequest { uid, offer, fence, references };
    let copied = f.input(Input::Copies { cluster: "eu".into(), request });
    assert!(matches!(copied, Reply::Copies(Ok(_))), "{copied:?}");
    let clusters: Vec<_> = f
        .records
        .iter()
        .filter_map(|(_, record)| match record {
            Record::Audited(line) if line.entry.action == Action::Copy => Some(line.entry.cluster.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(clusters, [Some("eu".to_owned())]);
}

/// How often a scale-up began, and how often an agent had the capacity.
fn scale_ups(f: &Fleet) -> (usize, usize) {
    (
        f.facts(|fact| matches!(fact, WorkloadFact::ScaleUpStarted { .. })),
        f.facts(|fact| matches!(fact, WorkloadFact::ScaledUp { .. })),
    )
}

/// An elastic job that runs in `eu` with one pod, in a fleet in which its scale-up to three pods has begun.
/// The agent doesn't know that yet.
fn scaling_up() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_object("us", "us-east4", "US")]);
    let (gang, _) = f.put(elastic("gang", 1));
    f.settle();
    f.put(elastic("gang", 3));
    assert_eq!((scale_ups(&f), f.used()), ((1, 0), 3));
    (f, gang)
}

/// Denies `eu` to new attempts. What runs there may stay.
fn flag_eu(f: &mut Fleet) {
    let spec = json!({"applies": {}, "deny": {"clusters": ["eu"]}, "onChange": "Flag"});
    f.apply(vec![meridian_object("ResidencyPolicy", "away", spec)]);
}

#[test]
fn a_scale_up_is_sent_neither_to_a_forbidden_cluster_nor_to_a_stopping_gang() {
    for forbidden in [true, false] {
        let (mut f, gang) = scaling_up();
        match forbidden {
            true => flag_eu(&mut f),
            false => f.stop(gang),
        }
        let request = f.compose("eu", Lane::News);
        let answer = f.answer("eu", request);
        let SyncAnswer::Ok(response) = &*answer else { panic!("{answer:?}") };
        let is_scale_up = |command: &Command| matches!(command, Command::ScaleUp { .. });
        assert!(!response.commands.is_empty() && !response.commands.iter().any(is_scale_up), "{answer:?}");
    }
}

#[test]
fn a_scale_up_that_was_refused_for_lack_of_capacity_is_tried_again_within_seconds() {
    let mut f = Fleet::new(EU);
    f.set_nodes("eu", &[2, 2]);
    let (gang, _) = f.put(elastic("gang", 2));
    f.settle();
    // The wait doesn't depend on how much the journal has recorded.
    f.apply((0..60).map(|n| priority_class(&format!("class-{n}"), n)).collect());
    f.disconnected = vec!["eu".into()];
    f.put(elastic("gang", 4));
    f.set_nodes("eu", &[2]);
    f.disconnected.clear();
    f.settle();
    assert_eq!((scale_ups(&f), f.used()), ((1, 0), 2));
    f.set_nodes("eu", &[2, 3]);
    f.advance(Millis::secs(6));
    assert_eq!((scale_ups(&f), f.used()), ((2, 1), 4), "{:#}", f.why(gang));
}

#[test]
fn a_restored_journal_learns_from_the_inventory_that_its_scale_up_is_done() {
    let (mut f, gang) = scaling_up();
    let backup = f.world.snapshot();
    f.settle();
    assert_eq!(scale_ups(&f), (1, 1));
    f.lead_from_backup(&backup);
    // From here on the manager can't ask the agent to answer the scale-up again.
    flag_eu(&mut f);
    f.settle();
    assert_eq!((scale_ups(&f), f.used()), ((1, 2), 3));
    let why = f.why(gang);
    assert!(why["summary"].as_str().unwrap().contains(": 3 pods running"), "{why:#}");
}

#[test]
fn an_inventory_with_an_earlier_scale_up_changes_nothing() {
    let (mut f, gang) = scaling_up();
    f.settle();
    f.disconnected = vec!["eu".into()];
    f.put(elastic("gang", 4));
    assert_eq!((scale_ups(&f), f.used()), ((2, 1), 4));
    f.restart(2, RECOVERY);
    f.disconnected.clear();
    f.settle();
    assert_eq!((scale_ups(&f), f.used()), ((2, 2), 4), "what was charged is neither freed nor charged again");
    // The same for a scale-up that is done.
    f.restart(3, RECOVERY);
    f.settle();
    assert_eq!((scale_ups(&f), f.used(), f.phase(gang)), ((2, 2), 4, Some(Phase::Running)));
}

#[test]
fn a_reported_scale_up_without_the_managers_mac_is_ignored() {
    let mut f = Fleet::new(EU);
    f.put(elastic("gang", 1));
    f.settle();
    f.restart(2, RECOVERY);
    f.exchange();
    let size = Size { parallelism: 4, completions: None };
    let invented = ScaleUp { number: RecordNumber(10_000), places: vec![4], size, mac: None };
    let taken = f.forge(|request| {
        let inventory = request.inventory.as_mut().unwrap();
        inventory.runs[0].scale_up = Some(Box::new(invented));
    });
    assert_eq!((taken, f.used(), scale_ups(&f)), (Ok(()), 1, (0, 0)));
    assert!(f.eu().inventory().is_taken());
}
