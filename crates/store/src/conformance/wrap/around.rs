//! Wrappers around a store, and the names of its calls.

use std::future::Future;

use async_trait::async_trait;
use tenure_core::StoreResult;

macro_rules! ops {
    ($($name:ident $text:literal)*) => {
        /// A call of the store trait, by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "named after the methods of the trait")]
        pub enum Op { $($name,)* }

        impl Op {
            /// Every call.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The method's name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

ops! {
    OpenSession "open_session"
    CloseSession "close_session"
    KeepAlive "keep_alive"
    Claim "claim"
    Release "release"
    Evict "evict"
    Groups "groups"
    Members "members"
    Holders "holders"
    Load "load"
    Commit "commit"
    Report "report"
    Reports "reports"
    History "history"
    GroupDocument "group_document"
    ReplaceGroupDocument "replace_group_document"
    Watch "watch"
    Audit "audit"
    Forget "forget"
    Adopt "adopt"
    Retain "retain"
    Retention "retention"
    Survey "survey"
    WallClock "wall_clock"
}

/// Action around each call.
#[async_trait]
pub(super) trait StoreWrapper {
    async fn around<T: Send>(
        &self,
        op: Op,
        call: impl Future<Output = StoreResult<T>> + Send,
    ) -> StoreResult<T>;
}

/// Passes a call on through [`StoreWrapper::around`]; for `impl_store!`. Checks arguments first.
macro_rules! pass_on {
    ($wrapper:ident) => {
        $wrapper.inner.abilities()
    };
    ($wrapper:ident $op:ident $method:ident $own:ident $arguments:tt) => {
        $wrapper.around($crate::conformance::wrap::Op::$op, $wrapper.inner.$method $arguments).await
    };
}
pub(super) use pass_on;
