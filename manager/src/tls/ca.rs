//! The manager's own authorities, and the certificates that they issue.
//!
//! One directory holds `agents-ca.pem` (issues agents' client certificates), `server-ca.pem` (issues the
//! manager's own certificate; agents and kubeconfigs pin it) and `receipt.key`. Each authority is one file
//! with key and certificate, so that it is created atomically and can't be lost in part. Each file is created
//! once, by the first process that needs it, and then only read. The server's own key never reaches the disk:
//! every start issues a new certificate, which is valid under the pinned authority.
//!
//! This module doesn't decide whether to issue a certificate: the caller has checked token, certificate and
//! revocation.

use super::{Error, verifier::AgentVerifier};
use crate::random;
use meridian_private_files as files;
use meridian_shared::identity::{
    CaPin, CertificateBinding, Fingerprint, KeyHash, agent_uri, is_cluster_name,
};
use meridian_shared::ids::ClusterName;
use meridian_shared::mac::ReceiptKey;
use meridian_shared::time::{Millis, Wall};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
    SanType, SerialNumber,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Default validity of an agent's certificate. With renewals at two thirds, it outlasts some hours without a
/// manager, and a forgotten copy soon becomes worthless.
pub const AGENT_LIFETIME: Millis = Millis::secs(24 * 3_600);
/// Validity of the server's certificate. A running manager replaces it at [`ServerTls::renew_at`].
pub const SERVER_LIFETIME: Millis = Millis::secs(90 * 24 * 3_600);
/// Validity of an authority: ten years. After a replacement every agent must join again.
const AUTHORITY_LIFETIME: Millis = Millis::secs(3_653 * 24 * 3_600);
/// How far a certificate is backdated, for peers with slow clocks.
const BACKDATE_MAX: Millis = Millis::mins(5);
/// Largest signing request in bytes: one for a P-256 key is under 1 KiB.
pub const REQUEST_BYTES_MAX: usize = 8 * 1024;

const AGENTS_FILE: &str = "agents-ca.pem";
const SERVER_FILE: &str = "server-ca.pem";
const RECEIPT_FILE: &str = "receipt.key";

/// The keys and certificates with which the manager signs.
#[derive(Debug)]
pub struct Authorities {
    agents: Authority,
    server: Authority,
    receipt_key: ReceiptKey,
}

/// A certificate for an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The certificate without its authority.
    pub pem: String,
    pub not_after: Wall,
    /// Identifies the certificate in records and in the audit log.
    pub fingerprint: Fingerprint,
}

/// TLS settings of the port, with a new certificate.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub config: Arc<rustls::ServerConfig>,
    /// When to replace the settings by [`super::listener::Settings::swap`]: at two thirds of the lifetime.
    pub renew_at: Wall,
}

impl Authorities {
    /// Reads the authorities in `dir`, and creates those that don't exist.
    ///
    /// # Errors
    /// If a file can't be read, written or used, or the random source fails.
    pub fn load_or_create(dir: &Path, now: Wall) -> Result<Self, Error> {
        files::make_dir(dir)?;
        Ok(Self {
            agents: Authority::load_or_create(&dir.join(AGENTS_FILE), "Meridian agents authority", now)?,
            server: Authority::load_or_create(&dir.join(SERVER_FILE), "Meridian server authority", now)?,
            receipt_key: load_or_create_receipt_key(&dir.join(RECEIPT_FILE))?,
        })
    }

    /// The pin of the authority in `dir`; `None` if there is none yet. Creates nothing.
    ///
    /// # Errors
    /// If the file can't be read or used.
    pub fn known_pin(dir: &Path) -> Result<Option<CaPin>, Error> {
        let path = dir.join(SERVER_FILE);
        let Some(text) = files::read(&path)? else { return Ok(None) };
        Ok(Some(Authority::parse(&path, &text)?.pin()))
    }

