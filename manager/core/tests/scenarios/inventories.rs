//! What the manager believes of the inventories and events of agents, and how it corrects the rest.

use super::untrusted_agents::invented_end;
use super::*;
use meridian_manager_core::facts::record::WorkloadFact;
use meridian_manager_core::live::counts::Count;
use meridian_manager_core::sessions::outbox::RESEND;
use meridian_shared::placement::Placement;
use meridian_shared::protocol::{Command, GrantRefusal, RefuseReason};

impl Fleet {
    /// The manager handles the next request of an agent as `change` makes it. Returns the commands of the
    /// answer, which the agent doesn't get.
    fn sync_changed(&mut self, name: &str, change: impl FnOnce(&mut SyncRequest)) -> Vec<Command> {
        let mut request = self.compose(name, Lane::News);
        change(&mut request);
        self.world.committed(Mono(self.now));
        match *self.answer(name, request) {
            SyncAnswer::Ok(response) => response.commands,
            SyncAnswer::Refused(why) => panic!("{why:?}"),
        }
    }

    fn report(&mut self, name: &str, events: Vec<Event>) -> Vec<Command> {
        let from = self.world.live().clusters()[&ClusterName::new(name)].events_through() + 1;
        self.sync_changed(name, |request| (request.events, request.events_from) = (events, from))
    }

    /// The agent reports this inventory, and no events.
    fn report_inventory(&mut self, name: &str, inventory: Inventory) -> Vec<Command> {
        let for_leadership = Some(self.world.state().leadership());
        self.sync_changed(name, |request| {
            request.events.clear();
            request.inventory = Some(Inventory { for_leadership, ..inventory });
        })
    }

    /// Exchanges of `eu` in which it reports its runs with another placement and name of the job.
    fn settle_with_runs(&mut self, placement: &Placement, job: &str) {
        for _ in 0..6 {
            self.now += 20;
            let mut request = self.compose("eu", Lane::News);
            for run in request.inventory.iter_mut().flat_map(|inventory| &mut inventory.runs) {
                (run.placement, run.job) = (Some(Arc::new(placement.clone())), Some(job.into()));
            }
            let answer = self.answer("eu", request);
            self.input(Input::Turn);
            self.world.committed(Mono(self.now));
            self.deliver("eu", answer);
        }
    }

    fn offer_of(&self, uid: Uid) -> (OfferId, ClusterName) {
        let (offer, leg) =
            self.world.state().workloads()[&uid].legs().iter().next().expect("it has an offer");
        (*offer, leg.cluster().clone())
    }

    fn count(&self, count: Count) -> u64 {
        self.world.live().counts().of(count)
    }
}

/// A fleet of one cluster, with a gang that runs.
fn running() -> (Fleet, Uid, Fence) {
    let mut f = Fleet::new(EU);
    let uid = f.submit("gang", 2);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    let fence = f.world.state().workloads()[&uid].fence().unwrap();
    (f, uid, fence)
}

/// A fleet of one cluster. Its agent took the offer of a gang and holds capacity, which it hasn't reported.
fn held() -> (Fleet, Uid, OfferId) {
    let mut f = Fleet::new(EU);
    let uid = f.submit("gang", 2);
    f.exchange();
    let (offer, _) = f.offer_of(uid);
    assert_eq!(f.phase(uid), Some(Phase::Dispatching));
    (f, uid, offer)
}

/// A fleet with a gang that is offered to one cluster, and the name of another cluster.
fn offered() -> (Fleet, Uid, OfferId, ClusterName) {
    let mut f = Fleet::regions();
    let uid = f.submit("gang", 2);
    let (offer, home) = f.offer_of(uid);
    let other = f.agents.keys().find(|name| **name != home).unwrap().clone();
    (f, uid, offer, other)
}

fn invented_offer() -> OfferId {
    OfferId { epoch: 1, leadership: 1, counter: 99 }
}

fn withdraws(commands: &[Command], offer: OfferId) -> bool {
    commands.iter().any(|command| matches!(command, Command::Withdraw { offer: of, .. } if *of == offer))
}

fn stops(commands: &[Command], fence: Fence) -> bool {
    commands.iter().any(|command| matches!(command, Command::Stop { fence: of, .. } if *of == fence))
}

