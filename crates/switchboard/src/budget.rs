//! Memory budget for the requests of this process.
//!
//! A request reserves memory before it reads a body or builds a large response, and releases it
//! when the bytes are gone. Reservations never wait: a full budget is overload.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::body::Bytes;

#[derive(Debug)]
pub(crate) struct Budget {
    size: usize,
    taken: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(size: usize) -> Arc<Self> {
        Arc::new(Self { size, taken: AtomicUsize::new(0) })
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Reserves bytes if they are available.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Option<MemoryShare> {
        self.add(bytes).then(|| MemoryShare { budget: Arc::clone(self), bytes })
    }

    fn add(&self, bytes: usize) -> bool {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= self.size);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

/// Reserved bytes; released on drop.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    budget: Arc<Budget>,
    bytes: usize,
}

impl MemoryShare {
    /// Reserves more, if available.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let grown = self.budget.add(bytes);
        self.bytes += if grown { bytes } else { 0 };
        grown
    }

    /// Releases everything above `bytes`.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let back = self.bytes.saturating_sub(bytes);
        self.budget.taken.fetch_sub(back, Ordering::Relaxed);
        self.bytes -= back;
    }
}

/// Turns text into bytes that release their share when they are dropped.
pub(crate) fn paid(text: String, mut share: MemoryShare) -> Bytes {
    share.shrink(text.len());
    Bytes::from_owner(Paid { text, _share: share })
}

struct Paid {
    text: String,
    _share: MemoryShare,
}

impl AsRef<[u8]> for Paid {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Drop for MemoryShare {
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
