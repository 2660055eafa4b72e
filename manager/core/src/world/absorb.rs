//! Absorbing records: the only writer of [`State`](crate::state::State) and of the caches over it.
//!
//! Absorbing works for every record that was ever written, in order, and decides nothing.

pub mod caches;
pub mod preemptions;
pub mod sizes;
pub mod usage;

use crate::config::Config;
use crate::facts::audit::Head;
use crate::facts::end::{EvictionCause, Preempted};
use crate::facts::key::Key;
use crate::facts::record::{
    LeadershipFact, MemberFact, ObjectFact, OrphanFact, Record, TokenFact, WorkloadFact,
};
use crate::facts::submission::{ClassId, RecoveryStart, Submission};
use crate::queue::classes::Place;
use crate::state::catalog::Catalog;
use crate::state::members::{Member, Orphan, Token};
use crate::state::workload::Workload;
use crate::state::workload::absorb::Context;
use crate::state::{State, preemption_history};
use crate::world::{Live, World};
use meridian_objects::Kind;
use meridian_objects::spec::StopPolicy;
use meridian_shared::ids::{
    ClusterName, ContentHash, Fence, JournalId, Leadership, LedgerId, RecordNumber, Session, Uid,
};
use meridian_shared::time::Wall;
use std::collections::BTreeMap;
use std::sync::Arc;

impl World {
    /// The world of an empty journal.
    pub fn empty(journal: JournalId, config: Config) -> Self {
        let none = Leadership { epoch: 0, id: 0 };
        Self {
            state: State {
                journal,
                last: RecordNumber(0),
                leadership: none,
                led_since: RecordNumber(0),
                ranges: Vec::new(),
                recovery: None,
                recovery_since: RecordNumber(0),
                behind: false,
                rules: RecordNumber(0),
                rules_doubted: None,
                catalog: Catalog::default(),
                members: BTreeMap::new(),
                tokens: BTreeMap::new(),
                workloads: crate::state::workloads::Workloads::default(),
                orphans: BTreeMap::new(),
                audit: Head::default(),
                offers: 0,
                grants: 0,
                past_use: BTreeMap::new(),
                displaced: BTreeMap::new(),
            },
            live: Live::default(),
            config,
            queues: crate::queue::classes::Queues::default(),
            names: BTreeMap::new(),
            loads: BTreeMap::new(),
            tally: crate::queue::counts::Tally::default(),
            deciding: crate::queue::mirror::Deciding::default(),
        }
    }

    /// Absorbs one record. Returns the bodies that nothing refers to any more.
    pub fn absorb(&mut self, number: RecordNumber, record: &Record) -> Vec<ContentHash> {
        self.state.last = number;
        if let Some((_, _, last)) = self.state.ranges.iter_mut().find(|(l, _, _)| *l == self.state.leadership)
        {
            *last = number;
        }
        match record {
            Record::Leadership(fact) => self.absorb_leadership_fact(number, fact),
            Record::Object { key, fact } => self.absorb_object(number, key, fact),
            Record::Token { hash, fact } => self.absorb_token(hash, fact),
            Record::Member { cluster, fact } => self.absorb_member(number, cluster, fact),
            Record::Workload { uid, fact } => {
                return self.absorb_workload(number, *uid, fact).into_iter().collect();
            }
            Record::Orphan { uid, fence, fact } => self.absorb_orphan((*uid, *fence), fact),
            Record::UsageSampled { at, queues, forgotten } => {
                usage::absorb_sampled(self, number, *at, queues, forgotten);
            }
            Record::Audited(line) => self.state.audit = Head { lines: line.number, hash: line.hash.clone() },
        }
        Vec::new()
    }

    fn absorb_leadership_fact(&mut self, number: RecordNumber, fact: &LeadershipFact) {
        match fact {
            LeadershipFact::Started { leadership, at, recovery, foreign } => {
                preemption_history::forget_old(&mut self.state.displaced, *at);
                self.absorb_leadership(number, *leadership, recovery.clone(), foreign);
            }
            LeadershipFact::RecoveryClosed { .. } => {
                (self.state.recovery, self.state.behind) = (None, false);
                self.deciding.declare_again();
            }
            LeadershipFact::RulesDoubted { seen } => self.state.rules_doubted = Some(*seen),
            LeadershipFact::RulesConfirmed { .. } => {
                self.state.rules_doubted = None;
                self.state.rules = number;
            }
        }
    }

