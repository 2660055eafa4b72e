//! For how long pods may stay on nodes whose taint they tolerate for a while only (`tolerationSeconds`).
//!
//! A stay is counted per room, node and pod set: from the moment at which the taint appeared under a gang, or from the gang's
//! own start there if that was later. It is kept with the run, so that a restart of the agent doesn't begin it anew, and is
//! forgotten with the taint. A node that is gone for a moment takes no stay with it.
//!
//! The ledger reads no clock: it is told what time it is before each turn, and then every answer of the turn is of one moment.
//! Invariant: a hold has no stays, so that a gang isn't driven away before it has begun.

use super::{Ledger, PodPlacement, Room};
use meridian_shared::gang::{Gang, Taint, TaintEffect, Tolerance};
use meridian_shared::ids::OfferId;
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Pods of one set on one node, and a taint of it that they tolerate for so long.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Stay {
    pub(crate) node: String,
    pub(crate) pod_set: String,
    pub(crate) taint: Taint,
    /// From when on it is counted.
    pub(crate) since: Wall,
    /// How long it lasts.
    pub(crate) lasts: Millis,
}

impl Stay {
    fn ends(&self) -> Wall {
        self.since + self.lasts
    }

    fn place(&self) -> (&str, &str) {
        (&self.node, &self.pod_set)
    }
}

/// Those of one pod set on one node: stays are in the order of these.
fn of<'a>(stays: &'a [Stay], node: &str, pod_set: &str) -> impl Iterator<Item = &'a Stay> {
    let before = stays.partition_point(|stay| stay.place() < (node, pod_set));
    let after = stays.partition_point(|stay| stay.place() <= (node, pod_set));
    stays[before..after].iter()
}

/// How pods came to stand on a tainted node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// They come only now, and the taint was there before them.
    Pods,
    /// They were there, and the taint came.
    Taint,
}

impl Ledger {
    /// It is `now`; never less than before. Whether a stay has ended since.
    pub(crate) fn advance(&mut self, now: Wall) -> bool {
        let before = self.now;
        self.now = now.max(before);
        self.stays.values().flatten().any(|stay| before < stay.ends() && stay.ends() <= self.now)
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Wall {
        self.now
    }

    /// When the next stay ends.
    pub(crate) fn next_end(&self) -> Option<Wall> {
        self.stays.values().flatten().map(Stay::ends).filter(|ends| *ends > self.now).min()
    }

    /// Whether there is anything to count: a stay, or a taint that drives pods away.
    pub(crate) fn may_count(&self) -> bool {
        !self.stays.is_empty()
            || self
                .nodes
                .values()
                .any(|node| node.spec.taints.iter().any(|taint| taint.effect == TaintEffect::NoExecute))
    }

    /// Counts the stays of the room that `gang` has under this offer: those under way go on, new ones begin, and what is no
    /// longer to be counted is forgotten. Whether anything changed.
    pub(crate) fn count_stays(&mut self, offer: OfferId, gang: &Gang, arrival: Arrival) -> bool {
        let known = self.stays.remove(&offer).unwrap_or_default();
        let places: BTreeSet<(&str, &str)> = self
            .rooms
            .get(&offer)
            .into_iter()
            .flat_map(Room::standing)
            .map(|(_, pod)| (pod.node.as_str(), pod.pod_set.as_str()))
            .collect();
        let stays: Vec<Stay> = places
            .into_iter()
            .flat_map(|(node, set)| self.stays_on(node, set, gang, arrival, &known))
            .collect();
        let changed = stays != known;
        if !stays.is_empty() {
            self.stays.insert(offer, stays);
        }
        changed
    }

    fn stays_on(
        &self,
        name: &str,
        pod_set: &str,
        gang: &Gang,
        arrival: Arrival,
        known: &[Stay],
    ) -> Vec<Stay> {
        let under_way = || of(known, name, pod_set);
        let Some(node) = self.nodes.get(name) else { return under_way().cloned().collect() };
        let Some(set) = gang.pod_sets.iter().find(|set| set.name == pod_set) else { return Vec::new() };
        let timed = |taint: &Taint| match Tolerance::of(&set.tolerations, taint) {
            Tolerance::For(lasts) if taint.effect == TaintEffect::NoExecute => Some(lasts),
            Tolerance::For(_) | Tolerance::No | Tolerance::Forever => None,
        };
        let stay = |taint: &Taint| {
            let lasts = timed(taint)?;
            let added = node
                .spec
                .added
                .iter()
                .find(|(of, _)| of == taint)
                .map(|(_, at)| *at)
                .filter(|_| arrival == Arrival::Taint);
            let begins = added.map_or(self.now, |at| at.min(self.now));
            let since = under_way().find(|stay| stay.taint == *taint).map_or(begins, |stay| stay.since);
            Some(Stay {
                node: name.to_owned(),
                pod_set: pod_set.to_owned(),
                taint: taint.clone(),
                since,
                lasts,
            })
        };
        node.spec.taints.iter().filter_map(stay).collect()
    }

    /// What is left of every stay, for the essence of an agent.
    pub(crate) fn stays_left(&self) -> Vec<(OfferId, Vec<Millis>)> {
        self.stays
            .iter()
            .map(|(offer, stays)| (*offer, stays.iter().map(|stay| stay.ends().since(self.now)).collect()))
            .collect()
    }

    /// The stays of this room, as they are remembered.
    pub(crate) fn stays(&self, offer: OfferId) -> &[Stay] {
        self.stays.get(&offer).map(Vec::as_slice).unwrap_or_default()
    }

    /// Takes back what an earlier session counted.
    pub(crate) fn adopt_stays(&mut self, offer: OfferId, stays: Vec<Stay>) {
        if !stays.is_empty() {
            self.stays.insert(offer, stays);
        }
    }

    /// Whether a pod has been on its node for as long as it tolerates one of the node's taints.
    pub(super) fn outstays(&self, offer: OfferId, pod: &PodPlacement) -> bool {
        of(self.stays(offer), &pod.node, &pod.pod_set).any(|stay| stay.ends() <= self.now)
    }

    /// Stays belong to rooms, and are in order.
    pub(super) fn check_stays(&self) -> Result<(), String> {
        let wrong = |(offer, stays): &(&OfferId, &Vec<Stay>)| {
            stays.is_empty()
                || !self.rooms.contains_key(offer)
                || !stays.is_sorted_by_key(|stay| stay.place())
        };
        match self.stays.iter().find(wrong) {
            Some((offer, stays)) => Err(format!(
                "{} stays are counted for offer {offer}, which has no room or none to count, or they are out of order",
                stays.len()
            )),
            None => Ok(()),
        }
    }
}

/// The gang as it is once its stays are over: it tolerates only what it tolerates for ever.
pub(super) fn impatient(gang: &Gang) -> Gang {
    let mut gang = gang.clone();
    gang.pod_sets
        .iter_mut()
        .for_each(|set| set.tolerations.retain(|toleration| toleration.seconds.is_none()));
    gang
}
