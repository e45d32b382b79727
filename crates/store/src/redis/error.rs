//! Errors of the driver and the server as store errors.
//!
//! Only this module reads the server's error codes. It passes on no driver
//! text that could contain the URL.

use redis::{ErrorKind, RedisError, ServerError};
use tenure_core::{Code, StoreError};

/// Converts an error that the server returned.
///
/// The codes in `judge` mean that nothing was changed: the server returns them before a command
/// runs, and a script gets them at its first write at the latest, because it reads and checks
/// everything before it writes. Any other error may have occurred halfway.
pub(super) fn server_error(error: &ServerError) -> StoreError {
    judge(error).with_source(error.clone())
}

fn judge(error: &ServerError) -> StoreError {
    let detail = error.details().unwrap_or_default();
    let text = format!("{} {detail}", error.code());
    let code = match error.code() {
        "RESET" => Code::Reset,
        "DAMAGED" | "WRONGTYPE" => Code::Damaged,
        "EXHAUSTED" => Code::Exhausted,
        "NEWER" => Code::NewerSchema,
        "READONLY" => Code::ReadOnly,
        "OOM" | "MISCONF" => Code::Full,
        "LOADING" | "BUSY" | "MASTERDOWN" | "NOREPLICAS" => Code::Busy,
        "MOVED" | "ASK" | "TRYAGAIN" | "CROSSSLOT" | "CLUSTERDOWN" => Code::Cluster,
        "NOAUTH" | "WRONGPASS" => Code::Denied,
        // The last command of a script can lack permission as well as the first. Only the text
        // shows that the command came from a script.
        "NOPERM" if detail.contains("@user_script") => {
            return StoreError::unknown(Code::Denied, text);
        }
        "NOPERM" => Code::Denied,
        _ => return StoreError::unknown(Code::Failed, text),
    };
    StoreError::refused(code, text)
}

/// Whether the server does not know the script, which therefore did not run.
pub(super) fn is_no_script(error: &ServerError) -> bool {
    error.code() == "NOSCRIPT"
}

/// Converts an error while connecting. No command was sent yet, so nothing happened.
pub(super) fn connect_error(error: &RedisError, address: &str) -> StoreError {
    let refused = match error.clone().into_server_errors().as_deref() {
        _ if error.kind() == ErrorKind::AuthenticationFailed => {
            StoreError::refused(Code::Denied, format!("{address} rejected the user or password"))
        }
        Some([(_, first), ..]) => {
            let problem = judge(first).problem().clone();
            StoreError::refused(problem.code, problem.detail)
        }
        _ => unreachable(address),
    };
    refused.with_source(error.clone())
}

/// Error for a server that did not accept a connection, or not in time.
pub(super) fn unreachable(address: &str) -> StoreError {
    StoreError::refused(Code::Unreachable, format!("no connection to {address}"))
}

/// Error for a command that was sent and got no answer.
pub(super) fn lost(address: &str) -> StoreError {
    StoreError::unknown(Code::Lost, format!("no answer from {address}"))
}

/// Error for an answer that does not have the script's format.
pub(super) fn unexpected(what: &str) -> StoreError {
    StoreError::unknown(Code::Failed, format!("an unexpected reply: {what}"))
}
