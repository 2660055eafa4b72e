//! Elastic jobs that run and want more pods: Kueue's workload slices, as one workload of which a second part waits.
//!
//! ```text
//! runs with 2, wants 4 ──in the queue: 2 more, there and of the same flavors──▶ Grows: 4 charged ──▶ the agent is told
//!          ▲                                                                                     │
//!          └── NotGrown: 2 charged again; it waits ◀── no room for both ─────────────────────────┤
//!   runs with 4 ◀── Grown ◀── both have a place, durably ────────────────────────────────────────┘
//! ```
//!
//! What it grows by is another entry of the queue, as old as the change of its job, that asks for exactly the pods that are
//! added. Until it is admitted, and while no room is found, the gang runs on as it is. The agent is told again by each inventory
//! that doesn't show the growth, and answers each growth once and for all: so what is given back can't be taken later.
//!
//! Invariants: quota is charged before the agent is told, and given back only after it said no; nobody grows who isn't running,
//! is told to shrink, or is growing already.

use crate::audit::Entry;
use crate::domains::Gone;
use crate::elastic::{Growing, Resized, Wants, counts_of};
use crate::explain::{Why, key_of};
use crate::input::Actor;
use crate::outbox::Said;
use crate::queues::NoQuota;
use crate::record::{Class, Record};
use crate::turn::Turn;
use crate::ways::Way;
use crate::workload::Phase;
use crate::{Workload, World};
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Fence, LedgerId, OfferId, RecordNumber, Uid};
use meridian_shared::packing::Misfit;
use meridian_shared::protocol::{Command, Growth, RefuseReason, Run, Size, StopReason, clean};
use meridian_shared::time::{Millis, Mono};
use std::sync::Arc;

/// Shortest wait after an agent said no for want of room: up to eight times as long, by the number of what was refused, so that
/// gangs that were refused together don't ask together again.
const REFUSED_FOR: Millis = Millis(500);
/// Shortest wait after it said no for another reason.
const UNABLE_FOR: Millis = Millis::mins(1);
/// The longest.
const REFUSED_FOR_MAX: Millis = Millis::mins(10);

/// So many pods at once, whatever has to succeed.
fn whole(pods: &[u32]) -> Size {
    Size { parallelism: pods.iter().sum(), completions: None }
}

impl Workload {
    /// Pods of each pod set that are to be added to the gang that runs, as things are.
    pub(crate) fn grows_by(&self, class: &Class) -> Option<Vec<u32>> {
        let resized =
            self.resized.as_deref().filter(|resized| resized.growing.is_none() && resized.wants.is_some())?;
        let settled = self.phase == Phase::Running
            && self.deletion.is_none()
            && self.inactive.is_none()
            && self.pods_too_many(class) == 0;
        let more: Vec<u32> = class
            .gang
            .pod_sets
            .iter()
            .zip(&resized.runs)
            .map(|(set, runs)| set.count.saturating_sub(*runs))
            .collect();
        (settled && more.iter().any(|more| *more > 0)).then_some(more)
    }

    /// By which record the larger size was asked for.
    pub(crate) fn grows_since(&self) -> RecordNumber {
        self.resized.as_ref().and_then(|resized| resized.wants).map_or(self.submitted, |wants| wants.asked)
    }

    /// What is under way, with the size before and after.
    pub(crate) fn growing(&self) -> Option<&Growing> {
        self.resized.as_ref()?.growing.as_ref()
    }

    /// Takes in how large the gang is that was taken over.
    pub(crate) fn resize_adopted(
        &mut self,
        wanted: &[u32],
        places: Vec<u32>,
        grown: Option<&Growth>,
        number: RecordNumber,
    ) {
        let before = self.resized.take();
        if before.is_none() && grown.is_none() && places == *self.counts.as_deref().unwrap_or(wanted) {
            return;
        }
        let known =
            before.as_ref().map_or(whole(wanted), |before| before.wants.map_or(before.size, |w| w.size));
        let asked = before.as_ref().and_then(|before| before.wants).map_or(number, |wants| wants.asked);
        let mut resized = before.unwrap_or_else(|| Box::new(Resized::of(places.clone())));
        resized.most.clone_from(&places);
        (resized.growing, resized.last) = (None, grown.map_or(RecordNumber(0), |grown| grown.number));
        resized.runs =
            grown.map_or_else(|| places.clone(), |grown| vec![grown.size.parallelism; places.len()]);
        resized.wants = Some(Wants { size: known, asked });
        resized.settle(wanted);
        (self.counts, self.resized) = (Some(places), Some(resized));
    }

