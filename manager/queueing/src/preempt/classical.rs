//! Victims by position and priority.
//!
//! Three kinds of candidates: those whose room the preemptor's subtree could hold by its own quota (it has the advantage over
//! them whatever their priority), those of the cohort whom it may displace by priority, and those of its own queue.

use super::{Right, Search, Target, in_order};
use crate::amount::Amount;
use crate::brain::Brain;
use crate::model::{Displaceable, Displaces, QueueId, WorkloadId};
use crate::names::{FlavorId, Id};
use crate::tree::NodeId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound;
use std::rc::Rc;

/// What displacing a candidate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    WithinQueue,
    ByPosition,
    WithoutBorrowing,
    WhileBorrowing,
}

impl Variant {
    fn right(self) -> Right {
        match self {
            Self::WithinQueue => Right::InClusterQueue,
            Self::ByPosition | Self::WithoutBorrowing => Right::InCohortReclamation,
            Self::WhileBorrowing => Right::InCohortReclaimWhileBorrowing,
        }
    }
}

#[derive(Clone, Copy)]
struct Candidate {
    workload: WorkloadId,
    /// It isn't stopping anyway.
    goes_on: bool,
    /// The lowest cohort that holds both queues.
    meets: Option<NodeId>,
    variant: Variant,
}

/// A queue that may have to give something back.
#[derive(Clone, Copy)]
struct Source {
    queue: QueueId,
    meets: NodeId,
    advantage: bool,
}

/// Candidates of one kind, in their order.
#[derive(Clone)]
enum Candidates {
    /// Found and ordered one and all.
    Listed { all: Rc<[Candidate]>, next: usize },
    /// Of queues that have to give back whatever they have too much, and of flavors that are contested: the first of each is
    /// enough to know which comes next. Who has two of the flavors comes twice in a row, and counts once.
    Merged {
        sources: Rc<[(FlavorId, Source)]>,
        heads: BinaryHeap<Reverse<(Displaceable, usize)>>,
        last: Option<WorkloadId>,
    },
}

impl Candidates {
    /// The next one.
    fn first(&mut self, search: &Search<'_>) -> Option<Candidate> {
        loop {
            match self {
                Self::Listed { all, next } => return all.get(*next).copied(),
                Self::Merged { sources, heads, last } => {
                    let Reverse((head, of)) = heads.peek()?;
                    if *last != Some(head.workload) && search.uses_contested(head.workload) {
                        let Source { meets, advantage, .. } = sources[*of].1;
                        let variant = search.variant(advantage, head.priority);
                        return Some(Candidate {
                            workload: head.workload,
                            goes_on: head.goes_on,
                            meets: Some(meets),
                            variant,
                        });
                    }
                    self.pass(search.brain, true);
                }
            }
        }
    }

    /// Goes on to the one after the next, of the same queue too or only of others.
    fn pass(&mut self, brain: &Brain, same_queue: bool) {
        match self {
            Self::Listed { next, .. } => *next += 1,
            Self::Merged { sources, heads, last } => {
                let Some(Reverse((passed, of))) = heads.pop() else { return };
                *last = Some(passed.workload);
                let (flavor, source) = sources[of];
                if same_queue
                    && let Some(next) = brain.easiest_after(source.queue, flavor, Some(passed)).next()
                {
                    heads.push(Reverse((next.clone(), of)));
                }
            }
        }
    }
}

