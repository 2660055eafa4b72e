use crate::facts::submission::ClassId;
use crate::queue::counts::{One, Tally};
use crate::world::World;
use meridian_shared::ids::Uid;

/// One workload fewer is of a class; what is remembered of the class goes with the last.
pub(crate) fn drop_member(world: &mut World, class: ClassId) {
    if world.queues.drop_member(class) {
        world.live.hindrances.forget(class);
        world.live.audited.remove(&class);
        world.deciding.forget_class(class);
    }
}

/// Counts a workload and its legs as they are, or no longer.
fn tally_in(world: &World, tally: &mut Tally, uid: Uid, more: bool) {
    let Some(workload) = world.state.workloads.get(&uid) else { return };
    for leg in workload.legs.values() {
        tally.leg(leg.cluster.clone(), leg.state, more);
    }
    let class = world.queues.class(workload.class);
    let total = world.config.resources.total(&workload.gang(class));
    let inactive = workload.inactive.is_some();
    let one = One {
        phase: workload.phase,
        inactive,
        flavors: &workload.flavors,
        total: &total,
        charged_to: world.queues.charged_to(uid),
    };
    tally.count(&world.state.catalog, class, &one, more);
}

/// Counts a workload that came, or one that goes.
pub(crate) fn tally_workload(world: &mut World, uid: Uid, more: bool) {
    let mut tally = std::mem::take(&mut world.tally);
    tally_in(world, &mut tally, uid, more);
    world.tally = tally;
}

/// All of it, counted anew.
pub(crate) fn tally_anew(world: &World) -> Tally {
    let mut tally = Tally::default();
    world.state.workloads.keys().for_each(|uid| tally_in(world, &mut tally, *uid, true));
    tally
}