    /// Quota is charged for more.
    pub(crate) fn absorb_grows(
        &mut self,
        places: Vec<u32>,
        (runs, size): (Vec<u32>, Size),
        before: Vec<u32>,
        number: RecordNumber,
    ) {
        let Some(resized) = self.resized.as_mut() else { return };
        resized.growing = Some(Growing { number, before, runs, size });
        (resized.most, resized.last) = (places.clone(), number);
        (self.counts, self.changed) = (Some(places), number);
    }

    /// Its agent has the room.
    pub(crate) fn absorb_grown(&mut self, wanted: &[u32], growth: &Growth, number: RecordNumber) {
        let mut resized = self.resized.take().unwrap_or_else(|| Box::new(Resized::of(growth.places.clone())));
        resized.wants.get_or_insert(Wants { size: whole(wanted), asked: number });
        (resized.growing, resized.last) = (None, growth.number);
        (resized.runs, resized.size) = (vec![growth.size.parallelism; growth.places.len()], growth.size);
        resized.most.clone_from(&growth.places);
        resized.settle(wanted);
        (self.counts, self.resized, self.changed) = (Some(growth.places.clone()), Some(resized), number);
    }

    /// Its agent goes on with what there is.
    pub(crate) fn absorb_not_grown(&mut self, wanted: &[u32], number: RecordNumber) {
        let Some(resized) = self.resized.as_mut() else { return };
        let Some(Growing { before, .. }) = resized.growing.take() else { return };
        resized.most.clone_from(&before);
        resized.settle(wanted);
        (self.counts, self.changed) = (Some(before), number);
    }
}

impl World {
    /// The pods that a gang is to grow by, with the flavors that it has.
    pub(crate) fn growth_gang(&self, uid: Uid) -> Option<Arc<Gang>> {
        let workload = self.state.workloads.get(&uid)?;
        let class = self.queues.class(workload.class);
        let gang = Arc::new(class.gang.of_counts(&workload.grows_by(class)?));
        Some(self.with_flavors(&gang, &workload.flavors))
    }

    /// The cluster of a gang that is to grow, or why it can't be asked now; room is another question.
    pub(crate) fn growth_cluster(&self, uid: Uid, now: Mono) -> Result<ClusterName, Why> {
        let workload = self.state.workloads.get(&uid).ok_or(Why::NotConnected)?;
        let (_, leg) = World::right(workload).ok_or(Why::NotConnected)?;
        let (cluster, class) = (&leg.cluster, self.queues.class(workload.class));
        let queue = self.state.catalog.route(&class.namespace, &class.queue).map_err(Why::Route)?;
        let way = Way::new(&self.state.catalog, class, &queue, self.config.residency_required);
        let site = way.sites.iter().find(|site| site.cluster == *cluster).ok_or(Why::NotConnected)?;
        site.listed.ok_or_else(|| way.not_listed())?;
        site.verdict.clone().map_err(Why::Forbidden)?;
        self.judge_readiness((uid, now), &way, site)?;
        if !self.live.clusters.get(cluster).is_some_and(|live| live.grows) {
            let text =
                "its agent is of an older version and can't let a gang go on with more pods".to_owned();
            return Err(Why::Refused { reason: RefuseReason::Unsupported, text });
        }
        Ok(cluster.clone())
    }

    /// Whether the cluster of a gang has room for what it is to grow by, beside what is kept there for others.
    fn judge_growth(&self, uid: Uid, gang: &Gang, now: Mono) -> Result<ClusterName, Why> {
        let cluster = self.growth_cluster(uid, now)?;
        let live = self.live.clusters.get(&cluster).ok_or(Why::NotConnected)?;
        if let Some(queue) = self.queues.charged_to(uid) {
            self.judge_caps(uid, queue, gang, &cluster)?;
        }
        live.rooms.fits(gang).map_err(Why::NoRoom)?;
        self.judge_kept(uid, gang, &cluster, live)?;
        Ok(cluster)
    }

