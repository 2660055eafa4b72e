//! Starts, keeps and ends toleration deadlines.
//!
//! A deadline is counted per allocation, node and pod set: from the moment at which the taint appeared, or
//! from the start of the gang on that node if that was later. It is stored with the run, so a restart of the
//! agent doesn't begin it anew. It is dropped with the taint. A node that is gone for a moment keeps its
//! deadlines.
//!
//! The ledger reads no clock: [`Ledger::advance`] sets the time before each turn, so all answers of a turn
//! are of one moment. Invariant: a hold has no deadlines, so that a gang is never evicted before it has
//! started.

use super::toleration::{self, Arrival, TolerationDeadline};
use super::{Allocation, Ledger};
use crate::runtime::PodPlacement;
use meridian_shared::gang::{Gang, Taint, TaintEffect, Tolerance};
use meridian_shared::ids::OfferId;
use meridian_shared::time::{Millis, Wall};
use std::collections::BTreeSet;

impl Ledger {
    /// Sets the time, which never goes back. Returns whether a deadline ended since the last call.
    pub(crate) fn advance(&mut self, now: Wall) -> bool {
        let before = self.now;
        self.now = now.max(before);
        self.toleration
            .values()
            .flatten()
            .any(|deadline| before < deadline.ends() && deadline.ends() <= self.now)
    }

    /// The time of this turn.
    pub(crate) fn now(&self) -> Wall {
        self.now
    }

    /// When the next deadline ends.
    pub(crate) fn next_toleration_end(&self) -> Option<Wall> {
        self.toleration.values().flatten().map(TolerationDeadline::ends).filter(|ends| *ends > self.now).min()
    }

    /// Whether there is a deadline, or a taint that evicts pods.
    pub(crate) fn has_toleration_to_count(&self) -> bool {
        let evicts = |taint: &Taint| taint.effect == TaintEffect::NoExecute;
        !self.toleration.is_empty() || self.nodes.iter().any(|(_, node)| node.spec.taints.iter().any(evicts))
    }

    /// Updates the deadlines of the allocation of `gang`: present deadlines continue, new ones start, and
    /// those whose taint is gone are dropped. Returns whether anything changed.
    pub(crate) fn count_toleration(&mut self, offer: OfferId, gang: &Gang, arrival: Arrival) -> bool {
        let known = self.toleration.remove(&offer).unwrap_or_default();
        let places: BTreeSet<(&str, &str)> = self
            .allocations
            .get(&offer)
            .into_iter()
            .flat_map(Allocation::standing)
            .map(|(_, pod)| (pod.node.as_str(), pod.pod_set.as_str()))
            .collect();
        let deadlines: Vec<TolerationDeadline> = places
            .into_iter()
            .flat_map(|(node, set)| self.toleration_on(node, set, gang, arrival, &known))
            .collect();
        let changed = deadlines != known;
        if !deadlines.is_empty() {
            self.toleration.insert(offer, deadlines);
        }
        changed
    }

    fn toleration_on(
        &self,
        name: &str,
        pod_set: &str,
        gang: &Gang,
        arrival: Arrival,
        known: &[TolerationDeadline],
    ) -> Vec<TolerationDeadline> {
        let running = || toleration::of_place(known, name, pod_set);
        let Some(node) = self.nodes.get(name) else { return running().cloned().collect() };
        let Some(set) = gang.pod_sets.iter().find(|set| set.name == pod_set) else { return Vec::new() };
        let limited = |taint: &Taint| match Tolerance::of(&set.tolerations, taint) {
            // Only a taint that evicts is tolerated for a time.
            Tolerance::For(lasts) => Some(lasts),
            Tolerance::No | Tolerance::Forever => None,
        };
        let deadline = |taint: &Taint| {
            let lasts = limited(taint)?;
            let added = node
                .spec
                .added
                .iter()
                .find(|(of, _)| of == taint)
                .map(|(_, at)| *at)
                .filter(|_| arrival == Arrival::Taint);
            let begins = added.map_or(self.now, |at| at.min(self.now));
            let since = running().find(|known| known.taint == *taint).map_or(begins, |known| known.since);
            Some(TolerationDeadline {
                node: name.to_owned(),
                pod_set: pod_set.to_owned(),
                taint: taint.clone(),
                since,
                lasts,
            })
        };
        node.spec.taints.iter().filter_map(deadline).collect()
    }

    /// Remaining time of every deadline, for the fingerprint of an agent.
    pub(crate) fn toleration_left(&self) -> Vec<(OfferId, Vec<Millis>)> {
        self.toleration
            .iter()
            .map(|(offer, all)| {
                (*offer, all.iter().map(|deadline| deadline.ends().since(self.now)).collect())
            })
            .collect()
    }

    /// The deadlines of an allocation, to be stored with its run.
    pub(crate) fn toleration_of(&self, offer: OfferId) -> &[TolerationDeadline] {
        self.toleration.get(&offer).map(Vec::as_slice).unwrap_or_default()
    }

    /// Continues deadlines of an earlier session.
    pub(crate) fn adopt_toleration(&mut self, offer: OfferId, deadlines: Vec<TolerationDeadline>) {
        if !deadlines.is_empty() {
            self.toleration.insert(offer, deadlines);
        }
    }

    /// Whether a pod has been on its node for as long as it tolerates one of the node's taints.
    pub(super) fn is_toleration_over(&self, offer: OfferId, pod: &PodPlacement) -> bool {
        toleration::of_place(self.toleration_of(offer), &pod.node, &pod.pod_set)
            .any(|deadline| deadline.ends() <= self.now)
    }

    /// Checks that deadlines belong to allocations and are sorted.
    pub(super) fn check_toleration(&self) -> Result<(), String> {
        let wrong = |(offer, all): &(&OfferId, &Vec<TolerationDeadline>)| {
            all.is_empty()
                || !self.allocations.contains_key(offer)
                || !all.is_sorted_by_key(|deadline| deadline.place())
        };
        match self.toleration.iter().find(wrong) {
            Some((offer, all)) => Err(format!(
                "offer {offer} has {} toleration deadlines and no allocation, or they are not sorted",
                all.len()
            )),
            None => Ok(()),
        }
    }
}
