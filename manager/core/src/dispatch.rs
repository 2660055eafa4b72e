//! One scheduling pass: in the queue's order, who gets quota, which clusters are asked, who is granted.
//!
//! Each head is tried once per class and pass; a class whose head can't start is parked until something changes that could
//! let it start. Candidate clusters are filtered with a stored reason each, then ordered by a score whose field order is the
//! policy. Quota is held only together with a live leg.

use crate::audit::Entry;
use crate::domains::Gone;
use crate::explain::Why;
use crate::flavors::Flavors;
use crate::input::Actor;
use crate::outbox::Said;
use crate::places::Clusters;
use crate::queues::{ClassId, NoQuota, Shortage};
use crate::record::{Choice, Preempted, Record};
use crate::turn::Turn;
use crate::ways::{Site, Way};
use crate::workload::Phase;
use crate::{Lease, LiveCluster, World, residency};
use meridian_objects::spec::{DispatchMode, ResourceFlavorSpec, Supervision};
use meridian_queueing::cycle::{Entry as Looked, Outcome, Passed, Report};
use meridian_queueing::model::{PodSet, QueueId, WorkloadId, amount_of};
use meridian_queueing::names::{FlavorId, ResourceId};
use meridian_queueing::preempt::Right;
use meridian_queueing::reason::Reason;
use meridian_queueing::{Amount, Brain};
use meridian_shared::gang::{Gang, TaintEffect};
use meridian_shared::ids::{ClusterName, Fence, OfferId, Uid};
use meridian_shared::lease::ManagerLease;
use meridian_shared::packing::Misfit;
use meridian_shared::planted::Bug;
use meridian_shared::protocol::{OnLoss, StopReason};
use meridian_shared::time::{Millis, Mono};
use meridian_shared::topology::FlavorTopology;
use meridian_topology::PODS;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Decisions on what victims and refusals changed within one batch, at most.
const ROUNDS_MAX: usize = 16;
/// How often the heads that a turn looks at in vain become twice as many at most: as many then as anybody has.
const CUTS_MAX: u32 = 20;
/// How long a workload rests at most that was displaced before it ran: as long as a usual stop takes.
const DISPLACED_REST: Millis = Millis::secs(30);
/// Clusters asked at once in a race.
pub(crate) const RACE_MAX: usize = 20;

/// Why one cluster is better than another: field order is the policy, the last field breaks every tie.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score {
    /// How often this workload did not reach running there: that puts it last.
    failed_starts: u32,
    /// The same of others, in a row.
    fails: u32,
    /// Room now before room that has to grow.
    must_grow: bool,
    /// Emptiest first, in thousandths of the scarcest resource, if the policy prefers so.
    fullness: Reverse<i64>,
    /// Place in the queue's MultiKueueConfig.
    listed: usize,
    cluster: ClusterName,
}

