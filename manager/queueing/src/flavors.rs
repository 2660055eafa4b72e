//! Which flavors a workload gets: per group of pod sets and resource group, the first flavor in the queue's order that serves
//! as `flavorFungibility` wants it.

mod attempts;
mod scan;

pub use attempts::Attempt;
pub use scan::Scan;

use crate::amount::Amount;
use crate::brain::Brain;
use crate::model::{
    Delayed, Fungibility, Given, Group, PodSet, QueueId, QueueSetup, Requests, Shape, Usage, Workload,
    WorkloadId, amount_of,
};
use crate::names::{FlavorId, ResourceId};
use crate::reason::{Obstacle, Reason};
use crate::tree::CellId;
use attempts::Attempts;
use meridian_shared::gang::TaintEffect;
use meridian_topology::Assignment as Placed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether a flavor can be given, from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// No.
    NoFit,
    /// If others give way.
    Preempt,
    /// Once others, who give way already, are gone.
    DeferredFit,
    /// At once.
    Fit,
}

/// What displacing others would bring, from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Possibility {
    /// It doesn't fit whatever gives way.
    NoFit,
    /// Nobody may be displaced for it.
    NoCandidates,
    /// Workloads of its own queue are among the victims.
    Preempt,
    /// Only other queues' workloads are.
    Reclaim,
    /// Nobody has to be.
    Fit,
}

impl Possibility {
    fn mode(self) -> Mode {
        match self {
            Self::NoFit => Mode::NoFit,
            Self::NoCandidates | Self::Preempt | Self::Reclaim => Mode::Preempt,
            Self::Fit => Mode::Fit,
        }
    }
}

/// One way to serve a request: whether others must give way, and from how far away quota comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// Whether others must give way.
    pub possibility: Possibility,
    /// Height of the subtree that holds it; zero is the queue's own quota.
    pub borrowing: u32,
}

impl Prospect {
    const WORST: Self = Self { possibility: Possibility::NoFit, borrowing: u32::MAX };
    const BEST: Self = Self { possibility: Possibility::Fit, borrowing: 0 };

    /// Whether it is strictly better than the other.
    pub fn beats(self, other: Self, fungibility: &Fungibility) -> bool {
        use Possibility::{NoCandidates, NoFit};
        if self.possibility == NoFit || other.possibility == NoFit {
            return self.possibility != NoFit;
        }
        if (self.possibility == NoCandidates) != (other.possibility == NoCandidates) {
            return self.possibility != NoCandidates;
        }
        let (by_preemption, by_borrowing) =
            (self.possibility.cmp(&other.possibility), other.borrowing.cmp(&self.borrowing));
        let order = if fungibility.prefers_preemption {
            by_borrowing.then(by_preemption)
        } else {
            by_preemption.then(by_borrowing)
        };
        order.is_gt()
    }

    fn goes_on(self, fungibility: &Fungibility) -> bool {
        match self.possibility {
            Possibility::NoFit | Possibility::NoCandidates => true,
            Possibility::Preempt | Possibility::Reclaim if !fungibility.preempt_rather_than_next => true,
            _ => self.borrowing > 0 && fungibility.next_rather_than_borrow,
        }
    }
}

/// A flavor chosen for one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The flavor.
    pub flavor: FlavorId,
    /// Whether it can be given.
    pub mode: Mode,
    /// Place of the last flavor that was looked at; -1 after the last of the list.
    pub tried: i32,
    /// From how far away quota comes.
    pub borrowing: u32,
}

/// What one pod set would be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSetAssignment {
    /// Flavor of each resource, in the order of the resources' names.
    pub flavors: Vec<(ResourceId, Choice)>,
    /// Why not, or not at once.
    pub reasons: Vec<Reason>,
    /// What all its pods take of quota.
    pub requests: Requests,
    /// Its pods.
    pub count: u32,
    /// Where they would lie.
    pub placement: Option<Placed>,
    /// Whether that is to come later.
    pub delayed: Option<Delayed>,
    /// The request itself can't be served.
    pub broken: bool,
    /// Flavors that were looked at.
    pub attempts: Vec<Attempt>,
}

