//! The waits around a leadership: for the claims of earlier leaders before it starts, and between attempts to
//! read the journal again after a failed commit. [`host::leadership`](crate::host::leadership) decides how it
//! starts.
//!
//! A full disk must not cause a loop of reloads. So the record of the new leadership may use the reserved
//! space, and while only that space is left, and for a growing time after each failure, scheduling pauses and
//! new work is refused.

use super::inputs::submits;
use super::turns::Engine;
use super::{Error, Message, Unavailable};
use crate::host::Recipient;
use crate::host::leadership::{LeadershipPlan, Reloaded, is_final};
use crate::host::replay::ReplayError;
use crate::host::replies;
use crate::journal;
use crate::random;
use meridian_shared::backoff;
use meridian_shared::time::{Millis, Wall};
use meridian_shared::timestamp::timestamp;

/// First pause before a reload is tried again.
const RELOAD_PAUSE: Millis = Millis(200);
/// Longest pause before a reload is tried again.
const RELOAD_PAUSE_MAX: Millis = Millis::secs(10);

impl Engine {
    /// Writes a new mark at the end, so that a start soon after needn't wait. A manager that never led writes
    /// none.
    pub(super) fn leave_young_mark(&mut self) {
        let last = self.wait_for_commit();
        let led = self.shared.lead(false);
        let beat = last.and_then(|()| {
            let writes = led && !self.committer.journal().needs_reload();
            if writes { self.committer.idle().heartbeat().map(|_| ()) } else { Ok(()) }
        });
        if let Err(error) = beat {
            tracing::warn!(%error, "the last write failed");
        }
    }

    /// Starts to lead, after the necessary wait. Fails if the first commit fails.
    pub(super) fn begin(&mut self) -> Result<(), Error> {
        let plan = self.host.plan_start(self.start, self.vouched, self.committer.journal());
        self.lead(&plan)
    }

    /// Waits for `span`, and refuses all callers: at first those of messages that were sorted before, then
    /// those of new messages. Returns false if asked to stop.
    fn wait(&mut self, span: Millis) -> bool {
        self.refuse_waiting(Unavailable::NotLeading);
        let until = self.read_clock().mono + span;
        loop {
            let now = self.read_clock().mono;
            if self.stopping || now >= until {
                return !self.stopping;
            }
            if let Some(message) = self.receive(until.since(now)) {
                self.refuse(message, Unavailable::NotLeading);
            }
        }
    }

    /// Refuses all messages that have left the queue and are in no batch.
    fn refuse_waiting(&mut self, why: Unavailable) {
        for message in self.take_waiting() {
            self.refuse(message, why);
        }
    }

    /// Refuses a message with `why`.
    fn refuse(&mut self, message: Message, why: Unavailable) {
        match message {
            Message::Stop => self.stopping = true,
            Message::Ask { input, reply } => {
                if submits(&input) {
                    self.counters.submission_failed();
                }
                let _ = reply.send(Err(why));
            }
            // dropping the reply channel tells these callers "unavailable"
            Message::Explain { .. }
            | Message::Recovery { .. }
            | Message::CutAudit(_)
            | Message::PollOver { .. } => {}
        }
    }

    /// Leads by a plan, unless asked to stop during its wait. Fails if the first commit fails.
    fn lead(&mut self, plan: &LeadershipPlan) -> Result<(), Error> {
        if plan.wait > Millis(0) {
            tracing::info!(span = %plan.wait, "waiting until any earlier manager's claim has expired");
            let wall = self.read_clock().wall;
            let until =
                timestamp(Wall(wall.0.saturating_add(i64::try_from(plan.wait.0).unwrap_or(i64::MAX))));
            self.shared.health.set_pause(format!(
                "this manager waits until {until}, when the claim of any earlier manager has expired"
            ));
            if !self.wait(plan.wait) {
                return Ok(());
            }
        }
        let id = u64::from_ne_bytes(random::bytes()?);
        let now = self.read_clock();
        let outcome = self.host.lead(plan, id, now, &*self.shared.bodies);
        self.host.record(Recipient::Nobody, outcome);
        self.commit_and_wait().map_err(ReplayError::from)?;
        self.publish_all();
        let world = self.host.world();
        self.counters.reset(world);
        self.committer.idle().counters.reset(world);
        self.shared.lead(true);
        let state = world.state();
        tracing::info!(
            leadership = %state.leadership(), record = %state.last(), recovery = state.recovery().is_some(),
            workloads = state.workloads().len(), "leading"
        );
        Ok(())
    }

    /// Returns to the durable state after a failed commit. Fails only if this process can't lead again.
    pub(super) fn reload(&mut self, cause: &journal::Error) -> Result<(), Error> {
        self.shared.lead(false);
        for caller in self.host.polls().take_all() {
            let _ = caller.send(Ok(replies::not_leading()));
        }
        tracing::error!(error = %cause, "a commit failed: reading the journal again");
        if matches!(cause, journal::Error::Fenced { .. }) {
            return Err(Error::Foreign);
        }
        self.shared.health.set_pause(format!("a commit failed, and the journal is read again: {cause}"));
        self.note_failure(cause);
        let mut attempt = 0;
        while !self.stopping {
            let error = match self.try_reload() {
                Ok(()) => return Ok(()),
                Err(Error::Replay(error)) if !is_final(&error) => error,
                Err(error) => return Err(error),
            };
            if let ReplayError::Journal(cause) = &error {
                self.note_failure(cause);
            }
            tracing::warn!(%error, attempt, "the journal can't be used yet");
            self.shared.health.set_pause(format!("the journal can't be used, and is tried again: {error}"));
            self.wait(backoff::wait(RELOAD_PAUSE, RELOAD_PAUSE_MAX, attempt, u64::from(attempt)));
            attempt = attempt.saturating_add(1);
        }
        Ok(())
    }

    fn note_failure(&mut self, cause: &journal::Error) {
        let now = self.read_clock().mono;
        self.host.note_failure(cause, now);
        if self.host.found_full() {
            self.shared.health.disk_is_full();
        }
    }

    fn try_reload(&mut self) -> Result<(), Error> {
        let now = self.read_clock();
        let reloaded = self.host.reload(&mut *self.committer.idle().journal, now)?;
        self.snapshots.forget();
        match reloaded {
            Reloaded::ForeignWriter => Err(Error::Foreign),
            Reloaded::Plan { plan, .. } => self.lead(&plan),
        }
    }
}
