//! Priorities of workloads follow their priority classes.

use crate::sim::invariants::violation::{Verdict, violation};
use meridian_manager_core::World;
use meridian_objects::job::PRIORITY_LABEL;

/// P7: every workload that isn't over has the priority of its class.
pub(crate) fn check_priorities(world: &World) -> Verdict {
    for (uid, w) in world.state().workloads().iter().filter(|(_, w)| w.finished().is_none()) {
        let class = world.queues().class(w.class()).labels.get(PRIORITY_LABEL);
        let value = class.and_then(|class| world.state().catalog().workload_priority(class));
        if let Some(value) = value.filter(|value| *value != w.priority()) {
            let details = format!("{uid} has priority {}, and its class has {value}", w.priority());
            return violation("P7", details);
        }
    }
    Ok(())
}
