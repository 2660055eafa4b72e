//! Applies changed residency rules to offers and runs in clusters where they are no longer allowed.

use crate::capacity::readiness;
use crate::dispatch::{offers, stops};
use crate::facts::actor::Actor;
use crate::facts::audit::{Action, Entry, Verdict};
use crate::facts::reason::Denied;
use crate::facts::submission::{Class, ClassId};
use crate::live::counts::Count;
use crate::state::residency;
use crate::state::workload::Workload;
use crate::state::workload::phase::Phase;
use crate::world::World;
use crate::world::turn::Turn;
use meridian_shared::ids::{ClusterName, Fence, OfferId, Uid};
use meridian_shared::planted::Bug;
use meridian_shared::protocol::StopReason;

/// A leg in a cluster that no longer accepts it: a residency rule denies it, or it isn't granted and the
/// cluster is closed.
struct Misplaced {
    uid: Uid,
    offer: OfferId,
    class: ClassId,
    cluster: ClusterName,
    open: bool,
    fence: Option<Fence>,
    verdict: Result<(), Denied>,
}

/// Why a gang shouldn't run in its cluster, although it continues because the policy that forbids it only
/// flags violations.
pub fn flagged(world: &World, workload: &Workload) -> Option<Denied> {
    let (_, leg) = workload.right().filter(|_| workload.phase() != Phase::Stopping)?;
    residency::check(
        world.state().catalog(),
        world.queues().class(workload.class()),
        leg.cluster(),
        world.config().residency_required,
    )
    .err()
}

fn misplaced(world: &World) -> Vec<Misplaced> {
    let workloads = world.state().workloads().iter();
    let legs = workloads
        .flat_map(|(uid, w)| w.legs().iter().map(move |(offer, leg)| (*uid, w.class(), *offer, leg)));
    let verdicts = legs.map(|(uid, class, offer, leg)| {
        let verdict = residency::check(
            world.state().catalog(),
            world.queues().class(class),
            leg.cluster(),
            world.config().residency_required,
        );
        Misplaced {
            uid,
            offer,
            class,
            cluster: leg.cluster().clone(),
            open: leg.state().open(),
            fence: leg.fence(),
            verdict,
        }
    });
    verdicts
        .filter(|m| m.verdict.is_err() || m.open && readiness::is_closed(world, m.uid, &m.cluster))
        .collect()
}

/// Writes a residency verdict to the audit log, once per class, cluster and version of the rules.
pub(crate) fn note_verdict(
    turn: &mut Turn<'_>,
    class: ClassId,
    cluster: &ClusterName,
    verdict: &Result<(), Denied>,
) {
    let rules = turn.world.state().rules();
    if !turn.world.live_mut().audited_mut().note(class, cluster, rules) {
        return;
    }
    let (verdict_name, rule) = match verdict {
        Ok(()) => (Verdict::Allowed, None),
        Err(denied) => (Verdict::Denied, Some(denied.rule())),
    };
    turn.world.live_mut().counts_mut().add(Count::Denials, u64::from(verdict.is_err()));
    let Class { namespace, queue, .. } = &**turn.world.queues().class(class);
    let entry = Entry {
        cluster: Some(cluster.to_string()),
        verdict: Some(verdict_name),
        rule,
        detail: Some(format!("rules {rules}")),
        ..Entry::new(Action::Verdict, format!("class {} of {namespace}/{queue}", class.0))
    };
    turn.audit(Actor::System, entry);
}

/// Checks every offer, hold and run again after a rule changed. Offers and holds that are no longer allowed
/// are withdrawn, also in clusters that are closed for new work. Runs are stopped only if their policy
/// evicts.
pub(crate) fn recheck_residency(turn: &mut Turn<'_>) {
    if turn.world.config().planted.has(Bug::ResidencyCheckedOnce) {
        return;
    }
    for leg in misplaced(turn.world) {
        if leg.verdict.is_err() {
            note_verdict(turn, leg.class, &leg.cluster, &leg.verdict);
        }
        let evicts = || {
            residency::evicts(
                turn.world.state().catalog(),
                turn.world.queues().class(leg.class),
                &leg.cluster,
            )
        };
        match leg.fence {
            _ if leg.open => {
                offers::withdraw(turn, leg.uid, leg.offer);
                offers::release_quota_if_idle(turn, leg.uid);
            }
            Some(fence) if evicts() => {
                turn.world.live_mut().counts_mut().add_one(Count::ResidencyStops);
                stops::order_stop(turn, leg.uid, fence, StopReason::Residency, &Actor::System);
            }
            _ => {}
        }
    }
}
