//! Shared parts of states, which are cheap to copy, compare and hash.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// A part of a state. Its `Hash` may omit data that is only counted, on which no decision or rule
/// depends.
pub(super) trait StatePart: Hash + Eq {
    /// Hashes the omitted data.
    fn hash_rest(&self, _: &mut DefaultHasher) {}
}

/// A part with cached hashes.
#[derive(Debug)]
pub(super) struct SharedPart<T>(Arc<Inner<T>>);

#[derive(Debug)]
struct Inner<T> {
    hash: u64,
    whole: u64,
    part: T,
}

impl<T: StatePart> SharedPart<T> {
    pub(super) fn new(part: T) -> Self {
        let mut hasher = DefaultHasher::new();
        part.hash(&mut hasher);
        let hash = hasher.finish();
        part.hash_rest(&mut hasher);
        Self(Arc::new(Inner { hash, whole: hasher.finish(), part }))
    }

    pub(super) fn get(&self) -> &T {
        &self.0.part
    }

    /// Returns the hash of the whole part.
    pub(super) fn whole(&self) -> u64 {
        self.0.whole
    }
}

impl<T> Clone for SharedPart<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: StatePart> PartialEq for SharedPart<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.hash == other.0.hash && self.get() == other.get()
    }
}

impl<T: StatePart> Eq for SharedPart<T> {}

impl<T: StatePart> Hash for SharedPart<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash.hash(state);
    }
}
