//! Timers: holds that end, leases that lapse, tombstones that are dropped.

use super::Agent;
use crate::durable::{TOMBSTONE_KEPT, TOMBSTONES_MAX};
use crate::leg::{LegEvent, Step, step};
use crate::runs::StopCause;
use crate::turn::{Effect, Outcome};
use meridian_shared::ids::{Fence, Uid};
use meridian_shared::protocol::Event;
use meridian_shared::time::{Millis, Mono, Now, Wall};

/// How often old tombstones are dropped.
const PURGE_EVERY: Millis = Millis::mins(60);

impl Agent {
    pub(super) fn on_time(&mut self, at: Mono, now: Now, out: &mut Outcome) {
        if at >= self.due {
            self.end_due(at, out);
            let next = self.offers.next_expiry().into_iter().chain(self.runs.next_stop()).min();
            self.due = next.unwrap_or(Mono(u64::MAX));
        }
        if self.durable.is_full() || now.wall.since(self.purged) >= PURGE_EVERY {
            self.purged = now.wall;
            self.purge(now.wall, out);
        }
    }

    fn end_due(&mut self, at: Mono, out: &mut Outcome) {
        for (offer, uid) in self.offers.expired(at) {
            self.drop_offer(offer, out);
            self.events.push(Event::Gone { offer, uid, expired: true });
        }
        for (uid, phase) in self.runs.lapsing(at) {
            if step(phase, LegEvent::Lapse) == Step::Stop {
                self.order_stop(uid, StopCause::Lapse, out);
            }
        }
    }

    /// Drops old acknowledged tombstones. If there are too many, drops a tenth of all, the oldest first.
    fn purge(&mut self, wall: Wall, out: &mut Outcome) {
        let surplus = if self.durable.is_full() { TOMBSTONES_MAX / 10 } else { 0 };
        let mut acknowledged: Vec<(Wall, Uid, Fence)> = self
            .durable
            .tombstones()
            .iter()
            .filter_map(|((uid, fence), t)| t.acknowledged.map(|(_, _, at)| (at, *uid, *fence)))
            .collect();
        acknowledged.sort_unstable();
        for (i, (since, uid, fence)) in acknowledged.into_iter().enumerate() {
            if i < surplus || wall.since(since) >= TOMBSTONE_KEPT {
                self.durable.drop_tombstone(uid, fence, out.writes());
                out.act(Effect::Forget { uid, fence });
            }
        }
    }
}
