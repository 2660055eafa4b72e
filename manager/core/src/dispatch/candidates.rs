//! Chooses clusters for a workload that is being admitted.

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

/// Offers that one workload may have at once in a race.
pub(crate) const RACE_MAX: usize = 20;

/// Ranks clusters, best first. The order of fields is the policy; the last field breaks ties.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// Failed starts of this workload in the cluster.
    failed_starts: u32,
    /// Failed starts of several workloads in a row.
    failed_starts_of_all: u32,
    /// The gang fits only after a node pool has grown.
    must_grow: bool,
    /// Free share of the scarcest resource, in thousandths. Zero if the policy doesn't prefer the emptiest
    /// cluster.
    free_share: Reverse<i64>,
    /// Position in the MultiKueueConfig of the queue.
    position: usize,
    cluster: ClusterName,
}

/// Records the reserved quota and offers the gang to clusters. If no cluster can take it now, returns false,
/// records nothing and stores a pending reason per cluster.
pub(crate) fn dispatch(
    turn: &mut Turn<'_>,
    uid: Uid,
    queue: &Arc<str>,
    flavors: Flavors,
    counts: Option<Vec<u32>>,
) -> bool {
    let Some(class) = turn.workload(uid).map(|w| w.class()) else { return false };
    let submitted = turn.world.queues().class(class).gang.clone();
    let candidates = align::candidate_clusters(turn.world, class, queue);
    let gang =
        counts.as_ref().map_or_else(|| submitted.clone(), |counts| Arc::new(submitted.with_counts(counts)));
    let gang = gangs::with_flavor_constraints(turn.world, &gang, &flavors);
    let mut chosen = ranked_clusters(turn, uid, class, &gang, &candidates);
    if chosen.is_empty() {
        return false;
    }
    let able = chosen.len();
    let offers_max = match candidates.policy.mode {
        DispatchMode::Direct | DispatchMode::Staged => 1,
        DispatchMode::Race => RACE_MAX,
    };
    for other in chosen.split_off(offers_max.min(chosen.len())) {
        let best = chosen[0].cluster.clone();
        turn.note(class, &other.cluster, Why::NotChosen { chosen: best });
    }
    turn.record_workload(uid, WorkloadFact::QuotaReserved { flavors, at: turn.now.wall, counts });
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let choice = Choice { able: count(able), asked: count(chosen.len()) };
    for score in chosen {
        offers::offer(turn, uid, score.cluster, &gang, choice);
    }
    true
}

/// Clusters that can take the gang now, best first. Stores why the others can't.
fn ranked_clusters(
    turn: &mut Turn<'_>,
    uid: Uid,
    class: ClassId,
    gang: &Gang,
    candidates: &CandidateClusters,
) -> Vec<Score> {
    let mut reasons = BTreeMap::new();
    let mut scores = Vec::new();
    for candidate in &candidates.candidates {
        let listed = candidate.listed.ok_or_else(|| candidates.not_listed()).map(drop);
        let allowed = listed.and_then(|()| {
            residency::note_verdict(turn, class, &candidate.cluster, &candidate.verdict);
            candidate.verdict.clone().map_err(Why::Forbidden)
        });
        let workload = (uid, turn.now.mono);
        match allowed.and_then(|()| check_cluster(turn.world, workload, gang, candidates, candidate)) {
            Ok(score) => scores.push(score),
            Err(why) => {
                reasons.insert(candidate.cluster.clone(), why);
            }
        }
    }
    turn.world.live_mut().pending_reasons_mut().set_at_clusters(class, reasons, !scores.is_empty());
    scores.sort();
    scores
}

