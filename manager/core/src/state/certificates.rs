//! Which certificates of agents are valid. For each cluster one binding is: the uid of its `Cluster` object
//! and a generation.
//!
//! Each join, `cluster revoke` and deletion voids all earlier certificates and join tokens of the cluster.
//! The generation is the number of the record that did it, and record numbers never go back, so no
//! certificate of a lost copy of the journal becomes valid by chance.

use crate::state::State;
use meridian_shared::identity::CertificateBinding;
use meridian_shared::ids::{ClusterName, RecordNumber, Uid};
use meridian_shared::time::{Millis, Wall};
use serde::{Deserialize, Serialize};

/// How long after its end a certificate can still be renewed: a week, for clusters that were switched off
/// over a long weekend. Documented in `docs/operations.md`.
pub const RENEWAL_GRACE: Millis = Millis::secs(7 * 24 * 3_600);

/// The valid certificates of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ValidCertificates {
    binding: CertificateBinding,
    /// Learned from an agent's certificate, because this journal is an older copy or a new one in place of a
    /// lost one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    adopted: bool,
    /// An operator voided them, and no agent has joined since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    revoked: bool,
}

/// Purpose for which an agent presents its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateUse {
    Renewal,
    /// Any request but a renewal.
    Request,
}

/// Why a certificate isn't accepted, although its signature is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidCertificate {
    /// Another generation is valid, or another `Cluster` object has the name now.
    Revoked,
    /// No agent has joined the cluster since its `Cluster` object was created.
    NotIssuedHere,
    Expired,
    /// The certificate expired too long ago to be renewed.
    GraceOver,
}

/// Checks a certificate with this binding and end against the binding that is valid for its cluster.
pub fn check_certificate(
    valid: Option<CertificateBinding>,
    (presented, not_after): (CertificateBinding, Wall),
    purpose: CertificateUse,
    now: Wall,
) -> Result<(), InvalidCertificate> {
    match valid {
        None => return Err(InvalidCertificate::NotIssuedHere),
        Some(valid) if valid != presented => return Err(InvalidCertificate::Revoked),
        Some(_) => {}
    }
    match purpose {
        CertificateUse::Request if now > not_after => Err(InvalidCertificate::Expired),
        CertificateUse::Renewal if now > not_after + RENEWAL_GRACE => Err(InvalidCertificate::GraceOver),
        CertificateUse::Request | CertificateUse::Renewal => Ok(()),
    }
}

impl State {
    /// The binding of the valid certificates of a cluster. `None` if no agent joined it yet.
    pub fn valid_certificates(&self, cluster: &ClusterName) -> Option<CertificateBinding> {
        self.certificates.get(cluster).map(|valid| valid.binding)
    }

    /// Whether an operator has locked the cluster's agent out, and none has joined with a token since.
    pub fn revoked_certificates(&self, cluster: &ClusterName) -> bool {
        self.certificates.get(cluster).is_some_and(|valid| valid.revoked)
    }

    /// Generation above which a certificate replaces the valid ones. The certificate is signed by this
    /// manager's authority, so it comes from a newer copy of this journal. `None` unless this journal may
    /// lack records, and for clusters whose certificates were voided after that was noticed.
    pub fn adopts_certificates_above(&self, cluster: &ClusterName) -> Option<RecordNumber> {
        if !self.behind {
            return None;
        }
        match self.certificates.get(cluster) {
            None => Some(RecordNumber(0)),
            Some(valid) if valid.adopted || valid.binding.generation < self.recovery_since => {
                Some(valid.binding.generation)
            }
            Some(_) => None,
        }
    }

    /// Voids the certificates and tokens of a cluster; those issued from now on have generation `number`.
    pub(super) fn void_certificates(
        &mut self,
        number: RecordNumber,
        cluster: &ClusterName,
        cluster_uid: Uid,
        revoked: bool,
    ) {
        let binding = CertificateBinding { cluster_uid, generation: number };
        self.certificates.insert(cluster.clone(), ValidCertificates { binding, adopted: false, revoked });
        self.tokens.retain(|_, token| token.cluster != *cluster);
    }

    pub(super) fn adopt_certificates(&mut self, cluster: &ClusterName, binding: CertificateBinding) {
        self.certificates
            .insert(cluster.clone(), ValidCertificates { binding, adopted: true, revoked: false });
    }

    /// Voids what was issued for a cluster that is deleted. While certificates of another copy of the journal
    /// may be adopted, a generation must say that these may not.
    pub(super) fn forget_certificates(&mut self, number: RecordNumber, cluster: &ClusterName, uid: Uid) {
        self.void_certificates(number, cluster, uid, false);
        if !self.behind {
            self.certificates.remove(cluster);
        }
    }

    /// Drops the generations that [`Self::forget_certificates`] left.
    pub(super) fn forget_deleted_clusters(&mut self) {
        let catalog = &self.catalog;
        self.certificates.retain(|cluster, _| catalog.cluster(cluster).is_some());
    }
}
