//! People change how many pods elastic jobs have, and what may be believed of that.

use super::Sim;
use super::chance::Chance;
use super::oracle::{Job, Verdict, broken};
use super::people::{Wish, manifest_of};
use super::runner::{Run, Runner};
use meridian_agent_core::ledger::PodPlacement;
use meridian_agent_core::{Input, RunnerEvent};
use meridian_manager_core::World;
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::Size;
use meridian_shared::time::{Mono, Now};
use std::collections::BTreeMap;

/// What was asked of one job.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// The newest request.
    newest: u64,
    /// A request was sent more than once, and may arrive again at any time.
    repeated: bool,
    /// What the newest answered request said, where nothing puts it in doubt.
    pods: Option<usize>,
}

/// What was asked of all.
#[derive(Debug, Default)]
pub(super) struct Sizes(BTreeMap<Uid, Asked>);

impl Sizes {
    /// A request is made.
    pub(super) fn asked(&mut self, uid: Uid, id: u64) {
        let asked = self.0.entry(uid).or_default();
        (asked.newest, asked.pods) = (id, None);
    }

    /// A request is sent once more.
    pub(super) fn repeated(&mut self, uid: Uid) {
        self.0.entry(uid).or_default().repeated = true;
    }

    /// A request was taken.
    pub(super) fn taken(&mut self, uid: Uid, id: u64, pods: usize) {
        if let Some(asked) = self.0.get_mut(&uid).filter(|asked| asked.newest == id && !asked.repeated) {
            asked.pods = Some(pods);
        }
    }

    /// What was answered was promised by a history that is gone.
    pub(super) fn history_is_gone(&mut self) {
        self.0.values_mut().for_each(|asked| asked.pods = None);
    }

    /// P1: what was answered is remembered.
    pub(super) fn check_memory(&self, world: &World) -> Verdict {
        let promised = self
            .0
            .iter()
            .filter_map(|(uid, asked)| Some((world.state.workloads.get(uid)?, uid, asked.pods?)));
        for (w, uid, pods) in promised.filter(|(w, ..)| w.finished.is_none() && w.deletion.is_none()) {
            let has: u32 = world.queues.class(w.class).gang.pod_sets.iter().map(|set| set.count).sum();
            if has as usize != pods {
                return broken(
                    "P1",
                    format!("that {uid} has {pods} pods was acknowledged, and it has {has}"),
                );
            }
        }
        Ok(())
    }
}

impl Sim {
    /// Sometimes somebody gives a job another number of pods, never more than it began with. Drawn beside everything else.
    pub(super) fn resize_one(&mut self) {
        let mut chance = Chance::new(self.plan.seed, &format!("size at {}", self.now));
        if !chance.of_1000(400) {
            return;
        }
        let open: Vec<Uid> = self
            .oracle
            .wanted()
            .into_iter()
            .filter(|uid| !self.oracle.jobs[uid].sizes.is_empty() && self.is_open(*uid))
            .collect();
        // As often a job that runs with fewer is to be whole again.
        let small = |uid: &Uid| {
            self.oracle.jobs[uid].sizes.last().is_some_and(|pods| *pods < self.oracle.jobs[uid].pods)
                && self.runs_somewhere(*uid)
        };
        let small: Vec<Uid> = open.iter().copied().filter(small).collect();
        let larger = !small.is_empty() && chance.of_1000(500);
        let Some(uid) = chance.pick(if larger { &small } else { &open }).copied() else { return };
        let job = self.oracle.jobs.get_mut(&uid).expect("just listed");
        let pods = if larger { job.pods } else { 1 + chance.index(job.pods) };
        job.sizes.push(pods);
        let manifest = manifest_of(job, pods);
        self.ask(Wish::Resize { uid, pods, manifest });
    }

    fn runs_somewhere(&self, uid: Uid) -> bool {
        self.machines.iter().any(|machine| machine.runner.alive().any(|(other, _)| other == uid))
    }

    /// Whether another request about the size of this job is under way.
    pub(super) fn is_resized(&self, uid: Uid) -> bool {
        self.people
            .requests
            .values()
            .any(|r| matches!(r.wish, Wish::Resize { uid: other, .. } if other == uid))
    }

