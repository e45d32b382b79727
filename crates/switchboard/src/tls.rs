//! TLS certificates of the server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ServerConfig};
use tenure_core::Code;
use tokio_rustls::TlsAcceptor;

use crate::error::SwitchboardError;
use crate::lock;

/// Paths of PEM files.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The server's certificate and its intermediates.
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
        Arc::clone(&lock(&self.now).config).into()
    }

    /// Returns a client configuration that trusts only the certificate of this server, which all
    /// replicas share.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&lock(&self.now).client)
    }

    /// Reloads the files and returns whether they changed. Unusable files change nothing.
    pub(crate) fn reload(&self) -> Result<bool, SwitchboardError> {
        let text = read(&self.files)?;
        if lock(&self.now).text == text {
            return Ok(false);
        }
        let new = build(&self.files, text)?;
        *lock(&self.now) = new;
        Ok(true)
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

/// Builds the configuration. Errors do not repeat file contents: the path may be wrong.
fn build(files: &CertificateFiles, text: (Vec<u8>, Vec<u8>)) -> Result<Loaded, SwitchboardError> {
    let (certificate, key) = (files.certificate.display(), files.key.display());
    let chain: Result<Vec<CertificateDer<'_>>, _> =
        CertificateDer::pem_slice_iter(&text.0).collect();
    let chain = chain.unwrap_or_default();
    let none = || unusable(format!("{certificate} contains no PEM certificate"));
    let own = chain.first().cloned().ok_or_else(none)?;
    let none = |_| unusable(format!("{key} contains no unencrypted PEM private key"));
    let private = PrivateKeyDer::from_pem_slice(&text.1).map_err(none)?;
    let none = |error: rustls::Error| unusable(format!("TLS cannot be used: {error}"));
    let client = tenure_store::connect::pinned_client(own).map_err(none)?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(none)?;
    let mut config = builder
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| unusable(format!("{certificate} and {key} do not match: {error}")))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Loaded { config: Arc::new(config), client: Arc::new(client), text })
}
