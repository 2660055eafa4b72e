//! One gang on a machine, from its start to its end.
//!
//! A gang runs for a virtual time and then succeeds or fails; a stop takes up to its stop budget. Under a
//! guard it also ends by the real guard's deadline arithmetic, even when no agent is alive.

use crate::sim::fleet::job::Behaviour;
use crate::sim::hosts::runner::AttemptKey;
use meridian_agent::guard::lease::{Deadline, kill_margin};
use meridian_agent_core::runtime::PodPlacement;
use meridian_agent_core::{Found, FoundState, RunnerEvent, Start};
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::{EndResult, Size};
use meridian_shared::time::{Millis, Mono, Now};
use std::collections::BTreeSet;

/// How a gang ended.
#[derive(Clone, Debug)]
struct GangEnd {
    result: EndResult,
    pod_failures: u32,
    ran: Millis,
}

/// A command to move pods, or to add some.
#[derive(Clone, Debug)]
pub(crate) struct PodMove {
    pub(crate) key: AttemptKey,
    /// Moves of one attempt are numbered from 1.
    pub(crate) number: u32,
    /// The place of every pod after the move.
    pub(crate) placement: Vec<PodPlacement>,
}

#[derive(Clone, Debug)]
pub(crate) struct Gang {
    placement: Vec<PodPlacement>,
    /// When pods exit for good before the others: the first places of `placement`, in order.
    exit_times: Vec<Mono>,
    /// Number of those pods that have exited.
    exited: usize,
    /// Pods that the job has now.
    size: usize,
    /// The job's pod of each place, by index.
    pod_indexes: Vec<usize>,
    /// Indexes that had succeeded before the attempt.
    done_before: Indexes,
    /// Indexes that have succeeded, in earlier attempts too.
    completed: Indexes,
    /// Places of pods that were ended by a scale-down.
    removed: BTreeSet<usize>,
    /// From this moment on only this number of pods is kept.
    scale_down: Option<(Mono, usize)>,
    /// A scale-up, and its size, which waits for a scale-down to finish.
    scale_up: Option<(PodMove, usize)>,
    /// Empty places that were reported to agents.
    reported_empty: usize,
    deadline: Option<Deadline>,
    stop_budget: Millis,
    started: Mono,
    runs_from: Mono,
    ends_at: Mono,
    /// When its run time is over.
    run_until: Option<Mono>,
    succeeds: bool,
    running: bool,
    stop_duration: Millis,
    stops_at: Option<Mono>,
    stop_requested: bool,
    /// The guard is gone.
    unguarded: bool,
    pod_failures: u32,
    end: Option<GangEnd>,
    /// Pods that stop where they are, to start in other places at this moment.
    movement: Option<(Mono, PodMove)>,
    last_move: u32,
}

/// Indexes that an attempt has pods for, in order.
fn indexes_left(done_before: &Indexes) -> impl Iterator<Item = usize> {
    let left = (0..u32::MAX).filter(|index| !done_before.contains(*index));
    left.filter_map(|index| usize::try_from(index).ok())
}

impl Gang {
    /// A gang that starts now; a stop of it takes `stop_duration`.
    pub(crate) fn start(now: Now, start: &Start, job: &Behaviour, stop_duration: Millis) -> Self {
        let runs_from = now.mono + job.startup;
        // The last pod stays until the end.
        let early_exits = start.placement.len().saturating_sub(1);
        Self {
            placement: start.placement.clone(),
            exit_times: job.early_exits.iter().take(early_exits).map(|after| runs_from + *after).collect(),
            exited: 0,
            size: start.placement.len(),
            pod_indexes: indexes_left(&start.completed).take(start.placement.len()).collect(),
            done_before: start.completed.clone(),
            completed: start.completed.clone(),
            removed: BTreeSet::new(),
            scale_down: None,
            scale_up: None,
            reported_empty: 0,
            deadline: start.deadline.map(|at| Deadline::new(at, start.stop_budget, now)),
            stop_budget: start.stop_budget,
            started: now.mono,
            runs_from,
            ends_at: runs_from + job.duration,
            run_until: start.run_left.map(|left| now.mono + left),
            succeeds: job.succeeds,
            running: false,
            stop_duration,
            stops_at: None,
            stop_requested: false,
            unguarded: false,
            pod_failures: start.pod_failures,
            end: None,
            movement: None,
            last_move: 0,
        }
    }