    /// Signs the key of `csr_pem` for the agent of `cluster`. Names and usages in the request are ignored.
    ///
    /// # Errors
    /// If the request or the cluster's name is invalid.
    pub fn issue_agent(
        &self,
        csr_pem: &str,
        (cluster, binding): (&ClusterName, CertificateBinding),
        now: Wall,
        lifetime: Millis,
    ) -> Result<Issued, Error> {
        if !is_cluster_name(cluster.as_str()) {
            return Err(Error::ClusterName(cluster.to_string()));
        }
        let request = parsed_request(csr_pem)?;
        let issue = |source| Error::Issue { what: "an agent", source };
        let uri = agent_uri(cluster, binding).as_str().try_into().map_err(issue)?;
        let mut params = leaf(cluster.as_str(), now, lifetime, ExtendedKeyUsagePurpose::ClientAuth)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        let not_after = Wall(seconds(now + lifetime) * 1_000);
        let certificate = params.signed_by(&request.public_key, &self.agents.issuer).map_err(issue)?;
        Ok(Issued { pem: certificate.pem(), not_after, fingerprint: Fingerprint::of(certificate.der()) })
    }

    /// Settings for the port: a new server certificate for `names` (host names and addresses), and optional
    /// client certificates from the agents' authority.
    ///
    /// # Errors
    /// If a name is neither a host name nor an address.
    pub fn server_tls(&self, names: &[String], now: Wall) -> Result<ServerTls, Error> {
        let issue = |source| Error::Issue { what: "the server", source };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(issue)?;
        let mut params = leaf("meridian manager", now, SERVER_LIFETIME, ExtendedKeyUsagePurpose::ServerAuth)?;
        for name in names {
            let bad =
                |reason: rcgen::Error| Error::ServerName { name: name.clone(), reason: reason.to_string() };
            params
                .subject_alt_names
                .extend(CertificateParams::new(vec![name.clone()]).map_err(bad)?.subject_alt_names);
        }
        let certificate = params.signed_by(&key, &self.server.issuer).map_err(issue)?;
        // send the authority too, because a joining agent knows only the authority's pin
        let chain = vec![certificate.der().clone(), self.server.certificate.clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = AgentVerifier::new(self.agents.certificate.clone(), provider.clone())?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A resumed session would bypass the verifier. Connections are few and long, so resumption would gain
        // little.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(ServerTls { config: Arc::new(config), renew_at: now + Millis(SERVER_LIFETIME.0 / 3 * 2) })
    }

    /// The server authority's certificate, for kubeconfigs.
    pub fn server_ca_pem(&self) -> &str {
        &self.server.certificate_pem
    }

    /// The pin in the join command.
    pub fn ca_pin(&self) -> CaPin {
        self.server.pin()
    }

    pub fn receipt_key(&self) -> &ReceiptKey {
        &self.receipt_key
    }
}

/// The key that signed `csr_pem`. Stored with a used token, it lets a handler repeat a lost answer to a join,
/// for the same agent only.
///
/// # Errors
/// If the request is malformed, too long, or for another kind of key.
pub fn request_key(csr_pem: &str) -> Result<KeyHash, Error> {
    Ok(KeyHash::of(&parsed_request(csr_pem)?.public_key.subject_public_key_info()))
}

fn parsed_request(csr_pem: &str) -> Result<CertificateSigningRequestParams, Error> {
    if csr_pem.len() > REQUEST_BYTES_MAX {
        return Err(Error::Request(format!("it is longer than {REQUEST_BYTES_MAX} bytes")));
    }
    let request =
        CertificateSigningRequestParams::from_pem(csr_pem).map_err(|e| Error::Request(e.to_string()))?;
    if request.public_key.algorithm() != &PKCS_ECDSA_P256_SHA256 {
        return Err(Error::Request("its key is not ECDSA P-256".to_owned()));
    }
    Ok(request)
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

impl Authority {
    fn pin(&self) -> CaPin {
        CaPin::of(&self.issuer.key().subject_public_key_info())
    }

    fn load_or_create(path: &Path, name: &str, now: Wall) -> Result<Self, Error> {
        if let Some(text) = files::read(path)? {
            return Self::parse(path, &text);
        }
        let fresh = Self::generate(name, now)?;
        if files::create(path, &fresh)? {
            tracing::info!(path = %path.display(), "created a new certificate authority");
        }
        // read back, so that two concurrent first starts use the same file
        let text = files::read(path)?.ok_or_else(|| unusable(path, "it was removed during the start"))?;
        Self::parse(path, &text)
    }

    /// Key and certificate as one PEM text.
    fn generate(name: &str, now: Wall) -> Result<String, Error> {
        let issue = |source| Error::Issue { what: "an authority", source };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(issue)?;
        let mut params = dated(name, now, AUTHORITY_LIFETIME)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(issue)?;
        Ok(format!("{}{}", key.serialize_pem(), certificate.pem()))
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|e| unusable(path, &format!("no private key: {e}")))?;
        let key =
            KeyPair::try_from(&key).map_err(|e| unusable(path, &format!("unreadable private key: {e}")))?;
        let certificate = CertificateDer::from_pem_slice(text.as_bytes())
            .map_err(|e| unusable(path, &format!("no certificate: {e}")))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|e| unusable(path, &format!("unreadable certificate: {e}")))?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(unusable(path, "its key belongs to another certificate"));
        }
        let issuer =
            Issuer::from_ca_cert_der(&certificate, key).map_err(|e| unusable(path, &e.to_string()))?;
        let begin =
            text.find("-----BEGIN CERTIFICATE-----").ok_or_else(|| unusable(path, "no certificate"))?;
        Ok(Self { issuer, certificate_pem: text[begin..].to_owned(), certificate })
    }
}

