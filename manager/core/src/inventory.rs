//! What an agent really has, against what the journal says: adoption, orphans, and runs that nobody should run.
//!
//! A missing run frees nothing: a grant that isn't in the inventory is asked to be buried, and only the grave's
//! confirmation, or the lapse, frees it. A reported run of a known uid becomes its leg if nothing larger is known.

use crate::flavors::Flavors;
use crate::outbox::Said;
use crate::record::{Record, RecoveryStart};
use crate::turn::Turn;
use crate::workload::Phase;
use crate::{World, residency, system};
use meridian_shared::ids::{ClusterName, Fence, Leadership, LedgerId, RecordNumber, Uid};
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{Inventory, OnLoss, Receipt, Run, StopReason, grant_message};
use std::collections::BTreeSet;
use std::sync::Arc;

type Shown = [(Receipt, Vec<ClusterName>)];

impl Turn<'_> {
    pub(crate) fn take_inventory(
        &mut self,
        cluster: &ClusterName,
        ledger: LedgerId,
        commands_through: u64,
        inventory: Inventory,
    ) {
        self.heed_receipts(&inventory.receipts);
        let ours = self.world.state.leadership;
        if inventory.for_leadership != Some(ours) && !self.world.config.planted.has(Bug::StaleInventoryCounts)
        {
            return;
        }
        let Some(live) = self.world.live.clusters.get(cluster) else { return };
        let settled = live.outbox.quiet() || commands_through >= live.outbox.last();
        for run in &inventory.runs {
            self.take_run(cluster, ledger, &self.believed(cluster, ledger, run));
        }
        for end in inventory.ends {
            self.on_ended(cluster, end);
        }
        if inventory.more {
            // The rest comes with the next one, once these are acknowledged.
            return;
        }
        let known: BTreeSet<(Uid, Fence)> = inventory.runs.iter().map(|r| (r.uid, r.fence)).collect();
        self.bury_missing(cluster, ledger, &known, settled);
        self.settle_offers(cluster, &inventory.offers, settled);
        self.stop_orphans(cluster, ledger);
        if let Some(live) = self.world.live.clusters.get_mut(cluster) {
            live.inventoried = true;
            live.want_inventory = false;
        }
        if self.shows_everything(cluster) && self.world.live.awaited.remove(cluster) {
            self.maybe_close();
        }
        self.stir();
    }

    /// Whether this cluster's inventory answers recovery's question. What speaks under a session that came only after recovery
    /// opened may be a new ledger, or a copy of the store from before a grant; a journal that is behind can't tell what the
    /// ledger or the process before it was granted. That ends with its leases, so that only time or a person can tell.
    fn shows_everything(&self, cluster: &ClusterName) -> bool {
        let state = &self.world.state;
        !state.behind || state.members.get(cluster).is_some_and(|m| m.session_since < state.recovery_since)
    }

    fn take_run(&mut self, cluster: &ClusterName, ledger: LedgerId, run: &Run) {
        if self.world.config.planted.has(Bug::ReportedRunIgnored) && self.world.state.recovery.is_some() {
            return;
        }
        let Some(workload) = self.workload(run.uid) else {
            // What nobody signed is noise: a lying agent could invent it without end.
            if !self.coded(cluster, ledger, run) {
                self.world.live.counts.illegal += 1;
            } else if !self.world.state.orphans.contains_key(&(run.uid, run.fence)) {
                self.world.live.counts.orphans += 1;
                // Of which gang it is a placement isn't known yet.
                let placement = run.placement.clone().filter(|placement| placement.is_bounded());
                let run = Run { placement, ..run.clone() };
                self.record(Record::OrphanSeen { cluster: cluster.clone(), ledger, run: Box::new(run) });
            }
            return;
        };
        if let Some((_, leg)) = workload.leg_of(run.fence)
            && leg.cluster == *cluster
            && leg.ledger == ledger
        {
            let (accepted, running) = (leg.accepted, leg.state == crate::leg::State::Running);
            let stopping = workload.phase == Phase::Stopping;
            if !accepted {
                self.accepted(run.uid, run.fence, run.placement.clone());
            }
            if run.running && !running && !stopping {
                self.record(Record::Running { uid: run.uid, fence: run.fence, at: self.now.wall });
            }
            self.heed_growth(cluster, run);
            self.take_placement(cluster, (run.uid, run.fence), run.placement.clone());
            self.reclaim(run.uid, run.fence, &run.spare);
            self.shrink(cluster, run.uid, run.fence);
            self.heed_rank(cluster, run);
            if stopping {
                let reason =
                    self.workload(run.uid).and_then(|w| w.stopping).unwrap_or(StopReason::Superseded);
                self.say(cluster, Said::Stop(run.uid, run.fence, reason));
            }
            return;
        }
        // The highest reported fence wins; and what is over here, or was granted elsewhere since, is stopped.
        let larger = workload.fence.is_none_or(|known| run.fence > known);
        if larger && !self.coded(cluster, ledger, run) {
            // Nobody but us could have granted it, and we don't know our own hand. A uid that this leadership minted can't run
            // unknown to us; an older one is kept from other clusters until its own term has passed, however often it is shown.
            let (older, term) = (workload.submitted < self.world.state.led_since, workload.term);
            self.world.live.counts.illegal += 1;
            if older {
                let until = meridian_shared::lease::ManagerLease::from_composed(self.world.live.led_at, term)
                    .deadline;
                self.world.live.not_before.insert(run.uid, until);
                self.world.deciding.touch(run.uid);
            }
        } else if larger && workload.phase != Phase::Finished && workload.deletion.is_none() {
            let gang = workload.adopted_gang(self.world.queues.class(workload.class), run);
            let placement = run.placement.clone().filter(|placement| placement.is_of(&gang));
            self.adopt(cluster, ledger, &Run { placement, ..run.clone() });
        } else {
            self.object(cluster, Said::Stop(run.uid, run.fence, StopReason::Superseded));
        }
    }

    /// Whether a run shows our own code over its grant to this very ledger.
    fn coded(&self, cluster: &ClusterName, ledger: LedgerId, run: &Run) -> bool {
        let message =
            grant_message(cluster, ledger, run.uid, run.fence, run.offer, run.attempt, run.term, run.on_loss);
        run.mac.as_ref().is_some_and(|mac| self.world.config.receipt_key.verify(&message, mac))
    }

    pub(crate) fn adopt(&mut self, cluster: &ClusterName, ledger: LedgerId, run: &Run) {
        self.world.live.counts.adoptions += 1;
        if let Some(old) = self
            .workload(run.uid)
            .and_then(World::right)
            .and_then(|(_, l)| l.fence.map(|f| (l.cluster.clone(), f)))
        {
            self.let_go(old.1);
            self.say(&old.0, Said::Stop(run.uid, old.1, StopReason::Superseded));
        }
        self.withdraw_open(run.uid);
        let flavors = self.flavors_of_adopted(run.uid);
        self.record(Record::Adopted {
            cluster: cluster.clone(),
            ledger,
            run: Box::new(run.clone()),
            flavors,
            at: self.now.wall,
        });
        let class = self.workload(run.uid).map(|workload| self.world.queues.class(workload.class));
        let start_by = self.now.mono
            + class.map_or(self.world.config.start_timeout, |class| self.world.start_timeout(class));
        self.lease(run.uid, run.fence, run.term, OnLoss::Fence, start_by);
        if run.running {
            self.record(Record::Running { uid: run.uid, fence: run.fence, at: self.now.wall });
        }
        let workload = self.workload(run.uid).expect("adopted just now");
        let class = self.world.queues.class(workload.class).clone();
        let allowed = residency::judge(
            &self.world.state.catalog,
            &class,
            cluster,
            self.world.config.residency_required,
        );
        match allowed {
            Err(_) => self.order_stop(run.uid, run.fence, StopReason::Residency, &system()),
            Ok(()) if self.workload(run.uid).is_some_and(|w| w.inactive.is_some()) => {
                self.order_stop(run.uid, run.fence, StopReason::Evicted, &system())
            }
            Ok(()) if run.stopping => self.order_stop(run.uid, run.fence, StopReason::Superseded, &system()),
            Ok(()) => {
                self.shrink(cluster, run.uid, run.fence);
                self.heed_rank(cluster, run);
            }
        }
    }

    /// What runs is charged whether or not quota is left: per resource to the first flavor of its queue that serves the gang.
    fn flavors_of_adopted(&self, uid: Uid) -> Flavors {
        let catalog = &self.world.state.catalog;
        let Some(class) = self.workload(uid).map(|w| self.world.queues.class(w.class)) else {
            return Flavors::default();
        };
        let queue = catalog
            .local_queue(&class.namespace, &class.queue)
            .and_then(|l| catalog.cluster_queue(&l.cluster_queue));
        let Some(queue) = queue else { return Flavors::default() };
        let flavor = |resource: &String| {
            let group = queue.resource_groups.iter().find(|g| g.covered_resources.contains(resource))?;
            let serving =
                group.flavors.iter().find(|f| crate::dispatch::serves(catalog, &f.name, &class.gang));
            serving.or(group.flavors.first()).map(|f| Arc::from(f.name.as_str()))
        };
        self.world
            .config
            .resources
            .total(&class.gang)
            .into_keys()
            .filter_map(|resource| flavor(&resource).map(|f| (resource, f)))
            .collect()
    }

    /// Grants that this ledger should have and doesn't show, once no grant to it is under way.
    fn bury_missing(
        &mut self,
        cluster: &ClusterName,
        ledger: LedgerId,
        known: &BTreeSet<(Uid, Fence)>,
        settled: bool,
    ) {
        for (uid, fence, offer) in self.rights(cluster) {
            let Some((_, leg)) = self.workload(uid).and_then(|w| w.leg_of(fence)) else { continue };
            let under_way = !settled
                && self
                    .world
                    .live
                    .clusters
                    .get(cluster)
                    .is_some_and(|l| l.outbox.pending(&Said::Grant(uid, offer, fence)));
            if leg.ledger != ledger || known.contains(&(uid, fence)) || under_way {
                continue;
            }
            if self.world.config.planted.has(Bug::MissingFrees) {
                self.record(Record::Lapsed { uid, fence, at: self.now.wall, declared: false, by: None });
                self.freed(uid, fence);
                continue;
            }
            self.order_stop(uid, fence, StopReason::Superseded, &system());
        }
    }

    /// Offers that only one side knows.
    fn settle_offers(
        &mut self,
        cluster: &ClusterName,
        reported: &[(meridian_shared::ids::OfferId, Uid)],
        settled: bool,
    ) {
        for (offer, uid) in reported {
            let open =
                self.workload(*uid).and_then(|w| w.legs.get(offer)).is_some_and(|l| l.cluster == *cluster);
            if !open {
                self.object(cluster, Said::Withdraw(*uid, *offer));
            }
        }
        if !settled {
            return;
        }
        let reported: BTreeSet<_> = reported.iter().copied().collect();
        let missing: Vec<_> = self
            .world
            .loads
            .get(cluster)
            .into_iter()
            .flatten()
            .flat_map(|(uid, _)| {
                self.world.state.workloads[uid]
                    .legs
                    .iter()
                    .filter(|(_, l)| l.cluster == *cluster && l.state.open())
                    .map(move |(o, _)| (*uid, *o))
            })
            .filter(|(uid, offer)| !reported.contains(&(*offer, *uid)))
            .filter(|(uid, offer)| {
                !self
                    .world
                    .live
                    .clusters
                    .get(cluster)
                    .is_some_and(|l| l.outbox.pending(&Said::Offer(*uid, *offer)))
            })
            .collect();
        for (uid, offer) in missing {
            self.record(Record::Expired { uid, offer });
            self.after_leg(uid);
        }
    }

    /// Receipts with our own code that speak of leaderships or records which this journal doesn't have. The key outlives
    /// journals, so a journal that was lost speaks here, too.
    pub(crate) fn foreign<'s>(&self, shown: &'s Shown) -> Vec<(Leadership, &'s Receipt)> {
        let state = &self.world.state;
        shown
            .iter()
            .filter(|(r, members)| {
                r.mac.as_ref().is_some_and(|m| self.world.config.receipt_key.verify(&r.message(members), m))
            })
            .filter(|(r, _)| !state.ranges.iter().any(|(l, _, last)| *l == r.leadership && r.record <= *last))
            .map(|(r, _)| (r.leadership, r))
            .collect()
    }

    /// A signed report of records that are in no range is a fork, at any time: recovery opens again, above all of them.
    fn heed_receipts(&mut self, shown: &Shown) {
        let foreign: Vec<(Leadership, RecordNumber)> =
            self.foreign(shown).into_iter().map(|(l, r)| (l, r.record)).collect();
        if !foreign.is_empty() {
            self.above(foreign, shown);
        }
    }

    /// Takes a higher epoch than what was shown. Whoever wrote that may still be alive, so this journal counts as a copy.
    pub(crate) fn above(&mut self, foreign: Vec<(Leadership, RecordNumber)>, shown: &Shown) {
        let newest_rules = self.foreign(shown).into_iter().map(|(_, r)| r.rules).max();
        let ours = self.world.state.leadership;
        let epoch = foreign.iter().map(|(l, _)| l.epoch).max().unwrap_or(0).max(ours.epoch) + 1;
        // The id must differ from every other start's: it is derived from what only this moment knows.
        let id = meridian_shared::backoff::splitmix(
            ours.id ^ epoch ^ self.now.mono.0.rotate_left(32) ^ self.now.wall.0.unsigned_abs(),
        );
        // What is open stays open with all that it was opened for; and somebody else may still speak for these records.
        let members_unknown = self.world.state.recovery.as_ref().is_some_and(|r| r.members_unknown);
        let open = RecoveryStart { restored: true, members_unknown };
        let known: BTreeSet<Leadership> = self.world.state.ranges.iter().map(|(l, _, _)| *l).collect();
        let foreign: Vec<_> = foreign.into_iter().filter(|(l, _)| !known.contains(l) || *l != ours).collect();
        let had_rules = self.world.state.rules;
        let members = self.foreign_members(shown);
        self.take_the_lead(Leadership { epoch, id }, Some(open), foreign, members);
        if let Some(seen) = newest_rules.filter(|r| *r > had_rules) {
            self.record(Record::RulesDoubted { seen });
        }
    }

    fn foreign_members(&self, shown: &Shown) -> BTreeSet<ClusterName> {
        shown
            .iter()
            .filter(|(r, m)| {
                r.mac.as_ref().is_some_and(|mac| self.world.config.receipt_key.verify(&r.message(m), mac))
            })
            .flat_map(|(_, members)| members.iter().cloned())
            .collect()
    }
}
