//! The manager's commands, as the agent handles them.

use super::Agent;
use crate::turn::{Effect, Outcome};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::{Command, Size};
use meridian_shared::time::Mono;

impl Agent {
    /// Handles one command. `sent` is the sending time of the transmission that its answer echoes.
    pub(super) fn on_command(&mut self, at: Mono, sent: Mono, command: Command, out: &mut Outcome) {
        match command {
            Command::Offer(offer) => self.on_offer(at, *offer, out),
            Command::Withdraw { offer, uid } => self.on_withdraw(offer, uid, out),
            Command::Grant(grant) => self.on_grant(at, sent, *grant, out),
            Command::Stop { uid, fence, reason } => self.on_stop(uid, fence, reason, out),
            Command::ScaleDown { uid, fence, size } => self.on_scale_down(uid, fence, size, out),
            Command::ScaleUp { uid, fence, scale_up } => self.on_scale_up(uid, fence, *scale_up, out),
            Command::SetPriority { uid, fence, priority } => self.on_priority(uid, fence, priority, out),
        }
    }

    /// Continues the attempt with fewer pods. The surplus pods stay allocated until the runner reports them
    /// reclaimable.
    fn on_scale_down(&mut self, uid: Uid, fence: Fence, size: Size, out: &mut Outcome) {
        let Some(run) = self.runs.attempt_mut(uid, fence).filter(|run| run.is_active()) else { return };
        if run.record.size.is_some_and(|known| known.parallelism <= size.parallelism) {
            return;
        }
        run.record.size = Some(size);
        self.store_run(uid, out);
        self.order_scale_down(uid, out);
    }

    /// Orders the size of a run; also after a restart, because an earlier session may not have done it.
    /// During a scale-up the order waits until the added pods were handed over.
    pub(super) fn order_scale_down(&self, uid: Uid, out: &mut Outcome) {
        let Some(run) = self.runs.get(uid).filter(|run| !run.record.scale_ups.open) else { return };
        let fence = run.record.fence;
        out.act_all(run.record.size.map(|size| Effect::ScaleDown { uid, fence, size }));
    }

    fn on_priority(&mut self, uid: Uid, fence: Fence, priority: i64, out: &mut Outcome) {
        let changed = self.runs.attempt_mut(uid, fence).filter(|run| run.record.priority != priority);
        if let Some(run) = changed {
            run.record.priority = priority;
            self.store_run(uid, out);
        }
    }
}