    fn absorb_leadership(
        &mut self,
        number: RecordNumber,
        leadership: Leadership,
        recovery: Option<RecoveryStart>,
        foreign: &[(Leadership, RecordNumber)],
    ) {
        for (other, last) in foreign {
            self.state.ranges.push((*other, *last, *last));
            self.state.last = self.state.last.max(*last);
        }
        let number = self.state.last.max(number);
        self.state.last = number;
        self.state.leadership = leadership;
        self.state.led_since = number;
        self.state.offers = 0;
        self.state.grants = 0;
        self.state.ranges.push((leadership, number, number));
        // Recovery holds back workloads that the previous leadership was free to dispatch.
        self.deciding.start_over();
        if recovery.is_some() {
            if self.state.recovery.is_none() {
                self.state.recovery_since = number;
            }
            self.state.behind |=
                !foreign.is_empty() || recovery.as_ref().is_some_and(|r| r.restored || r.members_unknown);
            self.state.recovery = recovery;
        }
    }

    fn absorb_object(&mut self, number: RecordNumber, key: &Key, fact: &ObjectFact) {
        if Catalog::is_rule(key.kind) {
            self.state.rules = number;
        }
        if key.scope.is_none() && Catalog::is_declaration(key.kind) {
            self.deciding.declare_again();
        }
        self.deciding.forget_ways();
        match fact {
            ObjectFact::Applied { object, uid, at, by } => {
                if key.scope.is_none() && matches!(key.kind, Kind::ClusterQueue | Kind::Cohort) {
                    preemptions::rights_changed(self, None);
                }
                self.state.catalog.put(key.clone(), (**object).clone(), *uid, *at, number, by.clone());
            }
            ObjectFact::Removed { .. } => {
                self.state.catalog.remove(key);
                usage::forget_past_use(self, key);
            }
        }
        self.lead_local_queue(key);
    }

    fn absorb_token(&mut self, hash: &str, fact: &TokenFact) {
        match fact {
            TokenFact::Minted { cluster, region, jurisdiction, expires, replace, .. } => {
                let (cluster, region, jurisdiction) = (cluster.clone(), region.clone(), jurisdiction.clone());
                let token = Token { cluster, region, jurisdiction, expires: *expires, replace: *replace };
                self.state.remember_token(hash, token);
            }
            TokenFact::Used => drop(self.state.tokens.remove(hash)),
        }
    }

    fn absorb_member(&mut self, number: RecordNumber, cluster: &ClusterName, fact: &MemberFact) {
        match fact {
            MemberFact::SessionOpened { ledger, session } => {
                self.absorb_session(number, cluster, *ledger, *session)
            }
            MemberFact::Admitted { .. } => {
                if let Some(member) = self.state.members.get_mut(cluster) {
                    member.admitted = true;
                }
            }
            MemberFact::DeclaredLost { ledger, .. } => {
                if let Some(member) = self.state.members.get_mut(cluster) {
                    member.lost.insert(*ledger);
                }
            }
        }
    }

    fn absorb_session(
        &mut self,
        number: RecordNumber,
        cluster: &ClusterName,
        ledger: LedgerId,
        session: Session,
    ) {
        let first = self.state.members.is_empty();
        let member = match self.state.members.remove(cluster) {
            Some(mut old) => {
                if old.ledger != ledger {
                    old.lost.insert(old.ledger);
                }
                Member { ledger, session, session_since: number, ..old }
            }
            None => Member {
                ledger,
                session,
                lost: Default::default(),
                since: number,
                session_since: number,
                admitted: first,
            },
        };
        self.state.members.insert(cluster.clone(), member);
    }

    fn absorb_orphan(&mut self, key: (Uid, Fence), fact: &OrphanFact) {
        match fact {
            OrphanFact::Seen { cluster, ledger, run } => {
                let (cluster, run) = (cluster.clone(), (**run).clone());
                self.state.orphans.insert(key, Orphan { cluster, ledger: *ledger, run, stopping: false });
            }
            OrphanFact::StopOrdered { .. } => {
                if let Some(orphan) = self.state.orphans.get_mut(&key) {
                    orphan.stopping = true;
                }
            }
            OrphanFact::Gone { .. } => drop(self.state.orphans.remove(&key)),
        }
    }