impl Turn<'_> {
    pub(crate) fn end_of_batch(&mut self) {
        self.on_time();
        self.refresh_rooms();
        if std::mem::take(&mut self.world.live.dirty) {
            self.schedule();
        }
    }

    fn refresh_rooms(&mut self) {
        self.world.live.clusters.values_mut().for_each(|live| live.rooms.refresh());
    }

    /// Whether any cluster was asked and hasn't said anything yet.
    fn awaits_an_answer(&self) -> bool {
        self.world
            .state
            .workloads
            .values()
            .any(|w| w.legs.values().any(|leg| leg.state == crate::leg::State::Offered))
    }

    fn schedule(&mut self) {
        // Under doubted rules nothing is offered.
        if self.world.state.rules_doubted.is_some()
            || (self.world.config.planted.has(Bug::SlowClusterAwaited) && self.awaits_an_answer())
        {
            return;
        }
        self.world.let_rests_end();
        self.world.align(self.now.mono);
        // Whose victims have ended may still starve: what is kept for it then is kept at once (simulation seed 4009341).
        let gone = self.world.let_room_go(self.now.mono);
        self.mind_the_starving();
        if self.world.let_room_go(self.now.mono) | gone | std::mem::take(&mut self.world.live.stirred) {
            self.world.deciding.brain_mut().wake_placeless();
        }
        let mut share = Share::of(self.world.config.heads_max, self.world.live.cuts);
        for _ in 0..ROUNDS_MAX {
            if self.world.deciding.brain().changed_trees().next().is_none() {
                self.world.live.cuts = 0;
                return;
            }
            if share.is_used_up() {
                break;
            }
            let rested_for = self.world.rested_for();
            let mut brain = self.world.deciding.take();
            let mut seen = Seen::default();
            let mut clusters = Clusters::new(self);
            let decides = Arc::make_mut(&mut brain);
            decides.now = clusters.turn.now.wall.0;
            decides.run(&mut clusters, |_, report| {
                // Who rests for one that has got its own comes before others of its queue: those would displace somebody for what is
                // then its own (simulation seed 1795454987391465).
                let rested = report
                    .entries
                    .iter()
                    .any(|entry| entry.outcome == Outcome::Admitted && rested_for.contains(&entry.workload));
                share.take(&report);
                seen.note(report);
                !rested && !share.is_used_up()
            });
            self.world.deciding.put(brain);
            self.world.live.counts.attempts_fruitful += seen.fruitful;
            self.world.live.counts.attempts_fruitless += seen.fruitless;
            self.act_on(seen);
            // What questions that were taken back had room for is free.
            self.refresh_rooms();
            self.world.let_rests_end();
            self.world.align(self.now.mono);
            // Who waits for room looks at what came free meanwhile.
            if std::mem::take(&mut self.world.live.stirred) {
                self.world.deciding.brain_mut().wake_placeless();
            }
        }
        // What is left is decided with the next batch. Where rounds lead to rounds, that one has something else to begin with.
        let cut = share.is_used_up();
        self.world.live.cuts = if cut { self.world.live.cuts.saturating_add(1) } else { 0 };
        self.world.live.counts.cut_short += u64::from(cut);
        self.world.live.dirty = true;
    }

    /// Tells victims to stop, and stores why who waits does.
    fn act_on(&mut self, seen: Seen) {
        let roomless = seen.roomless();
        // Of each class what came last.
        let (mut told, mut grown): (BTreeSet<ClassId>, BTreeSet<Uid>) = Default::default();
        for looked in seen.heads.iter().rev() {
            let entry = match looked {
                Head::Looked(entry) => entry,
                Head::Passed(passed) => {
                    let class = self
                        .world
                        .deciding
                        .uid(passed.workload)
                        .and_then(|uid| self.workload(uid))
                        .map(|w| w.class);
                    if let Some((class, why)) = class
                        .filter(|class| told.insert(*class))
                        .zip(why_passed(self.world.deciding.brain(), passed))
                    {
                        self.world.live.hindrances.set(class, Some(why));
                    }
                    continue;
                }
            };
            let Some(uid) = self.world.deciding.uid(entry.workload) else { continue };
            if self.world.deciding.is_growth(entry.workload) {
                // Whether its cluster has the room was said when it was asked.
                if grown.insert(uid) && Seen::waits(entry) {
                    let why = self.world.growth_cluster(uid, self.now.mono).err();
                    let why = why.unwrap_or_else(|| why_not(self.world.deciding.brain(), entry));
                    self.world.live.growths.insert(uid, why);
                }
                continue;
            }
            let Some(class) = self.workload(uid).map(|w| w.class) else { continue };
            if !told.insert(class) {
                continue;
            }
            // What is short of a flavor keeps nobody who has the quota of another, and lacks a place there: clusters tell why.
            let short = matches!(entry.outcome, Outcome::NoFit | Outcome::NoCandidates);
            let waits = Seen::waits(entry) && !(short && roomless.contains(&entry.workload));
            let why = waits.then(|| why_not(self.world.deciding.brain(), entry));
            let why = why.filter(|_| !self.world.config.planted.has(Bug::ReasonForgotten));
            self.world.live.hindrances.set(class, why);
        }
        let mut victims = seen.victims;
        if victims.len() > 1 && self.world.config.planted.has(Bug::VictimSpared) {
            victims.pop();
        }
        for (victim, preemptor, right) in victims {
            if let (Some(victim), Some(preemptor)) =
                (self.world.deciding.uid(victim), self.world.deciding.uid(preemptor))
            {
                self.preempt(victim, Preempted { by: preemptor, right: right.word().to_owned() });
            }
        }
    }

    /// Takes quota back for another workload: a run is told to stop and keeps its room until it has; a question is taken back.
    fn preempt(&mut self, victim: Uid, preempted: Preempted) {
        let Some(right) = self.workload(victim).map(World::right) else { return };
        let fence = right.and_then(|(_, leg)| leg.fence);
        self.world.live.giving_way.displaced(victim, preempted.by, self.now.mono);
        match fence {
            Some(fence) => {
                self.order_stop_for(victim, fence, StopReason::Evicted, &Actor::system(), Some(preempted))
            }
            None => {
                let entry = Entry {
                    action: "preempt".into(),
                    subject: victim.to_string(),
                    cluster: None,
                    verdict: Some(Arc::from(preempted.right.as_str())),
                    rule: None,
                    detail: Some(format!("for {}", preempted.by)),
                };
                self.audit(Actor::system(), entry);
                // Others may have to stop first: until then it must not take again what it gave up (simulation seed 212).
                let until = self.now.mono + DISPLACED_REST;
                self.world.live.not_before.insert(victim, until);
                self.world.live.giving_way.rests(victim, preempted.by);
                self.withdraw_open_for(victim, Some(preempted));
            }
        }
    }

    /// Records what the brain decided and asks clusters; false where none could be asked, with a reason for each.
    pub(crate) fn dispatch(
        &mut self,
        uid: Uid,
        queue: &Arc<str>,
        flavors: Flavors,
        counts: Option<Vec<u32>>,
    ) -> bool {
        let Some(class) = self.workload(uid).map(|w| w.class) else { return false };
        let shape = self.world.queues.class(class).clone();
        let way = self.world.way_from(class, queue);
        let gang = counts
            .as_ref()
            .map_or_else(|| shape.gang.clone(), |counts| Arc::new(shape.gang.of_counts(counts)));
        let gang = self.world.with_flavors(&gang, &flavors);
        let mut chosen = self.candidates(uid, class, &gang, &way);
        if chosen.is_empty() {
            return false;
        }
        let able = chosen.len();
        let most = match way.policy.mode {
            DispatchMode::Direct | DispatchMode::Staged => 1,
            DispatchMode::Race => RACE_MAX,
        };
        for passed in chosen.split_off(most.min(chosen.len())) {
            let first = chosen[0].cluster.clone();
            self.note(class, &passed.cluster, Why::NotChosen { chosen: first });
        }
        self.record(Record::Reserved { uid, flavors, at: Some(self.now.wall), counts });
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let choice = Choice { able: count(able), asked: count(chosen.len()) };
        for score in chosen {
            self.offer(uid, score.cluster, &gang, choice);
        }
        true
    }

    fn offer(&mut self, uid: Uid, cluster: ClusterName, gang: &Arc<Gang>, choice: Choice) {
        let leadership = self.world.state.leadership;
        let offer = OfferId {
            epoch: leadership.epoch,
            leadership: leadership.id,
            counter: self.world.state.offers + 1,
        };
        let ledger = self.world.state.members[&cluster].ledger;
        self.record(Record::Offered { uid, offer, cluster: cluster.clone(), ledger, choice: Some(choice) });
        let number = self.say(&cluster, Said::Offer(uid, offer)).unwrap_or(0);
        if let Some(live) = self.world.live.clusters.get_mut(&cluster) {
            live.rooms.asked(offer, number, gang);
        }
    }

    fn candidates(&mut self, uid: Uid, class: ClassId, gang: &Gang, way: &Way) -> Vec<Score> {
        let mut reasons = BTreeMap::new();
        let mut scores = Vec::new();
        for site in &way.sites {
            let listed = site.listed.ok_or_else(|| way.not_listed()).map(drop);
            let judged = listed.and_then(|()| {
                self.note_verdict(class, &site.cluster, &site.verdict);
                site.verdict.clone().map_err(Why::Forbidden)
            });
            match judged.and_then(|()| self.world.judge_cluster((uid, self.now.mono), gang, way, site)) {
                Ok(score) => scores.push(score),
                Err(why) => {
                    reasons.insert(site.cluster.clone(), why);
                }
            }
        }
        self.world.live.hindrances.set_at_clusters(class, reasons, !scores.is_empty());
        scores.sort();
        scores
    }
}

