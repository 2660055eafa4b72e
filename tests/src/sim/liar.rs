//! An agent that lies: it may harm only itself.
//!
//! It claims room that it hasn't, holds without room, reports other clusters' workloads with fences of its own making,
//! ends what isn't its, follows leaderships that never were, sends absurd numbers, floods, says again and again what is known,
//! and stalls: it falls silent while it is asked, or goes on to talk and never says what became of what it was asked.

use super::Sim;
use super::chance::Chance;
use meridian_manager_core::World;
use meridian_manager_core::state::workload::Workload;
use meridian_shared::ids::{ClusterName, Fence, Leadership, LedgerId, OfferId, RecordNumber, Uid};
use meridian_shared::packing::Block;
use meridian_shared::placement::{PlacedDomain, PlacedPodSet, Placement};
use meridian_shared::protocol::{
    Digest, End, EndResult, Event, Growth, Inventory, OnLoss, RefuseReason, Run, Size, Spare, SyncRequest,
};
use meridian_shared::time::Millis;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A growth that nobody gave it.
fn absurd_growth() -> Growth {
    Growth {
        number: RecordNumber(u64::MAX),
        places: vec![u32::MAX],
        size: Size { parallelism: u32::MAX, completions: None },
        mac: None,
    }
}

/// How often it says one thing in one request.
const REPEATED: u32 = 900;
/// Of so many requests one begins a stall.
const STALLS: u64 = 30;

/// How it keeps others waiting, and until when.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stall {
    /// It sends nothing.
    Silent(u64),
    /// It sends everything but what happened.
    Mute(u64),
}

impl Stall {
    fn until(self) -> u64 {
        match self {
            Self::Silent(until) | Self::Mute(until) => until,
        }
    }
}

impl Sim {
    /// Bends one request; false where it is kept back.
    pub(super) fn lie(&mut self, a: usize, request: &mut SyncRequest) -> bool {
        match self.stall(a) {
            Some(Stall::Silent(_)) => return false,
            Some(Stall::Mute(_)) => request.events.clear(),
            None => self.bend(a, request),
        }
        true
    }

    /// The stall that is under way, or begins.
    fn stall(&mut self, a: usize) -> Option<Stall> {
        let known = self.agents[a].stall.filter(|stall| stall.until() > self.now);
        let begins = known.is_none() && self.chance.liar.below(STALLS) == 0;
        let stall = if begins {
            self.counters.one("stalls");
            let until = self.now + self.chance.liar.between(1_000, 20_000);
            Some(if self.chance.liar.of_1000(500) { Stall::Silent(until) } else { Stall::Mute(until) })
        } else {
            known
        };
        self.agents[a].stall = stall;
        stall
    }

