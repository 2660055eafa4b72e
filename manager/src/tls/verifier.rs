//! Verification of client certificates during the handshake: optional, from the agents' authority only.
//!
//! An expired certificate permits a renewal, so the handshake accepts it if it was valid when it expired.
//! Every request checks expiry and revocation, which is in the journal.

use super::peer;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct AgentVerifier {
    inner: Arc<dyn ClientCertVerifier>,
}

impl AgentVerifier {
    pub(super) fn new(
        authority: CertificateDer<'static>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let inner = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|e| Error::General(e.to_string()))?;
        Ok(Self { inner })
    }
}

impl ClientCertVerifier for AgentVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // a certificate of the right authority that names no agent is not one of ours
        let agent = peer::agent_identity(leaf)
            .ok_or(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))?;
        match self.inner.verify_client_cert(leaf, chain, now) {
            Err(Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => {
                let last = UnixTime::since_unix_epoch(Duration::from_millis(
                    agent.not_after.0.try_into().unwrap_or(0),
                ));
                self.inner.verify_client_cert(leaf, chain, last)
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