impl World {
    /// Whether the last turn left something that the next is to decide at once.
    pub fn undecided(&self) -> bool {
        self.live.dirty && self.live.cuts > 0
    }

    /// Whether a cluster could start a gang now, and how good it is.
    pub(crate) fn judge_cluster(
        &self,
        (uid, now): (Uid, Mono),
        gang: &Gang,
        way: &Way,
        site: &Site,
    ) -> Result<Score, Why> {
        self.judge_readiness((uid, now), way, site)?;
        let cluster = &site.cluster;
        if site.capped {
            self.judge_caps(uid, &way.queue, gang, cluster)?;
        }
        let live = self.live.clusters.get(cluster).ok_or(Why::NotConnected)?;
        let fits = live.rooms.fits(gang);
        // What could not be even without a topology is said first.
        if matches!(fits, Ok(()) | Err(Misfit::NotEnoughRoom { fits_empty: true, .. })) {
            self.judge_domains(gang, cluster, Gone::All).map_err(Why::NoRoom)?;
        }
        let fits = fits.and_then(|()| self.judge_domains(gang, cluster, Gone::Nobody));
        let grows = fits.is_err() && live.rooms.could_grow(gang);
        if let (Err(misfit), false) = (fits, grows) {
            return Err(Why::NoRoom(misfit));
        }
        if !grows {
            self.judge_kept(uid, gang, cluster, live)?;
        }
        let fullness = gang
            .scarcest()
            .filter(|_| way.prefers_emptiest())
            .map_or(0, |r| live.rooms.free(r).saturating_mul(1_000) / live.rooms.capacity(r).max(1));
        let listed = site.listed.unwrap_or(usize::MAX);
        let (failed_starts, _) = self.failed_to_start(uid, cluster, now);
        Ok(Score {
            failed_starts,
            fails: live.fails(),
            must_grow: grows,
            fullness: Reverse(fullness),
            listed,
            cluster: cluster.clone(),
        })
    }

