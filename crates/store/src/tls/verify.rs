//! Client side of a TLS handshake, and explanations of its errors.

use std::error::Error as StdError;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    WantsClientCert, verify_server_cert_signed_by_trust_anchor, verify_server_name,
};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error,
    RootCertStore, SignatureScheme,
};
use tenure_core::StoreResult;

use super::{PemFiles, Trust, failed};

/// Time limit for reading the files.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of bytes that are read of a PEM file at most.
const MAX_PEM_BYTES: u64 = 4 << 20;

/// Reads the files and builds the client configuration.
pub(crate) async fn client(trust: Trust, files: PemFiles) -> StoreResult<ClientConfig> {
    // Files can be on a slow disk, and a system has hundreds of authorities.
    let building = tokio::task::spawn_blocking(move || build(trust, &files));
    match tokio::time::timeout(READ_TIMEOUT, building).await {
        Ok(Ok(made)) => made,
        _ => Err(failed("the certificates could not be read in time")),
    }
}

fn build(trust: Trust, files: &PemFiles) -> StoreResult<ClientConfig> {
    let authorities = match (trust, &files.authority) {
        (Trust::Anybody, _) => Vec::new(),
        (_, Some(path)) => certificates(path)?,
        (_, None) => of_the_system()?,
    };
    let mut roots = RootCertStore::empty();
    let (_, unusable) = roots.add_parsable_certificates(authorities.iter().cloned());
    if let (Some(path), 1..) = (&files.authority, unusable) {
        return Err(failed(format!("{path} contains an unreadable certificate")));
    }
    let builder = builder(trust, authorities, roots).map_err(|error| failed(error.to_string()))?;
    let Some((certificate, key)) = &files.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(certificate)?;
    let unfit = |error| failed(format!("{certificate} and {key} cannot be used: {error}"));
    builder.with_client_auth_cert(chain, private_key(key)?).map_err(unfit)
}

fn builder(
    trust: Trust,
    authorities: Vec<CertificateDer<'static>>,
    roots: RootCertStore,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let provider = Arc::new(ring::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let verifier = Verifier { trust, authorities, roots, algorithms };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier)))
}

/// Returns a client configuration that trusts one certificate only, whatever its names.
pub fn pinned_client(certificate: CertificateDer<'static>) -> Result<ClientConfig, Error> {
    let builder = builder(Trust::Certificate, vec![certificate], RootCertStore::empty())?;
    Ok(builder.with_no_client_auth())
}

fn read(path: &str) -> StoreResult<Vec<u8>> {
    let mut text = Vec::new();
    let reading = File::open(path).and_then(|file| file.take(MAX_PEM_BYTES).read_to_end(&mut text));
    reading.map_err(|error| failed(format!("{path} cannot be read: {error}")))?;
    Ok(text)
}

/// Reads certificates. Errors do not repeat the content: the user may have named the wrong file.
fn certificates(path: &str) -> StoreResult<Vec<CertificateDer<'static>>> {
    let text = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(failed(format!("{path} contains no PEM certificate"))),
    }
}

fn private_key(path: &str) -> StoreResult<PrivateKeyDer<'static>> {
    let none = |_| failed(format!("{path} contains no unencrypted PEM private key"));
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(none)
}

fn of_the_system() -> StoreResult<Vec<CertificateDer<'static>>> {
    // An authority that cannot be read is not trusted; the others are.
    let found = rustls_native_certs::load_native_certs().certs;
    match found.is_empty() {
        true => Err(failed("this system has no certificate authorities: specify a file with some")),
        false => Ok(found),
    }
}

#[derive(Debug)]
struct Verifier {
    trust: Trust,
    authorities: Vec<CertificateDer<'static>>,
    roots: RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    /// Whether a refused certificate is itself a given authority, as self-signed ones often are.
    /// Being an authority is its only fault: its dates were checked before.
    fn is_given_itself(&self, certificate: &CertificateDer<'_>, error: &Error) -> bool {
        is_own_authority(error) && self.authorities.iter().any(|known| known == certificate)
    }
}

