//! Bucketing: assigns entities to buckets, and rotates through the buckets.
//!
//! An entity belongs to one of `total` buckets, numbered from 1. Its bucket is the first eight hex
//! digits of the HMAC-MD5 of its name under the connector's key, modulo `total`, plus 1. Workers
//! with the same key and total and different ids share the entities without coordination. [`next`]
//! rotates one worker through the buckets.

mod invalid;
mod ranges;

use std::borrow::Cow;
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;

pub use invalid::{Field, Invalid, MAX_SHOWN_CHARS, short};
pub use ranges::{Ranges, RangesBuilder};

/// Number of buckets: 1 to [`Total::MAX_BUCKETS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Total(u32);

impl Total {
    /// The largest number of buckets.
    pub const MAX_BUCKETS: u32 = 1_000_000;
    /// One bucket with all entities: the default.
    pub const ONE: Self = Self(1);

    /// Checks the number of buckets.
    pub fn new(total: u64) -> Result<Self, Invalid> {
        match u32::try_from(total) {
            Ok(total @ 1..=Self::MAX_BUCKETS) => Ok(Self(total)),
            _ => Err(Invalid::total(total)),
        }
    }

    /// Returns the number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Checks the id of a bucket.
    pub fn id(self, id: u64) -> Result<u32, Invalid> {
        self.has(id).ok_or_else(|| Invalid::id(id, self))
    }

    fn has(self, id: u64) -> Option<u32> {
        u32::try_from(id).ok().filter(|id| (1..=self.0).contains(id))
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the bucket of an entity, from 1 to `total`. Keep a [`Partition`] for many entities. Key
/// and data are hashed byte by byte: callers must use one spelling.
pub fn bucket(key: &str, data: impl AsRef<[u8]>, total: Total) -> u32 {
    Partition::new(key, total).bucket(data)
}

/// Partition of one connector's entities into buckets: a key and a total.
#[derive(Clone)]
pub struct Partition {
    key: String,
    total: Total,
    mac: Hmac<Md5>,
}

impl Partition {
    /// Creates a partition. The key is a name, not a secret.
    pub fn new(key: &str, total: Total) -> Self {
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let mac = Hmac::new_from_slice(key.as_bytes()).expect("HMAC takes a key of any length");
        Self { key: key.to_owned(), total, mac }
    }

    /// Returns the number of buckets.
    pub fn total(&self) -> Total {
        self.total
    }

    /// Returns the number that decides the bucket: the first eight hex digits of the hash.
    pub fn hash(&self, data: impl AsRef<[u8]>) -> u32 {
        let digest = self.mac.clone().chain_update(data).finalize().into_bytes();
        let [a, b, c, d, ..] = digest.0;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the bucket of an entity.
    pub fn bucket(&self, data: impl AsRef<[u8]>) -> u32 {
        self.hash(data) % self.total.0 + 1
    }

    /// Selects one of these buckets.
    pub fn active(self, id: u64) -> Result<Active, Invalid> {
        Ok(Active { id: self.total.id(id)?, partition: self })
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, total, .. } = self;
        f.debug_struct("Partition").field("key", key).field("total", total).finish()
    }
}

/// The bucket that a run processes.
#[derive(Clone, Debug)]
pub struct Active {
    partition: Partition,
    id: u32,
}

impl Active {
    /// Returns the number of the bucket.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the partition that the bucket is part of.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Whether the bucket contains an entity.
    pub fn contains(&self, data: impl AsRef<[u8]>) -> bool {
        self.partition.bucket(data) == self.id
    }

    /// Keeps the entities in this bucket. Use it where the connector lists its entities.
    ///
    /// ```
    /// use tenure_core::bucket::{Partition, Total};
    ///
    /// # fn main() -> Result<(), tenure_core::bucket::Invalid> {
    /// let active = Partition::new("farosai/test", Total::new(3)?).active(3)?;
    /// let names = ["alpha", "beta", "gamma", "delta"];
    /// let mine: Vec<_> = active.select(names, |name| (*name).into()).collect();
    /// assert_eq!(mine, ["gamma", "delta"]);
    /// # Ok(()) }
    /// ```
    pub fn select<I: IntoIterator>(
        &self,
        entities: I,
        name: impl Fn(&I::Item) -> Cow<'_, str>,
    ) -> impl Iterator<Item = I::Item> {
        entities.into_iter().filter(move |entity| self.contains(name(entity).as_bytes()))
    }

    /// Selects from a whole list and passes two log lines to `say`: all entities and the selected
    /// ones. `entity` names them, as in `repositories`.
    pub fn select_and_say<T>(
        &self,
        entities: Vec<T>,
        name: impl Fn(&T) -> Cow<'_, str>,
        entity: &str,
        mut say: impl FnMut(String),
    ) -> Vec<T> {
        say(self.line("visible", entity, &entities, &name));
        let selected: Vec<T> = self.select(entities, &name).collect();
        say(self.line("selected", entity, &selected, &name));
        selected
    }

    fn line<T>(
        &self,
        what: &str,
        entity: &str,
        entities: &[T],
        name: impl Fn(&T) -> Cow<'_, str>,
    ) -> String {
        let Self { partition: Partition { key, total, .. }, id } = self;
        let count = entities.len();
        let mut names = entities.iter().map(name).collect::<Vec<_>>().join(", ");
        if entities.is_empty() {
            "<none>".clone_into(&mut names);
        }
        format!("Bucketing ({key} bucket {id}/{total}): {what} {entity} ({count}) -> {names}")
    }
}

/// Returns the bucket after `last`: the smallest eligible one above it, or else the smallest of
/// all. A `last` outside the buckets, as in a damaged state, is ignored.
pub fn next(total: Total, ranges: Option<&Ranges>, last: Option<u64>) -> u32 {
    let last = last.and_then(|last| total.has(last)).unwrap_or(total.0);
    match ranges {
        Some(ranges) => ranges.after(last),
        None => last % total.0 + 1,
    }
}

#[cfg(test)]
mod tests;
