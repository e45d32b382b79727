//! Errors of the driver and the server as store errors.
//!
//! Only here are the server's error words read. No text of the driver that could carry the URL is
//! passed on.

use redis::{ErrorKind, RedisError, ServerError};
use tenure_core::{Code, StoreError};

/// The server answered a command with an error.
///
/// The words below mean that nothing was changed: the server says them before a command runs, and a
/// script meets them at its first write at the latest, because it reads and judges everything
/// before. Whatever else the server says may have come in the middle.
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
        // A right can be missing for the last command of a script as well as for the first. Only
        // the text says that it is a script's.
        "NOPERM" if detail.contains("@user_script") => {
            return StoreError::unknown(Code::Denied, text);
        }
        "NOPERM" => Code::Denied,
        _ => return StoreError::unknown(Code::Failed, text),
    };
    StoreError::refused(code, text)
}

/// Whether the server does not know the script: then it did not run.
pub(super) fn is_no_script(error: &ServerError) -> bool {
    error.code() == "NOSCRIPT"
}

/// Nothing was sent yet, so nothing happened.
pub(super) fn connect_error(error: &RedisError, address: &str) -> StoreError {
    let refused = match error.clone().into_server_errors().as_deref() {
        _ if error.kind() == ErrorKind::AuthenticationFailed => {
            StoreError::refused(Code::Denied, format!("{address} refused user or password"))
        }
        Some([(_, first), ..]) => {
            let problem = judge(first).problem().clone();
            StoreError::refused(problem.code, problem.detail)
        }
        _ => unreachable(address),
    };
    refused.with_source(error.clone())
}

/// The server did not take a connection, or not in time.
pub(super) fn unreachable(address: &str) -> StoreError {
    StoreError::refused(Code::Unreachable, format!("no connection to {address}"))
}

/// The command was sent, and no answer came.
pub(super) fn lost(address: &str) -> StoreError {
    StoreError::unknown(Code::Lost, format!("no answer from {address}"))
}

/// The answer has another shape than the script's.
pub(super) fn unexpected(what: &str) -> StoreError {
    StoreError::unknown(Code::Failed, format!("an unexpected reply: {what}"))
}
