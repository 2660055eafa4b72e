//! What really runs on one machine: the truth that every promise is judged by.
//!
//! Gangs start, run for a virtual time, succeed or fail, and take up to their stop budget to stop. On a guarded machine
//! each gang stands under the real guard's deadline arithmetic and ends by it even when no agent lives; on a supervised
//! one only the agent stops it. What becomes of a gang whose guard is killed is in [`super::guards`]. A name (uid, fence) is
//! used once: a stop occupies an unknown one.

use super::chance::Chance;
use meridian_agent::guard::lease::{Deadline, kill_margin};
use meridian_agent_core::ledger::PodPlacement;
use meridian_agent_core::{Found, FoundState, RunnerEvent, Start};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::EndResult;
use meridian_shared::time::{Millis, Mono, Now};
use std::collections::{BTreeMap, BTreeSet};

/// What a job does once it runs.
#[derive(Clone, Debug)]
pub(super) struct Behaviour {
    /// Until all pods have started.
    pub(super) startup: Millis,
    /// From then until it ends.
    pub(super) duration: Millis,
    /// Whether it succeeds.
    pub(super) succeeds: bool,
    /// When pods that end before the others do so, counted from the same moment, soonest first.
    pub(super) leaves: Vec<Millis>,
}

/// One gang.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Where its pods were put.
    pub(super) placement: Vec<PodPlacement>,
    /// When the first of them leave for good.
    leaves: Vec<Mono>,
    pub(super) left: usize,
    /// Its size: which of the job's pods, by index, are to be there.
    pub(super) kept: usize,
    /// What it grows to once those that are too many have ended.
    pub(super) larger: Option<(u32, Vec<PodPlacement>, usize)>,
    /// Which of the job's pods each place is for.
    pub(super) indexes: Vec<usize>,
    /// Places whose pods were too many and were ended.
    pub(super) gone: BTreeSet<usize>,
    /// From this moment on only so many are kept.
    pub(super) smaller: Option<(Mono, usize)>,
    /// So many of those that left were told of.
    told: usize,
    deadline: Option<Deadline>,
    budget: Millis,
    begun: Mono,
    runs_from: Mono,
    pub(super) ends_at: Mono,
    succeeds: bool,
    running: bool,
    pub(super) stop_takes: Millis,
    pub(super) stops_at: Option<Mono>,
    /// An agent told it to stop.
    pub(super) told_to_stop: bool,
    /// Its guard is gone.
    pub(super) adrift: bool,
    pod_failures: u32,
    over: Option<(EndResult, u32, Millis)>,
    /// Pods that end where they are, to start elsewhere at this moment.
    movement: Option<(Mono, u32, Vec<PodPlacement>)>,
    pub(super) moved: u32,
}

impl Run {
    /// Where its pods were put, those that have left too.
    pub(super) fn places(&self) -> &[PodPlacement] {
        &self.placement
    }

    /// Where its pods are: all but those that have left.
    pub(super) fn there(&self) -> Vec<&PodPlacement> {
        self.placement
            .iter()
            .enumerate()
            .filter(|(at, _)| *at >= self.left && !self.gone.contains(at))
            .map(|(_, pod)| pod)
            .collect()
    }

    /// Pods leave whose time has come, if nothing stops the gang.
    fn leave(&mut self, now: Now) {
        if self.running && self.stops_at.is_none() {
            self.left = self.leaves.iter().filter(|at| **at <= now.mono).count();
        }
    }

    /// Whether anything of it is left.
    pub(super) fn alive(&self) -> bool {
        self.over.is_none()
    }

    /// Nothing of it is left from now on.
    pub(super) fn conclude(
        &mut self,
        (uid, fence): (Uid, Fence),
        now: Now,
        result: EndResult,
    ) -> RunnerEvent {
        let failures = self.pod_failures + u32::from(matches!(result, EndResult::Failed { .. }));
        let ran = now.mono.since(self.begun);
        self.over = Some((result.clone(), failures, ran));
        ended(uid, fence, result, failures, ran)
    }

    /// When its guard sees to it that nothing runs any more.
    pub(super) fn lapse(&self, now: Now) -> Option<Mono> {
        self.deadline.map(|deadline| deadline.kill_at(now) + kill_margin(self.budget))
    }
}

/// One machine's gangs.
#[derive(Clone, Debug, Default)]
pub(super) struct Runner {
    guarded: bool,
    pub(super) runs: BTreeMap<(Uid, Fence), Run>,
    names: BTreeSet<(Uid, Fence)>,
}

impl Runner {
    /// A machine without gangs.
    pub(super) fn new(guarded: bool) -> Self {
        Self { guarded, ..Self::default() }
    }

    /// Every gang that is known here.
    pub(super) fn runs(&self) -> impl Iterator<Item = (&(Uid, Fence), &Run)> {
        self.runs.iter()
    }

