//! Scheme, host and port of a server.

use std::net::IpAddr;

use hyper::Uri;
use hyper::http::uri::{Authority, Scheme};
use thiserror::Error;

/// Scheme, host and port of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    encrypted: bool,
    authority: Authority,
}

/// Reason why a URL names no server. It never repeats the URL, which may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OriginError {
    /// The scheme is neither `http` nor `https`.
    #[error("is not an http or https URL")]
    Scheme,
    /// There is no host.
    #[error("has no host")]
    Host,
    /// There is a user or a password.
    #[error("contains a user or password")]
    Credentials,
}

impl Origin {
    /// Reads the origin of an `http` or `https` URL.
    pub fn parse(uri: &Uri) -> Result<Self, OriginError> {
        let encrypted = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(OriginError::Scheme),
        };
        let authority = uri.authority().cloned().ok_or(OriginError::Host)?;
        Self::new(encrypted, authority)
    }

    /// Combines a scheme with `HOST` or `HOST:PORT`.
    pub fn new(encrypted: bool, authority: Authority) -> Result<Self, OriginError> {
        if authority.host().is_empty() {
            return Err(OriginError::Host);
        }
        if authority.as_str().contains('@') {
            return Err(OriginError::Credentials);
        }
        Ok(Self { encrypted, authority })
    }

    /// Returns whether the scheme is `https`.
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// Returns host and port as they were given, for the `Host` header.
    pub fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// Returns the host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns the port, the scheme's default if none was given.
    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.encrypted { 443 } else { 80 })
    }

    /// Returns whether nobody on the network can read the request: TLS, or a loopback address.
    pub fn is_private(&self) -> bool {
        let loopback = self.host().parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        self.encrypted || loopback || self.host() == "localhost"
    }
}
