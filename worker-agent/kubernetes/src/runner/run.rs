//! One run, from its grant to the end of its last pod. Decides on the next request to the API server, and on
//! the reports.
//!
//! ```text
//! create suspended ──▶ read the Lease, start ──▶ place pods ──▶ … ──▶ list pods ──▶ ended ──▶ delete
//!        │                      │                    │                    ▲
//!        └────── stop ──────────┴──── suspend ───────┴────────────────────┘
//! ```
//!
//! The run has at most one request in progress. It knows its objects from the watches and from the last
//! answers; if an answer got lost, the object is read again.

use super::guard::Leases;
use super::manifest::Built;
use super::notes::Notes;
use super::pod_group::Group;
use super::positions::Positions;
use super::request::{Placing, Request};
use crate::facts::{JobFacts, PodFacts};
use crate::labels::RunKey;
use meridian_agent_core::runtime::{Found, FoundState, PodPlacement, RunnerEvent, Start};
use meridian_objects::job::JobKind;
use meridian_shared::ids::OfferId;
use meridian_shared::indexes::Indexes;
use meridian_shared::protocol::Size;
use meridian_shared::time::{Millis, Mono, Now, Wall};
use serde_json::Value;
use std::sync::Arc;

/// Pause between two lists of pods that are to end.
const LIST_AGAIN: Millis = Millis::secs(2);

mod answers;
mod copies;
mod ending;
mod group;
mod suspensions;

use copies::CopyState;
use suspensions::Suspensions;

/// Known state of the job.
#[derive(Clone, Debug, PartialEq)]
enum Job {
    Unknown,
    /// An object of that name exists, and was not read yet.
    Exists,
    Absent,
    Ours(Box<JobFacts>),
    /// The job of an earlier attempt, which has ended; with its uid.
    Earlier(String),
    /// An object that this run didn't make.
    Foreign,
}

/// Why a run stops before its job has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Ordered,
    Lapsed,
    /// The attempt has run for its longest time.
    TimeOver,
    /// The job can't start in this cluster, or has stopped running; with a message for users.
    Lost(String),
}

