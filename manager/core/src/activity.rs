//! Who is taken out of the queue, and put back: Kueue's `spec.active`.
//!
//! Who is deactivated is in no queue. Questions to clusters are taken back, a run is told to stop and keeps its quota until that
//! is confirmed; from then on it holds nothing and rests until somebody puts it back, at the age that it always had. What ended,
//! or is being deleted, stays as it is.

use crate::audit::Entry;
use crate::input::{Actor, Key, Rejection, RejectionReason, WriteResult, Written};
use crate::record::Record;
use crate::turn::Turn;
use crate::view::timestamp;
use crate::workload::Phase;
use crate::writes::reject;
use crate::{Workload, World};
use meridian_objects::job::MAX_EXEC_LABEL;
use meridian_objects::{JobWorkload, Kind, Object, Spec};
use meridian_shared::ids::{Fence, RecordNumber, Uid};
use meridian_shared::lease::ManagerLease;
use meridian_shared::protocol::{EndResult, StopReason};
use meridian_shared::time::Millis;

impl Turn<'_> {
    pub(crate) fn judge_activity(
        &self,
        key: &Key,
        active: bool,
        version: Option<RecordNumber>,
    ) -> Result<(), Rejection> {
        let Some(workload) = self.named(key).and_then(|uid| self.workload(uid)) else {
            return reject(RejectionReason::NotFound, None, format!("{key} doesn't exist"));
        };
        if let Some(version) =
            version.filter(|version| workload.changed > *version || *version > self.world.state.last)
        {
            return reject(
                RejectionReason::Conflict,
                None,
                format!("{key} changed since version {version}: read it again and repeat the change"),
            );
        }
        let what = if active { "resumed" } else { "stopped" };
        let field = Some("spec.active");
        match (&workload.finished, workload.deletion) {
            (Some(finish), _) => {
                let remedy = "submit the job again under another name to have it run again";
                reject(
                    RejectionReason::Invalid,
                    field,
                    format!("{key} has ended ({}) and can't be {what}: {remedy}", finish.reason),
                )
            }
            (None, Some(_)) => reject(
                RejectionReason::Invalid,
                field,
                format!("{key} is being deleted and can't be {what}: it goes once its gang has stopped"),
            ),
            (None, None) => Ok(()),
        }
    }

    pub(crate) fn set_active(&mut self, key: Key, active: bool, by: &Actor, dry_run: bool) -> Written {
        let found = self.named(&key).and_then(|uid| Some((uid, self.workload(uid)?)));
        // An earlier change of the same request may have deleted it.
        let changes = found.is_some_and(|(_, w)| {
            w.finished.is_none() && w.deletion.is_none() && w.inactive.is_none() != active
        });
        let uid = found.map_or(Uid(0), |(uid, _)| uid);
        let result = if changes { WriteResult::Configured } else { WriteResult::Unchanged };
        match (changes && !dry_run, active) {
            (false, _) => {}
            (true, false) => self.deactivate(uid, by),
            (true, true) => self.activate(uid, by),
        }
        Written { key, uid, result, warnings: Vec::new() }
    }

    fn deactivate(&mut self, uid: Uid, by: &Actor) {
        self.audit_activity(uid, by, "deactivate");
        self.record(Record::Deactivated { uid, by: by.clone(), at: self.now.wall, time_is_up: false });
        self.withdraw_open(uid);
        let runs = self.workload(uid).filter(|w| matches!(w.phase, Phase::Granted | Phase::Running));
        if let Some(fence) = runs.and_then(World::right).and_then(|(_, leg)| leg.fence) {
            // Agents know no word of their own for it: to them it is an eviction.
            self.order_stop(uid, fence, StopReason::Evicted, by);
        }
        // Others may start now, and what was kept for it is let go.
        self.stir();
    }

    /// Deactivates a job whose attempt ended because it had run for its maximum execution time; true where that is so. A deadline of
    /// the job's own, and the time for which it asks for machines, end it for good.
    pub(crate) fn retire(&mut self, uid: Uid, result: &EndResult) -> bool {
        let deadline = matches!(result, EndResult::Failed { reason, .. } if reason == "DeadlineExceeded");
        let is_up = deadline
            && self.workload(uid).is_some_and(|w| w.deletion.is_none())
            && self.job_of(uid).is_some_and(|job| job.deactivates_when_up);
        if is_up {
            let by = Actor::system();
            self.audit_activity(uid, &by, "deactivate");
            self.record(Record::Deactivated { uid, by, at: self.now.wall, time_is_up: true });
        }
        is_up
    }

    fn job_of(&self, uid: Uid) -> Option<JobWorkload> {
        let body = self.body(self.workload(uid)?.body)?;
        let object = Object::from_stored(serde_json::from_str(&body).ok()?).ok()?;
        match object.spec {
            Spec::Job(job) => Some(*job),
            _ => None,
        }
    }

    fn activate(&mut self, uid: Uid, by: &Actor) {
        self.audit_activity(uid, by, "activate");
        self.record(Record::Activated { uid, by: by.clone(), at: self.now.wall });
        self.end_back_off(uid);
        self.stir();
    }

    /// Who is put back waits out no back-off. Who rests for another goes on, and so does who may still run unknown to us: an
    /// older uid until its own term has passed.
    fn end_back_off(&mut self, uid: Uid) {
        if self.world.live.giving_way.pairs().1.contains_key(&uid) {
            return;
        }
        let Some(until) = self.world.live.not_before.remove(&uid) else { return };
        if let Some(workload) = self.workload(uid).filter(|w| w.submitted < self.world.state.led_since) {
            let lapsed = ManagerLease::from_composed(self.world.live.led_at, workload.term).deadline;
            self.world.live.not_before.insert(uid, until.min(lapsed));
        }
    }

    fn audit_activity(&mut self, uid: Uid, by: &Actor, action: &str) {
        let named = self.workload(uid).map(|w| format!("{}/{}", w.namespace, w.name));
        let cluster = self.workload(uid).and_then(World::right).map(|(_, leg)| leg.cluster.to_string());
        let entry = Entry {
            action: action.into(),
            subject: uid.to_string(),
            cluster,
            verdict: None,
            rule: None,
            detail: named,
        };
        self.audit(by.clone(), entry);
    }

    /// The workload that a key means, by its own name or its job's.
    fn named(&self, key: &Key) -> Option<Uid> {
        match key.kind {
            Kind::Workload => self.world.workload_at(key).map(|(uid, _)| uid),
            Kind::Job => self.job_at(key),
            _ => None,
        }
    }
}

