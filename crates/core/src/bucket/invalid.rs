//! Why settings of bucketing are refused.

use std::fmt;

use super::Total;

/// A setting of bucketing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Number of buckets.
    Total,
    /// The bucket of this run.
    Id,
    /// Whether the bucket is chosen by rotation.
    RoundRobin,
    /// The buckets that take part in the rotation.
    Ranges,
}

impl Field {
    /// Its name in a connector's config.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Total => "bucket_total",
            Self::Id => "bucket_id",
            Self::RoundRobin => "round_robin_bucket_execution",
            Self::Ranges => "bucket_ranges",
        }
    }
}

/// A setting that is refused. It is shown as the one message that connectors log; [`Invalid::told`]
/// says everything. Both repeat what stood there: escape it where it is shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    field: Field,
    value: String,
    message: String,
    allowed: String,
}

/// No more characters of a value are repeated in a message.
pub const MAX_SHOWN_CHARS: usize = 120;

/// A value as far as it is repeated in a message.
pub fn short(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

impl Invalid {
    /// Which setting.
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

    /// The message, the setting, its value, and what is allowed.
    pub fn told(&self) -> impl fmt::Display {
        struct Told<'a>(&'a Invalid);
        impl fmt::Display for Told<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Invalid { field, value, message, allowed } = self.0;
                write!(f, "{message} ({} is {value}; allowed is {allowed})", field.name())
            }
        }
        Told(self)
    }

    fn new(field: Field, value: impl fmt::Display, message: String, allowed: String) -> Self {
        Self { field, value: short(&value.to_string()), message, allowed }
    }

    /// `bucket_total`, whatever it is instead.
    pub fn total(value: impl fmt::Display) -> Self {
        let message = "bucket_total must be a positive integer".to_owned();
        let allowed = format!("a whole number from 1 to {}", Total::MAX_BUCKETS);
        Self::new(Field::Total, value, message, allowed)
    }

    /// `bucket_id`, whatever it is instead.
    pub fn id(value: impl fmt::Display, total: Total) -> Self {
        let message = format!("bucket_id must be between 1 and {total}");
        let allowed = format!("a whole number from 1 to {total}");
        Self::new(Field::Id, value, message, allowed)
    }

    /// `round_robin_bucket_execution`, whatever it is instead.
    pub fn round_robin(value: impl fmt::Display) -> Self {
        let message = format!("{} must be true or false", Field::RoundRobin.name());
        Self::new(Field::RoundRobin, value, message, "true or false".to_owned())
    }

    /// `bucket_ranges` that are neither text nor a list.
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

    /// One piece of the ranges, and what is wrong with it.
    pub(super) fn piece(piece: &str, message: String, total: Total) -> Self {
        Self::of_ranges(format_args!("{piece:?}"), message, total)
    }
}
