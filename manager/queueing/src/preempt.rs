//! Who gives way so that a workload fits: as few as possible, whole gangs only, found by taking workloads out of the books
//! and putting back who isn't needed. The search leaves the books as they were.

mod classical;
mod fair;

pub use fair::{FairOrder, Visit};

use crate::amount::Amount;
use crate::brain::Brain;
use crate::flavors::{Assignment, Oracle, Possibility};
use crate::model::{Charge, Displaces, QueueId, WorkloadId};
use crate::names::{FlavorId, Id, ResourceId};
use crate::places::{ClusterIndex, Places};
use crate::topology::Requests as TopologyRequests;
use crate::tree::{CellId, NodeId};
use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound;
use std::sync::Arc;

/// By which right a workload is displaced; the words are Kueue's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Right {
    /// Priority within the queue.
    InClusterQueue,
    /// What is reclaimed was borrowed.
    InCohortReclamation,
    /// Priority, although the preemptor borrows.
    InCohortReclaimWhileBorrowing,
    /// The preemptor's share is smaller.
    InCohortFairSharing,
}

impl Right {
    /// Kueue's word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::InClusterQueue => "InClusterQueue",
            Self::InCohortReclamation => "InCohortReclamation",
            Self::InCohortReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
            Self::InCohortFairSharing => "InCohortFairSharing",
        }
    }
}

/// A victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Who.
    pub workload: WorkloadId,
    /// By which right; none for the slice that is replaced.
    pub right: Option<Right>,
}

/// What a search came to that asked for no room.
#[derive(Clone, Debug)]
pub(crate) struct Searched {
    workload: WorkloadId,
    cell: CellId,
    amount: Amount,
    /// None where there are none.
    victims: Vec<Target>,
}

/// One search for victims.
pub(crate) struct Search<'a> {
    pub(crate) brain: &'a mut Brain,
    pub(crate) places: &'a mut dyn Places,
    pub(crate) workload: WorkloadId,
    pub(crate) queue: QueueId,
    pub(crate) node: NodeId,
    /// What the workload takes.
    pub(crate) charge: Charge,
    /// Cells in which others have to give way.
    pub(crate) contested: Vec<CellId>,
    /// Where its pods would have to lie, where that matters.
    pub(crate) topology: Option<TopologyRequests>,
    /// Whether rooms of clusters are asked.
    pub(crate) rooms: bool,
    /// The only cluster whose workloads may give way.
    pub(crate) within: Option<ClusterIndex>,
}

/// Whether `preemptor` may displace `candidate` by `policy`.
pub fn may_displace(policy: Displaces, preemptor: (i64, i64), candidate: (i64, i64)) -> bool {
    let lower = preemptor.0 > candidate.0;
    match policy {
        Displaces::Never | Displaces::Unset => false,
        Displaces::LowerPriority => lower,
        Displaces::LowerOrNewerEqualPriority => {
            lower || (preemptor.0 == candidate.0 && preemptor.1 < candidate.1)
        }
        Displaces::Any => true,
    }
}

/// Which of two candidates is considered first: who is stopping anyway, other queues', who used most before, the least important,
/// the newest. Use counts within a queue only: of several queues' candidates each may come before the next in a circle.
pub fn candidate_order(
    brain: &Brain,
    by_usage: bool,
    own: QueueId,
    a: WorkloadId,
    b: WorkloadId,
) -> Ordering {
    let (x, y) = (&brain.workloads[&a], &brain.workloads[&b]);
    let usage = || {
        if !by_usage || x.queue != y.queue || x.local_queue == y.local_queue {
            return Ordering::Equal;
        }
        match (brain.local_usage_of(x), brain.local_usage_of(y)) {
            (Some(x), Some(y)) => y.total_cmp(&x),
            _ => Ordering::Equal,
        }
    };
    let since = |w: &crate::model::Workload| w.holding.as_ref().map_or(brain.now, |h| h.since);
    y.evicted()
        .cmp(&x.evicted())
        .then_with(|| (x.queue == own).cmp(&(y.queue == own)))
        .then_with(usage)
        .then_with(|| brain.priority_of(x).cmp(&brain.priority_of(y)))
        .then_with(|| since(y).cmp(&since(x)))
        .then_with(|| brain.tie_of(y).cmp(&brain.tie_of(x)))
        .then_with(|| x.uid.cmp(&y.uid))
}

