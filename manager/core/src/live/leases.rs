//! Leases of every right to run that an agent may hold.

use crate::fingerprint::{hash_age, hash_deadline};
use meridian_shared::ids::{Fence, RecordNumber, Uid};
use meridian_shared::lease::ManagerLease;
use meridian_shared::planted::{Bug, Planted};
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// The manager's view of one lease. Its deadline moves only forward.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    uid: Uid,
    /// Deadline and term.
    lease: ManagerLease,
    /// When this leadership last composed an answer that grants or renews the lease.
    composed: Option<Mono>,
    /// When the lease was first composed. A grant isn't sent again once its term has passed since then.
    first: Option<Mono>,
    /// When the gang must be running.
    start_by: Mono,
}

impl Lease {
    /// The lease of an attempt that this leadership grants now.
    pub(crate) fn granted(uid: Uid, lease: ManagerLease, start_by: Mono, now: Mono) -> Self {
        Self { uid, lease, composed: Some(now), first: None, start_by }
    }

    /// The lease of an attempt of an earlier leadership. Its grant is never sent again.
    pub(crate) fn inherited(uid: Uid, lease: ManagerLease, start_by: Mono) -> Self {
        Self { uid, lease, composed: None, first: Some(Mono(0)), start_by }
    }

    pub(crate) fn uid(&self) -> Uid {
        self.uid
    }

    /// The lease as the agent was promised it.
    pub fn lease(&self) -> ManagerLease {
        self.lease
    }

    pub fn deadline(&self) -> Mono {
        self.lease.deadline
    }

    pub fn term(&self) -> Millis {
        self.lease.term
    }

    /// When the gang must be running.
    pub fn start_by(&self) -> Mono {
        self.start_by
    }

    /// Whether the deadline has passed.
    pub fn lapsed(&self, now: Mono) -> bool {
        self.lease.lapsed(now)
    }

    /// When this leadership last composed an answer that grants or renews the lease.
    pub(crate) fn composed(&self) -> Option<Mono> {
        self.composed
    }

    /// Whether the grant may still be sent: less than `term` has passed since it was first composed.
    pub(crate) fn may_be_sent(&self, term: Millis, now: Mono) -> bool {
        self.first.is_none_or(|first| now.since(first) < term)
    }

    /// Counts the term from now, because an answer with this lease was composed.
    fn compose(&mut self, now: Mono, planted: Planted) {
        self.first.get_or_insert(now);
        self.composed = Some(now);
        if planted.has(Bug::ManagerCountsFromAcknowledgement) {
            return;
        }
        if planted.has(Bug::DeadlineMovesBack) {
            // Counts the term from the first answer instead.
            self.lease = ManagerLease::from_composed(self.first.unwrap_or(now), self.lease.term);
        } else if planted.has(Bug::NoDriftBound) {
            self.lease.deadline = self.lease.deadline.max(now + self.lease.term);
        } else {
            self.lease.compose(now);
        }
    }

    fn hash_fingerprint(&self, fence: Fence, now: Mono, into: &mut impl Hasher) {
        let Self { uid, lease: ManagerLease { term, deadline }, composed, first, start_by } = self;
        (fence, uid, term, first.is_some(), composed.is_some()).hash(into);
        hash_deadline(now, *deadline, into);
        hash_age(now, composed.unwrap_or(now), Millis(term.0 / 32), into);
        hash_age(now, first.unwrap_or(now), *term, into);
        hash_deadline(now, *start_by, into);
    }
}

/// All leases, with the time of the next check.
///
/// Every granted leg has its lease here, by fence. No deadline and no start deadline comes before `due`. The
/// deadline of a released lease is kept until the record that releases it is durable: if the commit fails,
/// the next leadership of this process needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Leases {
    held: BTreeMap<Fence, Lease>,
    /// Deadlines of released leases, each with the newest record when it was released.
    released: BTreeMap<Fence, (Mono, RecordNumber)>,
    /// Lease deadlines that the previous leadership of this process knew, input for the next leadership.
    known: BTreeMap<Fence, Mono>,
    due: Mono,
}

impl Leases {
    pub fn get(&self, fence: Fence) -> Option<&Lease> {
        self.held.get(&fence)
    }

    /// All leases, in the order of fences.
    pub fn iter(&self) -> impl Iterator<Item = (Fence, &Lease)> {
        self.held.iter().map(|(fence, lease)| (*fence, lease))
    }

    /// When leases and start deadlines are next checked.
    pub(crate) fn due(&self) -> Mono {
        self.due
    }

