//! What PostgreSQL's errors mean: the only place where SQLSTATEs are read.

use std::error::Error as _;

use deadpool_postgres::PoolError;
use tenure_core::{Code, StoreError};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// The code that `assert_hold` raises.
const NOT_HELD: &str = "TN001";

/// An error of a statement. What is on this list surely did not happen; anything else may have.
pub fn of_statement(error: &Error) -> StoreError {
    let Some(db) = error.as_db_error() else {
        return StoreError::unknown(Code::Lost, describe(error));
    };
    let detail = db.message().to_owned();
    let state = db.code();
    let refused_code = match state.code() {
        NOT_HELD => Some(Code::Fenced),
        // Lock not available, serialization failure, deadlock: rolled back, try again.
        "55P03" | "40001" | "40P01" => Some(Code::Busy),
        // Read-only transaction: a standby.
        "25006" => Some(Code::ReadOnly),
        // Disk full, out of memory, too many connections, other insufficient resources.
        "53100" | "53200" | "53300" | "53000" => Some(Code::Full),
        "42501" => Some(Code::Denied),
        // Check violation: our own limits on epochs and versions.
        "23514" => Some(Code::Exhausted),
        // Undefined table, function or schema.
        "42P01" | "42883" | "3F000" => Some(Code::NeedsMigration),
        // Raised by somebody's trigger; what our functions raise has codes of its own.
        "P0001" => Some(Code::Unstorable),
        _ => None,
    };
    if let Some(code) = refused_code {
        return StoreError::refused(code, detail);
    }
    match state.code().get(..2) {
        // Connection exception, operator intervention, system error: the commit may be through.
        Some("08" | "57" | "58" | "XX") | None => StoreError::unknown(Code::Lost, detail),
        // Data exception, constraint, limits of the program (a value too long for an index).
        Some("22" | "23" | "54") => {
            StoreError::refused(Code::Unstorable, format!("{detail} ({})", state.code()))
        }
        // Every other class is an error before the commit.
        Some(_) => StoreError::refused(Code::Failed, format!("{detail} ({})", state.code())),
    }
}

/// An error while a connection was made: nothing was sent yet.
pub(super) fn of_connect(error: &Error) -> StoreError {
    if let Some(detail) = of_tls(error) {
        return crate::tls::failed(detail);
    }
    let code = match error.code() {
        Some(state) if state.code().starts_with("28") => Code::Denied,
        Some(&SqlState::INVALID_CATALOG_NAME) => Code::Denied,
        Some(&SqlState::TOO_MANY_CONNECTIONS) => Code::Full,
        Some(_) => Code::Unreachable,
        None if describe(error).contains("password") => Code::Denied,
        // The driver's own words for a server that is not what we look for: a primary.
        None if describe(error).contains("does not allow writes") => Code::ReadOnly,
        None => Code::Unreachable,
    };
    let detail = error.as_db_error().map_or_else(|| describe(error), |db| db.message().to_owned());
    StoreError::refused(code, detail)
}

/// What a failed handshake was about. With TLS 1.3 a server judges the client's certificate only
/// after that, so its complaint can come with the first answer.
fn of_tls(error: &Error) -> Option<String> {
    let cause = error.source();
    let explained = cause.and_then(crate::tls::explain);
    let in_handshake = error.to_string() == "error performing TLS handshake";
    explained.or_else(|| in_handshake.then(|| cause.map_or(describe(error), ToString::to_string)))
}

pub(super) fn of_pool(error: &PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => of_connect(error),
        PoolError::Timeout(kind) => {
            StoreError::refused(Code::Unreachable, format!("no connection in time ({kind:?})"))
        }
        other => StoreError::refused(Code::Unreachable, other.to_string()),
    }
}

/// The driver's words and their cause; it never puts a password into either.
fn describe(error: &Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
