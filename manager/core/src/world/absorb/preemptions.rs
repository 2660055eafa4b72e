//! Effects of user changes on the preemption history.

use crate::world::World;
use meridian_shared::ids::Uid;

/// Drops remembered preemptions, which protect preemptors from their victims: those of one workload after its
/// priority changed, or all (`None`) after quota or policies of a queue changed.
pub(crate) fn rights_changed(world: &mut World, of: Option<Uid>) {
    world.state.forget_preemptions(of);
    world.live.reservations_mut().rights_changed(of);
}
