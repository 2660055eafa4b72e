//! Agents that prove their identity by a token of their service account, signed by an `OpenID` Connect
//! provider. A Kubernetes API server is such a provider for the pods of its cluster.
//!
//! A token is accepted for a cluster if the settings name its issuer and subject for the cluster, it is meant
//! for this manager (`aud`), it is valid now, and a key of the issuer has signed it. The keys are read from
//! the issuer's discovery document (`OpenID` Connect Discovery 1.0, section 4), or, for issuers that this
//! machine can't reach, from a file.

mod keys;

use crate::locks;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use keys::IssuerKeys;
use meridian_manager_core::facts::input::ClusterPlace;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Path of an issuer's discovery document.
const DISCOVERY: &str = "/.well-known/openid-configuration";
/// Longest wait for one document of an issuer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Largest document of an issuer, in bytes; usual ones have a few thousand.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// Algorithms with public keys only. If algorithms with a shared secret were accepted, an attacker could sign
/// with the public key as the secret.
const ALGORITHMS: [Algorithm; 7] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// An agent that may join by its service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedAgent {
    pub place: ClusterPlace,
    /// URL of the issuer, as tokens name it in `iss`.
    pub issuer: String,
    /// The service account, `system:serviceaccount:NAMESPACE:NAME`.
    pub subject: String,
    /// The audience that tokens must name in `aud`.
    pub audience: String,
    /// A JSON Web Key Set (RFC 7517) with the issuer's keys, used instead of asking the issuer.
    pub keys_file: Option<PathBuf>,
    /// PEM certificates of the authorities of the issuer's server, instead of those of the system.
    pub ca_file: Option<PathBuf>,
}

/// Why a token isn't accepted.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("this is not a token of a service account: {0}")]
    Malformed(String),
    #[error(
        "no agent may join as `{subject}` of issuer `{issuer}`: add it to `join-by-issuer` of the manager's \
         settings"
    )]
    Unknown { issuer: String, subject: String },
    #[error("the token is not accepted: {0}")]
    Invalid(String),
    /// The keys are unknown, so the token may be valid.
    #[error("the keys of issuer `{issuer}` can't be read: {why}")]
    Keys { issuer: String, why: String },
}

/// The trusted agents, and the keys of their issuers.
#[derive(Debug, Default)]
pub(super) struct Issuers {
    trusted: Vec<TrustedAgent>,
    keys: Mutex<BTreeMap<String, Arc<IssuerKeys>>>,
}

/// The account that a token names; not verified yet.
#[derive(Debug, Deserialize)]
struct Claimed {
    iss: String,
    sub: String,
}

impl Issuers {
    pub(super) fn new(trusted: Vec<TrustedAgent>) -> Self {
        Self { trusted, keys: Mutex::default() }
    }

    /// The cluster for which the bearer of this token may join. Fails if the token proves nothing.
    pub(super) async fn verify(&self, token: &str) -> Result<ClusterPlace, Refusal> {
        let claimed = claimed(token)?;
        let is_named = |agent: &&TrustedAgent| agent.issuer == claimed.iss && agent.subject == claimed.sub;
        let Some(agent) = self.trusted.iter().find(is_named) else {
            return Err(Refusal::Unknown {
                issuer: printable(&claimed.iss),
                subject: printable(&claimed.sub),
            });
        };
        let key_id = jsonwebtoken::decode_header(token).map_err(|e| Refusal::Malformed(e.to_string()))?.kid;
        let keys = self.keys(agent, key_id.as_deref()).await?;
        check(token, agent, &keys)?;
        Ok(agent.place.clone())
    }

    /// The keys of an agent's issuer, including the wanted key if the issuer has it.
    async fn keys(&self, agent: &TrustedAgent, wanted: Option<&str>) -> Result<Arc<JwkSet>, Refusal> {
        let unreadable = |why| Refusal::Keys { issuer: agent.issuer.clone(), why };
        if let Some(path) = &agent.keys_file {
            let bytes = tokio::fs::read(path).await;
            let bytes = bytes.map_err(|error| unreadable(format!("`{}`: {error}", path.display())))?;
            let keys = serde_json::from_slice(&bytes);
            return keys.map(Arc::new).map_err(|e| unreadable(format!("`{}`: {e}", path.display())));
        }
        let known = Arc::clone(locks::lock(&self.keys).entry(agent.issuer.clone()).or_default());
        let of_agent = agent.clone();
        let read = async move { fetch_keys(&of_agent).await };
        known.get(wanted, read).await.map_err(unreadable)
    }
}

