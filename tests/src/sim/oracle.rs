//! The judge: sees everything, and says which promise was broken.
//!
//! It keeps its own books and never asks a core what is allowed: lease arithmetic, residency, quota and the rules of
//! recovery are written here a second time, from the protocol's text.

use meridian_manager_core::facts::record::{LeadershipFact, MemberFact, ObjectFact, WorkloadFact};
use super::books::{Books, Recount};
use super::clock::HostClock;
use super::nearness::Near;
use super::residency;
use super::runner::Behaviour;
use meridian_manager_core::World;
use meridian_manager_core::facts::actor::Actor;
use meridian_manager_core::facts::key::Key;
use meridian_manager_core::facts::outcome::Outcome;
use meridian_manager_core::facts::record::Record;
use meridian_manager_core::facts::submission::RecoveryStart;
use meridian_manager_core::state::State;
use meridian_manager_core::state::workload::Workload;
use meridian_objects::{Kind, applied};
use meridian_shared::ids::{ClusterName, Fence, Leadership, LedgerId, RecordNumber, Session, Uid};
use meridian_shared::protocol::{Command, End, EndResult, OnLoss, Receipt, Run, SyncResponse};
use meridian_shared::time::{Millis, Mono};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// How often one workload may displace another while nothing comes from outside: a cluster may say no in between.
const DISPLACED_MAX: u32 = 2;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which.
    pub invariant: &'static str,
    /// What was seen.
    pub words: String,
}

/// Result of a check.
pub type Verdict = Result<(), Broken>;

pub(super) fn broken(invariant: &'static str, words: impl Into<String>) -> Verdict {
    Err(Broken { invariant, words: words.into() })
}

/// A job as the simulation knows it.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its queue.
    pub queue: String,
    /// Pods.
    pub pods: usize,
    /// Fewest pods that do, where fewer do.
    pub least: Option<usize>,
    /// How many it was ever to have, where that may change.
    pub sizes: Vec<usize>,
    /// Accelerators of one pod.
    pub gpus: i64,
    /// What it does once it runs.
    pub(super) behaviour: Behaviour,
    /// Its lease term.
    pub term: Millis,
    /// What the loss of its cluster means.
    pub on_loss: OnLoss,
    /// Its priority.
    pub priority: i64,
    /// How near to each other its pods want to be.
    pub near: Option<Near>,
    /// For how many seconds its pods tolerate the taint of a node, each time that it says so.
    pub tolerates: Vec<Option<i64>>,
}

impl Job {
    /// Accelerators of the fewest pods that do.
    pub fn least_total(&self) -> i64 {
        i64::try_from(self.least.unwrap_or(self.pods)).unwrap_or(i64::MAX).saturating_mul(self.gpus)
    }

    /// Accelerators of so many pods, or of all.
    pub fn total_of(&self, counts: Option<&Vec<u32>>) -> i64 {
        counts.map_or_else(
            || self.total(),
            |counts| i64::from(counts.iter().sum::<u32>()).saturating_mul(self.gpus),
        )
    }

    /// Accelerators of what was given, less the pods that have left.
    pub fn total_left(&self, counts: Option<&Vec<u32>>, spare: Option<&Vec<u32>>) -> i64 {
        let left = spare.map_or(0, |spare| i64::from(spare.iter().sum::<u32>()));
        self.total_of(counts).saturating_sub(left.saturating_mul(self.gpus))
    }

    /// Accelerators of all its pods.
    pub fn total(&self) -> i64 {
        i64::try_from(self.pods).unwrap_or(i64::MAX).saturating_mul(self.gpus)
    }
}

/// What a submission was answered with.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    delete_asked: bool,
    delete_acknowledged: bool,
}

/// What one manager was seen to do with one lease.
#[derive(Clone, Copy, Debug)]
struct Composed {
    leadership: Leadership,
    at: Mono,
    /// When the manager may call it lapsed, in true time.
    lapses: u64,
}

/// What was true of a world before an input.
#[derive(Clone, Debug)]
pub struct Before {
    /// Who led.
    pub leadership: Leadership,
    recovery: Option<RecoveryStart>,
    led_since: RecordNumber,
    ledgers: BTreeMap<ClusterName, LedgerId>,
    inactive: BTreeSet<Uid>,
    cordoned: BTreeSet<ClusterName>,
    books: Books,
}

