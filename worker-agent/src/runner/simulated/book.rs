//! The simulated runs and what time does to them (pure).
//!
//! Invariants: the same inputs at the same moments give the same events; a run that has ended never changes; every live run
//! has exactly one entry in `due`, the moment when something next happens to it.

use super::plan::{Script, Speed};
use crate::guard::lease::Deadline;
use crate::runner::pods::{Pods, RETRY_DELAY_FIRST_DEFAULT, Try};
use crate::runner::{
    End, Found, FoundState, JobSpec, LogChunk, LogReader, PodPlacement, RunResult, RunnerEvent, Start,
};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::jumps::Jumps;
use meridian_shared::protocol::Size;
use meridian_shared::time::{Millis, Mono, Now};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What the book is told, also the lines of the notebook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Input {
    /// Start a run.
    Start(Box<Start>),
    /// Move its deadline.
    Renew {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
        /// The new deadline.
        deadline: Mono,
    },
    /// Give pods of it other places.
    Move {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
        /// Which move.
        number: u32,
        /// All places.
        placement: Vec<PodPlacement>,
    },
    /// Let it go on with more pods.
    Grow {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
        /// Which move.
        number: u32,
        /// All places, those that are new behind the others.
        placement: Vec<PodPlacement>,
        /// With how many.
        size: Size,
    },
    /// Let it go on with fewer pods.
    Shrink {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
        /// With how many.
        size: Size,
    },
    /// Stop it, known or not.
    Stop {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
    },
    /// Forget it, if it has ended.
    Forget {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
    },
    /// It is known to have ended like this (only in notebooks).
    Ended {
        /// The workload.
        uid: Uid,
        /// The grant.
        fence: Fence,
        /// How.
        end: End,
    },
}

type Key = (Uid, Fence);

#[derive(Debug)]
enum Entry {
    Live(Box<Live>),
    Over(Over),
}

#[derive(Debug)]
struct Over {
    end: End,
    /// What its log says.
    about: String,
}

/// What changed for a live run.
#[derive(Debug)]
enum Change {
    /// All places from then on.
    Moved {
        number: u32,
        placement: Vec<PodPlacement>,
    },
    Grown {
        number: u32,
        placement: Vec<PodPlacement>,
        size: Size,
    },
    Shrunk(Size),
}

#[derive(Debug)]
struct Live {
    start: Start,
    started: Now,
    script: Script,
    pods: Pods,
    deadline: Deadline,
    run_until: Option<Mono>,
    running: BTreeMap<usize, (Mono, Try)>,
    /// Moves of pods, and what it has shrunk to so far, each with its moment.
    changes: Vec<(Now, Change)>,
    /// So many places were said to be free for good.
    spare_told: usize,
    due: Mono,
}

/// All simulated runs of one agent.
#[derive(Debug)]
pub struct Book {
    speed: Speed,
    runs: BTreeMap<Key, Entry>,
    due: BTreeSet<(Mono, Key)>,
    /// How the clocks stood when deadlines last looked at them, and when that was.
    looked: Option<(Mono, Jumps)>,
}

impl Book {
    /// An empty book whose jobs go at `speed`.
    pub fn new(speed: Speed) -> Self {
        Self { speed, runs: BTreeMap::new(), due: BTreeSet::new(), looked: None }
    }

