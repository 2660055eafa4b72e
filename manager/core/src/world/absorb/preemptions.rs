use crate::world::World;
use meridian_shared::ids::Uid;

/// People gave a workload another priority, or queues other quota or policies: it is seen anew who may displace whom.
pub(crate) fn rights_changed(world: &mut World, of: Option<Uid>) {
    world.state.forget_preemptions(of);
    world.live.reservations.rights_changed(of);
}
