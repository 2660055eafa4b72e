//! How an agent is named and let in: what join and renewal say, and the text forms of pins, tokens and names.
//!
//! Owns the vocabulary only. Keys, certificates and connections belong to the shells; a token's record (which cluster it
//! is bound to, until when, used or not) belongs to the manager's core. Nothing here prints a secret in its debug form.

use crate::ids::{ClusterName, Jurisdiction, LedgerId, Region};
use crate::time::Wall;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// Where an agent sends its [`JoinRequest`]; no client certificate is asked for.
pub const JOIN_PATH: &str = "/agent/v1/join";
/// Where an agent sends its [`RenewRequest`]; an expired, unrevoked certificate is good for this path only.
pub const RENEW_PATH: &str = "/agent/v1/renew";

/// Longest cluster name in bytes: a DNS subdomain (RFC 1123), as Kubernetes has it for object names.
const CLUSTER_NAME_BYTES_MAX: usize = 253;
const AGENT_URI_PREFIX: &str = "spiffe://meridian/agent/";
const TOKEN_PREFIX: &str = "mj_";
/// 256 bits in unpadded base64url.
const TOKEN_CHARS: usize = 43;

/// The name that a certificate carries for the agent of `cluster`.
pub fn agent_uri(cluster: &ClusterName) -> String {
    format!("{AGENT_URI_PREFIX}{cluster}")
}

/// The cluster that [`agent_uri`] was made from; `None` for any other text.
pub fn cluster_of_uri(uri: &str) -> Option<ClusterName> {
    uri.strip_prefix(AGENT_URI_PREFIX).filter(|name| is_cluster_name(name)).map(ClusterName::new)
}

/// Whether `name` is a DNS subdomain, so that it survives in a URI and in an object's name unescaped.
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
            /// The SHA-256 of `bytes`.
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
                let hex = text.strip_prefix($prefix).filter(|h| h.len() == 64 && h.bytes().all(|b| b.is_ascii_hexdigit())).ok_or_else(bad)?;
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
    /// What the join command pins: SHA-256 of the SubjectPublicKeyInfo of the manager's server authority (as in RFC 7469).
    CaPin, "sha256:"
}
digest! {
    /// SHA-256 of a whole certificate in DER; names one issued certificate.
    Fingerprint, ""
}
digest! {
    /// SHA-256 of a public key in SubjectPublicKeyInfo form; tells whether two signing requests come from one key.
    KeyHash, ""
}
digest! {
    /// All that is kept of a token. A token has 256 random bits, so that a plain hash can't be reversed by guessing.
    TokenHash, ""
}

/// A one-time token as it is printed and sent. Its debug form shows nothing.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct JoinToken(String);

impl JoinToken {
    /// From 256 bits that the caller encoded as unpadded base64url.
    pub fn from_base64url(encoded: &str) -> Result<Self, String> {
        format!("{TOKEN_PREFIX}{encoded}").parse()
    }

    /// The secret text, to print it once or to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(self.0.as_bytes())
    }
}

impl FromStr for JoinToken {
    type Err = String;
    /// The error does not repeat the text: most of a mistyped secret is a secret.
    fn from_str(text: &str) -> Result<Self, String> {
        let sound = |t: &&str| {
            t.len() == TOKEN_CHARS && t.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        text.strip_prefix(TOKEN_PREFIX)
            .filter(sound)
            .map(|_| Self(text.to_owned()))
            .ok_or_else(|| format!("a join token is `{TOKEN_PREFIX}` followed by {TOKEN_CHARS} characters; copy it whole from `meridian cluster join`"))
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

/// An agent asks to be let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Works once; says which cluster, region and jurisdiction the asker becomes.
    pub token: JoinToken,
    /// A PKCS#10 signing request in PEM; only its public key counts, its names are ignored.
    pub csr_pem: String,
    /// The agent's ledger, where it has one already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerId>,
}

/// An agent asks for its next certificate, over a connection that shows the present one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewRequest {
    /// As in [`JoinRequest::csr_pem`]; a new key is expected every time.
    pub csr_pem: String,
}

/// The answer to both: who the agent is from now on. All of it comes from the manager's own records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinResponse {
    /// The certificate, in PEM, without its authority.
    pub certificate_pem: String,
    /// The cluster it names.
    pub cluster: ClusterName,
    /// Where that cluster is.
    pub region: Region,
    /// Under whose law.
    pub jurisdiction: Jurisdiction,
    /// When the certificate stops being good for anything but renewal.
    pub not_after: Wall,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_gives_back_only_names_that_it_was_made_from() {
        for name in ["eu", "eu-west.1", "0"] {
            assert_eq!(cluster_of_uri(&agent_uri(&name.into())), Some(name.into()), "{name}");
        }
        for uri in [
            "spiffe://meridian/agent/",
            "spiffe://meridian/agent/eu/x",
            "spiffe://meridian/agent/EU",
            "spiffe://meridian/agent/-a",
            "spiffe://other/agent/eu",
            "eu",
        ] {
            assert_eq!(cluster_of_uri(uri), None, "{uri}");
        }
        assert!(!is_cluster_name(&"a".repeat(CLUSTER_NAME_BYTES_MAX + 1)));
        assert!(!is_cluster_name("a..b"));
    }

    #[test]
    fn digests_survive_their_text_form_and_refuse_others() {
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
    fn a_token_never_shows_itself() {
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
