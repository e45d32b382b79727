//! Errors in bucketing settings.

use std::fmt;

use super::Total;

crate::text_enum! {
    /// A bucketing setting, by its name in a connector's config.
    pub enum Field {
        Total "bucket_total" "Number of buckets."
        Id "bucket_id" "The bucket of this run."
        RoundRobin "round_robin_bucket_execution" "Whether the bucket is chosen by rotation."
        Ranges "bucket_ranges" "The buckets that take part in the rotation."
    }
}

/// A rejected setting. It displays as the message that connectors log; see also
/// [`Invalid::details`]. Both repeat the value, so escape them for display.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    field: Field,
    value: String,
    message: String,
    allowed: String,
}

/// Limit on the characters of a value that a message repeats.
pub const MAX_SHOWN_CHARS: usize = 120;

/// Shortens a value for a message.
pub fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

impl Invalid {
    /// Returns the setting.
    pub fn field(&self) -> Field {
        self.field
    }

    /// Returns the rejected value, shortened if it is long.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns the accepted values.
    pub fn allowed(&self) -> &str {
        &self.allowed
    }

    /// Returns the message, the setting, its value, and the accepted values.
    pub fn details(&self) -> String {
        let Self { field, value, message, allowed } = self;
        format!("{message} ({field} is {value}; allowed is {allowed})")
    }

    fn new(field: Field, value: impl fmt::Display, message: String, allowed: String) -> Self {
        Self { field, value: short(&value.to_string()), message, allowed }
    }

    /// Rejects a value of `bucket_total`.
    pub fn total(value: impl fmt::Display) -> Self {
        let message = "bucket_total must be a positive integer".to_owned();
        let allowed = format!("a whole number from 1 to {}", Total::MAX_BUCKETS);
        Self::new(Field::Total, value, message, allowed)
    }

    /// Rejects a value of `bucket_id`.
    pub fn id(value: impl fmt::Display, total: Total) -> Self {
        let message = format!("bucket_id must be between 1 and {total}");
        let allowed = format!("a whole number from 1 to {total}");
        Self::new(Field::Id, value, message, allowed)
    }

    /// Rejects a value of `round_robin_bucket_execution`.
    pub fn round_robin(value: impl fmt::Display) -> Self {
        let message = format!("{} must be true or false", Field::RoundRobin);
        Self::new(Field::RoundRobin, value, message, "true or false".to_owned())
    }

    /// Rejects `bucket_ranges` that are neither text nor a list.
    pub fn ranges(value: impl fmt::Display, total: Total) -> Self {
        let message = "bucket_ranges must be text or a list of texts".to_owned();
        Self::of_ranges(value, message, total)
    }

    pub(super) fn of_ranges(value: impl fmt::Display, message: String, total: Total) -> Self {
        let allowed = format!(
            "numbers and ranges from 1 to {total}, as in \"1-3,5,7-9\" or [\"1-3\", \"5\", \"7-9\"]"
        );
        Self::new(Field::Ranges, value, message, allowed)
    }

    pub(super) fn piece(piece: &str, message: String, total: Total) -> Self {
        Self::of_ranges(format_args!("{piece:?}"), message, total)
    }
}
