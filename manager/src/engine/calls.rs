//! Syncs that were taken and wait for their answers: until the end of their batch, or until there is something to say.
//!
//! An answer is composed behind everything that its batch decided, so what is decided leaves with the commit that it needs
//! anyway, and costs no second turn. One poll per cluster is parked at most, the newest: the core has admitted it, so an older
//! one belongs to the same session, or to one that counts no more.

use super::Unavailable;
use super::pending::Caller;
use meridian_manager_core::facts::input::Input;
use meridian_manager_core::facts::outcome::Reply;
use meridian_shared::ids::{ClusterName, Session};
use meridian_shared::protocol::{SyncAnswer, SyncRefusal, SyncRequest};
use std::collections::{BTreeMap, BTreeSet};

/// One sync.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) cluster: ClusterName,
    session: Session,
    transmission: u64,
    /// It waits until there is something to say.
    pub(super) waits: bool,
    pub(super) reply: Caller,
}

impl Call {
    /// The call that a sync is, where it may be parked.
    pub(super) fn of(cluster: &ClusterName, request: &SyncRequest, reply: Caller) -> Self {
        Self {
            cluster: cluster.clone(),
            session: request.session,
            transmission: request.transmission,
            waits: request.may_wait(),
            reply,
        }
    }

    /// The time of a poll is over: it is answered with whatever there is.
    pub(super) fn end(&mut self, cluster: &ClusterName, transmission: u64) {
        self.waits &= self.cluster != *cluster || self.transmission != transmission;
    }

    /// What has it answered.
    pub(super) fn unpark(&self) -> Input {
        Input::Unpark {
            cluster: self.cluster.clone(),
            session: self.session,
            transmission: self.transmission,
        }
    }
}

/// Polls that are parked.
#[derive(Debug, Default)]
pub(super) struct Parked(BTreeMap<ClusterName, Call>);

impl Parked {
    /// Parks a poll, in place of an older one.
    pub(super) fn park(&mut self, call: Call) {
        if let Some(older) = self.0.insert(call.cluster.clone(), call) {
            let _ = older.reply.send(Err(Unavailable::Replaced));
        }
    }

    /// The one of a cluster.
    pub(super) fn of(&mut self, cluster: &ClusterName) -> Option<&mut Call> {
        self.0.get_mut(cluster)
    }

    /// Takes out those that are to be answered now: whose time is over, and who is woken.
    pub(super) fn due(&mut self, wake: &BTreeSet<ClusterName>) -> Vec<Call> {
        self.0
            .extract_if(.., |cluster, call| !call.waits || wake.contains(cluster))
            .map(|(_, call)| call)
            .filter(|call| !call.reply.is_closed())
            .collect()
    }

    /// Nobody leads here any more: what was parked under a leadership asks again.
    pub(super) fn refuse(&mut self) {
        for call in std::mem::take(&mut self.0).into_values() {
            let _ = call.reply.send(Ok(Reply::Sync(Box::new(SyncAnswer::Refused(SyncRefusal::NotLeading)))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::{Receiver, channel};

    type Answer = Result<Reply, Unavailable>;

    fn call(cluster: &str, transmission: u64) -> (Call, Receiver<Answer>) {
        let (reply, answer) = channel();
        (
            Call {
                cluster: cluster.into(),
                session: Session { counter: 1, id: 1 },
                transmission,
                waits: true,
                reply,
            },
            answer,
        )
    }

    fn due(parked: &mut Parked, wake: &[&str]) -> Vec<u64> {
        let wake = wake.iter().map(|name| ClusterName::from(*name)).collect();
        parked.due(&wake).into_iter().map(|call| call.transmission).collect()
    }

    #[test]
    fn a_newer_poll_takes_the_place_of_an_older_one_and_each_is_answered_once() {
        let mut parked = Parked::default();
        let (older, mut told) = call("eu", 1);
        let (newer, _newer) = call("eu", 2);
        let (other, _other) = call("us", 3);
        parked.park(older);
        parked.park(newer);
        parked.park(other);
        assert!(matches!(told.try_recv(), Ok(Err(Unavailable::Replaced))));
        parked.of(&"eu".into()).unwrap().end(&"eu".into(), 1);
        assert!(due(&mut parked, &[]).is_empty(), "the one whose time is over is gone already");
        assert_eq!(due(&mut parked, &["eu"]), [2]);
        assert!(due(&mut parked, &["eu"]).is_empty());
        parked.of(&"us".into()).unwrap().end(&"us".into(), 3);
        assert_eq!(due(&mut parked, &[]), [3], "its time is over");
    }

    #[test]
    fn who_has_gone_away_gets_no_answer() {
        let mut parked = Parked::default();
        let (gone, answer) = call("eu", 1);
        drop(answer);
        parked.park(gone);
        assert!(due(&mut parked, &["eu"]).is_empty());
        let (waits, mut told) = call("eu", 2);
        parked.park(waits);
        parked.refuse();
        assert!(
            matches!(told.try_recv(), Ok(Ok(Reply::Sync(answer))) if matches!(*answer, SyncAnswer::Refused(SyncRefusal::NotLeading)))
        );
    }
}
