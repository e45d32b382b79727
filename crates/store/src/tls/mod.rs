//! TLS for PostgreSQL, Redis and etcd: verification modes and certificate files.
//!
//! Nothing here relies on a process-wide crypto provider: a library that installs or expects one
//! breaks the program that uses it.
#![cfg_attr(
    not(all(feature = "tls", feature = "postgres")),
    allow(dead_code, reason = "Redis uses a part, and a build without TLS hardly any")
)]

#[cfg(feature = "tls")]
mod verify;

use tenure_core::{Code, StoreError, StoreResult};

use crate::url::{parts, unescape};
#[cfg(feature = "tls")]
pub use verify::pinned_client;
#[cfg(feature = "tls")]
pub(crate) use verify::{client, explain};

/// Requirement for the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Any certificate: the connection is encrypted, but the server is not verified.
    Anybody,
    /// Exactly the given certificate.
    Certificate,
    /// A certificate from a trusted authority.
    Authority,
    /// A certificate from a trusted authority, issued for the name in the URL.
    Name,
}

/// Paths of PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PemFiles {
    /// Authorities to trust; `None` for those of the system.
    pub authority: Option<String>,
    /// The client's certificate and key.
    pub identity: Option<(String, String)>,
}

impl PemFiles {
    /// Requires certificate and key together; `names` are their parameters, for the error.
    pub(crate) fn new(
        authority: Option<String>,
        certificate: Option<String>,
        key: Option<String>,
        names: &str,
    ) -> StoreResult<Self> {
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let detail = format!("{names} must be given together");
                return Err(StoreError::refused(Code::BadUrl, detail));
            }
        };
        Ok(Self { authority, identity })
    }
}

/// Returns the error for a TLS connection that could not be made: nothing was sent.
pub(crate) fn failed(detail: impl Into<String>) -> StoreError {
    StoreError::refused(Code::NoTls, detail)
}

/// Returns the error of a build without TLS.
#[cfg(not(feature = "tls"))]
pub(crate) fn not_built(asked: &str) -> StoreError {
    failed(format!("{asked} needs TLS, and this build lacks the cargo feature tls"))
}

/// Explains a TLS error, which a build without TLS never has.
#[cfg(all(not(feature = "tls"), feature = "postgres"))]
pub(crate) fn explain(_: &(dyn std::error::Error + 'static)) -> Option<String> {
    None
}

/// Splits the named parameters from a URL, so that a driver that does not know them never sees
/// them. An empty value counts as absent.
pub(crate) fn take<const N: usize>(
    url: &str,
    names: [&str; N],
) -> StoreResult<(String, [Option<String>; N])> {
    let mut values = [const { None }; N];
    let Some((scheme, rest)) = url.split_once("://") else { return Ok((url.to_owned(), values)) };
    let (credentials, place, query) = parts(rest)?;
    let mut passed_on = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let Some(at) = names.iter().position(|known| *known == name) else {
            passed_on.push(parameter);
            continue;
        };
        values[at] = Some(unescape(value, &format!("the parameter {name}"))?)
            .filter(|text| !text.is_empty());
    }
    let credentials = credentials.map_or(String::new(), |text| format!("{text}@"));
    let query = match passed_on.is_empty() {
        true => String::new(),
        false => format!("?{}", passed_on.join("&")),
    };
    Ok((format!("{scheme}://{credentials}{place}{query}"), values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_parameters_are_taken_out() {
        let url = "postgres://me:s3%3Fcret@h:1/db?a=1&sslkey=%2Fa%20b&user=x&sslmode=";
        let (rest, values) = take(url, ["sslmode", "sslkey", "sslcert"]).unwrap();
        assert_eq!(rest, "postgres://me:s3%3Fcret@h:1/db?a=1&user=x");
        assert_eq!(values, [None, Some("/a b".to_owned()), None]);
        assert_eq!(take("postgres://h/db?x=1", ["x"]).unwrap().0, "postgres://h/db");
        assert_eq!(take("host=h x=1", ["x"]).unwrap().0, "host=h x=1");
        assert_eq!(take("postgres://h?x=%FF", ["x"]).unwrap_err().code(), Code::BadUrl);
    }

    #[test]
    fn a_certificate_without_its_key_is_refused() {
        let one = || Some("a.pem".to_owned());
        let error = PemFiles::new(None, one(), None, "cert and key").unwrap_err();
        assert_eq!(error.code(), Code::BadUrl);
        assert!(PemFiles::new(one(), None, one(), "cert and key").is_err());
        assert!(PemFiles::new(one(), one(), one(), "cert and key").is_ok());
    }
}