impl Search<'_> {
    pub(super) fn classical(&mut self) -> Vec<Target> {
        let forbidden = self.brain.queue(self.queue).setup.preemption.borrow_within_cohort.is_none();
        let must_borrow = forbidden && !self.under_nominal();
        let own = self.own_candidates();
        let [mut by_position, mut by_priority] = self.cohort_candidates(must_borrow);
        let no_position = by_position.first(self).is_none();
        let no_others = no_position && by_priority.first(self).is_none();
        let kinds = [by_position, by_priority, own];
        let tries: &[bool] = if no_others || must_borrow {
            &[true]
        } else if forbidden && no_position {
            &[false, true]
        } else {
            &[true, false]
        };
        for may_borrow in tries {
            let mut targets = Vec::new();
            if self.take_until_it_fits(kinds.clone(), *may_borrow, &mut targets) {
                let targets = self.fill_back(targets, *may_borrow, |_, _, _| true);
                self.put_back(&targets);
                return targets;
            }
            self.put_back(&targets);
        }
        Vec::new()
    }

    /// Takes out candidates, who is stopping anyway first, then each kind in its order. False when it doesn't fit without all of
    /// them.
    fn take_until_it_fits(
        &mut self,
        mut kinds: [Candidates; 3],
        may_borrow: bool,
        targets: &mut Vec<Target>,
    ) -> bool {
        for stopping in [true, false] {
            for kind in &mut kinds {
                while let Some(candidate) =
                    kind.first(self).filter(|candidate| !(stopping && candidate.goes_on))
                {
                    let without_borrowing = may_borrow && candidate.variant == Variant::WithoutBorrowing;
                    let borrows = self.borrows(&candidate);
                    // Who borrows no longer won't again while others are taken out.
                    kind.pass(self.brain, borrows);
                    if without_borrowing || !borrows {
                        continue;
                    }
                    self.take_out(candidate.workload);
                    targets.push(Target {
                        workload: candidate.workload,
                        right: Some(candidate.variant.right()),
                    });
                    if self.fits(may_borrow, targets) {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Candidates one and all, in their order.
    fn listed(&self, all: Vec<WorkloadId>, candidate: impl Fn(WorkloadId) -> Candidate) -> Candidates {
        let all = in_order(self.brain, self.by_usage(), self.queue, all);
        Candidates::Listed { all: all.into_iter().map(candidate).collect(), next: 0 }
    }

    fn variant(&self, advantage: bool, priority: i64) -> Variant {
        if advantage {
            return Variant::ByPosition;
        }
        match self.brain.queue(self.queue).setup.preemption.borrow_within_cohort {
            Some(most)
                if priority < self.rank(self.workload).0
                    && most.is_none_or(|most| priority <= i64::from(most)) =>
            {
                Variant::WhileBorrowing
            }
            _ => Variant::WithoutBorrowing,
        }
    }

    /// Whether the queue uses less than its nominal quota in every contested cell.
    fn under_nominal(&self) -> bool {
        self.contested.iter().all(|cell| {
            let here = self.brain.forest.cell(self.node, *cell);
            here.quota.nominal > here.usage
        })
    }

    /// Whether the candidate's queue, and every cohort up to where both meet, uses more than its own.
    fn borrows(&self, candidate: &Candidate) -> bool {
        let queue = self.brain.workloads[&candidate.workload].queue;
        if queue == self.queue {
            return true;
        }
        let Some(node) = self.brain.queue(queue).node else { return false };
        !self.within_nominal(node)
            && self
                .brain
                .forest
                .ancestors(node)
                .take_while(|at| Some(*at) != candidate.meets)
                .all(|at| !self.within_nominal(at))
    }

    fn own_candidates(&self) -> Candidates {
        let policy = self.brain.queue(self.queue).setup.preemption.within_queue;
        let own = |workload| Candidate {
            workload,
            goes_on: !self.brain.workloads[&workload].evicted(),
            meets: None,
            variant: Variant::WithinQueue,
        };
        self.listed(self.of_queue(self.queue, policy).collect(), own)
    }

    fn of_queue(&self, queue: QueueId, policy: Displaces) -> impl Iterator<Item = WorkloadId> + '_ {
        self.brain
            .displaceable(queue, policy, self.rank(self.workload))
            .filter(|workload| *workload != self.workload && self.uses_contested(*workload))
    }

    /// Candidates of other queues: by position, and by priority. Who has to borrow, and may displace nobody while it does, has
    /// no use for the latter.
    fn cohort_candidates(&self, must_borrow: bool) -> [Candidates; 2] {
        let policy = self.brain.queue(self.queue).setup.preemption.reclaim_within_cohort;
        let (mut by_position, mut by_priority) = (Vec::new(), Vec::new());
        if policy != Displaces::Never {
            let mut left: Vec<(crate::tree::CellId, Amount)> = self.charge.clone();
            let mut advantage = self.holds(self.node, &mut left);
            let mut below = None;
            for at in self.brain.forest.ancestors(self.node) {
                let found = if advantage { &mut by_position } else { &mut by_priority };
                if advantage || !must_borrow {
                    self.of_subtree(at, at, below, advantage, found);
                }
                // Once a subtree holds the request by its own quota, so does every larger one.
                advantage |= self.holds(at, &mut left);
                below = Some(at);
            }
        }
        [by_position, by_priority].map(|sources| {
            if policy == Displaces::Any && !self.by_usage() {
                self.merged(&sources)
            } else {
                self.collected(&sources, policy)
            }
        })
    }

    fn merged(&self, sources: &[Source]) -> Candidates {
        let tree = self.brain.forest.tree(self.brain.forest.node(self.node).tree);
        let flavors: BTreeSet<FlavorId> =
            self.contested.iter().map(|cell| tree.cells[cell.index()].0).collect();
        let sources: Rc<[(FlavorId, Source)]> =
            sources.iter().flat_map(|source| flavors.iter().map(|flavor| (*flavor, *source))).collect();
        let first = |(at, (flavor, source)): (usize, &(FlavorId, Source))| {
            Some(Reverse((self.brain.easiest_after(source.queue, *flavor, None).next()?.clone(), at)))
        };
        Candidates::Merged {
            heads: sources.iter().enumerate().filter_map(first).collect(),
            sources,
            last: None,
        }
    }

    fn collected(&self, sources: &[Source], policy: Displaces) -> Candidates {
        let mut all = Vec::new();
        let mut from: BTreeMap<QueueId, Source> = BTreeMap::new();
        for source in sources {
            from.insert(source.queue, *source);
            all.extend(self.of_queue(source.queue, policy));
        }
        self.listed(all, |workload| {
            let of = &self.brain.workloads[&workload];
            let Source { meets, advantage, .. } = from[&of.queue];
            Candidate {
                workload,
                goes_on: !of.evicted(),
                meets: Some(meets),
                variant: self.variant(advantage, self.brain.priority_of(of)),
            }
        })
    }

    /// Whether the node's subtree quota holds what is left of the request; what it keeps for itself is taken off.
    fn holds(&self, node: NodeId, left: &mut [(crate::tree::CellId, Amount)]) -> bool {
        let mut holds = true;
        for (cell, amount) in left {
            let here = self.brain.forest.cell(node, *cell);
            holds &= !here.borrows_with(*amount);
            *amount = (*amount - here.local_available()).floor();
        }
        holds
    }

    fn of_subtree(
        &self,
        at: NodeId,
        meets: NodeId,
        skip: Option<NodeId>,
        advantage: bool,
        found: &mut Vec<Source>,
    ) {
        let forest = &self.brain.forest;
        for child in &forest.node(at).cohorts {
            if Some(*child) != skip && !self.within_nominal(*child) {
                self.of_subtree(*child, meets, skip, advantage, found);
            }
        }
        for child in &forest.node(at).queues {
            if *child != self.node
                && !self.within_nominal(*child)
                && let Some(queue) = self.brain.active_queue_at(*child)
            {
                found.push(Source { queue, meets, advantage });
            }
        }
    }
}

impl Brain {
    /// The holders of a queue that have a flavor and may be met now; those after another one where that is given.
    pub(super) fn easiest_after(
        &self,
        queue: QueueId,
        flavor: FlavorId,
        after: Option<Displaceable>,
    ) -> impl Iterator<Item = &Displaceable> {
        let from = after.map_or_else(
            || Bound::Included((flavor, Displaceable::first())),
            |one| Bound::Excluded((flavor, one)),
        );
        let with_it = self
            .queue(queue)
            .easiest
            .range((from, Bound::Unbounded))
            .take_while(move |(of, _)| *of == flavor);
        with_it.map(|(_, one)| one).filter(|one| !self.is_hidden(one.workload))
    }

    /// The cluster queue at a node.
    pub(crate) fn queue_at(&self, node: NodeId) -> Option<QueueId> {
        self.queue_of_node.get(node.index()).copied().flatten()
    }

    /// The same where it admits anything: from a queue that doesn't, nothing is taken back for another's sake.
    pub(crate) fn active_queue_at(&self, node: NodeId) -> Option<QueueId> {
        self.queue_at(node).filter(|queue| self.queue(*queue).setup.inactive.is_none())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::brain::NewWorkload;
    use crate::model::{Flavor, Given, Group, PodSet, Preemption, QueueSetup, Shape};
    use crate::places::Anywhere;
    use crate::tree::Quota;
    use meridian_shared::backoff::splitmix;
    use std::sync::Arc;

    /// A resource of each flavor.
    pub(in crate::preempt) const BOTH: [(&str, &str); 2] = [("cpu", "any"), ("gpu", "fast")];

    /// One that has some of the one flavor, of the other, or of both.
    pub(in crate::preempt) fn new(
        brain: &mut Brain,
        name: &str,
        queue: QueueId,
        (priority, since): (i64, i64),
        has: &[(&str, &str)],
    ) -> (NewWorkload, Given) {
        let has: Vec<_> = has
            .iter()
            .map(|(resource, flavor)| (brain.resource(resource), brain.flavor_id(flavor)))
            .collect();
        let amounts: Vec<_> = has.iter().map(|(resource, _)| (*resource, 1)).collect();
        let set = PodSet { name: Arc::from("main"), count: 1, per_pod: amounts.clone(), ..PodSet::default() };
        let shape = brain.intern(Shape { pod_sets: vec![set], priority, ..Shape::default() });
        let given =
            Given { flavors: has.into_iter().collect(), usage: amounts, count: 1, ..Given::default() };
        (
            NewWorkload {
                key: Arc::from(name),
                uid: Arc::from(name),
                queue,
                local_queue: Arc::from("n/q"),
                shape,
                since,
                marks: None,
            },
            given,
        )
    }

    /// Queues of one cohort that hold more than their own, of random importance and age, some of it stopping.
    pub(in crate::preempt) fn borrowers(seed: u64, reclaim: Displaces) -> Brain {
        let mut brain = Brain::default();
        let groups = BOTH.map(|(resource, flavor)| (brain.resource(resource), brain.flavor_id(flavor)));
        groups.iter().for_each(|(_, flavor)| brain.set_flavor(*flavor, Some(Flavor::default())));
        let quotas: BTreeMap<_, _> = groups
            .iter()
            .map(|(r, f)| ((*f, *r), Quota { nominal: Amount(2), ..Quota::default() }))
            .collect();
        let preemption = Preemption { reclaim_within_cohort: reclaim, ..Preemption::default() };
        let queue = |at: usize| QueueSetup {
            name: Arc::from(format!("q{at}")),
            cohort: Some(Arc::from("c")),
            groups: groups
                .map(|(resource, flavor)| Group { resources: vec![resource], flavors: vec![flavor] })
                .into(),
            quotas: quotas.clone(),
            preemption,
            ..QueueSetup::default()
        };
        brain.configure(&BTreeMap::new(), (0..5).map(queue).collect());
        for at in 0..24_u64 {
            let dice = splitmix(seed ^ (at << 32));
            let queue = brain.queue_id(&format!("q{}", 1 + dice % 4)).unwrap();
            let has = [&BOTH[..1], &BOTH[1..], &BOTH[..]][usize::try_from(dice >> 40 & 3).unwrap().min(2)];
            let name = format!("w{:02}", splitmix(dice) % 100 * 24 + at);
            let (new, given) = new(&mut brain, &name, queue, (i64::try_from(dice >> 8 & 3).unwrap(), 0), has);
            brain.hold(new, vec![given], i64::try_from(dice >> 16 & 7).unwrap(), dice >> 32 & 7 == 0, true);
        }
        brain
    }

    fn drained(mut candidates: Candidates, search: &Search<'_>) -> Vec<(WorkloadId, bool, Variant)> {
        std::iter::from_fn(|| {
            let first = candidates.first(search)?;
            candidates.pass(search.brain, true);
            Some((first.workload, first.goes_on, first.variant))
        })
        .collect()
    }

    #[test]
    fn what_is_merged_comes_in_the_order_of_what_is_sorted() {
        let mut stopping = 0;
        for seed in 0..200 {
            let mut brain = borrowers(seed, Displaces::Any);
            let queue = brain.queue_id("q0").unwrap();
            let (waits, _) = new(&mut brain, "waits", queue, (1, 0), &BOTH);
            let workload = brain.wait(waits);
            let (node, tree) = brain.queue(queue).node.zip(brain.queue(queue).tree).unwrap();
            let cells = BOTH
                .map(|(resource, flavor)| (brain.flavor_id(flavor), brain.resource(resource)))
                .map(|key| brain.forest.find_cell(tree, key).unwrap());
            let (charge, contested) = (cells.map(|cell| (cell, Amount(1))).into(), cells.into());
            let mut anywhere = Anywhere;
            let search = Search {
                brain: &mut brain,
                places: &mut anywhere,
                workload,
                queue,
                node,
                charge,
                contested,
                topology: None,
                rooms: false,
                within: None,
            };
            let mut sources = Vec::new();
            let cohort = search.brain.forest.root(node);
            search.of_subtree(cohort, cohort, None, false, &mut sources);
            let listed = drained(search.collected(&sources, Displaces::Any), &search);
            assert!(listed.len() >= 12, "{listed:?}");
            stopping += listed.iter().filter(|(_, goes_on, _)| !goes_on).count();
            assert_eq!(drained(search.merged(&sources), &search), listed, "seed {seed}");
        }
        assert!(stopping > 200, "{stopping}");
    }
}
