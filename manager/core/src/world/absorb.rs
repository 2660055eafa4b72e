pub mod classes;
pub mod evictions;
pub mod preemptions;
pub mod sizes;
pub mod usage;

use crate::config::Config;
use crate::facts::audit::Head;
use crate::facts::flavors::Flavors;
use crate::facts::key::Key;
use crate::facts::record::Record;
use crate::facts::submission::{ClassId, Preempted, Submission};
use crate::queue::classes::Place;
use crate::queue::counts::One;
use crate::state::catalog::Catalog;
use crate::state::legs::Leg;
use crate::state::legs::leg::State as LegState;
use crate::state::members::{Member, Orphan, Token};
use crate::state::workload::evictions::NODE_FAILURES;
use crate::state::workload::phase::{Happening, Phase};
use crate::state::workload::{Deactivation, Finish, Reactivation, Stay, Workload, size};
use crate::state::{State, preemption_history};
use crate::views::explain::words;
use crate::world::absorb::evictions::{
    ADMISSION_CHECK, CLUSTER_LOST, DEACTIVATED, DECLARED_LOST, LAPSED, PREEMPTED, TIME_IS_UP, UNKNOWN,
};
use crate::world::{Live, World};
use meridian_objects::Kind;
use meridian_objects::spec::StopPolicy;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{
    ClusterName, ContentHash, Fence, JournalId, Leadership, OfferId, RecordNumber, Uid,
};
use meridian_shared::planted::Bug;
use meridian_shared::protocol::EndResult;
use meridian_shared::time::{Millis, Wall};
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

    /// Takes one fact. Bodies that it orphans are returned.
    pub fn absorb(&mut self, number: RecordNumber, record: &Record) -> Vec<ContentHash> {
        self.state.last = number;
        if let Some((_, _, last)) = self.state.ranges.iter_mut().find(|(l, _, _)| *l == self.state.leadership)
        {
            *last = number;
        }
        let mut orphaned = Vec::new();
        match record {
            Record::Led { leadership, at, recovery, foreign } => {
                preemption_history::forget_old(&mut self.state.displaced, *at);
                self.absorb_led(number, *leadership, recovery.clone(), foreign);
            }
            Record::RecoveryClosed { .. } => {
                (self.state.recovery, self.state.behind) = (None, false);
                self.deciding.declare_again();
            }
            Record::RulesDoubted { seen } => self.state.rules_doubted = Some(*seen),
            Record::RulesConfirmed { .. } => {
                self.state.rules_doubted = None;
                self.state.rules = number;
            }
            Record::Applied { key, object, uid, at, by } => {
                if Catalog::is_rule(key.kind) {
                    self.state.rules = number;
                }
                if key.scope.is_none() && Catalog::is_declaration(key.kind) {
                    self.deciding.declare_again();
                }
                if key.scope.is_none() && matches!(key.kind, Kind::ClusterQueue | Kind::Cohort) {
                    preemptions::rights_changed(self, None);
                }
                self.deciding.forget_ways();
                self.state.catalog.put(key.clone(), (**object).clone(), *uid, *at, number, by.clone());
                self.lead_local_queue(key);
            }
            Record::Removed { key, .. } => {
                if Catalog::is_rule(key.kind) {
                    self.state.rules = number;
                }
                if key.scope.is_none() && Catalog::is_declaration(key.kind) {
                    self.deciding.declare_again();
                }
                self.deciding.forget_ways();
                self.state.catalog.remove(key);
                usage::forget_past_use(self, key);
                self.lead_local_queue(key);
            }
            Record::TokenMinted { hash, cluster, region, jurisdiction, expires, replace, .. } => {
                let token = Token {
                    cluster: cluster.clone(),
                    region: region.clone(),
                    jurisdiction: jurisdiction.clone(),
                    expires: *expires,
                    replace: *replace,
                };
                self.state.remember_token(hash, token);
            }
            Record::TokenUsed { hash } => {
                self.state.tokens.remove(hash);
            }
            Record::SessionOpened { cluster, ledger, session } => {
                let alone = self.state.members.is_empty();
                let member = match self.state.members.remove(cluster) {
                    Some(mut old) => {
                        if old.ledger != *ledger {
                            old.lost.insert(old.ledger);
                        }
                        Member { ledger: *ledger, session: *session, session_since: number, ..old }
                    }
                    None => Member {
                        ledger: *ledger,
                        session: *session,
                        lost: Default::default(),
                        since: number,
                        session_since: number,
                        admitted: alone,
                    },
                };
                self.state.members.insert(cluster.clone(), member);
            }
            Record::MemberAdmitted { cluster, .. } => {
                if let Some(member) = self.state.members.get_mut(cluster) {
                    member.admitted = true;
                }
            }
            Record::Submitted(submission) => self.absorb_submitted(number, submission),
            Record::DeclaredLost { cluster, ledger, .. } => {
                if let Some(member) = self.state.members.get_mut(cluster) {
                    member.lost.insert(*ledger);
                }
            }
            Record::OrphanSeen { cluster, ledger, run } => {
                let orphan = Orphan {
                    cluster: cluster.clone(),
                    ledger: *ledger,
                    run: (**run).clone(),
                    stopping: false,
                };
                self.state.orphans.insert((run.uid, run.fence), orphan);
            }
            Record::OrphanStopOrdered { uid, fence, .. } => {
                if let Some(orphan) = self.state.orphans.get_mut(&(*uid, *fence)) {
                    orphan.stopping = true;
                }
            }
            Record::OrphanGone { uid, fence, .. } => {
                self.state.orphans.remove(&(*uid, *fence));
            }
            Record::Audited(line) => self.state.audit = Head { lines: line.number, hash: line.hash.clone() },
            Record::Sampled { at, queues, forgotten } => {
                usage::absorb_sampled(self, number, *at, queues, forgotten)
            }
            Record::Forgotten { uid } => orphaned.extend(self.absorb_forgotten(*uid)),
            Record::Resized { uid, class, body, size, .. } => {
                orphaned.extend(sizes::absorb_resized(self, number, *uid, class, *body, *size))
            }
            Record::Reserved { .. }
            | Record::Released { .. }
            | Record::Offered { .. }
            | Record::Waited { .. }
            | Record::Held { .. }
            | Record::Refused { .. }
            | Record::Expired { .. }
            | Record::Withdrawn { .. }
            | Record::Granted { .. }
            | Record::Accepted { .. }
            | Record::Placed { .. }
            | Record::Running { .. }
            | Record::Reclaimed { .. }
            | Record::PodsFailed { .. }
            | Record::StopOrdered { .. }
            | Record::Ended { .. }
            | Record::GrantRefused { .. }
            | Record::Lapsed { .. }
            | Record::Adopted { .. }
            | Record::EndLearned { .. }
            | Record::DeletionAsked { .. }
            | Record::Deactivated { .. }
            | Record::Activated { .. }
            | Record::Reprioritized { .. }
            | Record::Grows { .. }
            | Record::Grown { .. }
            | Record::NotGrown { .. }
            | Record::Finished { .. } => self.absorb_workload(number, record),
        }
        orphaned
    }

    fn absorb_led(
        &mut self,
        number: RecordNumber,
        leadership: Leadership,
        recovery: Option<crate::facts::submission::RecoveryStart>,
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
        // Recovery holds back whom a leadership before looked at.
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

    fn absorb_submitted(&mut self, number: RecordNumber, submission: &Submission) {
        let class = self.queues.intern(&submission.class, &self.config.resources);
        let workload = Workload::new(submission, class, number);
        self.names
            .entry(submission.namespace.clone())
            .or_default()
            .insert(submission.name.clone(), submission.uid);
        self.queues.wait(class, Place::new(workload.priority, workload.submitted, submission.uid));
        self.state.workloads.insert(submission.uid, workload);
        classes::tally_workload(self, submission.uid, true);
        self.touch_queues(class, None);
        self.deciding.touch(submission.uid);
    }

    fn absorb_forgotten(&mut self, uid: Uid) -> Option<ContentHash> {
        self.settle(uid, |_| {});
        let class = self.state.workloads.get(&uid)?.class;
        self.touch_queues(class, self.queues.charged_to(uid).cloned());
        classes::tally_workload(self, uid, false);
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
        classes::drop_member(self, workload.class);
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

    fn absorb_workload(&mut self, number: RecordNumber, record: &Record) {
        match record {
            Record::Reserved { uid, flavors, at, counts } => self.settle(*uid, |w| {
                w.flavors = flavors.clone();
                w.counts.clone_from(counts);
                (w.spare, w.resized) = (None, None);
                w.reserved = *at;
                w.happen(Happening::Reserve, number);
            }),
            Record::Released { uid, preempted, at } => {
                self.note_displaced(*uid, preempted.as_ref(), *at);
                self.settle(*uid, |w| {
                    if preempted.is_some() {
                        w.preempted.clone_from(preempted);
                        w.evict(PREEMPTED, *at);
                    } else if w.inactive.is_some() {
                        w.evict(DEACTIVATED, *at);
                    }
                    w.happen(Happening::Release, number);
                });
            }
            Record::Offered { uid, offer, cluster, ledger, choice } => {
                self.state.offers = self.state.offers.max(offer.counter);
                self.settle(*uid, |w| {
                    w.happen(Happening::Offer, number);
                    w.legs.insert(
                        *offer,
                        Leg { choice: *choice, ..Leg::new(cluster.clone(), *ledger, LegState::Offered) },
                    );
                });
            }
            Record::Waited { uid, offer, reason, estimate } => self.settle(*uid, |w| {
                if let Some(leg) = w.legs.get_mut(offer) {
                    leg.state = LegState::Waiting;
                    leg.note = Some(reason.clone());
                    leg.estimate = *estimate;
                    w.changed = number;
                }
            }),
            Record::Held { uid, offer } => self.settle(*uid, |w| {
                if let Some(leg) = w.legs.get_mut(offer) {
                    leg.state = LegState::Held;
                    w.changed = number;
                }
            }),
            Record::Refused { uid, offer, reason, text } => self.settle(*uid, |w| {
                if let Some(leg) = w.legs.remove(offer) {
                    w.refusals.insert(leg.cluster, (*reason, text.clone()));
                    w.changed = number;
                }
            }),
            Record::Expired { uid, offer } | Record::Withdrawn { uid, offer } => self.settle(*uid, |w| {
                w.legs.remove(offer);
                w.changed = number;
            }),
            Record::Granted { uid, offer, fence, at } => {
                self.absorb_granted(number, *uid, *offer, *fence, *at)
            }
            Record::Accepted { uid, fence, placement } => self.settle(*uid, |w| {
                if let Some(leg) = w.leg_of_mut(*fence) {
                    leg.accepted = true;
                    leg.placement.clone_from(placement);
                    w.changed = number;
                }
            }),
            // Nothing that is counted depends on it.
            Record::Placed { uid, fence, placement } => {
                if let Some(w) = self.state.workloads.get_mut(uid)
                    && let Some(leg) = w.leg_of_mut(*fence)
                {
                    leg.placement = Some(placement.clone());
                    w.changed = number;
                }
            }
            Record::Running { uid, fence, at } => self.settle(*uid, |w| {
                if let Some(leg) = w.leg_of_mut(*fence) {
                    leg.accepted = true;
                    leg.state = LegState::Running;
                    w.started.get_or_insert(*at);
                    w.happen(Happening::Start, number);
                    w.since = *at;
                }
            }),
            Record::Reclaimed { uid, fence, pods } => self.settle(*uid, |w| {
                if w.leg_of(*fence).is_some() {
                    w.spare = Some(pods.clone());
                }
                w.changed = number;
            }),
            Record::PodsFailed { uid, failures, .. } => self.settle(*uid, |w| {
                w.pod_failures = w.pod_failures.max(*failures);
                w.changed = number;
            }),
            Record::StopOrdered { uid, reason, preempted, at, .. } => {
                let queue = self.stopped_queue(*uid);
                self.note_displaced(*uid, preempted.as_ref(), *at);
                self.settle(*uid, |w| {
                    w.stopping = Some(*reason);
                    let taken_back = match (preempted, &w.inactive) {
                        (Some(_), _) => PREEMPTED,
                        (None, Some(_)) => DEACTIVATED,
                        (None, None) => queue,
                    };
                    if let Some(why) = evictions::eviction_of(*reason, taken_back) {
                        w.evict(why, *at);
                    }
                    if preempted.is_some() {
                        w.preempted.clone_from(preempted);
                    }
                    w.happen(Happening::Stop, number);
                });
            }
            Record::Ended { uid, fence, result, pod_failures, ran, at, unknown } => {
                let known = || words::end_in_words(result);
                let words =
                    if *unknown && *result == EndResult::Stopped { UNKNOWN.to_owned() } else { known() };
                let why = match result {
                    EndResult::NodeLost { .. } => Some((NODE_FAILURES, "")),
                    EndResult::LeaseLapsed => Some(CLUSTER_LOST),
                    EndResult::Stopped => Some((ADMISSION_CHECK, "Stopped")),
                    EndResult::Failed { .. } if self.time_is_up(*uid) => Some(TIME_IS_UP),
                    EndResult::Succeeded | EndResult::Failed { .. } => None,
                };
                self.free(number, *uid, *fence, *at, &words, why);
                if let Some(w) = self.state.workloads.get_mut(uid) {
                    w.pod_failures = w.pod_failures.max(*pod_failures);
                    w.ran = w.ran + *ran;
                }
            }
            Record::GrantRefused { uid, fence, why } => {
                let at = self.state.workloads.get(uid).map_or(Wall(0), |w| w.since);
                self.free(
                    number,
                    *uid,
                    *fence,
                    at,
                    &format!("the cluster refused the grant: {why}"),
                    Some((ADMISSION_CHECK, "GrantRefused")),
                );
            }
            Record::Lapsed { uid, fence, at, declared, .. } => {
                let end = if *declared { DECLARED_LOST } else { LAPSED };
                self.free(number, *uid, *fence, *at, end, Some(CLUSTER_LOST));
            }
            Record::Adopted { cluster, ledger, run, flavors, at } => {
                self.absorb_adopted(number, (cluster, *ledger), run, flavors, *at)
            }
            Record::EndLearned { uid, fence, cluster, result, pod_failures, ran, at } => {
                self.settle(*uid, |w| {
                    let end = Some(words::end_in_words(result));
                    match w.history.iter_mut().rev().find(|stay| stay.fence == *fence) {
                        Some(stay) => stay.end = end,
                        None => w.stay(Stay {
                            cluster: cluster.clone(),
                            fence: *fence,
                            granted: *at,
                            over: Some(*at),
                            end,
                        }),
                    }
                    w.fence = w.fence.max(Some(*fence));
                    w.pod_failures = w.pod_failures.max(*pod_failures);
                    w.ran = w.ran + *ran;
                    w.learned = Some(result.clone());
                    w.changed = number;
                })
            }
            Record::DeletionAsked { uid, at, .. } => self.settle(*uid, |w| {
                w.deletion = Some(*at);
                w.changed = number;
            }),
            Record::Deactivated { uid, by, at, time_is_up } => self.settle(*uid, |w| {
                w.inactive =
                    Some(Box::new(Deactivation { by: by.clone(), at: *at, time_is_up: *time_is_up }));
                // Where it has more than its place in the queue, the loss of that says so.
                if w.phase == Phase::Pending {
                    w.evict(DEACTIVATED, Some(*at));
                    w.since = *at;
                }
                w.changed = number;
            }),
            Record::Activated { uid, at, .. } => self.settle(*uid, |w| {
                if w.inactive.take().is_some_and(|inactive| inactive.time_is_up) {
                    // Whoever puts it back gives it its time anew.
                    w.ran = Millis(0);
                }
                w.reactivated = Some(Box::new(Reactivation { at: *at, attempts: w.attempts }));
                if w.phase == Phase::Pending {
                    w.since = *at;
                }
                w.changed = number;
            }),
            Record::Reprioritized { uid, priority, .. } => {
                preemptions::rights_changed(self, Some(*uid));
                let Some(w) = self.state.workloads.get_mut(uid) else { return };
                let (class, old, waits) = (w.class, Place::new(w.priority, w.submitted, *uid), w.waits());
                (w.priority, w.changed) = (*priority, number);
                let new = Place::new(w.priority, w.submitted, *uid);
                if waits {
                    self.queues.leave(class, old);
                    self.queues.wait(class, new);
                }
                self.deciding.touch(*uid);
            }
            Record::Grows { uid, places, runs, size, .. } => {
                let Some(before) = self
                    .state
                    .workloads
                    .get(uid)
                    .map(|w| size::counts_of(&w.given_gang(self.queues.class(w.class))))
                else {
                    return;
                };
                self.settle(*uid, |w| w.absorb_grows(places.clone(), (runs.clone(), *size), before, number));
            }
            Record::Grown { uid, growth, .. } => {
                let wanted = self.wanted_counts(*uid);
                self.settle(*uid, |w| w.absorb_grown(&wanted, growth, number));
            }
            Record::NotGrown { uid, .. } => {
                let wanted = self.wanted_counts(*uid);
                self.settle(*uid, |w| w.absorb_not_grown(&wanted, number));
            }
            Record::Finished { uid, succeeded, reason, message, at } => {
                self.settle(*uid, |w| {
                    w.happen(Happening::Finish, number);
                    w.since = *at;
                    w.finished = Some(Finish {
                        succeeded: *succeeded,
                        reason: reason.clone(),
                        message: message.clone(),
                        at: *at,
                    });
                });
                self.live.finished.insert((*at, *uid));
            }
            Record::Led { .. }
            | Record::RecoveryClosed { .. }
            | Record::RulesDoubted { .. }
            | Record::RulesConfirmed { .. }
            | Record::Applied { .. }
            | Record::Removed { .. }
            | Record::TokenMinted { .. }
            | Record::TokenUsed { .. }
            | Record::SessionOpened { .. }
            | Record::MemberAdmitted { .. }
            | Record::Submitted(_)
            | Record::DeclaredLost { .. }
            | Record::OrphanSeen { .. }
            | Record::OrphanStopOrdered { .. }
            | Record::OrphanGone { .. }
            | Record::Resized { .. }
            | Record::Forgotten { .. }
            | Record::Sampled { .. }
            | Record::Audited(_) => unreachable!("absorbed before"),
        }
    }

    /// Records of older managers don't say when, and count for nothing.
    fn note_displaced(&mut self, uid: Uid, preempted: Option<&Preempted>, at: Option<Wall>) {
        if let Some((preempted, at)) = preempted.zip(at).filter(|_| self.state.workloads.contains_key(&uid)) {
            preemption_history::note(&mut self.state.displaced, uid, preempted.by, at);
        }
    }

    fn absorb_granted(&mut self, number: RecordNumber, uid: Uid, offer: OfferId, fence: Fence, at: Wall) {
        self.state.grants = self.state.grants.max(fence.counter);
        self.settle(uid, |w| {
            w.happen(Happening::Grant, number);
            w.fence = Some(w.fence.map_or(fence, |f| f.max(fence)));
            w.attempts += 1;
            (w.preempted, w.evicted) = (None, None);
            w.since = at;
            w.refusals.clear();
            if let Some(leg) = w.legs.get_mut(&offer) {
                leg.state = LegState::Granted;
                leg.fence = Some(fence);
                let cluster = leg.cluster.clone();
                w.stay(Stay { cluster, fence, granted: at, over: None, end: None });
            }
        });
    }

    fn absorb_adopted(
        &mut self,
        number: RecordNumber,
        (cluster, ledger): (&meridian_shared::ids::ClusterName, meridian_shared::ids::LedgerId),
        run: &meridian_shared::protocol::Run,
        flavors: &Flavors,
        at: Wall,
    ) {
        let spare = sizes::spare_of_adopted(self, run);
        let (places, wanted) = (sizes::counts_of_adopted(self, run), self.wanted_counts(run.uid));
        self.settle(run.uid, |w| {
            w.happen(Happening::Adopt, number);
            w.spare = spare;
            w.resize_adopted(&wanted, places, run.grown.as_deref(), number);
            w.legs.clear();
            w.fence = Some(w.fence.map_or(run.fence, |f| f.max(run.fence)));
            w.attempts = w.attempts.max(run.attempt);
            w.stopping = None;
            w.since = at;
            // Quota is charged where it was, or where the decision said.
            if w.flavors.is_empty() {
                w.flavors = flavors.clone();
            }
            w.reserved.get_or_insert(at);
            w.evicted = None;
            let state = LegState::Granted;
            w.legs.insert(
                run.offer,
                Leg {
                    fence: Some(run.fence),
                    accepted: true,
                    placement: run.placement.clone(),
                    ..Leg::new(cluster.clone(), ledger, state)
                },
            );
            w.stay(Stay { cluster: cluster.clone(), fence: run.fence, granted: at, over: None, end: None });
        });
    }

    /// Pods of each pod set that a job wants.
    fn wanted_counts(&self, uid: Uid) -> Vec<u32> {
        self.state
            .workloads
            .get(&uid)
            .map(|w| size::counts_of(&self.queues.class(w.class).gang))
            .unwrap_or_default()
    }

    /// The right to run under this fence is over.
    fn free(
        &mut self,
        number: RecordNumber,
        uid: Uid,
        fence: Fence,
        at: Wall,
        how: &str,
        evicted: Option<(&str, &str)>,
    ) {
        self.settle(uid, |w| {
            let Some(offer) = w.legs.iter().find(|(_, l)| l.fence == Some(fence)).map(|(o, _)| *o) else {
                return;
            };
            // An ordered stop said why already.
            if let (Some(why), true) = (evicted, w.phase != Phase::Stopping) {
                w.evict(why, Some(at));
            }
            w.legs.remove(&offer);
            w.stopping = None;
            w.happen(Happening::Free, number);
            w.since = at;
            if let Some(stay) = w.history.iter_mut().rev().find(|s| s.fence == fence) {
                stay.over = Some(at);
                stay.end = Some(how.to_owned());
            }
        });
    }

    /// Changes one workload and brings every cache over it in line: queue, quota, loads.
    fn settle(&mut self, uid: Uid, change: impl FnOnce(&mut Workload)) {
        let Some(workload) = self.state.workloads.get_mut(&uid) else { return };
        let class = workload.class;
        let (shape, whole) = self.queues.class_and_total(class);
        let (shape, whole) = (shape.clone(), whole.clone());
        let total_of = |gang: &Arc<Gang>| {
            if Arc::ptr_eq(gang, &shape.gang) {
                whole.clone()
            } else {
                Arc::new(self.config.resources.total(gang))
            }
        };
        let gang_before = workload.gang(&shape);
        let place = Place::new(workload.priority, workload.submitted, uid);
        let (was, flavors_before) = (workload.phase, workload.flavors.clone());
        let (waited, was_inactive) = (workload.waits(), workload.inactive.is_some());
        let charged_before = was.charged().then(|| self.queues.charged_to(uid).cloned()).flatten();
        let legs_before: Vec<_> = workload.legs.values().map(|l| (l.cluster.clone(), l.state)).collect();
        change(workload);
        let is = workload.phase;
        let (waits, is_inactive) = (workload.waits(), workload.inactive.is_some());
        self.deciding.touch(uid);
        let flavors = workload.flavors.clone();
        let legs_after: Vec<_> = workload.legs.values().map(|l| (l.cluster.clone(), l.state)).collect();
        let ceases = was.charged() && !is.charged();
        if ceases {
            workload.flavors = Flavors::default();
            (workload.reserved, workload.counts, workload.spare, workload.charged_to) =
                (None, None, None, None);
            if let Some(resized) = &mut workload.resized {
                resized.growing = None;
            }
        }
        let gang = workload.gang(&shape);
        let total_before = total_of(&gang_before);
        let total = if Arc::ptr_eq(&gang, &gang_before) { total_before.clone() } else { total_of(&gang) };
        if ceases {
            self.queues.refund(uid, &flavors, &total_before);
        }
        if was.charged()
            && is.charged()
            && (total != total_before || flavors != flavors_before)
            && let Some(queue) = &charged_before
        {
            self.queues.refund(uid, &flavors_before, &total_before);
            self.queues.charge(uid, queue.clone(), &flavors, &total);
        }
        if !was.charged() && is.charged() && !self.config.planted.has(Bug::QuotaNotCharged) {
            let queue = self.state.catalog.leads_to(&shape);
            workload.charged_to = Some(queue.clone());
            self.queues.charge(uid, queue, &flavors, &total);
        }
        if was != is || flavors_before != flavors || total_before != total || was_inactive != is_inactive {
            let charged_after = self.queues.charged_to(uid).cloned();
            let before = One {
                phase: was,
                inactive: was_inactive,
                flavors: &flavors_before,
                total: &total_before,
                charged_to: charged_before.as_ref(),
            };
            let after = One {
                phase: is,
                inactive: is_inactive,
                flavors: &flavors,
                total: &total,
                charged_to: charged_after.as_ref(),
            };
            self.tally.change(&self.state.catalog, &shape, &before, &after);
            self.touch_queues(class, charged_before.or(charged_after));
        }
        if waited && !waits {
            self.queues.leave(class, place);
        }
        if !waited && waits {
            self.queues.wait(class, place);
        }
        if legs_before == legs_after {
            return;
        }
        let is_in =
            |legs: &[(ClusterName, LegState)], cluster| legs.iter().any(|(other, _)| other == cluster);
        for (cluster, _) in legs_before.iter().filter(|(cluster, _)| !is_in(&legs_after, cluster)) {
            if let Some(load) = self.loads.get_mut(cluster) {
                load.remove(&uid);
            }
        }
        for (cluster, _) in legs_after.iter().filter(|(cluster, _)| !is_in(&legs_before, cluster)) {
            self.loads.entry(cluster.clone()).or_default().insert(uid, class);
        }
        legs_before.into_iter().for_each(|(cluster, state)| self.tally.leg(cluster, state, false));
        legs_after.into_iter().for_each(|(cluster, state)| self.tally.leg(cluster, state, true));
    }

    fn time_is_up(&self, uid: Uid) -> bool {
        self.state
            .workloads
            .get(&uid)
            .and_then(|w| w.inactive.as_ref())
            .is_some_and(|inactive| inactive.time_is_up)
    }

    /// Which of its queues takes back what it had given, where no other workload does.
    fn stopped_queue(&self, uid: Uid) -> (&'static str, &'static str) {
        let class = self.state.workloads.get(&uid).map(|w| self.queues.class(w.class));
        let local = class.and_then(|class| self.state.catalog.local_queue(&class.namespace, &class.queue));
        if local.is_some_and(|queue| queue.stop_policy == StopPolicy::HoldAndDrain) {
            ("LocalQueueStopped", "")
        } else {
            ("ClusterQueueStopped", "")
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

    /// Rebuilds every cache from `state`, after a snapshot was read.
    pub fn recount(
        &mut self,
        classes: Vec<(crate::facts::submission::ClassId, crate::facts::submission::Class)>,
        next: crate::facts::submission::ClassId,
    ) {
        self.queues.restore(classes, next, &self.config.resources);
        self.deciding.start_over();
        let uids: Vec<Uid> = self.state.workloads.keys().copied().collect();
        for uid in uids {
            let Some(w) = self.state.workloads.get_mut(&uid) else { continue };
            let (class, place, phase, waits) =
                (w.class, Place::new(w.priority, w.submitted, uid), w.phase, w.waits());
            self.names.entry(w.namespace.clone()).or_default().insert(w.name.clone(), uid);
            self.queues.add_member(class);
            let shape = self.queues.class(class).clone();
            if waits {
                self.queues.wait(class, place);
            }
            if phase.charged() {
                // A snapshot of an older version doesn't tell.
                let queue = w.charged_to.get_or_insert_with(|| self.state.catalog.leads_to(&shape)).clone();
                self.queues.charge(uid, queue, &w.flavors, &self.config.resources.total(&w.gang(&shape)));
            }
            for leg in w.legs.values() {
                self.loads.entry(leg.cluster.clone()).or_default().insert(uid, class);
            }
            if let Some(finish) = &w.finished {
                self.live.finished.insert((finish.at, uid));
            }
        }
        self.tally = classes::tally_anew(self);
    }
}
