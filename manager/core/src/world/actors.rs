//! The cause of a record (a user, an agent or the manager), for readers of a journal.

use crate::facts::actor::Actor;
use crate::facts::record::{
    LeadershipFact, MemberFact, ObjectFact, OrphanFact, Record, TokenFact, WorkloadFact,
};
use crate::world::World;
use meridian_shared::ids::{ClusterName, Fence, OfferId, Uid};

impl World {
    /// The actor that the record names, or the agent of the record's cluster. `None` for the manager's own
    /// decisions. Call this before absorbing the record, because that may remove the leg or token that names
    /// the cluster.
    pub fn actor_of(&self, record: &Record) -> Option<Actor> {
        match record {
            Record::Leadership(
                LeadershipFact::RecoveryClosed { by }
                | LeadershipFact::CopiesRuledOut { by }
                | LeadershipFact::RulesConfirmed { by },
            )
            | Record::Object { fact: ObjectFact::Applied { by, .. } | ObjectFact::Removed { by }, .. }
            | Record::Token { fact: TokenFact::Minted { by, .. }, .. }
            | Record::Member {
                fact:
                    MemberFact::Admitted { by }
                    | MemberFact::DeclaredLost { by, .. }
                    | MemberFact::CertificatesVoided { by, .. },
                ..
            }
            | Record::Orphan { fact: OrphanFact::StopOrdered { by }, .. } => Some(by.clone()),
            Record::Token { hash, fact: TokenFact::Used } => {
                self.state.tokens().get(hash).map(|token| Actor::agent(token.cluster()))
            }
            Record::Member {
                cluster,
                fact: MemberFact::SessionOpened { .. } | MemberFact::CertificatesAdopted { .. },
            }
            | Record::Orphan { fact: OrphanFact::Seen { cluster, .. }, .. } => Some(Actor::agent(cluster)),
            Record::Orphan { fact: OrphanFact::Gone { by }, .. } => by.clone(),
            Record::Workload { uid, fact } => self.actor_of_fact(*uid, fact),
            Record::Audited(line) => Some(line.by.clone()),
            Record::Leadership(LeadershipFact::Started { .. } | LeadershipFact::RulesDoubted { .. })
            | Record::UsageSampled { .. } => None,
        }
    }

    fn actor_of_fact(&self, uid: Uid, fact: &WorkloadFact) -> Option<Actor> {
        match fact {
            WorkloadFact::Submitted(submission) => Some(submission.by.clone()),
            WorkloadFact::StopOrdered { by, .. }
            | WorkloadFact::DeletionRequested { by, .. }
            | WorkloadFact::Deactivated { by, .. }
            | WorkloadFact::Activated { by, .. }
            | WorkloadFact::Resized { by, .. } => Some(by.clone()),
            WorkloadFact::LeaseLapsed { by, .. } | WorkloadFact::PriorityChanged { by, .. } => by.clone(),
            WorkloadFact::Adopted { cluster, .. } | WorkloadFact::EndLearned { cluster, .. } => {
                Some(Actor::agent(cluster))
            }
            WorkloadFact::Waiting { offer, .. }
            | WorkloadFact::Held { offer }
            | WorkloadFact::Refused { offer, .. }
            | WorkloadFact::HoldExpired { offer } => self.cluster_of_offer(uid, *offer).map(Actor::agent),
            WorkloadFact::LedgerReplaced { fence, .. }
            | WorkloadFact::GrantAccepted { fence, .. }
            | WorkloadFact::PodsPlaced { fence, .. }
            | WorkloadFact::Running { fence, .. }
            | WorkloadFact::PodsReclaimed { fence, .. }
            | WorkloadFact::PodsFailed { fence, .. }
            | WorkloadFact::IndexesCompleted { fence, .. }
            | WorkloadFact::Ended { fence, .. }
            | WorkloadFact::GrantRefused { fence, .. }
            | WorkloadFact::ScaledUp { fence, .. }
            | WorkloadFact::ScaleUpRefused { fence, .. } => {
                self.cluster_of_grant(uid, *fence).map(Actor::agent)
            }
            WorkloadFact::QuotaReserved { .. }
            | WorkloadFact::QuotaReleased { .. }
            | WorkloadFact::Offered { .. }
            | WorkloadFact::Withdrawn { .. }
            | WorkloadFact::Granted { .. }
            | WorkloadFact::ScaleUpStarted { .. }
            | WorkloadFact::Finished { .. }
            | WorkloadFact::Forgotten => None,
        }
    }

    fn cluster_of_offer(&self, uid: Uid, offer: OfferId) -> Option<&ClusterName> {
        Some(self.state.workloads().get(&uid)?.legs().get(&offer)?.cluster())
    }

    fn cluster_of_grant(&self, uid: Uid, fence: Fence) -> Option<&ClusterName> {
        Some(self.state.workloads().get(&uid)?.leg_of(fence)?.1.cluster())
    }
}
