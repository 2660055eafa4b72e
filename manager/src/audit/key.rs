//! The Ed25519 key that signs the seals of segments.

use super::error::Error;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use meridian_private_files as files;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::Path;

/// The private key, in the manager's directory `identity`.
pub const KEY_FILE: &str = "audit-key.pem";
/// Bytes before the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// A public key, written as base64 in documents and as PEM in files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The key in `pem`. The error says why `pem` isn't a key.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let info = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes()).map_err(|e| e.to_string())?;
        info.strip_prefix(&SPKI_PREFIX)
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| "it is not the PEM of an Ed25519 public key".into())
    }

    pub fn to_pem(self) -> String {
        let info = STANDARD.encode([&SPKI_PREFIX[..], &self.0].concat());
        format!("-----BEGIN PUBLIC KEY-----\n{info}\n-----END PUBLIC KEY-----\n")
    }

    /// Whether this key made `signature` (base64) over `bytes`.
    pub fn verifies(self, bytes: &[u8], signature: &str) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.0);
        STANDARD.decode(signature).is_ok_and(|signature| key.verify(bytes, &signature).is_ok())
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(serde::de::Error::custom)?;
        bytes.try_into().map(Self).map_err(|_| serde::de::Error::custom("a key has 32 bytes"))
    }
}

/// The private key.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// The key in the directory `identity`. Creates it if it doesn't exist.
    ///
    /// # Errors
    /// If the file can't be read, written or used.
    pub fn load_or_create(identity: &Path) -> Result<Self, Error> {
        files::make_dir(identity)?;
        let path = identity.join(KEY_FILE);
        if files::read(&path)?.is_none() {
            let unusable = |_| Error::Key { path: path.clone(), what: "no key can be made".into() };
            let made = Ed25519KeyPair::generate().and_then(|pair| pair.to_pkcs8v1()).map_err(unusable)?;
            let body = STANDARD.encode(made.as_ref());
            files::create(
                &path,
                &format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"),
            )?;
        }
        Self::load(identity)
    }

    /// The key in the directory `identity`.
    ///
    /// # Errors
    /// If the file is missing or can't be read or used.
    pub fn load(identity: &Path) -> Result<Self, Error> {
        let path = identity.join(KEY_FILE);
        let unusable = |what: String| Error::Key { path: path.clone(), what };
        let text = files::read(&path)?.ok_or_else(|| unusable("there is no such file".into()))?;
        let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes())
            .map_err(|error| unusable(error.to_string()))?;
        let pair = Ed25519KeyPair::from_pkcs8(der.secret_pkcs8_der())
            .map_err(|error| unusable(error.to_string()))?;
        let public =
            pair.public_key().as_ref().try_into().map_err(|_| unusable("it doesn't have 32 bytes".into()))?;
        Ok(Self { pair, public: PublicKey(public) })
    }

    pub fn public(&self) -> PublicKey {
        self.public
    }

    pub(super) fn sign(&self, bytes: &[u8]) -> String {
        STANDARD.encode(self.pair.sign(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_key_is_made_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let made = SigningKey::load_or_create(dir.path()).unwrap();
        let again = SigningKey::load_or_create(dir.path()).unwrap();
        assert_eq!(made.public(), again.public());
        let mode = std::fs::metadata(dir.path().join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let signature = made.sign(b"bytes");
        let public = PublicKey::from_pem(&made.public().to_pem()).unwrap();
        assert!(public.verifies(b"bytes", &signature));
        assert!(!public.verifies(b"other bytes", &signature));
        assert!(PublicKey::from_pem("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n").is_err());
    }
}