    /// Places of its pods, including those that have exited.
    pub(crate) fn placement(&self) -> &[PodPlacement] {
        &self.placement
    }

    /// Places where pods are now.
    pub(crate) fn occupied(&self) -> Vec<&PodPlacement> {
        self.placement
            .iter()
            .enumerate()
            .filter(|(at, _)| *at >= self.exited && !self.removed.contains(at))
            .map(|(_, pod)| pod)
            .collect()
    }

    /// Number of the last move that was done.
    pub(crate) fn last_move(&self) -> u32 {
        self.last_move
    }

    /// Pods that the job has once a pending scale-down is done.
    pub(crate) fn target_size(&self) -> usize {
        self.scale_down.map_or(self.size, |(_, pods)| pods)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.end.is_none()
    }

    pub(crate) fn is_unguarded(&self) -> bool {
        self.unguarded
    }

    /// Ends the gang with all its pods.
    fn conclude(&mut self, key: AttemptKey, now: Now, result: EndResult) -> RunnerEvent {
        let pod_failures = self.pod_failures + u32::from(matches!(result, EndResult::Failed { .. }));
        let end = GangEnd { result, pod_failures, ran: now.mono.since(self.started) };
        let event = end.event(key);
        self.end = Some(end);
        event
    }

    /// When the guard makes sure that nothing runs any more, by boot time.
    pub(crate) fn lapse(&self, now: Now) -> Option<Mono> {
        self.deadline.map(|deadline| deadline.kill_at(now) + kill_margin(self.stop_budget))
    }

    /// Extends the deadline, unless the gang is stopping.
    pub(crate) fn renew(&mut self, now: Now, deadline: Mono) {
        if self.is_alive()
            && self.stops_at.is_none()
            && !self.unguarded
            && let Some(known) = &mut self.deadline
        {
            known.renew(deadline, now, now);
        }
    }

    /// Begins to stop the gang; returns the end where it is over already.
    pub(crate) fn stop(&mut self, key: AttemptKey, now: Now) -> Option<RunnerEvent> {
        if let Some(end) = &self.end {
            return Some(end.event(key));
        }
        self.stop_requested = true;
        let stops_at = now.mono + self.stop_duration;
        self.stops_at.get_or_insert(stops_at);
        None
    }

    /// Begins to move pods. Returns the confirmation where the move was done before.
    pub(crate) fn move_pods(&mut self, now: Now, order: PodMove) -> Option<RunnerEvent> {
        if !self.is_alive() || self.unguarded {
            return None;
        }
        if order.number <= self.last_move || order.placement.len() != self.placement.len() {
            return Some(moved(order.key, order.number));
        }
        let at = now.mono + self.stop_duration;
        if self.movement.is_none() {
            self.movement = Some((at, order));
            self.ends_at = self.ends_at.max(at) + self.stop_duration;
        }
        None
    }

    /// Begins to end the pods beyond `size`; does nothing where the gang isn't larger.
    pub(crate) fn scale_down(&mut self, now: Now, size: Size) {
        let pods = size.parallelism as usize;
        if self.is_alive() && self.scale_down.is_none_or(|(_, known)| pods < known) && pods < self.size {
            self.scale_down = Some((now.mono + self.stop_duration, pods));
        }
    }

    /// Starts pods in new places, once a pending scale-down is done. Returns the confirmation if the scale-up
    /// is done now or was done before; otherwise [`Self::tick`] reports it.
    pub(crate) fn scale_up(&mut self, order: PodMove, size: Size) -> Option<RunnerEvent> {
        if !self.is_alive() || self.stops_at.is_some() || self.unguarded {
            return None;
        }
        let (key, number) = (order.key, order.number);
        if number > self.last_move {
            self.scale_up = Some((order, size.parallelism as usize));
            self.apply_scale_up()?;
        }
        Some(moved(key, number))
    }

    /// Does a pending scale-up, unless pods have to end before; returns its number.
    fn apply_scale_up(&mut self) -> Option<u32> {
        let (order, size) = self.scale_up.take_if(|_| self.scale_down.is_none())?;
        let more = order.placement.len().saturating_sub(self.placement.len());
        self.pod_indexes.extend(indexes_left(&self.done_before).skip(self.size).take(more));
        (self.last_move, self.placement, self.size) = (order.number, order.placement, size);
        Some(order.number)
    }