    /// Returns the body that nothing refers to any more, if there is one.
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
            WorkloadFact::QuotaReleased { preempted: Some(preempted), at }
            | WorkloadFact::StopOrdered { preempted: Some(preempted), at, .. } => {
                self.remember_preemption(uid, preempted, *at)
            }
            WorkloadFact::Offered { offer, .. } => self.state.offers = self.state.offers.max(offer.counter),
            WorkloadFact::Granted { fence, .. } => self.state.grants = self.state.grants.max(fence.counter),
            WorkloadFact::PriorityChanged { .. } => preemptions::rights_changed(self, Some(uid)),
            WorkloadFact::Finished { at, .. } => {
                self.live.finished.insert((*at, uid));
            }
            _ => {}
        }
        let stopped_queue = self.stopped_queue(uid);
        self.update(uid, |workload, class| workload.absorb(fact, &Context { number, class, stopped_queue }));
        None
    }

    fn absorb_submitted(&mut self, number: RecordNumber, uid: Uid, submission: &Submission) {
        let class = self.queues.intern(&submission.class, &self.config.resources);
        let workload = Workload::new(submission, class, number);
        self.names.entry(submission.namespace.clone()).or_default().insert(submission.name.clone(), uid);
        self.queues.wait(class, Place::new(workload.priority, workload.submitted, uid));
        self.state.workloads.insert(uid, workload);
        caches::tally_workload(self, uid, true);
        self.touch_queues(class, None);
        self.deciding.touch(uid);
    }

    fn absorb_forgotten(&mut self, uid: Uid) -> Option<ContentHash> {
        self.update(uid, |_, _| {});
        let class = self.state.workloads.get(&uid)?.class;
        self.touch_queues(class, self.queues.charged_to(uid).cloned());
        caches::tally_workload(self, uid, false);
        let workload = self.state.workloads.remove(&uid)?;
        self.deciding.touch(uid);
        self.queues.leave(workload.class, Place::new(workload.priority, workload.submitted, uid));
        let total = self.config.resources.total(&workload.gang(self.queues.class(workload.class)));
        self.queues.refund(uid, &workload.flavors, &total);
        for leg in workload.legs.values() {
            if let Some(load) = self.loads.get_mut(&leg.cluster) {
                load.remove(&uid);
            }
        }
        caches::drop_member(self, workload.class);
        self.live.not_before.remove(&uid);
        self.live.giving_way.forget(uid);
        self.state.displaced.remove(&uid);
        if let Some(finish) = &workload.finished {
            self.live.finished.remove(&(finish.at, uid));
        }
        if let Some(names) =
            self.names.get_mut(&workload.namespace).filter(|names| names.get(&workload.name) == Some(&uid))
        {
            names.remove(&workload.name);
            if names.is_empty() {
                self.names.remove(&workload.namespace);
            }
        }
        Some(workload.body)
    }

    fn remember_preemption(&mut self, victim: Uid, preempted: &Preempted, at: Wall) {
        if self.state.workloads.contains_key(&victim) {
            preemption_history::note(&mut self.state.displaced, victim, preempted.by, at);
        }
    }

    /// Cause of an eviction for which no other workload and no user is responsible.
    fn stopped_queue(&self, uid: Uid) -> EvictionCause {
        let class = self.state.workloads.get(&uid).map(|w| self.queues.class(w.class));
        let local = class.and_then(|class| self.state.catalog.local_queue(&class.namespace, &class.queue));
        match local {
            Some(queue) if queue.stop_policy == StopPolicy::HoldAndDrain => EvictionCause::LocalQueueStopped,
            _ => EvictionCause::ClusterQueueStopped,
        }
    }

    /// A local queue may lead elsewhere now, or nowhere.
    fn lead_local_queue(&mut self, key: &Key) {
        let (Kind::LocalQueue, None, Some(namespace)) = (key.kind, &key.scope, &key.namespace) else {
            return;
        };
        let leads_to =
            self.state.catalog.local_queue(namespace, &key.name).map(|queue| queue.cluster_queue.clone());
        let before = self.tally.lead(namespace, &key.name, leads_to.as_deref());
        for queue in before.iter().map(|queue| &**queue).chain(leads_to.as_deref()) {
            self.state.catalog.touch_cluster_queue(queue, self.state.last);
        }
    }

    /// What the statuses of these queues say has changed with the newest record.
    pub(crate) fn touch_queues(&mut self, class: ClassId, charged: Option<Arc<str>>) {
        let class = self.queues.class(class);
        self.state.catalog.touch_queues(
            (&class.namespace, &class.queue),
            charged.as_deref(),
            self.state.last,
        );
    }
}
