//! TLS certificates of the server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::SwitchboardError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme,
};
use tenure_core::Code;
use tokio_rustls::TlsAcceptor;

/// Paths of PEM files.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The server's certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Certificate and key, reloaded when the files change.
#[derive(Debug)]
pub(crate) struct ServerCertificate {
    files: CertificateFiles,
    now: Mutex<Loaded>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    /// Client configuration for other replicas.
    client: Arc<ClientConfig>,
    /// Content of the files.
    text: (Vec<u8>, Vec<u8>),
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Loaded(..)")
    }
}

impl ServerCertificate {
    pub(crate) fn load(files: CertificateFiles) -> Result<Self, SwitchboardError> {
        let now = read(&files).and_then(|text| build(&files, text))?;
        Ok(Self { files, now: Mutex::new(now) })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&now.config).into()
    }

    /// Returns a client configuration that trusts only the certificate of this server, which all
    /// replicas share.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.now.lock().unwrap_or_else(PoisonError::into_inner).client)
    }

    /// Reloads the files and returns whether they changed. Unusable files change nothing.
    pub(crate) fn reload(&self) -> Result<bool, SwitchboardError> {
        let text = read(&self.files)?;
        let same = self.now.lock().unwrap_or_else(PoisonError::into_inner).text == text;
        if !same {
            let new = build(&self.files, text)?;
            *self.now.lock().unwrap_or_else(PoisonError::into_inner) = new;
        }
        Ok(!same)
    }
}

fn unusable(detail: String) -> SwitchboardError {
    SwitchboardError::refused(Code::Machine, detail)
}

fn read(files: &CertificateFiles) -> Result<(Vec<u8>, Vec<u8>), SwitchboardError> {
    let read = |path: &PathBuf| {
        std::fs::read(path)
            .map_err(|error| unusable(format!("{} cannot be read: {error}", path.display())))
    };
    Ok((read(&files.certificate)?, read(&files.key)?))
}

/// Errors do not repeat the content: the path may name the wrong file.
fn build(files: &CertificateFiles, text: (Vec<u8>, Vec<u8>)) -> Result<Loaded, SwitchboardError> {
    let (certificate, key) = (files.certificate.display(), files.key.display());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text.0).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    let none = || unusable(format!("{certificate} holds no certificate in PEM form"));
    let chain = chain.ok_or_else(none)?;
    let none = |_| unusable(format!("{key} holds no private key in PEM form, or an encrypted one"));
    let private = PrivateKeyDer::from_pem_slice(&text.1).map_err(none)?;
    let provider = Arc::new(ring::default_provider());
    let none = |error: rustls::Error| unusable(format!("TLS cannot be used: {error}"));
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(none)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned::to(&chain, &provider)))
        .with_no_client_auth();
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(none)?;
    let mut config =
        builder.with_no_client_auth().with_single_cert(chain, private).map_err(|error| {
            unusable(format!("{certificate} and {key} do not go together: {error}"))
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Loaded { config: Arc::new(config), client: Arc::new(client), text })
}

/// Trusts exactly one certificate, whatever its names.
#[derive(Debug)]
struct Pinned {
    certificate: Option<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn to(chain: &[CertificateDer<'static>], provider: &Arc<CryptoProvider>) -> Self {
        Self { certificate: chain.first().cloned(), provider: Arc::clone(provider) }
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.certificate.as_ref() == Some(shown) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