    /// Gangs of which anything is left.
    pub(super) fn alive(&self) -> impl Iterator<Item = (Uid, Fence)> + '_ {
        self.runs.iter().filter(|(_, r)| r.alive()).map(|(k, _)| *k)
    }

    /// Starts a gang; false when its name was used before.
    pub(super) fn start(&mut self, now: Now, start: &Start, job: &Behaviour, chance: &mut Chance) -> bool {
        if !self.names.insert((start.uid, start.fence)) {
            return false;
        }
        let budget = if start.deadline.is_some() { start.stop_budget.0 } else { 2_000 };
        let stop_takes = Millis(if chance.of_1000(400) { budget } else { chance.between(0, budget) });
        let runs_from = now.mono + job.startup;
        // The last one stays until the end.
        let most = start.placement.len().saturating_sub(1);
        let run = Run {
            placement: start.placement.clone(),
            leaves: job.leaves.iter().take(most).map(|after| runs_from + *after).collect(),
            left: 0,
            kept: start.placement.len(),
            larger: None,
            indexes: (0..start.placement.len()).collect(),
            gone: BTreeSet::new(),
            smaller: None,
            told: 0,
            deadline: start.deadline.map(|at| Deadline::new(at, start.stop_budget, now)),
            budget: start.stop_budget,
            begun: now.mono,
            runs_from,
            ends_at: runs_from + job.duration,
            succeeds: job.succeeds,
            running: false,
            stop_takes,
            stops_at: None,
            told_to_stop: false,
            adrift: false,
            pod_failures: start.pod_failures,
            over: None,
            movement: None,
            moved: 0,
        };
        self.runs.insert((start.uid, start.fence), run);
        true
    }

    /// Pushes a deadline out.
    pub(super) fn renew(&mut self, now: Now, uid: Uid, fence: Fence, deadline: Mono) {
        if let Some(run) =
            self.runs.get_mut(&(uid, fence)).filter(|r| r.alive() && r.stops_at.is_none() && !r.adrift)
            && let Some(known) = &mut run.deadline
        {
            known.renew(deadline, now, now);
        }
    }

    /// Moves pods; said at once where that is done already, else by [`Self::tick`].
    pub(super) fn move_pods(
        &mut self,
        now: Now,
        uid: Uid,
        fence: Fence,
        number: u32,
        placement: Vec<PodPlacement>,
    ) -> Option<RunnerEvent> {
        let run = self.runs.get_mut(&(uid, fence)).filter(|r| r.alive() && !r.adrift)?;
        if number <= run.moved || placement.len() != run.places().len() {
            return Some(RunnerEvent::Moved { uid, fence, number });
        }
        let at = now.mono + run.stop_takes;
        if run.movement.is_none() {
            run.movement = Some((at, number, placement));
            run.ends_at = run.ends_at.max(at) + run.stop_takes;
        }
        None
    }

    /// Stops a gang, known or not; its end is reported by [`Self::tick`] or, for what is over, at once.
    pub(super) fn stop(&mut self, now: Now, uid: Uid, fence: Fence) -> Option<RunnerEvent> {
        self.names.insert((uid, fence));
        match self.runs.get_mut(&(uid, fence)) {
            None => Some(ended(uid, fence, EndResult::Stopped, 0, Millis(0))),
            Some(Run { over: Some((result, failures, ran)), .. }) => {
                Some(ended(uid, fence, result.clone(), *failures, *ran))
            }
            Some(run) => {
                run.told_to_stop = true;
                let takes = run.stop_takes;
                run.stops_at.get_or_insert(now.mono + takes);
                None
            }
        }
    }

    /// Removes what is left of a gang that is over.
    pub(super) fn forget(&mut self, uid: Uid, fence: Fence) {
        if self.runs.get(&(uid, fence)).is_some_and(|r| !r.alive()) {
            self.runs.remove(&(uid, fence));
        }
    }

    /// Everything that is due, and what is to be told of it.
    pub(super) fn tick(&mut self, now: Now) -> Vec<RunnerEvent> {
        let mut events = Vec::new();
        let guarded = self.guarded;
        for ((uid, fence), run) in self.runs.iter_mut().filter(|(_, r)| r.alive()) {
            let mut result = None;
            if let Some(deadline) = &mut run.deadline {
                deadline.look(now);
            }
            if run.adrift {
                events.extend(run.drift((*uid, *fence), now));
                continue;
            }
            if !run.running && run.stops_at.is_none() && now.mono >= run.runs_from {
                run.running = true;
                events.push(RunnerEvent::Running { uid: *uid, fence: *fence });
                if !run.succeeds {
                    events.push(RunnerEvent::PodsFailed { uid: *uid, fence: *fence, failures: 1 });
                }
            }
            run.leave(now);
            if run.running && run.stops_at.is_none() {
                let all_gone = run.grow_smaller(now.mono);
                if let Some(number) = run.grow_larger() {
                    events.push(RunnerEvent::Moved { uid: *uid, fence: *fence, number });
                } else if all_gone {
                    // All that are left to it have succeeded.
                    run.ends_at = run.ends_at.min(now.mono);
                }
                if run.spare_places().len() > run.told {
                    run.told = run.spare_places().len();
                    events.push(run.spare(*uid, *fence));
                }
            }
            if run.running && now.mono >= run.ends_at {
                let failed = || EndResult::Failed {
                    reason: "BackoffLimitExceeded".into(),
                    message: "pods failed".into(),
                };
                result = Some(if run.succeeds { EndResult::Succeeded } else { failed() });
            }
            if let Some(deadline) = run.deadline.filter(|_| guarded) {
                if now.mono >= deadline.stop_at(now) {
                    let takes = run.stop_takes;
                    run.stops_at.get_or_insert(deadline.stop_at(now) + takes);
                }
                // The worst that a guard which keeps its word may do: everything dies at the lapse itself.
                if now.mono >= deadline.kill_at(now) + kill_margin(run.budget) {
                    result.get_or_insert(EndResult::Stopped);
                }
            }
            if run.stops_at.is_some_and(|at| now.mono >= at) {
                result.get_or_insert(EndResult::Stopped);
            }
            if result.is_none()
                && run.stops_at.is_none()
                && let Some((_, number, placement)) = run.movement.take_if(|(at, ..)| now.mono >= *at)
            {
                (run.moved, run.placement) = (number, placement);
                events.push(RunnerEvent::Moved { uid: *uid, fence: *fence, number });
            }
            if let Some(result) = result {
                events.push(run.conclude((*uid, *fence), now, result));
            }
        }
        events
    }

    /// When [`Self::tick`] is due next.
    pub(super) fn due(&self, now: Now) -> Option<Mono> {
        let moments = |run: &Run| {
            if run.adrift {
                return run.ends_at;
            }
            let mut next = if run.running { run.ends_at } else { run.runs_from };
            // A stop overtakes it.
            if let Some((at, ..)) = run.movement.as_ref().filter(|_| run.stops_at.is_none()) {
                next = next.min(*at);
            }
            if let Some((at, _)) = run.smaller.filter(|_| run.running && run.stops_at.is_none()) {
                next = next.min(at);
            }
            if run.running && run.stops_at.is_none() && run.told < run.spare_places().len() {
                next = now.mono;
            } else if let Some(leaves) =
                run.leaves.get(run.left).filter(|_| run.running && run.stops_at.is_none())
            {
                next = next.min(*leaves);
            }
            if let Some(at) = run.stops_at {
                next = next.min(at);
                if run.running {
                    next = next.min(run.ends_at);
                } else {
                    next = at;
                }
            }
            if let Some(deadline) = run.deadline.filter(|_| self.guarded) {
                let lapse = deadline.kill_at(now) + kill_margin(run.budget);
                next = next.min(if run.stops_at.is_none() { deadline.stop_at(now) } else { lapse });
            }
            next
        };
        self.runs.values().filter(|r| r.alive()).map(moments).min()
    }

    /// The guard's deadline of a gang, by boot time: what a pause took is no longer left (simulation seed 1358 of an older commit).
    pub(super) fn deadline(&self, uid: Uid, fence: Fence, now: Now) -> Option<Mono> {
        self.runs.get(&(uid, fence)).filter(|r| r.alive())?.lapse(now)
    }

    /// An agent starts: what it may not know is told again.
    pub(super) fn tell_again(&mut self) {
        self.runs.values_mut().for_each(|run| run.told = 0);
    }

    /// What a starting agent finds.
    pub(super) fn found(&self) -> Vec<Found> {
        let state = |run: &Run| match &run.over {
            // What has lost its guard is being ended.
            None => FoundState::Live { running: run.running && !run.adrift },
            Some((result, pod_failures, ran)) => {
                FoundState::Ended { result: result.clone(), pod_failures: *pod_failures, ran: *ran }
            }
        };
        let nodes = |run: &Run| run.placement.iter().map(|place| place.node.clone()).collect();
        self.runs
            .iter()
            .map(|((uid, fence), run)| Found {
                uid: *uid,
                fence: *fence,
                nodes: nodes(run),
                state: state(run),
            })
            .collect()
    }

    /// The machine restarted: nothing that ran is there any more.
    pub(super) fn reboot(&mut self) {
        self.runs.retain(|_, run| !run.alive());
    }
}

fn ended(uid: Uid, fence: Fence, result: EndResult, pod_failures: u32, ran: Millis) -> RunnerEvent {
    RunnerEvent::Ended { uid, fence, result, pod_failures, ran }
}