    /// Whether what is kept for others is left for them.
    pub(crate) fn judge_kept(
        &self,
        uid: Uid,
        gang: &Gang,
        cluster: &ClusterName,
        live: &LiveCluster,
    ) -> Result<(), Why> {
        if live.rooms.spares(gang) {
            return Ok(());
        }
        let kept = self.kept_room(cluster, uid);
        let Some(first) = kept.uids.first() else { return Ok(()) };
        let gone: Vec<Arc<Gang>> =
            kept.all_victims().iter().filter_map(|victim| self.gang_of(*victim)).collect();
        let breaks =
            live.rooms.leaves(gang, &gone, &kept.all_gangs()).then(|| self.breaks_into(uid, gang, cluster));
        let (first, starves) = match breaks {
            Some(None) => return Ok(()),
            Some(Some(other)) => (other, false),
            None => (*first, kept.gangs.is_empty()),
        };
        Err(Why::Kept { for_whom: self.name_of(first), starves })
    }

    /// Everything but the room.
    pub(crate) fn judge_readiness(
        &self,
        (uid, now): (Uid, Mono),
        way: &Way,
        Site { cluster, cordoned, .. }: &Site,
    ) -> Result<(), Why> {
        if cordoned.ok_or(Why::NotConnected)? {
            return Err(Why::Cordoned);
        }
        let live = self.live.clusters.get(cluster).ok_or(Why::NotConnected)?;
        if now.since(live.heard) >= meridian_shared::lease::silence(self.config.term_min) {
            return Err(Why::NotConnected);
        }
        if !live.inventoried {
            return Err(Why::Recovering);
        }
        if !self.state.members.get(cluster).is_some_and(|m| m.admitted) {
            return Err(Why::NotAdmitted);
        }
        if let Some(located) = self.located_elsewhere(cluster) {
            return Err(Why::Quarantined { located: located.to_string() });
        }
        if live.backed_off > now || self.failed_to_start(uid, cluster, now).1 {
            return Err(Why::BackedOff);
        }
        if !live.rooms.known() {
            return Err(Why::NoReport);
        }
        if way.policy.on_cluster_loss.requires == Supervision::Guarded && !live.rooms.guarded() {
            return Err(Why::NotGuarded);
        }
        if let Some((until, reason, text)) = self.live.refused.get(&(uid, cluster.clone()))
            && *until > now
        {
            return Err(Why::Refused { reason: *reason, text: text.clone() });
        }
        Ok(())
    }
}