impl Before {
    /// Of this world.
    pub fn of(world: &World) -> Self {
        let state = &world.state;
        Self {
            leadership: state.leadership,
            recovery: state.recovery.clone(),
            led_since: state.led_since,
            ledgers: state.members.iter().map(|(c, m)| (c.clone(), m.ledger)).collect(),
            inactive: state
                .workloads
                .iter()
                .filter(|(_, w)| w.inactive.is_some())
                .map(|(uid, _)| *uid)
                .collect(),
            cordoned: cordoned(world),
            books: Books::of(world),
        }
    }
}

/// Clusters that take nothing new.
fn cordoned(world: &World) -> BTreeSet<ClusterName> {
    world.state.catalog.clusters().filter(|(_, spec)| spec.cordoned).map(|(name, _)| name).collect()
}

/// One input's outcome, with everything that the judge needs to know of its circumstances.
#[derive(Debug)]
pub struct Act<'a> {
    /// Which manager.
    pub manager: usize,
    /// By its clock.
    pub now: Mono,
    /// Before.
    pub before: &'a Before,
    /// After.
    pub world: &'a World,
    /// What it said.
    pub outcome: &'a Outcome,
}

/// The judge's books.
#[derive(Debug, Default)]
pub struct Oracle {
    /// What each place may be believed to have, if anything bounds it.
    pub limits: [Option<i64>; super::people::PLACES.len()],
    /// Every job that was ever submitted.
    pub jobs: BTreeMap<Uid, Job>,
    acknowledged: BTreeMap<Uid, Known>,
    /// Jobs whose deletion was ever sent: whether they are there proves nothing.
    unwanted: BTreeSet<Uid>,
    /// The largest fence ever granted, per uid.
    fences: BTreeMap<Uid, Fence>,
    /// Those that only a history knew that is gone.
    gone: BTreeSet<(Uid, Fence)>,
    /// When each leadership began, by its manager's clock.
    led: BTreeMap<Leadership, Mono>,
    /// From which another one it goes on.
    from: BTreeMap<Leadership, Leadership>,
    composed: BTreeMap<Fence, Composed>,
    /// The newest complete inventory that was delivered to a leadership.
    inventories: BTreeMap<(Leadership, ClusterName), (Session, u64)>,
    /// Clusters whose present ledger was declared lost to a leadership.
    lost: BTreeSet<(Leadership, ClusterName)>,
    /// Ends of attempts that nothing may undo: confirmed, refused or lapsed.
    over: BTreeMap<(Uid, Fence), &'static str>,
    /// Workloads whose cluster a person declared lost: the one exception to P2.
    exempt: BTreeSet<Uid>,
    adopted: bool,
    /// Which names of members the agents of each cluster ever made durable.
    named: BTreeSet<(ClusterName, ClusterName)>,
    /// Fair sharing is on.
    fair: bool,
    /// How often one displaced another since anything came from outside.
    displaced: BTreeMap<(Uid, Uid), u32>,
    /// Places that an attempt was given at most, where it was given more than at first.
    places: BTreeMap<(Uid, Fence), u32>,
    /// So many pods of an attempt have left where an honest runner saw it.
    pub left: BTreeMap<(Uid, Fence), usize>,
    /// Jobs that succeeded where an honest runner saw it.
    pub succeeded: BTreeSet<Uid>,
}

impl Oracle {
    /// Empty books.
    pub fn new(fair: bool, limits: [Option<i64>; super::people::PLACES.len()]) -> Self {
        Self { fair, limits, ..Self::default() }
    }

    /// A submission was answered.
    pub fn acknowledged(&mut self, uid: Uid) {
        self.acknowledged.entry(uid).or_default();
    }

    /// A deletion was sent.
    pub fn delete_asked(&mut self, uid: Uid) {
        self.acknowledged.entry(uid).or_default().delete_asked = true;
        self.unwanted.insert(uid);
    }

    /// Whether its submitter ever wanted it gone.
    pub fn is_unwanted(&self, uid: Uid) -> bool {
        self.unwanted.contains(&uid)
    }

    /// A deletion was answered.
    pub fn delete_acknowledged(&mut self, uid: Uid) {
        self.acknowledged.entry(uid).or_default().delete_acknowledged = true;
    }

    /// Answered jobs that nobody asked to delete.
    pub fn wanted(&self) -> Vec<Uid> {
        self.acknowledged.iter().filter(|(_, k)| !k.delete_asked).map(|(u, _)| *u).collect()
    }

