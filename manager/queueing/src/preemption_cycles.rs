//! Prevents preemption cycles: a workload may not preempt its own preemptor, nor that preemptor's preemptor,
//! and so on, nor the same workload again and again. Otherwise preemption would never end where policies
//! contradict each other (priority of a borrower, quota of an owner).
//!
//! The caller keeps the history of preemptions: the engine for a limited time, a plan until it ends.

use std::collections::BTreeMap;

/// How often a workload may preempt the same other workload. More than once, because others may take the
/// freed quota, or it may not suffice.
pub const PREEMPTIONS_MAX: u32 = 2;

/// Whether a workload was preempted, directly or through other preemptors, for one that satisfies `sought`.
pub fn was_preempted_for<Id: Ord + Copy, T>(
    preemptors: &BTreeMap<Id, BTreeMap<Id, T>>,
    workload: Id,
    sought: impl Fn(Id) -> bool,
) -> bool {
    if !preemptors.contains_key(&workload) {
        return false;
    }
    let mut seen = vec![workload];
    let mut next = 0;
    while let Some(at) = seen.get(next).copied() {
        next += 1;
        for by in preemptors.get(&at).into_iter().flat_map(BTreeMap::keys) {
            if sought(*by) {
                return true;
            }
            if !seen.contains(by) {
                seen.push(*by);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_and_cycles_of_preemptors_are_followed() {
        let preemptors = BTreeMap::from([
            (1, BTreeMap::from([(2, ())])),
            (2, BTreeMap::from([(3, ()), (1, ())])),
            (4, BTreeMap::from([(1, ())])),
        ]);
        let was_for = |workload, other| was_preempted_for(&preemptors, workload, |by| by == other);
        assert!(was_for(1, 2) && was_for(1, 3) && was_for(4, 3) && was_for(1, 1));
        assert!(!was_for(3, 1) && !was_for(1, 4) && !was_for(5, 1));
    }
}
