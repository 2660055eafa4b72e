//! A hostile agent. Its messages may harm only its own cluster.
//!
//! A hostile agent claims capacity that it hasn't, holds offers without capacity, reports other clusters'
//! workloads with invented fences, ends them, follows invented leaderships, sends absurd numbers, floods, and
//! repeats itself. It also stalls: it stops sending, or keeps sending and never reports what happened to its
//! offers.

use crate::sim::hosts::agent::Stall;
use crate::sim::random::Random;
use crate::sim::world::Simulation;
use meridian_manager_core::World;
use meridian_manager_core::state::workload::Workload;
use meridian_shared::ids::{
    ClusterName, ContentHash, Fence, Leadership, LedgerId, OfferId, RecordNumber, Uid,
};
use meridian_shared::packing::Block;
use meridian_shared::placement::{PlacedDomain, PlacedPodSet, Placement};
use meridian_shared::protocol::{
    Digest, End, EndResult, Event, Inventory, OnLoss, PodReport, RefuseReason, Run, ScaleUp, Size,
    SyncRequest,
};
use meridian_shared::time::Millis;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Events in one request that repeat the same report.
const REPEATED: u32 = 900;
/// Events in one request that flood the manager.
const FLOOD: u64 = 1_000;
/// One request in this number begins a stall.
const REQUESTS_PER_STALL: u64 = 30;

impl Stall {
    fn until(self) -> u64 {
        match self {
            Self::NoRequests(until) | Self::NoEvents(until) => until,
        }
    }
}

/// The workload that a hostile message is about.
#[derive(Clone, Copy)]
struct Target {
    uid: Uid,
    fence: Fence,
    offer: OfferId,
}

impl Simulation {
    /// Changes one request; false if it isn't sent at all.
    pub(crate) fn tamper(&mut self, a: usize, request: &mut SyncRequest) -> bool {
        match self.current_stall(a) {
            Some(Stall::NoRequests(_)) => return false,
            Some(Stall::NoEvents(_)) => request.events.clear(),
            None => self.forge(a, request),
        }
        true
    }

    /// The stall that is under way, or one that begins now.
    fn current_stall(&mut self, a: usize) -> Option<Stall> {
        let random = &mut self.cx.random.hostile;
        let known = self.agents[a].stall.filter(|stall| stall.until() > self.cx.now);
        let stall = if known.is_none() && random.below(REQUESTS_PER_STALL) == 0 {
            self.cx.counters.one("stalls");
            let until = self.cx.now + random.between(1_000, 20_000);
            Some(if random.permille(500) { Stall::NoRequests(until) } else { Stall::NoEvents(until) })
        } else {
            known
        };
        self.agents[a].stall = stall;
        stall
    }

    fn forge(&mut self, a: usize, request: &mut SyncRequest) {
        self.cx.counters.one("hostile messages");
        let target = self.choose_target();
        let random = &mut self.cx.random.hostile;
        match random.below(20) {
            choice @ (0..=4 | 13) => forge_events(choice, target, random, request),
            5 if target.uid.0.is_multiple_of(2) => {
                let world = self.managers.iter().find_map(|m| m.world());
                request.events.push(forged_scale_up_answer(world, target));
            }
            choice @ (5..=7 | 9..=12 | 14 | 15 | 18) => forge_fields(choice, target, random, request),
            8 => request.spare.push(PodReport {
                uid: target.uid,
                fence: target.fence,
                pods: BTreeMap::from([("main".to_owned(), u32::MAX)]),
                failures: u32::try_from(random.below(9)).unwrap_or(9),
                completed: meridian_shared::indexes::Indexes::default(),
            }),
            16 | 17 => repeat_report(
                self.managers.iter().find_map(|m| m.world()),
                &self.agents[a].cluster,
                u32::from(random.permille(500)),
                request,
            ),
            _ => {}
        }
        let last = request.events_from.saturating_add(request.events.len() as u64).saturating_sub(1);
        request.events_last = request.events_last.max(last);
    }

    /// Any workload. A real agent could only guess uids and fences. This agent knows them, the worst case.
    fn choose_target(&mut self) -> Target {
        let uids: Vec<Uid> = self.invariants.jobs.keys().copied().collect();
        let random = &mut self.cx.random.hostile;
        let uid = random.pick(&uids).copied().unwrap_or(Uid(7));
        let real = self
            .managers
            .iter()
            .filter_map(|m| m.world())
            .find_map(|w| w.state().workloads().get(&uid))
            .and_then(|w| w.fence());
        let absurd = Fence { epoch: u64::MAX - 1, leadership: 1, counter: 1 };
        let next = real.map(|f| Fence { counter: f.counter + 1, ..f }).unwrap_or(absurd);
        let fence = *random.pick(&[real.unwrap_or(absurd), next, absurd]).expect("not empty");
        let offer = OfferId { epoch: fence.epoch, leadership: fence.leadership, counter: random.below(50) };
        Target { uid, fence, offer }
    }
}

