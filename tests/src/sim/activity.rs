//! People take workloads out of the queue and put them back, and what may be believed of that.

use super::Sim;
use super::chance::Chance;
use super::oracle::{Verdict, broken};
use super::people::Wish;
use meridian_manager_core::World;
use meridian_manager_core::state::workload::phase::Phase;
use meridian_shared::ids::Uid;
use std::collections::BTreeMap;

/// What was asked of one workload.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// The newest request.
    newest: u64,
    /// A request was sent more than once, and may arrive again at any time.
    repeated: bool,
    /// What the newest answered request said, where nothing puts it in doubt.
    active: Option<bool>,
    /// What people want now.
    wanted: bool,
}

/// What was asked of all.
#[derive(Debug, Default)]
pub(super) struct Activity(BTreeMap<Uid, Asked>);

impl Activity {
    /// A request is made.
    pub(super) fn asked(&mut self, uid: Uid, id: u64, active: bool) {
        let asked = self.0.entry(uid).or_default();
        (asked.newest, asked.active, asked.wanted) = (id, None, active);
    }

    /// A request is sent once more.
    pub(super) fn repeated(&mut self, uid: Uid) {
        self.0.entry(uid).or_default().repeated = true;
    }

    /// A request was taken, and no other one is under way.
    pub(super) fn taken(&mut self, uid: Uid, id: u64) {
        if let Some(asked) = self.0.get_mut(&uid).filter(|asked| asked.newest == id && !asked.repeated) {
            asked.active = Some(asked.wanted);
        }
    }

    /// What was answered was promised by a history that is gone.
    pub(super) fn history_is_gone(&mut self) {
        self.0.values_mut().for_each(|asked| asked.active = None);
    }

    /// P1: what was answered is remembered, as long as it means anything.
    pub(super) fn check_memory(&self, world: &World) -> Verdict {
        let promised = self
            .0
            .iter()
            .filter_map(|(uid, asked)| Some((world.state.workloads.get(uid)?, uid, asked.active?)));
        for (w, uid, active) in promised.filter(|(w, ..)| w.finished.is_none() && w.deletion.is_none()) {
            if w.inactive.is_none() != active {
                return broken(
                    "P1",
                    format!(
                        "that {uid} is {} was acknowledged and is forgotten",
                        if active { "active" } else { "inactive" }
                    ),
                );
            }
        }
        Ok(())
    }

    /// Whether this one needn't end: it rests, nothing runs of it, and nobody was told that it doesn't.
    pub(super) fn may_rest(&self, world: &World, uid: Uid) -> bool {
        let rests = world
            .state
            .workloads
            .get(&uid)
            .is_some_and(|w| w.inactive.is_some() && w.phase == Phase::Pending && w.legs.is_empty());
        rests && self.0.get(&uid).is_some_and(|asked| asked.active != Some(true))
    }
}

impl Sim {
    /// Sometimes somebody stops a workload, and later perhaps resumes it. Drawn beside everything else.
    pub(super) fn stop_or_resume(&mut self) {
        let mut chance = Chance::new(self.plan.seed, &format!("activity at {}", self.now));
        if !chance.of_1000(150) {
            return;
        }
        let known = self.oracle.wanted();
        let stopped: Vec<Uid> = known.iter().copied().filter(|uid| self.wants(*uid) == Some(false)).collect();
        match chance.pick(&stopped).copied().filter(|_| chance.of_1000(600)) {
            Some(uid) => self.ask_active(uid, true),
            // Mostly the newest, as those wait or run.
            None => {
                let newest: Vec<Uid> = known.iter().copied().filter(|uid| self.is_open(*uid)).collect();
                if let Some(uid) = chance.pick(&newest).copied() {
                    self.ask_active(uid, false);
                }
            }
        }
    }

    /// Most of those that were stopped are resumed in the end; the others may rest for ever.
    pub(super) fn resume_most(&mut self) {
        let stopped: Vec<Uid> =
            self.oracle.wanted().into_iter().filter(|uid| self.wants(*uid) == Some(false)).collect();
        for uid in stopped {
            if Chance::new(self.plan.seed, &format!("resumed {uid}")).of_1000(700) {
                self.ask_active(uid, true);
            } else {
                self.counters.one("left deactivated");
            }
        }
    }

    /// Two requests may cross: who wanted it resumed sees that it isn't, and asks again (simulation seed 7206943).
    pub(super) fn resume_if_crossed(&mut self, uid: Uid) {
        let newest =
            self.managers.iter().filter_map(|m| m.world.as_ref()).max_by_key(|world| world.state.leadership);
        let rests =
            newest.and_then(|world| world.state.workloads.get(&uid)).is_some_and(|w| w.inactive.is_some());
        if rests && self.wants(uid) == Some(true) {
            self.ask_active(uid, true);
        }
    }

    fn wants(&self, uid: Uid) -> Option<bool> {
        self.people.activity.0.get(&uid).map(|asked| asked.wanted)
    }

    /// Whether some manager knows it and doesn't know how it ended.
    pub(super) fn is_open(&self, uid: Uid) -> bool {
        let worlds = self.managers.iter().filter_map(|m| m.world.as_ref());
        worlds.filter_map(|world| world.state.workloads.get(&uid)).any(|w| w.finished.is_none())
    }

    fn ask_active(&mut self, uid: Uid, active: bool) {
        let job = &self.oracle.jobs[&uid];
        let (namespace, name) = (job.namespace.clone(), job.name.clone());
        self.ask(Wish::Activity { uid, namespace, name, active });
    }

    /// Whether another request about this workload is under way.
    pub(super) fn is_asked_about(&self, uid: Uid) -> bool {
        self.people
            .requests
            .values()
            .any(|r| matches!(r.wish, Wish::Activity { uid: other, .. } if other == uid))
    }
}
