//! `sslmode` and its files, as in libpq; the driver supports only a part of them.

use tenure_core::{Code, StoreError, StoreResult};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::tls::{PemFiles, Trust, take};

const TLS_PARAMETERS: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

/// TLS connector of the driver.
#[cfg(feature = "tls")]
pub(super) type PostgresTlsConnector = tokio_postgres_rustls::MakeRustlsConnect;
/// Placeholder in a build without TLS.
#[cfg(not(feature = "tls"))]
pub(super) type PostgresTlsConnector = tokio_postgres::NoTls;

/// TLS parameters of a URL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TlsMode {
    mode: SslMode,
    trust: Trust,
    files: PemFiles,
}

/// Splits our parameters from the URL.
pub(super) fn read(url: &str) -> StoreResult<(String, TlsMode)> {
    let (rest, [mode, authority, certificate, key]) = take(url, TLS_PARAMETERS)?;
    let files = PemFiles::new(authority, certificate, key, "sslcert and sslkey")?;
    Ok((rest, TlsMode::new(mode.as_deref(), files)?))
}

impl TlsMode {
    fn new(mode: Option<&str>, mut files: PemFiles) -> StoreResult<Self> {
        let bad = |what: &str| Err(StoreError::refused(Code::BadUrl, what));
        // A given authority implies that the certificate is verified.
        let unsaid = if files.authority.is_some() { "verify-full" } else { "prefer" };
        let by_authority =
            if files.authority.is_some() { Trust::Authority } else { Trust::Anybody };
        let (mode, trust) = match mode.unwrap_or(unsaid) {
            "disable" => (SslMode::Disable, Trust::Anybody),
            "prefer" => (SslMode::Prefer, by_authority),
            "require" => (SslMode::Require, by_authority),
            "verify-ca" => (SslMode::Require, Trust::Authority),
            "verify-full" => (SslMode::Require, Trust::Name),
            _ => return bad("sslmode must be disable, prefer, require, verify-ca or verify-full"),
        };
        if files.authority.as_deref() == Some("system") {
            // Anybody can get a certificate for some name from an authority of the system.
            if mode != SslMode::Disable && trust != Trust::Name {
                return bad("sslrootcert=system requires sslmode=verify-full");
            }
            files.authority = None;
        }
        Ok(Self { mode, trust, files })
    }

    /// Configures the driver and returns its connector.
    #[cfg(feature = "tls")]
    pub(super) async fn prepare(self, config: &mut Config) -> StoreResult<PostgresTlsConnector> {
        use tokio_postgres::config::SslNegotiation;

        config.ssl_mode(self.mode);
        let (trust, files) = match self.mode {
            SslMode::Disable => (Trust::Anybody, PemFiles::default()),
            _ => (self.trust, self.files),
        };
        let mut client = crate::tls::client(trust, files).await?;
        if config.get_ssl_negotiation() == SslNegotiation::Direct {
            // With direct negotiation, the server requires ALPN to name its protocol.
            client.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(PostgresTlsConnector::new(client))
    }

    /// Continues without TLS, unless the mode requires it.
    #[cfg(not(feature = "tls"))]
    pub(super) async fn prepare(self, config: &mut Config) -> StoreResult<PostgresTlsConnector> {
        if self.mode == SslMode::Require {
            return Err(crate::tls::not_built("this sslmode"));
        }
        config.ssl_mode(self.mode);
        Ok(tokio_postgres::NoTls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(query: &str) -> Result<(SslMode, Trust, Option<String>), Code> {
        let read = read(&format!("postgres://me:s3cret@h/db?{query}"));
        let (rest, wanted) = read.map_err(|error| error.code())?;
        assert_eq!(rest, "postgres://me:s3cret@h/db");
        Ok((wanted.mode, wanted.trust, wanted.files.authority))
    }

    /// Without TLS, an optional encryption is skipped, and a required one is refused.
    #[cfg(not(feature = "tls"))]
    #[tokio::test]
    async fn a_build_without_tls_names_the_feature() {
        for (query, refused) in [("", false), ("sslmode=prefer", false), ("sslmode=require", true)]
        {
            let (rest, wanted) = read(&format!("postgres://h/db?{query}")).unwrap();
            let prepared = wanted.prepare(&mut rest.parse().unwrap()).await;
            let error = prepared.err().filter(|error| error.to_string().contains("feature tls"));
            assert_eq!(error.map(|error| error.code()), refused.then_some(Code::NoTls), "{query}");
        }
    }

    #[test]
    fn each_mode_asks_for_what_its_name_says() {
        let own = || Some("ca.pem".to_owned());
        for (query, expected) in [
            ("", (SslMode::Prefer, Trust::Anybody, None)),
            ("sslmode=disable", (SslMode::Disable, Trust::Anybody, None)),
            ("sslmode=prefer", (SslMode::Prefer, Trust::Anybody, None)),
            ("sslmode=require", (SslMode::Require, Trust::Anybody, None)),
            ("sslmode=verify-ca", (SslMode::Require, Trust::Authority, None)),
            ("sslmode=verify-full", (SslMode::Require, Trust::Name, None)),
            // A given authority is used.
            ("sslrootcert=ca.pem", (SslMode::Require, Trust::Name, own())),
            ("sslmode=require&sslrootcert=ca.pem", (SslMode::Require, Trust::Authority, own())),
            ("sslmode=prefer&sslrootcert=ca.pem", (SslMode::Prefer, Trust::Authority, own())),
            ("sslrootcert=system", (SslMode::Require, Trust::Name, None)),
        ] {
            assert_eq!(wanted(query), Ok(expected), "{query}");
        }
        for bad in ["sslmode=allow", "sslmode=verify-ca&sslrootcert=system", "sslcert=a.pem"] {
            assert_eq!(wanted(bad), Err(Code::BadUrl), "{bad}");
        }
    }
}
