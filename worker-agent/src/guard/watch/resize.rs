//! Moves, scale-downs and scale-ups of a running gang.
//!
//! Pods of a lost node end and start again on another node, surplus pods end, and added pods start (a
//! scale-up is a move in which no pod moves). All other pods continue.

use super::Watch;
use crate::guard::rundir::Movement;
use crate::guard::{pod, processes, remark};
use crate::job_run::pods::Try;
use meridian_shared::time::Now;

impl Watch {
    /// Ends the pods that move; the others continue.
    pub(super) fn begin_move(&mut self, number: u32, now: Now) {
        if number <= self.moved {
            return self.report_status();
        }
        if self.ending.is_some() || self.movement.is_some() {
            return;
        }
        let movement = match self.dir.movement() {
            Ok(Some(movement)) if movement.number == number && self.is_possible(&movement) => movement,
            Ok(_) => return remark("`move.json` has no valid move of this number"),
            Err(error) => return remark(&error.to_string()),
        };
        let grace = self.grace();
        for (slot, running) in &mut self.running {
            if self.plan.start.placement.get(*slot) != movement.placement.get(*slot) && !running.moving {
                running.moving = true;
                if !running.surplus {
                    running.signal_end(now.mono + grace);
                }
            }
        }
        self.movement = Some(movement);
    }

    /// Whether a move has the present number of pods; or, for a scale-up, the present pods and further ones.
    fn is_possible(&self, movement: &Movement) -> bool {
        let known = &self.plan.start.placement;
        if movement.scale_up_to.is_some() {
            movement.placement.starts_with(known)
        } else {
            movement.placement.len() == known.len()
        }
    }

    /// Ends the surplus pods; the others continue.
    pub(super) fn begin_scale_down(&mut self, now: Now) {
        if self.ending.is_some() {
            return;
        }
        let size = match self.dir.resize() {
            Ok(Some(resize)) => resize.size,
            Ok(None) => {
                return remark("there is no `size.json`");
            }
            Err(error) => return remark(&error.to_string()),
        };
        let Some(leaving) = self.pods.scale_down(size) else { return };
        let grace = self.grace();
        for this in leaving {
            let Some(running) = self.running.get_mut(&this.slot) else { continue };
            running.surplus = true;
            if !running.moving {
                running.signal_end(now.mono + grace);
            }
        }
        if let Some(verdict) = self.pods.verdict().cloned() {
            self.begin_ending(verdict, now);
        }
    }

    /// Frees the positions of surplus pods that have no process left.
    pub(super) fn finish_scale_down(&mut self, now: Now) {
        if self.ending.is_some() {
            return;
        }
        let (left, gone) =
            std::mem::take(&mut self.surplus_out).into_iter().partition(|this| self.has_left_behind(this));
        self.surplus_out = left;
        for this in gone {
            self.pods.removed(this, now.mono);
        }
    }

    /// Whether a process of a try still runs. It was killed with the try, and may take a moment to end.
    fn has_left_behind(&self, this: &Try) -> bool {
        processes::proc_is_ours() && !processes::marked(&pod::marks(&self.plan, *this)).is_empty()
    }

    /// Lets moved pods start on their new nodes, after the end of all of them on the old nodes was seen and
    /// stored.
    pub(super) fn finish_move(&mut self) {
        // A surplus pod may be among the moved ones.
        if self.ending.is_some()
            || !self.surplus_out.is_empty()
            || self.running.values().any(|running| running.moving)
        {
            return;
        }
        let Some(movement) = &self.movement else { return };
        // No pod starts while another one of its index has yet to end.
        if movement.scale_up_to.is_some() && self.running.values().any(|running| running.surplus) {
            return;
        }
        if self.moving_out.iter().any(|this| self.has_left_behind(this)) {
            return;
        }
        let mut plan = self.plan.clone();
        plan.start.placement.clone_from(&movement.placement);
        // A scale-up ends the smaller size that was ordered before.
        let forgotten = if movement.scale_up_to.is_some() { self.dir.forget_resize() } else { Ok(()) };
        if let Err(error) = forgotten.and_then(|()| self.dir.write_plan(&plan)) {
            return remark(&error.to_string());
        }
        self.moved = movement.number;
        if let Some(size) = movement.scale_up_to {
            self.pods.scale_up(size, plan.start.placement.len());
        }
        (self.plan, self.movement) = (plan, None);
        self.moving_out.clear();
        self.report_status();
    }
}