/// Compares text, because we do not depend on the library that defines this error.
fn is_own_authority(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(why))
        if format!("{why:?}").contains("CaUsedAsEndEntity"))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.trust {
            Trust::Anybody => return Ok(ServerCertVerified::assertion()),
            Trust::Certificate if self.authorities.contains(end_entity) => {
                return Ok(ServerCertVerified::assertion());
            }
            Trust::Certificate => return Err(CertificateError::UnknownIssuer.into()),
            Trust::Authority | Trust::Name => {}
        }
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let signed = verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        );
        match signed {
            Err(error) if !self.is_given_itself(end_entity, &error) => return Err(error),
            _ => {}
        }
        if self.trust == Trust::Name {
            verify_server_name(&parsed, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    // The server must have the key of its certificate, even if its identity is not verified: a
    // password that is bound to the connection relies on it.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Explains a TLS error to operators; `None` for an error about something else.
pub(crate) fn explain(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        // `source` of an I/O error skips the error that it wraps, so take the wrapped one here.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let error = wrapped.map_or(error, |inner| inner as &(dyn StdError + 'static));
        if let Some(tls) = error.downcast_ref::<Error>() {
            return Some(words(tls));
        }
        next = error.source();
    }
    None
}

fn words(error: &Error) -> String {
    use AlertDescription as Alert;
    use CertificateError as Bad;
    match error {
        // A bad signature comes from an authority of the same name with another key.
        Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "the server's certificate was not issued by a trusted authority".to_owned()
        }
        error if is_own_authority(error) => {
            "the server's certificate is self-signed and not trusted".to_owned()
        }
        Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            format!("the server's certificate is for another name ({error})")
        }
        Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            format!("the server's certificate has expired ({error})")
        }
        Error::InvalidCertificate(_) => {
            format!("the server's certificate is not valid ({error})")
        }
        Error::InvalidMessage(_) => "the server does not speak TLS on this port".to_owned(),
        Error::AlertReceived(Alert::CertificateRequired) => {
            "the server asks for a client certificate".to_owned()
        }
        Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::AccessDenied
            | Alert::DecryptError,
        ) => format!("the server does not accept the client certificate ({error})"),
        // Before TLS 1.3, a server also sends this when the client certificate is missing.
        Error::AlertReceived(Alert::HandshakeFailure) => {
            "the server ended the handshake; does it ask for a client certificate?".to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;
    use rustls::{ClientConnection, ServerConfig, ServerConnection};
    use testkit::Certificates;

    use super::*;

    /// Server side that presents a certificate with any key.
    #[derive(Debug)]
    struct PresentedCertificate(Arc<CertifiedKey>);

    impl ResolvesServerCert for PresentedCertificate {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            Some(self.0.clone())
        }
    }

    fn text(path: std::path::PathBuf) -> String {
        path.display().to_string()
    }

    /// Runs a handshake with a server that presents one certificate and has the key of another.
    fn shake_hands(trust: Trust, shown: &Certificates, key: &Certificates) -> Result<(), Error> {
        let files = PemFiles { authority: Some(text(shown.authority())), identity: None };
        let config = Arc::new(build(trust, &files).unwrap());
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(config, name).unwrap();
        let provider = Arc::new(ring::default_provider());
        let key = private_key(&text(key.server().1)).unwrap();
        let key = provider.key_provider.load_private_key(key).unwrap();
        let chain = certificates(&text(shown.server().0)).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(PresentedCertificate(Arc::new(CertifiedKey::new(
                chain, key,
            )))));
        let mut server = ServerConnection::new(Arc::new(config))?;
        while client.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets()?;
            let mut wire = Vec::new();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    /// A certificate is public: a server must have its key, whatever else the client verifies.
    #[test]
    fn a_certificate_without_its_key_is_worth_nothing() {
        let [real, thief] = [(), ()].map(|()| Certificates::make("tenure").unwrap());
        for trust in [Trust::Anybody, Trust::Authority, Trust::Name] {
            shake_hands(trust, &real, &real).unwrap();
            let error = shake_hands(trust, &real, &thief).unwrap_err();
            assert!(matches!(error, Error::InvalidCertificate(_)), "{trust:?}: {error}");
        }
    }
}
