//! The search for a flavor in one resource group.

use crate::amount::Amount;
use crate::flavors::assigner::GroupRequest;
use crate::flavors::attempts::Attempts;
use crate::flavors::{FlavorAssigner, GranularMode, flavor_mismatch};
use crate::model::{
    FlavorAssignment, Mode, Obstacle, PreemptionPossibility, PreemptionRule, QueueSetup, Reason,
    ResourceGroup, amount_of, request_totals,
};
use crate::names::{FlavorId, ResourceId};

/// Flavors found in one resource group. Empty if none fits.
pub(super) struct GroupResult {
    pub(super) flavors: Vec<(ResourceId, FlavorAssignment)>,
    pub(super) reasons: Vec<Reason>,
}

/// Whether preemption is simulated during a search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Simulation {
    On,
    Off,
}

/// How well a flavor fits for all resources of its group.
struct FlavorOption {
    choices: Vec<(ResourceId, FlavorAssignment)>,
    mode: GranularMode,
    /// Maximum height of the subtrees that provide the quota.
    borrowing: u32,
    reasons: Vec<Reason>,
    obstacle: Option<Obstacle>,
}

/// How well a flavor fits for one resource.
struct QuotaFit {
    mode: GranularMode,
    why: Option<(Reason, Option<Obstacle>)>,
}

impl QuotaFit {
    fn new(possibility: PreemptionPossibility, borrowing: u32) -> Self {
        Self { mode: GranularMode { possibility, borrowing }, why: None }
    }

    fn because(self, reason: Reason, obstacle: Option<Obstacle>) -> Self {
        Self { why: Some((reason, obstacle)), ..self }
    }
}