impl Turn<'_> {
    /// Gives the right to run to the cluster whose hold came first.
    pub(crate) fn grant(&mut self, uid: Uid, offer: OfferId) {
        let Some(workload) = self.workload(uid) else { return };
        let Some(leg) = workload.legs.get(&offer) else { return };
        let (cluster, class, term, on_loss) =
            (leg.cluster.clone(), workload.class, workload.term, workload.on_loss);
        let shape = self.world.queues.class(class).clone();
        let allowed = residency::judge(
            &self.world.state.catalog,
            &shape,
            &cluster,
            self.world.config.residency_required,
        )
        .is_ok();
        let once = self.world.config.planted.has(Bug::ResidencyJudgedOnce);
        let closed = self.world.is_closed(uid, &cluster);
        if workload.phase != Phase::Dispatching
            || self.world.held_back(workload, self.now.mono)
            || closed
            || !(allowed || once)
        {
            if !allowed {
                self.audit(Actor::system(), Entry::denied("grant", uid, &cluster, None));
            }
            self.withdraw(uid, offer);
            self.after_leg(uid);
            return;
        }
        let leadership = self.world.state.leadership;
        let mut fence = Fence {
            epoch: leadership.epoch,
            leadership: leadership.id,
            counter: self.world.state.grants + 1,
        };
        if let Some(old) = workload.fence
            && self.world.config.planted.has(Bug::FenceReused)
        {
            fence = old;
        }
        self.record(Record::Granted { uid, offer, fence, at: self.now.wall });
        let entry = Entry {
            action: "grant".into(),
            subject: uid.to_string(),
            cluster: Some(cluster.to_string()),
            verdict: None,
            rule: None,
            detail: Some(fence.to_string()),
        };
        self.audit(Actor::system(), entry);
        self.world.live.counts.grants += 1;
        let others: Vec<OfferId> = self
            .workload(uid)
            .map(|w| w.legs.iter().filter(|(_, l)| l.state.open()).map(|(o, _)| *o).collect())
            .unwrap_or_default();
        for other in others {
            self.withdraw(uid, other);
        }
        let start_by = self.now.mono + self.world.start_timeout(&shape);
        self.lease(uid, fence, term, on_loss, start_by);
        self.say(&cluster, Said::Grant(uid, offer, fence));
    }

    pub(crate) fn lease(&mut self, uid: Uid, fence: Fence, term: Millis, on_loss: OnLoss, start_by: Mono) {
        let lease = Lease {
            uid,
            lease: self.manager_lease(term),
            composed: Some(self.now.mono),
            first: None,
            start_by,
        };
        let due = if on_loss == OnLoss::Fence { lease.lease.deadline.min(start_by) } else { start_by };
        self.world.live.leases.insert(fence, lease);
        self.world.live.due = self.world.live.due.min(due);
    }

    fn manager_lease(&self, term: Millis) -> ManagerLease {
        let mut lease = ManagerLease::from_composed(self.now.mono, term);
        if self.world.config.planted.has(Bug::NoDriftBound) {
            lease.deadline = self.now.mono + term;
        }
        lease
    }

    /// Takes one question back.
    pub(crate) fn withdraw(&mut self, uid: Uid, offer: OfferId) {
        let Some(leg) = self.workload(uid).and_then(|w| w.legs.get(&offer)) else { return };
        if !leg.state.open() {
            return;
        }
        let cluster = leg.cluster.clone();
        self.record(Record::Withdrawn { uid, offer });
        self.say(&cluster, Said::Withdraw(uid, offer));
        if let Some(live) = self.world.live.clusters.get_mut(&cluster) {
            live.rooms.over(offer);
        }
    }

    /// Takes every open question of a workload back, and its quota with them.
    pub(crate) fn withdraw_open(&mut self, uid: Uid) {
        self.withdraw_open_for(uid, None);
    }

    fn withdraw_open_for(&mut self, uid: Uid, preempted: Option<Preempted>) {
        let open: Vec<OfferId> = self
            .workload(uid)
            .map(|w| w.legs.iter().filter(|(_, l)| l.state.open()).map(|(o, _)| *o).collect())
            .unwrap_or_default();
        for offer in open {
            self.withdraw(uid, offer);
        }
        self.after_leg_for(uid, preempted);
    }

    /// Quota returns when no leg is left that could hold.
    pub(crate) fn after_leg(&mut self, uid: Uid) {
        self.after_leg_for(uid, None);
    }

    fn after_leg_for(&mut self, uid: Uid, preempted: Option<Preempted>) {
        let idle = self.workload(uid).is_some_and(|w| {
            matches!(w.phase, Phase::Dispatching | Phase::Reserved)
                && !w.legs.values().any(|l| l.state.open())
        });
        if idle {
            self.record(Record::Released { uid, preempted, at: Some(self.now.wall) });
            self.stir();
        }
    }

    /// Orders a stop. Everything is kept until it is confirmed or the lease has lapsed.
    pub(crate) fn order_stop(&mut self, uid: Uid, fence: Fence, reason: StopReason, by: &Actor) {
        self.order_stop_for(uid, fence, reason, by, None);
    }

    fn order_stop_for(
        &mut self,
        uid: Uid,
        fence: Fence,
        reason: StopReason,
        by: &Actor,
        preempted: Option<Preempted>,
    ) {
        let Some((_, leg)) = self.workload(uid).and_then(|w| w.leg_of(fence)) else { return };
        let cluster = leg.cluster.clone();
        if self.workload(uid).is_some_and(|w| matches!(w.phase, Phase::Granted | Phase::Running)) {
            let detail = match &preempted {
                Some(Preempted { by, right }) => format!("{reason:?}: {right}, for {by}"),
                None => format!("{reason:?}"),
            };
            self.record(Record::StopOrdered {
                uid,
                fence,
                reason,
                by: by.clone(),
                preempted,
                at: Some(self.now.wall),
            });
            let entry = Entry {
                action: "stop".into(),
                subject: uid.to_string(),
                cluster: Some(cluster.to_string()),
                verdict: None,
                rule: None,
                detail: Some(detail),
            };
            self.audit(by.clone(), entry);
        }
        self.say(&cluster, Said::Stop(uid, fence, reason));
    }
}

