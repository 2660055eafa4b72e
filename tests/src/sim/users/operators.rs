//! What operators do from time to time: they confirm recoveries and rules, and correct objects.

use crate::sim::clusters::is_hostile;
use crate::sim::fleet::objects::{TERM_LONGEST, fleet_manifests, key_of, object, orphaned_job};
use crate::sim::hosts::machine::Machine;
use crate::sim::hosts::runner::AttemptKey;
use crate::sim::requests::request::RequestBody;
use crate::sim::users::actions::extra_policy;
use crate::sim::world::Simulation;
use meridian_manager_core::World;
use meridian_manager_core::facts::input::Operator;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_shared::ids::{ClusterName, LedgerId, Uid};
use meridian_shared::protocol::OnLoss;
use serde_json::Value;

/// A hold and the longest term, with drift: after this time no grant of a dead manager can be accepted any
/// more.
const LATE_GRANTS_MS: u64 = 10_000 + TERM_LONGEST.0 + 2_000;
/// How long after the start of a leadership operators confirm policies and quotas.
const CONFIRM_RULES_MS: u64 = 3_000;
/// How long after the start of a leadership operators adopt orphans.
const ADOPT_MS: u64 = 2_000;
/// How long after the start of a leadership operators stop the orphans that are left.
const STOP_ORPHANS_MS: u64 = 20_000;

impl Simulation {
    /// One round of the operators.
    pub(crate) fn act_as_operators(&mut self) {
        let leader = self.managers.iter().position(|manager| manager.leading_world().is_some());
        let Some(m) = leader else { return };
        let is_apply = |body: &RequestBody| matches!(body, RequestBody::Apply(_));
        if self.users.needs_fleet && !self.users.has_open(is_apply) {
            self.users.needs_fleet = false;
            let clusters = self.cx.scenario.cluster_indexes();
            let fleet = fleet_manifests(&self.users.declared, &clusters);
            return self.request(RequestBody::Apply(fleet));
        }
        let world = self.managers[m].expect_world();
        let now = self.managers[m].clock.now(self.cx.now).mono;
        let led_for = now.since(world.live().recovery().led_at()).0;
        let mut actions = self.confirmations(world, led_for);
        actions.extend(self.orphan_actions(world, led_for));
        let lost = self.lost_ledgers(world).into_iter();
        actions.extend(lost.map(|(cluster, ledger)| Operator::DeclareLost { cluster, ledger: Some(ledger) }));
        if self.cx.healed {
            // Agents' member lists name this cluster, but the journal doesn't, and the cluster will never
            // report.
            let is_unknown = |name: &&ClusterName| !world.state().members().contains_key(*name);
            let unknown = world
                .live()
                .recovery()
                .awaited()
                .iter()
                .filter(is_unknown)
                .filter(|name| is_hostile(name.as_str()));
            actions.extend(
                unknown.map(|cluster| Operator::DeclareLost { cluster: cluster.clone(), ledger: None }),
            );
        }
        let (mut corrections, mut held) = (Vec::new(), Vec::new());
        if self.cx.healed {
            let clusters = world.state().catalog().clusters();
            let cordoned = clusters.filter(|(name, spec)| spec.cordoned && !is_hostile(name.as_str()));
            actions.extend(cordoned.map(|(name, _)| Operator::Uncordon(name)));
            corrections = self.corrections(world);
            held = self.held_for_unknown_clusters(world);
        }
        corrections.into_iter().for_each(|body| self.request(body));
        for (uid, namespace, name) in held {
            self.invariants.submissions.send_deletion(uid);
            self.request(RequestBody::Delete { uid, namespace, name });
        }
        for action in actions {
            if !self.users.is_under_way(&action) {
                self.request(RequestBody::Operate(action));
            }
        }
    }

    /// Pending workloads that would wait for ever, so users delete them: a journal from before the first join
    /// holds them for clusters that it doesn't name, which no operator can declare lost.
    fn held_for_unknown_clusters(&self, world: &World) -> Vec<(Uid, String, String)> {
        let state = world.state();
        let names_none = state.members().values().all(|member| member.since() >= state.recovery_since());
        let is_stuck = state.recovery().is_some_and(|r| !r.restored && !r.members_unknown)
            && state.behind()
            && world.live().recovery().awaited().is_empty()
            && names_none;
        if !is_stuck {
            return Vec::new();
        }
        let is_under_way = |uid: Uid| {
            self.users.has_open(|body| matches!(body, RequestBody::Delete { uid: open, .. } if *open == uid))
        };
        let workloads = state.workloads().iter();
        let held = workloads.filter(|(uid, w)| {
            w.on_loss() == OnLoss::Wait
                && w.submitted() < state.led_since()
                && w.phase() == Phase::Pending
                && w.deletion().is_none()
                && !is_under_way(**uid)
        });
        held.map(|(uid, w)| (*uid, w.namespace().to_string(), w.name().to_string())).collect()
    }

    /// Confirmations that a recovery waits for.
    fn confirmations(&self, world: &World, led_for: u64) -> Vec<Operator> {
        let mut actions = Vec::new();
        let early = self.may_confirm_early(world);
        if early {
            actions.push(Operator::ConfirmRecovery);
        }
        if let Some(recovery) = &world.state().recovery()
            && (recovery.restored || recovery.members_unknown)
            && led_for > LATE_GRANTS_MS
            && actions.is_empty()
            && self.nothing_unknown_runs(world)
        {
            actions.push(Operator::ConfirmRecovery);
        }
        if world.state().rules_doubted().is_some() && (early || led_for > CONFIRM_RULES_MS) {
            actions.push(Operator::ConfirmRules);
        }
        actions
    }

