//! Buckets: which entities belong together, and which bucket comes next.
//!
//! An entity belongs to one of `total` buckets, numbered from 1, whoever asks: [`bucket`] is the
//! HMAC-MD5 of its name under the connector's key, first eight hex digits, modulo. Workers with the
//! same key and total and different ids share the entities without meeting. [`next`] rotates one
//! worker through the buckets.

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
    /// The most buckets.
    pub const MAX_BUCKETS: u32 = 1_000_000;
    /// One bucket, which has everything: the default.
    pub const ONE: Self = Self(1);

    /// So many buckets.
    pub fn new(total: u64) -> Result<Self, Invalid> {
        match u32::try_from(total) {
            Ok(total @ 1..=Self::MAX_BUCKETS) => Ok(Self(total)),
            _ => Err(Invalid::total(total)),
        }
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The id of one of these buckets.
    pub fn id(self, id: u64) -> Result<u32, Invalid> {
        self.has(id).ok_or_else(|| Invalid::id(id, self))
    }

    /// The same, where a number that is none of them says nothing.
    fn has(self, id: u64) -> Option<u32> {
        u32::try_from(id).ok().filter(|id| (1..=self.0).contains(id))
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The bucket of an entity, from 1 to `total`. Who asks for many keeps a [`Partition`].
///
/// Key and data are taken as they are, byte by byte: the caller gives one and the same spelling.
pub fn bucket(key: &str, data: impl AsRef<[u8]>, total: Total) -> u32 {
    hash(keyed(key), data.as_ref()) % total.0 + 1
}

fn keyed(key: &str) -> Hmac<Md5> {
    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
    Hmac::new_from_slice(key.as_bytes()).expect("HMAC takes a key of any length")
}

/// The first eight hex digits as a number.
fn hash(mut mac: Hmac<Md5>, data: &[u8]) -> u32 {
    mac.update(data);
    let [a, b, c, d, ..] = mac.finalize().into_bytes().0;
    u32::from_be_bytes([a, b, c, d])
}

/// The buckets of one connector: a key and a total.
#[derive(Clone)]
pub struct Partition {
    key: String,
    total: Total,
    mac: Hmac<Md5>,
}

impl Partition {
    /// The buckets under a key, which is a name and no secret.
    pub fn new(key: &str, total: Total) -> Self {
        Self { key: key.to_owned(), total, mac: keyed(key) }
    }

    /// Returns the number of buckets.
    pub fn total(&self) -> Total {
        self.total
    }

    /// Returns the number that decides the bucket: the first eight hex digits of the hash.
    pub fn hash(&self, data: impl AsRef<[u8]>) -> u32 {
        hash(self.mac.clone(), data.as_ref())
    }

    /// The bucket of an entity.
    pub fn bucket(&self, data: impl AsRef<[u8]>) -> u32 {
        self.hash(data) % self.total.0 + 1
    }

    /// One bucket of these.
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

/// The bucket that a run processes: what is in it, and what is not.
#[derive(Clone, Debug)]
pub struct Active {
    partition: Partition,
    id: u32,
}

impl Active {
    /// The number of the bucket.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The buckets of which this is one.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Whether an entity is in it.
    pub fn contains(&self, data: impl AsRef<[u8]>) -> bool {
        self.partition.bucket(data) == self.id
    }

    /// Only what is in it. Put this where the connector lists its entities, and nowhere else.
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

    /// The same for a whole list, with two lines for a log: what there was, and what was kept.
    /// `entity` names what they are, as in `repositories`.
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

/// The bucket after `last`: the smallest eligible one above it, or else the smallest of all.
///
/// A `last` that is not one of these buckets counts as none (a state can be damaged, or come from
/// another total), so the result is always within 1 to `total`.
pub fn next(total: Total, ranges: Option<&Ranges>, last: Option<u64>) -> u32 {
    let last = last.and_then(|last| total.has(last)).unwrap_or(total.0);
    match ranges {
        Some(ranges) => ranges.after(last),
        None => last % total.0 + 1,
    }
}

#[cfg(test)]
mod tests;
