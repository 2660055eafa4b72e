//! The positions of a gang, with the pod and the node of each.

use super::manifest;
use super::request::Placing;
use crate::facts::PodFacts;
use crate::labels::GATE;
use meridian_agent_core::runtime::PodPlacement;
use meridian_objects::spec::PodPhase;
use std::collections::{BTreeMap, BTreeSet};

/// Most pods that one request sends to nodes.
const PLACED_AT_ONCE: usize = 64;

/// Pod set and index.
type Position = (String, u32);

/// Whether a position is of the pod's set. A pod without the label was made for a gang with one set.
fn is_of_set(pod: &PodFacts, position: &Position) -> bool {
    pod.pod_set.as_ref().is_none_or(|set| *set == position.0)
}

/// State of one position.
#[derive(Clone, Debug, Default)]
struct Slot {
    node: String,
    /// Place among all pods of the gang.
    number: u32,
    /// Whether a pod of this position has run.
    started: bool,
    /// Whether the position's last pod succeeded.
    succeeded: bool,
    /// Whether the position is over: no pod runs there, and none will.
    reclaimed: bool,
    /// Uid and node of the pod that was last seen here and hasn't been seen ended.
    held_by: Option<(String, String)>,
    /// Whether the last pod here was seen ended.
    confirmed: bool,
}

/// All positions of one run, and its pods.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// An earlier agent placed pods. Some may have started and ended unobserved.
    adopted: bool,
    slots: BTreeMap<Position, Slot>,
    pods: BTreeMap<String, PodFacts>,
    /// Positions that pods got, by the pod's uid. They are known here before a watch shows them.
    given: BTreeMap<String, Position>,
    /// Pods whose gate was removed, by uid.
    released: BTreeSet<String>,
}

impl Positions {
    pub(super) fn new(placement: &[PodPlacement]) -> Self {
        let mut positions = Self::default();
        positions.place(placement);
        positions
    }

    pub(super) fn adopted(placement: &[PodPlacement]) -> Self {
        Self { adopted: true, ..Self::new(placement) }
    }

    /// Takes over a new placement. Returns the number of pods that must end for it.
    pub(super) fn place(&mut self, placement: &[PodPlacement]) -> u32 {
        let mut slots = BTreeMap::new();
        for (number, pod) in (0..).zip(placement) {
            let position = (pod.pod_set.clone(), pod.index);
            let known = self.slots.remove(&position).unwrap_or_default();
            slots.insert(position, Slot { node: pod.node.clone(), number, reclaimed: false, ..known });
        }
        self.slots = slots;
        u32::try_from(self.misplaced().len()).unwrap_or(u32::MAX)
    }

    /// Observes all pods of the run. A pod that is missing has left its position only if its node answers.
    pub(super) fn observe(&mut self, pods: &[PodFacts], answers: &dyn Fn(&str) -> bool) {
        self.pods = pods.iter().map(|pod| (pod.uid.clone(), pod.clone())).collect();
        self.given.retain(|uid, _| self.pods.contains_key(uid));
        self.released.retain(|uid| self.pods.contains_key(uid));
        for slot in self.slots.values_mut() {
            let gone = |(uid, node): &(String, String)| !self.pods.contains_key(uid) && answers(node);
            if slot.held_by.as_ref().is_some_and(gone) {
                slot.held_by = None;
            }
        }
        for pod in self.pods.values() {
            let Some(position) = self.position_of(pod) else { continue };
            let Some(slot) = self.slots.get_mut(&position) else { continue };
            slot.started |= pod.has_started();
            if pod.has_ended() {
                let is_last = slot.held_by.as_ref().is_some_and(|(uid, _)| *uid == pod.uid);
                let succeeded = pod.phase == PodPhase::Succeeded;
                slot.succeeded |= succeeded;
                slot.confirmed |= is_last || succeeded || (slot.held_by.is_none() && !self.adopted);
                if is_last {
                    slot.held_by = None;
                }
            } else {
                (slot.succeeded, slot.confirmed) = (false, false);
                let node = pod.node.clone().unwrap_or_else(|| slot.node.clone());
                slot.held_by = Some((pod.uid.clone(), node));
            }
        }
    }

    fn position_of(&self, pod: &PodFacts) -> Option<Position> {
        if let Some(given) = self.given.get(&pod.uid) {
            return Some(given.clone());
        }
        let index = u32::try_from(pod.position?).ok()?;
        self.slots.keys().find(|position| position.1 == index && is_of_set(pod, position)).cloned()
    }

    /// Pods that wait for their node, each with the patch that sends it there.
    pub(super) fn placings(&mut self) -> Vec<Placing> {
        let waiting: Vec<PodFacts> = self
            .pods
            .values()
            .filter(|pod| {
                pod.gates.iter().any(|gate| gate == GATE)
                    && !pod.deleting
                    && !pod.is_terminal()
                    && !self.released.contains(&pod.uid)
            })
            .cloned()
            .collect();
        let mut placings = Vec::new();
        for pod in waiting {
            if placings.len() == PLACED_AT_ONCE {
                break;
            }
            let Some(position) = self.position_of(&pod).or_else(|| self.free_for(&pod)) else { continue };
            let Some(slot) = self.slots.get_mut(&position) else { continue };
            if slot.held_by.as_ref().is_some_and(|(uid, _)| *uid != pod.uid) {
                continue;
            }
            slot.held_by = Some((pod.uid.clone(), slot.node.clone()));
            let patch = manifest::place(&slot.node, position.1 as usize, &pod);
            let number = slot.number;
            self.given.insert(pod.uid.clone(), position);
            placings.push(Placing { pod: pod.name, uid: pod.uid, number: Some(number), patch });
        }
        placings
    }