impl Cause {
    fn text(&self) -> String {
        match self {
            Self::Ordered => "stopped as ordered".to_owned(),
            Self::Lapsed => "the lease ended".to_owned(),
            Self::TimeOver => "the attempt's run time is used up".to_owned(),
            Self::Lost(why) => why.clone(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Run {
    key: RunKey,
    pub(super) kind: &'static JobKind,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The offer whose hold the run uses; `None` while only the attempt is known.
    pub(super) offer: Option<OfferId>,
    manifest: Option<Arc<Value>>,
    /// The patch that resumes the job.
    resume: Value,
    group: Group,
    /// Completion indexes of earlier attempts that are still to be written into the job's status.
    seed: Indexes,
    notes: Notes,
    notes_dirty: bool,
    copies: CopyState,
    job: Job,
    /// The watches have shown the job.
    shown: bool,
    /// The start was requested and not refused.
    started: bool,
    positions: Positions,
    size: Option<Size>,
    stop: Option<Cause>,
    lapses: Option<Mono>,
    /// The leases that the guards of its pods got.
    leases: Leases,
    /// Since when the stopping job has been seen suspended or gone.
    closing_since: Option<Mono>,
    list_due: Mono,
    ended_pods_at: Mono,
    suspensions: Suspensions,
    end: Option<RunnerEvent>,
    /// When the agent learned that the manager has recorded the end.
    settled: Option<Wall>,
    forgotten: bool,
    in_flight: bool,
    retry_at: Mono,
    failed_requests: u32,
    /// Number of starts and changes in a row that failed because another writer was first.
    conflicts: u32,
    /// The last error, for logs.
    pub(super) trouble: Option<String>,
    reports: Reports,
}

/// Reports that were already sent.
#[derive(Debug, Default)]
struct Reports {
    running: bool,
    moved: u32,
    failures: u32,
    completed: Indexes,
    reclaimable: usize,
}

impl Run {
    /// A run that is to start.
    pub(super) fn granted(start: &Start, built: Built) -> Self {
        let Built { kind, manifest, others, notes, resume } = built;
        let name = manifest["metadata"]["name"].as_str().unwrap_or(&start.name);
        let mut run = Self::blank((start.uid, start.fence), kind, &start.namespace, name);
        if kind.is_pod_group() {
            run.group = Group::granted(&start.name, others);
        }
        run.offer = Some(start.offer);
        run.resume = resume;
        if manifest.pointer("/spec/completionMode").is_some_and(|mode| mode == "Indexed") {
            run.seed = start.completed.clone();
        }
        run.reports.completed = start.completed.clone();
        run.manifest = Some(Arc::new(manifest));
        run.notes = notes;
        run.lapses = start.deadline;
        run.reports.failures = start.pod_failures;
        run.positions = Positions::new(&run.notes.placement);
        run
    }

    /// A run whose job an earlier agent made. A job that never started, or that was ordered to stop, is
    /// stopped.
    pub(super) fn adopted(key: RunKey, job: JobFacts) -> Self {
        let kind = job.kind.job().unwrap_or_else(JobKind::usual);
        let mut run = Self::blank(key, kind, &job.namespace, &job.name);
        run.notes = job.notes.as_deref().and_then(Notes::from_text).unwrap_or_default();
        run.reports.moved = run.notes.moves.saturating_sub(1);
        run.reports.failures = run.notes.failures_before;
        run.positions = Positions::adopted(&run.notes.placement);
        run.offer = job.offer;
        run.group = job.group.as_ref().map(|group| Group::adopted(&group.name)).unwrap_or_default();
        run.started = !job.suspended || job.stopped.is_some();
        if (job.suspended || job.stopped.is_some()) && job.end.is_none() {
            run.stop = Some(Cause::Ordered);
        }
        run.job = Job::Ours(Box::new(job));
        run
    }

    /// A run that must be stopped and of which only the name is known.
    pub(super) fn unknown(key: RunKey) -> Self {
        Self { stop: Some(Cause::Ordered), ..Self::blank(key, JobKind::usual(), "", "") }
    }

    fn blank(key: RunKey, kind: &'static JobKind, namespace: &str, name: &str) -> Self {
        Self {
            key,
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            offer: None,
            manifest: None,
            resume: Value::Null,
            group: Group::default(),
            seed: Indexes::default(),
            notes: Notes::default(),
            notes_dirty: false,
            copies: CopyState::default(),
            job: Job::Unknown,
            shown: false,
            started: false,
            positions: Positions::default(),
            size: None,
            stop: None,
            lapses: None,
            leases: Leases::default(),
            closing_since: None,
            list_due: Mono(0),
            ended_pods_at: Mono(0),
            suspensions: Suspensions::default(),
            end: None,
            settled: None,
            forgotten: false,
            in_flight: false,
            retry_at: Mono(0),
            failed_requests: 0,
            conflicts: 0,
            trouble: None,
            reports: Reports::default(),
        }
    }

    /// Names the clock in which the leases for the guards of its pods are written.
    pub(super) fn count_leases_on(&mut self, clock: &str) {
        self.leases.count_on(clock);
    }

    /// Notes that its pods have guards.
    pub(super) fn put_under_guards(&mut self) {
        (self.notes.guarded, self.notes.ends) = (true, self.lapses.is_some());
    }

    pub(super) fn key(&self) -> RunKey {
        self.key
    }

    /// The run as found by a new agent.
    pub(super) fn found(&self) -> Found {
        let (uid, fence) = self.key;
        let nodes = self.notes.touched.iter().cloned().collect();
        let completed = match &self.job {
            Job::Ours(job) => job.completed.clone(),
            _ => Indexes::default(),
        };
        Found {
            uid,
            fence,
            nodes,
            completed,
            state: FoundState::Live { running: self.started && self.stop.is_none() },
        }
    }

    /// Whether the run is over, with no trace left here or in the cluster.
    pub(super) fn is_over(&self) -> bool {
        self.forgotten && self.end.is_some() && !matches!(self.job, Job::Ours(_)) && !self.in_flight
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// The final report, once there is one. Reports may repeat.
    pub(super) fn end(&self) -> Option<&RunnerEvent> {
        self.end.as_ref()
    }

    pub(super) fn stop(&mut self, cause: Cause) {
        if self.end.is_none() && self.stop.is_none() {
            self.stop = Some(cause);
            self.retry_at = Mono(0);
        }
    }

    pub(super) fn renew(&mut self, lapses: Mono) {
        if self.stop.is_none() {
            self.lapses = Some(self.lapses.map_or(lapses, |known| known.max(lapses)));
        }
    }

    pub(super) fn forget(&mut self) {
        self.forgotten = true;
    }

    /// Begins a move or a scale-up. Returns the report if it is done already.
    pub(super) fn place_anew(&mut self, number: u32, placement: Vec<PodPlacement>, size: Option<Size>) {
        if number <= self.notes.moves {
            self.reports.moved = self.reports.moved.min(number.saturating_sub(1));
            return;
        }
        self.notes.moves = number;
        self.notes.touched.extend(placement.iter().map(|pod| pod.node.clone()));
        self.notes.ended_by_moves += self.positions.place(&placement);
        self.notes.placement = placement;
        self.notes_dirty = true;
        self.size = size.or(self.size);
    }

    pub(super) fn scale_down(&mut self, size: Size) {
        let Job::Ours(job) = &self.job else { return };
        if size.parallelism < job.parallelism || size.completions < job.completions {
            self.size = Some(size);
        }
    }

    /// Stops the run one stop budget before its lease lapses, and when its time is over. Deletes the object
    /// when its retention is over.
    pub(super) fn observe_time(&mut self, now: Now) {
        if self.end.is_some() && self.settled.is_some_and(|at| now.wall.since(at) >= self.kept()) {
            self.forgotten = true;
        }
        self.leases.observe_time(now);
        if self.lapses.is_some_and(|at| now.mono >= at - self.notes.stop_budget) && self.started_or_waits() {
            self.stop(Cause::Lapsed);
        }
        // The controller of a Job ends the Job in time, and reports that.
        if let (Job::Ours(job), Some(left)) = (&self.job, self.notes.run_left)
            && !self.kind.can_be_scaled()
            && job.end.is_none()
            && job.started.is_some_and(|started| now.wall.since(started) >= left)
        {
            self.stop(Cause::TimeOver);
        }
    }

    fn started_or_waits(&self) -> bool {
        self.end.is_none() && self.stop.is_none()
    }

    /// Applies the watched state. `answers` says whether a node still reports the state of its pods.
    pub(super) fn observe(
        &mut self,
        job: Option<&JobFacts>,
        pods: &[PodFacts],
        answers: &dyn Fn(&str) -> bool,
    ) -> Vec<RunnerEvent> {
        if let Job::Ours(known) = &self.job {
            match job.filter(|seen| seen.run == Some(self.key)) {
                Some(seen) => {
                    self.shown = true;
                    if seen.is_newer_than(known) {
                        self.job = Job::Ours(Box::new(seen.clone()));
                    }
                }
                // A watch may lag, so only a read says that the job is gone.
                None if self.shown && self.end.is_none() && !self.in_flight && self.group.end().is_none() => {
                    self.job = Job::Exists;
                }
                None => {}
            }
        }
        self.positions.observe(pods, answers);
        self.observe_group(pods);
        self.react()
    }

    /// Acts on the job's state, and returns the events to report.
    fn react(&mut self) -> Vec<RunnerEvent> {
        self.end_with_group();
        if self.end.is_some() {
            return Vec::new();
        }
        if let Job::Ours(job) = &self.job
            && self.stop.is_none()
            && self.started
            && job.end.is_none()
        {
            if job.suspended {
                self.stop = Some(self.lost_to_others("suspended"));
            } else if job.deleting {
                self.stop = Some(self.lost_to_others("deleted"));
            }
        }
        self.report()
    }

    fn lost_to_others(&self, done: &str) -> Cause {
        Cause::Lost(format!("its {} was {done} in the cluster by somebody else", self.kind.name()))
    }

    fn report(&mut self) -> Vec<RunnerEvent> {
        let Job::Ours(job) = &self.job else { return Vec::new() };
        let (uid, fence) = self.key;
        let mut events = Vec::new();
        let failures = self.notes.failures_before + job.failed.saturating_sub(self.notes.ended_by_moves);
        if failures > self.reports.failures {
            self.reports.failures = failures;
            events.push(RunnerEvent::PodsFailed { uid, fence, failures });
        }
        let completed = self.reports.completed.union(&job.completed);
        if completed != self.reports.completed {
            self.reports.completed.clone_from(&completed);
            events.push(RunnerEvent::Completed { uid, fence, indexes: completed });
        }
        if self.stop.is_some() {
            return events;
        }
        if !self.reports.running && self.started && self.positions.all_started(&job.late_sets) {
            self.reports.running = true;
            events.push(RunnerEvent::Running { uid, fence });
        }
        if self.reports.moved < self.notes.moves
            && !self.notes_dirty
            && self.size.is_none()
            && self.positions.is_settled(&job.late_sets)
        {
            self.reports.moved = self.notes.moves;
            self.notes.touched = self.positions.nodes();
            events.push(RunnerEvent::Moved { uid, fence, number: self.notes.moves });
        }
        self.positions.reclaim(job.needed_pods());
        let reclaimable = self.positions.reclaimable();
        if reclaimable.len() > self.reports.reclaimable && self.reports.running {
            self.reports.reclaimable = reclaimable.len();
            events.push(RunnerEvent::Reclaimable { uid, fence, places: reclaimable });
        }
        events
    }

    /// The next request, if one is due.
    pub(super) fn next(&mut self, now: Mono) -> Option<Request> {
        if self.in_flight || now < self.retry_at {
            return None;
        }
        let request = self.wanted(now)?;
        self.in_flight = true;
        Some(request)
    }

    fn wanted(&mut self, now: Mono) -> Option<Request> {
        if self.end.is_some() {
            let Job::Ours(job) = &self.job else { return None };
            let delete = || self.forgotten.then(|| Request::Delete { uid: job.uid.clone() });
            return self.copies.to_give_back(job).or_else(delete);
        }
        match &self.job {
            Job::Exists => Some(Request::Read),
            Job::Unknown if self.stop.is_some() || self.started => Some(Request::Read),
            Job::Unknown => self.manifest.clone().map(Request::Create),
            Job::Earlier(uid) if self.stop.is_none() => Some(Request::Delete { uid: uid.clone() }),
            Job::Ours(job) if self.stop.is_none() && job.end.is_none() => {
                if job.suspended && job.completed.union(&self.seed) != job.completed {
                    return Some(Request::Seed { completed: self.seed.clone() });
                }
                if let Some(request) = self.copies.to_make(job) {
                    return Some(request);
                }
                if job.suspended {
                    let (resource_version, resume) = (job.resource_version.clone(), self.resume.clone());
                    let others = self.group.others();
                    return Some(Request::Start { resource_version, resume, others });
                }
                self.keep_running(now)
            }
            Job::Ours(job) if job.end.is_none() && !job.suspended && !job.deleting => Some(self.suspend(now)),
            Job::Ours(_) | Job::Absent | Job::Earlier(_) | Job::Foreign => self.close(now),
        }
    }

    fn keep_running(&mut self, now: Mono) -> Option<Request> {
        if let (Some(size), Job::Ours(job)) = (self.size, &self.job) {
            return Some(Request::resize(size, job, self.notes.to_text()));
        }
        if self.notes_dirty {
            return Some(Request::Note { notes: self.notes.to_text() });
        }
        let misplaced = self.positions.misplaced();
        if !misplaced.is_empty() {
            return Some(Request::EndPods(misplaced));
        }
        // After a restart the lease is unknown until the core renews it.
        let is_known = self.lapses.is_some() == self.notes.ends && self.leases.can_be_written();
        if self.notes.guarded && !is_known {
            return None;
        }
        if self.notes.guarded {
            let due = self.leases_due(now);
            if !due.is_empty() {
                return Some(Request::RenewLeases(due));
            }
        }
        let mut placings = self.positions.placings();
        if self.notes.guarded {
            self.leases.add_to(&mut placings, self.lapses, self.notes.stop_budget, now);
        }
        (!placings.is_empty()).then_some(Request::Place(placings))
    }

    /// The pods whose guards need a newer lease; as many as one request may have.
    fn leases_due(&mut self, now: Mono) -> Vec<Placing> {
        let pods = self.positions.placed_pods();
        self.leases.due(pods, self.lapses, self.notes.stop_budget, now)
    }

    /// Pods of the run and their indexes, for logs.
    pub(super) fn pods(&self) -> Vec<(String, u32)> {
        self.positions.pods()
    }
}