    /// Takes in one input.
    pub fn take_in(&mut self, input: Input, now: Now) -> Vec<RunnerEvent> {
        let mut events = self.advance(now);
        match input {
            Input::Start(start) => self.start(*start, now, &mut events),
            Input::Renew { uid, fence, deadline } => {
                if let Some(Entry::Live(live)) = self.runs.get_mut(&(uid, fence)) {
                    live.deadline.look(now);
                    live.deadline.renew(deadline, now, now);
                    self.settle((uid, fence), now, &mut events);
                }
            }
            Input::Move { uid, fence, number, placement } => {
                self.move_pods((uid, fence), number, placement, now, &mut events)
            }
            Input::Grow { uid, fence, number, placement, size } => {
                self.grow((uid, fence), number, placement, size, now, &mut events)
            }
            Input::Shrink { uid, fence, size } => self.shrink((uid, fence), size, now, &mut events),
            Input::Stop { uid, fence } => match self.runs.get(&(uid, fence)) {
                Some(Entry::Over(over)) => {
                    events.push(RunnerEvent::Ended { uid, fence, end: over.end.clone() })
                }
                Some(Entry::Live(_)) => self.end((uid, fence), RunResult::Stopped, now.mono, &mut events),
                None => {
                    // The name is occupied, so that nobody can start it from here on.
                    let end =
                        End { result: RunResult::Stopped, pods: Vec::new(), failures: 0, ran: Millis(0) };
                    self.runs.insert(
                        (uid, fence),
                        Entry::Over(Over { end: end.clone(), about: "stopped before it was started".into() }),
                    );
                    events.push(RunnerEvent::Ended { uid, fence, end });
                }
            },
            Input::Forget { uid, fence } => {
                if matches!(self.runs.get(&(uid, fence)), Some(Entry::Over(_))) {
                    self.runs.remove(&(uid, fence));
                }
            }
            Input::Ended { uid, fence, end } => {
                self.unlist((uid, fence));
                self.runs.insert(
                    (uid, fence),
                    Entry::Over(Over { end, about: "ended before the agent was restarted".into() }),
                );
            }
        }
        events
    }

    /// Whether the two clocks don't go as they went. Inputs of a notebook are not in the order of their moments.
    fn clocks_changed(&mut self, now: Now) -> bool {
        let (at, jumps) = self.looked.get_or_insert((now.mono, Jumps::since(now)));
        if now.mono < *at {
            return false;
        }
        *at = now.mono;
        let before = jumps.lead();
        jumps.look(now);
        jumps.lead() != before
    }

