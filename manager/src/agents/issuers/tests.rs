//! Tokens of service accounts, signed here by keys that stand for those of a cluster.

use super::*;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use meridian_shared::ids::{ClusterName, Jurisdiction, Region};
use serde_json::{Value, json};
use std::time::SystemTime;

const ISSUER: &str = "https://issuer.example/eu";
const SUBJECT: &str = "system:serviceaccount:meridian-system:meridian-agent";
const AUDIENCE: &str = "https://manager.example:7443";

/// An issuer with one key.
pub(crate) struct Issuer {
    key: EcdsaKeyPair,
    id: &'static str,
}

impl Issuer {
    pub(crate) fn new(id: &'static str) -> Self {
        Self { key: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(), id }
    }

    pub(crate) fn keys(&self) -> Value {
        // An uncompressed point: 4, then both coordinates.
        let point = self.key.public_key().as_ref();
        let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
        json!({"keys": [{
            "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": self.id,
            "x": part(1..33), "y": part(33..65),
        }]})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    pub(crate) fn token(&self, changes: &Value) -> String {
        let mut claims = json!({
            "iss": ISSUER, "sub": SUBJECT, "aud": [AUDIENCE], "iat": now(), "nbf": now(),
            "exp": now() + 3_600,
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        self.sign(&json!({"alg": "ES256", "kid": self.id, "typ": "JWT"}), &claims)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// The agent of cluster `eu`, which this issuer vouches for.
pub(crate) fn trusted(keys_file: Option<PathBuf>) -> TrustedAgent {
    let place = ClusterPlace {
        cluster: ClusterName::new("eu"),
        region: Region::new("europe-west4"),
        jurisdiction: Jurisdiction::new("EU"),
    };
    let (issuer, subject, audience) = (ISSUER.to_owned(), SUBJECT.to_owned(), AUDIENCE.to_owned());
    TrustedAgent { place, issuer, subject, audience, keys_file, ca_file: None }
}

fn issuers(keys_file: Option<PathBuf>) -> Issuers {
    Issuers::new(vec![trusted(keys_file)])
}

pub(crate) fn written(keys: &Value) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    std::fs::write(&path, keys.to_string()).unwrap();
    (directory, path)
}

#[tokio::test]
async fn a_token_of_the_named_service_account_joins_its_cluster() {
    let issuer = Issuer::new("k1");
    let (_directory, keys) = written(&issuer.keys());
    let place = issuers(Some(keys)).verify(&issuer.token(&json!({}))).await.unwrap();
    assert_eq!(place.cluster.as_str(), "eu");
}

#[tokio::test]
async fn every_part_of_a_token_counts() {
    let issuer = Issuer::new("k1");
    let (_directory, keys) = written(&issuer.keys());
    let issuers = issuers(Some(keys));
    for (changes, why) in [
        (json!({"iss": "https://other.example"}), "no agent may join"),
        (json!({"sub": "system:serviceaccount:default:default"}), "no agent may join"),
        (json!({"aud": ["https://kubernetes.default.svc"]}), "not accepted"),
        (json!({"aud": null}), "not accepted"),
        (json!({"exp": now() - 3_600}), "not accepted"),
        (json!({"exp": null}), "not accepted"),
        (json!({"nbf": now() + 3_600}), "not accepted"),
    ] {
        let error = issuers.verify(&issuer.token(&changes)).await.unwrap_err().to_string();
        assert!(error.contains(why), "{changes}: {error}");
    }
    let forged = Issuer::new("k1").token(&json!({}));
    assert!(matches!(issuers.verify(&forged).await, Err(Refusal::Invalid(_))), "another key of that name");
    let unknown = Issuer::new("k2").token(&json!({}));
    assert!(matches!(issuers.verify(&unknown).await, Err(Refusal::Invalid(_))));
    for garbage in ["", "a", "a.b", "a.b.c", "..", "💥.💥.💥"] {
        assert!(matches!(issuers.verify(garbage).await, Err(Refusal::Malformed(_))), "{garbage}");
    }
}

#[tokio::test]
async fn a_token_without_a_public_key_signature_is_refused() {
    let issuer = Issuer::new("k1");
    let (_directory, keys) = written(&issuer.keys());
    let issuers = issuers(Some(keys));
    let claims = json!({"iss": ISSUER, "sub": SUBJECT, "aud": [AUDIENCE], "exp": now() + 3_600});
    for algorithm in ["none", "HS256", "HS512"] {
        let token = issuer.sign(&json!({"alg": algorithm, "kid": "k1"}), &claims);
        assert!(issuers.verify(&token).await.is_err(), "{algorithm}");
    }
}

#[tokio::test]
async fn keys_that_cannot_be_read_are_no_verdict_about_the_token() {
    let issuer = Issuer::new("k1");
    let missing = issuers(Some("/nonexistent/keys.json".into()));
    let error = missing.verify(&issuer.token(&json!({}))).await.unwrap_err();
    assert!(matches!(error, Refusal::Keys { .. }), "{error}");
}
