//! Reservations of cluster capacity: for preemptors until their victims have stopped, and for starved heads.

use crate::state::workload::Workload;
use crate::world::{World, gangs};
use meridian_placement::reservations::{DOMAIN_CLOSED, Domain, Reservation, ReservedCapacity};
use meridian_queueing::model::WorkloadId;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::time::{Mono, Wall};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Capacity of a cluster that is reserved for other workloads. Of two starved heads, the head that has waited
/// longer comes first: it ignores the other's reservation.
pub fn reserved_capacity(world: &World, cluster: &ClusterName, uid: Uid) -> ReservedCapacity {
    let starving = world.live().reservations().of(uid).and_then(|reservation| reservation.starving);
    reserved_before(world, cluster, uid, starving.map(|since| (since, uid)))
}

/// Like [`reserved_capacity`], for a starved head. `starved` is the start of its wait and its uid.
pub(crate) fn reserved_before(
    world: &World,
    cluster: &ClusterName,
    uid: Uid,
    starved: Option<(Wall, Uid)>,
) -> ReservedCapacity {
    let mut reserved = ReservedCapacity::default();
    for (other, reservation) in world
        .live()
        .reservations()
        .iter()
        .filter(|(other, reservation)| *other != uid && reservation.cluster == *cluster)
    {
        let running = reservation.victims.iter().filter(|victim| gangs::runs_in(world, **victim, cluster));
        match reservation.starving {
            Some(since) if starved.is_some_and(|starved| starved < (since, other)) => continue,
            Some(_) => {
                reserved.starving.push(reservation.gang.clone());
                reserved.starving_uids.push(other);
                reserved.expected.extend(running);
            }
            None => {
                reserved.gangs.push(reservation.gang.clone());
                reserved.preemptors.push(other);
                reserved.domains.push(reservation.domains.clone());
                reserved.victims.extend(running);
            }
        }
        reserved.uids.push(other);
    }
    reserved
}

/// The cluster with a workload's reservation, and whether the workload has the reservation as a starved head.
pub(crate) fn reservation_of(world: &World, uid: Uid) -> Option<(&ClusterName, bool)> {
    world
        .live()
        .reservations()
        .of(uid)
        .map(|reservation| (&reservation.cluster, reservation.starving.is_some()))
}

/// The cluster with a starved head's reservation, and the runs that are expected to end for it.
pub fn expected_for(world: &World, uid: Uid) -> Option<(&ClusterName, Vec<Uid>)> {
    let reservation =
        world.live().reservations().of(uid).filter(|reservation| reservation.starving.is_some())?;
    Some((
        &reservation.cluster,
        reservation
            .victims
            .iter()
            .copied()
            .filter(|victim| gangs::runs_in(world, *victim, &reservation.cluster))
            .collect(),
    ))
}

/// Reserves capacity for a preemptor as long as any of its victims runs. For a limited time, the topology
/// domains of that capacity are closed for other workloads.
pub(crate) fn reserve(
    world: &mut World,
    uid: Uid,
    (cluster, domains): (ClusterName, Vec<Domain>),
    gang: Arc<Gang>,
    victims: BTreeSet<Uid>,
    now: Mono,
) {
    let before = world
        .live()
        .reservations()
        .of(uid)
        .filter(|before| before.cluster == cluster && before.starving.is_none());
    let closed_until = before.map_or(Some(now + DOMAIN_CLOSED), |before| before.closed_until);
    insert(world, uid, Reservation { cluster, gang, victims, starving: None, domains, closed_until });
}

