//! The verifier of the first connection, when nothing is known of the manager but the hash of its authority's key.
//!
//! The server sends its authority along. One whose key has the pinned hash becomes the only trust anchor, and the server's own
//! certificate is then checked against it in full: signature, name, dates, use.

use super::http;
use meridian_shared::identity::CaPin;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::{Arc, OnceLock};

/// What the handshake showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// The pinned authority.
    Pinned(CertificateDer<'static>),
    /// Others; the last one's pin, if any was shown beside the server's own certificate.
    Other(Option<CaPin>),
}

#[derive(Debug)]
pub(super) struct PinVerifier {
    pin: CaPin,
    provider: Arc<CryptoProvider>,
    shown: OnceLock<Shown>,
}

impl PinVerifier {
    pub(super) fn new(pin: CaPin) -> Arc<Self> {
        Arc::new(Self {
            pin,
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            shown: OnceLock::new(),
        })
    }

    /// What the first handshake that came so far showed.
    pub(super) fn shown(&self) -> Option<Shown> {
        self.shown.get().cloned()
    }

    /// Settings that use this verifier and show no certificate.
    pub(super) fn config(self: &Arc<Self>) -> Result<ClientConfig, super::Error> {
        let config =
            http::builder()?.dangerous().with_custom_certificate_verifier(self.clone()).with_no_client_auth();
        Ok(http::with_http2(config))
    }
}

/// The pin of a certificate: the hash of its public key.
fn pin_of(certificate: &CertificateDer<'_>) -> Option<CaPin> {
    x509_parser::parse_x509_certificate(certificate)
        .ok()
        .map(|(_, parsed)| CaPin::of(parsed.public_key().raw))
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(ca) = chain.iter().find(|c| pin_of(c) == Some(self.pin)) else {
            let _ = self.shown.set(Shown::Other(chain.last().and_then(pin_of)));
            return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        };
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|e| Error::General(e.to_string()))?;
        // Without the other certificates: the authority signs the server's own directly.
        let verified = inner.verify_server_cert(leaf, &[], name, ocsp, now)?;
        let _ = self.shown.set(Shown::Pinned(ca.clone().into_owned()));
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
