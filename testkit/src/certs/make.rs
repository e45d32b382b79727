//! Creation of certificates.

use std::fs;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

use super::{CertificateOptions, Certificates, open_to_all};

impl Certificates {
    /// Creates an authority, a certificate of it for `localhost` and `127.0.0.1`, and one for the
    /// client named `client`. All users may read the files.
    pub fn make(client: &str) -> Result<Self> {
        Self::make_with(client, CertificateOptions::default())
    }

    /// Like [`Certificates::make`], with options for the server's certificate.
    pub fn make_with(client: &str, options: CertificateOptions) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("testkit-certs-").tempdir()?;
        open_to_all(&folder.path().to_owned(), 0o755)?;
        let certificates = Self { folder };
        let own_names = if options.self_signed { options.names.clone() } else { Vec::new() };
        let mut params = CertificateParams::new(own_names)?;
        if options.self_signed && options.expired {
            make_old(&mut params);
        }
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "testkit authority");
        let key = KeyPair::generate()?;
        let own_key = key.serialize_pem();
        let authority = CertifiedIssuer::self_signed(params, key)?;
        certificates.write("ca.pem", &authority.pem())?;
        for (file, name, names, usage) in [
            ("server", "localhost", options.names, ExtendedKeyUsagePurpose::ServerAuth),
            ("client", client, Vec::new(), ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![usage];
            // etcd also connects to itself with the server's certificate.
            if file == "server" {
                if options.expired {
                    make_old(&mut params);
                }
                params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
            }
            let key = KeyPair::generate()?;
            let certificate = params.signed_by(&key, &authority)?;
            certificates.write(&format!("{file}.pem"), &certificate.pem())?;
            certificates.write(&format!("{file}.key"), &key.serialize_pem())?;
        }
        if options.self_signed {
            certificates.write("server.pem", &authority.pem())?;
            certificates.write("server.key", &own_key)?;
        }
        Ok(certificates)
    }

    fn write(&self, name: &str, pem: &str) -> Result<()> {
        let path = self.folder.path().join(name);
        fs::write(&path, pem)?;
        open_to_all(&path, 0o644)
    }
}

fn make_old(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
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
