//! Holds that need the cluster: objects that an offer's pods name, and capacity that the ledger alone can't
//! hold.

use super::*;
use meridian_agent_core::{HoldEvent, RunnerEvent};
use meridian_shared::protocol::{EndResult, Event, HoldMethod, RefuseReason};

fn bench(method: HoldMethod) -> Bench {
    Bench::with(Config { holds: HoldSettings { checks_references: true, method }, ..config() })
}

impl Bench {
    /// The agent's newest report that is about the offer.
    fn newest(&mut self) -> Option<Event> {
        self.ask().events.pop()
    }

    fn is_held(&mut self) -> bool {
        matches!(self.newest(), Some(Event::Held { offer: OFFER, .. }))
    }

    fn refusal(&mut self) -> Option<(RefuseReason, String)> {
        match self.newest()? {
            Event::Refused { reason, text, .. } => Some((reason, text)),
            _ => None,
        }
    }

    fn hold(&mut self, event: HoldEvent) {
        self.apply(Input::Hold(event));
    }

    fn fail(&mut self, reason: &str) {
        self.hold(HoldEvent::Failed { offer: OFFER, reason: reason.into() });
    }

    fn checks(&self) -> usize {
        self.effects.iter().filter(|effect| matches!(effect, Effect::Check(_))).count()
    }

    fn secures(&self) -> usize {
        self.effects.iter().filter(|effect| matches!(effect, Effect::Secure(_))).count()
    }

    fn releases(&self) -> bool {
        self.effects.contains(&Effect::Deprovision { offer: OFFER })
    }

    fn free(&self) -> i64 {
        self.agent.ledger().blocks().iter().map(|block| block.free[GPU] * i64::from(block.nodes)).sum()
    }
}

#[test]
fn nothing_is_held_before_what_the_pods_name_was_looked_up() {
    let mut bench = bench(HoldMethod::Ledger);
    bench.offer();
    assert_eq!((bench.checks(), bench.free(), bench.newest()), (1, 3, None));
    bench.hold(HoldEvent::Checked { offer: OFFER });
    assert!(bench.is_held());
    bench.hold(HoldEvent::Checked { offer: OFFER });
    assert_eq!((bench.secures(), bench.free()), (0, 3), "a repeated answer changes nothing");
}

#[test]
fn a_missing_object_refuses_the_offer_with_its_name_and_frees_the_room() {
    let mut bench = bench(HoldMethod::Ledger);
    bench.offer();
    bench.fail("namespace `team-a` has no Secret `hf-token`");
    let text = "namespace `team-a` has no Secret `hf-token`".to_owned();
    assert_eq!(bench.refusal(), Some((RefuseReason::Precondition, text)));
    assert_eq!((bench.free(), bench.releases()), (4, true));
}

#[test]
fn nodes_are_asked_for_only_after_the_lookup() {
    let mut bench = bench(HoldMethod::Ledger);
    let per_node = Amounts::from([(GPU.into(), 8)]);
    bench.set_nodes(vec![Block { nodes: 2, free: per_node.clone(), capacity: per_node, ..Block::default() }]);
    let Command::Offer(mut large) = offer() else { unreachable!("it is an offer") };
    let mut gang = (*large.gang).clone();
    gang.pod_sets[0].per_pod = Amounts::from([(GPU.into(), 8)]);
    large.gang = Arc::new(gang);
    let request = bench.ask();
    bench.answer(&request, vec![Command::Offer(large)]);
    let provisions = |bench: &Bench| bench.effects.iter().any(|e| matches!(e, Effect::Provision(_)));
    assert_eq!((bench.checks(), provisions(&bench)), (1, false));
    bench.hold(HoldEvent::Checked { offer: OFFER });
    assert!(provisions(&bench));
    assert!(matches!(bench.newest(), Some(Event::Waiting { .. })));
}

#[test]
fn an_allocation_is_no_hold_before_the_cluster_holds_it() {
    let mut bench = bench(HoldMethod::Placeholders);
    bench.offer();
    assert_eq!(bench.secures(), 0, "the lookup comes first");
    bench.hold(HoldEvent::Checked { offer: OFFER });
    assert_eq!((bench.secures(), bench.free(), bench.newest()), (1, 3, None));
    bench.hold(HoldEvent::Waiting { offer: OFFER, reason: "0 of 1 are scheduled".into() });
    assert!(
        matches!(bench.newest(), Some(Event::Waiting { reason, .. }) if reason == "0 of 1 are scheduled")
    );
    // A grant that comes too early has no hold.
    let request = bench.ask();
    bench.answer(&request, vec![grant()]);
    assert!(!bench.starts() && bench.releases());
    assert_eq!(bench.free(), 4);
}

#[test]
fn a_secured_offer_is_held_and_its_grant_starts_it() {
    let mut bench = bench(HoldMethod::Kueue);
    bench.offer();
    bench.hold(HoldEvent::Checked { offer: OFFER });
    bench.hold(HoldEvent::Secured { offer: OFFER });
    assert!(bench.is_held());
    let request = bench.ask();
    bench.answer(&request, vec![grant()]);
    assert!(bench.starts() && !bench.releases(), "the run needs what was held");
}

#[test]
fn a_hold_that_the_cluster_lost_is_refused() {
    let mut bench = bench(HoldMethod::Placeholders);
    bench.offer();
    bench.hold(HoldEvent::Checked { offer: OFFER });
    bench.hold(HoldEvent::Secured { offer: OFFER });
    bench.fail("a pod of others took the room");
    let text = "a pod of others took the room".to_owned();
    assert_eq!(bench.refusal(), Some((RefuseReason::Precondition, text)));
    assert_eq!(bench.free(), 4);
}

#[test]
fn a_run_whose_hold_is_lost_stops_and_says_why() {
    let mut bench = bench(HoldMethod::Kueue);
    bench.offer();
    bench.hold(HoldEvent::Checked { offer: OFFER });
    bench.hold(HoldEvent::Secured { offer: OFFER });
    let request = bench.ask();
    bench.answer(&request, vec![grant()]);
    bench.fail("its Kueue evicted the gang: Preempted");
    assert!(bench.stops() && !bench.releases(), "its pods still use the room");
    let (result, ran) = (EndResult::Stopped, Millis(1));
    bench.apply(Input::Runner(RunnerEvent::Ended { uid: UID, fence: FENCE, result, pod_failures: 0, ran }));
    let Some(Event::Ended(end)) = bench.newest() else { panic!("it ended") };
    assert_eq!(end.result, EndResult::NodeLost { message: "its Kueue evicted the gang: Preempted".into() });
    assert!(bench.releases());
}

#[test]
fn an_answer_that_comes_after_the_withdrawal_holds_nothing() {
    let mut bench = bench(HoldMethod::Placeholders);
    bench.offer();
    bench.hold(HoldEvent::Checked { offer: OFFER });
    let request = bench.ask();
    bench.answer(&request, vec![Command::Withdraw { offer: OFFER, uid: UID }]);
    assert!(bench.releases());
    bench.hold(HoldEvent::Secured { offer: OFFER });
    assert_eq!((bench.agent.held().count(), bench.free()), (0, 4));
}