    /// A free position of a new pod's set: that of the pod's completion index if it is free, else the first
    /// one.
    fn free_for(&self, pod: &PodFacts) -> Option<Position> {
        let free = |slot: &Slot| slot.held_by.is_none() && !slot.reclaimed;
        let mut of_set = self.slots.iter().filter(|(position, _)| is_of_set(pod, position));
        let own = pod.index.and_then(|index| of_set.clone().find(|((_, own), _)| *own == index));
        if let Some((position, slot)) = own
            && free(slot)
        {
            return Some(position.clone());
        }
        of_set.find(|(_, slot)| free(slot)).map(|(position, _)| position.clone())
    }

    /// Notes that the gates of these pods were removed.
    pub(super) fn placed(&mut self, uids: &[String]) {
        self.released.extend(uids.iter().cloned());
    }

    /// Pods that were sent to their nodes and have not ended, by name and uid.
    pub(super) fn placed_pods(&self) -> Vec<(String, String)> {
        let is_placed = |pod: &&PodFacts| {
            !pod.deleting && !pod.is_terminal() && pod.gates.iter().all(|gate| gate != GATE)
        };
        self.pods.values().filter(is_placed).map(|pod| (pod.name.clone(), pod.uid.clone())).collect()
    }

    /// Pods on a node that is no longer theirs, by name and uid.
    pub(super) fn misplaced(&self) -> Vec<(String, String)> {
        let wrong = |pod: &&PodFacts| {
            let Some(slot) = self.position_of(pod).and_then(|position| self.slots.get(&position)) else {
                return false;
            };
            !pod.deleting && !pod.is_terminal() && pod.node.as_ref().is_some_and(|node| *node != slot.node)
        };
        self.pods.values().filter(wrong).map(|pod| (pod.name.clone(), pod.uid.clone())).collect()
    }

    /// Whether every position has started, except those of late pod sets, which the job itself starts later.
    pub(super) fn all_started(&self, late: &BTreeSet<String>) -> bool {
        // A gang of late pod sets alone would count as started without a pod.
        let all_count = self.slots.keys().all(|(set, _)| late.contains(set));
        let mut counted = self.slots.iter().filter(|((set, _), _)| all_count || !late.contains(set));
        !self.slots.is_empty() && counted.all(|(_, slot)| slot.started || slot.reclaimed)
    }

    /// Whether every position has a pod on its own node, or needs none. A position of a late pod set needs
    /// none before it starts.
    pub(super) fn is_settled(&self, late: &BTreeSet<String>) -> bool {
        self.slots.iter().all(|((set, _), slot)| {
            slot.reclaimed
                || slot.succeeded
                || late.contains(set) && !slot.started && slot.held_by.is_none()
                || slot.held_by.as_ref().is_some_and(|(uid, node)| {
                    *node == slot.node && self.pods.get(uid).is_some_and(|pod| !pod.deleting)
                })
        })
    }

    /// Marks positions that aren't needed any more, if only `needed` pods run at once.
    pub(super) fn reclaim(&mut self, needed: usize) {
        let mut kept = self.slots.values().filter(|slot| !slot.reclaimed).count();
        for slot in self.slots.values_mut().rev() {
            if kept > needed && !slot.reclaimed && slot.started && slot.held_by.is_none() {
                slot.reclaimed = true;
                kept -= 1;
            }
        }
    }

    pub(super) fn reclaimable(&self) -> Vec<Position> {
        self.slots.iter().filter(|(_, slot)| slot.reclaimed).map(|(position, _)| position.clone()).collect()
    }

    /// Whether a pod of the run may still run.
    pub(super) fn some_unended(&self) -> bool {
        self.pods.values().any(|pod| !pod.has_ended())
    }

    /// Whether a pod exists that hasn't been ordered to end.
    pub(super) fn some_undeleted(&self) -> bool {
        self.pods.values().any(|pod| !pod.is_terminal() && !pod.deleting)
    }

    /// A node that pods were assigned to, and that hasn't reported their end.
    pub(super) fn unconfirmed<'n>(
        &self,
        touched: &'n BTreeSet<String>,
        answers: &dyn Fn(&str) -> bool,
    ) -> Option<&'n String> {
        touched.iter().find(|node| {
            let mut slots = self.slots.values().filter(|slot| slot.node == **node).peekable();
            let all_confirmed = slots.peek().is_some() && slots.all(|slot| slot.confirmed);
            !answers(node) && !all_confirmed
        })
    }

    /// The nodes of all positions.
    pub(super) fn nodes(&self) -> BTreeSet<String> {
        self.slots.values().map(|slot| slot.node.clone()).collect()
    }

    /// Names of the pods, and their places in the gang.
    pub(super) fn pods(&self) -> Vec<(String, u32)> {
        let mut pods: Vec<&PodFacts> = self.pods.values().collect();
        pods.sort_by_key(|pod| (pod.created, pod.name.clone()));
        // Indexes of Jobs repeat in a gang of several pod sets.
        let has_one_set = self.slots.keys().map(|(set, _)| set).collect::<BTreeSet<_>>().len() <= 1;
        let number = |pod: &PodFacts| {
            let position = self.position_of(pod);
            let number = position.as_ref().and_then(|at| Some(self.slots.get(at)?.number));
            pod.index.filter(|_| has_one_set).or(number).unwrap_or(0)
        };
        pods.iter().map(|pod| (pod.name.clone(), number(pod))).collect()
    }
}
