//! Join and renew: the requests by which an agent gets its certificate.

use super::pin::{PinVerifier, ShownAuthority};
use super::{Error, FILE, FILE_VERSION, Identity, http};
use base64::Engine as _;
use meridian_private_files as files;
use meridian_shared::identity::{
    CaPin, ISSUER_JOIN_PATH, IssuerJoinRequest, JOIN_PATH, JoinRequest, JoinResponse, JoinToken, RENEW_PATH,
    RenewRequest,
};
use meridian_shared::ids::LedgerId;
use meridian_shared::time::Wall;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::time::Duration;

/// Timeout of one request; the manager commits a record before it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest answer in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Characters of the manager's text that are shown.
const MESSAGE_CHARS_MAX: usize = 400;
/// File with the key of a join that has no answer yet.
const JOINING_FILE: &str = "joining.key";

/// Joins the manager at `manager` (`https://HOST:PORT`) and stores the identity in `dir`. Fails if an
/// identity exists, or the manager shows another authority than `pin`, can't be reached, or refuses.
///
/// The key is stored before the token is sent. If the answer is lost, the repeated command uses the same key,
/// so that the manager can answer the used token again.
pub async fn join(
    manager: &str,
    token: &JoinToken,
    pin: CaPin,
    ledger: Option<LedgerId>,
    dir: &Path,
) -> Result<Identity, Error> {
    let manager = checked_address(manager)?;
    if let Some(present) = Identity::load(dir)? {
        return Err(Error::AlreadyJoined { cluster: present.cluster, path: dir.join(FILE) });
    }
    files::make_dir(dir)?;
    let key = joining_key(&dir.join(JOINING_FILE))?;
    let verifier = PinVerifier::new(pin);
    let client = http::client(verifier.config()?, &manager)?;
    let request = JoinRequest { token: token.clone(), csr_pem: signing_request(&key)?, ledger };
    let answered = post(&client, &manager, JOIN_PATH, "let this agent join", &request).await;
    let ca = match (verifier.shown(), &answered) {
        (Some(ShownAuthority::Other(found)), _) => {
            return Err(Error::Pin { manager, expected: pin, found: describe(found) });
        }
        (Some(ShownAuthority::Pinned(ca)), Ok(_)) => ca,
        (_, Err(_)) => return Err(answered.expect_err("this arm matched an error")),
        (None, Ok(_)) => return Err(Error::Answer("it came without a TLS handshake".to_owned())),
    };
    let identity = assembled(manager, answered?, &key, pem(&ca))?;
    identity.store(dir)?;
    files::remove(&dir.join(JOINING_FILE))?;
    Ok(identity)
}

/// Joins the manager at `manager` by a token of this agent's service account, and stores the identity in
/// `dir`. `ca_pem` is the manager's authority. Fails if the manager can't be reached, isn't signed for by
/// that authority, or refuses.
pub async fn join_by_issuer(
    manager: &str,
    service_account_token: String,
    ca_pem: &str,
    dir: &Path,
) -> Result<Identity, Error> {
    let manager = checked_address(manager)?;
    files::make_dir(dir)?;
    let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes())
        .map_err(|e| Error::Answer(format!("unreadable certificate of the manager's authority: {e}")))?;
    let client = http::client(http::client_config(ca.clone(), None)?, &manager)?;
    let key = new_key()?;
    let request = IssuerJoinRequest { service_account_token, csr_pem: signing_request(&key)? };
    let answer: JoinResponse =
        post(&client, &manager, ISSUER_JOIN_PATH, "let this agent join", &request).await?;
    let identity = assembled(manager, answer, &key, pem(&ca))?;
    identity.store(dir)?;
    Ok(identity)
}

/// Requests the certificate after `present`, over `client` (which presents it), and stores the new identity
/// in `dir`. Fails if the manager can't be reached or refuses, or the answer does not fit.
pub async fn renew(present: &Identity, client: &reqwest::Client, dir: &Path) -> Result<Identity, Error> {
    let key = new_key()?;
    let request = RenewRequest { csr_pem: signing_request(&key)? };
    let answer: JoinResponse =
        post(client, &present.manager, RENEW_PATH, "renew the certificate", &request).await?;
    if answer.cluster != present.cluster {
        return Err(Error::Answer(format!(
            "this agent is `{}` and got a certificate for `{}`",
            present.cluster, answer.cluster
        )));
    }
    let next = assembled(present.manager.clone(), answer, &key, present.ca_pem.clone())?;
    next.store(dir)?;
    Ok(next)
}

