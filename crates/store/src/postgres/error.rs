//! PostgreSQL errors as store errors: the only place where SQLSTATEs are read.

use std::error::Error as _;
use std::io;

use deadpool_postgres::PoolError;
use tenure_core::{Code, StoreError};
use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

/// The code that `assert_hold` raises.
const NOT_HELD: &str = "TN001";

/// Converts an error of a statement. After an error that [`judge`] lists it did not happen; after
/// any other error it may have.
pub fn statement_error(error: Error) -> StoreError {
    let converted = match error.as_db_error() {
        None => StoreError::unknown(Code::Lost, describe(&error)),
        Some(db) => {
            let severity = db.parsed_severity();
            let ends_connection = matches!(severity, Some(Severity::Fatal | Severity::Panic));
            judge(db.code().code(), db.message(), ends_connection)
        }
    };
    converted.with_source(error)
}

/// Distinguishes an error before the commit from one that may have come after it.
///
/// A class is listed if every condition in it is raised while a statement runs, or instead of its
/// commit. An error that ends the connection proves nothing, whatever its code: the server may send
/// one after the commit.
fn judge(state: &str, message: &str, ends_connection: bool) -> StoreError {
    let class = state.get(..2).unwrap_or_default();
    let code = match state {
        NOT_HELD => Code::Fenced,
        // Lock not available, serialization failure, deadlock: rolled back, try again.
        "55P03" | "40001" | "40P01" => Code::Busy,
        // Read-only transaction: a standby.
        "25006" => Code::ReadOnly,
        // Disk full, out of memory, too many connections, other insufficient resources.
        "53100" | "53200" | "53300" | "53000" => Code::Full,
        "42501" => Code::Denied,
        // Check violation: our own limits on epochs and versions.
        "23514" => Code::Exhausted,
        // Undefined table, function or schema.
        "42P01" | "42883" | "3F000" => Code::NeedsMigration,
        // Raised by somebody's trigger; our functions raise their own codes.
        "P0001" => Code::Unstorable,
        // Transaction rollback: the class also has 40003, statement completion unknown.
        "40000" | "40002" => Code::Failed,
        _ => match class {
            // Data exception, constraint, limits of the program (a value too long for an index).
            "22" | "23" | "54" => Code::Unstorable,
            // Feature not supported, cardinality, cursor, transaction state, statement name,
            // triggered change, authorization, transaction termination, routines (ours and other
            // languages'), catalog, schema, syntax or access, check option, resources, object
            // state, PL/pgSQL.
            "0A" | "21" | "24" | "25" | "26" | "27" | "28" | "2D" | "2F" | "38" | "39" | "3D"
            | "3F" | "42" | "44" | "53" | "55" | "P0" => Code::Failed,
            // Connection exception, operator intervention, system or internal error.
            "08" | "57" | "58" | "XX" => return StoreError::unknown(Code::Lost, message),
            _ => return StoreError::unknown(Code::Failed, format!("{message} ({state})")),
        },
    };
    if ends_connection {
        return StoreError::unknown(Code::Lost, format!("{message} ({state})"));
    }
    match code {
        Code::Failed | Code::Unstorable if state != "P0001" => {
            StoreError::refused(code, format!("{message} ({state})"))
        }
        _ => StoreError::refused(code, message),
    }
}

/// Converts an error of connecting: nothing was sent yet.
pub(super) fn connect_error(error: Error) -> StoreError {
    if let Some(detail) = explain_tls(&error) {
        return crate::tls::failed(detail).with_source(error);
    }
    let code = match error.code() {
        Some(state) if state.code().starts_with("28") => Code::Denied,
        Some(&SqlState::INVALID_CATALOG_NAME) => Code::Denied,
        Some(&SqlState::TOO_MANY_CONNECTIONS) => Code::Full,
        Some(_) => Code::Unreachable,
        // The server asks for a password, and the URL has none.
        None if is_kind(&error, "invalid configuration") => Code::Denied,
        None if is_no_primary(&error) => Code::ReadOnly,
        None => Code::Unreachable,
    };
    let detail = error.as_db_error().map_or_else(|| describe(&error), |db| db.message().to_owned());
    StoreError::refused(code, detail).with_source(error)
}

/// Compares the kind of an error. The driver gives it only as the text of the error, which is the
/// same for every error of that kind; details are in the cause.
fn is_kind(error: &Error, kind: &str) -> bool {
    error.to_string() == kind
}

/// Whether the driver refused a server that accepts no writes. Its error has no number, unlike one
/// of the operating system.
fn is_no_primary(error: &Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| {
        cause.kind() == io::ErrorKind::PermissionDenied && cause.raw_os_error().is_none()
    })
}

/// Explains a failed handshake. With TLS 1.3, a server verifies the client's certificate only
/// afterwards, so its error can come with the first answer.
fn explain_tls(error: &Error) -> Option<String> {
    let cause = error.source();
    let explained = cause.and_then(crate::tls::explain);
    let in_handshake = is_kind(error, "error performing TLS handshake");
    explained.or_else(|| in_handshake.then(|| cause.map_or(describe(error), ToString::to_string)))
}

pub(super) fn pool_error(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => connect_error(error),
        PoolError::Timeout(kind) => StoreError::refused(
            Code::Unreachable,
            format!("timed out waiting for a connection ({kind:?})"),
        ),
        other => StoreError::refused(Code::Unreachable, other.to_string()).with_source(other),
    }
}

/// Returns the driver's message and its cause; neither ever contains a password.
fn describe(error: &Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_counts_as_refused_only_when_it_is_on_the_list() {
        for (state, code) in [
            ("TN001", Code::Fenced),
            ("55P03", Code::Busy),
            ("40001", Code::Busy),
            ("40P01", Code::Busy),
            ("40000", Code::Failed),
            ("40002", Code::Failed),
            ("25006", Code::ReadOnly),
            ("25P02", Code::Failed),
            ("53100", Code::Full),
            ("42501", Code::Denied),
            ("42601", Code::Failed),
            ("42P01", Code::NeedsMigration),
            ("23514", Code::Exhausted),
            ("23505", Code::Unstorable),
            ("22021", Code::Unstorable),
            ("54000", Code::Unstorable),
            ("P0001", Code::Unstorable),
            ("26000", Code::Failed),
        ] {
            let error = judge(state, "no", false);
            assert!(!error.is_unknown() && error.code() == code, "{state}: {error}");
            let fatal = judge(state, "no", true);
            assert!(fatal.is_unknown() && fatal.code() == Code::Lost, "{state}: {fatal}");
        }
    }

    #[test]
    fn every_other_error_may_have_come_after_the_commit() {
        for (state, code) in [
            // Statement completion unknown, and a code of its class that nobody has defined yet.
            ("40003", Code::Failed),
            ("40999", Code::Failed),
            ("08006", Code::Lost),
            ("57P01", Code::Lost),
            ("57014", Code::Lost),
            ("58030", Code::Lost),
            ("XX000", Code::Lost),
            // Codes of foreign servers, poolers and extensions, future codes, and invalid ones.
            ("HV000", Code::Failed),
            ("ZZ123", Code::Failed),
            ("TN999", Code::Failed),
            ("00000", Code::Failed),
            ("", Code::Failed),
            ("é", Code::Failed),
        ] {
            let error = judge(state, "no", false);
            assert!(error.is_unknown() && error.code() == code, "{state}: {error}");
        }
    }
}
