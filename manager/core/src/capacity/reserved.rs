use crate::placement::reservations::{DOMAIN_CLOSED, Domain, Reservation, ReservedCapacity};
use crate::state::workload::Workload;
use crate::world::{World, gangs};
use meridian_queueing::model::WorkloadId;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Mono, Wall};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is kept in a cluster for others than this workload. Of two that wait too long, the longer one comes first.
pub(crate) fn reserved_capacity(world: &World, cluster: &ClusterName, uid: Uid) -> ReservedCapacity {
    let starving = world.live.reservations.kept.get(&uid).and_then(|kept| kept.starving);
    reserved_before(world, cluster, uid, starving.map(|since| (since, uid)))
}

/// The same for one that waits too long, if it does, since the given moment.
pub(crate) fn reserved_before(
    world: &World,
    cluster: &ClusterName,
    uid: Uid,
    rank: Option<(Wall, Uid)>,
) -> ReservedCapacity {
    let mut room = ReservedCapacity::default();
    for (other, kept) in
        world.live.reservations.kept.iter().filter(|(other, kept)| **other != uid && kept.cluster == *cluster)
    {
        let there = kept.victims.iter().filter(|victim| gangs::runs_in(world, **victim, cluster));
        match kept.starving {
            Some(since) if rank.is_some_and(|rank| rank < (since, *other)) => continue,
            Some(_) => {
                room.starving.push(kept.gang.clone());
                room.who_starve.push(*other);
                room.expected.extend(there);
            }
            None => {
                room.gangs.push(kept.gang.clone());
                room.whose.push(*other);
                room.domains.push(kept.domains.clone());
                room.victims.extend(there);
            }
        }
        room.uids.push(*other);
    }
    room
}

/// Where room is kept for a workload, and whether because it waits too long.
pub(crate) fn reservation_of(world: &World, uid: Uid) -> Option<(&ClusterName, bool)> {
    world.live.reservations.kept.get(&uid).map(|kept| (&kept.cluster, kept.starving.is_some()))
}

/// Where room is kept for a workload that waits too long, and who is expected to end there for it.
pub(crate) fn expected_for(world: &World, uid: Uid) -> Option<(&ClusterName, Vec<Uid>)> {
    let kept = world.live.reservations.kept.get(&uid).filter(|kept| kept.starving.is_some())?;
    Some((
        &kept.cluster,
        kept.victims.iter().copied().filter(|victim| gangs::runs_in(world, *victim, &kept.cluster)).collect(),
    ))
}

/// Keeps room in a cluster for a workload, as long as any of the victims is there, and for a while all of the domains in which it
/// comes free.
pub(crate) fn reserve(
    world: &mut World,
    uid: Uid,
    (cluster, domains): (ClusterName, Vec<Domain>),
    gang: Arc<Gang>,
    victims: BTreeSet<Uid>,
    now: Mono,
) {
    let before = world
        .live
        .reservations
        .kept
        .get(&uid)
        .filter(|before| before.cluster == cluster && before.starving.is_none());
    let closed_until = before.map_or(Some(now + DOMAIN_CLOSED), |before| before.closed_until);
    keep(world, uid, Reservation { cluster, gang, victims, starving: None, domains, closed_until });
}

/// Keeps room in a cluster for a workload, as long as it waits too long.
pub(crate) fn reserve_for_starved(
    world: &mut World,
    uid: Uid,
    since: Wall,
    cluster: ClusterName,
    gang: Arc<Gang>,
    expected: BTreeSet<Uid>,
) {
    keep(
        world,
        uid,
        Reservation {
            cluster,
            gang,
            victims: expected,
            starving: Some(since),
            domains: Vec::new(),
            closed_until: None,
        },
    );
}

fn keep(world: &mut World, uid: Uid, kept: Reservation) {
    // Who starves comes before others from now on. And where others end for it, what is free now may be room for who was told
    // that it is kept (simulation seeds 409, 5003356).
    let same = |before: &Reservation| {
        (&before.cluster, &before.gang, before.starving) == (&kept.cluster, &kept.gang, kept.starving)
            && kept.victims.is_subset(&before.victims)
    };
    world.live.capacity_changed |=
        world.live.reservations.kept.get(&uid).map_or(kept.starving.is_some(), |before| !same(before));
    let Reservation { cluster, gang, .. } = &kept;
    if world.live.reservations.kept.get(&uid).is_some_and(|before| before.cluster != *cluster) {
        release_reservation(world, uid);
    }
    if let Some(live) = world.live.clusters.get_mut(cluster) {
        live.capacity.keep(uid, gang.clone());
        world.live.reservations.kept.insert(uid, kept);
    }
}

/// What was kept in a cluster is kept in its new session.
pub(crate) fn restore_reservations(world: &mut World, cluster: &ClusterName) {
    let Some(live) = world.live.clusters.get_mut(cluster) else { return };
    for (uid, kept) in world.live.reservations.kept.iter().filter(|(_, kept)| kept.cluster == *cluster) {
        live.capacity.keep(*uid, kept.gang.clone());
    }
}

/// A workload no longer needs what is kept for it. True where anything was.
pub(crate) fn release_reservation(world: &mut World, uid: Uid) -> bool {
    let Some(kept) = world.live.reservations.kept.remove(&uid) else { return false };
    if let Some(live) = world.live.clusters.get_mut(&kept.cluster) {
        live.capacity.let_go(uid);
    }
    true
}

/// Room is kept only for who still waits, and as long as anybody is still to give way or it waits too long. True where some
/// was let go.
pub(crate) fn release_reservations(world: &mut World, now: Mono) -> bool {
    let mut opened = false;
    for kept in world
        .live
        .reservations
        .kept
        .values_mut()
        .filter(|kept| kept.closed_until.is_some_and(|until| until <= now))
    {
        kept.closed_until = None;
        opened |= !kept.domains.is_empty();
    }
    let over = |(uid, kept): (&Uid, &Reservation)| {
        let freeing = kept
            .victims
            .iter()
            .any(|victim| world.state.workloads().get(victim).is_some_and(|w| w.phase().charged()));
        let starves = world.mirror.id(*uid).is_some_and(|id| world.mirror.brain().starves(id));
        let goes_on = if kept.starving.is_some() { starves } else { freeing };
        (!waits(world, *uid) || !goes_on).then_some(*uid)
    };
    let over: Vec<Uid> = world.live.reservations.kept.iter().filter_map(over).collect();
    over.into_iter().filter(|uid| release_reservation(world, *uid)).count() > 0 || opened
}

fn waits(world: &World, uid: Uid) -> bool {
    let waits =
        world.mirror.id(uid).is_some() && world.state.workloads().get(&uid).is_some_and(Workload::waits);
    waits || world.mirror.growth(uid).is_some()
}

/// Nobody rests for who no longer waits.
pub(crate) fn end_preemption_backoffs(world: &mut World) {
    let over: Vec<Uid> = world
        .live
        .reservations
        .rests
        .iter()
        .filter(|(_, by)| !waits(world, **by))
        .map(|(uid, _)| *uid)
        .collect();
    for uid in over {
        world.live.reservations.rested(uid);
        if world.live.backoff_until.remove(&uid).is_some() {
            world.mirror.touch(uid);
        }
    }
}

/// Those for whom others rest.
pub(crate) fn awaited_preemptors(world: &World) -> BTreeSet<WorkloadId> {
    world.live.reservations.rests.values().filter_map(|by| world.mirror.id(*by)).collect()
}
