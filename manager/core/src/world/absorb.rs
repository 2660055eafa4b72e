//! Absorbing records: the only writer of [`State`](crate::state::State) and of the caches over it.
//!
//! Absorbing decides nothing and never fails, so any journal can be replayed.

pub mod caches;
pub mod preemptions;
pub mod sizes;
pub mod usage;

use crate::config::Config;
use crate::facts::end::EvictionCause;
use crate::facts::key::Key;
use crate::facts::record::{LeadershipFact, ObjectFact, Record, WorkloadFact};
use crate::facts::submission::{ClassId, Submission};
use crate::live::Live;
use crate::queue::classes::QueuePosition;
use crate::state::State;
use crate::state::catalog::Catalog;
use crate::state::workload::Workload;
use crate::state::workload::absorb::Context;
use crate::world::World;
use meridian_objects::Kind;
use meridian_objects::spec::StopPolicy;
use meridian_shared::ids::{ContentHash, JournalId, RecordNumber, Uid};
use std::sync::Arc;

impl World {
    /// The world of an empty journal.
    pub fn empty(journal: JournalId, config: Config) -> Self {
        Self::after(journal, RecordNumber(0), config)
    }

    /// An empty world; its next record follows `last`.
    pub fn after(journal: JournalId, last: RecordNumber, config: Config) -> Self {
        Self {
            state: State::after(journal, last),
            live: Live::default(),
            config,
            queues: Default::default(),
            names: Default::default(),
            loads: Default::default(),
            counts_by_queue: Default::default(),
            mirror: Default::default(),
        }
    }

    /// Absorbs one record. Returns the stored manifests that nothing refers to any more.
    pub fn absorb(&mut self, number: RecordNumber, record: &Record) -> Vec<ContentHash> {
        self.state.absorb(number, record);
        match record {
            // A new leadership may hold back workloads that the previous one could dispatch.
            Record::Leadership(LeadershipFact::Started { .. }) => self.mirror.start_over(),
            Record::Leadership(LeadershipFact::RecoveryClosed { .. }) => self.mirror.mark_stale(),
            Record::Object { key, fact } => self.absorb_object(key, fact),
            Record::Workload { uid, fact } => {
                return self.absorb_workload(number, *uid, fact).into_iter().collect();
            }
            Record::UsageSampled { queues, forgotten, .. } => {
                usage::recall_sampled(self, queues.keys().chain(forgotten))
            }
            Record::Leadership(
                LeadershipFact::CopiesRuledOut { .. }
                | LeadershipFact::RulesDoubted { .. }
                | LeadershipFact::RulesConfirmed { .. },
            )
            | Record::Token { .. }
            | Record::Member { .. }
            | Record::Orphan { .. }
            | Record::Audited(_) => {}
        }
        Vec::new()
    }

    fn absorb_object(&mut self, key: &Key, fact: &ObjectFact) {
        if key.scope.is_none() && Catalog::is_declaration(key.kind) {
            self.mirror.mark_stale();
        }
        let quota_applied = matches!(fact, ObjectFact::Applied { .. })
            && matches!(key.kind, Kind::ClusterQueue | Kind::Cohort);
        if quota_applied && key.scope.is_none() {
            preemptions::rights_changed(self, None);
        }
        self.mirror.forget_candidates();
        self.repoint_local_queue(key);
    }

    /// Returns the stored manifest that nothing refers to any more, if there is one.
    fn absorb_workload(
        &mut self,
        number: RecordNumber,
        uid: Uid,
        fact: &WorkloadFact,
    ) -> Option<ContentHash> {
        match fact {
            WorkloadFact::Submitted(submission) => {
                self.absorb_submitted(number, uid, submission);
                return None;
            }
            WorkloadFact::Forgotten => return self.absorb_forgotten(uid),
            WorkloadFact::Resized { class, body, size, .. } => {
                return sizes::absorb_resized(self, number, uid, class, *body, *size);
            }
            WorkloadFact::PriorityChanged { .. } => preemptions::rights_changed(self, Some(uid)),
            WorkloadFact::Finished { at, .. } => {
                self.live.retention_mut().add_finished(*at, uid);
            }
            _ => {}
        }
        let stopped_queue = self.drain_cause(uid);
        self.update(uid, |workload, class| workload.absorb(fact, &Context { number, class, stopped_queue }));
        None
    }

    fn absorb_submitted(&mut self, number: RecordNumber, uid: Uid, submission: &Submission) {
        let class = self.queues.intern(&submission.class, &self.config.resources);
        let workload = Workload::new(submission, class, number);
        self.names.remember(uid, &workload);
        self.queues.wait(class, QueuePosition::new(workload.priority(), workload.submitted(), uid));
        self.state.insert_workload(uid, workload);
        caches::count_workload(self, uid, true);
        self.touch_queues(class, None);
        self.mirror.touch(uid);
    }

    fn absorb_forgotten(&mut self, uid: Uid) -> Option<ContentHash> {
        self.update(uid, |_, _| {});
        let class = self.state.workloads().get(&uid)?.class();
        self.touch_queues(class, self.queues.charged_to(uid).cloned());
        caches::count_workload(self, uid, false);
        let workload = self.state.remove_workload(uid)?;
        self.mirror.touch(uid);
        self.queues
            .leave(workload.class(), QueuePosition::new(workload.priority(), workload.submitted(), uid));
        let gang = workload.gang(self.queues.class(workload.class()));
        let total = self.config.resources.total(&gang);
        self.queues.refund(uid, &workload.flavors().usage(&gang, &total, &self.config.resources));
        for leg in workload.legs().values() {
            self.loads.remove(leg.cluster(), uid);
        }
        caches::drop_member(self, workload.class());
        self.live.backoffs_mut().end(uid);
        self.live.damaged_mut().forget(uid);
        self.live.reservations_mut().forget(uid);
        if let Some(finish) = &workload.finished() {
            self.live.retention_mut().forget(finish.at, uid);
        }
        self.names.forget(uid, &workload);
        Some(workload.body())
    }

    /// The cause of an eviction that neither a user nor another workload asked for: one of the workload's
    /// queues is being drained.
    fn drain_cause(&self, uid: Uid) -> EvictionCause {
        let class = self.state.workloads().get(&uid).map(|w| self.queues.class(w.class()));
        let local = class.and_then(|class| self.state.catalog().local_queue(&class.namespace, &class.queue));
        match local {
            Some(queue) if queue.stop_policy == StopPolicy::HoldAndDrain => EvictionCause::LocalQueueStopped,
            _ => EvictionCause::ClusterQueueStopped,
        }
    }

    /// Moves the counts of a local queue after it was pointed to another cluster queue, or deleted.
    fn repoint_local_queue(&mut self, key: &Key) {
        let (Kind::LocalQueue, None, Some(namespace)) = (key.kind, &key.scope, &key.namespace) else {
            return;
        };
        let points_to =
            self.state.catalog().local_queue(namespace, &key.name).map(|queue| queue.cluster_queue.clone());
        let before = self.counts_by_queue.lead(namespace, &key.name, points_to.as_deref());
        for queue in before.iter().map(|queue| &**queue).chain(points_to.as_deref()) {
            self.state.touch_cluster_queue(queue);
        }
    }

    /// Marks the statuses of a class's queues, and of the queue that was charged, as changed by the newest
    /// record.
    pub(crate) fn touch_queues(&mut self, class: ClassId, charged: Option<Arc<str>>) {
        let class = self.queues.class(class);
        self.state.touch_queues((&class.namespace, &class.queue), charged.as_deref());
    }
}