    /// Does a pending scale-down if it is due; returns whether no pod is left.
    fn apply_scale_down(&mut self, now: Mono) -> bool {
        if let Some((_, pods)) = self.scale_down.take_if(|(at, _)| *at <= now) {
            self.size = self.size.min(pods);
            let end = indexes_left(&self.done_before).nth(pods).unwrap_or(usize::MAX);
            let beyond = self.pod_indexes.iter().enumerate().filter(|(_, index)| **index >= end);
            self.removed.extend(beyond.map(|(at, _)| at));
        }
        self.occupied().is_empty()
    }

    /// Places that have no pod and never will have one again.
    fn empty_places(&self) -> Vec<(String, u32)> {
        let empty = self
            .placement
            .iter()
            .enumerate()
            .filter(|(at, _)| *at < self.exited || self.removed.contains(at));
        empty.map(|(_, pod)| (pod.pod_set.clone(), pod.index)).collect()
    }

    /// An agent starts, which may not know of the empty places: they are reported again.
    pub(crate) fn report_again(&mut self) {
        self.reported_empty = 0;
    }

    /// Does everything that is due, and returns the events that agents see.
    pub(crate) fn tick(&mut self, key: AttemptKey, now: Now, guarded: bool) -> Vec<RunnerEvent> {
        let (uid, fence) = key;
        if let Some(deadline) = &mut self.deadline {
            deadline.look(now);
        }
        if self.unguarded {
            let is_due = now.mono >= self.ends_at;
            return is_due.then(|| self.end_without_guard(key, now)).into_iter().collect();
        }
        let mut events = Vec::new();
        if !self.running && self.stops_at.is_none() && now.mono >= self.runs_from {
            self.running = true;
            events.push(RunnerEvent::Running { uid, fence });
            if !self.succeeds {
                events.push(RunnerEvent::PodsFailed { uid, fence, failures: 1 });
            }
        }
        if self.running && self.stops_at.is_none() {
            self.exited = self.exit_times.iter().filter(|at| **at <= now.mono).count();
            events.extend(self.newly_completed(key));
            let all_exited = self.apply_scale_down(now.mono);
            if let Some(number) = self.apply_scale_up() {
                events.push(moved(key, number));
            } else if all_exited {
                // All pods that are left to the job have succeeded.
                self.ends_at = self.ends_at.min(now.mono);
            }
            let places = self.empty_places();
            if places.len() > self.reported_empty {
                self.reported_empty = places.len();
                events.push(RunnerEvent::Reclaimable { uid, fence, places });
            }
        }
        let result = self.result_due(now, guarded);
        if result.is_none()
            && self.stops_at.is_none()
            && let Some((_, order)) = self.movement.take_if(|(at, _)| now.mono >= *at)
        {
            (self.last_move, self.placement) = (order.number, order.placement);
            events.push(moved(key, order.number));
        }
        events.extend(result.map(|result| self.conclude(key, now, result)));
        events
    }

    /// The completed indexes, if there are more than before.
    fn newly_completed(&mut self, (uid, fence): AttemptKey) -> Option<RunnerEvent> {
        let before = self.completed.len();
        for index in &self.pod_indexes[..self.exited] {
            self.completed.insert(u32::try_from(*index).expect("few pods"));
        }
        let indexes = self.completed.clone();
        (indexes.len() > before).then_some(RunnerEvent::Completed { uid, fence, indexes })
    }

