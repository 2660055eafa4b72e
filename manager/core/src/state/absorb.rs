//! Changes that records make to durable state. For those within one workload see `state::workload::absorb`.

use crate::facts::actor::Actor;
use crate::facts::audit::Head;
use crate::facts::key::Key;
use crate::facts::record::{
    LeadershipFact, MemberFact, ObjectFact, OrphanFact, Record, TokenFact, WorkloadFact,
};
use crate::facts::submission::RecoveryStart;
use crate::state::State;
use crate::state::catalog::Catalog;
use crate::state::members::{Member, Orphan, Token};
use crate::state::usage_history::{self, UsageHistory};
use crate::state::workload::Workload;
use meridian_objects::Kind;
use meridian_placement::preemption_history;
use meridian_shared::ids::{ClusterName, Fence, Leadership, LedgerId, RecordNumber, Session, Uid};
use std::sync::Arc;

/// Limit of unused join tokens, far more than an operator needs to join clusters. Beyond it, the token that
/// expires first is dropped.
const TOKENS_MAX: usize = 1_000;

impl State {
    pub(crate) fn absorb(&mut self, number: RecordNumber, record: &Record) {
        self.last = number;
        if let Some((_, _, last)) = self.ranges.iter_mut().find(|(l, _, _)| *l == self.leadership) {
            *last = number;
        }
        match record {
            Record::Leadership(fact) => self.absorb_leadership(number, fact),
            Record::Object { key, fact } => self.absorb_object(number, key, fact),
            Record::Token { hash, fact } => self.absorb_token(hash, fact),
            Record::Member { cluster, fact } => self.absorb_member(number, cluster, fact),
            Record::Workload { uid, fact } => self.absorb_workload_fact(*uid, fact),
            Record::Orphan { uid, fence, fact } => self.absorb_orphan((*uid, *fence), fact),
            Record::UsageSampled { at, queues, forgotten } => {
                for (local_queue, consumed) in queues {
                    let history = UsageHistory { consumed: consumed.clone(), at: *at };
                    self.usage_history.insert(local_queue.clone(), history);
                }
                for local_queue in forgotten {
                    self.usage_history.remove(local_queue);
                }
                for (namespace, name) in
                    queues.keys().chain(forgotten).filter_map(|local_queue| usage_history::names(local_queue))
                {
                    self.catalog.touch_local_queue(&namespace, &name, number);
                }
            }
            Record::Audited(line) => self.audit = Head { lines: line.number, hash: line.hash.clone() },
        }
    }

    fn absorb_leadership(&mut self, number: RecordNumber, fact: &LeadershipFact) {
        match fact {
            LeadershipFact::Started { leadership, at, recovery, foreign } => {
                preemption_history::forget_old(&mut self.preemption_history, *at);
                self.start_leadership(number, *leadership, recovery.clone(), foreign);
            }
            LeadershipFact::RecoveryClosed { .. } => {
                (self.recovery, self.behind, self.copies_ruled_out) = (None, false, false);
                self.forget_deleted_clusters();
                self.members.values_mut().for_each(|member| member.unheard = None);
            }
            LeadershipFact::CopiesRuledOut { .. } => {
                if let Some(recovery) = &mut self.recovery {
                    (recovery.restored, recovery.members_unknown) = (false, false);
                    self.copies_ruled_out = true;
                }
            }
            LeadershipFact::RulesDoubted { seen, until_heard } => {
                // A new doubt must not weaken one that only an operator can end.
                let was_firm = self.rules_doubted.is_some() && !self.rules_doubted_until_heard;
                self.rules_doubted_until_heard = *until_heard && !was_firm;
                self.rules_doubted = self.rules_doubted.max(Some(*seen));
            }
            LeadershipFact::RulesConfirmed { .. } => {
                (self.rules_doubted, self.rules_doubted_until_heard) = (None, false);
                self.rules = number;
            }
        }
    }

    fn start_leadership(
        &mut self,
        number: RecordNumber,
        leadership: Leadership,
        recovery: Option<RecoveryStart>,
        foreign: &[(Leadership, RecordNumber)],
    ) {
        for (other, last) in foreign {
            self.ranges.push((*other, *last, *last));
            self.last = self.last.max(*last);
        }
        let number = self.last.max(number);
        (self.last, self.led_since, self.leadership) = (number, number, leadership);
        (self.offers, self.grants) = (0, 0);
        self.ranges.push((leadership, number, number));
        if let Some(recovery) = recovery {
            if self.recovery.is_none() {
                self.recovery_since = number;
            }
            // a leadership without foreign records is that of a new process, so the operator must confirm
            // again
            self.copies_ruled_out &= !foreign.is_empty();
            self.behind |= !foreign.is_empty() || recovery.restored || recovery.members_unknown;
            if recovery.restored {
                // A token that was used after the backup was made could be used for a second join.
                self.tokens.clear();
            }
            self.recovery = Some(recovery);
        }
    }

    fn absorb_object(&mut self, number: RecordNumber, key: &Key, fact: &ObjectFact) {
        if Catalog::is_rule(key.kind) {
            self.rules = number;
        }
        match fact {
            ObjectFact::Applied { object, uid, at, by } => {
                self.catalog.put(key.clone(), (**object).clone(), *uid, *at, number, by.clone());
            }
            ObjectFact::Removed { .. } => {
                if let (Kind::Cluster, None, Some(stored)) = (key.kind, &key.scope, self.catalog.get(key)) {
                    let uid = stored.uid;
                    self.forget_certificates(number, &ClusterName::new(&key.name), uid);
                }
                self.catalog.remove(key);
                if let (Kind::LocalQueue, None, Some(namespace)) = (key.kind, &key.scope, &key.namespace) {
                    self.usage_history.remove(&*format!("{namespace}/{}", key.name));
                }
            }
        }
    }