    /// Why a gang that is to grow hasn't yet, in words, and what would help; with a time, what it would meet after that too.
    pub(crate) fn growth_in_words(
        &self,
        uid: Uid,
        workload: &Workload,
        now: Option<Mono>,
    ) -> Option<(String, String)> {
        let class = self.queues.class(workload.class);
        if let Some(Growing { runs, .. }) = workload.growing() {
            return Some((
                format!("it grows to {} pods: its agent is told", runs.iter().sum::<u32>()),
                String::new(),
            ));
        }
        let wants: u32 = counts_of(&class.gang).iter().sum();
        let resized = workload
            .resized
            .as_deref()
            .filter(|resized| resized.wants.is_some() && wants > resized.runs.iter().sum())?;
        let grows = format!("it waits to grow from {} to {wants} pods", resized.runs.iter().sum::<u32>());
        if workload.pods_too_many(class) > 0 {
            return Some((format!("{grows}: first those end that it was told to"), String::new()));
        }
        if workload.phase != Phase::Running {
            return Some((format!("{grows}: first all that it has must have started"), String::new()));
        }
        let held_back = [
            (self.state.recovery.is_some(), Why::RecoveryOpen),
            (self.state.rules_doubted.is_some(), Why::RulesDoubted),
        ];
        let before = held_back.into_iter().find(|(held_back, _)| *held_back).map(|(_, why)| why);
        let room = || self.judge_growth(uid, &*self.growth_gang(uid)?, now?).err();
        let help = |why: &Why| self.too_small_for(workload, why).unwrap_or_else(|| why.would_help());
        let lacks = || {
            self.live
                .growths
                .get(&uid)
                .map(|why| self.beyond_quota(uid, class, why).unwrap_or_else(|| why.clone()))
        };
        Some(match before.or_else(lacks) {
            // With its quota alone it would still wait.
            Some(why @ Why::Quota(_)) => match room() {
                Some(then) => {
                    let words =
                        format!("{grows}: first: {}; then, where it runs: {}", why.words(), then.words());
                    (words, format!("first: {}; then: {}", why.would_help(), help(&then)))
                }
                None => (format!("{grows}: {}", why.words()), why.would_help()),
            },
            Some(why) => (format!("{grows}: {}", why.words()), help(&why)),
            None => (format!("{grows}: it is looked at when its turn comes"), String::new()),
        })
    }

    /// That all of a gang, with what it is to grow by, is more than its queue could ever have: then it waits for nobody's end.
    fn beyond_quota(&self, uid: Uid, class: &Class, why: &Why) -> Option<Why> {
        let Why::Quota(quota @ NoQuota::Used(short)) = why else { return None };
        let brain = self.deciding.brain();
        let queue = brain.workload(self.deciding.growth(uid)?)?.queue;
        let (flavor, resource, more) = key_of(brain, quota)?;
        let asks = class.gang.total().get(&short.resource).copied().unwrap_or(0);
        let nominal = brain.most(queue, (flavor, resource));
        // Its quota is to have room for the rest beside what is used now.
        let raise_to = brain.nominal_for(queue, (flavor, resource), more);
        let exceeds = NoQuota::ExceedsQuota {
            flavor: short.flavor.clone(),
            resource: short.resource.clone(),
            asks,
            nominal,
            raise_to,
        };
        (asks > nominal).then_some(Why::Quota(exceeds))
    }

