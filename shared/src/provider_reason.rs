//! The documented reasons of node providers, as words for metrics.
//!
//! A provider's reason reaches the manager inside a text for people. Only words of a closed list are taken
//! from it, so that no text from outside becomes a label. They are for display only: no decision depends on
//! them.

/// Every documented reason of a ProvisioningRequest: of the cluster autoscaler's conditions, and of Google's
/// Dynamic Workload Scheduler.
const WORDS: [&str; 42] = [
    // The request is being processed.
    "NotAccepted",
    "Accepted",
    "SuccessfullyQueued",
    "NotProvisioned",
    "Provisioned",
    "CapacityIsFound",
    "CapacityIsProvisioned",
    // There may be nodes later.
    "ResourcePoolExhausted",
    "QuotaExceeded",
    "IPSpaceExhausted",
    "LimitExceeded",
    "QueuingInfeasibleNoCapacity",
    "CapacityIsNotFound",
    // Another request would fail too.
    "InvalidMachineType",
    "InvalidGPUType",
    "InvalidArgument",
    "ZoneNotSupported",
    "PermissionDenied",
    "PermissionsError",
    "VMExternalIPAccessPolicyConstraint",
    "UnsupportedOperation",
    "ConditionNotMet",
    "ObtainabilityStrategyAndZoneIncompatible",
    // A reservation is invalid or full.
    "InvalidReservation",
    "ReservationNotFound",
    "ReservationNotReady",
    "ReservationCapacityExceeded",
    "ReservationIncompatible",
    // The request or its nodes came to an end.
    "WaitTimeExceeded",
    "AcceptedRequestTimedOut",
    "RequestWasCancelled",
    "BookingExpired",
    "CapacityReservationTimeExpired",
    "CapacityRevoked",
    "MissingPodTemplates",
    "MissingResizeRequest",
    "DuplicateResizeRequestName",
    // The provider itself failed.
    "InternalError",
    "InternalErrorFailedToQueue",
    "FailedToCheckCapacity",
    "FailedToBookCapacity",
    "FailedToCreatePods",
];

/// The word for every other reason.
const OTHER: &str = "Other";

/// Why a provider keeps an offer waiting, or makes no nodes for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderReason(&'static str);

impl ProviderReason {
    /// Number of different reasons.
    pub const COUNT: usize = WORDS.len() + 1;

    /// The first documented word in the text.
    pub fn in_text(text: &str) -> Self {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        Self(words.filter_map(|word| WORDS.into_iter().find(|known| *known == word)).next().unwrap_or(OTHER))
    }

    /// The provider's word.
    pub const fn word(self) -> &'static str {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn only_documented_words_are_taken_from_a_text() {
        for (text, word) in [
            ("ResourcePoolExhausted: no T4 in europe-west4; QuotaExceeded before", "ResourcePoolExhausted"),
            ("simulated Flex Start: quota (QuotaExceeded): pool `t4` may have 2 nodes", "QuotaExceeded"),
            ("WaitTimeExceeded: it took too long; attempt 2 follows in 1m", "WaitTimeExceeded"),
            ("NotAccepted: the autoscaler has not accepted the request yet", "NotAccepted"),
            ("InternalErrorFailedToQueue", "InternalErrorFailedToQueue"),
            ("MyQuotaExceeded: a word of the user's own", "Other"),
            ("asked the provider", "Other"),
            ("", "Other"),
        ] {
            assert_eq!(ProviderReason::in_text(text).word(), word, "{text}");
        }
        let words: BTreeSet<&str> = WORDS.into_iter().chain([OTHER]).collect();
        assert_eq!(words.len(), ProviderReason::COUNT);
    }
}