#[test]
fn an_adopted_gang_with_other_pods_than_its_job_asks_for_is_stopped() {
    let gang = |pods: u32| {
        let mut job = job("default", "gang", pods, &json!({"kueue.x-k8s.io/queue-name": "lq"}), "");
        job["spec"]["completions"] = json!(4);
        job
    };
    let mut f = Fleet::new(EU);
    let (uid, _) = f.put(gang(2));
    f.settle();
    let backup = f.world.snapshot();
    f.put(gang(3));
    f.settle();
    f.hold_stops = true;
    f.lead_from_backup(&backup);
    f.confirm_rules();
    f.settle();
    f.settle();
    assert_eq!((f.count(Count::Adoptions), f.phase(uid)), (1, Some(Phase::Stopping)), "{:#}", f.why(uid));
}

#[test]
fn an_adopted_gang_that_is_being_stopped_is_shown_as_stopping() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("gang", 2);
    let backup = f.world.snapshot();
    f.settle();
    f.hold_stops = true;
    f.stop(uid);
    f.settle();
    f.lead_from_backup(&backup);
    f.confirm_rules();
    f.settle();
    f.settle();
    assert_eq!((f.count(Count::Adoptions), f.phase(uid)), (1, Some(Phase::Stopping)));
}

#[test]
fn the_late_end_of_an_older_attempt_doesnt_end_the_newer_one() {
    let mut f = Fleet::regions();
    let uid = f.submit("gang", 3);
    f.settle();
    f.disconnected = vec![f.cluster_of(uid).unwrap().as_str().into()];
    f.end_unreported(uid, EndResult::Succeeded);
    f.advance(Millis::secs(12));
    let second = f.cluster_of(uid);
    assert!(second.is_some());
    f.disconnected.clear();
    f.advance(Millis::secs(3));
    assert_eq!((f.phase(uid), f.cluster_of(uid)), (Some(Phase::Running), second));
}

#[test]
fn an_end_with_the_proof_of_another_grant_is_ignored() {
    let mut f = Fleet::new(EU);
    let (done, waits) = (f.submit("done", 1), f.submit("waits", 9));
    f.settle();
    f.end(done, EndResult::Succeeded);
    let end = f.agents[&"eu".into()].durable().tombstones().values().next().unwrap().end.clone();
    assert!(end.proof.is_some());
    f.report("eu", vec![Event::Ended(End { uid: waits, ..end })]);
    assert_eq!(f.phase(waits), Some(Phase::Pending));
}

#[test]
fn the_words_of_an_end_are_cleaned() {
    let (mut f, uid, fence) = running();
    let result = EndResult::Failed { reason: "Error\n".into(), message: "exit\u{1b}[2J code 1".into() };
    f.report("eu", vec![Event::Ended(End { fence, result, ..invented_end(uid, 1) })]);
    let finish = f.world.state().workloads()[&uid].finished().unwrap();
    assert_eq!((&*finish.reason, &*finish.message), ("Error ", "exit [2J code 1"));
}

#[test]
fn only_holds_that_expired_count_as_failed_starts() {
    for (expired, phase) in [(true, Phase::Pending), (false, Phase::Dispatching)] {
        let mut f = Fleet::new(EU);
        let uid = f.submit("gang", 2);
        for _ in 0..2 {
            let (offer, _) = f.offer_of(uid);
            f.report("eu", vec![Event::Gone { offer, uid, expired }]);
            f.input(Input::Turn);
        }
        assert_eq!(f.phase(uid), Some(phase), "expired: {expired}");
        let backs_off = f.why(uid).to_string().contains("did not reach running");
        assert_eq!(backs_off, expired, "{:#}", f.why(uid));
    }
}

#[test]
fn a_cluster_that_was_full_is_asked_again_within_seconds_however_many_offers_there_were() {
    const LONGEST: Millis = Millis::secs(4);
    let mut f = Fleet::new(EU);
    let uid = f.submit("gang", 2);
    for offers in 1..=24 {
        let (offer, _) = f.offer_of(uid);
        let (reason, text) = (RefuseReason::NoCapacity, "full".into());
        f.report("eu", vec![Event::Refused { offer, uid, reason, text }]);
        assert_eq!(f.phase(uid), Some(Phase::Pending));
        f.now += LONGEST.0;
        f.report("eu", Vec::new());
        f.input(Input::Turn);
        assert_eq!(f.phase(uid), Some(Phase::Dispatching), "after {offers} offers: {:#}", f.why(uid));
    }
}

#[test]
fn a_refused_grant_frees_its_gang_which_starts_again_a_moment_later() {
    let (mut f, uid, _) = held();
    let commands = f.sync_changed("eu", |_| ());
    assert!(matches!(commands[..], [Command::Grant(_)]), "{commands:?}");
    let fence = f.world.state().workloads()[&uid].fence().unwrap();
    f.report("eu", vec![Event::GrantRefused { uid, fence, why: GrantRefusal::NoHold }]);
    f.input(Input::Turn);
    assert_eq!(f.phase(uid), Some(Phase::Pending));
    let end = f.why(uid)["history"][0]["end"].clone();
    assert!(end.as_str().unwrap().contains("its hold had expired"), "{end}");
    f.now += 500;
    f.input(Input::Turn);
    assert_eq!(f.phase(uid), Some(Phase::Dispatching), "{:#}", f.why(uid));
}

