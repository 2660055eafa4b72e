//! When a parked poll must be answered before its time, and when it may go on waiting.

use super::*;
use meridian_shared::protocol::SyncRefusal;

/// Renewals are due after this time.
const STEP: Millis = Millis(TERM.0 / 16);

impl Fleet {
    fn owes(&self, cluster: &str) -> bool {
        self.world.owes(&ClusterName::new(cluster), Mono(self.now))
    }

    /// Lets renewals become due.
    fn wait_for_renewals(&mut self) {
        self.now += STEP.0;
        self.input(Input::Turn);
    }
}

#[test]
fn a_poll_without_news_waits() {
    let mut f = Fleet::new(EU);
    assert!(!f.owes("eu"));
    f.wait_for_renewals();
    assert!(!f.owes("eu"), "nothing runs there");
    assert!(f.owes("us"), "its agent has no session");
}

#[test]
fn a_command_is_sent_at_once() {
    let mut f = Fleet::new(EU);
    f.submit("gang", 2);
    assert!(f.owes("eu"));
    f.exchange_news("eu");
    assert!(!f.owes("eu"));
}

#[test]
fn a_lease_is_renewed_while_the_poll_waits() {
    let mut f = Fleet::new(EU);
    f.submit("gang", 2);
    f.settle();
    f.exchange_news("eu");
    assert!(!f.owes("eu"));
    f.wait_for_renewals();
    assert!(f.owes("eu"));
    f.exchange_news("eu");
    assert!(!f.owes("eu"));
}

#[test]
fn an_end_is_acknowledged_at_once() {
    let mut f = Fleet::new(EU);
    let uid = f.submit("gang", 2);
    f.settle();
    f.end_unreported(uid, EndResult::Succeeded);
    let poll = f.compose("eu", Lane::Poll);
    f.park("eu", &poll);
    assert_eq!(f.phase(uid), Some(Phase::Finished));
    assert!(f.owes("eu"), "until then the agent keeps what it knows about the end");
    f.exchange_news("eu");
    f.exchange_news("eu");
    assert!(!f.owes("eu"));
}

#[test]
fn an_inventory_is_asked_for_at_once() {
    let mut f = Fleet::new(EU);
    f.submit("gang", 2);
    f.settle();
    f.wait_for_renewals();
    f.exchange_news("eu");
    let mut poll = f.compose("eu", Lane::Poll);
    poll.digest = meridian_shared::protocol::Digest::default();
    f.now += TERM.0;
    f.world.committed(Mono(f.now));
    f.park("eu", &poll);
    assert!(f.owes("eu"));
    f.exchange_news("eu");
    let wanted = f.compose("eu", Lane::News).inventory.is_some();
    assert!(wanted, "the answer asks for what runs there, because the digests differ");
}

#[test]
fn the_name_of_a_joining_cluster_is_sent_at_once() {
    let mut f = Fleet::new(EU);
    f.apply(vec![cluster_object("us", "us-east4", "US")]);
    f.settle();
    assert!(!f.owes("eu"));
    f.add_agent("us", 77);
    f.exchange_news("us");
    assert!(f.owes("eu"), "`us` is admitted once `eu` knows its name");
    f.exchange_news("us");
    assert!(!f.owes("us"), "its own name is no news to it");
    f.exchange_news("eu");
    f.exchange_news("eu");
    assert!(!f.owes("eu"));
    f.exchange_news("us");
    f.exchange_news("us");
    assert!(!f.owes("us"));
}

#[test]
fn a_cluster_that_was_silent_gets_what_waits_for_it_with_its_first_request() {
    let mut f = Fleet::new(EU);
    f.disconnected = vec!["eu".into()];
    f.advance(TERM);
    let uid = f.submit("gang", 2);
    f.advance(Millis::secs(1));
    let is_offered = |f: &Fleet| !f.world.state().workloads()[&uid].legs().is_empty();
    assert_eq!((f.phase(uid), is_offered(&f)), (Some(Phase::Pending), false));
    f.disconnected.clear();
    f.exchange();
    assert_eq!((f.phase(uid), is_offered(&f)), (Some(Phase::Dispatching), true));
}

#[test]
fn the_poll_of_an_older_session_is_refused() {
    let mut f = Fleet::new(EU);
    let poll = f.compose("eu", Lane::Poll);
    f.park("eu", &poll);
    let store = f.agents[&ClusterName::new("eu")].durable().clone();
    f.start_agent("eu", store, None);
    f.exchange_news("eu");
    let refused = f.unpark("eu", &poll);
    assert!(matches!(*refused, SyncAnswer::Refused(SyncRefusal::Superseded { .. })), "{refused:?}");
}

#[test]
fn a_new_session_waits_beside_other_members() {
    let mut f = Fleet::regions();
    f.settle();
    let store = f.agents[&ClusterName::new("eu")].durable().clone();
    f.start_agent("eu", store, None);
    f.exchange_news("eu");
    assert!(!f.owes("eu"), "it has acknowledged no record yet, and every member is admitted");
}
