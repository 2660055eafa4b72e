//! One live simulated run.

use super::command::RunCommand;
use super::plan::{Script, Speed};
use crate::guard::lease::Deadline;
use crate::job_run::JobSpec;
use crate::job_run::pods::{Pods, RETRY_DELAY_FIRST_DEFAULT, Try};
use meridian_agent_core::runtime::{PodPlacement, Start};
use meridian_shared::counted::counted;
use meridian_shared::protocol::{EndResult, Size};
use meridian_shared::time::{Millis, Mono, Now};
use std::collections::BTreeMap;

/// A change of a live run.
#[derive(Debug)]
enum RunChange {
    Move { number: u32, placement: Vec<PodPlacement> },
    ScaleUp { number: u32, placement: Vec<PodPlacement>, size: Size },
    ScaleDown(Size),
}

#[derive(Debug)]
pub(super) struct LiveRun {
    start: Start,
    started: Now,
    script: Script,
    pods: Pods,
    deadline: Deadline,
    run_until: Option<Mono>,
    /// By slot: when the pod ends, and its try.
    running: BTreeMap<usize, (Mono, Try)>,
    changes: Vec<(Now, RunChange)>,
    /// Number of reclaimable positions that were reported.
    reclaimable_reported: usize,
    /// When something next happens.
    pub(super) due: Mono,
}

impl LiveRun {
    pub(super) fn new(start: Start, job: &JobSpec, speed: Speed, now: Now) -> Self {
        let retry_delay = speed.apply(RETRY_DELAY_FIRST_DEFAULT);
        let limit = [start.run_left, job.active_deadline].into_iter().flatten().min();
        Self {
            started: now,
            script: Script::of(job),
            pods: Pods::new(job, start.placement.len(), start.pod_failures, &start.completed, retry_delay),
            deadline: Deadline::new(start.lapses(), start.stop_budget, now),
            run_until: limit.map(|limit| now.mono + speed.apply(limit)),
            running: BTreeMap::new(),
            changes: Vec::new(),
            reclaimable_reported: 0,
            due: now.mono,
            start,
        }
    }

    pub(super) fn started(&self) -> Now {
        self.started
    }

    pub(super) fn pods(&self) -> &Pods {
        &self.pods
    }

    pub(super) fn must_have_stopped(&self, now: Now) -> bool {
        now.mono >= self.deadline.stop_at(now)
    }

    pub(super) fn renew(&mut self, deadline: Mono, now: Now) {
        self.deadline.look(now);
        self.deadline.renew(deadline, now, now);
    }

    /// Restarts the pods with a changed placement, from their beginning. Returns whether the move was new.
    pub(super) fn move_pods(&mut self, number: u32, placement: Vec<PodPlacement>, now: Now) -> bool {
        let current = self.placement();
        if number <= self.last_move() || placement.len() != current.len() {
            return false;
        }
        let moved: Vec<usize> =
            (0..current.len()).filter(|slot| current[*slot] != placement[*slot]).collect();
        for slot in &moved {
            if let Some((_, this)) = self.running.remove(slot) {
                self.pods.restart(this, now.mono);
            }
        }
        tracing::debug!(number, pods = moved.len(), "pods are moved (simulated)");
        self.changes.push((now, RunChange::Move { number, placement }));
        true
    }

    /// Adds pods. Returns whether the scale-up was new.
    pub(super) fn scale_up(
        &mut self,
        number: u32,
        placement: Vec<PodPlacement>,
        size: Size,
        now: Now,
    ) -> bool {
        if number <= self.last_move() || !placement.starts_with(self.placement()) {
            return false;
        }
        self.pods.scale_up(size, placement.len());
        tracing::debug!(number, pods = size.parallelism, "pods are added (simulated)");
        self.changes.push((now, RunChange::ScaleUp { number, placement, size }));
        true
    }

    /// Ends surplus pods at once. Returns whether the size was smaller.
    pub(super) fn scale_down(&mut self, size: Size, now: Now) -> bool {
        let Some(surplus) = self.pods.scale_down(size) else { return false };
        tracing::debug!(pods = surplus.len(), "surplus pods end (simulated)");
        for this in surplus {
            self.running.remove(&this.slot);
            self.pods.removed(this, now.mono);
        }
        self.changes.push((now, RunChange::ScaleDown(size)));
        true
    }