    /// An agent lets a gang go on with more pods.
    pub(super) fn grow_gang(
        &mut self,
        a: usize,
        machine: usize,
        (uid, fence): (Uid, Fence),
        number: u32,
        placement: Vec<PodPlacement>,
        size: Size,
    ) {
        let stored = self.agents[a]
            .store
            .get(&format!("run/{uid}"))
            .is_some_and(|run| run.contains(&format!("\"moves\":{number}")));
        let known = self.machines[machine]
            .runner
            .runs()
            .find(|(key, run)| **key == (uid, fence) && run.alive())
            .map(|(_, run)| run.clone());
        // It may have ended in the very turn that decided this.
        let Some(known) = known else { return };
        if !stored {
            self.judge(broken(
                "durable first",
                format!("{fence} of {uid} is made larger, and that is not in the agent's store"),
            ));
        }
        self.trace
            .say(self.now, || format!("agent {a} makes {fence} of {uid} larger: {size:?}, {placement:?}"));
        if number > known.moved {
            self.counters.one("gangs made larger");
            if self.machines[machine].honest {
                let verdict = self.oracle.grows(uid, fence, placement.len(), size.parallelism as usize);
                self.judge(verdict);
                let after = known.places().len();
                if !placement.starts_with(known.places()) || placement.len() <= after {
                    self.judge(broken("P3", format!("{fence} of {uid} grows, and what it had isn't as it was: {placement:?} after {:?}", known.places())));
                }
                let kept = known.smaller.map_or(known.kept, |(_, pods)| pods);
                if placement.len() - after != (size.parallelism as usize).saturating_sub(kept) {
                    let words = format!(
                        "{fence} of {uid} grows to {size:?} in {} places, of {after} with {} pods: {:?}",
                        placement.len(),
                        known.kept,
                        known.smaller
                    );
                    self.judge(broken("P3", words));
                }
            }
        }
        if let Some(event) = self.machines[machine].runner.grow(uid, fence, number, placement, size) {
            self.agents[a].inbox.push(Input::Runner(event));
            self.rouse(a, self.now);
        }
        if self.machines[machine].honest {
            self.judge_nodes(machine);
            self.judge_nearness(machine);
        }
    }

    /// An agent makes a gang smaller.
    pub(super) fn shrink_gang(&mut self, a: usize, machine: usize, (uid, fence): (Uid, Fence), size: Size) {
        let stored =
            self.agents[a].store.get(&format!("run/{uid}")).is_some_and(|run| run.contains("\"size\":"));
        // It may have ended in the very turn that decided this.
        let lives = self.machines[machine].runner.alive().any(|run| run == (uid, fence));
        if !stored && lives {
            self.judge(broken(
                "durable first",
                format!("{fence} of {uid} is made smaller, and that is not in the agent's store"),
            ));
        }
        self.trace.say(self.now, || format!("agent {a} makes {fence} of {uid} smaller: {size:?}"));
        self.counters.one("gangs made smaller");
        let now = self.machines[machine].clock.now(self.now);
        self.machines[machine].runner.shrink(now, uid, fence, size);
    }
}

impl Job {
    /// Whether an attempt may have so many pods.
    pub(super) fn may_have(&self, pods: usize) -> bool {
        if self.sizes.is_empty() {
            (self.least.unwrap_or(self.pods)..=self.pods).contains(&pods)
        } else {
            self.sizes.contains(&pods)
        }
    }
}

impl Runner {
    /// Ends the pods of a gang that are too many, which takes its time; nothing where that changes nothing.
    pub(super) fn shrink(&mut self, now: Now, uid: Uid, fence: Fence, size: Size) {
        if let Some(run) = self.runs.get_mut(&(uid, fence)).filter(|r| r.alive()) {
            let pods = size.parallelism as usize;
            if run.smaller.is_none_or(|(_, known)| pods < known) && pods < run.kept {
                run.smaller = Some((now.mono + run.stop_takes, pods));
            }
        }
    }
}

impl Runner {
    /// Starts the pods whose places are new, once those that are too many have ended; said at once, also where that was done
    /// before, or else by [`Self::tick`].
    pub(super) fn grow(
        &mut self,
        uid: Uid,
        fence: Fence,
        number: u32,
        placement: Vec<PodPlacement>,
        size: Size,
    ) -> Option<RunnerEvent> {
        let run = self
            .runs
            .get_mut(&(uid, fence))
            .filter(|run| run.alive() && run.stops_at.is_none() && !run.adrift)?;
        if number > run.moved {
            run.larger = Some((number, placement, size.parallelism as usize));
            run.grow_larger()?;
        }
        Some(RunnerEvent::Moved { uid, fence, number })
    }
}

impl Run {
    /// Pods start in new places, if nothing has to end before; which move that was.
    pub(super) fn grow_larger(&mut self) -> Option<u32> {
        let (number, placement, kept) = self.larger.take_if(|_| self.smaller.is_none())?;
        self.indexes.extend(self.kept..self.kept + placement.len().saturating_sub(self.placement.len()));
        (self.moved, self.placement, self.kept) = (number, placement, kept);
        Some(number)
    }

    /// Pods that were too many are gone, if it is time; whether none is left that the job still needs.
    pub(super) fn grow_smaller(&mut self, now: Mono) -> bool {
        if let Some((_, pods)) = self.smaller.take_if(|(at, _)| *at <= now) {
            self.kept = self.kept.min(pods);
            self.gone.extend(
                self.indexes.iter().enumerate().filter(|(_, index)| **index >= pods).map(|(at, _)| at),
            );
        }
        self.there().is_empty()
    }

    /// Places in which nothing is any more, nor will be.
    pub(super) fn spare_places(&self) -> Vec<(String, u32)> {
        let gone =
            self.placement.iter().enumerate().filter(|(at, _)| *at < self.left || self.gone.contains(at));
        gone.map(|(_, pod)| (pod.pod_set.clone(), pod.index)).collect()
    }

    /// The same, told.
    pub(super) fn spare(&self, uid: Uid, fence: Fence) -> RunnerEvent {
        RunnerEvent::Spare { uid, fence, places: self.spare_places() }
    }
}