/// Whether pods of this gang may run on machines of this flavor: its labels must not contradict their selectors, and its
/// taints must be tolerated by the pods or by the flavor's own tolerations.
pub(crate) fn serves(catalog: &crate::catalog::Catalog, flavor: &str, gang: &Gang) -> bool {
    let Some(spec) = catalog.flavor(flavor) else { return false };
    gang.pod_sets.iter().all(|set| {
        let selector = set
            .node_selector
            .iter()
            .filter(|(k, _)| spec.node_labels.contains_key(*k))
            .all(|(k, v)| spec.node_labels.get(k) == Some(v));
        // Requirements on keys that the flavor doesn't speak of are left to the nodes.
        let term_fits = |term: &Vec<meridian_shared::gang::Requirement>| {
            term.iter()
                .filter(|r| spec.node_labels.contains_key(&r.key))
                .all(|r| r.matches(&spec.node_labels))
        };
        let affinity = set.affinity.is_empty() || set.affinity.iter().any(term_fits);
        let tolerated = spec.taints.iter().all(|t| {
            t.effect == TaintEffect::PreferNoSchedule
                || set.tolerations.iter().chain(&spec.tolerations).any(|tol| tol.covers(t))
        });
        selector && affinity && tolerated
    })
}

fn flavor_topology(
    catalog: &crate::catalog::Catalog,
    flavor: &str,
    spec: &ResourceFlavorSpec,
) -> Option<FlavorTopology> {
    let name = spec.topology_name.as_ref()?;
    let levels = catalog.topology(name)?.levels.clone();
    Some(FlavorTopology {
        flavor: flavor.to_owned(),
        name: name.clone(),
        levels,
        node_labels: spec.node_labels.clone(),
    })
}

/// A head as a cycle left it.
enum Head {
    /// It was looked at.
    Looked(Box<Looked>),
    /// It is known to wait on.
    Passed(Passed),
}

/// How much one turn decides: what it decided is carried out while the rest is decided.
///
/// Of heads that are looked at in vain it is twice as many in every turn that follows one which left something to be decided:
/// whatever wakes them all again in between, who comes last is looked at too.
struct Share {
    admitted: usize,
    in_vain: usize,
}

impl Share {
    fn of(heads_max: usize, cuts: u32) -> Self {
        Self { admitted: heads_max, in_vain: heads_max.saturating_mul(1 << cuts.min(CUTS_MAX)) }
    }

    fn take(&mut self, report: &Report) {
        let admitted = report.entries.iter().filter(|entry| entry.outcome == Outcome::Admitted).count();
        self.admitted = self.admitted.saturating_sub(admitted);
        self.in_vain = self.in_vain.saturating_sub(report.entries.len() - admitted);
    }

    fn is_used_up(&self) -> bool {
        self.admitted == 0 || self.in_vain == 0
    }
}

/// What cycles came to, kept until their brain is back in the world.
#[derive(Default)]
struct Seen {
    /// Cycles in which somebody was admitted.
    fruitful: u64,
    /// Cycles in which somebody was looked at in vain.
    fruitless: u64,
    /// In the order in which they were looked at.
    heads: Vec<Head>,
    victims: Vec<(WorkloadId, WorkloadId, Right)>,
}

