//! Checks of a fleet after every step.

use super::fleet::{Checker, Fleet, WorkloadSpec, place, uses_of};
use super::recount::Node;
use meridian_queueing::cycle::{self, CycleReport, EntryOutcome, Requeued, SkippedHead};
use meridian_queueing::model::{PreemptionRule, Reason, WorkloadId};
use meridian_queueing::preemption::{PreemptionReason, Target};
use std::collections::BTreeSet;

impl Fleet {
    /// Skipped heads would be parked by a cycle, with the same shortage.
    pub(crate) fn check_skipped(&mut self) {
        let passed: Vec<SkippedHead> = self
            .state
            .queue_list()
            .filter_map(|(_, queue)| cycle::unchanged_shortage(&self.state, queue))
            .collect();
        if passed.is_empty() {
            return;
        }
        let mut checker = Checker {
            recount: self.recounted(),
            names: &uses_of,
            protected: self.protected.clone().unwrap_or_default(),
        };
        let mut state = self.state.clone();
        let report = cycle::run_once(&mut state, &mut checker, false);
        for passed in passed {
            self.passed += 1;
            let entry = report.entries.iter().find(|entry| entry.workload == passed.workload).unwrap();
            assert!(
                matches!(entry.outcome, EntryOutcome::NoCandidates | EntryOutcome::NoFit),
                "{passed:?}: {entry:?}"
            );
            assert_eq!(entry.requeued, Some(Requeued::Parked), "{passed:?}: {entry:?}");
            let short = entry.assignment.reasons().filter_map(|(_, reason)| match reason {
                Reason::Short { flavor, resource, missing } => Some((*flavor, *resource, *missing)),
                _ => None,
            });
            assert_eq!(short.collect::<Vec<_>>(), passed.short, "{passed:?}: {entry:?}");
        }
    }

    /// Every cell equals the recount, and every holder holds its full request.
    pub(crate) fn check_usage(&self) {
        let recount = self.recounted();
        for (id, node) in self.state.forest().nodes() {
            let at: Node = (node.cohort, place(&node.name));
            for ((flavor, resource), cell) in self.state.forest().cells(id) {
                let key = (
                    self.state.flavor_name(flavor).to_string(),
                    self.state.resource_name(resource).to_string(),
                );
                let counted = (cell.subtree.0, cell.local.0, cell.usage.0);
                assert_eq!(
                    counted,
                    (recount.subtree(at, &key), recount.local(at, &key), recount.usage(at, &key)),
                    "{} of {key:?}",
                    node.name
                );
                let id = self
                    .state
                    .forest()
                    .find_cell(node.tree, (flavor, resource))
                    .map(|cell| self.state.forest().balance(id, cell).0);
                assert_eq!(id, Some(recount.balance(at, &key)), "{} of {key:?}", node.name);
            }
        }
        for (key, id) in self.holders() {
            let spec = &self.specs[&key];
            let pods = i64::from(spec.pods);
            let mut held: Vec<(String, i64)> =
                self.holds(id).into_iter().map(|((_, resource), amount)| (resource, amount)).collect();
            held.sort();
            assert_eq!(
                held,
                [("cpu".to_owned(), pods), ("gpu".to_owned(), spec.gpus * pods)],
                "{key} holds a part"
            );
        }
    }

    /// Victims are allowed and sufficient, and none could stay.
    pub(crate) fn check_victims(&self, report: &CycleReport) {
        let preempting: Vec<_> =
            report.entries.iter().filter(|e| e.outcome == EntryOutcome::Preempting).collect();
        for (victim, preemptor, reason) in &report.preempted {
            let of = |id: &WorkloadId| &self.specs[&*self.state.workload(*id).unwrap().key];
            self.check_reason(of(victim), of(preemptor), *reason);
        }
        // With several preemptors in a cycle, each one's victims were found in a different state.
        let [entry] = preempting.as_slice() else { return };
        let queue = self.specs[&*self.state.workload(entry.workload).unwrap().key].queue;
        let asks = uses_of(&self.state, &entry.assignment);
        let all: BTreeSet<WorkloadId> = entry.targets.iter().map(|t| t.workload).collect();
        assert_eq!(all.len(), entry.targets.len(), "somebody is preempted twice");
        let without = |spared: Option<WorkloadId>| {
            let mut recount = self.recounted();
            for victim in all.iter().filter(|v| Some(**v) != spared) {
                recount.add(
                    self.specs[&*self.state.workload(*victim).unwrap().key].queue,
                    &self.holds(*victim),
                    -1,
                );
            }
            recount
        };
        assert!(without(None).fits(queue, &asks), "victims aren't enough: {}", self.describe());
        // Workloads preempted earlier, when less was free, lose nothing more.
        let preempted: BTreeSet<WorkloadId> = report.preempted.iter().map(|(victim, ..)| *victim).collect();
        for victim in all.intersection(&preempted) {
            // A victim on the preemptor's side lowers the preemptor's share. Without it, victims by share may
            // be unfair.
            let by_share =
                |t: &Target| t.workload != *victim && t.reason == Some(PreemptionReason::InCohortFairSharing);
            if entry.targets.iter().any(by_share) {
                continue;
            }
            let recount = without(Some(*victim));
            let needless = recount.fits(queue, &asks) && (self.fair || recount.within_nominal(queue, &asks));
            assert!(
                !needless,
                "{} could stay: {}",
                self.state.workload(*victim).unwrap().key,
                self.describe()
            );
        }
    }

    pub(crate) fn check_reason(
        &self,
        victim: &WorkloadSpec,
        preemptor: &WorkloadSpec,
        reason: PreemptionReason,
    ) {
        let policy = &self.recount.queues[preemptor.queue].preemption;
        let lower = victim.priority < preemptor.priority;
        let newer = victim.priority == preemptor.priority && victim.since > preemptor.since;
        let by = |policy: PreemptionRule| match policy {
            PreemptionRule::Never | PreemptionRule::Unset => false,
            PreemptionRule::LowerPriority => lower,
            PreemptionRule::LowerOrNewerEqualPriority => lower || newer,
            PreemptionRule::Any => true,
        };
        let describe = || format!("{victim:?} for {preemptor:?} as {reason:?}: {policy:?}");
        if reason == PreemptionReason::InClusterQueue {
            assert!(victim.queue == preemptor.queue && by(policy.within_queue), "{}", describe());
            return;
        }
        assert!(victim.queue != preemptor.queue && by(policy.reclaim_within_cohort), "{}", describe());
        assert_eq!(
            self.recount.root((false, victim.queue)),
            self.recount.root((false, preemptor.queue)),
            "{}",
            describe()
        );
        assert!(self.recounted().borrows(victim.queue), "its queue doesn't borrow: {}", describe());
        match reason {
            PreemptionReason::InCohortFairSharing => assert!(self.fair, "{}", describe()),
            PreemptionReason::InCohortReclaimWhileBorrowing => {
                let most = policy.borrow_within_cohort.expect("it may displace while borrowing");
                assert!(
                    !self.fair && lower && most.is_none_or(|most| victim.priority <= i64::from(most)),
                    "{}",
                    describe()
                );
            }
            PreemptionReason::InCohortReclamation | PreemptionReason::InClusterQueue => {}
        }
    }
}