    /// Lets time pass.
    pub fn advance(&mut self, now: Now) -> Vec<RunnerEvent> {
        let mut events = Vec::new();
        if self.clocks_changed(now) {
            // The machine was paused, and deadlines are closer than they were listed; or its clock was set back, and they must see it.
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
    pub fn next_due(&self) -> Option<Mono> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Which pods of live runs have left their places for good: for an agent that starts.
    pub fn spare(&self) -> Vec<RunnerEvent> {
        let spare = |((uid, fence), entry): (&Key, &Entry)| match entry {
            Entry::Live(live) => Some(live.spare())
                .filter(|places| !places.is_empty())
                .map(|places| RunnerEvent::Spare { uid: *uid, fence: *fence, places }),
            Entry::Over(_) => None,
        };
        self.runs.iter().filter_map(spare).collect()
    }

    /// Every run.
    pub fn found(&self) -> Vec<Found> {
        let state = |entry: &Entry| match entry {
            Entry::Live(live) => FoundState::Running { failures: live.pods.failures() },
            Entry::Over(over) => FoundState::Ended(over.end.clone()),
        };
        let nodes = |entry: &Entry| match entry {
            Entry::Live(live) => live.placement().iter().map(|place| place.node.clone()).collect(),
            Entry::Over(_) => Vec::new(),
        };
        self.runs
            .iter()
            .map(|((uid, fence), entry)| Found {
                uid: *uid,
                fence: *fence,
                nodes: nodes(entry),
                state: state(entry),
            })
            .collect()
    }

    /// Inputs, with their moments, that make a book like this one.
    pub fn inputs(&self) -> Vec<(Now, Input)> {
        let inputs = |((uid, fence), entry): (&Key, &Entry)| match entry {
            Entry::Live(live) => {
                let start = Start { deadline: live.deadline.lapses(), ..live.start.clone() };
                let changed = |(now, change): &(Now, Change)| match change {
                    Change::Moved { number, placement } => (
                        *now,
                        Input::Move {
                            uid: *uid,
                            fence: *fence,
                            number: *number,
                            placement: placement.clone(),
                        },
                    ),
                    Change::Grown { number, placement, size } => (
                        *now,
                        Input::Grow {
                            uid: *uid,
                            fence: *fence,
                            number: *number,
                            placement: placement.clone(),
                            size: *size,
                        },
                    ),
                    Change::Shrunk(size) => (*now, Input::Shrink { uid: *uid, fence: *fence, size: *size }),
                };
                std::iter::once((live.started, Input::Start(Box::new(start))))
                    .chain(live.changes.iter().map(changed))
                    .collect()
            }
            Entry::Over(over) => {
                vec![(Now::default(), Input::Ended { uid: *uid, fence: *fence, end: over.end.clone() })]
            }
        };
        self.runs.iter().flat_map(inputs).collect()
    }

    /// How many runs there are.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Ends every live run because the machine that carried them restarted.
    pub fn lose_all(&mut self) {
        let live: Vec<Key> =
            self.runs.iter().filter(|(_, e)| matches!(e, Entry::Live(_))).map(|(k, _)| *k).collect();
        for key in live {
            let lost =
                RunResult::NodeLost { message: "the machine was restarted while it ran (simulated)".into() };
            self.end(key, lost, Mono(0), &mut Vec::new());
        }
    }

    /// What the pods of a run would have printed.
    pub fn logs(&self, uid: Uid, fence: Fence, pod: Option<u32>) -> Option<LogReader> {
        let about = match self.runs.get(&(uid, fence))? {
            Entry::Live(live) => live.about(self.speed),
            Entry::Over(over) => over.about.clone(),
        };
        let text = format!("simulated: no real output; {about}\n");
        Some(LogReader::text(vec![LogChunk { pod: pod.unwrap_or(0), attempt: 0, bytes: text.into_bytes() }]))
    }

    fn start(&mut self, start: Start, now: Now, events: &mut Vec<RunnerEvent>) {
        let (uid, fence) = (start.uid, start.fence);
        match self.runs.get(&(uid, fence)) {
            Some(Entry::Live(_)) => {
                events.push(RunnerEvent::Running { uid, fence });
                return;
            }
            Some(Entry::Over(over)) => {
                events.push(RunnerEvent::Ended { uid, fence, end: over.end.clone() });
                return;
            }
            None => {}
        }
        let job = JobSpec::parse(&start.spec)
            .map_err(|e| e.to_string())
            .and_then(|job| super::plan::check(&job).map(|()| job));
        let job = match job {
            Ok(job) => job,
            Err(message) => {
                let end = End {
                    result: RunResult::Failed { reason: "NotRunnable".into(), message },
                    pods: Vec::new(),
                    failures: start.failures,
                    ran: Millis(0),
                };
                self.runs.insert(
                    (uid, fence),
                    Entry::Over(Over { end: end.clone(), about: "it could not be run".into() }),
                );
                events.push(RunnerEvent::Ended { uid, fence, end });
                return;
            }
        };
        let script = Script::of(&job);
        let pods = Pods::new(
            &job,
            start.placement.len(),
            start.failures,
            self.speed.apply(RETRY_DELAY_FIRST_DEFAULT),
        );
        let limit = [start.run_left, job.active_deadline].into_iter().flatten().min();
        let live = Live {
            started: now,
            script,
            pods,
            deadline: Deadline::new(start.deadline, start.stop_budget, now),
            run_until: limit.map(|l| now.mono + self.speed.apply(l)),
            running: BTreeMap::new(),
            changes: Vec::new(),
            spare_told: 0,
            due: now.mono,
            start,
        };
        let in_time = now.mono < live.deadline.stop_at(now);
        self.due.insert((live.due, (uid, fence)));
        self.runs.insert((uid, fence), Entry::Live(Box::new(live)));
        if in_time {
            events.push(RunnerEvent::Running { uid, fence });
        }
        self.settle((uid, fence), now, events);
    }

    /// The pods of changed places start again in the new ones, from the beginning.
    fn move_pods(
        &mut self,
        (uid, fence): Key,
        number: u32,
        placement: Vec<PodPlacement>,
        now: Now,
        events: &mut Vec<RunnerEvent>,
    ) {
        let Some(Entry::Live(live)) = self.runs.get_mut(&(uid, fence)) else { return };
        let known = live.moves().last().map_or(0, |(number, _)| number);
        if number > known && placement.len() == live.placement().len() {
            let stays: Vec<bool> =
                live.placement().iter().zip(&placement).map(|(old, new)| old == new).collect();
            for slot in (0..stays.len()).filter(|slot| !stays[*slot]) {
                if let Some((_, this)) = live.running.remove(&slot) {
                    live.pods.again(this, now.mono);
                }
            }
            live.changes.push((now, Change::Moved { number, placement }));
            tracing::debug!(%uid, %fence, number, pods = stays.iter().filter(|stays| !**stays).count(), "pods are moved (simulated)");
            self.list((uid, fence), now.mono);
        }
        events.push(RunnerEvent::Moved { uid, fence, number });
        self.settle((uid, fence), now, events);
    }

    /// Pods start in the places that are new.
    fn grow(
        &mut self,
        (uid, fence): Key,
        number: u32,
        placement: Vec<PodPlacement>,
        size: Size,
        now: Now,
        events: &mut Vec<RunnerEvent>,
    ) {
        let Some(Entry::Live(live)) = self.runs.get_mut(&(uid, fence)) else { return };
        let known = live.moves().last().map_or(0, |(number, _)| number);
        if number > known && placement.starts_with(live.placement()) {
            live.pods.grow(size, placement.len());
            tracing::debug!(%uid, %fence, number, pods = size.parallelism, "pods are added (simulated)");
            live.changes.push((now, Change::Grown { number, placement, size }));
            self.list((uid, fence), now.mono);
        }
        events.push(RunnerEvent::Moved { uid, fence, number });
        self.settle((uid, fence), now, events);
    }

    /// Pods that are too many end at once.
    fn shrink(&mut self, (uid, fence): Key, size: Size, now: Now, events: &mut Vec<RunnerEvent>) {
        let Some(Entry::Live(live)) = self.runs.get_mut(&(uid, fence)) else { return };
        let Some(leaving) = live.pods.shrink(size) else { return };
        tracing::debug!(%uid, %fence, pods = leaving.len(), "pods that are too many end (simulated)");
        for this in leaving {
            live.running.remove(&this.slot);
            live.pods.removed(this, now.mono);
        }
        live.changes.push((now, Change::Shrunk(size)));
        self.list((uid, fence), now.mono);
        self.settle((uid, fence), now, events);
    }

    /// Brings one run up to now: what ended ends, what is due starts, and its next moment is listed.
    fn settle(&mut self, key: Key, now: Now, events: &mut Vec<RunnerEvent>) {
        let Some(Entry::Live(live)) = self.runs.get_mut(&key) else {
            self.due.retain(|(_, k)| *k != key);
            return;
        };
        let before = live.pods.failures();
        if let Some(result) = live.settle(self.speed, now) {
            self.end(key, result, now.mono, events);
            return;
        }
        if live.pods.failures() > before {
            events.push(RunnerEvent::PodFailed { uid: key.0, fence: key.1, failures: live.pods.failures() });
        }
        let spare = live.spare();
        if spare.len() > live.spare_told {
            live.spare_told = spare.len();
            events.push(RunnerEvent::Spare { uid: key.0, fence: key.1, places: spare });
        }
        let due = live.next(now);
        self.due.remove(&(live.due, key));
        live.due = due;
        self.due.insert((due, key));
    }

    fn end(&mut self, key: Key, result: RunResult, until: Mono, events: &mut Vec<RunnerEvent>) {
        self.unlist(key);
        let Some(Entry::Live(live)) = self.runs.remove(&key) else { return };
        let end = End {
            result,
            pods: live.pods.outcomes(),
            failures: live.pods.failures(),
            ran: self.speed.undo(until.since(live.started.mono)),
        };
        events.push(RunnerEvent::Ended { uid: key.0, fence: key.1, end: end.clone() });
        self.runs.insert(key, Entry::Over(Over { end, about: live.about(self.speed) }));
    }

    /// Something happens to it at another moment than was thought.
    fn list(&mut self, key: Key, due: Mono) {
        self.unlist(key);
        if let Some(Entry::Live(live)) = self.runs.get_mut(&key) {
            live.due = due;
            self.due.insert((due, key));
        }
    }

    fn unlist(&mut self, key: Key) {
        if let Some(Entry::Live(live)) = self.runs.get(&key) {
            self.due.remove(&(live.due, key));
        }
    }
}

impl Live {
    /// Lets pods end and start in the order in which that happens; returns the result once there is one.
    fn settle(&mut self, speed: Speed, now: Now) -> Option<RunResult> {
        self.deadline.look(now);
        let stop_at = self.deadline.stop_at(now);
        let run_until = self.run_until.unwrap_or(Mono(u64::MAX));
        let takes = speed.apply(self.script.duration);
        let mut at = self.due.min(now.mono);
        loop {
            if at >= stop_at || at >= run_until {
                break;
            }
            while let Some((slot, (ends, this))) =
                self.running.iter().map(|(s, r)| (*s, *r)).find(|(_, (ends, _))| *ends <= at)
            {
                self.running.remove(&slot);
                let code =
                    if self.pods.failures() < self.script.fail_first { 1 } else { self.script.exit_code };
                self.pods.ended(this, code, Some("simulated".into()), ends);
            }
            if let Some(verdict) = self.pods.verdict() {
                return Some(verdict.clone());
            }
            for this in self.pods.due(at) {
                let later = Millis(self.script.stagger.0.saturating_mul(u64::from(this.index)));
                self.running.insert(this.slot, (at + takes + speed.apply_to_wait(later), this));
            }
            let next = self.next_step(at);
            if next > now.mono {
                break;
            }
            at = next;
        }
        if now.mono >= run_until && run_until < stop_at {
            return Some(RunResult::Failed {
                reason: "DeadlineExceeded".into(),
                message: "the job was active longer than its run time allows (simulated)".into(),
            });
        }
        (now.mono >= stop_at).then_some(RunResult::LeaseLapsed)
    }

    /// Where its pods are now.
    fn placement(&self) -> &[PodPlacement] {
        self.moves().last().map_or(&self.start.placement, |(_, placement)| placement)
    }

    /// The number and the places of every move so far.
    fn moves(&self) -> impl Iterator<Item = (u32, &[PodPlacement])> {
        self.changes.iter().filter_map(|(_, change)| match change {
            Change::Moved { number, placement } | Change::Grown { number, placement, .. } => {
                Some((*number, placement.as_slice()))
            }
            Change::Shrunk(_) => None,
        })
    }

    fn spare(&self) -> Vec<(String, u32)> {
        let place =
            |slot: usize| self.placement().get(slot).map(|place| (place.pod_set.clone(), place.index));
        self.pods.spare().into_iter().filter_map(place).collect()
    }

    fn next_step(&self, after: Mono) -> Mono {
        let ends = self.running.values().map(|(ends, _)| *ends).min();
        ends.into_iter().chain(self.pods.next_due()).min().unwrap_or(Mono(u64::MAX)).max(after)
    }

    /// When something next happens to it.
    fn next(&self, now: Now) -> Mono {
        let limits = [Some(self.deadline.stop_at(now)), self.run_until].into_iter().flatten().min();
        self.next_step(Mono(0)).min(limits.unwrap_or(Mono(u64::MAX)))
    }

    fn about(&self, speed: Speed) -> String {
        let Start { namespace, name, placement, .. } = &self.start;
        let moved = match self.moves().count() {
            0 => String::new(),
            count => format!("; its pods were moved {count} times"),
        };
        format!(
            "each pod of `{namespace}/{name}` ({} at a time) was to take {} at {speed} times real speed{moved}",
            placement.len(),
            self.script.duration
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::PodPlacement;
    use meridian_shared::time::{Millis, Wall};

    const UID: Uid = Uid(7);
    const FENCE: Fence = Fence { epoch: 1, leadership: 2, counter: 3 };

    fn at(millis: u64) -> Now {
        Now { mono: Mono(millis), wall: Wall(millis as i64) }
    }

    fn start(annotations: &str, spec: &str, pods: u32) -> Input {
        let place = |index| PodPlacement {
            pod_set: "main".into(),
            index,
            node: "n".into(),
            accelerators: Vec::new(),
        };
        Input::Start(Box::new(Start {
            uid: UID,
            fence: FENCE,
            namespace: "ns".into(),
            name: "job".into(),
            spec: format!(
                r#"{{"metadata":{{"annotations":{{{annotations}}}}},"spec":{{{spec} "template":{{"spec":{{"containers":[{{"args":["10s"]}}]}}}}}}}}"#
            )
            .into(),
            placement: (0..pods).map(place).collect(),
            deadline: Mono(60_000),
            stop_budget: Millis(2_000),
            run_left: None,
            failures: 0,
        }))
    }

    fn results(events: &[RunnerEvent]) -> Vec<String> {
        let name = |event: &RunnerEvent| match event {
            RunnerEvent::Running { .. } => "running".to_owned(),
            RunnerEvent::Moved { number, .. } => format!("moved {number}"),
            RunnerEvent::PodFailed { failures, .. } => format!("failed {failures}"),
            RunnerEvent::Spare { places, .. } => format!(
                "spare {}",
                places.iter().map(|(_, index)| index.to_string()).collect::<Vec<_>>().join(" ")
            ),
            RunnerEvent::Ended { end, .. } => format!("{:?}", end.result)
                .split_once(' ')
                .map_or_else(|| format!("{:?}", end.result), |(w, _)| w.to_owned()),
        };
        events.iter().map(name).collect()
    }

    #[test]
    fn pods_that_end_at_different_times_leave_their_places_one_by_one() {
        let stagger = r#""simulated.meridian.dev/stagger":"5s""#;
        let mut book = Book::new(Speed::REAL);
        assert_eq!(
            results(&book.take_in(start(stagger, r#""parallelism":3,"completions":3,"#, 3), at(0))),
            ["running"]
        );
        assert_eq!(results(&book.advance(at(10_000))), ["spare 0"]);
        assert!(book.advance(at(14_999)).is_empty());
        assert_eq!(results(&book.advance(at(15_000))), ["spare 0 1"]);
        assert_eq!(results(&book.spare()), ["spare 0 1"], "an agent that starts hears of it again");
        assert_eq!(results(&book.advance(at(20_000))), ["Succeeded"]);
        // Without the annotation they end together.
        let mut book = Book::new(Speed::REAL);
        book.take_in(start("", r#""parallelism":3,"completions":3,"#, 3), at(0));
        assert_eq!(results(&book.advance(at(10_000))), ["Succeeded"]);
    }

    #[test]
    fn a_gang_takes_its_time_divided_by_the_speed() {
        let mut book = Book::new("10".parse().unwrap());
        assert_eq!(
            results(&book.take_in(start("", r#""parallelism":3,"completions":3,"#, 3), at(0))),
            ["running"]
        );
        assert_eq!(book.next_due(), Some(Mono(1_000)));
        assert!(book.advance(at(999)).is_empty());
        let events = book.advance(at(1_000));
        assert_eq!(results(&events), ["Succeeded"]);
        let RunnerEvent::Ended { end, .. } = &events[0] else { panic!() };
        assert_eq!(end.pods.len(), 3);
        assert_eq!(book.next_due(), None);
        assert_eq!(
            results(&book.take_in(start("", "", 3), at(2_000))),
            ["Succeeded"],
            "a repeated start says how it ended"
        );
    }

    #[test]
    fn pods_fail_first_and_are_tried_again() {
        let mut book = Book::new(Speed::REAL);
        book.take_in(start(r#""simulated.meridian.dev/fail-first":"1""#, "", 1), at(0));
        assert_eq!(results(&book.advance(at(10_000))), ["failed 1"]);
        assert_eq!(book.next_due(), Some(Mono(20_000)), "the retry waits ten seconds");
        assert_eq!(results(&book.advance(at(20_000))), [""; 0]);
        assert_eq!(results(&book.advance(at(30_000))), ["Succeeded"]);

        let mut bad = Book::new(Speed::REAL);
        bad.take_in(start(r#""simulated.meridian.dev/exit-code":"3""#, r#""backoffLimit":0,"#, 1), at(0));
        assert_eq!(results(&bad.advance(at(10_000))), ["Failed"]);
    }

    #[test]
    fn a_lease_that_is_not_renewed_ends_the_run_when_its_stop_begins() {
        let mut book = Book::new("0.1".parse().unwrap());
        book.take_in(start("", "", 1), at(0));
        book.take_in(Input::Renew { uid: UID, fence: FENCE, deadline: Mono(70_000) }, at(5_000));
        assert!(book.advance(at(58_000)).is_empty(), "it was renewed");
        assert_eq!(results(&book.advance(at(68_000))), ["LeaseLapsed"]);
    }

    #[test]
    fn a_run_may_be_longer_than_one_jump_of_the_clock_and_nothing_runs_after_the_lapse() {
        let mut book = Book::new(Speed::REAL);
        book.take_in(start("", r#""completions":9,"#, 1), at(0));
        // Nine completions of ten seconds, one after another, don't fit into the lease.
        let events = book.advance(at(600_000));
        assert_eq!(results(&events), ["LeaseLapsed"]);
        let RunnerEvent::Ended { end, .. } = &events[0] else { panic!() };
        assert_eq!(end.pods.len(), 5);
    }

    #[test]
    fn a_stop_occupies_an_unknown_name() {
        let mut book = Book::new(Speed::REAL);
        assert_eq!(results(&book.take_in(Input::Stop { uid: UID, fence: FENCE }, at(0))), ["Stopped"]);
        assert_eq!(results(&book.take_in(start("", "", 1), at(1))), ["Stopped"]);
        book.take_in(Input::Forget { uid: UID, fence: FENCE }, at(2));
        assert!(book.is_empty());
    }

    #[test]
    fn pods_that_move_start_again_and_the_others_go_on() {
        let mut book = Book::new(Speed::REAL);
        book.take_in(start("", r#""parallelism":2,"completions":2,"#, 2), at(0));
        let place = |index, node: &str| PodPlacement {
            pod_set: "main".into(),
            index,
            node: node.into(),
            accelerators: Vec::new(),
        };
        let moved =
            Input::Move { uid: UID, fence: FENCE, number: 1, placement: vec![place(0, "n"), place(1, "m")] };
        assert_eq!(results(&book.take_in(moved.clone(), at(4_000))), ["moved 1"]);
        assert_eq!(book.found()[0].nodes, ["n", "m"]);
        assert_eq!(results(&book.take_in(moved, at(5_000))), ["moved 1"], "a repetition moves nothing");
        let mut again = Book::new(Speed::REAL);
        for (now, input) in book.inputs() {
            again.take_in(input, now);
        }
        assert_eq!((again.next_due(), again.inputs()), (book.next_due(), book.inputs()));
        assert_eq!(results(&book.advance(at(10_000))), ["spare 0"], "the first pod is done");
        assert_eq!(results(&book.advance(at(14_000))), ["Succeeded"]);
        assert!(matches!(&book.found()[0].state, FoundState::Ended(end) if end.failures == 0));
    }

    fn shrink(parallelism: u32, completions: Option<u32>) -> Input {
        Input::Shrink { uid: UID, fence: FENCE, size: Size { parallelism, completions } }
    }

    /// The book that the inputs of this one make.
    fn again(book: &Book) -> Book {
        let mut again = Book::new(Speed::REAL);
        for (now, input) in book.inputs() {
            again.take_in(input, now);
        }
        assert_eq!((again.next_due(), again.inputs()), (book.next_due(), book.inputs()));
        again
    }

    #[test]
    fn pods_that_are_too_many_end_at_once_and_the_others_go_on() {
        let mut book = Book::new(Speed::REAL);
        assert!(book.take_in(shrink(2, Some(2)), at(0)).is_empty(), "nothing runs");
        book.take_in(start("", r#""parallelism":4,"completions":4,"#, 4), at(0));
        assert_eq!(results(&book.take_in(shrink(2, Some(2)), at(4_000))), ["spare 2 3"]);
        assert!(book.take_in(shrink(2, Some(2)), at(5_000)).is_empty(), "a repetition");
        assert!(book.take_in(shrink(3, Some(3)), at(5_000)).is_empty(), "larger");
        let mut again = again(&book);
        assert_eq!(results(&again.spare()), ["spare 2 3"]);
        for book in [&mut book, &mut again] {
            let events = book.advance(at(10_000));
            let [RunnerEvent::Ended { end, .. }] = events.as_slice() else { panic!("{events:?}") };
            assert_eq!((&end.result, end.pods.len(), end.failures), (&RunResult::Succeeded, 2, 0));
        }
        assert!(book.take_in(shrink(1, Some(1)), at(11_000)).is_empty(), "it is over");
    }

    #[test]
    fn a_job_that_shrinks_to_what_has_succeeded_is_complete() {
        let stagger = r#""simulated.meridian.dev/stagger":"5s""#;
        let mut book = Book::new(Speed::REAL);
        book.take_in(start(stagger, r#""parallelism":3,"completions":3,"#, 3), at(0));
        book.advance(at(10_000));
        assert_eq!(results(&book.take_in(shrink(1, Some(1)), at(12_000))), ["Succeeded"]);
    }

    #[test]
    fn with_the_same_completions_all_are_done_one_after_another_beside_moves() {
        let mut book = Book::new(Speed::REAL);
        book.take_in(start("", r#""parallelism":3,"completions":4,"#, 3), at(0));
        assert_eq!(results(&book.take_in(shrink(1, None), at(4_000))), ["spare 1 2"]);
        let place = |index| PodPlacement {
            pod_set: "main".into(),
            index,
            node: "m".into(),
            accelerators: Vec::new(),
        };
        let moved = Input::Move { uid: UID, fence: FENCE, number: 1, placement: (0..3).map(place).collect() };
        assert_eq!(results(&book.take_in(moved, at(6_000))), ["moved 1"]);
        let mut again = again(&book);
        for book in [&mut book, &mut again] {
            assert_eq!(results(&book.advance(at(45_999))), [""; 0]);
            // The first one started anew at six seconds, and three more came after it.
            assert_eq!(results(&book.advance(at(46_000))), ["Succeeded"]);
        }
        let FoundState::Ended(end) = &book.found()[0].state else { panic!() };
        assert_eq!((end.pods.len(), end.failures), (4, 0));
    }

    #[test]
    fn its_inputs_make_the_same_book_again() {
        let mut book = Book::new(Speed::REAL);
        book.take_in(start("", "", 1), at(0));
        book.take_in(Input::Renew { uid: UID, fence: FENCE, deadline: Mono(90_000) }, at(4_000));
        let mut again = Book::new(Speed::REAL);
        for (now, input) in book.inputs() {
            again.take_in(input, now);
        }
        assert_eq!((again.next_due(), again.inputs()), (book.next_due(), book.inputs()));
        again.lose_all();
        assert!(matches!(
            &again.found()[0].state,
            FoundState::Ended(End { result: RunResult::NodeLost { .. }, .. })
        ));
        let mut logs = again.logs(UID, FENCE, None).unwrap();
        assert!(
            String::from_utf8(logs.read().unwrap().unwrap().bytes)
                .unwrap()
                .starts_with("simulated: no real output")
        );
        assert!(logs.ended());
    }
}