    /// Adds a lease that needs a check at `due`.
    pub(crate) fn start(&mut self, fence: Fence, lease: Lease, due: Mono) {
        self.held.insert(fence, lease);
        self.due = self.due.min(due);
    }

    /// Notes that every lease was checked, and that nothing is due before `due`.
    pub(crate) fn checked(&mut self, due: Mono) {
        self.due = due;
    }

    /// Counts every term from now, because another manager may have renewed leases until now. All leases
    /// become due for a check.
    pub(crate) fn restart_all(&mut self, now: Mono) {
        self.held.values_mut().for_each(|lease| lease.lease.compose(now));
        self.due = now;
    }

    /// Notes that an answer with this lease was composed: its term counts from now.
    pub(crate) fn compose(&mut self, fence: Fence, now: Mono, planted: Planted) {
        if let Some(lease) = self.held.get_mut(&fence) {
            lease.compose(now, planted);
        }
    }

    /// Releases the lease of an ended attempt. `last` is the newest record.
    pub(crate) fn release(&mut self, fence: Fence, last: RecordNumber) {
        if let Some(released) = self.held.remove(&fence) {
            self.released.insert(fence, (released.lease.deadline, last));
        }
    }

    /// Forgets the released leases whose release is durable: all records up to `through` are.
    pub(crate) fn durable(&mut self, through: RecordNumber) {
        self.released.retain(|_, (_, at)| *at > through);
    }

    /// Takes over the deadlines of the previous leadership of this process, for the next one.
    pub(crate) fn learn_from(&mut self, before: &Self) {
        self.known = before.released.iter().map(|(fence, (deadline, _))| (*fence, *deadline)).collect();
        self.known.extend(before.held.iter().map(|(fence, lease)| (*fence, lease.lease.deadline)));
    }

    /// The deadlines that [`Self::learn_from`] took over.
    pub(crate) fn take_known(&mut self) -> BTreeMap<Fence, Mono> {
        std::mem::take(&mut self.known)
    }

    pub(crate) fn hash_fingerprint(&self, now: Mono, into: &mut impl Hasher) {
        let Self { held, released: _, known: _, due: _ } = self;
        held.iter().for_each(|(fence, lease)| lease.hash_fingerprint(*fence, now, into));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Millis = Millis::secs(60);
    const FENCE: Fence = Fence { epoch: 1, leadership: 7, counter: 1 };

    fn granted(at: Mono) -> Lease {
        Lease::granted(Uid(1), ManagerLease::from_composed(at, TERM), at + TERM, at)
    }

    #[test]
    fn a_grant_may_be_sent_for_one_term_after_it_was_first_sent() {
        let mut lease = granted(Mono(1_000));
        assert!(lease.may_be_sent(TERM, Mono(900_000)), "it was never sent");
        lease.compose(Mono(5_000), Planted::NONE);
        lease.compose(Mono(30_000), Planted::NONE);
        assert!(lease.may_be_sent(TERM, Mono(64_999)));
        assert!(!lease.may_be_sent(TERM, Mono(65_000)));
        let inherited = Lease::inherited(Uid(1), lease.lease(), Mono(0));
        assert!(!inherited.may_be_sent(TERM, Mono(TERM.0)));
    }

    #[test]
    fn a_deadline_counts_from_the_newest_answer() {
        let mut lease = granted(Mono(1_000));
        let first = lease.deadline();
        assert!(first >= Mono(1_000) + TERM);
        lease.compose(Mono(5_000), Planted::NONE);
        assert_eq!(lease.deadline(), first + Millis(4_000));
    }

    #[test]
    fn the_deadline_of_a_released_lease_is_known_until_the_release_is_durable() {
        let mut leases = Leases::default();
        leases.start(FENCE, granted(Mono(1_000)), Mono(1_000));
        leases.release(FENCE, RecordNumber(5));
        let known = |leases: &Leases| {
            let mut next = Leases::default();
            next.learn_from(leases);
            next.take_known().len()
        };
        leases.durable(RecordNumber(4));
        assert_eq!((leases.iter().count(), known(&leases)), (0, 1));
        leases.durable(RecordNumber(5));
        assert_eq!(known(&leases), 0);
    }

    #[test]
    fn a_release_that_became_durable_long_ago_is_forgotten_too() {
        let mut leases = Leases::default();
        leases.start(FENCE, granted(Mono(1_000)), Mono(1_000));
        leases.release(FENCE, RecordNumber(5));
        leases.durable(RecordNumber(9));
        let mut next = Leases::default();
        next.learn_from(&leases);
        assert_eq!(next.take_known(), BTreeMap::new());
    }
}