/// Reserves capacity for a starved head as long as it is starved.
pub(crate) fn reserve_for_starved(
    world: &mut World,
    uid: Uid,
    since: Wall,
    cluster: ClusterName,
    gang: Arc<Gang>,
    expected: BTreeSet<Uid>,
) {
    insert(
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

fn insert(world: &mut World, uid: Uid, new: Reservation) {
    // A new starved head changes what others may use. A reservation with other victims does too: it may
    // reserve less of the free capacity, so that a workload that was evaluated before now fits.
    let is_same = |before: &Reservation| {
        (&before.cluster, &before.gang, before.starving) == (&new.cluster, &new.gang, new.starving)
            && new.victims.is_subset(&before.victims)
    };
    let before = world.live().reservations().of(uid);
    if before.map_or(new.starving.is_some(), |before| !is_same(before)) {
        world.live_mut().pass_mut().reevaluate_parked();
    }
    let Reservation { cluster, gang, .. } = &new;
    if world.live().reservations().of(uid).is_some_and(|before| before.cluster != *cluster) {
        release_reservation(world, uid);
    }
    if let Some(live) = world.live_mut().cluster_mut(cluster) {
        live.capacity_mut().reserve(uid, gang.clone());
        world.live_mut().reservations_mut().keep(uid, new);
    }
}

/// Repeats the reservations of a cluster in its new session.
pub(crate) fn restore_reservations(world: &mut World, cluster: &ClusterName) {
    let own = world.live().reservations().iter().filter(|(_, reservation)| reservation.cluster == *cluster);
    let own: Vec<(Uid, Arc<Gang>)> = own.map(|(uid, reservation)| (uid, reservation.gang.clone())).collect();
    let Some(live) = world.live_mut().cluster_mut(cluster) else { return };
    for (uid, gang) in own {
        live.capacity_mut().reserve(uid, gang);
    }
}

/// Releases a workload's reservation. False if it has none.
pub(crate) fn release_reservation(world: &mut World, uid: Uid) -> bool {
    let Some(reservation) = world.live_mut().reservations_mut().release(uid) else { return false };
    if let Some(live) = world.live_mut().cluster_mut(&reservation.cluster) {
        live.capacity_mut().release(uid);
    }
    true
}

/// Releases reservations of workloads that are no longer pending or starved, or whose last victim has
/// stopped. Also opens domains that were closed for long enough. True if either made capacity available.
pub(crate) fn release_reservations(world: &mut World, now: Mono) -> bool {
    let opened = world.live_mut().reservations_mut().open_domains(now);
    let uid_if_over = |(uid, reservation): (Uid, &Reservation)| {
        let victims_remain = reservation
            .victims
            .iter()
            .any(|victim| world.state().workloads().get(victim).is_some_and(|w| w.phase().charged()));
        let is_starved = world.mirror().id(uid).is_some_and(|id| world.mirror().queue_state().is_starved(id));
        let is_needed = if reservation.starving.is_some() { is_starved } else { victims_remain };
        (!is_pending(world, uid) || !is_needed).then_some(uid)
    };
    let over: Vec<Uid> = world.live().reservations().iter().filter_map(uid_if_over).collect();
    over.into_iter().filter(|uid| release_reservation(world, *uid)).count() > 0 || opened
}

/// Whether the workload or its scale-up is pending.
fn is_pending(world: &World, uid: Uid) -> bool {
    let is_pending =
        world.mirror().id(uid).is_some() && world.state().workloads().get(&uid).is_some_and(Workload::waits);
    is_pending || world.mirror().scale_up(uid).is_some()
}

/// Ends the backoffs of victims once their preemptor is no longer pending.
pub(crate) fn end_preemption_backoffs(world: &mut World) {
    let over: Vec<Uid> = world
        .live()
        .reservations()
        .resting()
        .filter(|(_, preemptor)| !is_pending(world, *preemptor))
        .map(|(uid, _)| uid)
        .collect();
    for uid in over {
        world.live_mut().reservations_mut().rested(uid);
        if world.live_mut().backoffs_mut().end(uid).is_some() {
            world.mirror_mut().touch(uid);
        }
    }
}

/// Preemptors for which victims back off.
pub(crate) fn awaited_preemptors(world: &World) -> BTreeSet<WorkloadId> {
    world.live().reservations().resting().filter_map(|(_, preemptor)| world.mirror().id(preemptor)).collect()
}