#[test]
fn an_inventory_for_an_earlier_leadership_proves_nothing() {
    let (mut f, uid, _) = running();
    f.restart(2, RECOVERY);
    f.sync_changed("eu", |request| {
        request.inventory = Some(Inventory { for_leadership: request.follows, ..Inventory::default() });
    });
    assert!(f.world.state().recovery().is_some(), "the cluster is still awaited");
    assert_eq!(f.phase(uid), Some(Phase::Running));
    f.settle();
    assert!(f.world.state().recovery().is_none());
}

#[test]
fn a_grant_on_its_way_is_not_taken_as_lost() {
    let (mut f, uid, offer) = held();
    // The agent reports its hold together with an inventory, which can't have the grant that the hold gets.
    let mut request = f.compose("eu", Lane::News);
    assert!(matches!(request.events[..], [Event::Held { .. }]));
    let for_leadership = Some(f.world.state().leadership());
    request.inventory =
        Some(Inventory { for_leadership, offers: vec![(offer, uid)], ..Inventory::default() });
    let answer = f.answer("eu", request);
    assert_eq!(f.phase(uid), Some(Phase::Granted));
    f.deliver("eu", answer);
    f.settle();
    assert_eq!((f.phase(uid), f.world.state().workloads()[&uid].attempts()), (Some(Phase::Running), 1));
}

#[test]
fn a_gang_that_its_agent_lost_is_stopped_there_even_while_other_commands_are_on_their_way() {
    for is_quiet in [true, false] {
        let (mut f, uid, fence) = running();
        if !is_quiet {
            f.submit("other", 1);
        }
        let commands = f.report_inventory("eu", Inventory::default());
        assert!(stops(&commands, fence), "{commands:?}");
        assert_eq!(f.phase(uid), Some(Phase::Stopping), "only the agent's confirmation frees anything");
    }
}

#[test]
fn a_run_of_an_attempt_that_is_over_is_not_adopted() {
    let (mut f, uid, _) = running();
    f.hold_stops = true;
    f.disconnected = vec!["eu".into()];
    f.advance(Millis::secs(12));
    assert_eq!(f.count(Count::Lapses), 1);
    f.restart(2, RECOVERY);
    f.disconnected.clear();
    f.settle();
    assert_eq!(f.agents[&"eu".into()].runs().count(), 1, "its pods haven't ended yet");
    assert_eq!((f.count(Count::Adoptions), f.world.state().recovery().is_some()), (0, false));
    assert_eq!(f.world.state().workloads()[&uid].history().len(), 1);
}

#[test]
fn an_offer_that_its_agent_lost_is_made_again() {
    let (mut f, uid, lost) = held();
    f.report_inventory("eu", Inventory::default());
    f.input(Input::Turn);
    assert_eq!(f.phase(uid), Some(Phase::Dispatching));
    assert_ne!(f.offer_of(uid).0, lost);
}

#[test]
fn an_offer_that_its_agent_has_stays() {
    let (mut f, uid, offer) = held();
    let commands = f.report_inventory("eu", Inventory { offers: vec![(offer, uid)], ..Inventory::default() });
    f.input(Input::Turn);
    assert_eq!((f.offer_of(uid).0, withdraws(&commands, offer)), (offer, false));
}

#[test]
fn offers_that_an_agent_has_without_the_manager_are_withdrawn() {
    let (mut f, uid, offer, other) = offered();
    let offers = vec![(offer, uid), (invented_offer(), uid)];
    let commands = f.report_inventory(other.as_str(), Inventory { offers, ..Inventory::default() });
    assert!(withdraws(&commands, offer), "another cluster's offer: {commands:?}");
    assert!(withdraws(&commands, invented_offer()), "an unknown offer: {commands:?}");
    assert_eq!(f.offer_of(uid).0, offer);
}

#[test]
fn a_hold_for_an_offer_that_is_over_is_withdrawn() {
    let (mut f, uid, _) = held();
    for event in [
        Event::Held { offer: invented_offer(), uid },
        Event::Waiting { offer: invented_offer(), uid, reason: "waits".into(), estimate: None },
    ] {
        let commands = f.report("eu", vec![event]);
        f.now += RESEND.0;
        assert!(withdraws(&commands, invented_offer()), "{commands:?}");
    }
    assert_eq!(f.count(Count::LateHolds), 2);
}

