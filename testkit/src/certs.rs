//! Certificates made for one test: an authority, a server on loopback, and a client.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Only for those that need certificates: it is slow to compile.
#[cfg(feature = "certificates")]
mod make;

/// Options of [`Certificates`].
#[derive(Debug, Clone)]
pub struct CertificateOptions {
    /// Names and addresses in the server's certificate.
    pub names: Vec<String>,
    /// Whether the server's certificate has expired long ago.
    pub expired: bool,
    /// Whether the server uses the authority's own certificate, as many small setups do.
    pub self_signed: bool,
}

impl Default for CertificateOptions {
    fn default() -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        Self { names, expired: false, self_signed: false }
    }
}

/// Files that a server needs for TLS.
#[derive(Debug, Clone)]
pub struct TestCertificateFiles {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    /// A client's certificate and key, for the programs that manage the server.
    client: (PathBuf, PathBuf),
    /// Whether clients must present a certificate of the same authority.
    pub(crate) ask_clients: bool,
}

impl TestCertificateFiles {
    /// Copies the files into the server's folder, owned by its owner: PostgreSQL refuses a key that
    /// others may read.
    pub(crate) fn moved_to(&self, folder: &Path) -> Result<Self> {
        use std::os::unix::fs::{MetadataExt, chown};
        let owner = fs::metadata(folder)?;
        let copy = |path: &Path| -> Result<PathBuf> {
            let copied = folder.join(path.file_name().context("a file has a name")?);
            fs::copy(path, &copied)?;
            open_to_all(&copied, 0o600)?;
            chown(&copied, Some(owner.uid()), Some(owner.gid()))?;
            Ok(copied)
        };
        Ok(Self {
            authority: copy(&self.authority)?,
            certificate: copy(&self.certificate)?,
            key: copy(&self.key)?,
            client: (copy(&self.client.0)?, copy(&self.client.1)?),
            ask_clients: self.ask_clients,
        })
    }

    /// Paths of the authority, the server's certificate and its key, as text.
    pub(crate) fn files(&self) -> [String; 3] {
        [&self.authority, &self.certificate, &self.key].map(|path| path.display().to_string())
    }

    /// Paths of a client's certificate and key, as text.
    pub(crate) fn client(&self) -> [String; 2] {
        [&self.client.0, &self.client.1].map(|path| path.display().to_string())
    }
}

/// PEM files in a folder of their own, which is removed with this value.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
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

    /// Returns the files for a server with this certificate, which may require client certificates.
    #[must_use]
    pub fn for_server(&self, ask_clients: bool) -> TestCertificateFiles {
        let (certificate, key) = self.server();
        let (authority, client) = (self.authority(), self.client());
        TestCertificateFiles { authority, certificate, key, client, ask_clients }
    }
}

fn open_to_all(path: &PathBuf, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}