/// Candidates in the order in which they are considered. Those of a queue keep their order, and the first left of each compete:
/// so there is one order even where use and importance contradict each other.
pub fn in_order(brain: &Brain, by_usage: bool, own: QueueId, mut all: Vec<WorkloadId>) -> Vec<WorkloadId> {
    if !by_usage {
        all.sort_by(|a, b| candidate_order(brain, false, own, *a, *b));
        return all;
    }
    let mut lines: BTreeMap<QueueId, Vec<WorkloadId>> = BTreeMap::new();
    for workload in all.drain(..) {
        lines.entry(brain.workloads[&workload].queue).or_default().push(workload);
    }
    let in_line = |(queue, mut line): (QueueId, Vec<WorkloadId>)| {
        line.sort_by(|a, b| candidate_order(brain, true, own, *a, *b));
        (queue == own, line.into_iter())
    };
    let mut lines: Vec<_> = lines.into_iter().map(in_line).collect();
    let next = |at: usize, (mine, line): &mut (bool, std::vec::IntoIter<WorkloadId>)| {
        let of = brain.displaceable_as(line.next()?);
        Some(Reverse((of.goes_on, *mine, of, at)))
    };
    let mut heads: BinaryHeap<_> =
        lines.iter_mut().enumerate().filter_map(|(at, line)| next(at, line)).collect();
    while let Some(Reverse((.., first, at))) = heads.pop() {
        all.push(first.workload);
        heads.extend(next(at, &mut lines[at]));
    }
    all
}

impl Search<'_> {
    /// Those whom this workload told to stop and who still do, where they are enough: others aren't looked for meanwhile.
    fn begun(&mut self) -> Option<Vec<Target>> {
        let first = self.brain.settings.gates.prioritize_preemptors && self.brain.is_preemptor(self.workload);
        let begun = self.brain.workloads[&self.workload].displaces_for.as_ref().filter(|_| first)?;
        let still = |(target, uid): &&(Target, Arc<str>)| {
            let of = self.brain.workloads.get(&target.workload).filter(|of| of.uid == *uid && of.evicted());
            of.is_some() && !self.brain.is_hidden(target.workload)
        };
        let victims: Vec<Target> = begun.victims.iter().filter(still).map(|(target, _)| *target).collect();
        victims.iter().for_each(|victim| self.take_out(victim.workload));
        let enough = !victims.is_empty() && self.fits(true, &victims);
        self.put_back(&victims);
        enough.then_some(victims)
    }

    /// The victims that make the assignment possible; none where there are none.
    pub(crate) fn run(&mut self) -> Vec<Target> {
        if self.brain.settings.fair_sharing.is_some() { self.fair() } else { self.classical() }
    }

    fn take_out(&mut self, workload: WorkloadId) {
        self.brain.suspend_usage(workload);
    }

    fn put_back(&mut self, targets: &[Target]) {
        for target in targets {
            self.brain.resume_usage(target.workload);
        }
    }

    /// Whether the workload fits as the books are now.
    fn fits(&mut self, may_borrow: bool, targets: &[Target]) -> bool {
        for (cell, amount) in &self.charge {
            let here = self.brain.forest.cell(self.node, *cell);
            if (!may_borrow && here.quota.nominal < here.usage + *amount)
                || *amount > self.brain.forest.available(self.node, *cell)
            {
                return false;
            }
        }
        let placed = self
            .topology
            .as_ref()
            .is_none_or(|requests| self.brain.find_places(requests, self.workload, false).is_ok());
        let room = !placed || !self.rooms || self.places.fits(self.brain, self.workload, targets);
        self.brain.roomless |= !room;
        placed && room
    }

    /// Puts back, last taken first, whoever isn't needed; `right` says whether the others may give way without the one.
    fn fill_back(
        &mut self,
        mut targets: Vec<Target>,
        may_borrow: bool,
        right: impl Fn(&mut Self, Target, &[Target]) -> bool,
    ) -> Vec<Target> {
        for at in (0..targets.len().saturating_sub(1)).rev() {
            let spared = targets[at];
            self.brain.resume_usage(spared.workload);
            targets.swap_remove(at);
            if !self.fits(may_borrow, &targets) || !right(self, spared, &targets) {
                self.brain.suspend_usage(spared.workload);
                // Back to its place, and the last to the end.
                targets.push(spared);
                let last = targets.len() - 1;
                targets.swap(at, last);
            }
        }
        targets
    }

    /// Whether displacing a workload would bring anything: it uses a cell that is contested, in a cluster that counts. Who is
    /// stopping anyway counts in any case.
    fn uses_contested(&self, workload: WorkloadId) -> bool {
        let of = &self.brain.workloads[&workload];
        let elsewhere = self.within.is_some() && self.places.cluster_of(workload) != self.within;
        let uses = of
            .holding
            .as_ref()
            .is_some_and(|h| h.charge.iter().any(|(cell, _)| self.contested.contains(cell)));
        uses && (of.evicted() || (!elsewhere && self.places.may_displace(self.workload, workload)))
    }

    /// Whether a node uses no more than its own quota in every contested cell.
    fn within_nominal(&self, node: NodeId) -> bool {
        self.contested.iter().all(|cell| !self.brain.forest.borrows(node, *cell))
    }

    /// Priority and place in time of a workload, as policies compare them.
    fn rank(&self, workload: WorkloadId) -> (i64, i64) {
        let of = &self.brain.workloads[&workload];
        (self.brain.priority_of(of), of.since)
    }

    fn by_usage(&self) -> bool {
        self.brain.settings.gates.admission_fair_sharing
            && self.brain.settings.admission_fair_sharing.is_some()
    }
}

