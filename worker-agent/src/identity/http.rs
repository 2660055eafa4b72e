//! Settings of every connection to the manager.

use super::Error;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::Duration;

/// Timeout of a connection with its handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of pings, also between requests. With [`PING_TIMEOUT`] it bounds how long a dead path goes
/// unnoticed.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// Timeout of a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Trusts only `ca`, and presents `identity` if there is one.
pub(super) fn client_config(
    ca: CertificateDer<'static>,
    identity: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(ca)?;
    let builder = builder()?.with_root_certificates(roots);
    let config = match identity {
        Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key)?,
        None => builder.with_no_client_auth(),
    };
    Ok(with_http2(config))
}

/// TLS 1.3 only, because both ends are ours and it encrypts client certificates.
pub(super) fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?)
}

pub(super) fn with_http2(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// A client with `config` for the manager at `manager`. Retries are off, because every transmission has its
/// own number, and the library would repeat an old one.
pub(super) fn client(config: ClientConfig, manager: &str) -> Result<reqwest::Client, Error> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .https_only(true)
        .http2_prior_knowledge()
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true)
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(None)
        .retry(reqwest::retry::never())
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .user_agent(concat!("meridian-agent/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|source| Error::Unreachable { manager: manager.to_owned(), source })
}