impl PodSetAssignment {
    /// The worst mode among its resources.
    pub fn mode(&self) -> Mode {
        if self.broken {
            Mode::NoFit
        } else if self.reasons.is_empty() {
            Mode::Fit
        } else {
            self.flavors.iter().map(|(_, c)| c.mode).min().unwrap_or(Mode::NoFit)
        }
    }

    fn set_mode(&mut self, mode: Mode) {
        self.flavors.iter_mut().for_each(|(_, choice)| choice.mode = mode);
    }

    /// The flavor of a resource.
    pub fn flavor(&self, resource: ResourceId) -> Option<&Choice> {
        self.flavors.iter().find(|(r, _)| *r == resource).map(|(_, c)| c)
    }

    /// As it is given when it is admitted.
    pub fn given(&self) -> Given {
        Given {
            flavors: self.flavors.iter().map(|(resource, choice)| (*resource, choice.flavor)).collect(),
            usage: self.requests.iter().filter(|(r, _)| self.flavor(*r).is_some()).copied().collect(),
            count: self.count,
            placement: self.placement.clone(),
            delayed: self.delayed,
        }
    }
}

/// What a workload would be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Per pod set, as far as it came.
    pub pod_sets: Vec<PodSetAssignment>,
    /// From how far away quota comes, at most.
    pub borrowing: u32,
    /// Use of quota, less that of the slice that it replaces.
    pub usage: Usage,
    /// Where the scan of flavors goes on.
    pub scan: Scan,
    /// What is told as standing in the way, where nothing fits: Kueue's word.
    pub obstacle: Option<Obstacle>,
    /// What has to change before it starts, where nothing fits: another thing where Kueue's word is about more than is needed,
    /// or about less.
    pub barrier: Option<Obstacle>,
    /// The slice that it replaces.
    pub replaces: Option<WorkloadId>,
    fixed: Option<Mode>,
}

impl Assignment {
    /// The worst mode among its pod sets.
    pub fn mode(&self) -> Mode {
        if self.pod_sets.is_empty() {
            return Mode::NoFit;
        }
        self.fixed
            .unwrap_or_else(|| self.pod_sets.iter().map(PodSetAssignment::mode).min().unwrap_or(Mode::NoFit))
    }

    /// Pods of each pod set.
    pub fn counts(&self) -> Vec<u32> {
        self.pod_sets.iter().map(|set| set.count).collect()
    }

    /// Sets the mode of everything.
    pub fn set_mode(&mut self, mode: Mode) {
        self.fixed = Some(mode);
        self.pod_sets.iter_mut().for_each(|set| set.set_mode(mode));
    }

    /// Sets the mode of a pod set. Its group was given the flavors together: what becomes of one resource becomes of it in every
    /// member.
    pub(crate) fn set_mode_in_group(&mut self, at: usize, group: &[usize], mode: Mode) {
        let resources: Vec<ResourceId> =
            self.pod_sets[at].flavors.iter().map(|(resource, _)| *resource).collect();
        for member in group {
            let flavors = self.pod_sets[*member].flavors.iter_mut();
            flavors
                .filter(|(resource, _)| resources.contains(resource))
                .for_each(|(_, choice)| choice.mode = mode);
        }
        self.fixed = Some(mode);
    }

    pub(crate) fn break_pod_set(&mut self, at: usize, why: Reason) {
        self.pod_sets[at].broken = true;
        self.pod_sets[at].reasons.push(why);
        self.fixed = None;
    }