/// Scores a cluster for a gang. Fails with the first obstacle if the cluster can't start the gang now.
pub fn check_cluster(
    world: &World,
    (uid, now): (Uid, Mono),
    gang: &Gang,
    candidates: &CandidateClusters,
    candidate: &Candidate,
) -> Result<Score, Why> {
    readiness::check_readiness(world, uid, now, candidates, candidate)?;
    readiness::check_provider(world, uid, now, gang, &candidate.cluster)?;
    let must_grow = check_capacity(world, uid, gang, candidates, candidate)?;
    let cluster = &candidate.cluster;
    let live = world.live().cluster(cluster).ok_or(Why::NotConnected)?;
    let free_share = gang
        .scarcest()
        .filter(|_| candidates.prefers_emptiest())
        .map_or(0, |r| live.capacity().free(r).saturating_mul(1_000) / live.capacity().capacity(r).max(1));
    let failed_starts = world.live().failed_starts().times(uid, cluster);
    Ok(Score {
        failed_starts,
        failed_starts_of_all: live.starts().blamed(),
        must_grow,
        free_share: Reverse(free_share),
        position: candidate.listed.unwrap_or(usize::MAX),
        cluster: cluster.clone(),
    })
}

/// Whether a cluster must grow to have capacity for a gang. Fails if even that isn't enough. Readiness isn't
/// checked.
pub fn check_capacity(
    world: &World,
    uid: Uid,
    gang: &Gang,
    candidates: &CandidateClusters,
    candidate: &Candidate,
) -> Result<bool, Why> {
    let cluster = &candidate.cluster;
    if candidate.capped {
        caps::check_caps(world, uid, &candidates.queue, gang, cluster)?;
    }
    let live = world.live().cluster(cluster).ok_or(Why::NotConnected)?;
    let fits = live.capacity().fits(gang);
    // Report a lack of total capacity first. The topology is the obstacle only if the cluster is large enough
    // without it.
    if matches!(fits, Ok(()) | Err(Misfit::NotEnoughCapacity { fits_empty: true, .. })) {
        topology::check_domains(world, gang, cluster, Gone::All).map_err(Why::NoCapacity)?;
    }
    let fits = fits.and_then(|()| topology::check_domains(world, gang, cluster, Gone::Nobody));
    match fits {
        Ok(()) => readiness::check_reserved(world, uid, gang, cluster, live).map(|()| false),
        Err(misfit) => match readiness::check_provisioning(world, uid, gang, cluster, live) {
            None => Err(Why::NoCapacity(misfit)),
            Some(provisioning) => provisioning.map(|()| true),
        },
    }
}

/// Whether clusters count if their agent refused the workload a short time ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusals {
    Exclude,
    Include,
}

/// Clusters that may run a workload of this queue as soon as they have capacity.
pub(crate) fn eligible_clusters(
    turn: &mut Turn<'_>,
    uid: Uid,
    queue: &Arc<str>,
    refusals: Refusals,
) -> Vec<ClusterName> {
    let Some(class) = turn.workload(uid).map(|w| w.class()) else { return Vec::new() };
    let candidates = align::candidate_clusters(turn.world, class, queue);
    let is_eligible = |candidate: &&Candidate| {
        candidate.listed.is_some()
            && candidate.verdict.is_ok()
            && match readiness::check_readiness(turn.world, uid, turn.now.mono, &candidates, candidate) {
                Err(Why::Refused { .. }) => refusals == Refusals::Include,
                ready => ready.is_ok(),
            }
    };
    candidates.candidates.iter().filter(is_eligible).map(|candidate| candidate.cluster.clone()).collect()
}

/// Eligible clusters of a workload that is pending. Empty if it isn't.
pub(crate) fn eligible_clusters_of_pending(
    turn: &mut Turn<'_>,
    uid: Uid,
    refusals: Refusals,
) -> Vec<ClusterName> {
    let state = turn.world.mirror().queue_state();
    let queue = turn
        .world
        .mirror()
        .id(uid)
        .and_then(|id| state.workload(id))
        .map(|w| state.queue(w.queue).setup.name.clone());
    queue.map_or_else(Vec::new, |queue| eligible_clusters(turn, uid, &queue, refusals))
}
