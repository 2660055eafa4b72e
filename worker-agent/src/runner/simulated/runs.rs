//! All simulated runs, and the effect of time on them (pure).
//!
//! Invariants: the same commands at the same moments give the same events; a run that has ended never
//! changes; every live run has exactly one entry in `due`, the time of its next event.

use super::command::RunCommand;
use super::live::LiveRun;
use super::plan::{self, Speed};
use crate::job_run::RunEnd;
use meridian_agent_core::runtime::{Found, FoundState, RunnerEvent, Start};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::jumps::ClockJumps;
use meridian_shared::protocol::EndResult;
use meridian_shared::time::{Mono, Now};
use std::collections::{BTreeMap, BTreeSet};

type Key = (Uid, Fence);

#[derive(Debug)]
enum SimulatedRun {
    Live(Box<LiveRun>),
    Ended {
        end: RunEnd,
        /// A sentence for the log of the run.
        description: String,
    },
}

/// All simulated runs of one agent.
#[derive(Debug)]
pub(super) struct SimulatedRuns {
    speed: Speed,
    runs: BTreeMap<Key, SimulatedRun>,
    due: BTreeSet<(Mono, Key)>,
    /// When the clocks were last compared, and their jumps.
    compared: Option<(Mono, ClockJumps)>,
}

impl SimulatedRuns {
    /// No runs; jobs go at `speed`.
    pub(super) fn new(speed: Speed) -> Self {
        Self { speed, runs: BTreeMap::new(), due: BTreeSet::new(), compared: None }
    }

    /// Carries out one command.
    pub(super) fn apply(&mut self, command: RunCommand, now: Now) -> Vec<RunnerEvent> {
        let mut events = self.advance(now);
        match command {
            RunCommand::Start(start) => self.start(*start, now, &mut events),
            RunCommand::Renew { uid, fence, deadline } => {
                if let Some(live) = self.live_mut((uid, fence)) {
                    live.renew(deadline, now);
                    self.settle((uid, fence), now, &mut events);
                }
            }
            RunCommand::Move { uid, fence, number, placement } => {
                let Some(live) = self.live_mut((uid, fence)) else { return events };
                let is_new = live.move_pods(number, placement, now);
                self.finish_move((uid, fence), number, is_new, now, &mut events);
            }
            RunCommand::ScaleUp { uid, fence, number, placement, size } => {
                let Some(live) = self.live_mut((uid, fence)) else { return events };
                let is_new = live.scale_up(number, placement, size, now);
                self.finish_move((uid, fence), number, is_new, now, &mut events);
            }
            RunCommand::ScaleDown { uid, fence, size } => {
                if self.live_mut((uid, fence)).is_some_and(|live| live.scale_down(size, now)) {
                    self.reschedule((uid, fence), now.mono);
                    self.settle((uid, fence), now, &mut events);
                }
            }
            RunCommand::Stop { uid, fence } => self.stop(uid, fence, now, &mut events),
            RunCommand::Forget { uid, fence } => {
                if matches!(self.runs.get(&(uid, fence)), Some(SimulatedRun::Ended { .. })) {
                    self.runs.remove(&(uid, fence));
                }
            }
            RunCommand::Ended { uid, fence, end } => {
                self.unschedule((uid, fence));
                let description = "ended before the agent was restarted".into();
                self.runs.insert((uid, fence), SimulatedRun::Ended { end, description });
            }
        }
        events
    }

    fn live_mut(&mut self, key: Key) -> Option<&mut LiveRun> {
        match self.runs.get_mut(&key) {
            Some(SimulatedRun::Live(live)) => Some(live),
            Some(SimulatedRun::Ended { .. }) | None => None,
        }
    }

    /// Whether wall time and boot time moved apart since the last call. An input log may replay out of order,
    /// so an earlier `now` counts as no change.
    fn clocks_changed(&mut self, now: Now) -> bool {
        let (at, jumps) = self.compared.get_or_insert((now.mono, ClockJumps::since(now)));
        if now.mono < *at {
            return false;
        }
        *at = now.mono;
        let before = jumps.lead();
        jumps.observe(now);
        jumps.lead() != before
    }

