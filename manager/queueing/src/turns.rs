//! Nobody displaces in turn: who gave way for another doesn't displace it, nor whoever that one gave way for; nor does one displace
//! the same other again and again. Policies can contradict each other (a borrower by priority, an owner by its quota), and things would
//! go round for ever.
//!
//! Whoever decides keeps who gave way for whom: the engine for a while, a plan as long as it goes on.

use std::collections::BTreeMap;

/// How often one workload may displace the same other one. What it frees may go to others, or be of no use where it is, every time
/// (simulation seed 618).
pub const DISPLACED_MAX: u32 = 2;

/// Whether a workload gave way for one that is sought, at however many removes.
pub fn gave_way<Id: Ord + Copy, Way>(
    for_whom: &BTreeMap<Id, BTreeMap<Id, Way>>,
    workload: Id,
    sought: impl Fn(Id) -> bool,
) -> bool {
    if !for_whom.contains_key(&workload) {
        return false;
    }
    let mut seen = vec![workload];
    let mut next = 0;
    while let Some(at) = seen.get(next).copied() {
        next += 1;
        for by in for_whom.get(&at).into_iter().flat_map(BTreeMap::keys) {
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
    fn a_way_is_followed_however_long_it_is_and_round_in_circles() {
        let for_whom = BTreeMap::from([
            (1, BTreeMap::from([(2, ())])),
            (2, BTreeMap::from([(3, ()), (1, ())])),
            (4, BTreeMap::from([(1, ())])),
        ]);
        let gave_way_for = |workload, other| gave_way(&for_whom, workload, |by| by == other);
        assert!(gave_way_for(1, 2) && gave_way_for(1, 3) && gave_way_for(4, 3) && gave_way_for(1, 1));
        assert!(!gave_way_for(3, 1) && !gave_way_for(1, 4) && !gave_way_for(5, 1));
    }
}
