//! P7: the policies of the preemptor's queue allow each preemption, as Kueue documents them.

use crate::sim::fleet::job::SimulatedJob;
use crate::sim::invariants::quota::state::{DecisionBasis, ElasticDemand, Preemption};
use crate::sim::invariants::violation::{Verdict, violation};
use crate::sim::reference_model::quota_forest::{NodeName, QuotaForest};
use meridian_queueing::preemption::PreemptionReason;
use meridian_shared::ids::{RecordNumber, Uid};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What decides between two workloads of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seniority {
    pub(super) submitted: RecordNumber,
    pub(super) priority: i64,
}

/// Checks of the preemptions of one outcome.
pub(super) struct RightsCheck<'a> {
    pub(super) jobs: &'a BTreeMap<Uid, SimulatedJob>,
    pub(super) demand: &'a ElasticDemand,
    /// Whether fair sharing is on.
    pub(super) fair: bool,
    /// All preemptions of the outcome, in order.
    pub(super) preemptions: &'a [Preemption],
    pub(super) is_pending: &'a dyn Fn(&Uid) -> bool,
}

/// Whether `withinClusterQueue` has a value that allows the preemption.
fn allowed_within_queue(policy: &str, victim: Seniority, preemptor: Seniority) -> bool {
    let lower = victim.priority < preemptor.priority;
    let newer = victim.priority == preemptor.priority && victim.submitted > preemptor.submitted;
    match policy {
        "LowerPriority" => lower,
        "LowerOrNewerEqualPriority" => lower || newer,
        _ => false,
    }
}

/// One preemption between two queues.
struct BetweenQueues<'a> {
    preemption: &'a Preemption,
    flavor: &'a str,
    victim_queue: &'a str,
    preemptor_queue: &'a str,
    /// Accelerators that the preemptor needs.
    needed: i64,
}

