//! When the next scheduling pass is due, and what it must look at again.

/// Whether a scheduling pass is due.
///
/// A change of capacity requests a pass by [`Self::capacity_changed`]. A turn that was cut short leaves a
/// pass requested, so that the next turn decides the rest at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PassState {
    /// Whether a change may let a workload start that waits for capacity.
    capacity_changed: bool,
    requested: bool,
    /// Number of consecutive turns that reached their limit before every decision was made.
    cuts: u32,
}

impl PassState {
    /// Requests a scheduling pass.
    pub(crate) fn request(&mut self) {
        self.requested = true;
    }

    /// Whether a pass was requested since the last one began.
    pub(crate) fn take_request(&mut self) -> bool {
        std::mem::take(&mut self.requested)
    }

    /// Requests a pass that evaluates parked workloads again.
    pub(crate) fn capacity_changed(&mut self) {
        self.reevaluate_parked();
        self.request();
    }

    /// Lets the next pass, or the one that runs, evaluate parked workloads again.
    pub(crate) fn reevaluate_parked(&mut self) {
        self.capacity_changed = true;
    }

    /// Whether parked workloads are to be evaluated again. Resets this flag.
    pub(crate) fn take_capacity_changed(&mut self) -> bool {
        std::mem::take(&mut self.capacity_changed)
    }

    /// Number of consecutive turns that were cut short.
    pub(crate) fn cuts(&self) -> u32 {
        self.cuts
    }

    /// Notes that the pass made every decision.
    pub(crate) fn completed(&mut self) {
        self.cuts = 0;
    }

    /// Notes that the pass left decisions to the next turn. That turn is due at once if this one was cut
    /// short.
    pub(crate) fn left_decisions(&mut self, is_cut_short: bool) {
        self.cuts = if is_cut_short { self.cuts.saturating_add(1) } else { 0 };
        self.request();
    }

    /// Whether the last turn was cut short, so that the next one is due at once.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.requested && self.cuts > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_taken_once_for_each_request() {
        let mut pass = PassState::default();
        assert!(!pass.take_request());
        pass.request();
        assert!(pass.take_request() && !pass.take_request());
    }

    #[test]
    fn only_a_turn_that_was_cut_short_is_followed_at_once() {
        let mut pass = PassState::default();
        pass.left_decisions(false);
        assert!(!pass.is_cut_short());
        pass.left_decisions(true);
        pass.left_decisions(true);
        assert_eq!((pass.is_cut_short(), pass.cuts()), (true, 2));
        assert!(pass.take_request());
        assert!(!pass.is_cut_short(), "its pass runs");
        pass.left_decisions(true);
        pass.completed();
        assert_eq!((pass.is_cut_short(), pass.cuts()), (false, 0));
    }
}
