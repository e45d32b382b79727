//! Errors of the HTTP client.

use std::error::Error;
use std::io;
use std::time::Duration;

use thiserror::Error;

/// Reason why a request has no usable response.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The TCP connection failed.
    #[error("{0}")]
    Connect(#[source] io::Error),
    /// The TCP connection and the TLS handshake took too long.
    #[error("no connection within {0:?}")]
    ConnectTimeout(Duration),
    /// The URL needs TLS, and there is no configuration for it.
    #[error("TLS is not configured")]
    NoTls,
    /// The host cannot be in a certificate.
    #[error("the host is not a valid certificate name")]
    ServerName,
    /// The TLS handshake failed.
    #[error("{0}")]
    Tls(#[source] io::Error),
    /// The connection broke before the head of the response arrived.
    #[error("the connection closed before a valid response")]
    Exchange(#[source] hyper::Error),
    /// The connection broke before the end of the response.
    #[error("the connection closed during the response")]
    Body(#[source] Box<dyn Error + Send + Sync>),
    /// The response is larger than the caller allows.
    #[error("the response has more than {max_bytes} bytes")]
    TooLarge {
        /// The limit.
        max_bytes: usize,
    },
    /// The response took too long.
    #[error("no response within {0:?}")]
    ResponseTimeout(Duration),
}

impl HttpError {
    /// Returns whether the server may have received the request.
    pub fn may_have_been_sent(&self) -> bool {
        match self {
            Self::Connect(_)
            | Self::ConnectTimeout(_)
            | Self::NoTls
            | Self::ServerName
            | Self::Tls(_) => false,
            Self::Exchange(_)
            | Self::Body(_)
            | Self::TooLarge { .. }
            | Self::ResponseTimeout(_) => true,
        }
    }
}
