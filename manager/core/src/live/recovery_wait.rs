//! What a leadership waits for after its start, before it trusts that it knows every run and every rule.

use crate::fingerprint::{hash_age, hash_deadline};
use meridian_shared::ids::ClusterName;
use meridian_shared::time::{Millis, Mono};
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

/// Members that have not yet proved to this leadership what they run and which rules they know.
///
/// A cluster leaves both sets by a complete inventory or because it was declared lost. Closing recovery
/// empties `awaited` alone. `sole_since` is never before `led_at`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecoveryWait {
    /// When the leadership started.
    led_at: Mono,
    /// Time after which no other copy of this journal granted or renewed anything: the leadership's start, or
    /// an operator's confirmation of a restored journal. Workloads of earlier leaderships are held back until
    /// a lease renewed at this time would have lapsed.
    sole_since: Mono,
    /// Members that recovery waits for: they haven't sent a complete inventory yet.
    awaited: BTreeSet<ClusterName>,
    /// Members that may know newer rules than this journal: they haven't sent a complete inventory to this
    /// leadership. Unlike `awaited`, time doesn't end this.
    rules_awaited: BTreeSet<ClusterName>,
    /// When recovery next looks for workloads that it needn't hold back any more.
    release_check: Mono,
}

impl RecoveryWait {
    /// A leadership starts. Each of `members` may know newer rules.
    pub(crate) fn of_leadership(now: Mono, members: BTreeSet<ClusterName>) -> Self {
        Self { led_at: now, sole_since: now, rules_awaited: members, ..Self::default() }
    }

    pub fn led_at(&self) -> Mono {
        self.led_at
    }

    /// Time after which no other copy of this journal granted or renewed anything.
    pub(crate) fn sole_since(&self) -> Mono {
        self.sole_since
    }

    /// Members that recovery waits for.
    pub fn awaited(&self) -> &BTreeSet<ClusterName> {
        &self.awaited
    }

    /// Members that may know newer rules than this journal.
    pub fn rules_awaited(&self) -> &BTreeSet<ClusterName> {
        &self.rules_awaited
    }

    /// Whether the cluster's inventory is still awaited, for its runs or for its rules.
    pub(crate) fn expects(&self, cluster: &ClusterName) -> bool {
        self.awaited.contains(cluster) || self.rules_awaited.contains(cluster)
    }

    /// Clusters whose inventory is still awaited, in order.
    pub(crate) fn expected(&self) -> impl Iterator<Item = &ClusterName> {
        self.awaited.union(&self.rules_awaited)
    }

    /// Recovery opens: it waits for every member that may know newer rules.
    pub(crate) fn await_members(&mut self) {
        self.awaited = self.rules_awaited.clone();
    }

    /// A cluster that this journal didn't know joined while recovery is open.
    pub(crate) fn await_unknown(&mut self, cluster: &ClusterName) {
        self.awaited.insert(cluster.clone());
        self.rules_awaited.insert(cluster.clone());
    }

    /// Stops waiting for a cluster. Returns whether anything was expected of it.
    pub(crate) fn stop_awaiting(&mut self, cluster: &ClusterName) -> bool {
        self.awaited.remove(cluster) | self.rules_awaited.remove(cluster)
    }

    /// Recovery closed. Members may still know newer rules.
    pub(crate) fn recovery_closed(&mut self) {
        self.awaited.clear();
    }

    /// An operator confirmed now that no other copy of this journal is used.
    pub(crate) fn copies_ruled_out(&mut self, now: Mono) {
        self.sole_since = now;
    }

    /// When recovery next looks for workloads that it needn't hold back any more.
    pub(crate) fn next_release_check(&self) -> Mono {
        self.release_check
    }

    /// Whether recovery must look at `now`. If so, the next look is due after `interval`.
    pub(crate) fn take_due_release_check(&mut self, now: Mono, interval: Millis) -> bool {
        let due = now >= self.release_check;
        if due {
            self.release_check = now + interval;
        }
        due
    }

    pub(crate) fn hash_fingerprint(&self, now: Mono, age_limit: Millis, into: &mut impl Hasher) {
        let Self { led_at, sole_since, awaited, rules_awaited, release_check } = self;
        hash_age(now, *led_at, age_limit, into);
        hash_age(now, *sole_since, age_limit, into);
        hash_deadline(now, *release_check, into);
        (awaited, rules_awaited).hash(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_recovery_keeps_the_wait_for_rules() {
        let (eu, us) = (ClusterName::new("eu"), ClusterName::new("us"));
        let mut wait = RecoveryWait::of_leadership(Mono(5), [eu.clone()].into());
        assert_eq!((wait.led_at(), wait.sole_since(), wait.awaited().len()), (Mono(5), Mono(5), 0));
        wait.await_members();
        wait.await_unknown(&us);
        assert!(wait.expected().eq([&eu, &us]));
        wait.recovery_closed();
        assert!(wait.awaited().is_empty() && wait.expects(&eu));
        assert!(wait.stop_awaiting(&us) && !wait.stop_awaiting(&us) && !wait.expects(&us));
        wait.copies_ruled_out(Mono(9));
        assert_eq!((wait.led_at(), wait.sole_since()), (Mono(5), Mono(9)));
    }

    #[test]
    fn releases_are_looked_for_once_in_an_interval() {
        let mut wait = RecoveryWait::of_leadership(Mono(5), BTreeSet::new());
        assert!(wait.take_due_release_check(Mono(5), Millis(10)));
        assert_eq!(wait.next_release_check(), Mono(15));
        assert!(!wait.take_due_release_check(Mono(14), Millis(10)));
        assert!(wait.take_due_release_check(Mono(15), Millis(10)));
    }
}