    /// Flavors and resources for which others would have to give way.
    pub fn contested(&self) -> Vec<(FlavorId, ResourceId)> {
        let mut found: Vec<_> = self
            .pod_sets
            .iter()
            .flat_map(|set| {
                set.flavors
                    .iter()
                    .filter(|(_, c)| c.mode == Mode::Preempt)
                    .map(|(resource, c)| (c.flavor, *resource))
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Every reason, by pod set.
    pub fn reasons(&self) -> impl Iterator<Item = (usize, &Reason)> {
        self.pod_sets.iter().enumerate().flat_map(|(at, set)| set.reasons.iter().map(move |r| (at, r)))
    }
}

/// What all pods of a set take, and what it has already.
#[derive(Clone, Debug, Default)]
pub(crate) struct Total {
    pub(crate) requests: Requests,
    pub(crate) count: u32,
    pub(crate) flavors: BTreeMap<ResourceId, FlavorId>,
    pub(crate) placement: Option<Placed>,
    pub(crate) delayed: Option<Delayed>,
}

impl Total {
    fn scaled(&self, count: u32) -> Self {
        let mut scaled = self.clone();
        if self.placement.is_none() && self.count != 0 && self.count != count {
            for (_, amount) in &mut scaled.requests {
                *amount = (*amount / i64::from(self.count)).saturating_mul(i64::from(count));
            }
            scaled.count = count;
        }
        scaled
    }
}

/// What the workload takes per pod set: of its holding where it holds quota, else of its shape.
pub(crate) fn totals(shape: &Shape, workload: &Workload) -> Vec<Total> {
    let Some(holding) = &workload.holding else {
        let total = |(at, set): (usize, &PodSet)| {
            let count = shape.count(at);
            let requests =
                set.per_pod.iter().map(|(r, a)| (*r, a.max(&0).saturating_mul(i64::from(count)))).collect();
            Total { requests, count, ..Total::default() }
        };
        return shape.pod_sets.iter().enumerate().map(total).collect();
    };
    let total = |(at, given): (usize, &Given)| {
        let mut total = Total {
            requests: given.usage.clone(),
            count: given.count,
            flavors: given.flavors.clone(),
            placement: given.placement.clone(),
            delayed: given.delayed,
        };
        // Pods that are no longer needed don't count; a set that was admitted smaller stays so.
        let needed = shape.pod_sets.get(at).map_or(given.count, |_| shape.count(at));
        if needed < total.count {
            for (_, amount) in &mut total.requests {
                *amount = (*amount / i64::from(total.count)).saturating_mul(i64::from(needed));
            }
            total.count = needed;
        }
        total
    };
    holding.given.iter().enumerate().map(total).collect()
}

/// Answers what displacing others would bring for one flavor and resource.
pub trait Oracle {
    /// The possibility, and from how far away quota would come then.
    fn simulate(
        &mut self,
        brain: &mut Brain,
        workload: WorkloadId,
        key: (FlavorId, ResourceId),
        amount: Amount,
    ) -> (Possibility, u32);

    /// The same of those who stop for this workload already, where they are enough.
    fn begun(
        &mut self,
        _: &mut Brain,
        _: WorkloadId,
        _: (FlavorId, ResourceId),
        _: Amount,
    ) -> Option<(Possibility, u32)> {
        None
    }
}

/// Chooses flavors for one workload.
pub(crate) struct Assigner<'a> {
    pub(crate) brain: &'a mut Brain,
    pub(crate) workload: WorkloadId,
    pub(crate) queue: QueueId,
    pub(crate) oracle: &'a mut dyn Oracle,
    /// The slice that it replaces.
    pub(crate) replaces: Option<WorkloadId>,
    /// Flavors that it was nominated for earlier in this cycle, per pod set.
    pub(crate) nominated: Option<&'a [Vec<(ResourceId, FlavorId)>]>,
    /// The oracle isn't asked for now.
    pub(crate) lazy: bool,
}

impl Brain {
    /// Which flavors a workload would get in a queue as the books are now, `oracle` saying what displacing others would bring.
    pub fn assign_flavors(
        &mut self,
        workload: WorkloadId,
        queue: QueueId,
        oracle: &mut dyn Oracle,
        replaces: Option<WorkloadId>,
    ) -> Assignment {
        Assigner { brain: self, workload, queue, oracle, replaces, nominated: None, lazy: false }.assign(None)
    }
}

/// What a resource group found.
struct Found {
    flavors: Vec<(ResourceId, Choice)>,
    reasons: Vec<Reason>,
    failed: bool,
}

impl Assigner<'_> {
    /// Chooses flavors for every pod set, with `counts` pods where they are given.
    pub(crate) fn assign(&mut self, counts: Option<&[u32]>) -> Assignment {
        self.brain.searched.clear();
        let setup = self.brain.queues[crate::names::Id::index(self.queue)].setup.clone();
        let workload = &self.brain.workloads[&self.workload];
        let shape = self.brain.shape_of(workload.shape).clone();
        let mut totals = totals(&shape, workload);
        if let Some(counts) = counts {
            totals = totals.iter().zip(counts).map(|(t, c)| t.scaled(*c)).collect();
        }
        let queue = self.brain.queue(self.queue);
        let scan = Scan::new(queue.generation, queue.cycles, workload.shape);
        let mut assignment = Assignment { scan, replaces: self.replaces, ..Assignment::default() };
        if let Some(pods) = self.brain.pods_resource().filter(|pods| setup.group_of(*pods).is_some()) {
            for total in &mut totals {
                self.brain.put(&mut total.requests, pods, i64::from(total.count));
            }
        }
        for group in groups(&shape) {
            let failed = self.assign_group(&setup, &shape, &totals, &group, &mut assignment);
            if failed {
                break;
            }
        }
        // Pod sets of one group may lie apart in the list: back to the order of the workload.
        self.in_order(&shape, &mut assignment);
        let complete = assignment.pod_sets.len() == shape.pod_sets.len();
        if complete && assignment.mode() != Mode::NoFit && self.brain.settings.gates.topology {
            self.place(&mut assignment);
        }
        assignment.obstacle = attempts::obstacle(&assignment, &setup);
        assignment.barrier = attempts::barrier(&assignment);
        assignment
    }

    fn in_order(&self, shape: &Shape, assignment: &mut Assignment) {
        let order: Vec<usize> = groups(shape).into_iter().flatten().collect();
        if order.is_sorted() {
            return;
        }
        let mut sets: Vec<(usize, PodSetAssignment)> =
            order.iter().copied().zip(std::mem::take(&mut assignment.pod_sets)).collect();
        sets.sort_by_key(|(at, _)| *at);
        assignment.pod_sets = sets.into_iter().map(|(_, set)| set).collect();
        assignment.scan.reorder(&order);
    }

    /// True when no flavor serves the group.
    fn assign_group(
        &mut self,
        setup: &Arc<QueueSetup>,
        shape: &Shape,
        totals: &[Total],
        group: &[usize],
        assignment: &mut Assignment,
    ) -> bool {
        let mut requests = totals[group[0]].requests.clone();
        for at in &group[1..] {
            for (resource, amount) in &totals[*at].requests {
                let sum = amount_of(&requests, *resource).saturating_add(*amount);
                self.brain.put(&mut requests, *resource, sum);
            }
        }
        let mut attempts = Attempts::default();
        let mut chosen: Vec<(ResourceId, Choice)> = Vec::new();
        for at in group {
            for (resource, flavor) in &totals[*at].flavors {
                if !chosen.iter().any(|(r, _)| r == resource) {
                    chosen.push((
                        *resource,
                        Choice { flavor: *flavor, mode: Mode::Fit, tried: 0, borrowing: 0 },
                    ));
                }
            }
        }
        let reasons =
            self.choose(setup, shape, group, &requests, &assignment.usage, &mut attempts, &mut chosen);
        let nothing = reasons.is_err();
        let reasons = reasons.unwrap_or_else(|reasons| reasons);
        let attempts = attempts.finish(self.brain);
        let mut failed = false;
        for at in group {
            let total = &totals[*at];
            let flavors = self.of_pod_set(&shape.pod_sets[*at], total, &chosen);
            failed |= !total.requests.is_empty()
                && flavors.is_empty()
                && (nothing || total.requests.iter().any(|(r, a)| *a != 0 && setup.group_of(*r).is_some()));
            let set = PodSetAssignment {
                flavors,
                reasons: reasons.clone(),
                requests: total.requests.clone(),
                count: total.count,
                placement: total.placement.clone(),
                delayed: total.delayed,
                broken: nothing,
                attempts: attempts.clone(),
            };
            self.append(assignment, *at, set);
        }
        failed
    }

    /// Adds to what is chosen what the requests still lack, and says why it can't be given at once. Where one of them isn't
    /// given at all, nothing is.
    #[expect(clippy::too_many_arguments, reason = "they are one question")]
    fn choose(
        &mut self,
        setup: &Arc<QueueSetup>,
        shape: &Shape,
        group: &[usize],
        requests: &Requests,
        usage: &Usage,
        attempts: &mut Attempts,
        chosen: &mut Vec<(ResourceId, Choice)>,
    ) -> Result<Vec<Reason>, Vec<Reason>> {
        let mut reasons = Vec::new();
        for (resource, amount) in self.brain.walked(requests) {
            let Some(resource_group) = setup.group_of(resource) else {
                if amount == 0
                    || self.brain.settings.ignores_undeclared()
                    || chosen.iter().any(|(r, _)| *r == resource)
                {
                    continue;
                }
                chosen.clear();
                return Err(vec![Reason::ResourceNotCovered { resource }]);
            };
            if chosen.iter().any(|(r, _)| *r == resource) {
                continue;
            }
            let before = attempts.begin();
            let found = self.find(setup, shape, group, resource_group, requests, resource, usage, attempts);
            attempts.merge(before, resource_group);
            if found.failed || found.flavors.is_empty() {
                chosen.clear();
                return Err(found.reasons);
            }
            // Where groups overlap, the later one decides.
            chosen.retain(|(resource, _)| !found.flavors.iter().any(|(other, _)| other == resource));
            chosen.extend(found.flavors);
            reasons.push((resource_group.first_among(requests), found.reasons));
        }
        // Told in the order of names, whichever was looked for first.
        reasons.sort_by_key(|(first, _)| *first);
        Ok(reasons.into_iter().flat_map(|(_, reasons)| reasons).collect())
    }

    /// The flavors of one pod set, of those that its group got.
    fn of_pod_set(
        &self,
        set: &PodSet,
        total: &Total,
        chosen: &[(ResourceId, Choice)],
    ) -> Vec<(ResourceId, Choice)> {
        if !total.requests.is_empty() {
            return total
                .requests
                .iter()
                .filter_map(|(r, _)| chosen.iter().find(|(of, _)| of == r).copied())
                .collect();
        }
        if set.group.is_none() {
            return Vec::new();
        }
        // A leader that asks for nothing is still placed with its group.
        chosen.iter().filter(|(_, c)| self.brain.has_topology(c.flavor)).copied().collect()
    }

    fn append(&mut self, assignment: &mut Assignment, at: usize, set: PodSetAssignment) {
        let mut tried = Vec::with_capacity(set.flavors.len());
        for (resource, choice) in &set.flavors {
            assignment.borrowing = assignment.borrowing.max(choice.borrowing);
            let mut amount = amount_of(&set.requests, *resource);
            if let Some(old) = self.replaced(at) {
                amount -= amount_of(&old.requests, *resource);
            }
            let key = (choice.flavor, *resource);
            match assignment.usage.iter_mut().find(|(k, _)| *k == key) {
                Some((_, sum)) => *sum = *sum + Amount(amount),
                None => assignment.usage.push((key, Amount(amount))),
            }
            tried.push((*resource, choice.tried));
        }
        assignment.scan.tried.push(tried);
        assignment.pod_sets.push(set);
    }

    /// What the replaced slice has for a pod set.
    fn replaced(&self, at: usize) -> Option<Total> {
        let old = self.brain.workloads.get(&self.replaces?)?;
        let shape = self.brain.shape_of(old.shape);
        totals(shape, old).into_iter().nth(at)
    }

    /// Flavors for one resource group. Where a later flavor fits anyway, it doesn't matter what displacing others would bring in
    /// an earlier one, and it isn't asked unless it is to be explained.
    #[expect(clippy::too_many_arguments, reason = "they are one question")]
    fn find(
        &mut self,
        setup: &Arc<QueueSetup>,
        shape: &Shape,
        group: &[usize],
        resource_group: &Group,
        requests: &Requests,
        resource: ResourceId,
        usage: &Usage,
        attempts: &mut Attempts,
    ) -> Found {
        let goes_on_anyway =
            !setup.fungibility.preempt_rather_than_next && !setup.fungibility.prefers_preemption;
        // Whom others stop for already has its answer there, and there only (simulation seed 1795448769118061).
        let awaits = self.brain.workloads[&self.workload].displaces_for.is_some();
        let one_of_many = self.brain.settings.gates.flavor_fungibility
            && goes_on_anyway
            && resource_group.flavors.len() > 1;
        self.lazy = self.brain.settings.brief && one_of_many && !awaits;
        let before = attempts.begin();
        let found = self.find_now(setup, shape, group, resource_group, requests, resource, usage, attempts);
        let guessed = self.lazy && !found.flavors.iter().all(|(_, c)| c.mode == Mode::Fit);
        self.lazy = false;
        if !guessed {
            return found;
        }
        attempts.rewind(before);
        self.find_now(setup, shape, group, resource_group, requests, resource, usage, attempts)
    }

    #[expect(clippy::too_many_arguments, reason = "they are one question")]
    fn find_now(
        &mut self,
        setup: &Arc<QueueSetup>,
        shape: &Shape,
        group: &[usize],
        resource_group: &Group,
        requests: &Requests,
        resource: ResourceId,
        usage: &Usage,
        attempts: &mut Attempts,
    ) -> Found {
        let gates = &self.brain.settings.gates;
        let (fungible, concurrent) = (gates.flavor_fungibility, gates.concurrent_admission);
        let wanted: Vec<(ResourceId, i64)> =
            requests.iter().filter(|(r, _)| resource_group.resources.contains(r)).copied().collect();
        let mut best: Vec<(ResourceId, Choice)> = Vec::new();
        let mut best_option = Prospect::WORST;
        let mut reasons = Vec::new();
        let start = if fungible {
            self.brain.workloads[&self.workload].scan.as_ref().map_or(0, |s| s.next(group[0], resource))
        } else {
            0
        };
        let mut looked_at = None;
        for (at, flavor) in resource_group.flavors.iter().copied().enumerate().skip(start) {
            looked_at = Some(at);
            if let Some(nominated) = self.nominated
                && !group
                    .iter()
                    .any(|set| nominated.get(*set).is_some_and(|n| n.contains(&(resource, flavor))))
            {
                reasons.push(Reason::NotNominated { flavor, resource });
                continue;
            }
            let pinned = &self.brain.workloads[&self.workload].marks().pinned;
            if !pinned.is_empty() && !pinned.contains(&flavor) {
                reasons.push(Reason::SliceFlavor { flavor, original: pinned.first().copied() });
                continue;
            }
            if concurrent && shape.allowed_flavors.as_ref().is_some_and(|allowed| !allowed.contains(&flavor))
            {
                reasons.push(Reason::NotAllowed { flavor });
                continue;
            }
            if let Some(why) = self.brain.unsuitable(self.queue, shape, group, resource_group, flavor) {
                attempts.no_fit(flavor, why.clone());
                reasons.push(why);
                continue;
            }
            let mut option = Prospect::BEST;
            let mut choices = Vec::with_capacity(wanted.len());
            let mut why = Vec::new();
            let mut obstacle = None;
            let mut borrow_most = 0;
            for (resource, amount) in &wanted {
                let mut amount = *amount;
                if let Err(original) = self.beyond_slice(group, (flavor, *resource), &mut amount) {
                    option = Prospect::WORST;
                    why.push(Reason::SliceFlavor { flavor, original });
                    obstacle = obstacle.max(Some(Obstacle::NoMatchingFlavor));
                }
                let key = (flavor, *resource);
                let assumed = usage.iter().find(|(k, _)| *k == key).map_or(Amount::ZERO, |(_, a)| *a);
                let fit = self.fits(setup, key, assumed, amount);
                borrow_most = borrow_most.max(fit.option.borrowing);
                if let Some((reason, hurdle)) = fit.why {
                    why.push(reason);
                    obstacle = obstacle.max(hurdle);
                }
                if option.beats(fit.option, &setup.fungibility) {
                    option = fit.option;
                }
                if option.possibility == Possibility::NoFit {
                    continue;
                }
                choices.push((
                    *resource,
                    Choice {
                        flavor,
                        mode: fit.option.possibility.mode(),
                        tried: 0,
                        borrowing: fit.option.borrowing,
                    },
                ));
            }
            attempts.tried(flavor, option.possibility, borrow_most, &why, obstacle);
            reasons.extend(why);
            if fungible {
                let stay = !option.goes_on(&setup.fungibility);
                if stay || option.beats(best_option, &setup.fungibility) {
                    (best, best_option) = (choices, option);
                }
                if stay {
                    break;
                }
            } else if option.possibility > best_option.possibility {
                (best, best_option) = (choices, option);
                if best_option.possibility == Possibility::Fit {
                    break;
                }
            }
        }
        if fungible {
            let tried = match looked_at {
                Some(at) if at + 1 < resource_group.flavors.len() => i32::try_from(at).unwrap_or(i32::MAX),
                _ => -1,
            };
            best.iter_mut().for_each(|(_, choice)| choice.tried = tried);
        }
        if best_option.possibility == Possibility::Fit {
            reasons.clear();
        }
        Found { flavors: best, reasons, failed: false }
    }

    /// What is needed besides what the replaced slice has of a flavor. The flavor that it has instead, where a member of the group
    /// has another one, or none; what that member and those after it have isn't taken off then, as in Kueue.
    fn beyond_slice(
        &self,
        group: &[usize],
        (flavor, resource): (FlavorId, ResourceId),
        asks: &mut i64,
    ) -> Result<(), Option<FlavorId>> {
        let Some(old) = self.replaces.and_then(|old| self.brain.workloads.get(&old)) else { return Ok(()) };
        let totals = totals(self.brain.shape_of(old.shape), old);
        for total in group.iter().filter_map(|at| totals.get(*at)) {
            let original = total.flavors.get(&resource).copied();
            if original != Some(flavor) {
                return Err(original);
            }
            *asks -= amount_of(&total.requests, resource);
        }
        Ok(())
    }

    fn fits(&mut self, setup: &QueueSetup, key: (FlavorId, ResourceId), assumed: Amount, asks: i64) -> Fit {
        let (flavor, resource) = key;
        let amount = assumed + Amount(asks);
        let queue = self.brain.queue(self.queue);
        let place = queue.node.zip(queue.tree.and_then(|tree| self.brain.forest.find_cell(tree, key)));
        let most = place.map_or(Amount::ZERO, |(node, cell)| self.brain.forest.cell(node, cell).potential);
        if amount > most {
            let why = Reason::ExceedsMax { flavor, resource, before: assumed, asks, most };
            return Fit {
                option: Prospect { possibility: Possibility::NoFit, borrowing: 0 },
                why: Some((why, Some(Obstacle::ExceedsMaxQuota))),
            };
        }
        let Some((node, cell)) = place else { return Fit { option: Prospect::BEST, why: None } };
        let (borrowing, may_reclaim) = self.brain.forest.lowest_fit(node, cell, amount);
        let available = self.brain.forest.available(node, cell);
        if amount <= available {
            return Fit { option: Prospect { possibility: Possibility::Fit, borrowing }, why: None };
        }
        let why = Reason::Short { flavor, resource, missing: amount - available };
        let nominal = self.brain.forest.cell(node, cell).quota.nominal;
        let while_borrowing = setup.preemption.borrow_within_cohort.is_some()
            || (self.brain.settings.fair_sharing.is_some()
                && setup.preemption.reclaim_within_cohort != crate::model::Displaces::Never);
        // Who made others stop by a right that is used up since goes on waiting for them (simulation seed 85110).
        if let Some((possibility, borrowing)) = self.oracle.begun(self.brain, self.workload, key, amount) {
            return Fit { option: Prospect { possibility, borrowing }, why: Some((why, None)) };
        }
        if nominal >= amount || may_reclaim || while_borrowing {
            let (possibility, borrowing) = match self.lazy {
                true => (Possibility::NoCandidates, borrowing),
                false => self.oracle.simulate(self.brain, self.workload, key, amount),
            };
            let hurdle = (possibility == Possibility::NoFit).then_some(Obstacle::WaitingForQuota);
            return Fit { option: Prospect { possibility, borrowing }, why: Some((why, hurdle)) };
        }
        Fit {
            option: Prospect { possibility: Possibility::NoFit, borrowing },
            why: Some((why, Some(Obstacle::WaitingForQuota))),
        }
    }
}

impl Brain {
    /// Why the flavor can't serve these pods at all.
    pub(crate) fn unsuitable(
        &self,
        queue: QueueId,
        shape: &Shape,
        group: &[usize],
        resource_group: &Group,
        flavor: FlavorId,
    ) -> Option<Reason> {
        let Some(spec) = self.flavor(flavor) else { return Some(Reason::FlavorNotFound { flavor }) };
        for at in group {
            let set = &shape.pod_sets[*at];
            if (self.settings.gates.topology || self.settings.placed_by_others)
                && let Some(why) = self.topology_mismatch(queue, set, flavor, resource_group)
            {
                return Some(why);
            }
            let untolerated = spec.taints.iter().find(|taint| {
                taint.effect != TaintEffect::PreferNoSchedule
                    && !set.tolerations.iter().chain(&spec.tolerations).any(|t| t.covers(taint))
            });
            if let Some(taint) = untolerated {
                let effect = match taint.effect {
                    TaintEffect::NoSchedule => "NoSchedule",
                    TaintEffect::NoExecute => "NoExecute",
                    TaintEffect::PreferNoSchedule => "PreferNoSchedule",
                };
                let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
                return Some(Reason::Taint { flavor, taint: format!("{}{value}:{effect}", taint.key) });
            }
            let selected =
                set.node_selector.iter().all(|(k, v)| spec.labels.get(k).is_none_or(|has| has == v));
            if !selected || !affine(set, &spec.labels) {
                return Some(Reason::Affinity { flavor });
            }
        }
        None
    }