    /// What would help where all of a gang could never be where it runs, whoever ends there.
    fn too_small_for(&self, workload: &Workload, why: &Why) -> Option<String> {
        let (Why::NoRoom(_) | Why::Refused { reason: RefuseReason::NoRoom, .. }) = why else { return None };
        let cluster = &World::right(workload)?.1.cluster;
        let gang = self.with_flavors(&self.queues.class(workload.class).gang, &workload.flavors);
        match self.judge_domains(&gang, cluster, Gone::All) {
            Err(Misfit::NoDomain { level, .. }) => {
                return Some(self.larger_domains_in(cluster, &level, &gang));
            }
            Err(misfit) => return Some(Why::NoRoom(misfit).would_help()),
            Ok(()) => {}
        }
        match self.live.clusters.get(cluster)?.rooms.fits(&gang) {
            Err(misfit @ Misfit::NotEnoughRoom { fits_empty: false, .. }) => {
                Some(Why::NoRoom(misfit).would_help())
            }
            _ => None,
        }
    }
}

impl Turn<'_> {
    /// Charges what a gang grows by and tells its agent; false where there is no room for it, with the reason.
    pub(crate) fn grow(&mut self, uid: Uid) -> bool {
        let Some(gang) = self.world.growth_gang(uid) else { return false };
        let cluster = match self.world.judge_growth(uid, &gang, self.now.mono) {
            Ok(cluster) => cluster,
            Err(why) => {
                self.world.live.growths.insert(uid, why);
                return false;
            }
        };
        let Some(workload) = self.workload(uid) else { return false };
        let class = self.world.queues.class(workload.class);
        let (Some((offer, fence)), Some(resized)) = (
            World::right(workload).and_then(|(offer, leg)| Some((offer, leg.fence?))),
            workload.resized.as_deref(),
        ) else {
            return false;
        };
        let places: Vec<u32> = workload
            .given_gang(class)
            .pod_sets
            .iter()
            .zip(&gang.pod_sets)
            .map(|(has, more)| has.count + more.count)
            .collect();
        let runs: Vec<u32> =
            resized.runs.iter().zip(&gang.pod_sets).map(|(has, more)| has + more.count).collect();
        let size = resized.wants.map_or(resized.size, |wants| wants.size);
        let detail =
            format!("from {} to {} pods", resized.runs.iter().sum::<u32>(), runs.iter().sum::<u32>());
        self.record(Record::Grows { uid, fence, places, runs, size, at: self.now.wall });
        let entry = Entry {
            action: "grow".into(),
            subject: uid.to_string(),
            cluster: Some(cluster.to_string()),
            verdict: None,
            rule: None,
            detail: Some(detail),
        };
        self.audit(Actor::system(), entry);
        self.world.live.growths.remove(&uid);
        let number = self.say_grow(&cluster, uid, fence).unwrap_or(0);
        if let Some(live) = self.world.live.clusters.get_mut(&cluster) {
            live.rooms.asked(offer, number, &gang);
        }
        true
    }

    /// Tells an agent what a gang of it grows by, if it is to know.
    fn say_grow(&mut self, cluster: &ClusterName, uid: Uid, fence: Fence) -> Option<u64> {
        let number = self.workload(uid)?.growing()?.number;
        self.world.live.clusters.get(cluster).filter(|live| live.grows)?;
        self.say(cluster, Said::Grow(uid, fence, number))
    }

    /// Where it is out of date, or the cluster may not know it any more, something is said in its place that changes nothing.
    pub(crate) fn render_grow(
        &self,
        cluster: &ClusterName,
        uid: Uid,
        fence: Fence,
        number: RecordNumber,
    ) -> Command {
        let workload = self.workload(uid);
        let Some((offer, leg)) = workload.and_then(|w| w.leg_of(fence)) else {
            return Command::Stop { uid, fence, reason: StopReason::Superseded };
        };
        let workload = workload
            .filter(|w| matches!(w.phase, Phase::Granted | Phase::Running) && self.may_know(uid, cluster));
        match workload
            .and_then(|w| Some((w.growing().filter(|growing| growing.number == number)?, w.counts.clone()?)))
        {
            Some((growing, places)) => {
                let mut growth = Growth { number, places, size: growing.size, mac: None };
                growth.mac = Some(
                    self.world.config.receipt_key.sign(&growth.message(cluster, leg.ledger, uid, fence)),
                );
                Command::Grow { uid, fence, growth: Box::new(growth) }
            }
            // What was granted isn't withdrawn.
            None => Command::Withdraw { offer, uid },
        }
    }

    /// The agent has room for all that a gang grows by.
    pub(crate) fn on_grown(&mut self, cluster: &ClusterName, uid: Uid, fence: Fence, number: RecordNumber) {
        if self.own_leg(cluster, uid, fence).is_none_or(|leg| leg.fence != Some(fence)) {
            return;
        }
        let Some((growing, places)) =
            self.workload(uid).and_then(|w| Some((w.growing()?, w.counts.clone()?)))
        else {
            return;
        };
        if growing.number == number {
            let growth = Growth { number, places, size: growing.size, mac: None };
            self.take_growth(cluster, uid, fence, growth);
        }
    }

    fn take_growth(&mut self, cluster: &ClusterName, uid: Uid, fence: Fence, growth: Growth) {
        self.record(Record::Grown {
            uid,
            fence,
            growth: Box::new(Growth { mac: None, ..growth }),
            at: self.now.wall,
        });
        self.shrink(cluster, uid, fence);
        self.stir();
    }

    /// The agent has no room for it: what was charged goes back, and it waits.
    pub(crate) fn on_not_grown(
        &mut self,
        cluster: &ClusterName,
        (uid, fence): (Uid, Fence),
        number: RecordNumber,
        (reason, text): (RefuseReason, &str),
    ) {
        let Some(offer) = self
            .own_leg(cluster, uid, fence)
            .filter(|leg| leg.fence == Some(fence))
            .and_then(|_| self.offer_of(uid, fence))
        else {
            return;
        };
        if self.workload(uid).and_then(Workload::growing).is_none_or(|growing| growing.number != number) {
            return;
        }
        let text = clean(text);
        self.record(Record::NotGrown { uid, fence, reason, text: text.clone(), at: self.now.wall });
        if let Some(live) = self.world.live.clusters.get_mut(cluster) {
            live.rooms.over(offer);
        }
        let base = if matches!(reason, RefuseReason::NoRoom | RefuseReason::StillRuns) {
            REFUSED_FOR
        } else {
            UNABLE_FOR
        };
        let tried = u32::try_from(number.0 % 4).unwrap_or(0);
        let until = self.now.mono + meridian_shared::backoff::wait(base, REFUSED_FOR_MAX, tried, number.0);
        self.world.live.refused.insert((uid, cluster.clone()), (until, reason, text));
        self.shrink(cluster, uid, fence);
        self.stir();
    }

    pub(crate) fn offer_of(&self, uid: Uid, fence: Fence) -> Option<OfferId> {
        self.workload(uid)?.leg_of(fence).map(|(offer, _)| offer)
    }

    /// What an inventory shows of a run's growth: the one that it was told, one that this journal doesn't know, as a copy from
    /// before, or not yet any.
    pub(crate) fn heed_growth(&mut self, cluster: &ClusterName, run: &Run) {
        let (uid, fence) = (run.uid, run.fence);
        let Some(workload) = self.workload(uid).filter(|w| w.phase.granted()) else { return };
        let last = workload.resized.as_ref().map_or(RecordNumber(0), |resized| resized.last);
        let (growing, sets) = (
            workload.growing().map(|growing| growing.number),
            self.world.queues.class(workload.class).gang.pod_sets.len(),
        );
        match run.grown.as_deref() {
            Some(grown) if growing == Some(grown.number) => self.on_grown(cluster, uid, fence, grown.number),
            Some(grown) if grown.number > last && grown.places.len() == sets => {
                self.take_growth(cluster, uid, fence, grown.clone())
            }
            _ => drop(self.say_grow(cluster, uid, fence)),
        }
    }

    /// A run as it may be believed: a growth counts with our own code only.
    pub(crate) fn believed(&self, cluster: &ClusterName, ledger: LedgerId, run: &Run) -> Run {
        let key = &self.world.config.receipt_key;
        let coded = |grown: &Growth| {
            grown
                .mac
                .as_ref()
                .is_some_and(|mac| key.verify(&grown.message(cluster, ledger, run.uid, run.fence), mac))
        };
        Run { grown: run.grown.clone().filter(|grown| coded(grown)), ..run.clone() }
    }
}
