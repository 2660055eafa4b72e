//! The rooms of the clusters, as the brain asks for them.

use crate::capacity::topology::{self, Gone};
use crate::capacity::{caps, readiness};
use crate::dispatch::{align, offers, residency};
use crate::facts::flavors::Flavors;
use crate::facts::reason::Why;
use crate::facts::record::WorkloadFact;
use crate::facts::submission::{Choice, ClassId};
use crate::queue::candidate_clusters::{Candidate, CandidateClusters};
use crate::world::turn::Turn;
use crate::world::{World, gangs};
use meridian_objects::spec::DispatchMode;
use meridian_shared::gang::Gang;
use meridian_shared::ids::{ClusterName, Uid};
use meridian_shared::packing::Misfit;
use meridian_shared::time::Mono;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

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

/// Records what the brain decided and asks clusters; false where none could be asked, with a reason for each.
pub(crate) fn dispatch(
    turn: &mut Turn<'_>,
    uid: Uid,
    queue: &Arc<str>,
    flavors: Flavors,
    counts: Option<Vec<u32>>,
) -> bool {
    let Some(class) = turn.workload(uid).map(|w| w.class()) else { return false };
    let shape = turn.world.queues.class(class).clone();
    let way = align::candidate_clusters(turn.world, class, queue);
    let gang =
        counts.as_ref().map_or_else(|| shape.gang.clone(), |counts| Arc::new(shape.gang.of_counts(counts)));
    let gang = gangs::with_flavor_constraints(turn.world, &gang, &flavors);
    let mut chosen = candidates(turn, uid, class, &gang, &way);
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
        turn.note(class, &passed.cluster, Why::NotChosen { chosen: first });
    }
    turn.record_workload(uid, WorkloadFact::QuotaReserved { flavors, at: turn.now.wall, counts });
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let choice = Choice { able: count(able), asked: count(chosen.len()) };
    for score in chosen {
        offers::offer(turn, uid, score.cluster, &gang, choice);
    }
    true
}

fn candidates(
    turn: &mut Turn<'_>,
    uid: Uid,
    class: ClassId,
    gang: &Gang,
    way: &CandidateClusters,
) -> Vec<Score> {
    let mut reasons = BTreeMap::new();
    let mut scores = Vec::new();
    for site in &way.candidates {
        let listed = site.listed.ok_or_else(|| way.not_listed()).map(drop);
        let judged = listed.and_then(|()| {
            residency::note_verdict(turn, class, &site.cluster, &site.verdict);
            site.verdict.clone().map_err(Why::Forbidden)
        });
        match judged.and_then(|()| judge_cluster(turn.world, (uid, turn.now.mono), gang, way, site)) {
            Ok(score) => scores.push(score),
            Err(why) => {
                reasons.insert(site.cluster.clone(), why);
            }
        }
    }
    turn.world.live.pending_reasons.set_at_clusters(class, reasons, !scores.is_empty());
    scores.sort();
    scores
}

/// Whether a cluster could start a gang now, and how good it is.
pub(crate) fn judge_cluster(
    world: &World,
    (uid, now): (Uid, Mono),
    gang: &Gang,
    way: &CandidateClusters,
    site: &Candidate,
) -> Result<Score, Why> {
    readiness::judge_readiness(world, (uid, now), way, site)?;
    let cluster = &site.cluster;
    if site.capped {
        caps::judge_caps(world, uid, &way.queue, gang, cluster)?;
    }
    let live = world.live.clusters.get(cluster).ok_or(Why::NotConnected)?;
    let fits = live.capacity.fits(gang);
    // What could not be even without a topology is said first.
    if matches!(fits, Ok(()) | Err(Misfit::NotEnoughRoom { fits_empty: true, .. })) {
        topology::judge_domains(world, gang, cluster, Gone::All).map_err(Why::NoRoom)?;
    }
    let fits = fits.and_then(|()| topology::judge_domains(world, gang, cluster, Gone::Nobody));
    let grows = fits.is_err() && live.capacity.could_grow(gang);
    if let (Err(misfit), false) = (fits, grows) {
        return Err(Why::NoRoom(misfit));
    }
    if !grows {
        readiness::judge_reserved(world, uid, gang, cluster, live)?;
    }
    let fullness = gang
        .scarcest()
        .filter(|_| way.prefers_emptiest())
        .map_or(0, |r| live.capacity.free(r).saturating_mul(1_000) / live.capacity.capacity(r).max(1));
    let listed = site.listed.unwrap_or(usize::MAX);
    let (failed_starts, _) = readiness::failed_to_start(world, uid, cluster, now);
    Ok(Score {
        failed_starts,
        fails: live.fails(),
        must_grow: grows,
        fullness: Reverse(fullness),
        listed,
        cluster: cluster.clone(),
    })
}

/// Which clusters may run a workload once there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Candidates {
    /// Those that can be asked now.
    Ready,
    /// And those that said no a moment ago.
    IncludingRefused,
}

/// Clusters that may run a workload of this queue once there is room.
pub(crate) fn candidates_of(
    turn: &mut Turn<'_>,
    uid: Uid,
    queue: &Arc<str>,
    which: Candidates,
) -> Vec<ClusterName> {
    let Some(class) = turn.workload(uid).map(|w| w.class()) else { return Vec::new() };
    let way = align::candidate_clusters(turn.world, class, queue);
    let may = |site: &&Candidate| {
        site.listed.is_some()
            && site.verdict.is_ok()
            && match readiness::judge_readiness(turn.world, (uid, turn.now.mono), &way, site) {
                Err(Why::Refused { .. }) => which == Candidates::IncludingRefused,
                judged => judged.is_ok(),
            }
    };
    way.candidates.iter().filter(may).map(|site| site.cluster.clone()).collect()
}

/// The same for one that waits.
pub(crate) fn candidates_for(turn: &mut Turn<'_>, uid: Uid, which: Candidates) -> Vec<ClusterName> {
    let brain = turn.world.mirror.brain();
    let queue = turn
        .world
        .mirror
        .id(uid)
        .and_then(|id| brain.workload(id))
        .map(|w| brain.queue(w.queue).setup.name.clone());
    queue.map_or_else(Vec::new, |queue| candidates_of(turn, uid, &queue, which))
}