    /// An older copy of the journal took over: what it doesn't know was promised by a history that is gone.
    pub fn history_is_gone(&mut self, world: Option<&World>) {
        let of = |fence: &Fence, leadership: &Leadership| {
            (fence.epoch, fence.leadership) == (leadership.epoch, leadership.id)
        };
        let led = |fence: &Fence| {
            world.is_some_and(|w| w.state.ranges.iter().any(|(leadership, ..)| of(fence, leadership)))
        };
        self.gone
            .extend(self.fences.iter().filter(|(_, fence)| !led(fence)).map(|(uid, fence)| (*uid, *fence)));
        self.acknowledged.retain(|uid, known| {
            known.delete_acknowledged = false;
            known.delete_asked &= world.is_some();
            world.is_some_and(|w| w.state.workloads.contains_key(uid))
        });
    }

    /// Whether it was ever granted, in whatever history.
    pub fn was_granted(&self, uid: Uid) -> bool {
        self.fences.contains_key(&uid)
    }

    /// A person declared these workloads' cluster lost.
    pub fn exempt(&mut self, uid: Uid) {
        self.exempt.insert(uid);
    }

    /// P1: everything that was answered is remembered.
    pub fn check_memory(&self, world: &World, rules: &BTreeMap<Key, Option<Value>>) -> Verdict {
        for (uid, known) in &self.acknowledged {
            match world.state.workloads.get(uid) {
                None if !self.unwanted.contains(uid) => {
                    return broken("P1", format!("{uid} was acknowledged and is gone"));
                }
                Some(w) if known.delete_acknowledged && w.deletion.is_none() => {
                    return broken("P1", format!("the deletion of {uid} was acknowledged and is forgotten"));
                }
                _ => {}
            }
        }
        for (key, value) in rules {
            let Some(value) = value else { continue };
            // What was applied is noted besides.
            let stored = world.state.catalog.get(key).map(|stored| {
                let mut object = (*stored.object).clone();
                applied::forget(&mut object);
                object.stored
            });
            if stored.as_ref() != Some(value) && key.kind != Kind::Cluster {
                return broken("P1", format!("{key} was acknowledged and is something else now"));
            }
        }
        Ok(())
    }

    /// A leadership begins, or goes on from another one, whose process read back what is durable.
    pub fn leads(&mut self, leadership: Leadership, now: Mono, from: Option<Leadership>) {
        self.led.insert(leadership, now);
        self.from.extend(from.map(|from| (leadership, from)));
    }