impl RightsCheck<'_> {
    /// Checks that the spec of the preemptor's queue allows a preemption.
    pub(super) fn check(
        &self,
        preemption: &Preemption,
        victim: Seniority,
        preemptor: Seniority,
        spec: &Value,
    ) -> Verdict {
        let (Some(victim_job), Some(preemptor_job)) =
            (self.jobs.get(&preemption.victim), self.jobs.get(&preemption.preemptor))
        else {
            return Ok(());
        };
        let forbidden = |why: &str| {
            let details = format!(
                "{} (priority {}, queue `{}`) is preempted for {} (priority {}, queue `{}`, {} accelerators) \
                 as {}: {why}: {}",
                preemption.victim,
                victim.priority,
                victim_job.queue,
                preemption.preemptor,
                preemptor.priority,
                preemptor_job.queue,
                preemptor_job.total_gpus(),
                preemption.reason.as_str(),
                preemption.basis.forest.describe()
            );
            violation("P7", details)
        };
        let policy = |name: &str| spec["preemption"][name].as_str().unwrap_or("Never").to_owned();
        let lower = victim.priority < preemptor.priority;
        let same_queue = victim_job.queue == preemptor_job.queue;
        if preemption.reason == PreemptionReason::InClusterQueue {
            let allowed = allowed_within_queue(&policy("withinClusterQueue"), victim, preemptor);
            return if same_queue && allowed {
                Ok(())
            } else {
                forbidden("`withinClusterQueue` doesn't allow it")
            };
        }
        let reclaims = match policy("reclaimWithinCohort").as_str() {
            "LowerPriority" => lower,
            "Any" => true,
            _ => false,
        };
        if same_queue || !reclaims {
            return forbidden("`reclaimWithinCohort` doesn't allow it");
        }
        let basis = &*preemption.basis;
        let holder = basis.holders.get(&preemption.victim);
        let Some((flavor, _)) = holder.and_then(|holder| holder.amounts.first()) else { return Ok(()) };
        let between = BetweenQueues {
            preemption,
            flavor,
            victim_queue: &victim_job.queue,
            preemptor_queue: &preemptor_job.queue,
            needed: self.demand.needed_gpus(preemption.preemptor, preemptor_job, &basis.holders),
        };
        if let Some(why) = self.reclaim_objection(&between) {
            return forbidden(why);
        }
        let while_borrowing = preemption.reason == PreemptionReason::InCohortReclaimWhileBorrowing;
        if while_borrowing && !(lower && self.may_borrow(spec, victim)) {
            return forbidden("`borrowWithinCohort` doesn't allow it");
        }
        Ok(())
    }

    /// Whether `borrowWithinCohort` allows to preempt this victim while borrowing.
    fn may_borrow(&self, spec: &Value, victim: Seniority) -> bool {
        let borrow = &spec["preemption"]["borrowWithinCohort"];
        let highest = borrow["maxPriorityThreshold"].as_i64().unwrap_or(i64::MAX);
        !self.fair && borrow["policy"] == "LowerPriority" && victim.priority <= highest
    }

    /// Why quota can't be reclaimed from the victim's queue; `None` if it can.
    fn reclaim_objection(&self, between: &BetweenQueues<'_>) -> Option<&'static str> {
        let forest = &between.preemption.basis.forest;
        let flavor = between.flavor;
        let from = NodeName::Queue(between.victim_queue.to_owned());
        let to = NodeName::Queue(between.preemptor_queue.to_owned());
        if forest.root(&from).is_none() || forest.root(&from) != forest.root(&to) {
            return Some("they share no cohort");
        }
        if forest.usage(&from, flavor) <= forest.subtree(&from, flavor) {
            return Some("the victim's queue borrows nothing");
        }
        // In a deeper hierarchy the cohorts between the two queues decide, which isn't checked here.
        let flat = forest.parent(&from) == forest.parent(&to);
        match between.preemption.reason {
            PreemptionReason::InCohortReclaimWhileBorrowing => None,
            PreemptionReason::InCohortFairSharing => (!self.fair
                || (flat && !self.has_smaller_share(between)))
            .then_some("the share of the victim's queue isn't larger"),
            PreemptionReason::InCohortReclamation => {
                let leaving = self.leaving(between);
                let left: i64 = leaving.iter().filter(|(f, _)| f == flavor).map(|(_, gpus)| gpus).sum();
                let own = forest.usage(&to, flavor) - left;
                let borrows = flat && !self.fair && own + between.needed > forest.subtree(&to, flavor);
                borrows.then_some("the preemptor's queue would borrow")
            }
            PreemptionReason::InClusterQueue => Some("the two are in different queues"),
        }
    }

    /// Whether the preemptor's queue has no larger share than the victim's, once the preemptor is admitted.
    fn has_smaller_share(&self, between: &BetweenQueues<'_>) -> bool {
        let mut with_preemptor = between.preemption.basis.forest.clone();
        for (flavor, gpus) in self.leaving(between) {
            with_preemptor.add(between.preemptor_queue, &flavor, -gpus);
        }
        with_preemptor.add(between.preemptor_queue, between.flavor, between.needed);
        with_preemptor.share(between.preemptor_queue)
            <= self.victim_forest(between).share(between.victim_queue)
    }

    /// Amounts that leave the preemptor's queue: those of stopping workloads, of the preemptor's victims, and
    /// of the victims of earlier preemptors (seed 302374).
    fn leaving(&self, between: &BetweenQueues<'_>) -> Vec<(String, i64)> {
        let preemption = between.preemption;
        let own = self.preemptions.iter().filter(|p| p.preemptor == preemption.preemptor);
        let before = self
            .preemptions
            .iter()
            .filter(|p| p.is_decided_with(preemption))
            .take_while(|p| p.preemptor != preemption.preemptor);
        let victims: BTreeSet<Uid> = own.chain(before).map(|p| p.victim).collect();
        let holders = preemption.basis.holders.iter();
        let leaving = holders.filter(|(uid, holder)| {
            holder.queue == between.preemptor_queue && (holder.stopping || victims.contains(uid))
        });
        leaving.flat_map(|(_, holder)| holder.amounts.clone()).collect()
    }

    /// Quota as the victim's queue sees it. Preemptors of that queue count as admitted, because victims stop
    /// for them. So does the largest workload of that queue that waits only for workloads that stop anyway:
    /// no victim stops for it (seed 1795500496487065).
    fn victim_forest(&self, between: &BetweenQueues<'_>) -> QuotaForest {
        let preemption = between.preemption;
        let DecisionBasis { forest, holders } = &*preemption.basis;
        let (queue, flavor) = (between.victim_queue, between.flavor);
        let mut with_preemptors = forest.clone();
        let together = self.preemptions.iter().filter(|p| p.is_decided_with(preemption)).map(|p| p.preemptor);
        let awaited: BTreeSet<Uid> = holders.values().filter_map(|h| h.preemptor).chain(together).collect();
        for uid in
            awaited.into_iter().filter(|uid| *uid != preemption.preemptor && !holders.contains_key(uid))
        {
            if let Some(job) = self.jobs.get(&uid).filter(|job| job.queue == queue) {
                with_preemptors.add(queue, flavor, self.demand.max_gpus(uid, job));
            }
        }
        let mut after_stops = forest.clone();
        let stopping = holders.values().filter(|h| h.stopping);
        for (of, (flavor, gpus)) in
            stopping.flat_map(|h| h.amounts.iter().map(move |amount| (&h.queue, amount)))
        {
            after_stops.add(of, flavor, -gpus);
        }
        let any_stops = holders.values().any(|h| h.stopping);
        let available = after_stops.available(queue, flavor).filter(|_| any_stops).unwrap_or(0);
        let next = self
            .jobs
            .iter()
            .filter(|(uid, job)| {
                job.queue == queue
                    && !holders.contains_key(uid)
                    && **uid != preemption.preemptor
                    && (self.is_pending)(uid)
                    && self.demand.min_gpus(**uid, job) <= available
            })
            .map(|(uid, job)| self.demand.max_gpus(*uid, job))
            .max();
        with_preemptors.add(queue, flavor, next.unwrap_or(0));
        with_preemptors
    }
}