    /// Whether an operator confirms a restored journal as soon as no other copy of it runs, whatever clusters
    /// haven't reported yet.
    fn may_confirm_early(&self, world: &World) -> bool {
        let is_copy = world.state().recovery().is_some_and(|r| r.restored && !r.members_unknown);
        is_copy
            && self.cx.scenario.early_confirmations
            && self.managers.iter().filter(|manager| manager.is_up()).count() == 1
    }

    /// Half of the orphans are adopted, with the user's manifest of the job. The others are stopped later.
    fn orphan_actions(&self, world: &World, led_for: u64) -> Vec<Operator> {
        let mut actions = Vec::new();
        let orphans = world.state().orphans();
        if led_for > ADOPT_MS && world.state().recovery().is_none() {
            for ((uid, fence), orphan) in orphans {
                let is_adopted = uid.0.is_multiple_of(2) && !self.invariants.submissions.has_deletion(*uid);
                if let Some(job) = self.invariants.jobs.get(uid).filter(|_| is_adopted) {
                    let job = orphaned_job(job, *uid, orphan.run().spec);
                    actions.push(Operator::AdoptOrphan { uid: *uid, fence: *fence, job });
                }
            }
        }
        if self.cx.healed || led_for > STOP_ORPHANS_MS {
            let stop = |(uid, fence): &AttemptKey| Operator::StopOrphan { uid: *uid, fence: *fence };
            actions.extend(orphans.keys().map(stop));
        }
        actions
    }

    /// Objects that differ from the last request: a repeated older request may have arrived after it.
    fn corrections(&self, world: &World) -> Vec<RequestBody> {
        let catalog = &world.state().catalog();
        let mut corrections = Vec::new();
        let is_removal = |body: &RequestBody| matches!(body, RequestBody::Remove(_));
        if catalog.get(&extra_policy()).is_some() && !self.users.has_open(is_removal) {
            corrections.push(RequestBody::Remove(extra_policy()));
        }
        if !self.users.has_open(|body| matches!(body, RequestBody::Apply(_))) {
            let differs = |manifest: &Value| {
                let stored = catalog.get(&key_of(manifest));
                stored.is_none_or(|stored| stored.object.stored != object(manifest).stored)
            };
            let declared = self.users.declared.changeable();
            let wrong: Vec<Value> = declared.into_iter().filter(differs).collect();
            if !wrong.is_empty() {
                corrections.push(RequestBody::Apply(wrong));
            }
        }
        corrections
    }

    /// Whether this manager has every gang that runs. Only then may an operator confirm the recovery.
    fn nothing_unknown_runs(&self, world: &World) -> bool {
        let is_unknown = |(uid, fence): AttemptKey| {
            world.state().workloads().get(&uid).is_some_and(|w| w.leg_of(fence).is_none())
        };
        !self.honest_machines().any(|machine| machine.runner.alive().any(is_unknown))
    }

    /// Whether an agent with this ledger can still return.
    fn ledger_exists(&self, ledger: LedgerId) -> bool {
        self.agents.iter().any(|host| !host.gone && host.ledger() == Some(ledger))
    }

    /// Ledgers with grants that were lost for good, together with everything that ran under them.
    fn lost_ledgers(&self, world: &World) -> Vec<(ClusterName, LedgerId)> {
        let mut lost: Vec<(ClusterName, LedgerId)> = Vec::new();
        let workloads = world.state().workloads().iter();
        for (uid, w) in workloads.filter(|(_, w)| w.on_loss() == OnLoss::Wait || w.finished().is_none()) {
            for leg in w.legs().values().filter(|l| l.state().granted() && !self.ledger_exists(l.ledger())) {
                let runs = self.honest_machines().any(|machine| {
                    machine.runner.alive().any(|(of, fence)| of == *uid && Some(fence) == leg.fence())
                });
                let needs_operator = w.on_loss() == OnLoss::Wait || is_hostile(leg.cluster().as_str());
                let key = (leg.cluster().clone(), leg.ledger());
                if !runs && needs_operator && !lost.contains(&key) {
                    lost.push(key);
                }
            }
        }
        lost.retain(|(cluster, ledger)| !self.may_run_under(world, cluster, *ledger));
        // A recovery doesn't wait for a cluster that will never return.
        if self.cx.healed && world.state().recovery().is_some() {
            let members = &world.state().members();
            let awaited = world
                .live()
                .recovery()
                .awaited()
                .iter()
                .filter_map(|cluster| members.get(cluster).map(|m| (cluster.clone(), m.ledger())));
            let unheard = world.live().recovery().awaited().iter().filter_map(|cluster| {
                members.get(cluster)?.unheard().map(|ledger| (cluster.clone(), ledger))
            });
            lost.extend(awaited.chain(unheard).filter(|(cluster, ledger)| {
                let returns = self.ledger_exists(*ledger) && !is_hostile(cluster.as_str());
                !returns && !self.may_run_under(world, cluster, *ledger)
            }));
        }
        lost
    }

    /// Whether a machine of this cluster runs anything that may belong to this ledger, including what the
    /// journal doesn't know.
    fn may_run_under(&self, world: &World, cluster: &ClusterName, ledger: LedgerId) -> bool {
        let is_of_another = |(uid, fence): AttemptKey| {
            let leg = world.state().workloads().get(&uid).and_then(|w| w.leg_of(fence));
            leg.is_some_and(|(_, leg)| leg.ledger() != ledger)
        };
        let hosts = self.agents.iter().filter(|host| host.cluster == *cluster);
        let machines = hosts.map(|host| &self.machines[host.machine]).filter(|machine| machine.honest);
        machines.into_iter().any(|machine| machine.runner.alive().any(|key| !is_of_another(key)))
    }

    fn honest_machines(&self) -> impl Iterator<Item = &Machine> {
        self.machines.iter().filter(|machine| machine.honest)
    }
}