fn load_or_create_receipt_key(path: &Path) -> Result<ReceiptKey, Error> {
    let stored = match files::read(path)? {
        Some(text) => text,
        None => {
            let fresh: String = random::bytes::<32>()?.iter().map(|b| format!("{b:02x}")).collect();
            files::create(path, &format!("{fresh}\n"))?;
            files::read(path)?.ok_or_else(|| unusable(path, "it was removed during the start"))?
        }
    };
    // a digest's text form fits any 32 bytes
    let bytes: KeyHash =
        stored.trim_end().parse().map_err(|_| unusable(path, "it is not 64 hexadecimal digits"))?;
    Ok(ReceiptKey(bytes.0))
}

fn leaf(
    name: &str,
    now: Wall,
    lifetime: Millis,
    usage: ExtendedKeyUsagePurpose,
) -> Result<CertificateParams, Error> {
    let mut params = dated(name, now, lifetime)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// Parameters with a name, a random serial number and dates. A short-lived certificate is backdated less, so
/// that two thirds of its validity are still ahead.
fn dated(name: &str, now: Wall, lifetime: Millis) -> Result<CertificateParams, Error> {
    let backdate = BACKDATE_MAX.min(Millis(lifetime.0 / 10));
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |wall: Wall| epoch + Duration::from_secs(seconds(wall).try_into().unwrap_or(0));
    let mut params = CertificateParams::default();
    params.not_before = at(Wall(now.0 - i64::try_from(backdate.0).unwrap_or(0)));
    params.not_after = at(now + lifetime);
    let mut serial = random::bytes::<16>()?;
    // RFC 5280: positive and at most 20 octets. A cleared top bit needs no padding, and the set bit avoids
    // zero.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// Whole seconds, as certificates count them.
fn seconds(wall: Wall) -> i64 {
    wall.0.div_euclid(1_000)
}

fn unusable(path: &Path, reason: &str) -> Error {
    Error::Unusable { path: path.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_shared::ids::{RecordNumber, Uid};
    use std::os::unix::fs::PermissionsExt;

    const NOW: Wall = Wall(1_795_000_000_123);

    fn binding() -> CertificateBinding {
        CertificateBinding { cluster_uid: Uid(7), generation: RecordNumber(12) }
    }

    fn request(params: CertificateParams, key: &KeyPair) -> String {
        params.serialize_request(key).unwrap().pem().unwrap()
    }

    #[test]
    fn authorities_are_created_once() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("tls");
        let first = Authorities::load_or_create(&home, NOW).unwrap();
        let again = Authorities::load_or_create(&home, NOW + Millis::mins(5)).unwrap();
        assert_eq!(first.ca_pin(), again.ca_pin());
        assert_eq!(first.agents.certificate, again.agents.certificate);
        assert_eq!(first.receipt_key(), again.receipt_key());
        assert_ne!(first.agents.issuer.key().public_key_raw(), first.server.issuer.key().public_key_raw());
        for file in [AGENTS_FILE, SERVER_FILE, RECEIPT_FILE] {
            assert_eq!(
                std::fs::metadata(home.join(file)).unwrap().permissions().mode() & 0o777,
                0o600,
                "{file}"
            );
        }
        assert!(!first.server_ca_pem().contains("PRIVATE"));
        assert!(!format!("{first:?}").contains("PRIVATE"));
    }

    #[test]
    fn a_damaged_file_is_refused_and_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        Authorities::load_or_create(dir.path(), NOW).unwrap();
        let path = dir.path().join(AGENTS_FILE);
        let whole = std::fs::read_to_string(&path).unwrap();
        let server = std::fs::read_to_string(dir.path().join(SERVER_FILE)).unwrap();
        let key = &whole[..whole.find("-----BEGIN CERTIFICATE").unwrap()];
        let foreign = &server[server.find("-----BEGIN CERTIFICATE").unwrap()..];
        for damaged in [String::new(), key.to_owned(), format!("{key}{foreign}")] {
            std::fs::write(&path, &damaged).unwrap();
            let error = Authorities::load_or_create(dir.path(), NOW).unwrap_err().to_string();
            assert!(error.contains(AGENTS_FILE) && error.contains("backup"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged);
        }
    }

    #[test]
    fn names_and_uses_in_a_request_are_ignored() {
        let binding = binding();
        let dir = tempfile::tempdir().unwrap();
        let authorities = Authorities::load_or_create(dir.path(), NOW).unwrap();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::new(vec!["manager.example".to_owned()]).unwrap();
        params
            .subject_alt_names
            .push(SanType::URI(agent_uri(&"us".into(), binding).as_str().try_into().unwrap()));
        params.distinguished_name.push(DnType::CommonName, "us");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let csr = request(params, &key);
        let issued = authorities.issue_agent(&csr, (&"eu".into(), binding), NOW, Millis::mins(10)).unwrap();

        let der = CertificateDer::from_pem_slice(issued.pem.as_bytes()).unwrap();
        let (_, cert) = x509_parser::parse_x509_certificate(&der).unwrap();
        let identity = super::super::peer::agent_identity(&der).unwrap();
        assert_eq!((identity.cluster.as_str(), identity.binding), ("eu", binding));
        assert_eq!(cert.subject().to_string(), "CN=eu");
        assert_eq!(cert.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 1);
        let usage = cert.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
        assert!(!cert.is_ca());
        assert_eq!(cert.public_key().raw, key.subject_public_key_info());
        assert_eq!(cert.validity().not_after.timestamp(), 1_795_000_600);
        assert_eq!(cert.validity().not_before.timestamp(), 1_794_999_940);
        assert_eq!(issued.not_after, Wall(1_795_000_600_000));
        assert_eq!(request_key(&csr).unwrap(), KeyHash::of(cert.public_key().raw));
    }

    #[test]
    fn bad_requests_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let authorities = Authorities::load_or_create(dir.path(), NOW).unwrap();
        let issue = |csr: &str, cluster: &str| {
            authorities.issue_agent(csr, (&cluster.into(), binding()), NOW, AGENT_LIFETIME)
        };
        let good =
            request(CertificateParams::default(), &KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap());
        assert!(issue(&good, "eu").is_ok());
        assert!(matches!(issue(&good, "eu/x"), Err(Error::ClusterName(_))));
        assert!(matches!(issue("nonsense", "eu"), Err(Error::Request(_))));
        assert!(matches!(issue(&"x".repeat(REQUEST_BYTES_MAX + 1), "eu"), Err(Error::Request(_))));
        let other =
            request(CertificateParams::default(), &KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap());
        assert!(matches!(issue(&other, "eu"), Err(Error::Request(_))));
        // a request with another key's signature proves nothing
        let der = rustls::pki_types::CertificateSigningRequestDer::from_pem_slice(good.as_bytes()).unwrap();
        let mut forged = der.to_vec();
        *forged.last_mut().unwrap() ^= 1;
        let forged = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, forged);
        let forged =
            format!("-----BEGIN CERTIFICATE REQUEST-----\n{forged}\n-----END CERTIFICATE REQUEST-----\n");
        assert!(matches!(issue(&forged, "eu"), Err(Error::Request(_))));
    }

    #[test]
    fn the_error_names_an_invalid_server_name() {
        let dir = tempfile::tempdir().unwrap();
        let authorities = Authorities::load_or_create(dir.path(), NOW).unwrap();
        assert!(
            authorities
                .server_tls(&["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()], NOW)
                .is_ok()
        );
        let error = authorities.server_tls(&["gr\u{fc}n".to_owned()], NOW).unwrap_err().to_string();
        assert!(error.contains("`gr\u{fc}n`"), "{error}");
    }
}
