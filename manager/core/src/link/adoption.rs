//! Adopts a run that an agent reports and the journal doesn't have.

use crate::dispatch::{grants, offers, priority, sizes, stops};
use crate::facts::actor::Actor;
use crate::facts::flavors::Flavors;
use crate::facts::record::WorkloadFact;
use crate::live::counts::Count;
use crate::sessions::outbox::CommandRef;
use crate::state::residency;
use crate::state::workload::Workload;
use crate::world::gangs;
use crate::world::turn::Turn;
use meridian_shared::gang::{Gang, PodSet};
use meridian_shared::ids::{ClusterName, LedgerId, Uid};
use meridian_shared::protocol::{OnLoss, Run, StopReason};
use std::sync::Arc;

/// Makes a reported run the workload's attempt. Other attempts and offers of the workload are stopped and
/// withdrawn.
pub(crate) fn adopt(turn: &mut Turn<'_>, cluster: &ClusterName, ledger: LedgerId, run: &Run) {
    turn.world.live_mut().counts_mut().add_one(Count::Adoptions);
    if let Some((old_cluster, old_fence)) = turn
        .workload(run.uid)
        .and_then(Workload::right)
        .and_then(|(_, l)| l.fence().map(|f| (l.cluster().clone(), f)))
    {
        grants::release_lease(turn, old_fence);
        turn.send(&old_cluster, CommandRef::Stop(run.uid, old_fence, StopReason::Superseded));
    }
    offers::withdraw_open(turn, run.uid);
    let flavors = flavors_of_adopted(turn, run.uid);
    turn.record_workload(
        run.uid,
        WorkloadFact::Adopted {
            cluster: cluster.clone(),
            ledger,
            run: Box::new(run.clone()),
            flavors,
            at: turn.now.wall,
        },
    );
    let class = turn.workload(run.uid).map(|workload| turn.world.queues().class(workload.class()));
    let start_by = turn.now.mono
        + class.map_or(turn.world.config().start_timeout, |class| gangs::start_timeout(turn.world, class));
    grants::lease(turn, run.uid, run.fence, run.term, OnLoss::Fence, start_by);
    if run.running {
        turn.record_workload(run.uid, WorkloadFact::Running { fence: run.fence, at: turn.now.wall });
    }
    let workload = turn.workload(run.uid).expect("adopted just now");
    let class = turn.world.queues().class(workload.class()).clone();
    let allowed = residency::check(
        turn.world.state().catalog(),
        &class,
        cluster,
        turn.world.config().residency_required,
    );
    match allowed {
        Err(_) => stops::order_stop(turn, run.uid, run.fence, StopReason::Residency, &Actor::System),
        Ok(()) if turn.workload(run.uid).is_some_and(|w| w.inactive().is_some()) => {
            stops::order_stop(turn, run.uid, run.fence, StopReason::Evicted, &Actor::System)
        }
        Ok(()) if turn.workload(run.uid).is_some_and(|w| w.has_other_pods(&class)) => {
            stops::order_stop(turn, run.uid, run.fence, StopReason::Evicted, &Actor::System)
        }
        Ok(()) if run.stopping => {
            stops::order_stop(turn, run.uid, run.fence, StopReason::Superseded, &Actor::System)
        }
        Ok(()) => {
            sizes::send_scale_down(turn, cluster, run.uid, run.fence);
            priority::apply_reported_priority(turn, cluster, run);
        }
    }
}

/// Flavors to charge for an adopted run, even if their quota is used up: per pod set and resource, the first
/// flavor of its queue that suits the pods.
fn flavors_of_adopted(turn: &Turn<'_>, uid: Uid) -> Flavors {
    let catalog = &turn.world.state().catalog();
    let Some(class) = turn.workload(uid).map(|w| turn.world.queues().class(w.class())) else {
        return Flavors::default();
    };
    let queue = catalog
        .local_queue(&class.namespace, &class.queue)
        .and_then(|l| catalog.cluster_queue(&l.cluster_queue));
    let Some(queue) = queue else { return Flavors::default() };
    let flavor = |set: &PodSet, resource: &String| {
        let group = queue.resource_groups.iter().find(|g| g.covered_resources.contains(resource))?;
        let serving = group.flavors.iter().find(|f| gangs::serves(catalog, &f.name, set));
        serving.or(group.flavors.first()).map(|f| Arc::from(f.name.as_str()))
    };
    let resources = &turn.world.config().resources;
    let of_set = |set: &PodSet| {
        let alone = Gang { pod_sets: vec![set.clone()], ..Gang::default() };
        let requested = resources.total(&alone).into_keys();
        requested.filter_map(|resource| flavor(set, &resource).map(|f| (resource, f))).collect()
    };
    Flavors::of_pod_sets(class.gang.pod_sets.iter().map(of_set).collect())
}