/// The account that a token claims, not verified: it only selects the rule by which the token is checked.
fn claimed(token: &str) -> Result<Claimed, Refusal> {
    let payload = token.split('.').nth(1).ok_or_else(|| Refusal::Malformed("it has no claims".to_owned()))?;
    let bytes = URL_SAFE_NO_PAD.decode(payload).map_err(|e| Refusal::Malformed(e.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|e| Refusal::Malformed(e.to_string()))
}

/// Checks signature, times, audience, issuer and subject.
fn check(token: &str, agent: &TrustedAgent, keys: &JwkSet) -> Result<(), Refusal> {
    let invalid = |why: String| Refusal::Invalid(why);
    let header = jsonwebtoken::decode_header(token).map_err(|e| Refusal::Malformed(e.to_string()))?;
    if !ALGORITHMS.contains(&header.alg) {
        return Err(invalid("it is not signed with a public key".to_owned()));
    }
    let key = match &header.kid {
        Some(id) => keys.find(id),
        None if keys.keys.len() == 1 => keys.keys.first(),
        None => None,
    };
    let key = key.ok_or_else(|| invalid("its key is not one of the issuer's".to_owned()))?;
    let key = DecodingKey::from_jwk(key).map_err(|e| invalid(e.to_string()))?;
    let mut rules = Validation::new(header.alg);
    rules.set_required_spec_claims(&["exp", "iss", "sub", "aud"]);
    rules.set_audience(&[&agent.audience]);
    rules.set_issuer(&[&agent.issuer]);
    rules.sub = Some(agent.subject.clone());
    rules.validate_nbf = true;
    jsonwebtoken::decode::<Claimed>(token, &key, &rules).map(drop).map_err(|e| invalid(e.to_string()))
}

#[derive(Deserialize)]
struct Discovered {
    issuer: String,
    jwks_uri: String,
}

async fn fetch_keys(agent: &TrustedAgent) -> Result<JwkSet, String> {
    let client = client(agent).await?;
    let found: Discovered =
        fetch(&client, &format!("{}{DISCOVERY}", agent.issuer.trim_end_matches('/'))).await?;
    if found.issuer != agent.issuer {
        return Err(format!("its discovery document is that of `{}`", printable(&found.issuer)));
    }
    fetch(&client, &found.jwks_uri).await
}

async fn client(agent: &TrustedAgent) -> Result<reqwest::Client, String> {
    let builder = reqwest::Client::builder()
        .https_only(true)
        .timeout(ANSWER_WITHIN)
        .redirect(reqwest::redirect::Policy::none());
    let builder = match &agent.ca_file {
        None => builder,
        Some(path) => {
            let failed = |why: String| format!("`{}`: {why}", path.display());
            let pem = tokio::fs::read(path).await.map_err(|e| failed(e.to_string()))?;
            let roots = reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| failed(e.to_string()))?;
            builder.tls_certs_only(roots)
        }
    };
    builder.build().map_err(|e| e.to_string())
}

async fn fetch<T: DeserializeOwned>(client: &reqwest::Client, url: &str) -> Result<T, String> {
    let failed = |error: reqwest::Error| format!("`{}`: {}", printable(url), causes(&error));
    let mut response = client.get(url).send().await.map_err(failed)?.error_for_status().map_err(failed)?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        body.extend_from_slice(&chunk);
        if body.len() > DOCUMENT_BYTES_MAX {
            return Err(format!("`{}` is longer than {DOCUMENT_BYTES_MAX} bytes", printable(url)));
        }
    }
    serde_json::from_slice(&body).map_err(|error| format!("`{}`: {error}", printable(url)))
}

/// An error with its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// Text from outside, shortened and without control characters.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
pub(super) mod tests;