/// Victims for an assignment.
pub(crate) fn targets(
    brain: &mut Brain,
    places: &mut dyn Places,
    workload: WorkloadId,
    assignment: &Assignment,
) -> Vec<Target> {
    let queue = brain.workloads[&workload].queue;
    if brain.workloads[&workload].in_vain {
        brain.roomless = true;
        return Vec::new();
    }
    let Some((node, tree)) = brain.queue(queue).node.zip(brain.queue(queue).tree) else { return Vec::new() };
    let contested: Vec<CellId> =
        assignment.contested().into_iter().filter_map(|key| brain.forest.find_cell(tree, key)).collect();
    let charge = brain.charge_of_request(workload, assignment);
    let topology = brain.topology_requests(workload, assignment);
    // Where there is room now, only quota is short, whoever ends.
    let rooms = !places.has_room(brain, workload);
    let search = |brain: &mut Brain, places: &mut dyn Places, within: Option<ClusterIndex>| {
        let (charge, contested, topology) = (charge.clone(), contested.clone(), topology.clone());
        Search { brain, places, workload, queue, node, charge, contested, topology, rooms, within }.run()
    };
    let begun = Search {
        brain,
        places,
        workload,
        queue,
        node,
        charge: charge.clone(),
        contested: contested.clone(),
        topology: topology.clone(),
        rooms,
        within: None,
    }
    .begun();
    if let Some(begun) = begun {
        return begun;
    }
    // Victims in one cluster free room where the gang can use it: of all answers the one with the fewest victims, in the
    // fewest clusters.
    let known = brain
        .searched_before(workload, &charge, &contested)
        .filter(|found| found.is_empty() || (!rooms && topology.is_none()));
    // Where only room is short, nobody elsewhere is of any use.
    let only_room =
        rooms && charge.iter().all(|(cell, amount)| *amount <= brain.forest.available(node, *cell));
    let whole = if only_room { Vec::new() } else { known.unwrap_or_else(|| search(brain, places, None)) };
    if whole.len() == 1 || !rooms {
        return whole;
    }
    let mut found: Vec<Vec<Target>> = vec![whole];
    for cluster in places.clusters(brain, workload) {
        found.push(search(brain, places, Some(cluster)));
    }
    let spread = |victims: &[Target]| {
        victims.iter().map(|v| places.cluster_of(v.workload)).collect::<BTreeSet<_>>().len()
    };
    found
        .into_iter()
        .filter(|victims| !victims.is_empty())
        .min_by_key(|victims| (victims.len(), spread(victims)))
        .unwrap_or_default()
}

/// Answers that nobody gives way.
pub(crate) struct Nobody;

impl Oracle for Nobody {
    fn simulate(
        &mut self,
        _: &mut Brain,
        _: WorkloadId,
        _: (FlavorId, ResourceId),
        _: Amount,
    ) -> (Possibility, u32) {
        (Possibility::NoCandidates, 0)
    }
}

/// Answers by searching for victims in the books.
pub(crate) struct Books<'a> {
    pub(crate) places: &'a mut dyn Places,
}