#[test]
fn a_cluster_cant_hold_capacity_for_the_offer_of_another() {
    let (mut f, uid, offer, other) = offered();
    f.report(other.as_str(), vec![Event::Held { offer, uid }]);
    assert_eq!((f.phase(uid), f.count(Count::Illegal)), (Some(Phase::Dispatching), 1));
}

#[test]
fn an_attempt_that_no_cluster_has_the_right_to_run_is_stopped() {
    for accepted in [true, false] {
        let (mut f, uid, fence) = running();
        let stray = Fence { counter: 99, ..fence };
        let event = if accepted {
            Event::Accepted { uid, fence: stray, placement: None }
        } else {
            Event::Running { uid, fence: stray, placement: None }
        };
        let commands = f.report("eu", vec![event]);
        assert!(stops(&commands, stray) && !stops(&commands, fence), "{commands:?}");
    }
}

#[test]
fn an_agent_with_a_new_ledger_ends_nothing_of_the_old_one() {
    let mut f = Fleet::regions();
    let uid = f.submit("gang", 3);
    f.settle();
    let home = ClusterName::new(f.cluster_of(uid).unwrap());
    f.add_agent(home.as_str(), 9_999);
    f.settle();
    f.input(Input::Operator { actor: Actor::user("op"), action: Operator::Drain(home.clone()) });
    f.settle();
    // The agent has no trace of the attempt and confirms its stop, but its machine before may still run it.
    let ends: Vec<Uid> = f.agents[&home].durable().tombstones().keys().map(|(uid, _)| *uid).collect();
    assert_eq!((ends, f.phase(uid)), (vec![uid], Some(Phase::Stopping)));
}

#[test]
fn an_orphan_is_recorded_with_a_clean_name_and_no_oversized_placement() {
    let mut f = Fleet::new(EU);
    let backup = f.world.snapshot();
    f.submit("lost", 3);
    f.settle();
    f.lead_from_backup(&backup);
    let oversized = Placement { unhealthy: vec!["node".into(); 99], ..Placement::default() };
    f.settle_with_runs(&oversized, "default/lo\nst");
    let orphan = f.world.state().orphans().values().next().unwrap();
    assert_eq!((orphan.run().job.as_deref(), &orphan.run().placement), (Some("default/lo st"), &None));
}

#[test]
fn an_adoption_takes_neither_a_wrong_placement_nor_the_reported_name() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("gang", 3);
    let backup = f.world.snapshot();
    f.settle();
    f.lead_from_backup(&backup);
    f.settle_with_runs(&Placement::default(), "any text");
    assert_eq!(f.world.state().workloads()[&uid].right().unwrap().1.placement(), None);
    let adopted = f.records.iter().find_map(|(_, record)| match record {
        Record::Workload { fact: WorkloadFact::Adopted { run, .. }, .. } => Some(run),
        _ => None,
    });
    assert_eq!(adopted.expect("it was adopted").job, None);
}

#[test]
fn an_offer_that_its_agent_lost_takes_no_capacity() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("gang", 4);
    f.exchange();
    let (lost, _) = f.offer_of(uid);
    let for_leadership = Some(f.world.state().leadership());
    f.sync_changed("eu", |request| {
        request.events.clear();
        request.capacity = None;
        request.inventory = Some(Inventory { for_leadership, ..Inventory::default() });
    });
    f.input(Input::Turn);
    assert_eq!(f.phase(uid), Some(Phase::Dispatching), "{:#}", f.why(uid));
    assert_ne!(f.offer_of(uid).0, lost);
}

#[test]
fn an_inventory_from_before_an_acknowledged_command_is_ignored() {
    let mut f = Fleet::new(EU);
    f.apply(vec![priority_class("vip", 7)]);
    let uid = f.submit_to("lq", "gang", 2, Some("vip"));
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    let mut late = f.compose("eu", Lane::News);
    let unknown = OfferId { epoch: 1, leadership: 1, counter: 99 };
    let for_leadership = Some(f.world.state().leadership());
    late.inventory = Some(Inventory { for_leadership, offers: vec![(unknown, uid)], ..Inventory::default() });
    f.apply(vec![priority_class("vip", 8)]);
    f.exchange_news("eu");
    f.exchange_news("eu");
    let is_quiet = |f: &Fleet| f.world.live().clusters()[&ClusterName::new("eu")].outbox().quiet();
    assert!(is_quiet(&f), "the agent has the new priority");
    f.answer("eu", late);
    assert!(is_quiet(&f), "it isn't asked to withdraw what it may not hold any more");
}
