use crate::placement::reservations::{Domain, Kept, KeptRoom, NEAR_FOR};
use crate::state::workload::Workload;
use crate::world::{World, gangs};
use meridian_queueing::model::WorkloadId;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Mono, Wall};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is kept in a cluster for others than this workload. Of two that wait too long, the longer one comes first.
pub(crate) fn kept_room(world: &World, cluster: &ClusterName, uid: Uid) -> KeptRoom {
    let starving = world.live.giving_way.kept.get(&uid).and_then(|kept| kept.starving);
    kept_room_before(world, cluster, uid, starving.map(|since| (since, uid)))
}

/// The same for one that waits too long, if it does, since the given moment.
pub(crate) fn kept_room_before(
    world: &World,
    cluster: &ClusterName,
    uid: Uid,
    rank: Option<(Wall, Uid)>,
) -> KeptRoom {
    let mut room = KeptRoom::default();
    for (other, kept) in
        world.live.giving_way.kept.iter().filter(|(other, kept)| **other != uid && kept.cluster == *cluster)
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
pub(crate) fn kept_for(world: &World, uid: Uid) -> Option<(&ClusterName, bool)> {
    world.live.giving_way.kept.get(&uid).map(|kept| (&kept.cluster, kept.starving.is_some()))
}

/// Where room is kept for a workload that waits too long, and who is expected to end there for it.
pub(crate) fn expected_for(world: &World, uid: Uid) -> Option<(&ClusterName, Vec<Uid>)> {
    let kept = world.live.giving_way.kept.get(&uid).filter(|kept| kept.starving.is_some())?;
    Some((
        &kept.cluster,
        kept.victims.iter().copied().filter(|victim| gangs::runs_in(world, *victim, &kept.cluster)).collect(),
    ))
}

/// Keeps room in a cluster for a workload, as long as any of the victims is there, and for a while all of the domains in which it
/// comes free.
pub(crate) fn keep_room(
    world: &mut World,
    uid: Uid,
    (cluster, domains): (ClusterName, Vec<Domain>),
    gang: Arc<Gang>,
    victims: BTreeSet<Uid>,
    now: Mono,
) {
    let before = world
        .live
        .giving_way
        .kept
        .get(&uid)
        .filter(|before| before.cluster == cluster && before.starving.is_none());
    let closed_until = before.map_or(Some(now + NEAR_FOR), |before| before.closed_until);
    keep(world, uid, Kept { cluster, gang, victims, starving: None, domains, closed_until });
}

/// Keeps room in a cluster for a workload, as long as it waits too long.
pub(crate) fn keep_room_for_the_starving(
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
        Kept {
            cluster,
            gang,
            victims: expected,
            starving: Some(since),
            domains: Vec::new(),
            closed_until: None,
        },
    );
}

fn keep(world: &mut World, uid: Uid, kept: Kept) {
    // Who starves comes before others from now on. And where others end for it, what is free now may be room for who was told
    // that it is kept (simulation seeds 409, 5003356).
    let same = |before: &Kept| {
        (&before.cluster, &before.gang, before.starving) == (&kept.cluster, &kept.gang, kept.starving)
            && kept.victims.is_subset(&before.victims)
    };
    world.live.stirred |=
        world.live.giving_way.kept.get(&uid).map_or(kept.starving.is_some(), |before| !same(before));
    let Kept { cluster, gang, .. } = &kept;
    if world.live.giving_way.kept.get(&uid).is_some_and(|before| before.cluster != *cluster) {
        let_room_of_go(world, uid);
    }
    if let Some(live) = world.live.clusters.get_mut(cluster) {
        live.rooms.keep(uid, gang.clone());
        world.live.giving_way.kept.insert(uid, kept);
    }
}

/// What was kept in a cluster is kept in its new session.
pub(crate) fn keep_room_again(world: &mut World, cluster: &ClusterName) {
    let Some(live) = world.live.clusters.get_mut(cluster) else { return };
    for (uid, kept) in world.live.giving_way.kept.iter().filter(|(_, kept)| kept.cluster == *cluster) {
        live.rooms.keep(*uid, kept.gang.clone());
    }
}

/// A workload no longer needs what is kept for it. True where anything was.
pub(crate) fn let_room_of_go(world: &mut World, uid: Uid) -> bool {
    let Some(kept) = world.live.giving_way.kept.remove(&uid) else { return false };
    if let Some(live) = world.live.clusters.get_mut(&kept.cluster) {
        live.rooms.let_go(uid);
    }
    true
}

/// Room is kept only for who still waits, and as long as anybody is still to give way or it waits too long. True where some
/// was let go.
pub(crate) fn let_room_go(world: &mut World, now: Mono) -> bool {
    let mut opened = false;
    for kept in world
        .live
        .giving_way
        .kept
        .values_mut()
        .filter(|kept| kept.closed_until.is_some_and(|until| until <= now))
    {
        kept.closed_until = None;
        opened |= !kept.domains.is_empty();
    }
    let over = |(uid, kept): (&Uid, &Kept)| {
        let freeing = kept
            .victims
            .iter()
            .any(|victim| world.state.workloads().get(victim).is_some_and(|w| w.phase().charged()));
        let starves = world.deciding.id(*uid).is_some_and(|id| world.deciding.brain().starves(id));
        let goes_on = if kept.starving.is_some() { starves } else { freeing };
        (!waits(world, *uid) || !goes_on).then_some(*uid)
    };
    let over: Vec<Uid> = world.live.giving_way.kept.iter().filter_map(over).collect();
    over.into_iter().filter(|uid| let_room_of_go(world, *uid)).count() > 0 || opened
}

fn waits(world: &World, uid: Uid) -> bool {
    let waits =
        world.deciding.id(uid).is_some() && world.state.workloads().get(&uid).is_some_and(Workload::waits);
    waits || world.deciding.growth(uid).is_some()
}

/// Nobody rests for who no longer waits.
pub(crate) fn let_rests_end(world: &mut World) {
    let over: Vec<Uid> = world
        .live
        .giving_way
        .rests
        .iter()
        .filter(|(_, by)| !waits(world, **by))
        .map(|(uid, _)| *uid)
        .collect();
    for uid in over {
        world.live.giving_way.rested(uid);
        if world.live.not_before.remove(&uid).is_some() {
            world.deciding.touch(uid);
        }
    }
}

/// Those for whom others rest.
pub(crate) fn rested_for(world: &World) -> BTreeSet<WorkloadId> {
    world.live.giving_way.rests.values().filter_map(|by| world.deciding.id(*by)).collect()
}
