//! Serialization of core types, which do not depend on serde, and of times.

use std::fmt::Display;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tenure_core::store::AuditEntry;
use tenure_core::{Epoch, StoreError};

type Serialized<S> = Result<<S as Serializer>::Ok, <S as Serializer>::Error>;

/// Formats a time in milliseconds since 1970 as `2026-02-15T10:00:00.123Z`.
pub fn timestamp(unix_ms: u64) -> String {
    i64::try_from(unix_ms).map_or_else(|_| format!("{unix_ms} ms"), signed_timestamp)
}

pub(crate) fn signed_timestamp(unix_ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(unix_ms);
    time.map_or_else(|_| format!("{unix_ms} ms"), |time| format!("{time:.3}"))
}

/// Returns a duration in whole milliseconds.
pub fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn text<T: Display, S: Serializer>(value: &T, serializer: S) -> Serialized<S> {
    serializer.collect_str(value)
}

pub(crate) fn texts<T: Display, S: Serializer>(values: &[T], serializer: S) -> Serialized<S> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

pub(crate) fn optional_text<T: Display, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Serialized<S> {
    value.as_ref().map(ToString::to_string).serialize(serializer)
}

pub(crate) fn optional_epoch<S: Serializer>(epoch: &Option<Epoch>, serializer: S) -> Serialized<S> {
    epoch.map(Epoch::get).serialize(serializer)
}

/// Audit entries as JSON.
pub(crate) fn audit_json(entries: &[AuditEntry]) -> Value {
    let entry = |entry: &AuditEntry| {
        json!({
            "unix_ms": entry.unix_ms,
            "event": entry.kind.as_str(),
            "instance": entry.instance.to_string(),
            "duty": entry.duty.as_ref().map(ToString::to_string),
            "epoch": entry.epoch.map(Epoch::get),
            "reason": entry.reason,
        })
    };
    entries.iter().map(entry).collect()
}

pub(crate) fn entries<S: Serializer>(entries: &[AuditEntry], serializer: S) -> Serialized<S> {
    audit_json(entries).serialize(serializer)
}

pub(crate) fn error<S: Serializer>(error: &StoreError, serializer: S) -> Serialized<S> {
    ErrorSummary::from(error).serialize(serializer)
}

pub(crate) fn optional_error<S: Serializer>(
    error: &Option<StoreError>,
    serializer: S,
) -> Serialized<S> {
    error.as_ref().map(ErrorSummary::from).serialize(serializer)
}

/// Code and detail of an error, as reports contain them.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorSummary {
    /// Stable error code, such as `ST002`.
    pub code: &'static str,
    /// Details of this case.
    pub detail: String,
}

impl From<&StoreError> for ErrorSummary {
    fn from(error: &StoreError) -> Self {
        Self { code: error.code().as_str(), detail: error.problem().detail.clone() }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_time_is_written_as_iso_8601() {
        assert_eq!(super::timestamp(1_771_149_600_123), "2026-02-15T10:00:00.123Z");
        assert_eq!(super::timestamp(u64::MAX), format!("{} ms", u64::MAX));
    }
}
