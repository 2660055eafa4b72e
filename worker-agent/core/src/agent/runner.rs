//! Reports of the runner.

use super::Agent;
use crate::durable::Tombstone;
use crate::leg::{LegEvent, Phase, Step, step};
use crate::runs::{LiveRun, StopCause};
use crate::runtime::RunnerEvent;
use crate::turn::{Effect, Outcome};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::indexes::Indexes;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{End, EndResult, Event, Proof};
use meridian_shared::time::Millis;

impl Agent {
    pub(super) fn on_runner(&mut self, event: RunnerEvent, out: &mut Outcome) {
        match event {
            RunnerEvent::Running { uid, fence } => self.on_running(uid, fence, out),
            RunnerEvent::Moved { uid, fence, number } => self.on_moved(uid, fence, number, out),
            RunnerEvent::Reclaimable { uid, fence, places } => self.reclaim(uid, fence, &places, out),
            RunnerEvent::PodsFailed { uid, fence, failures } => self.note_failures(uid, fence, failures),
            RunnerEvent::Completed { uid, fence, indexes } => self.note_completed(uid, fence, &indexes),
            RunnerEvent::Ended { uid, fence, result, pod_failures, ran } => {
                if let Some(end) = self.strays.remove(&(uid, fence)) {
                    return self.end_stray(end, out);
                }
                match step(self.phase(uid, fence), LegEvent::Over) {
                    Step::End => self.end_run(uid, result, pod_failures, ran, out),
                    Step::Start | Step::Run | Step::Stop | Step::Repeat | Step::Ignore => {}
                }
            }
        }
    }

    fn on_running(&mut self, uid: Uid, fence: Fence, out: &mut Outcome) {
        match step(self.phase(uid, fence), LegEvent::Started) {
            Step::Run => {
                self.runs.get_mut(uid).expect("its phase is not absent").phase = Phase::Running;
                self.store_run(uid, out);
                self.report_running(uid, fence);
            }
            Step::Start | Step::Stop | Step::End | Step::Repeat | Step::Ignore => {}
        }
    }

    /// An attempt without a run here was seen ended. Its end is reported only if a stop was requested.
    fn end_stray(&mut self, end: End, out: &mut Outcome) {
        let (uid, fence) = (end.uid, end.fence);
        self.ledger.reopen(uid, fence);
        if self.durable.tombstones().get(&(uid, fence)).is_some_and(|known| known.acknowledged.is_some()) {
            out.act(Effect::Settle { uid, fence });
        }
        if self.durable.tombstones().contains_key(&(uid, fence))
            || self.config.planted.has(Bug::UnknownStopForgotten)
        {
            self.events.push(Event::Ended(end));
        }
    }

    /// Frees the resources of reclaimable pods. A repeated report changes nothing.
    fn reclaim(&mut self, uid: Uid, fence: Fence, places: &[(String, u32)], out: &mut Outcome) {
        let running = self.runs.attempt(uid, fence).filter(|run| run.phase == Phase::Running);
        let Some(offer) = running.map(|run| run.record.offer) else { return };
        if self.ledger.reclaim(offer, places) {
            self.store_run(uid, out);
            self.usage.push(uid);
        }
    }

    /// Pod failures are reported while the job continues, so that they still count after the cluster was
    /// lost. They are not stored: the runner reports them again after a restart.
    fn note_failures(&mut self, uid: Uid, fence: Fence, failures: u32) {
        let more = |run: &&mut LiveRun| failures > run.record.pod_failures;
        let Some(run) = self.runs.attempt_mut(uid, fence).filter(more) else { return };
        run.record.pod_failures = failures;
        self.usage.push(uid);
    }

    /// Completed indexes are reported while the job continues, so that they stay completed after the cluster
    /// was lost. They are not stored: the runner reports them again after a restart.
    pub(super) fn note_completed(&mut self, uid: Uid, fence: Fence, indexes: &Indexes) {
        let Some(run) = self.runs.attempt_mut(uid, fence) else { return };
        let all = run.record.completed.union(indexes);
        if all != run.record.completed {
            run.record.completed = all;
            self.usage.push(uid);
        }
    }

    /// Writes the tombstone of a run, frees its allocation, and reports the end.
    pub(super) fn end_run(
        &mut self,
        uid: Uid,
        result: EndResult,
        pod_failures: u32,
        ran: Millis,
        out: &mut Outcome,
    ) {
        let record = self.runs.remove(uid).expect("the caller found this run").record;
        self.usage.remove(uid);
        let result = match (result, record.stopped_by) {
            (EndResult::Stopped, Some(StopCause::Lapse)) => EndResult::LeaseLapsed,
            (EndResult::Stopped, Some(StopCause::Stranded)) => EndResult::NodeLost {
                message: record.stranded.map_or_else(String::new, |why| (*why).to_owned()),
            },
            (EndResult::Stopped, None) => {
                EndResult::NodeLost { message: "the run was not found after a restart of the agent".into() }
            }
            (other, _) => other,
        };
        self.ledger.release(record.offer);
        out.act(Effect::Deprovision { offer: record.offer });
        self.durable.drop_run(uid, out.writes());
        let (offer, attempt, term, on_loss) = (record.offer, record.attempt, record.term, record.on_loss);
        let end = End {
            uid,
            fence: record.fence,
            result: result.cleaned(),
            pod_failures: pod_failures.max(record.pod_failures),
            ran,
            completed: record.completed,
            proof: record.mac.map(|mac| Box::new(Proof { offer, attempt, term, on_loss, mac })),
        };
        if !self.config.planted.has(Bug::EndForgotten) {
            self.durable.put_tombstone(Tombstone::of_end(end.clone()), out.writes());
        }
        self.events.push(Event::Ended(end));
        if self.lost && self.runs.is_empty() {
            out.act(Effect::Superseded);
        }
    }
}