impl FlavorAssigner<'_> {
    /// Searches the flavors of a resource group. If a later flavor fits without preemption, preemption in
    /// earlier flavors is simulated only for explanations.
    pub(super) fn find(
        &mut self,
        request: GroupRequest<'_>,
        resource_group: &ResourceGroup,
        resource: ResourceId,
        attempts: &mut Attempts,
    ) -> GroupResult {
        let fungibility = &request.setup.fungibility;
        let continues_anyway = !fungibility.preempt_rather_than_next && !fungibility.prefers_preemption;
        // If victims are stopping for the workload, only the simulation in their flavor finds that they
        // suffice, so don't skip it.
        let awaits_victims = self.state.get(&self.workload).progress.pending_preemption.is_some();
        let settings = self.state.settings();
        let one_of_many =
            settings.gates.flavor_fungibility && continues_anyway && resource_group.flavors.len() > 1;
        if settings.brief && one_of_many && !awaits_victims {
            let before = attempts.begin();
            let found = self.search(request, resource_group, resource, attempts, Simulation::Off);
            if found.flavors.iter().all(|(_, c)| c.mode == Mode::Fit) {
                return found;
            }
            attempts.rewind(before);
        }
        self.search(request, resource_group, resource, attempts, Simulation::On)
    }

    fn search(
        &mut self,
        request: GroupRequest<'_>,
        resource_group: &ResourceGroup,
        resource: ResourceId,
        attempts: &mut Attempts,
        simulation: Simulation,
    ) -> GroupResult {
        let fungible = self.state.settings().gates.flavor_fungibility;
        let fungibility = &request.setup.fungibility;
        let is_covered = |(r, _): &&(ResourceId, i64)| resource_group.resources.contains(r);
        let requested: Vec<(ResourceId, i64)> = request.requests.iter().filter(is_covered).copied().collect();
        let (mut best, mut best_mode) = (Vec::new(), GranularMode::WORST);
        let mut reasons = Vec::new();
        let scan = self.state.get(&self.workload).progress.scan.as_ref().filter(|_| fungible);
        let start = scan.map_or(0, |scan| scan.next(request.group[0], resource));
        let mut evaluated = None;
        for (at, flavor) in resource_group.flavors.iter().copied().enumerate().skip(start) {
            evaluated = Some(at);
            if let Some(why) = self.is_ruled_out(request, flavor, resource) {
                reasons.push(why);
                continue;
            }
            let mismatch =
                flavor_mismatch(self.state, self.queue, request.shape, request.group, resource_group, flavor);
            if let Some(why) = mismatch {
                attempts.no_fit(flavor, why.clone());
                reasons.push(why);
                continue;
            }
            let option = self.evaluate(request, flavor, &requested, simulation);
            let mode = option.mode;
            attempts.tried(flavor, mode.possibility, option.borrowing, &option.reasons, option.obstacle);
            reasons.extend(option.reasons);
            if fungible {
                let stay = !mode.continues_search(fungibility);
                if stay || mode.is_better_than(best_mode, fungibility) {
                    (best, best_mode) = (option.choices, mode);
                }
                if stay {
                    break;
                }
            } else if mode.possibility > best_mode.possibility {
                (best, best_mode) = (option.choices, mode);
                if best_mode.possibility == PreemptionPossibility::Fit {
                    break;
                }
            }
        }
        if fungible {
            let tried = match evaluated {
                Some(at) if at + 1 < resource_group.flavors.len() => i32::try_from(at).unwrap_or(i32::MAX),
                _ => -1,
            };
            best.iter_mut().for_each(|(_, choice)| choice.tried = tried);
        }
        if best_mode.possibility == PreemptionPossibility::Fit {
            reasons.clear();
        }
        GroupResult { flavors: best, reasons }
    }

    /// Why the workload may not get a flavor, regardless of the flavor's properties.
    fn is_ruled_out(
        &self,
        request: GroupRequest<'_>,
        flavor: FlavorId,
        resource: ResourceId,
    ) -> Option<Reason> {
        let nominated = |nominated: &[Vec<(ResourceId, FlavorId)>]| {
            let is_nominated =
                |set: &usize| nominated.get(*set).is_some_and(|n| n.contains(&(resource, flavor)));
            request.group.iter().any(is_nominated)
        };
        if self.nominated.is_some_and(|all| !nominated(all)) {
            return Some(Reason::NotNominated { flavor, resource });
        }
        let pinned = &self.state.get(&self.workload).marks().pinned;
        if !pinned.is_empty() && !pinned.contains(&flavor) {
            return Some(Reason::SliceFlavor { flavor, original: pinned.first().copied() });
        }
        let allowed = request.shape.allowed_flavors.as_ref();
        let concurrent = self.state.settings().gates.concurrent_admission;
        (concurrent && allowed.is_some_and(|allowed| !allowed.contains(&flavor)))
            .then_some(Reason::NotAllowed { flavor })
    }

    /// How well a suitable flavor fits for all requested resources of its group.
    fn evaluate(
        &mut self,
        request: GroupRequest<'_>,
        flavor: FlavorId,
        requested: &[(ResourceId, i64)],
        simulation: Simulation,
    ) -> FlavorOption {
        let mut option = FlavorOption {
            choices: Vec::with_capacity(requested.len()),
            mode: GranularMode::BEST,
            borrowing: 0,
            reasons: Vec::new(),
            obstacle: None,
        };
        for (resource, amount) in requested {
            let (key, mut amount) = ((flavor, *resource), *amount);
            if let Err(original) = self.subtract_slice(request.group, key, &mut amount) {
                option.mode = GranularMode::WORST;
                option.reasons.push(Reason::SliceFlavor { flavor, original });
                option.obstacle = option.obstacle.max(Some(Obstacle::NoMatchingFlavor));
            }
            let assumed = request.usage.iter().find(|(k, _)| *k == key).map_or(Amount::ZERO, |(_, a)| *a);
            let fit = self.quota_fit(request.setup, key, assumed, amount, simulation);
            option.borrowing = option.borrowing.max(fit.mode.borrowing);
            if let Some((reason, obstacle)) = fit.why {
                option.reasons.push(reason);
                option.obstacle = option.obstacle.max(obstacle);
            }
            if option.mode.is_better_than(fit.mode, &request.setup.fungibility) {
                option.mode = fit.mode;
            }
            if option.mode.possibility == PreemptionPossibility::NoFit {
                continue;
            }
            let (mode, borrowing) = (fit.mode.possibility.mode(), fit.mode.borrowing);
            option.choices.push((*resource, FlavorAssignment { flavor, mode, tried: 0, borrowing }));
        }
        option
    }

    /// Subtracts the replaced slice's amounts of a flavor. Fails with the slice's flavor if a member of the
    /// group has another flavor; as in Kueue, nothing is then subtracted for that member and the following
    /// ones.
    fn subtract_slice(
        &self,
        group: &[usize],
        key: (FlavorId, ResourceId),
        asks: &mut i64,
    ) -> Result<(), Option<FlavorId>> {
        let (flavor, resource) = key;
        let Some(old) = self.replaces.and_then(|old| self.state.workload(old)) else { return Ok(()) };
        let totals = request_totals(self.state.shape_of(old.shape), old);
        for total in group.iter().filter_map(|at| totals.get(*at)) {
            let original = total.flavors.get(&resource).copied();
            if original != Some(flavor) {
                return Err(original);
            }
            *asks -= amount_of(&total.requests, resource);
        }
        Ok(())
    }

    /// How well a flavor fits for one resource, in addition to the `assumed` usage of previous groups.
    fn quota_fit(
        &mut self,
        setup: &QueueSetup,
        key: (FlavorId, ResourceId),
        assumed: Amount,
        asks: i64,
        simulation: Simulation,
    ) -> QuotaFit {
        use PreemptionPossibility::{Fit, NoCandidates, NoFit};
        let (flavor, resource) = key;
        let amount = assumed + Amount(asks);
        let (queue, forest) = (self.state.queue(self.queue), self.state.forest());
        let place = queue.node.zip(queue.tree.and_then(|tree| forest.find_cell(tree, key)));
        let most = place.map_or(Amount::ZERO, |(node, cell)| forest.cell(node, cell).potential);
        if amount > most {
            let why = Reason::ExceedsMax { flavor, resource, before: assumed, asks, most };
            return QuotaFit::new(NoFit, 0).because(why, Some(Obstacle::ExceedsMaxQuota));
        }
        let Some((node, cell)) = place else { return QuotaFit::new(Fit, 0) };
        let (borrowing, may_reclaim) = forest.lowest_fit(node, cell, amount);
        let available = forest.available(node, cell);
        if amount <= available {
            return QuotaFit::new(Fit, borrowing);
        }
        let why = Reason::Short { flavor, resource, missing: amount - available };
        let nominal = forest.cell(node, cell).quota.nominal;
        let while_borrowing = setup.preemption.borrow_within_cohort.is_some()
            || (self.state.settings().fair_sharing.is_some()
                && setup.preemption.reclaim_within_cohort != PreemptionRule::Never);
        // A preemptor waits for its victims even if it could no longer preempt them. Pinned by
        // `semantics::preemption::preemptor_waits_for_victims_after_losing_its_right`.
        let stopping = self.oracle.simulate_with_stopping(self.state, self.workload, key, amount);
        if let Some((possibility, borrowing)) = stopping {
            return QuotaFit::new(possibility, borrowing).because(why, None);
        }
        if nominal < amount && !may_reclaim && !while_borrowing {
            return QuotaFit::new(NoFit, borrowing).because(why, Some(Obstacle::WaitingForQuota));
        }
        let (possibility, borrowing) = match simulation {
            Simulation::Off => (NoCandidates, borrowing),
            Simulation::On => self.oracle.simulate(self.state, self.workload, key, amount),
        };
        let obstacle = (possibility == NoFit).then_some(Obstacle::WaitingForQuota);
        QuotaFit::new(possibility, borrowing).because(why, obstacle)
    }
}