fn assembled(
    manager: String,
    answer: JoinResponse,
    key: &KeyPair,
    ca_pem: String,
) -> Result<Identity, Error> {
    let der = CertificateDer::from_pem_slice(answer.certificate_pem.as_bytes())
        .map_err(|e| Error::Answer(format!("unreadable certificate: {e}")))?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der)
        .map_err(|e| Error::Answer(format!("unreadable certificate: {e}")))?;
    let identity = Identity {
        version: FILE_VERSION,
        manager,
        cluster: answer.cluster,
        region: answer.region,
        jurisdiction: answer.jurisdiction,
        not_before: Wall(certificate.validity().not_before.timestamp() * 1_000),
        not_after: answer.not_after,
        certificate_pem: answer.certificate_pem,
        ca_pem,
        key_pem: key.serialize_pem(),
    };
    identity.check().map_err(Error::Answer)?;
    Ok(identity)
}

async fn post<Q: Serialize, A: DeserializeOwned>(
    client: &reqwest::Client,
    manager: &str,
    path: &str,
    what: &'static str,
    question: &Q,
) -> Result<A, Error> {
    let unreachable = |source| Error::Unreachable { manager: manager.to_owned(), source };
    let url = format!("{manager}{path}");
    let mut response =
        client.post(url).timeout(ANSWER_TIMEOUT).json(question).send().await.map_err(unreachable)?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(Error::Answer(format!("it is longer than {ANSWER_BYTES_MAX} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    if !status.is_success() {
        return Err(Error::Refused { what, status: status.as_u16(), message: message_of(&body) });
    }
    serde_json::from_slice(&body).map_err(|e| Error::Answer(e.to_string()))
}

/// The message of a Kubernetes `Status`, or the text itself, without control characters.
pub(crate) fn message_of(body: &[u8]) -> String {
    let status: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let message = status.as_ref().and_then(|s| s.get("message")).and_then(|m| m.as_str());
    let text = message.map_or_else(|| String::from_utf8_lossy(body), Into::into);
    let shown: String = text.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect();
    if shown.is_empty() { "it gave no reason".to_owned() } else { shown }
}

/// Fails unless `url` is `https://HOST:PORT`.
pub(super) fn checked_address(url: &str) -> Result<String, Error> {
    let bad = |reason: &str| Error::Address { url: url.to_owned(), reason: reason.to_owned() };
    let parsed = reqwest::Url::parse(url).map_err(|e| bad(&e.to_string()))?;
    if parsed.scheme() != "https" {
        return Err(bad("its scheme is not `https`"));
    }
    if !matches!(parsed.path(), "" | "/")
        || parsed.query().is_some()
        || parsed.fragment().is_some()
        || !parsed.username().is_empty()
    {
        return Err(bad("it has more than a host and a port"));
    }
    Ok(parsed.as_str().trim_end_matches('/').to_owned())
}

fn joining_key(path: &Path) -> Result<KeyPair, Error> {
    if files::read(path)?.is_none() {
        files::create(path, &new_key()?.serialize_pem())?;
    }
    let text = files::read(path)?.unwrap_or_default();
    KeyPair::from_pem(&text).map_err(|e| Error::Unusable { path: path.to_owned(), reason: e.to_string() })
}

fn new_key() -> Result<KeyPair, Error> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

/// Proves possession of `key`. Requests no name, because the manager knows the cluster of the token.
fn signing_request(key: &KeyPair) -> Result<String, Error> {
    Ok(CertificateParams::default().serialize_request(key)?.pem()?)
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    /// RFC 7468: lines of 64 characters.
    const LINE: usize = 64;
    let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
    let lines: Vec<&str> =
        (0..encoded.len()).step_by(LINE).map(|at| &encoded[at..encoded.len().min(at + LINE)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn describe(found: Option<CaPin>) -> String {
    found.map_or_else(
        || "no certificate authority".to_owned(),
        |pin| format!("the certificate authority `{pin}`"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        assert_eq!(checked_address("https://127.0.0.1:7443/").unwrap(), "https://127.0.0.1:7443");
        assert_eq!(checked_address("https://[::1]:7443").unwrap(), "https://[::1]:7443");
        for bad in ["http://a:1", "a:7443", "https://a:1/x", "https://a:1/?q", "https://me@a:1", ""] {
            let error = checked_address(bad).unwrap_err().to_string();
            assert!(error.contains(&format!("`{bad}`")), "{error}");
        }
    }

    #[test]
    fn a_refusal_is_shown_without_control_characters() {
        assert_eq!(
            message_of(br#"{"kind":"Status","message":"the token \u001b[31mwas used"}"#),
            "the token [31mwas used"
        );
        assert_eq!(message_of(b"plain\ntext"), "plaintext");
        assert_eq!(message_of(b""), "it gave no reason");
        assert_eq!(message_of(&[b'a'; 5_000]).len(), MESSAGE_CHARS_MAX);
    }

    #[test]
    fn a_repeated_join_uses_the_same_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(JOINING_FILE);
        let first = joining_key(&path).unwrap();
        assert_eq!(joining_key(&path).unwrap().serialize_der(), first.serialize_der());
    }
}