/// Adds events about a workload of another cluster.
fn forge_events(choice: u64, target: Target, random: &mut Random, request: &mut SyncRequest) {
    let Target { uid, fence, offer } = target;
    let end = |result, pod_failures, ran| {
        Event::Ended(End {
            uid,
            fence,
            result,
            pod_failures,
            ran,
            completed: meridian_shared::indexes::Indexes::default(),
            proof: None,
        })
    };
    match choice {
        0 => request.events.push(end(EndResult::Succeeded, u32::MAX, Millis(u64::MAX))),
        1 => request.events.push(end(EndResult::Stopped, 0, Millis(0))),
        2 => request.events.push(Event::Held { offer, uid }),
        3 => request.events.push(Event::Running { uid, fence, placement: absurd_placement(random) }),
        4 => request.events.push(Event::Accepted { uid, fence, placement: absurd_placement(random) }),
        _ => request.events.extend((0..FLOOD).map(|counter| Event::Gone {
            offer: OfferId { counter, ..offer },
            uid,
            expired: true,
        })),
    }
}

/// Changes the other fields of a request.
fn forge_fields(choice: u64, target: Target, random: &mut Random, request: &mut SyncRequest) {
    let empty = |request: &SyncRequest| Inventory { for_leadership: request.follows, ..Inventory::default() };
    match choice {
        5 => request.follows = Some(Leadership { epoch: u64::MAX, id: random.bits() }),
        6 => {
            let run = absurd_run(target, random);
            let inventory = empty(request);
            request.inventory.get_or_insert(inventory).runs.push(run);
        }
        7 => request.inventory = Some(empty(request)),
        9 => request.events_from = u64::MAX,
        10 => (request.answered, request.commands_through) = (u64::MAX, u64::MAX),
        11 => {
            if let Some(capacity) = &mut request.capacity {
                for block in &mut capacity.blocks {
                    block.nodes = u32::MAX;
                    block.free.values_mut().for_each(|v| *v = i64::MAX);
                    block.capacity.values_mut().for_each(|v| *v = i64::MAX);
                }
                capacity.blocks.push(Block { nodes: 3, ..Block::default() });
            }
        }
        12 => request.transmission = 0,
        14 => request.session.counter = u64::MAX,
        15 => request.digest = Digest(random.bits()),
        _ => request.ledger = LedgerId(random.wide()),
    }
}

/// An answer to a scale-up; it names the real one, if there was one.
fn forged_scale_up_answer(world: Option<&World>, target: Target) -> Event {
    let Target { uid, fence, .. } = target;
    let number = world
        .and_then(|w| w.state().workloads().get(&uid)?.resized())
        .map_or(RecordNumber(1), |resized| resized.last);
    if number.0.is_multiple_of(2) {
        Event::ScaledUp { uid, fence, number }
    } else {
        let text = "\u{7}".repeat(9);
        Event::ScaleUpRefused { uid, fence, number, reason: RefuseReason::NoCapacity, text }
    }
}

/// A run with the largest numbers that the types allow.
fn absurd_run(target: Target, random: &mut Random) -> Run {
    let scale_up = ScaleUp {
        number: RecordNumber(u64::MAX),
        places: vec![u32::MAX],
        size: Size { parallelism: u32::MAX, completions: None },
        mac: None,
    };
    Run {
        uid: target.uid,
        fence: target.fence,
        offer: target.offer,
        attempt: u32::MAX,
        running: true,
        stopping: random.permille(500),
        term: Millis(u64::MAX),
        on_loss: OnLoss::Wait,
        spec: ContentHash(0),
        mac: None,
        placement: absurd_placement(random),
        spare: BTreeMap::from([("main".to_owned(), u32::MAX)]),
        job: None,
        scale_up: Some(Box::new(scale_up)),
        priority: Some(i64::MIN),
    }
}

/// Repeats one report about an offer or a grant of this cluster; with `rising`, it differs a little each
/// time.
fn repeat_report(world: Option<&World>, cluster: &ClusterName, rising: u32, request: &mut SyncRequest) {
    let own = |(uid, w): (&Uid, &Workload)| {
        w.legs()
            .iter()
            .find(|(_, leg)| *leg.cluster() == *cluster)
            .map(|(offer, leg)| (*uid, *offer, leg.clone()))
    };
    let Some((world, live)) = world.and_then(|world| Some((world, world.live().cluster(cluster)?))) else {
        return;
    };
    let Some((uid, offer, leg)) = world.state().workloads().iter().find_map(own) else { return };
    let report = |n: u32| match (leg.fence(), leg.placement()) {
        (Some(fence), Some(placement)) => {
            let revision = placement.revision.saturating_add(n * rising);
            let placement = Placement { revision, ..(**placement).clone() };
            Event::Running { uid, fence, placement: Some(Arc::new(placement)) }
        }
        _ => {
            let estimate = Some(Millis(u64::from(n * rising)));
            Event::Waiting { offer, uid, reason: "not yet".into(), estimate }
        }
    };
    // Events of this flood are numbered after the events that the manager accepted from earlier floods.
    request.events_from = live.events_through() + 1;
    request.events = (0..REPEATED).map(report).collect();
}

/// A placement where no pod of any gang is.
fn absurd_placement(random: &mut Random) -> Option<Arc<Placement>> {
    let domain =
        PlacedDomain { values: vec!["\u{1b}[2Jelsewhere".into(); 40], pods: u32::MAX, kind: u32::MAX };
    let pod_set = PlacedPodSet {
        name: "main".into(),
        domains: vec![domain; 3],
        more_domains: u32::MAX,
        more_pods: u32::MAX,
        ..PlacedPodSet::default()
    };
    random.permille(500).then(|| {
        Arc::new(Placement { revision: u32::MAX, pod_sets: vec![pod_set; 50], ..Placement::default() })
    })
}
