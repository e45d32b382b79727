//! How much of the process' memory requests may take together.
//!
//! Whoever reads a body or makes a large answer takes its share before, and gives it back when the
//! bytes are gone. Nobody waits for a share: what is not there at once is overload, and says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::body::Bytes;

/// The bytes of all requests of this process.
#[derive(Debug)]
pub(crate) struct Budget {
    size: usize,
    taken: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(size: usize) -> Arc<Self> {
        Arc::new(Self { size, taken: AtomicUsize::new(0) })
    }

    /// How much is taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// How much there is.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Takes so many bytes if they are there.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        self.add(bytes).then(|| Share { budget: Arc::clone(self), bytes })
    }

    fn add(&self, bytes: usize) -> bool {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= self.size);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

/// A part of the budget; given back on drop.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Share {
    /// Takes more, if it is there.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let grown = self.budget.add(bytes);
        self.bytes += if grown { bytes } else { 0 };
        grown
    }

    /// Gives back what is above `bytes`.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let back = self.bytes.saturating_sub(bytes);
        self.budget.taken.fetch_sub(back, Ordering::Relaxed);
        self.bytes -= back;
    }
}

/// Text that gives its share back when it is gone.
pub(crate) fn paid(text: String, mut share: Share) -> Bytes {
    share.shrink(text.len());
    Bytes::from_owner(Paid { text, _share: share })
}

struct Paid {
    text: String,
    _share: Share,
}

impl AsRef<[u8]> for Paid {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is() {
        let budget = Budget::new(100);
        let mut first = budget.take(60).unwrap();
        assert!(budget.take(41).is_none());
        assert!(budget.take(usize::MAX).is_none());
        let second = budget.take(30).unwrap();
        assert!(!first.grow(11));
        assert!(first.grow(10));
        assert_eq!(budget.taken(), 100);
        first.shrink(5);
        first.shrink(50);
        assert_eq!(budget.taken(), 35);
        drop(second);
        drop(first);
        assert_eq!(budget.taken(), 0);
    }
}