impl Seen {
    /// Whether an entry waits for what the brain decides on.
    fn waits(entry: &Looked) -> bool {
        !matches!(entry.outcome, Outcome::Admitted | Outcome::NoPlace)
    }

    /// Who had the quota of some flavor, and no place.
    fn roomless(&self) -> BTreeSet<WorkloadId> {
        let looked = self
            .heads
            .iter()
            .filter_map(|head| if let Head::Looked(entry) = head { Some(entry) } else { None });
        looked.filter(|entry| entry.outcome == Outcome::NoPlace).map(|entry| entry.workload).collect()
    }

    fn note(&mut self, report: Report) {
        let admitted = report.entries.iter().any(|entry| entry.outcome == Outcome::Admitted);
        self.fruitful += u64::from(admitted);
        self.fruitless += u64::from(!admitted && !report.entries.is_empty());
        self.victims.extend(&report.preempted);
        self.heads.extend(report.passed.into_iter().map(Head::Passed));
        self.heads.extend(report.entries.into_iter().map(|entry| Head::Looked(Box::new(entry))));
    }
}

/// What is short of the first flavor and resource that is, and which others are too.
fn shortage(
    brain: &Brain,
    queue: QueueId,
    asks: impl Fn(ResourceId) -> i64,
    short: &[(FlavorId, ResourceId, Amount)],
) -> Option<Shortage> {
    let (flavor, resource, _) = *short.first()?;
    // Of several pod sets the last one asks for what is left by those before it.
    let missing = short
        .iter()
        .filter(|(f, r, _)| (*f, *r) == (flavor, resource))
        .map(|(.., missing)| *missing)
        .max()?;
    let setup = &brain.queue(queue).setup;
    let asks = asks(resource);
    let nominal = setup.quota((flavor, resource)).nominal.0;
    let used = brain.used(queue, (flavor, resource));
    let also: BTreeSet<ResourceId> =
        short.iter().map(|(_, other, _)| *other).filter(|other| *other != resource).collect();
    // Where more is used than there is quota for, so much more has to come free.
    let free = asks.saturating_sub(missing.0).min(brain.balance(queue, (flavor, resource)));
    // Of what it doesn't use itself others may have borrowed some.
    let own = nominal.saturating_sub(used).min(free).max(0);
    let mut also: Vec<String> =
        also.into_iter().map(|other| brain.resource_name(other).to_string()).collect();
    also.sort_unstable();
    Some(Shortage {
        flavor: brain.flavor_name(flavor).to_string(),
        resource: brain.resource_name(resource).to_string(),
        asks,
        free,
        nominal,
        own,
        lent: nominal.saturating_sub(used).max(0) - own,
        cohort: setup.cohort.as_ref().map(ToString::to_string),
        no_victims: true,
        raise_to: brain.nominal_for(queue, (flavor, resource), asks),
        also,
    })
}

