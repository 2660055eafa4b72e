//! How the manager is reached.

use meridian_shared::identity::CaPin;

/// How the manager is reached from outside, for the commands that it prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// Of the form `https://HOST:PORT`.
    pub url: String,
    /// The certificate authority that agents pin.
    pub ca_pin: CaPin,
    /// PEM certificate of that authority, for kubeconfigs.
    pub ca_pem: String,
}
