//! Which certificates of agents are valid. For each cluster one binding is: the uid of its `Cluster` object
//! and a generation.
//!
//! Each join with a token, `cluster revoke`, `cluster join --issuer` and deletion voids all earlier
//! certificates and join tokens of the cluster. The generation is the number of the record that voided them,
//! and record numbers never go back, so no certificate of a lost copy of the journal becomes valid by chance.

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
    /// The cluster's service account is locked out: an operator voided the certificates, or an agent joined
    /// with a token. Outlives the `Cluster` object, because the account itself could create a new one.
    #[serde(default, rename = "revoked", skip_serializing_if = "std::ops::Not::not")]
    account_locked: bool,
    /// The `Cluster` object is deleted, so that no certificate is valid.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    /// The last agent that joined runs in the manager's own process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    hosted: bool,
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
        self.certificates.get(cluster).filter(|valid| !valid.deleted).map(|valid| valid.binding)
    }

    /// Whether the cluster's service account may not join. Only an operator lets it in again.
    pub fn account_locked(&self, cluster: &ClusterName) -> bool {
        self.certificates.get(cluster).is_some_and(|valid| valid.account_locked)
    }

    /// Whether the last agent that joined the cluster runs in the manager's own process. It can't run
    /// elsewhere, so another one in this process may take its place.
    pub fn hosts(&self, cluster: &ClusterName) -> bool {
        self.certificates.get(cluster).is_some_and(|valid| valid.hosted && !valid.deleted)
    }

    pub(super) fn mark_as_hosted(&mut self, cluster: &ClusterName) {
        if let Some(valid) = self.certificates.get_mut(cluster) {
            valid.hosted = true;
        }
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
        account_locked: bool,
    ) {
        let binding = CertificateBinding { cluster_uid, generation: number };
        let valid =
            ValidCertificates { binding, adopted: false, account_locked, deleted: false, hosted: false };
        self.certificates.insert(cluster.clone(), valid);
        self.tokens.retain(|_, token| token.cluster != *cluster);
    }

    /// A lock of the service account stays: the certificate doesn't say whether its agent had a join token.
    pub(super) fn adopt_certificates(&mut self, cluster: &ClusterName, binding: CertificateBinding) {
        let account_locked = self.account_locked(cluster);
        let valid =
            ValidCertificates { binding, adopted: true, account_locked, deleted: false, hosted: false };
        self.certificates.insert(cluster.clone(), valid);
    }

    /// Voids what was issued for a cluster that is deleted. While certificates of other copies of the journal
    /// may be adopted, keeps a generation by which these are refused. Keeps a lock of the service account.
    pub(super) fn forget_certificates(&mut self, number: RecordNumber, cluster: &ClusterName, uid: Uid) {
        let account_locked = self.account_locked(cluster);
        self.void_certificates(number, cluster, uid, account_locked);
        if let Some(valid) = self.certificates.get_mut(cluster) {
            valid.deleted = account_locked;
        }
        if !self.behind && !account_locked {
            self.certificates.remove(cluster);
        }
    }

    /// Drops the generations that [`Self::forget_certificates`] left, unless they lock a service account out.
    pub(super) fn forget_deleted_clusters(&mut self) {
        let catalog = &self.catalog;
        self.certificates.retain(|cluster, valid| valid.account_locked || catalog.cluster(cluster).is_some());
    }
}
