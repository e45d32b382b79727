//! Errors of the client and the server as store errors.
//!
//! Only this module reads the descriptions of errors. No text that could contain a password is
//! passed on.

use tenure_core::{Code, StoreError};
use tenure_etcd::Error;

/// Error of one request.
pub(super) enum RequestError {
    /// The request was not sent.
    NotSent(StoreError),
    /// The request was sent; whether it took effect is unknown.
    Lost(StoreError),
    /// The server refused: nothing was changed, unless the error is [`StoreError::Unknown`].
    Refused(StoreError),
    /// A lease that the request names does not exist.
    LeaseGone,
    /// The lease to be granted already exists.
    LeaseExists,
    /// A password was sent to a server without authentication.
    NoAuth,
    /// The token has expired or is older than the server's user database: sign in again.
    OldToken,
}

impl RequestError {
    /// Converts the error for a call that does not retry.
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::NotSent(error) | Self::Lost(error) | Self::Refused(error) => error,
            Self::LeaseGone => StoreError::refused(Code::Failed, "the lease does not exist"),
            Self::LeaseExists => StoreError::refused(Code::Failed, "the lease already exists"),
            Self::NoAuth => StoreError::refused(Code::Denied, "authentication is not enabled"),
            Self::OldToken => {
                StoreError::refused(Code::Denied, "the authentication token is no longer valid")
            }
        }
    }
}