/// The first obstacle of a head that wasn't admitted.
pub(crate) fn why_not(brain: &Brain, entry: &Looked) -> Why {
    match entry.outcome {
        Outcome::Preempting | Outcome::Deferred | Outcome::Migrating => {
            return Why::Preempts { victims: entry.targets.len() };
        }
        Outcome::Skipped => return Why::Overtaken,
        Outcome::GivesWay => return Why::GivesWay,
        _ => {}
    }
    let resource_name = |r| brain.resource_name(r).to_string();
    let reasons = || entry.assignment.reasons().map(|(_, reason)| reason);
    // What no group gives isn't waited for, whatever else there is too little of, and was looked at before.
    let setup = &brain.queue(entry.queue).setup;
    let asked = entry.assignment.pod_sets.iter().flat_map(|set| &set.requests);
    let uncovered = asked
        .filter(|(resource, amount)| *amount > 0 && setup.group_of(*resource).is_none())
        .map(|(resource, _)| resource_name(*resource))
        .min();
    if let Some(resource) =
        uncovered.filter(|_| entry.assignment.mode() == meridian_queueing::flavors::Mode::NoFit)
    {
        return Why::Quota(NoQuota::NotCovered { resource });
    }
    // A flavor of which it asks for more than there ever is isn't waited for, whatever else of it is short.
    let hopeless: BTreeSet<FlavorId> = reasons()
        .filter_map(
            |reason| if let Reason::ExceedsMax { flavor, .. } = reason { Some(*flavor) } else { None },
        )
        .collect();
    let short = reasons().filter_map(|reason| match reason {
        Reason::Short { flavor, resource, missing } if !hopeless.contains(flavor) => {
            Some((*flavor, *resource, *missing))
        }
        _ => None,
    });
    let asks = |resource| {
        entry
            .assignment
            .pod_sets
            .iter()
            .flat_map(|set| &set.requests)
            .filter(|(r, _)| *r == resource)
            .map(|(_, a)| *a)
            .sum::<i64>()
    };
    if let Some(mut shortage) = shortage(brain, entry.queue, asks, &short.collect::<Vec<_>>()) {
        shortage.no_victims = !matches!(entry.outcome, Outcome::Preempting);
        return Why::Quota(NoQuota::Used(Box::new(shortage)));
    }
    let exceeds = reasons().find_map(|reason| match reason {
        Reason::ExceedsMax { flavor, resource, asks, most, .. } => Some(NoQuota::ExceedsQuota {
            flavor: brain.flavor_name(*flavor).to_string(),
            resource: resource_name(*resource),
            asks: *asks,
            nominal: most.0,
            raise_to: brain.nominal_for(entry.queue, (*flavor, *resource), *asks),
        }),
        _ => None,
    });
    if let Some(why) = exceeds {
        return Why::Quota(why);
    }
    Why::Quota(NoQuota::NoMatchingFlavor {
        why: reasons().map(|reason| reason.text(brain)).collect::<Vec<_>>().join("; "),
    })
}

/// The first obstacle of a head that was passed by.
fn why_passed(brain: &Brain, passed: &Passed) -> Option<Why> {
    let shape = brain.shape_of(brain.workload(passed.workload)?.shape);
    let pods = brain.resource_id(PODS);
    let asks = |resource| {
        let of = |(at, set): (usize, &PodSet)| {
            let count = i64::from(shape.count(at));
            let each = if pods == Some(resource) { 1 } else { amount_of(&set.per_pod, resource) };
            each.saturating_mul(count)
        };
        shape.pod_sets.iter().enumerate().map(of).sum()
    };
    let shortage = shortage(brain, passed.queue, asks, &passed.short)?;
    Some(Why::Quota(NoQuota::Used(Box::new(shortage))))
}

impl World {
    /// The gang as it is asked for: with the labels and tolerations of its flavors, as Kueue injects them into the pods, and with
    /// the topology of their nodes where it asks for a place in one.
    pub(crate) fn with_flavors(&self, gang: &Arc<Gang>, flavors: &Flavors) -> Arc<Gang> {
        let catalog = &self.state.catalog;
        let chosen: BTreeSet<&Arc<str>> = flavors.values().collect();
        let specs: Vec<_> =
            chosen.into_iter().filter_map(|f| catalog.flavor(f).map(|spec| (f, spec))).collect();
        if specs.iter().all(|(_, s)| s.node_labels.is_empty() && s.tolerations.is_empty()) {
            return gang.clone();
        }
        let near = gang.wants_topology();
        let mut gang = (**gang).clone();
        for set in &mut gang.pod_sets {
            let seen = self.config.resources.seen(&set.per_pod);
            let mut topologies = Vec::new();
            for (flavor, spec) in &specs {
                let uses = seen.iter().any(|(r, a)| *a > 0 && flavors.get(r) == Some(*flavor));
                if uses {
                    for (label, value) in &spec.node_labels {
                        let other = set
                            .node_selector
                            .insert(label.clone(), value.clone())
                            .filter(|other| other != value);
                        // No node is of two flavors that contradict each other, nor of one that contradicts the pods.
                        if let Some(other) = other {
                            set.node_selector.insert(format!("{label}={other}"), value.clone());
                        }
                    }
                    set.tolerations.extend(spec.tolerations.clone());
                    topologies.extend(flavor_topology(catalog, flavor, spec).filter(|_| near));
                }
            }
            // Of two topologies none is the one that is meant, and the agent says so.
            set.within = topologies.pop().filter(|_| topologies.is_empty());
        }
        Arc::new(gang)
    }

    /// The gang of an offer as it is sent.
    pub(crate) fn asked_gang(&self, uid: Uid) -> Option<Arc<Gang>> {
        let workload = self.state.workloads.get(&uid)?;
        Some(self.with_flavors(&workload.gang(self.queues.class(workload.class)), &workload.flavors))
    }
}
