//! Error of this crate.

use tenure_core::{Code, StoreError};
use tenure_http::HttpError;
use tenure_store::connect::explain_tls;

/// Reason why a heartbeat was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ConnectorError {
    /// The URL of the switchboard cannot be used. The URL is not repeated: it may hold a secret.
    #[error("the URL {0}")]
    Url(&'static str),
    /// The counters cannot be read.
    #[error("{input}: {problem}")]
    Counters {
        /// The file, or `standard input`.
        input: String,
        /// The first problem in it.
        problem: String,
    },
    /// The TLS configuration cannot be used.
    #[error(transparent)]
    Tls(#[from] StoreError),
    /// The request has no usable response.
    #[error("{}", explain(.0))]
    Http(#[from] HttpError),
    /// The switchboard, or another server, did not accept the heartbeat.
    #[error("{message}")]
    NotAccepted {
        /// Status and message of the response.
        message: String,
        /// Whether the heartbeat may have been accepted: a store or proxy failed.
        may_be_taken: bool,
    },
}

impl ConnectorError {
    /// Whether the heartbeat may have been accepted.
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Http(error) => error.may_have_been_sent(),
            Self::NotAccepted { may_be_taken, .. } => *may_be_taken,
            Self::Url(_) | Self::Counters { .. } | Self::Tls(_) => false,
        }
    }
}

fn explain(error: &HttpError) -> String {
    match error {
        HttpError::Tls(error) => explain_tls(error).unwrap_or_else(|| error.to_string()),
        other => other.to_string(),
    }
}

/// The same error with its code, as command-line tools report it.
impl From<ConnectorError> for StoreError {
    fn from(error: ConnectorError) -> Self {
        let code = match &error {
            ConnectorError::Tls(error) => return error.clone(),
            ConnectorError::Url(_) => Code::BadInput,
            ConnectorError::Counters { .. } => Code::BadCounters,
            ConnectorError::NotAccepted { .. } => Code::NotTaken,
            ConnectorError::Http(HttpError::Tls(_) | HttpError::ServerName) => Code::NoTls,
            ConnectorError::Http(_) => Code::NoSwitchboard,
        };
        match error.is_unknown() {
            true => Self::unknown(code, error.to_string()),
            false => Self::refused(code, error.to_string()),
        }
    }
}