/// gRPC status codes used here.
mod status {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const ALREADY_EXISTS: i32 = 6;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const UNIMPLEMENTED: i32 = 12;
    pub(super) const DATA_LOSS: i32 = 15;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// Descriptions of etcd's errors.
mod description {
    pub(super) const LEASE_NOT_FOUND: &str = "etcdserver: requested lease not found";
    pub(super) const LEASE_EXISTS: &str = "etcdserver: lease already exists";
    pub(super) const AUTH_NOT_ENABLED: &str = "etcdserver: authentication is not enabled";
    pub(super) const AUTH_OLD_REVISION: &str = "etcdserver: revision of auth store is old";
    pub(super) const AUTH_FAILED: &str =
        "etcdserver: authentication failed, invalid user ID or password";
    pub(super) const INVALID_TOKEN: &str = "etcdserver: invalid auth token";
    pub(super) const USER_EMPTY: &str = "etcdserver: user name is empty";
    pub(super) const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
    pub(super) const TOO_MANY_REQUESTS: &str = "etcdserver: too many requests";
}

pub(super) fn request_error(error: Error, address: &str) -> RequestError {
    let converted = match &error {
        Error::Status { code, message } => of_status(*code, message, address),
        Error::NotSent(cause) => refused(&**cause, address)
            .unwrap_or_else(|| RequestError::NotSent(unreachable(address))),
        Error::Lost(cause) => {
            refused(&**cause, address).unwrap_or_else(|| RequestError::Lost(lost(address)))
        }
    };
    match converted {
        RequestError::NotSent(it) => RequestError::NotSent(it.with_source(error)),
        RequestError::Lost(it) => RequestError::Lost(it.with_source(error)),
        RequestError::Refused(it) => RequestError::Refused(it.with_source(error)),
        other => other,
    }
}

/// Converts a status of the server. etcd identifies its errors by code and description, as listed
/// in `rpctypes` of its source; a client compares both.
fn of_status(code: i32, text: &str, address: &str) -> RequestError {
    let rejected =
        |code, text: &str| RequestError::Refused(StoreError::refused(code, text.to_owned()));
    match code {
        status::NOT_FOUND if text == description::LEASE_NOT_FOUND => RequestError::LeaseGone,
        _ if text == description::LEASE_EXISTS => RequestError::LeaseExists,
        _ if text == description::AUTH_NOT_ENABLED => RequestError::NoAuth,
        _ if [description::AUTH_OLD_REVISION, description::INVALID_TOKEN].contains(&text) => {
            RequestError::OldToken
        }
        status::UNAUTHENTICATED | status::PERMISSION_DENIED => rejected(Code::Denied, text),
        status::INVALID_ARGUMENT
            if [description::AUTH_FAILED, description::USER_EMPTY].contains(&text) =>
        {
            rejected(Code::Denied, text)
        }
        // A server that runs out of space during a write returns this error after it has written.
        status::RESOURCE_EXHAUSTED if text == description::NO_SPACE => {
            RequestError::Refused(StoreError::unknown(Code::Full, text.to_owned()))
        }
        status::RESOURCE_EXHAUSTED if text == description::TOO_MANY_REQUESTS => {
            rejected(Code::Busy, text)
        }
        status::DATA_LOSS => rejected(Code::Damaged, text),
        status::INVALID_ARGUMENT
        | status::NOT_FOUND
        | status::ALREADY_EXISTS
        | status::RESOURCE_EXHAUSTED
        | status::FAILED_PRECONDITION
        | status::OUT_OF_RANGE
        | status::UNIMPLEMENTED => rejected(Code::Failed, text),
        // A gateway returns the same text whether it never reached the server or lost the
        // connection in the middle of the request.
        _ => RequestError::Lost(lost(address)),
    }
}

/// Recognises a rejected client certificate. In TLS 1.3 the server's alert arrives after the
/// handshake, and HTTP/2 passes on only its text. The server has read no request, and another one
/// may accept it.
fn refused(error: &(dyn std::error::Error + 'static), address: &str) -> Option<RequestError> {
    let says = |alert: &str| {
        let words = format!("received fatal alert: {alert}");
        let mut chain = std::iter::successors(Some(error), |error| (*error).source());
        chain.any(|error| error.to_string().contains(&words))
    };
    let why = match says("CertificateRequired") {
        true => "the server asks for a client certificate",
        false => "the server does not accept the client certificate",
    };
    ["CertificateRequired", "BadCertificate", "UnknownCA", "CertificateExpired"]
        .into_iter()
        .any(says)
        .then(|| {
            RequestError::NotSent(StoreError::refused(Code::NoTls, format!("{address}: {why}")))
        })
}

/// Error for a server that did not accept a connection, or not in time.
pub(super) fn unreachable(address: &str) -> StoreError {
    StoreError::refused(Code::Unreachable, format!("no connection to {address}"))
}

/// Error for a request that was sent and got no answer.
pub(super) fn lost(address: &str) -> StoreError {
    StoreError::unknown(Code::Lost, format!("no answer from {address}"))
}

/// Error for stored data that this version would not have written.
pub(super) fn damaged(what: &str) -> StoreError {
    StoreError::refused(Code::Damaged, format!("{what} cannot be read"))
}

/// Error for a response that does not fit the request.
pub(super) fn unexpected(what: &str) -> StoreError {
    StoreError::unknown(Code::Failed, format!("an unexpected reply: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(number: i32, text: &str) -> Code {
        of_status(number, text, "h:1").into_error().code()
    }

    #[test]
    fn what_the_server_says_no_to_has_not_happened() {
        for (number, text, expected) in [
            (8, "etcdserver: too many requests", Code::Busy),
            (3, "etcdserver: authentication failed, invalid user ID or password", Code::Denied),
            (3, "etcdserver: user name is empty", Code::Denied),
            (7, "etcdserver: permission denied", Code::Denied),
            (16, "etcdserver: invalid auth token", Code::Denied),
            (3, "etcdserver: too many operations in txn request", Code::Failed),
        ] {
            assert_eq!(code(number, text), expected, "{text}");
            assert!(!of_status(number, text, "h:1").into_error().is_unknown(), "{text}");
        }
    }

    #[test]
    fn what_was_cut_off_may_have_happened() {
        for text in ["etcdserver: request timed out", "etcdserver: leader changed", "broken pipe"] {
            assert!(matches!(of_status(14, text, "h:1"), RequestError::Lost(_)), "{text}");
        }
        let full = of_status(8, "etcdserver: mvcc: database space exceeded", "h:1").into_error();
        assert!(full.is_unknown() && full.code() == Code::Full);
        // A gateway may return this after it has sent the request to the server.
        let gateway = "upstream connect error or disconnect/reset before headers";
        assert!(matches!(of_status(14, gateway, "h:1"), RequestError::Lost(_)));
    }

    /// Quoted text does not count: a peer that closes the connection may send any reason.
    #[test]
    fn only_the_client_says_what_was_not_sent() {
        let cause = || std::io::Error::other("go away (tcp connect error: Connection refused)");
        assert!(matches!(request_error(Error::Lost(cause().into()), "h:1"), RequestError::Lost(_)));
        assert!(matches!(
            request_error(Error::NotSent(cause().into()), "h:1"),
            RequestError::NotSent(_)
        ));
        let alert = Error::NotSent("error: received fatal alert: CertificateRequired".into());
        assert_eq!(request_error(alert, "h:1").into_error().code(), Code::NoTls);
    }
}