    /// Ends and starts pods in their order in time, up to now. Returns the result of the run once it has one.
    pub(super) fn advance(&mut self, speed: Speed, now: Now) -> Option<EndResult> {
        self.deadline.look(now);
        let stop_at = self.deadline.stop_at(now);
        let run_until = self.run_until.unwrap_or(Mono(u64::MAX));
        let takes = speed.apply(self.script.duration);
        let mut at = self.due.min(now.mono);
        while at < stop_at && at < run_until {
            self.end_pods(at);
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
            return Some(EndResult::Failed {
                reason: "DeadlineExceeded".into(),
                message: "the job was active longer than its run time allows (simulated)".into(),
            });
        }
        (now.mono >= stop_at).then_some(EndResult::LeaseLapsed)
    }

    fn end_pods(&mut self, at: Mono) {
        while let Some((slot, (ends, this))) =
            self.running.iter().map(|(slot, run)| (*slot, *run)).find(|(_, (ends, _))| *ends <= at)
        {
            self.running.remove(&slot);
            let fails = self.pods.failures() < self.script.fail_first;
            let code = if fails { 1 } else { self.script.exit_code };
            self.pods.ended(this, code, Some("simulated".into()), ends);
        }
    }

    /// The present placement.
    pub(super) fn placement(&self) -> &[PodPlacement] {
        self.moves().last().map_or(&self.start.placement, |(_, placement)| placement)
    }

    fn last_move(&self) -> u32 {
        self.moves().last().map_or(0, |(number, _)| number)
    }

    /// Number and placement of every move and scale-up.
    fn moves(&self) -> impl Iterator<Item = (u32, &[PodPlacement])> {
        self.changes.iter().filter_map(|(_, change)| match change {
            RunChange::Move { number, placement } | RunChange::ScaleUp { number, placement, .. } => {
                Some((*number, placement.as_slice()))
            }
            RunChange::ScaleDown(_) => None,
        })
    }

    /// Pod set and index of every reclaimable position.
    pub(super) fn reclaimable(&self) -> Vec<(String, u32)> {
        let place = |slot: usize| self.placement().get(slot).map(|pod| (pod.pod_set.clone(), pod.index));
        self.pods.reclaimable().into_iter().filter_map(place).collect()
    }

    /// All reclaimable positions, if there are more than the last time.
    pub(super) fn new_reclaimable(&mut self) -> Option<Vec<(String, u32)>> {
        let places = self.reclaimable();
        let more = places.len() > self.reclaimable_reported;
        self.reclaimable_reported = self.reclaimable_reported.max(places.len());
        more.then_some(places)
    }

    fn next_step(&self, after: Mono) -> Mono {
        let ends = self.running.values().map(|(ends, _)| *ends).min();
        ends.into_iter().chain(self.pods.next_due()).min().unwrap_or(Mono(u64::MAX)).max(after)
    }

    /// When something next happens.
    pub(super) fn next_due(&self, now: Now) -> Mono {
        let limits = [Some(self.deadline.stop_at(now)), self.run_until].into_iter().flatten().min();
        self.next_step(Mono(0)).min(limits.unwrap_or(Mono(u64::MAX)))
    }

    /// Commands, with their moments, that make a run like this one.
    pub(super) fn commands(&self) -> Vec<(Now, RunCommand)> {
        let (uid, fence) = (self.start.uid, self.start.fence);
        let deadline = self.start.deadline.map(|_| self.deadline.lapses());
        let start = RunCommand::Start(Box::new(Start { deadline, ..self.start.clone() }));
        let command = |change: &RunChange| match change {
            RunChange::Move { number, placement } => {
                RunCommand::Move { uid, fence, number: *number, placement: placement.clone() }
            }
            RunChange::ScaleUp { number, placement, size } => {
                RunCommand::ScaleUp { uid, fence, number: *number, placement: placement.clone(), size: *size }
            }
            RunChange::ScaleDown(size) => RunCommand::ScaleDown { uid, fence, size: *size },
        };
        std::iter::once((self.started, start))
            .chain(self.changes.iter().map(|(now, change)| (*now, command(change))))
            .collect()
    }

    /// A sentence for the log of the run.
    pub(super) fn description(&self, speed: Speed) -> String {
        let Start { namespace, name, placement, .. } = &self.start;
        let moved = match self.moves().count() {
            0 => String::new(),
            count => format!("; its pods were moved {}", counted(count, "time")),
        };
        format!(
            "each pod of `{namespace}/{name}` ({} at a time) takes {} at {speed} times real \
             speed{moved}",
            placement.len(),
            self.script.duration
        )
    }
}
