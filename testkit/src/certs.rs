//! Certificates made for one test: an authority, a server on loopback, and a client.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;

/// PEM files in a folder of their own, which goes with this value.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// An authority, a certificate of it for `localhost` and `127.0.0.1`, and one for the client
    /// named `client`. Whoever runs the server may read the files.
    pub fn make(client: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("testkit-certs-").tempdir()?;
        open_to_all(&folder.path().to_owned(), 0o755)?;
        let certificates = Self { folder };
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "testkit authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        certificates.write("ca.pem", &authority.pem())?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        for (file, name, names, usage) in [
            ("server", "localhost", names, ExtendedKeyUsagePurpose::ServerAuth),
            ("client", client, Vec::new(), ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![usage];
            // etcd talks to itself with the server's certificate.
            if file == "server" {
                params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
            }
            let key = KeyPair::generate()?;
            let certificate = params.signed_by(&key, &authority)?;
            certificates.write(&format!("{file}.pem"), &certificate.pem())?;
            certificates.write(&format!("{file}.key"), &key.serialize_pem())?;
        }
        Ok(certificates)
    }

    /// The authority's certificate.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The server's certificate and key.
    #[must_use]
    pub fn server(&self) -> (PathBuf, PathBuf) {
        (self.folder.path().join("server.pem"), self.folder.path().join("server.key"))
    }

    /// The client's certificate and key.
    #[must_use]
    pub fn client(&self) -> (PathBuf, PathBuf) {
        (self.folder.path().join("client.pem"), self.folder.path().join("client.key"))
    }

    fn write(&self, name: &str, pem: &str) -> Result<()> {
        let path = self.folder.path().join(name);
        fs::write(&path, pem)?;
        open_to_all(&path, 0o644)
    }
}

fn open_to_all(path: &PathBuf, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_there_while_the_value_is() {
        let certificates = Certificates::make("tenure").unwrap();
        let folder = certificates.folder.path().to_owned();
        for file in [certificates.authority(), certificates.server().0, certificates.client().1] {
            assert!(fs::read_to_string(file).unwrap().starts_with("-----BEGIN "));
        }
        drop(certificates);
        assert!(!folder.exists());
    }
}
