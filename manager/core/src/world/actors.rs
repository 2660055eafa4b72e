//! Who caused a record, for whoever reads a journal: the record's own word, or the agent that was asked.

use crate::facts::actor::Actor;
use crate::facts::record::Record;
use crate::world::World;
use meridian_shared::ids::{ClusterName, Fence, OfferId, Uid};

impl World {
    /// Who caused a record that is about to be absorbed; nobody where the manager decided it itself.
    pub fn actor_of(&self, record: &Record) -> Option<Actor> {
        match record {
            Record::RecoveryClosed { by }
            | Record::RulesConfirmed { by }
            | Record::Applied { by, .. }
            | Record::Removed { by, .. }
            | Record::TokenMinted { by, .. }
            | Record::MemberAdmitted { by, .. }
            | Record::StopOrdered { by, .. }
            | Record::DeclaredLost { by, .. }
            | Record::OrphanStopOrdered { by, .. }
            | Record::DeletionAsked { by, .. }
            | Record::Deactivated { by, .. }
            | Record::Activated { by, .. }
            | Record::Resized { by, .. } => Some(by.clone()),
            Record::Submitted(submission) => Some(submission.by.clone()),
            Record::Audited(line) => Some(line.by.clone()),
            Record::TokenUsed { hash } => {
                self.state.tokens.get(hash).map(|token| Actor::agent(&token.cluster))
            }
            Record::SessionOpened { cluster, .. }
            | Record::Adopted { cluster, .. }
            | Record::EndLearned { cluster, .. }
            | Record::OrphanSeen { cluster, .. } => Some(Actor::agent(cluster)),
            Record::Waited { uid, offer, .. }
            | Record::Held { uid, offer }
            | Record::Refused { uid, offer, .. }
            | Record::Expired { uid, offer } => asked(self, *uid, *offer).map(Actor::agent),
            Record::Accepted { uid, fence, .. }
            | Record::Placed { uid, fence, .. }
            | Record::Running { uid, fence, .. }
            | Record::Reclaimed { uid, fence, .. }
            | Record::PodsFailed { uid, fence, .. }
            | Record::Ended { uid, fence, .. }
            | Record::GrantRefused { uid, fence, .. }
            | Record::Grown { uid, fence, .. }
            | Record::NotGrown { uid, fence, .. } => granted(self, *uid, *fence).map(Actor::agent),
            Record::Lapsed { by, .. } | Record::OrphanGone { by, .. } | Record::Reprioritized { by, .. } => {
                by.clone()
            }
            Record::Led { .. }
            | Record::RulesDoubted { .. }
            | Record::Sampled { .. }
            | Record::Forgotten { .. }
            | Record::Reserved { .. }
            | Record::Released { .. }
            | Record::Offered { .. }
            | Record::Withdrawn { .. }
            | Record::Granted { .. }
            | Record::Grows { .. }
            | Record::Finished { .. } => None,
        }
    }
}

fn asked(world: &World, uid: Uid, offer: OfferId) -> Option<&ClusterName> {
    Some(&world.state.workloads.get(&uid)?.legs.get(&offer)?.cluster)
}

fn granted(world: &World, uid: Uid, fence: Fence) -> Option<&ClusterName> {
    Some(&world.state.workloads.get(&uid)?.leg_of(fence)?.1.cluster)
}
