//! Store wrapper that runs an action between two calls of another caller.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tenure_core::{Store, StoreResult};

use super::Op;
use super::around::{StoreWrapper, pass_on};
use crate::delegate::impl_store;

/// Action that runs before a call continues.
pub type Interlude = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A store that runs an action before its calls of one kind.
pub struct Hooked {
    inner: Arc<dyn Store>,
    before: Op,
    next: Mutex<Box<dyn FnMut() -> Option<Interlude> + Send>>,
}

impl Hooked {
    /// Runs `interlude` right before the first `before` reaches `inner`.
    pub fn new(inner: Arc<dyn Store>, before: Op, interlude: Interlude) -> Self {
        let mut once = Some(interlude);
        Self { inner, before, next: Mutex::new(Box::new(move || once.take())) }
    }

    /// Runs an action right before each `before` reaches `inner`.
    pub fn each(
        inner: Arc<dyn Store>,
        before: Op,
        mut make: impl FnMut() -> Interlude + Send + 'static,
    ) -> Self {
        Self { inner, before, next: Mutex::new(Box::new(move || Some(make()))) }
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl StoreWrapper for Hooked {
    async fn around<T: Send>(
        &self,
        op: Op,
        call: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T> {
        if op == self.before {
            let interlude = (self.next.lock().unwrap_or_else(PoisonError::into_inner))();
            if let Some(interlude) = interlude {
                interlude.await;
            }
        }
        call.await
    }
}

impl_store!(Hooked by pass_on);