    fn bend(&mut self, a: usize, request: &mut SyncRequest) {
        self.counters.one("lies");
        // What it says of others it could only guess: here it guesses right, which is the worst.
        let uids: Vec<Uid> = self.oracle.jobs.keys().copied().collect();
        let chance = &mut self.chance.liar;
        let uid = chance.pick(&uids).copied().unwrap_or(Uid(7));
        let real = self
            .managers
            .iter()
            .filter_map(|m| m.world.as_ref())
            .find_map(|w| w.state.workloads.get(&uid))
            .and_then(|w| w.fence);
        let absurd = Fence { epoch: u64::MAX - 1, leadership: 1, counter: 1 };
        let near = real.map(|f| Fence { counter: f.counter + 1, ..f }).unwrap_or(absurd);
        let fence = *chance.pick(&[real.unwrap_or(absurd), near, absurd]).expect("not empty");
        let offer = OfferId { epoch: fence.epoch, leadership: fence.leadership, counter: chance.below(50) };
        match chance.below(20) {
            0 => request.events.push(Event::Ended(End {
                uid,
                fence,
                result: EndResult::Succeeded,
                pod_failures: u32::MAX,
                ran: Millis(u64::MAX),
                proof: None,
            })),
            1 => request.events.push(Event::Ended(End {
                uid,
                fence,
                result: EndResult::Stopped,
                pod_failures: 0,
                ran: Millis(0),
                proof: None,
            })),
            2 => request.events.push(Event::Held { offer, uid }),
            3 => request.events.push(Event::Running { uid, fence, placement: absurd_placement(chance) }),
            4 => request.events.push(Event::Accepted { uid, fence, placement: absurd_placement(chance) }),
            // It knows the growth that it was told, if it was.
            5 if uid.0.is_multiple_of(2) => {
                let world = self.managers.iter().find_map(|m| m.world.as_ref());
                let number = world
                    .and_then(|w| w.state.workloads.get(&uid)?.resized.as_ref())
                    .map_or(RecordNumber(1), |resized| resized.last);
                let text = "\u{7}".repeat(9);
                let no = Event::NotGrown { uid, fence, number, reason: RefuseReason::NoRoom, text };
                request.events.push(if number.0.is_multiple_of(2) {
                    Event::Grown { uid, fence, number }
                } else {
                    no
                });
            }
            5 => request.follows = Some(Leadership { epoch: u64::MAX, id: chance.bits() }),
            6 => {
                let run = Run {
                    uid,
                    fence,
                    offer,
                    attempt: u32::MAX,
                    running: true,
                    stopping: chance.of_1000(500),
                    term: Millis(u64::MAX),
                    on_loss: OnLoss::Wait,
                    spec: meridian_shared::ids::ContentHash(0),
                    mac: None,
                    placement: absurd_placement(chance),
                    spare: BTreeMap::from([("main".to_owned(), u32::MAX)]),
                    grown: Some(Box::new(absurd_growth())),
                    priority: Some(i64::MIN),
                };
                let inventory = request.inventory.get_or_insert_with(|| Inventory {
                    for_leadership: request.follows,
                    ..Inventory::default()
                });
                inventory.runs.push(run);
            }
            7 => {
                request.inventory =
                    Some(Inventory { for_leadership: request.follows, ..Inventory::default() })
            }
            8 => request.spare.push(Spare {
                uid,
                fence,
                pods: BTreeMap::from([("main".to_owned(), u32::MAX)]),
                failures: u32::try_from(chance.below(9)).unwrap_or(9),
            }),
            15 => request.digest = Digest(chance.bits()),
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
            13 => request.events.extend((0..1_000).map(|i| Event::Gone {
                offer: OfferId { counter: i, ..offer },
                uid,
                expired: true,
            })),
            14 => request.session.counter = u64::MAX,
            18 => request.ledger = LedgerId(chance.wide()),
            16 | 17 => say_again(
                self.managers.iter().find_map(|m| m.world.as_ref()),
                &self.agents[a].cluster,
                u32::from(chance.of_1000(500)),
                request,
            ),
            _ => {}
        }
        let last = request.events_from.saturating_add(request.events.len() as u64).saturating_sub(1);
        request.events_last = request.events_last.max(last);
    }
}

/// The same word of what it was asked or granted, or another one each time.
fn say_again(world: Option<&World>, cluster: &ClusterName, rising: u32, request: &mut SyncRequest) {
    let own = |(uid, w): (&Uid, &Workload)| {
        w.legs.iter().find(|(_, leg)| leg.cluster == *cluster).map(|(offer, leg)| (*uid, *offer, leg.clone()))
    };
    let Some((world, live)) = world.and_then(|world| Some((world, world.live.clusters.get(cluster)?))) else {
        return;
    };
    let Some((uid, offer, leg)) = world.state.workloads.iter().find_map(own) else { return };
    let say = |n: u32| match (leg.fence, &leg.placement) {
        (Some(fence), Some(placement)) => {
            let placement = Placement {
                revision: placement.revision.saturating_add(n * rising),
                ..(**placement).clone()
            };
            Event::Running { uid, fence, placement: Some(Arc::new(placement)) }
        }
        _ => Event::Waiting {
            offer,
            uid,
            reason: "not yet".into(),
            estimate: Some(Millis(u64::from(n * rising))),
        },
    };
    // Behind what it flooded before: it was told how far that was taken.
    request.events_from = live.events_through + 1;
    request.events = (0..REPEATED).map(say).collect();
}

/// Where no pod of any gang is.
fn absurd_placement(chance: &mut Chance) -> Option<Arc<Placement>> {
    let domain =
        PlacedDomain { values: vec!["\u{1b}[2Jelsewhere".into(); 40], pods: u32::MAX, kind: u32::MAX };
    let pod_set = PlacedPodSet {
        name: "main".into(),
        domains: vec![domain; 3],
        more_domains: u32::MAX,
        more_pods: u32::MAX,
        ..PlacedPodSet::default()
    };
    chance.of_1000(500).then(|| {
        Arc::new(Placement { revision: u32::MAX, pod_sets: vec![pod_set; 50], ..Placement::default() })
    })
}