    /// How the gang ends now, if it does. A guard begins to stop it in time before the lapse.
    fn result_due(&mut self, now: Now, guarded: bool) -> Option<EndResult> {
        let mut result = None;
        if self.running && now.mono >= self.ends_at {
            let failed =
                || EndResult::Failed { reason: "BackoffLimitExceeded".into(), message: "pods failed".into() };
            result = Some(if self.succeeds { EndResult::Succeeded } else { failed() });
        }
        if self.stops_at.is_none() && self.run_until.is_some_and(|until| now.mono >= until) {
            let (reason, message) = ("DeadlineExceeded".to_owned(), "the run time is over".to_owned());
            result.get_or_insert(EndResult::Failed { reason, message });
        }
        if let Some(deadline) = self.deadline.filter(|_| guarded) {
            let stop_at = deadline.stop_at(now);
            if now.mono >= stop_at {
                let stop_duration = self.stop_duration;
                self.stops_at.get_or_insert(stop_at + stop_duration);
            }
            // The latest that a correct guard allows: everything dies at the lapse itself.
            if now.mono >= deadline.kill_at(now) + kill_margin(self.stop_budget) {
                result.get_or_insert(EndResult::Stopped);
            }
        }
        if self.stops_at.is_some_and(|at| now.mono >= at) {
            result.get_or_insert(EndResult::Stopped);
        }
        result
    }

    /// When [`Self::tick`] is due next.
    pub(crate) fn next_tick(&self, now: Now, guarded: bool) -> Mono {
        if self.unguarded {
            return self.ends_at;
        }
        let undisturbed = self.running && self.stops_at.is_none();
        let mut next = if self.running { self.ends_at } else { self.runs_from };
        // A stop cancels a move.
        if let Some((at, _)) = self.movement.as_ref().filter(|_| self.stops_at.is_none()) {
            next = next.min(*at);
        }
        if let Some((at, _)) = self.scale_down.filter(|_| undisturbed) {
            next = next.min(at);
        }
        if undisturbed && self.reported_empty < self.empty_places().len() {
            next = now.mono;
        } else if let Some(exit) = self.exit_times.get(self.exited).filter(|_| undisturbed) {
            next = next.min(*exit);
        }
        if let Some(at) = self.stops_at {
            next = if self.running { next.min(at).min(self.ends_at) } else { at };
        }
        if let Some(until) = self.run_until.filter(|_| self.stops_at.is_none()) {
            next = next.min(until);
        }
        if let Some(deadline) = self.deadline.filter(|_| guarded) {
            let lapse = deadline.kill_at(now) + kill_margin(self.stop_budget);
            next = next.min(if self.stops_at.is_none() { deadline.stop_at(now) } else { lapse });
        }
        next
    }

    /// State of the gang that a starting agent finds.
    pub(crate) fn found(&self, (uid, fence): AttemptKey) -> Found {
        let state = match &self.end {
            // A gang without a guard is being ended.
            None => FoundState::Live { running: self.running && !self.unguarded },
            Some(GangEnd { result, pod_failures, ran }) => {
                FoundState::Ended { result: result.clone(), pod_failures: *pod_failures, ran: *ran }
            }
        };
        let nodes = self.placement.iter().map(|place| place.node.clone()).collect();
        Found { uid, fence, nodes, completed: self.completed.clone(), state }
    }

    /// The guard is killed.
    pub(crate) fn lose_guard(&mut self) {
        self.unguarded = true;
    }

    /// Ends a gang that has lost its guard. How its pods ended is unknown.
    pub(crate) fn end_without_guard(&mut self, key: AttemptKey, now: Now) -> RunnerEvent {
        let lost =
            || EndResult::NodeLost { message: "the gang's guard was killed, and the gang with it".into() };
        let result = if self.stop_requested { EndResult::Stopped } else { lost() };
        self.conclude(key, now, result)
    }

    /// Whether the gang is alive after its lapse because its guard is gone.
    pub(crate) fn outlives_its_lapse(&self, now: Now) -> bool {
        self.unguarded && self.is_alive() && self.lapse(now).is_some_and(|lapse| now.mono >= lapse)
    }
}

impl GangEnd {
    fn event(&self, (uid, fence): AttemptKey) -> RunnerEvent {
        let Self { result, pod_failures, ran } = self;
        RunnerEvent::Ended { uid, fence, result: result.clone(), pod_failures: *pod_failures, ran: *ran }
    }
}

/// The end of an attempt of which nothing was ever started.
pub(crate) fn never_started((uid, fence): AttemptKey) -> RunnerEvent {
    RunnerEvent::Ended { uid, fence, result: EndResult::Stopped, pod_failures: 0, ran: Millis(0) }
}

fn moved((uid, fence): AttemptKey, number: u32) -> RunnerEvent {
    RunnerEvent::Moved { uid, fence, number }
}
