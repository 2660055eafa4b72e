//! After all faults: every feasible workload must end.

use crate::sim::context::event::SimEvent;
use crate::sim::invariants::violation::violation;
use crate::sim::world::Simulation;
use meridian_manager_core::World;
use meridian_manager_core::state::workload::Workload;
use meridian_shared::ids::Uid;
use meridian_shared::time::Now;

/// How long everything may take to end after all faults: longer than the longest back-off of the cores.
const HEALING_MS: u64 = 25 * 60_000;
/// Pause between two checks.
const CHECK_MS: u64 = 1_000;

impl Simulation {
    /// Ends the run once every workload has ended and every request is answered.
    pub(super) fn check_end(&mut self) {
        let leader = self.managers.iter().position(|manager| manager.leading_world().is_some());
        let world = leader.map(|m| self.managers[m].expect_world());
        let open = match world {
            None => vec!["no manager leads".to_owned()],
            Some(world) => match &world.state().recovery() {
                Some(recovery) => {
                    vec![format!(
                        "recovery is open: {recovery:?}, waiting for {:?}",
                        world.live().recovery().awaited()
                    )]
                }
                None => self.unfinished(world),
            },
        };
        let requests = self.users.open_requests();
        if let Some(m) = leader.filter(|_| open.is_empty() && requests.is_empty()) {
            self.ended = true;
            self.verify_audit(m);
            let verdict = self.check_durability(self.managers[m].expect_world());
            self.cx.counters.one("runs to the end");
            return self.cx.record_verdict(verdict);
        }
        if self.cx.now > self.cx.scenario.active_ms + HEALING_MS {
            let connected =
                world.map(|w| w.live().clusters().keys().map(ToString::to_string).collect::<Vec<_>>());
            let details = format!(
                "{} not over: {}; connected clusters: {}; open requests: {}",
                open.len(),
                open.join("; "),
                connected.unwrap_or_default().join(", "),
                requests.join(", ")
            );
            return self.cx.record_verdict(violation("liveness", details));
        }
        self.cx.schedule(self.cx.now + CHECK_MS, SimEvent::EndCheck);
    }

    /// Workloads that have not ended and may not stay inactive, each with its reason.
    fn unfinished(&self, world: &World) -> Vec<String> {
        let reason = |uid: &Uid| {
            meridian_views::explain::explain(
                world,
                *uid,
                Now::default(),
                &meridian_views::asker::Asker::unlimited(),
            )
            .map(|w| w.to_string())
            .unwrap_or_default()
        };
        let describe = |(uid, w): (&Uid, &Workload)| {
            let open = w.finished().is_none() && !self.users.activity.may_stay_inactive(world, *uid);
            open.then(|| format!("{uid} ({}) is {:?}, {:?}: {}", w.name(), w.phase(), w.legs(), reason(uid)))
        };
        world.state().workloads().iter().filter_map(describe).collect()
    }
}