    fn topology_mismatch(
        &self,
        queue: QueueId,
        set: &PodSet,
        flavor: FlavorId,
        resource_group: &Group,
    ) -> Option<Reason> {
        let spec = self.flavor(flavor)?;
        if set.wants_topology() {
            if spec.topology.is_none() {
                // It may still give what isn't placed on nodes.
                let overlaps = set.on_node.keys().any(|name| {
                    self.resource_id(name).is_some_and(|r| resource_group.resources.contains(&r))
                });
                return overlaps.then_some(Reason::NoTopology { flavor });
            }
            if !self.has_topology(flavor) && spec.levels.is_none() {
                return Some(Reason::TopologyUnknown { flavor });
            }
            return (!self.has_levels(flavor, set)).then_some(Reason::NoLevel { flavor });
        }
        let implied = self.queue(queue).topology_only;
        (!implied && spec.topology.is_some()).then_some(Reason::TopologyOnly { flavor })
    }
}

struct Fit {
    option: Prospect,
    why: Option<(Reason, Option<Obstacle>)>,
}

/// Pod sets that are decided on together, in the order of the first of each.
pub(crate) fn groups(shape: &Shape) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Option<&String>, Vec<usize>)> = Vec::new();
    for (at, set) in shape.pod_sets.iter().enumerate() {
        match groups.iter_mut().find(|(name, _)| name.is_some() && *name == set.group.as_ref()) {
            Some((_, members)) => members.push(at),
            None => groups.push((set.group.as_ref(), vec![at])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// Required node affinity against a flavor's labels; keys that the flavor doesn't have say nothing.
fn affine(set: &PodSet, labels: &BTreeMap<String, String>) -> bool {
    let mut any = set.affinity.is_empty();
    for term in &set.affinity {
        let mut known = term.iter().filter(|r| labels.contains_key(&r.key)).peekable();
        if known.peek().is_none() {
            return true;
        }
        any |= known.all(|r| r.matches(labels));
    }
    any
}

/// The use of quota by cells of one tree; what the tree doesn't know is left out.
pub(crate) fn charge(brain: &Brain, queue: QueueId, usage: &Usage) -> Vec<(CellId, Amount)> {
    let Some(tree) = brain.queue(queue).tree else { return Vec::new() };
    usage
        .iter()
        .filter_map(|(key, amount)| brain.forest.find_cell(tree, *key).map(|cell| (cell, *amount)))
        .collect()
}
