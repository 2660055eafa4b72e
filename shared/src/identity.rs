//! Names and joins of agents: the messages of joining and renewal, and the text forms of pins, tokens and
//! names.
//!
//! Only types and their text forms. Keys, certificates and connections belong to the shells. The record of a
//! token (its cluster, its expiry, whether it was used) belongs to the manager's core. No debug form here
//! shows a secret.

use crate::ids::{ClusterName, Jurisdiction, LedgerId, RecordNumber, Region, Uid};
use crate::time::Wall;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// Path of [`JoinRequest`]s. No client certificate is needed.
pub const JOIN_PATH: &str = "/agent/v1/join";
/// Path of [`IssuerJoinRequest`]s, with a token of the agent's service account. No client certificate is
/// needed.
pub const ISSUER_JOIN_PATH: &str = "/agent/v1/join-by-issuer";
/// Path of [`RenewRequest`]s. An expired certificate is accepted on this path only.
pub const RENEW_PATH: &str = "/agent/v1/renew";

/// Longest cluster name in bytes: a DNS subdomain (RFC 1123), as for object names in Kubernetes.
const CLUSTER_NAME_BYTES_MAX: usize = 253;
const AGENT_URI_PREFIX: &str = "spiffe://meridian/agent/";
const TOKEN_PREFIX: &str = "mj_";
/// 256 bits in unpadded base64url.
const TOKEN_CHARS: usize = 43;

/// Binding of a certificate, in addition to the name of its cluster. For each cluster, only one binding is
/// valid; the manager's journal has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateBinding {
    /// The `Cluster` object. A cluster that is created again under the same name has another uid.
    pub cluster_uid: Uid,
    /// Number of the record that voided all earlier certificates of the cluster, so a later generation is
    /// larger.
    pub generation: RecordNumber,
}

/// The name that a certificate carries for the agent of `cluster`.
pub fn agent_uri(cluster: &ClusterName, binding: CertificateBinding) -> String {
    format!("{AGENT_URI_PREFIX}{cluster}/{}/{}", binding.cluster_uid, binding.generation)
}

/// The parts of a URI made by [`agent_uri`]; `None` for any other text.
pub fn parse_agent_uri(uri: &str) -> Option<(ClusterName, CertificateBinding)> {
    let mut parts = uri.strip_prefix(AGENT_URI_PREFIX)?.split('/');
    let cluster = parts.next().filter(|name| is_cluster_name(name)).map(ClusterName::new)?;
    let cluster_uid = parts.next()?.parse().ok()?;
    let generation = RecordNumber(parts.next()?.parse().ok()?);
    let binding = CertificateBinding { cluster_uid, generation };
    // one text per name: numbers and uids have other spellings, which the manager never writes
    (agent_uri(&cluster, binding) == uri).then_some((cluster, binding))
}

/// Whether `name` is a DNS subdomain, so that it needs no escaping in a URI and in an object's name.
pub fn is_cluster_name(name: &str) -> bool {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let label = |l: &str| {
        let bytes = l.as_bytes();
        bytes.first().is_some_and(|b| edge(*b))
            && bytes.last().is_some_and(|b| edge(*b))
            && bytes.iter().all(|b| edge(*b) || *b == b'-')
    };
    name.len() <= CLUSTER_NAME_BYTES_MAX && name.split('.').all(label)
}

macro_rules! digest {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 32]);

        impl $name {
            pub fn of(bytes: &[u8]) -> Self {
                Self(Sha256::digest(bytes).into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                let bad = || format!("`{text}` is not `{}` followed by 64 hexadecimal digits", $prefix);
                let is_hex = |h: &&str| h.len() == 64 && h.bytes().all(|b| b.is_ascii_hexdigit());
                let hex = text.strip_prefix($prefix).filter(is_hex).ok_or_else(bad)?;
                let mut bytes = [0; 32];
                for (i, byte) in bytes.iter_mut().enumerate() {
                    *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
                }
                Ok(Self(bytes))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

digest! {
    /// SHA-256 of the SubjectPublicKeyInfo of the manager's server authority (as in RFC 7469), pinned by the
    /// join command.
    CaPin, "sha256:"
}
digest! {
    /// SHA-256 of a whole certificate in DER; identifies one issued certificate.
    Fingerprint, ""
}
digest! {
    /// SHA-256 of a public key in SubjectPublicKeyInfo form; shows whether two signing requests come from one
    /// key.
    KeyHash, ""
}
digest! {
    /// Hash of a token, as the manager stores it. A token has 256 random bits, so a plain hash can't be
    /// reversed by guessing.
    TokenHash, ""
}

/// A one-time token as it is printed and sent. Its debug form hides it.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct JoinToken(String);

impl JoinToken {
    /// A token from 256 bits, encoded as unpadded base64url. Fails for text of another length or alphabet.
    pub fn from_base64url(encoded: &str) -> Result<Self, String> {
        format!("{TOKEN_PREFIX}{encoded}").parse()
    }

    /// The secret text, to print it once or to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn hash(&self) -> TokenHash {
        TokenHash::of(self.0.as_bytes())
    }
}

impl FromStr for JoinToken {
    type Err = String;
    /// The error doesn't repeat the text, because most of a mistyped secret is still secret.
    fn from_str(text: &str) -> Result<Self, String> {
        let sound = |t: &&str| {
            t.len() == TOKEN_CHARS && t.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        text.strip_prefix(TOKEN_PREFIX).filter(sound).map(|_| Self(text.to_owned())).ok_or_else(|| {
            format!(
                "a join token is `{TOKEN_PREFIX}` followed by {TOKEN_CHARS} characters; \
                copy it whole from `meridian cluster join`"
            )
        })
    }
}

impl<'de> Deserialize<'de> for JoinToken {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinToken(…)")
    }
}

/// An agent's request to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Works only once. Bound to a cluster, a region and a jurisdiction.
    pub token: JoinToken,
    /// A PKCS#10 signing request in PEM. Only its public key counts; names in it are ignored.
    pub csr_pem: String,
    /// The agent's ledger, if it has one already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerId>,
}

/// An agent's request to join by its service account.
#[derive(Clone, Serialize, Deserialize)]
pub struct IssuerJoinRequest {
    /// A JSON Web Token (RFC 7519) that the agent's own cluster has signed for it.
    pub service_account_token: String,
    /// A signing request, see [`JoinRequest::csr_pem`].
    pub csr_pem: String,
}

/// Hides the token.
impl fmt::Debug for IssuerJoinRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuerJoinRequest").finish_non_exhaustive()
    }
}

