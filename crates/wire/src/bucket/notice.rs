//! Log notices about bucketing.

use std::fmt;

use tenure_core::bucket::{Invalid, Total};

use super::STATE;

/// A line for a log. It repeats what stood in config or state: escape it where it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// There are ranges and no rotation.
    RangesIgnored {
        /// The ranges, cut short if they are long.
        value: String,
    },
    /// The ranges that are ignored could not be read.
    RangesUnreadable(Invalid),
    /// The state names a bucket that does not exist, or nothing that could be one.
    StateDamaged {
        /// Content of its reserved member, cut short if it is long.
        value: String,
        /// Number of buckets.
        total: Total,
    },
    /// The state was written with another total.
    TotalChanged {
        /// The total of then.
        from: u64,
        /// The total of now.
        to: Total,
    },
    /// The rotation has chosen a bucket.
    Chosen {
        /// The bucket.
        bucket: u32,
    },
}

impl Notice {
    /// Whether somebody should look at it.
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
                write!(f, "bucket_ranges would be refused: {}", invalid.told())
            }
            Self::StateDamaged { value, total } => write!(
                f,
                "{STATE} is {value}, which names no bucket from 1 to {total}: the rotation begins \
                 anew"
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
