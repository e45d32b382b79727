//! Log notices about bucketing.

use std::fmt;

use tenure_core::bucket::{Invalid, Total};

use super::STATE;

/// Notice for a log. It repeats parts of config and state: escape it where it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Ranges are set without rotation.
    RangesIgnored {
        /// The ranges, shortened.
        value: String,
    },
    /// The ignored ranges are invalid.
    RangesUnreadable(Invalid),
    /// The state does not name an existing bucket.
    StateDamaged {
        /// Content of its reserved member, shortened.
        value: String,
        /// Number of buckets.
        total: Total,
    },
    /// The state was written with another total.
    TotalChanged {
        /// The previous total.
        from: u64,
        /// The current total.
        to: Total,
    },
    /// The rotation chose a bucket.
    Chosen {
        /// The bucket.
        bucket: u32,
    },
}

impl Notice {
    /// Returns whether the notice needs attention.
    pub fn is_warning(&self) -> bool {
        !matches!(self, Self::RangesIgnored { .. } | Self::Chosen { .. })
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RangesIgnored { value } => write!(
                f,
                "bucket_ranges {value} ignored because round_robin_bucket_execution is not enabled"
            ),
            Self::RangesUnreadable(invalid) => {
                write!(f, "bucket_ranges would be refused: {}", invalid.details())
            }
            Self::StateDamaged { value, total } => write!(
                f,
                "{STATE} is {value}, which is not a bucket from 1 to {total}; the rotation starts \
                 over"
            ),
            Self::TotalChanged { from, to } => write!(
                f,
                "bucket_total was {from} and is {to}: almost every entity is in another bucket \
                 now; all workers must have the same total"
            ),
            Self::Chosen { bucket } => {
                write!(f, "Using round robin bucket execution. Bucket id: {bucket}")
            }
        }
    }
}
