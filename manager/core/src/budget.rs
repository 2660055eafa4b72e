//! How much a cluster may have written of what is known of it: another estimate, another place of the same pods.
//!
//! All else that an agent has written follows from what it was asked or granted, once. This could be said without end, and fill
//! the disk that everybody needs. What is beyond the budget isn't taken: events are numbered, so that its agent says it again
//! once there is some left. Nothing is lost, and nobody but that cluster waits.

use crate::leg::State as LegState;
use crate::turn::Turn;
use meridian_shared::ids::ClusterName;
use meridian_shared::protocol::{Event, clean};
use meridian_shared::time::Mono;

/// Bytes that may be written at once: as many as some 2,000 gangs take that move from lost nodes.
const BYTES_MAX: u64 = 1 << 20;
/// Bytes that may be written per millisecond: another estimate for each of 500 gangs in a second, or 20 GB in a day, of which
/// snapshots leave little.
const BYTES_PER_MS: u64 = 256;
/// What a record takes beside an agent's own words, in bytes.
const FRAME: usize = 256;
/// What a session costs that an agent begins, in bytes: with it all that its cluster was asked is withdrawn and asked anew. So
/// one cluster begins some sixteen a second in the long run.
const SESSION: usize = 16 << 10;

/// What one cluster has had written, less what time has given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    spent: u64,
    at: Mono,
}

impl Budget {
    /// Bytes that count at this moment.
    pub(crate) fn spent(self, now: Mono) -> u64 {
        self.spent.saturating_sub(now.since(self.at).0.saturating_mul(BYTES_PER_MS))
    }

    fn is_spent(self, now: Mono) -> bool {
        self.spent(now) >= BYTES_MAX
    }

    fn spend(&mut self, now: Mono, bytes: usize) {
        *self = Self { spent: self.spent(now).saturating_add(bytes as u64), at: now };
    }
}

impl Turn<'_> {
    /// Whether nothing more of what is known may be written for this cluster now.
    pub(crate) fn is_spent(&self, cluster: &ClusterName) -> bool {
        self.world.live.clusters.get(cluster).is_some_and(|live| live.budget.is_spent(self.now.mono))
    }

    /// A record of what was known is written, with so many bytes of the agent's own.
    pub(crate) fn spend(&mut self, cluster: &ClusterName, bytes: usize) {
        if let Some(live) = self.world.live.clusters.get_mut(cluster) {
            live.budget.spend(self.now.mono, FRAME + bytes);
        }
    }

    /// Whether this event has to wait until there is budget again.
    pub(crate) fn is_put_off(&mut self, cluster: &ClusterName, event: &Event) -> bool {
        let waits = self.is_spent(cluster) && self.repeats(cluster, event);
        self.world.live.counts.put_off += u64::from(waits);
        waits
    }

    /// Whether a cluster may begin another session now. It may with a full budget spent, so that who said too much may still
    /// start anew, and not with two.
    pub(crate) fn may_begin(&self, cluster: &ClusterName) -> bool {
        self.world
            .live
            .clusters
            .get(cluster)
            .is_none_or(|live| live.budget.spent(self.now.mono) < 2 * BYTES_MAX)
    }

    /// A session is begun.
    pub(crate) fn spend_session(&mut self, cluster: &ClusterName) {
        self.spend(cluster, SESSION);
    }

    /// Whether an event would have something written that an agent can say as often as it likes.
    fn repeats(&self, cluster: &ClusterName, event: &Event) -> bool {
        let leg = |uid, offer| {
            self.workload(uid).and_then(|w| w.legs.get(&offer)).filter(|leg| leg.cluster == *cluster)
        };
        match event {
            Event::Waiting { offer, uid, reason, estimate } => {
                leg(*uid, *offer).is_some_and(|leg| match leg.state {
                    LegState::Waiting => {
                        leg.estimate != *estimate || leg.note.as_deref() != Some(clean(reason).as_str())
                    }
                    LegState::Held => true,
                    LegState::Offered
                    | LegState::Granted
                    | LegState::Running
                    | LegState::Ended
                    | LegState::Refused
                    | LegState::Withdrawn
                    | LegState::Expired => false,
                })
            }
            // It is asked again at once.
            Event::Gone { offer, uid, .. } => leg(*uid, *offer).is_some_and(|leg| leg.state.open()),
            Event::Accepted { uid, fence, placement: Some(placement) } => {
                self.own_leg(cluster, *uid, *fence).is_some_and(|leg| leg.accepted)
                    && self.placement_counts(*uid, *fence, placement)
            }
            Event::Running { uid, fence, placement: Some(placement) } => {
                self.own_leg(cluster, *uid, *fence).is_some()
                    && self.placement_counts(*uid, *fence, placement)
            }
            Event::Held { .. }
            | Event::Refused { .. }
            | Event::Accepted { .. }
            | Event::Running { .. }
            | Event::GrantRefused { .. }
            | Event::Grown { .. }
            | Event::NotGrown { .. }
            | Event::Ended(_) => false,
        }
    }
}
