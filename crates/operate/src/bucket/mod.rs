//! Buckets of entities: counts per bucket, and the rotation that chooses the bucket of a run.

mod lines;
mod rotation;

use std::io::Read;

use tenure_core::StoreError;
use tenure_core::bucket::Partition;

pub use lines::{EntityLines, each, entity, unreadable};
pub use rotation::{Rotation, RotationNotice, RotationStep, read_run_config};

/// Number of entities in each bucket.
#[derive(Clone, Debug)]
pub struct BucketCounts {
    /// Number of entities.
    pub entities: u64,
    /// Number of entities with an empty name.
    pub blank: u64,
    /// Entities by bucket; the first is bucket 1.
    pub buckets: Vec<u64>,
}

/// Counts the entities of an input by bucket. `progress` is called with the bytes of each block
/// and the entities so far.
pub fn count(
    partition: &Partition,
    lines: &mut EntityLines<impl Read>,
    mut progress: impl FnMut(usize, u64),
) -> Result<BucketCounts, StoreError> {
    let buckets = vec![0; partition.total().get() as usize];
    let mut counts = BucketCounts { entities: 0, blank: 0, buckets };
    while let Some(block) = lines.block()? {
        for name in each(block).map(entity) {
            counts.buckets[partition.bucket(name) as usize - 1] += 1;
            counts.entities += 1;
            counts.blank += u64::from(name.is_empty());
        }
        progress(block.len(), counts.entities);
    }
    Ok(counts)
}