    /// A leadership and those that it goes on from.
    fn chain(&self, leadership: Leadership) -> impl Iterator<Item = Leadership> + '_ {
        std::iter::successors(Some(leadership), |of| self.from.get(of).copied())
    }

    /// A complete inventory reached a leadership. Whether it is newer than those before: what an older one shows, which was overtaken,
    /// may be over (seed 1795410394743018).
    pub fn inventory(&mut self, leadership: Leadership, cluster: &ClusterName, sent: (Session, u64)) -> bool {
        let newest = self.inventories.entry((leadership, cluster.clone())).or_insert(sent);
        *newest = sent.max(*newest);
        *newest == sent
    }

    /// A receipt became durable with an agent of this cluster.
    pub fn remembers(&mut self, cluster: &ClusterName, stored: &str) {
        let (_, members): (Receipt, Vec<ClusterName>) =
            serde_json::from_str(stored).expect("the agent's own types");
        self.named.extend(members.into_iter().map(|member| (cluster.clone(), member)));
    }

    /// Who joins gets work only once another member would remember it, should the journal be lost.
    fn judge_admitted(&self, cluster: &ClusterName, by: &Actor) -> Verdict {
        match by.0.strip_prefix("agent:") {
            Some(other) if !self.named.contains(&(other.into(), cluster.clone())) => broken(
                "members",
                format!("`{cluster}` is admitted by `{other}`, whose agent never stored its name"),
            ),
            _ => Ok(()),
        }
    }

    /// Judges one input's outcome. `alive` tells whether an honest machine runs an attempt right now.
    pub fn judge(&mut self, act: &Act<'_>, alive: &dyn Fn(Uid, Fence) -> bool) -> Verdict {
        act.world.check().or_else(|words| broken("World::check", words))?;
        let declared = act.outcome.records.iter().any(|(_, r)| matches!(r, Record::Member { fact: MemberFact::DeclaredLost { .. }, .. }));
        self.judge_quota(act)?;
        judge_activity(act)?;
        for (_, record) in &act.outcome.records {
            match record {
                Record::Leadership(LeadershipFact::Started { leadership, recovery, foreign, .. }) => {
                    let copy = recovery.as_ref().is_some_and(|r| r.restored || r.members_unknown);
                    if copy && foreign.is_empty() && act.world.state.rules_doubted.is_none() {
                        return broken(
                            "rules",
                            format!(
                                "{leadership} leads a copy, and takes its policies and quotas for today's"
                            ),
                        );
                    }
                    self.leads(*leadership, act.now, None);
                }
                Record::Member { cluster, fact: MemberFact::DeclaredLost { ledger, .. } } => {
                    if act.before.ledgers.get(cluster) == Some(ledger) {
                        self.lost.insert((act.before.leadership, cluster.clone()));
                    }
                }
                Record::Member { cluster, fact: MemberFact::Admitted { by } } => self.judge_admitted(cluster, by)?,
                Record::Workload { uid, fact: WorkloadFact::PodsReclaimed { fence, pods } } => self.judge_reclaimed(act, *uid, *fence, pods)?,
                Record::Workload { uid, fact: WorkloadFact::Granted { fence, .. } } => self.judge_grant(act, *uid, *fence)?,
                Record::Workload { uid, fact: WorkloadFact::ScaleUpStarted { fence, places, .. } } => {
                    let most = self.places.entry((*uid, *fence)).or_default();
                    *most = places.iter().sum::<u32>().max(*most);
                    if let Some(cluster) = act
                        .world
                        .state
                        .workloads
                        .get(uid)
                        .and_then(|w| w.leg_of(*fence))
                        .map(|(_, leg)| leg.cluster.clone())
                    {
                        self.judge_limit(act, *uid, &cluster)?;
                    }
                    self.judge_in_recovery(act, *uid, "made larger")?;
                }
                Record::Workload { uid, fact: WorkloadFact::Offered { .. } } if act.world.state.rules_doubted.is_some() => {
                    return broken("rules", format!("{uid} is offered while rules are in doubt"));
                }
                Record::Workload { uid, fact: WorkloadFact::Offered { cluster, .. } } => {
                    self.judge_limit(act, *uid, cluster)?;
                    self.judge_in_recovery(act, *uid, "offered")?;
                }
                Record::Workload { uid, fact: WorkloadFact::LeaseLapsed { fence, .. } } => {
                    if !declared {
                        self.judge_lapse(act, *uid, *fence)?;
                    }
                    self.freed(*uid, *fence, "lapsed", alive)?;
                }
                Record::Workload { uid, fact: WorkloadFact::Ended { fence, .. } } => self.freed(*uid, *fence, "ended", alive)?,
                Record::Workload { uid, fact: WorkloadFact::GrantRefused { fence, .. } } => self.freed(*uid, *fence, "refused", alive)?,
                Record::Leadership(LeadershipFact::RecoveryClosed { by }) if &*by.0 == "system" => self.judge_closing(act)?,
                Record::Workload { fact: WorkloadFact::Adopted { .. }, .. } => self.adopted = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// P3, P4 and P7: quota as the records move it, and who is displaced.
    fn judge_quota(&mut self, act: &Act<'_>) -> Verdict {
        let mut recount = Recount::new(&act.before.books, &self.jobs, self.fair);
        for (_, record) in &act.outcome.records {
            recount.record(record)?;
        }
        recount.judge_end(act.world)?;
        let pairs = recount.pairs();
        if act.outcome.records.iter().any(|(_, r)| from_outside(r)) {
            self.displaced.clear();
        }
        for pair in pairs {
            let often = self.displaced.entry(pair).or_insert(0);
            *often += 1;
            if *often > DISPLACED_MAX {
                return broken(
                    "P7",
                    format!(
                        "{} displaces {} for the {often}th time, and nothing else has happened",
                        pair.0, pair.1
                    ),
                );
            }
        }
        Ok(())
    }

    /// P4: whoever is asked for room, those who were asked and those who have it stay within what is declared of the cluster.
    fn judge_limit(&self, act: &Act<'_>, uid: Uid, cluster: &ClusterName) -> Verdict {
        let Some(limit) = super::people::PLACES
            .iter()
            .position(|place| place.0 == cluster.as_str())
            .and_then(|place| self.limits[place])
        else {
            return Ok(());
        };
        let there = |w: &Workload| {
            w.legs.values().any(|leg| leg.cluster == *cluster && (leg.state.open() || leg.state.granted()))
        };
        let has = |(uid, w): (&Uid, &Workload)| {
            let Some(job) = self.jobs.get(uid).filter(|_| there(w)) else { return 0 };
            let class = act.world.queues.class(w.class);
            let wanted = class.elastic.then(|| class.gang.pod_sets.iter().map(|set| set.count).collect());
            job.total_left(w.counts.clone().or(wanted).as_ref(), w.spare.as_ref())
        };
        let used: i64 = act.world.state.workloads.iter().map(has).sum();
        if used > limit {
            return broken(
                "P4",
                format!(
                    "{uid} is asked of `{cluster}`, which may have {limit}, and {used} are asked of it or granted there"
                ),
            );
        }
        Ok(())
    }

    /// Quota comes back only of pods that are really gone, as far as honest machines go.
    fn judge_reclaimed(&self, act: &Act<'_>, uid: Uid, fence: Fence, pods: &[u32]) -> Verdict {
        let cluster = act
            .world
            .state
            .workloads
            .get(&uid)
            .and_then(|w| w.leg_of(fence))
            .map(|(_, leg)| leg.cluster.as_str().to_owned());
        let (said, left) =
            (pods.iter().sum::<u32>() as usize, self.left.get(&(uid, fence)).copied().unwrap_or(0));
        if said > left
            && cluster.as_deref().is_some_and(|name| name != super::people::PLACES[super::people::LIAR].0)
        {
            return broken(
                "P3",
                format!("quota of {said} pods of {uid} under {fence} is given back, and {left} have left"),
            );
        }
        Ok(())
    }

    fn judge_grant(&mut self, act: &Act<'_>, uid: Uid, fence: Fence) -> Verdict {
        let leadership = act.world.state.leadership;
        if (fence.epoch, fence.leadership) != (leadership.epoch, leadership.id) {
            return broken("fence", format!("{uid} is granted under {fence} by {leadership}"));
        }
        // What only a history that is gone knew, and an agent whose store is gone with it, nobody can be told any more.
        let knows = |known: &Fence| {
            act.world
                .state
                .workloads
                .get(&uid)
                .is_some_and(|w| w.history.iter().any(|stay| stay.fence == *known))
        };
        if let Some(known) = self.fences.insert(uid, fence)
            && known >= fence
            && (knows(&known) || !self.gone.contains(&(uid, known)))
        {
            return broken("fence", format!("{uid} is granted under {fence} after {known}"));
        }
        let leg = act.world.state.workloads.get(&uid).and_then(|w| w.leg_of(fence));
        if leg.is_some_and(|(_, leg)| {
            act.before.cordoned.contains(&leg.cluster) && cordoned(act.world).contains(&leg.cluster)
        }) {
            return broken("cordon", format!("{uid} is granted to a cluster that takes nothing new"));
        }
        self.judge_in_recovery(act, uid, "granted")
    }

    /// While recovery is open nothing is offered or granted for an older uid, unless its own term has passed.
    fn judge_in_recovery(&self, act: &Act<'_>, uid: Uid, what: &str) -> Verdict {
        let (Some(recovery), Some(w)) = (&act.world.state.recovery, act.world.state.workloads.get(&uid))
        else {
            return Ok(());
        };
        let old = w.submitted < act.world.state.led_since;
        if act.before.recovery.is_some() && old && !self.released(act, recovery, w) {
            return broken(
                "recovery",
                format!("{uid} is older than the leadership and is {what} while recovery is open"),
            );
        }
        Ok(())
    }

    fn released(&self, act: &Act<'_>, recovery: &RecoveryStart, w: &Workload) -> bool {
        !recovery.restored
            && w.on_loss == OnLoss::Fence
            && self.full_term_passed(act.world.state.leadership, act.now, w.term)
    }

    fn full_term_passed(&self, leadership: Leadership, now: Mono, term: Millis) -> bool {
        self.led.get(&leadership).is_some_and(|led| now.0 >= led.0 + with_drift(term))
    }

    /// A lease lapses only after its term and the drift bound, counted from the last answer that carried it and from the
    /// start of the leadership.
    fn judge_lapse(&self, act: &Act<'_>, uid: Uid, fence: Fence) -> Verdict {
        let Some(job) = self.jobs.get(&uid) else { return Ok(()) };
        if job.on_loss == OnLoss::Wait {
            return broken("lapse", format!("{uid} waits for its cluster, and {fence} lapsed"));
        }
        let chain: Vec<Leadership> = self.chain(act.before.leadership).collect();
        let led = chain.last().and_then(|first| self.led.get(first)).copied().unwrap_or(Mono(0));
        let composed = self
            .composed
            .get(&fence)
            .filter(|c| chain.contains(&c.leadership))
            .map_or(led, |c| c.at.max(led));
        let until = composed.0 + with_drift(job.term);
        if act.now.0 < until {
            return broken(
                "lapse",
                format!(
                    "{fence} of {uid} lapses at {} by the manager's clock, {} ms early",
                    act.now.0,
                    until - act.now.0
                ),
            );
        }
        Ok(())
    }

    /// After this record the manager may go on: nothing of the attempt may be alive.
    fn freed(
        &mut self,
        uid: Uid,
        fence: Fence,
        how: &'static str,
        alive: &dyn Fn(Uid, Fence) -> bool,
    ) -> Verdict {
        self.over.insert((uid, fence), how);
        if alive(uid, fence) && !self.exempt.contains(&uid) {
            return broken(
                "freed while running",
                format!("{fence} of {uid} is {how} at the manager, and its pods are there"),
            );
        }
        Ok(())
    }

    /// Recovery closes by itself only when everybody has shown everything, or when the terms have passed.
    fn judge_closing(&self, act: &Act<'_>) -> Verdict {
        let leadership = act.world.state.leadership;
        let Some(recovery) = act.before.recovery.clone().or_else(|| led_with(act.outcome)) else {
            return Ok(());
        };
        let shown = |cluster: &ClusterName| {
            self.inventories.contains_key(&(leadership, cluster.clone()))
                || self.lost.contains(&(leadership, cluster.clone()))
        };
        let missing: Vec<&ClusterName> = act.before.ledgers.keys().filter(|m| !shown(m)).collect();
        let old = || {
            act.world
                .state
                .workloads
                .values()
                .filter(|w| w.submitted < act.before.led_since && w.finished.is_none())
        };
        let waited = !recovery.restored
            && old().all(|w| self.released(act, &recovery, w))
            && self.full_term_passed(leadership, act.now, act.world.config.term);
        if (recovery.members_unknown || !missing.is_empty()) && !waited {
            return broken(
                "recovery",
                format!("it closes although {missing:?} have not shown what they run ({recovery:?})"),
            );
        }
        Ok(())
    }

    /// An answer was composed: its leases count from now, and nothing in it may reach a forbidden cluster.
    pub(super) fn composes(
        &mut self,
        clock: &HostClock,
        now: Mono,
        world: &World,
        cluster: &ClusterName,
        answer: &SyncResponse,
    ) -> Verdict {
        let leadership = answer.leadership;
        let (jobs, composed) = (&self.jobs, &mut self.composed);
        let mut note = |uid: Uid, fence: Fence| {
            let term = jobs.get(&uid).map_or(Millis(0), |j| j.term);
            composed.insert(
                fence,
                Composed { leadership, at: now, lapses: clock.when(Mono(now.0 + with_drift(term))) },
            );
        };
        answer.renewals.iter().for_each(|(uid, fence)| note(*uid, *fence));
        for command in &answer.commands {
            match command {
                Command::Offer(offer) => judge_place(world, offer.uid, cluster, "an offer")?,
                Command::Grant(grant) => {
                    note(grant.uid, grant.fence);
                    judge_place(world, grant.uid, cluster, "a grant")?;
                    if (grant.fence.epoch, grant.fence.leadership) != (leadership.epoch, leadership.id) {
                        return broken(
                            "recovery",
                            format!("{leadership} sends the grant {} again", grant.fence),
                        );
                    }
                }
                Command::Shrink { uid, .. } | Command::Grow { uid, .. } => {
                    judge_place(world, *uid, cluster, "a size")?
                }
                Command::Rank { uid, .. } => judge_place(world, *uid, cluster, "a priority")?,
                Command::Withdraw { .. } | Command::Stop { .. } => {}
            }
        }
        Ok(())
    }

    /// When, in true time, the newest answer with this lease lets its manager call it lapsed.
    pub fn manager_lapse(&self, fence: Fence) -> Option<u64> {
        self.composed.get(&fence).map(|c| c.lapses)
    }

    /// A reported run of a known uid becomes its leg in the transaction that records the report, or is stopped. A job that
    /// was shown to be over by its own doing doesn't start again.
    pub fn reported(&self, world: &World, cluster: &ClusterName, runs: &[Run], ends: &[End]) -> Verdict {
        if world.live.clusters.get(cluster).is_none_or(|l| !l.inventoried) {
            return Ok(());
        }
        for run in runs {
            let Some(w) =
                world.state.workloads.get(&run.uid).filter(|w| w.finished.is_none() && w.deletion.is_none())
            else {
                continue;
            };
            if w.fence.is_none_or(|known| run.fence >= known)
                && w.leg_of(run.fence).is_none()
                && !self.over.contains_key(&(run.uid, run.fence))
            {
                return broken(
                    "adoption",
                    format!(
                        "`{cluster}` reports {} of {}, and it is no leg: {:?}",
                        run.fence, run.uid, w.legs
                    ),
                );
            }
        }
        for end in ends.iter().filter(|e| matches!(e.result, EndResult::Succeeded | EndResult::Failed { .. }))
        {
            let Some(w) = world
                .state
                .workloads
                .get(&end.uid)
                .filter(|w| w.deletion.is_none() && w.fence <= Some(end.fence))
            else {
                continue;
            };
            if w.finished.is_none() && w.learned.is_none() {
                return broken(
                    "end",
                    format!(
                        "`{cluster}` reports how {} ended under {}, and it is {:?}",
                        end.uid, end.fence, w.phase
                    ),
                );
            }
        }
        Ok(())
    }

    /// A runner starts an attempt.
    pub fn starts(&self, uid: Uid, fence: Fence, pods: usize) -> Verdict {
        if let Some(how) = self.over.get(&(uid, fence)) {
            return broken("P2", format!("{fence} of {uid} starts after it {how}"));
        }
        if let Some(job) = self.jobs.get(&uid)
            && !job.may_have(pods)
        {
            return broken("P3", format!("{uid} starts with {pods} of {} pods", job.pods));
        }
        Ok(())
    }

    /// A runner makes an attempt larger, to so many places of which so many are in use.
    pub fn grows(&self, uid: Uid, fence: Fence, places: usize, pods: usize) -> Verdict {
        if let Some(how) = self.over.get(&(uid, fence)) {
            return broken("P2", format!("{fence} of {uid} grows after it {how}"));
        }
        let granted = self.places.get(&(uid, fence)).copied().unwrap_or(0);
        if places > granted as usize || !self.jobs.get(&uid).is_none_or(|job| job.may_have(pods)) {
            return broken(
                "P3",
                format!(
                    "{fence} of {uid} grows to {places} places for {pods} pods, and {granted} were granted"
                ),
            );
        }
        Ok(())
    }

    /// Whether a person took the word of P2 for this workload.
    pub fn is_exempt(&self, uid: Uid) -> bool {
        self.exempt.contains(&uid)
    }

    /// After faults healed: what has not ended, but for those that may rest.
    pub fn unfinished(&self, world: &World, may_rest: &dyn Fn(Uid) -> bool) -> Vec<String> {
        let why = |uid: &Uid| {
            world
                .explain(*uid, meridian_shared::time::Now::default())
                .map(|w| w.to_string())
                .unwrap_or_default()
        };
        let open = |(uid, w): (&Uid, &Workload)| {
            (w.finished.is_none() && !may_rest(*uid))
                .then(|| format!("{uid} ({}) is {:?}, {:?}, because {}", w.name, w.phase, w.legs, why(uid)))
        };
        world.state.workloads.iter().filter_map(open).collect()
    }
}

fn led_with(outcome: &Outcome) -> Option<RecoveryStart> {
    outcome.records.iter().find_map(|(_, r)| match r {
        Record::Leadership(LeadershipFact::Started { recovery, .. }) => recovery.clone(),
        _ => None,
    })
}

/// A term and its drift bound: 0.1 % and one second.
fn with_drift(term: Millis) -> u64 {
    term.0 + term.0.div_ceil(1_000) + 1_000
}

fn judge_place(world: &World, uid: Uid, cluster: &ClusterName, what: &str) -> Verdict {
    match residency::verdict(world, uid, cluster) {
        Ok(()) => Ok(()),
        Err(rule) => broken("P5", format!("{what} for {uid} goes to `{cluster}`, which {rule} forbids")),
    }
}

/// Who was taken out of the queue is given nothing and asked about nowhere; where something of it runs, that is being stopped.
fn judge_activity(act: &Act<'_>) -> Verdict {
    let mut inactive = act.before.inactive.clone();
    for (_, record) in &act.outcome.records {
        match record {
            Record::Workload { uid, fact: WorkloadFact::Deactivated { .. } } => {
                inactive.insert(*uid);
            }
            Record::Workload { uid, fact: WorkloadFact::Activated { .. } } | Record::Workload { uid, fact: WorkloadFact::Forgotten } => {
                inactive.remove(uid);
            }
            Record::Workload { uid, fact: WorkloadFact::QuotaReserved { .. } } | Record::Workload { uid, fact: WorkloadFact::Offered { .. } } | Record::Workload { uid, fact: WorkloadFact::Granted { .. } }
                if inactive.contains(uid) =>
            {
                return broken("activity", format!("{uid} is deactivated, and there is {record:?}"));
            }
            _ => {}
        }
    }
    let goes_on = |uid: &&Uid| {
        act.world.state.workloads.get(uid).is_some_and(|w| w.phase.charged() && w.stopping.is_none())
    };
    match inactive.iter().find(goes_on) {
        Some(uid) => {
            broken("activity", format!("{uid} is deactivated, holds quota, and nothing was told to stop"))
        }
        None => Ok(()),
    }
}

/// Whether a record brings something new, so that what was decided may be decided otherwise.
fn from_outside(record: &Record) -> bool {
    match record {
        Record::Workload { fact: WorkloadFact::Ended { result, .. }, .. } => !matches!(result, EndResult::Stopped),
        Record::Leadership(LeadershipFact::Started { .. })
        | Record::Leadership(LeadershipFact::RecoveryClosed { .. })
        | Record::Leadership(LeadershipFact::RulesDoubted { .. })
        | Record::Leadership(LeadershipFact::RulesConfirmed { .. })
        | Record::Object { fact: ObjectFact::Applied { .. }, .. }
        | Record::Object { fact: ObjectFact::Removed { .. }, .. }
        | Record::Member { fact: MemberFact::SessionOpened { .. }, .. }
        | Record::Member { fact: MemberFact::Admitted { .. }, .. }
        | Record::Workload { fact: WorkloadFact::Submitted(_), .. }
        | Record::Workload { fact: WorkloadFact::Adopted { .. }, .. }
        | Record::Workload { fact: WorkloadFact::LeaseLapsed { .. }, .. }
        | Record::Workload { fact: WorkloadFact::GrantRefused { .. }, .. }
        | Record::Member { fact: MemberFact::DeclaredLost { .. }, .. }
        | Record::Workload { fact: WorkloadFact::DeletionRequested { .. }, .. }
        | Record::Workload { fact: WorkloadFact::Deactivated { .. }, .. }
        | Record::Workload { fact: WorkloadFact::Activated { .. }, .. }
        | Record::Workload { fact: WorkloadFact::PodsReclaimed { .. }, .. }
        | Record::Workload { fact: WorkloadFact::PodsFailed { .. }, .. }
        | Record::Workload { fact: WorkloadFact::Resized { .. }, .. }
        | Record::Workload { fact: WorkloadFact::PriorityChanged { .. }, .. }
        | Record::Workload { fact: WorkloadFact::Finished { .. }, .. }
        | Record::Workload { fact: WorkloadFact::Forgotten, .. } => true,
        _ => false,
    }
}

/// The durable part of two worlds must agree.
pub fn same_state(what: &str, one: &State, two: &State) -> Verdict {
    if one == two {
        return Ok(());
    }
    let (a, b) = (format!("{one:#?}"), format!("{two:#?}"));
    let (a, b): (Vec<&str>, Vec<&str>) = (a.lines().collect(), b.lines().collect());
    let at = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let around = |lines: &[&str]| {
        lines.iter().skip(at.saturating_sub(4)).take(6).map(|l| l.trim()).collect::<Vec<_>>().join(" ")
    };
    broken("replay", format!("{what}: `{}` against `{}`", around(&a), around(&b)))
}