    /// Lets time pass.
    pub(super) fn advance(&mut self, now: Now) -> Vec<RunnerEvent> {
        let mut events = Vec::new();
        if self.clocks_changed(now) {
            // After a pause of the machine, deadlines are nearer than scheduled; if the clock was set back,
            // all of them must count that.
            for key in self.due.iter().map(|(_, key)| *key).collect::<Vec<_>>() {
                self.settle(key, now, &mut events);
            }
        }
        while let Some(&(due, key)) = self.due.first()
            && due <= now.mono
        {
            self.settle(key, now, &mut events);
        }
        events
    }

    /// When something next happens.
    pub(super) fn next_due(&self) -> Option<Mono> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The reclaimable positions of all live runs, for an agent that starts.
    pub(super) fn reclaimable(&self) -> Vec<RunnerEvent> {
        let event = |((uid, fence), run): (&Key, &SimulatedRun)| match run {
            SimulatedRun::Live(live) => Some(live.reclaimable())
                .filter(|places| !places.is_empty())
                .map(|places| RunnerEvent::Reclaimable { uid: *uid, fence: *fence, places }),
            SimulatedRun::Ended { .. } => None,
        };
        self.runs.iter().filter_map(event).collect()
    }

    pub(super) fn found(&self) -> Vec<Found> {
        let found = |((uid, fence), run): (&Key, &SimulatedRun)| {
            let (nodes, completed, state) = match run {
                SimulatedRun::Live(live) => {
                    let nodes = live.placement().iter().map(|place| place.node.clone()).collect();
                    (nodes, live.pods().completed().clone(), FoundState::Live { running: true })
                }
                SimulatedRun::Ended { end, .. } => (Vec::new(), end.completed.clone(), end.clone().found()),
            };
            Found { uid: *uid, fence: *fence, nodes, completed, state }
        };
        self.runs.iter().map(found).collect()
    }

    /// Commands, with their times, that would produce the same runs.
    pub(super) fn commands(&self) -> Vec<(Now, RunCommand)> {
        let commands = |((uid, fence), run): (&Key, &SimulatedRun)| match run {
            SimulatedRun::Live(live) => live.commands(),
            SimulatedRun::Ended { end, .. } => {
                vec![(Now::default(), RunCommand::Ended { uid: *uid, fence: *fence, end: end.clone() })]
            }
        };
        self.runs.iter().flat_map(commands).collect()
    }

    /// Number of runs, ended ones included.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Ends every live run, because the machine was restarted.
    pub(super) fn lose_all(&mut self) {
        let live: Vec<Key> = self
            .runs
            .iter()
            .filter(|(_, run)| matches!(run, SimulatedRun::Live(_)))
            .map(|(key, _)| *key)
            .collect();
        for key in live {
            let message = "the machine was restarted while it ran (simulated)".into();
            self.end(key, EndResult::NodeLost { message }, Mono(0), &mut Vec::new());
        }
    }

    /// A sentence for the log of a run, and whether the run is live; `None` if the run is not known.
    pub(super) fn describe(&self, uid: Uid, fence: Fence) -> Option<(String, bool)> {
        Some(match self.runs.get(&(uid, fence))? {
            SimulatedRun::Live(live) => (live.description(self.speed), true),
            SimulatedRun::Ended { description, .. } => (description.clone(), false),
        })
    }

    fn start(&mut self, start: Start, now: Now, events: &mut Vec<RunnerEvent>) {
        let (uid, fence) = (start.uid, start.fence);
        match self.runs.get(&(uid, fence)) {
            Some(SimulatedRun::Live(_)) => return events.push(RunnerEvent::Running { uid, fence }),
            Some(SimulatedRun::Ended { end, .. }) => return events.extend(end.clone().events(uid, fence)),
            None => {}
        }
        let job = plan::job_of(&start.spec)
            .map_err(|e| e.to_string())
            .and_then(|job| plan::check(&job).map(|()| job));
        let job = match job {
            Ok(job) => job,
            Err(message) => {
                let result = EndResult::Failed { reason: "NotRunnable".into(), message };
                let end = RunEnd::without_pods(result, start.pod_failures);
                return self.end_unstarted(uid, fence, end, "it could not be run", events);
            }
        };
        let live = LiveRun::new(start, &job, self.speed, now);
        if !live.must_have_stopped(now) {
            events.push(RunnerEvent::Running { uid, fence });
        }
        self.due.insert((live.due, (uid, fence)));
        self.runs.insert((uid, fence), SimulatedRun::Live(Box::new(live)));
        self.settle((uid, fence), now, events);
    }