    fn absorb_token(&mut self, hash: &str, fact: &TokenFact) {
        let TokenFact::Minted { cluster, region, jurisdiction, expires, replace, by } = fact else {
            self.tokens.remove(hash);
            return;
        };
        let (cluster, region, jurisdiction) = (cluster.clone(), region.clone(), jurisdiction.clone());
        // only users create tokens for other agents
        let hosted = *by == Actor::System;
        let token = Token { cluster, region, jurisdiction, expires: *expires, replace: *replace, hosted };
        self.tokens.insert(hash.to_owned(), token);
        if self.tokens.len() > TOKENS_MAX
            && let Some(first) =
                self.tokens.iter().min_by_key(|(_, token)| token.expires).map(|(hash, _)| hash.clone())
        {
            self.tokens.remove(&first);
        }
    }

    fn absorb_member(&mut self, number: RecordNumber, cluster: &ClusterName, fact: &MemberFact) {
        match fact {
            MemberFact::SessionOpened { ledger, session } => {
                self.open_session(number, cluster, *ledger, *session)
            }
            MemberFact::Admitted { .. } => {
                if let Some(member) = self.members.get_mut(cluster) {
                    member.admitted = true;
                }
            }
            MemberFact::CertificatesVoided { cluster_uid, by, account_may_join, hosted } => {
                // Journals without this field: an operator's record locks the account out, a join doesn't.
                let may_join = account_may_join.unwrap_or(*by == Actor::agent(cluster));
                self.void_certificates(number, cluster, *cluster_uid, !may_join);
                if *hosted {
                    self.mark_as_hosted(cluster);
                }
            }
            MemberFact::CertificatesAdopted { binding } => self.adopt_certificates(cluster, *binding),
            MemberFact::DeclaredLost { ledger, .. } => {
                if let Some(member) = self.members.get_mut(cluster) {
                    member.lost.insert(*ledger);
                    member.unheard = member.unheard.filter(|unheard| unheard != ledger);
                }
            }
        }
    }

    fn open_session(
        &mut self,
        number: RecordNumber,
        cluster: &ClusterName,
        ledger: LedgerId,
        session: Session,
    ) {
        let is_first_member = self.members.is_empty();
        let member = match self.members.remove(cluster) {
            Some(mut old) => {
                if old.ledger != ledger {
                    old.lost.insert(old.ledger);
                    if self.recovery.is_some() && old.since < self.recovery_since {
                        old.unheard.get_or_insert(old.ledger);
                    }
                }
                Member { ledger, session, session_since: number, ..old }
            }
            None => Member {
                ledger,
                session,
                lost: Default::default(),
                since: number,
                session_since: number,
                unheard: None,
                admitted: is_first_member,
            },
        };
        self.members.insert(cluster.clone(), member);
    }

    fn absorb_orphan(&mut self, key: (Uid, Fence), fact: &OrphanFact) {
        match fact {
            OrphanFact::Seen { cluster, ledger, run } => {
                let (cluster, run) = (cluster.clone(), (**run).clone());
                self.orphans.insert(key, Orphan { cluster, ledger: *ledger, run, stopping: false });
            }
            OrphanFact::StopOrdered { .. } => {
                if let Some(orphan) = self.orphans.get_mut(&key) {
                    orphan.stopping = true;
                }
            }
            OrphanFact::Gone { .. } => drop(self.orphans.remove(&key)),
        }
    }

    fn absorb_workload_fact(&mut self, uid: Uid, fact: &WorkloadFact) {
        match fact {
            WorkloadFact::QuotaReleased { preempted: Some(preempted), at }
            | WorkloadFact::StopOrdered { preempted: Some(preempted), at, .. }
                if self.workloads.contains_key(&uid) =>
            {
                preemption_history::note(&mut self.preemption_history, uid, preempted.by, *at);
            }
            WorkloadFact::Offered { offer, .. } => self.offers = self.offers.max(offer.counter),
            WorkloadFact::Granted { fence, .. } => self.grants = self.grants.max(fence.counter),
            WorkloadFact::Forgotten => drop(self.preemption_history.remove(&uid)),
            _ => {}
        }
    }

    /// A workload that is to absorb a fact. The caller updates the caches over workloads.
    pub(crate) fn workload_mut(&mut self, uid: Uid) -> Option<&mut Workload> {
        self.workloads.get_mut(&uid)
    }

    pub(crate) fn insert_workload(&mut self, uid: Uid, workload: Workload) {
        self.workloads.insert(uid, workload);
    }

    pub(crate) fn remove_workload(&mut self, uid: Uid) -> Option<Arc<Workload>> {
        self.workloads.remove(&uid)
    }

    /// Forgets recent preemptions that involve one workload, or all of them. Called when a user changes
    /// priorities or quotas.
    pub(crate) fn forget_preemptions(&mut self, of: Option<Uid>) {
        preemption_history::forget_preemptions(&mut self.preemption_history, of);
    }

    /// Notes that the newest record changed the statuses of these queues.
    pub(crate) fn touch_queues(&mut self, local: (&Arc<str>, &str), charged: Option<&str>) {
        self.catalog.touch_queues(local, charged, self.last);
    }

    pub(crate) fn touch_cluster_queue(&mut self, name: &str) {
        self.catalog.touch_cluster_queue(name, self.last);
    }
}
