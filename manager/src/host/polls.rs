//! Syncs that wait for their answers: until the end of their batch, or until there is something to send to
//! the agent.
//!
//! Per cluster, only the newest poll is parked. The core has admitted it, so an older poll belongs to the
//! same session or to an outdated one.

use meridian_manager_core::facts::input::Input;
use meridian_shared::ids::{ClusterName, Session};
use meridian_shared::protocol::SyncRequest;
use std::collections::{BTreeMap, BTreeSet};

/// One sync, and the caller that waits for its answer.
#[derive(Debug)]
pub struct Poll<C> {
    cluster: ClusterName,
    session: Session,
    transmission: u64,
    /// Whether the sync may wait until there is something to send.
    waits: bool,
    pub caller: C,
}

impl<C> Poll<C> {
    pub(super) fn of(cluster: &ClusterName, request: &SyncRequest, caller: C) -> Self {
        Self {
            cluster: cluster.clone(),
            session: request.session,
            transmission: request.transmission,
            waits: request.may_wait(),
            caller,
        }
    }

    /// The input by which the core answers the sync.
    pub(super) fn release(&self) -> Input {
        Input::Unpark {
            cluster: self.cluster.clone(),
            session: self.session,
            transmission: self.transmission,
        }
    }
}

/// The syncs of the current batch, and parked polls, at most one per cluster.
#[derive(Debug)]
pub struct Polls<C> {
    received: Vec<Poll<C>>,
    parked: BTreeMap<ClusterName, Poll<C>>,
}

impl<C> Default for Polls<C> {
    fn default() -> Self {
        Self { received: Vec::new(), parked: BTreeMap::new() }
    }
}

impl<C> Polls<C> {
    /// Takes a sync that the core admitted. It is answered or parked at the end of its batch.
    pub(super) fn receive(&mut self, poll: Poll<C>) {
        self.received.push(poll);
    }

    /// Ends the wait of one poll, which is then answered at once.
    pub fn end(&mut self, cluster: &ClusterName, transmission: u64) {
        for poll in self.received.iter_mut().chain(self.parked.get_mut(cluster)) {
            poll.waits &= poll.cluster != *cluster || poll.transmission != transmission;
        }
    }

    /// Removes the polls to answer now: those that may not wait, and those of clusters with something to send
    /// or in `wake`. Parks the other received polls, and also returns the callers of the polls that these
    /// replace.
    pub(super) fn due(
        &mut self,
        wake: &BTreeSet<ClusterName>,
        owes: impl Fn(&ClusterName) -> bool,
    ) -> (Vec<Poll<C>>, Vec<C>) {
        let (mut due, mut replaced) = (Vec::new(), Vec::new());
        for poll in std::mem::take(&mut self.received) {
            if poll.waits && !owes(&poll.cluster) {
                let older = self.parked.insert(poll.cluster.clone(), poll);
                replaced.extend(older.map(|older| older.caller));
            } else {
                due.push(poll);
            }
        }
        let woken = self.parked.extract_if(.., |cluster, poll| !poll.waits || wake.contains(cluster));
        due.extend(woken.map(|(_, poll)| poll));
        (due, replaced)
    }

    /// Removes all polls, because this manager no longer leads.
    pub fn take_all(&mut self) -> Vec<C> {
        let parked = std::mem::take(&mut self.parked).into_values();
        std::mem::take(&mut self.received).into_iter().chain(parked).map(|poll| poll.caller).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(cluster: &str, transmission: u64) -> Poll<u64> {
        Poll {
            cluster: cluster.into(),
            session: Session { counter: 1, id: 1 },
            transmission,
            waits: true,
            caller: transmission,
        }
    }

    fn due(polls: &mut Polls<u64>, wake: &[&str]) -> (Vec<u64>, Vec<u64>) {
        let wake = wake.iter().map(|name| ClusterName::from(*name)).collect();
        let (due, replaced) = polls.due(&wake, |_| false);
        (due.into_iter().map(|poll| poll.caller).collect(), replaced)
    }

    #[test]
    fn a_newer_poll_replaces_an_older_one_and_each_is_answered_once() {
        let mut polls = Polls::default();
        polls.receive(poll("eu", 1));
        polls.receive(poll("eu", 2));
        polls.receive(poll("us", 3));
        assert_eq!(due(&mut polls, &[]), (vec![], vec![1]));
        polls.end(&"eu".into(), 1);
        assert_eq!(due(&mut polls, &[]), (vec![], vec![]), "the poll that ended was replaced already");
        assert_eq!(due(&mut polls, &["eu"]), (vec![2], vec![]));
        assert_eq!(due(&mut polls, &["eu"]), (vec![], vec![]));
        polls.end(&"us".into(), 3);
        assert_eq!(due(&mut polls, &[]), (vec![3], vec![]), "its time is over");
    }

    #[test]
    fn a_sync_is_answered_at_once_if_its_cluster_is_owed_something() {
        let mut polls = Polls::default();
        polls.receive(poll("eu", 1));
        polls.receive(poll("us", 2));
        let (due, _) = polls.due(&BTreeSet::new(), |cluster| *cluster == "us".into());
        assert_eq!(due.into_iter().map(|poll| poll.caller).collect::<Vec<_>>(), [2]);
        assert_eq!(polls.take_all(), [1]);
        assert!(polls.take_all().is_empty());
    }
}
