//! Users deactivate workloads and activate them again.

use crate::sim::random::Random;
use crate::sim::requests::request::RequestBody;
use crate::sim::world::Simulation;
use meridian_shared::ids::Uid;

impl Simulation {
    /// Sometimes deactivates a workload, or activates one again. The draw uses a separate random stream.
    pub(super) fn deactivate_or_activate(&mut self) {
        let stream = format!("activity at {}", self.cx.now);
        let mut random = Random::new(self.cx.scenario.seed, &stream);
        if !random.permille(150) {
            return;
        }
        let deactivated = self.deactivated();
        match random.pick(&deactivated).copied().filter(|_| random.permille(600)) {
            Some(uid) => self.request_activity(uid, true),
            None => {
                let candidates = self.invariants.submissions.without_deletion();
                let open: Vec<Uid> = candidates.into_iter().filter(|uid| self.is_unfinished(*uid)).collect();
                if let Some(uid) = random.pick(&open).copied() {
                    self.request_activity(uid, false);
                }
            }
        }
    }

    /// Activates most workloads again after all faults; the others may stay inactive forever.
    pub(super) fn activate_most(&mut self) {
        for uid in self.deactivated() {
            if Random::new(self.cx.scenario.seed, &format!("resumed {uid}")).permille(700) {
                self.request_activity(uid, true);
            } else {
                self.cx.counters.one("left deactivated");
            }
        }
    }

    /// A request was acknowledged. Two requests may arrive in the wrong order: if the workload is inactive
    /// after an activation, the user repeats the request.
    pub(super) fn activity_acknowledged(&mut self, uid: Uid, id: u64) {
        let is_same =
            |body: &RequestBody| matches!(body, RequestBody::SetActive { uid: other, .. } if *other == uid);
        if self.users.has_open(is_same) {
            return;
        }
        self.users.activity.acknowledged(uid, id);
        let worlds = self.managers.iter().filter_map(|m| m.world());
        let newest = worlds.max_by_key(|world| world.state().leadership());
        let workload = newest.and_then(|world| world.state().workloads().get(&uid));
        let inactive = workload.is_some_and(|w| w.inactive().is_some());
        if inactive && self.users.activity.requested_state(uid) == Some(true) {
            self.request_activity(uid, true);
        }
    }

    /// Workloads that should be inactive by the last request.
    fn deactivated(&self) -> Vec<Uid> {
        let candidates = self.invariants.submissions.without_deletion();
        candidates
            .into_iter()
            .filter(|uid| self.users.activity.requested_state(*uid) == Some(false))
            .collect()
    }

    /// Whether a manager has this workload unfinished.
    pub(super) fn is_unfinished(&self, uid: Uid) -> bool {
        let worlds = self.managers.iter().filter_map(|m| m.world());
        worlds.filter_map(|world| world.state().workloads().get(&uid)).any(|w| w.finished().is_none())
    }

    fn request_activity(&mut self, uid: Uid, active: bool) {
        let job = &self.invariants.jobs[&uid];
        let (namespace, name) = (job.namespace.clone(), job.name.clone());
        self.request(RequestBody::SetActive { uid, namespace, name, active });
    }
}
