//! The verifier of the first connection, when only the hash of the key of the manager's authority is known.
//!
//! The server sends its authority with its certificate. If the key of the authority has the pinned hash, it
//! becomes the only trust anchor, and the certificate of the server is fully checked against it: signature,
//! name, dates, use.

use super::http;
use meridian_shared::identity::CaPin;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::{Arc, OnceLock};

/// The authorities that the handshake showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShownAuthority {
    /// The pinned authority.
    Pinned(CertificateDer<'static>),
    /// Other authorities; with the pin of the last one, if any was sent.
    Other(Option<CaPin>),
}

#[derive(Debug)]
pub(super) struct PinVerifier {
    pin: CaPin,
    provider: Arc<CryptoProvider>,
    shown: OnceLock<ShownAuthority>,
}

impl PinVerifier {
    pub(super) fn new(pin: CaPin) -> Arc<Self> {
        Arc::new(Self {
            pin,
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            shown: OnceLock::new(),
        })
    }

    /// The authorities that the handshake showed, if it came that far.
    pub(super) fn shown(&self) -> Option<ShownAuthority> {
        self.shown.get().cloned()
    }

    /// Settings with this verifier and without a client certificate.
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
            let _ = self.shown.set(ShownAuthority::Other(chain.last().and_then(pin_of)));
            return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        };
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|e| Error::General(e.to_string()))?;
        // No intermediate certificates: the authority signs the server's certificate directly.
        let verified = inner.verify_server_cert(leaf, &[], name, ocsp, now)?;
        let _ = self.shown.set(ShownAuthority::Pinned(ca.clone().into_owned()));
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