/// An agent's request for its next certificate, over a connection with the present certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewRequest {
    /// A signing request, see [`JoinRequest::csr_pem`]. A new key is expected every time.
    pub csr_pem: String,
}

/// The answer to all requests: the agent's identity from now on, from the manager's own records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinResponse {
    /// In PEM, without its authority.
    pub certificate_pem: String,
    /// The cluster that the certificate names.
    pub cluster: ClusterName,
    pub region: Region,
    pub jurisdiction: Jurisdiction,
    /// End of validity. Afterwards the certificate is accepted for renewal only.
    pub not_after: Wall,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_agents_parse_back_to_their_names() {
        let binding = CertificateBinding { cluster_uid: Uid(7), generation: RecordNumber(12) };
        for name in ["eu", "eu-west.1", "0"] {
            assert_eq!(
                parse_agent_uri(&agent_uri(&name.into(), binding)),
                Some((name.into(), binding)),
                "{name}"
            );
        }
        let uid = Uid(7);
        for uri in [
            "spiffe://meridian/agent/".to_owned(),
            "spiffe://meridian/agent/eu".to_owned(),
            format!("spiffe://meridian/agent/eu/{uid}"),
            format!("spiffe://meridian/agent/eu/{uid}/"),
            format!("spiffe://meridian/agent/eu/{uid}/012"),
            format!("spiffe://meridian/agent/eu/{uid}/+12"),
            format!("spiffe://meridian/agent/eu/{uid}/12/x"),
            format!("spiffe://meridian/agent/eu/{{{uid}}}/12"),
            format!("spiffe://meridian/agent/EU/{uid}/12"),
            format!("spiffe://meridian/agent/-a/{uid}/12"),
            format!("spiffe://other/agent/eu/{uid}/12"),
            "eu".to_owned(),
        ] {
            assert_eq!(parse_agent_uri(&uri), None, "{uri}");
        }
        assert!(!is_cluster_name(&"a".repeat(CLUSTER_NAME_BYTES_MAX + 1)));
        assert!(!is_cluster_name("a..b"));
    }

    #[test]
    fn digests_parse_from_their_own_text_only() {
        let pin = CaPin::of(b"abc");
        // FIPS 180-4, example of SHA-256 of "abc".
        assert_eq!(
            pin.to_string(),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(pin.to_string().parse::<CaPin>().unwrap(), pin);
        assert!("ba78".parse::<CaPin>().unwrap_err().contains("sha256:"));
        assert!("sha256:+1".parse::<CaPin>().is_err());
        assert!(format!("sha256:{}", "é".repeat(32)).parse::<CaPin>().is_err());
    }

    #[test]
    fn tokens_are_hidden_in_debug_output_and_errors() {
        let text = format!("mj_{}", "A".repeat(43));
        let token: JoinToken = text.parse().unwrap();
        assert!(!format!("{token:?}").contains("AAA"));
        let error = format!("{text}A").parse::<JoinToken>().unwrap_err();
        assert!(!error.contains("AAA"), "{error}");
        let request = JoinRequest { token, csr_pem: String::new(), ledger: None };
        let json = serde_json::to_string(&request).unwrap();
        assert_eq!(json, format!(r#"{{"token":"{text}","csr_pem":""}}"#));
        assert_eq!(serde_json::from_str::<JoinRequest>(&json).unwrap(), request);
    }
}