impl Books<'_> {
    /// A search for victims for one flavor and resource alone; rooms aren't asked.
    fn search<'a>(
        &'a mut self,
        brain: &'a mut Brain,
        workload: WorkloadId,
        key: (FlavorId, ResourceId),
        amount: Amount,
    ) -> Option<Search<'a>> {
        let of = brain.queue(brain.workloads[&workload].queue);
        let (node, cell) = of.node.zip(of.tree.and_then(|tree| brain.forest.find_cell(tree, key)))?;
        let (queue, charge, contested) = (brain.workloads[&workload].queue, vec![(cell, amount)], vec![cell]);
        Some(Search {
            brain,
            places: self.places,
            workload,
            queue,
            node,
            charge,
            contested,
            topology: None,
            rooms: false,
            within: None,
        })
    }
}

/// What it comes to that these victims are gone.
fn without(
    brain: &mut Brain,
    workload: WorkloadId,
    (node, cell, amount): (NodeId, CellId, Amount),
    victims: Vec<Target>,
) -> (Possibility, u32) {
    for victim in &victims {
        brain.suspend_usage(victim.workload);
    }
    let (borrowing, _) = brain.forest.lowest_fit(node, cell, amount);
    for victim in &victims {
        brain.resume_usage(victim.workload);
    }
    let queue = brain.workloads[&workload].queue;
    let possibility = match victims.iter().any(|v| brain.workloads[&v.workload].queue == queue) {
        _ if victims.is_empty() => Possibility::NoCandidates,
        true => Possibility::Preempt,
        false => Possibility::Reclaim,
    };
    brain.searched.push(Searched { workload, cell, amount, victims });
    (possibility, borrowing)
}

impl Oracle for Books<'_> {
    fn simulate(
        &mut self,
        brain: &mut Brain,
        workload: WorkloadId,
        key: (FlavorId, ResourceId),
        amount: Amount,
    ) -> (Possibility, u32) {
        let Some(mut search) = self.search(brain, workload, key, amount) else {
            return (Possibility::NoCandidates, 0);
        };
        let (place, victims) = ((search.node, search.contested[0], amount), search.run());
        without(brain, workload, place, victims)
    }

    fn begun(
        &mut self,
        brain: &mut Brain,
        workload: WorkloadId,
        key: (FlavorId, ResourceId),
        amount: Amount,
    ) -> Option<(Possibility, u32)> {
        brain.workloads[&workload].displaces_for.as_ref()?;
        let mut search = self.search(brain, workload, key, amount)?;
        let (place, victims) = ((search.node, search.contested[0], amount), search.begun()?);
        Some(without(brain, workload, place, victims))
    }
}

impl Brain {
    /// What was found when the same books were searched for this workload already: for this very charge, or nobody for no more
    /// than it in the only contested cell. Rooms weren't asked then.
    fn searched_before(
        &self,
        workload: WorkloadId,
        charge: &Charge,
        contested: &[CellId],
    ) -> Option<Vec<Target>> {
        let &[cell] = contested else { return None };
        let asked = charge.iter().find(|(of, _)| *of == cell).map(|(_, amount)| *amount)?;
        let same = |before: &&Searched| {
            let just_this = charge.len() == 1 && asked == before.amount;
            before.workload == workload
                && before.cell == cell
                && (just_this || (before.victims.is_empty() && asked >= before.amount))
        };
        self.searched.iter().find(same).map(|before| before.victims.clone())
    }

    /// Who would have to give way so that a workload gets what an assignment says.
    pub fn victims(
        &mut self,
        places: &mut dyn Places,
        workload: WorkloadId,
        assignment: &Assignment,
    ) -> Vec<Target> {
        self.searched.clear();
        targets(self, places, workload, assignment)
    }

    /// Holders of a queue whom a workload of this priority and age may displace by `policy`, and who aren't taken out for the
    /// time being. What isn't among them costs nothing.
    pub(crate) fn displaceable(
        &self,
        queue: QueueId,
        policy: Displaces,
        (priority, since): (i64, i64),
    ) -> impl Iterator<Item = WorkloadId> + '_ {
        const FIRST: WorkloadId = WorkloadId(0);
        let end = match policy {
            Displaces::Never | Displaces::Unset => Bound::Excluded((i64::MIN, Reverse(i64::MAX), FIRST)),
            Displaces::LowerPriority => Bound::Excluded((priority, Reverse(i64::MAX), FIRST)),
            Displaces::LowerOrNewerEqualPriority => Bound::Excluded((priority, Reverse(since), FIRST)),
            Displaces::Any => Bound::Unbounded,
        };
        let ranked = self.queues[queue.index()].ranked.range((Bound::Unbounded, end));
        ranked.map(|(_, _, workload)| *workload).filter(|w| !self.is_hidden(*w))
    }
}
