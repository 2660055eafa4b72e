//! Address and authority of the manager, for clients.

use meridian_shared::identity::CaPin;

/// Address and authority of the manager, for the commands that it prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// URL of the form `https://HOST:PORT`.
    pub url: String,
    /// The certificate authority that agents pin.
    pub ca_pin: CaPin,
    /// PEM certificate of that authority, for kubeconfigs.
    pub ca_pem: String,
}