impl Workload {
    /// Whether it is in a queue: without quota, and not taken out.
    pub fn waits(&self) -> bool {
        self.phase == Phase::Pending && self.inactive.is_none()
    }

    /// Whether it was taken out of the queue, and nothing of it is left anywhere.
    pub(crate) fn rests_inactive(&self) -> bool {
        self.phase == Phase::Pending && self.inactive.is_some()
    }

    /// Grants since it was submitted or last put back.
    pub(crate) fn attempts_in_a_row(&self) -> u32 {
        self.attempts.saturating_sub(self.reactivated.as_ref().map_or(0, |reactivated| reactivated.attempts))
    }

    /// How long it rests after the attempt of this fence lost its node: each loss in a row makes it longer.
    pub(crate) fn rest_after_loss(&self, fence: Fence) -> Millis {
        meridian_shared::backoff::wait(Millis(500), Millis::mins(5), self.attempts_in_a_row(), fence.counter)
    }

    /// Where it stands, as people read it.
    pub(crate) fn state_word(&self) -> String {
        if self.rests_inactive() { "Deactivated".to_owned() } else { format!("{:?}", self.phase) }
    }

    /// Why it is in no queue, and what puts it back.
    pub(crate) fn inactivity_in_words(&self) -> (String, String) {
        let who = self
            .inactive
            .as_ref()
            .map(|inactive| format!(" by `{}` at {}", inactive.by.0, timestamp(inactive.at)))
            .unwrap_or_default();
        let is_up = self.inactive.as_ref().is_some_and(|inactive| inactive.time_is_up);
        let why = if is_up {
            format!(", as it had run for its maximum execution time (`{MAX_EXEC_LABEL}`)")
        } else {
            String::new()
        };
        (
            format!("is in no queue: it was deactivated{who}{why}"),
            format!("`meridian resume job {} -n {}`", self.name, self.namespace),
        )
    }
}
