//! Which leases an answer renews, and which it doesn't.

use super::*;
use meridian_shared::lease::disconnect_after;
use meridian_shared::protocol::{Command, SyncResponse};

/// After this time the agents of a term get no renewals unless they take an answer.
const HALF: Millis = disconnect_after(TERM);
/// Leases are looked at this often.
const STEP: Millis = Millis(TERM.0 / 16);

impl Fleet {
    /// The manager's answer to the next request of the agent in `eu`, not delivered yet.
    fn answer_of_eu(&mut self) -> SyncResponse {
        let request = self.compose("eu", Lane::News);
        self.world.committed(Mono(self.now));
        match *self.answer("eu", request) {
            SyncAnswer::Ok(response) => *response,
            SyncAnswer::Refused(why) => panic!("{why:?}"),
        }
    }

    /// Workloads that the next answer renews. The agent gets it.
    fn renewed(&mut self) -> Vec<Uid> {
        let response = self.answer_of_eu();
        let renewed = response.renewals.iter().map(|(uid, _)| *uid).collect();
        self.deliver("eu", Box::new(SyncAnswer::Ok(Box::new(response))));
        renewed
    }

    /// Workloads that the next answer would renew. It is lost on its way.
    fn renewed_in_vain(&mut self) -> Vec<Uid> {
        self.answer_of_eu().renewals.iter().map(|(uid, _)| *uid).collect()
    }

    fn pass(&mut self, time: Millis) {
        self.now += time.0;
        self.input(Input::Turn);
    }
}

/// A fleet of one cluster that runs a gang. The next answer may renew its lease.
fn running() -> (Fleet, Uid) {
    let mut f = Fleet::new(EU);
    let uid = f.submit("job", 2);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    f.pass(HALF);
    (f, uid)
}

#[test]
fn a_running_gang_is_renewed_once_in_a_while() {
    let (mut f, uid) = running();
    assert_eq!(f.renewed(), [uid]);
    assert_eq!(f.renewed(), []);
    f.pass(STEP);
    assert_eq!(f.renewed(), [uid]);
}

#[test]
fn an_agent_that_gets_no_answers_gets_no_renewals() {
    let (mut f, uid) = running();
    assert_eq!(f.renewed(), [uid]);
    assert_eq!(f.renewed_in_vain(), [], "its request says that it took the answer before");
    f.pass(Millis(HALF.0 - 1));
    assert_eq!(f.renewed_in_vain(), [uid]);
    f.pass(STEP);
    assert_eq!(f.renewed_in_vain(), [], "its requests arrive, and it took no answer for a long time");

    let (mut f, uid) = running();
    assert_eq!(f.renewed(), [uid]);
    assert_eq!(f.renewed_in_vain(), []);
    f.pass(HALF);
    assert_eq!(f.renewed_in_vain(), [], "after exactly this time its gang may be stopping");
}

#[test]
fn a_gang_that_stops_is_not_renewed() {
    let (mut f, uid) = running();
    f.hold_stops = true;
    f.stop(uid);
    assert_eq!(f.phase(uid), Some(Phase::Stopping));
    assert_eq!(f.renewed(), []);
}

#[test]
fn a_grant_that_was_not_accepted_is_not_renewed() {
    let mut f = Fleet::new(EU);
    f.submit("job", 2);
    let mut granted = false;
    for _ in 0..6 {
        f.pass(STEP);
        let response = f.answer_of_eu();
        assert_eq!(response.renewals, []);
        let grants = |command: &Command| matches!(command, Command::Grant(_));
        granted |= response.commands.iter().any(grants);
        if !granted {
            f.deliver("eu", Box::new(SyncAnswer::Ok(Box::new(response))));
        }
    }
    assert!(granted);
}

#[test]
fn a_gang_without_a_lease_is_not_renewed() {
    let mut f = Fleet::new(EU);
    let wait = json!({"applies": {"queues": ["cq"]}, "onClusterLoss": {"mode": "Wait"}});
    f.apply(vec![meridian_object("DispatchPolicy", "patient", wait)]);
    let uid = f.submit("job", 2);
    f.settle();
    assert_eq!(f.phase(uid), Some(Phase::Running));
    f.pass(HALF);
    assert_eq!(f.renewed(), []);
}

#[test]
fn a_gang_of_a_lost_ledger_is_not_renewed() {
    let (mut f, uid) = running();
    f.add_agent("eu", 9_999);
    f.exchange();
    f.pass(STEP);
    assert_eq!((f.renewed(), f.phase(uid)), (vec![], Some(Phase::Running)));
}