    fn stop(&mut self, uid: Uid, fence: Fence, now: Now, events: &mut Vec<RunnerEvent>) {
        match self.runs.get(&(uid, fence)) {
            Some(SimulatedRun::Ended { end, .. }) => events.extend(end.clone().events(uid, fence)),
            Some(SimulatedRun::Live(_)) => self.end((uid, fence), EndResult::Stopped, now.mono, events),
            // The name is occupied, so that the run can't be started afterwards.
            None => {
                let end = RunEnd::without_pods(EndResult::Stopped, 0);
                self.end_unstarted(uid, fence, end, "stopped before it was started", events);
            }
        }
    }

    fn end_unstarted(
        &mut self,
        uid: Uid,
        fence: Fence,
        end: RunEnd,
        why: &str,
        events: &mut Vec<RunnerEvent>,
    ) {
        events.extend(end.clone().events(uid, fence));
        self.runs.insert((uid, fence), SimulatedRun::Ended { end, description: why.to_owned() });
    }

    /// Answers a move or scale-up; a repeated one is answered again.
    fn finish_move(
        &mut self,
        (uid, fence): Key,
        number: u32,
        is_new: bool,
        now: Now,
        events: &mut Vec<RunnerEvent>,
    ) {
        if is_new {
            self.reschedule((uid, fence), now.mono);
        }
        events.push(RunnerEvent::Moved { uid, fence, number });
        self.settle((uid, fence), now, events);
    }

    /// Brings one run up to now, and schedules what happens to it next.
    fn settle(&mut self, key: Key, now: Now, events: &mut Vec<RunnerEvent>) {
        let ((uid, fence), speed) = (key, self.speed);
        let Some(live) = self.live_mut(key) else {
            self.due.retain(|(_, k)| *k != key);
            return;
        };
        let (before, completed_before) = (live.pods().failures(), live.pods().completed().len());
        if let Some(result) = live.advance(speed, now) {
            return self.end(key, result, now.mono, events);
        }
        let failures = live.pods().failures();
        if failures > before {
            events.push(RunnerEvent::PodsFailed { uid, fence, failures });
        }
        let completed = live.pods().completed();
        if completed.len() > completed_before {
            events.push(RunnerEvent::Completed { uid, fence, indexes: completed.clone() });
        }
        if let Some(places) = live.new_reclaimable() {
            events.push(RunnerEvent::Reclaimable { uid, fence, places });
        }
        let due = live.next_due(now);
        self.reschedule(key, due);
    }

    fn end(&mut self, key: Key, result: EndResult, until: Mono, events: &mut Vec<RunnerEvent>) {
        self.unschedule(key);
        let Some(SimulatedRun::Live(live)) = self.runs.remove(&key) else { return };
        let end = RunEnd {
            result,
            pods: live.pods().outcomes(),
            pod_failures: live.pods().failures(),
            ran: self.speed.undo(until.since(live.started().mono)),
            completed: live.pods().completed().clone(),
        };
        events.extend(end.clone().events(key.0, key.1));
        self.runs.insert(key, SimulatedRun::Ended { end, description: live.description(self.speed) });
    }

    fn reschedule(&mut self, key: Key, due: Mono) {
        self.unschedule(key);
        if let Some(live) = self.live_mut(key) {
            live.due = due;
            self.due.insert((due, key));
        }
    }

    fn unschedule(&mut self, key: Key) {
        if let Some(due) = self.live_mut(key).map(|live| live.due) {
            self.due.remove(&(due, key));
        }
    }
}

#[cfg(test)]
mod tests;
