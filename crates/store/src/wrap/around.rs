//! The one place that passes every call of the trait on.

use std::future::Future;

use async_trait::async_trait;
use tenure_core::StoreError;

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
}

/// Action around each call; [`pass_on`] makes a store of it.
#[async_trait]
pub(super) trait StoreWrapper {
    async fn around<T: Send>(
        &self,
        op: Op,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError>;
}

/// Implements the store trait for a wrapper with a field `inner` by [`StoreWrapper`].
macro_rules! pass_on {
    ($wrapper:ident: $($op:ident $method:ident($($arg:ident: $kind:ty),*) -> $answer:ty;)*) => {
        #[async_trait::async_trait]
        impl tenure_core::Store for $wrapper {
            fn abilities(&self) -> tenure_core::store::Abilities {
                self.inner.abilities()
            }
            $(
                async fn $method(&self, $($arg: $kind),*)
                    -> Result<$answer, tenure_core::StoreError>
                {
                    use $crate::wrap::around::StoreWrapper;
                    self.around($crate::wrap::Op::$op, self.inner.$method($($arg),*)).await
                }
            )*
        }
    };
    ($wrapper:ident) => {
        $crate::wrap::around::pass_on! { $wrapper:
            OpenSession open_session(open: &tenure_core::store::OpenSession)
                -> tenure_core::store::Opened;
            CloseSession close_session(
                session: &tenure_core::Session, reason: &tenure_core::Reason
            ) -> tenure_core::store::Closed;
            KeepAlive keep_alive(
                session: &tenure_core::Session,
                note: Option<&tenure_core::Note>,
                holds: &[tenure_core::Hold]
            ) -> tenure_core::store::KeptAlive;
            Claim claim(
                session: &tenure_core::Session,
                wants: &[tenure_core::store::ClaimRequest],
                reason: &tenure_core::Reason
            ) -> Vec<tenure_core::store::Claimed>;
            Release release(
                session: &tenure_core::Session,
                holds: &[tenure_core::Hold],
                reason: &tenure_core::Reason
            ) -> Vec<tenure_core::store::Released>;
            Evict evict(
                group: &tenure_core::GroupName,
                instance: &tenure_core::InstanceId,
                when: tenure_core::store::Evict,
                reason: &tenure_core::Reason
            ) -> tenure_core::store::Evicted;
            Groups groups() -> Vec<tenure_core::GroupName>;
            Members members(group: &tenure_core::GroupName) -> Vec<tenure_core::store::Member>;
            Holders holders(group: &tenure_core::GroupName) -> Vec<tenure_core::store::Holder>;
            Load load(duties: &[tenure_core::DutyKey])
                -> Vec<Option<tenure_core::store::Checkpoint>>;
            Commit commit(
                session: &tenure_core::Session, commits: &[tenure_core::store::Commit]
            ) -> Vec<tenure_core::store::Committed>;
            History history(duty: &tenure_core::DutyKey)
                -> Vec<tenure_core::store::Checkpoint>;
            GroupDocument group_document(group: &tenure_core::GroupName)
                -> tenure_core::store::GroupDocument;
            ReplaceGroupDocument replace_group_document(
                group: &tenure_core::GroupName,
                expected: tenure_core::Version,
                document: &tenure_core::Document
            ) -> tenure_core::store::Replaced;
            Watch watch(group: &tenure_core::GroupName)
                -> Box<dyn tenure_core::store::Watch>;
            Audit audit(
                group: &tenure_core::GroupName, range: tenure_core::store::AuditRange
            ) -> Vec<tenure_core::store::AuditEntry>;
            Forget forget(duties: &[tenure_core::DutyKey], reason: &tenure_core::Reason)
                -> Vec<tenure_core::store::Forgotten>;
            Adopt adopt(adopt: &tenure_core::store::Adopt) -> tenure_core::store::Adopted;
            Retain retain(retention: tenure_core::store::Retention) -> ();
            Retention retention() -> tenure_core::store::Retention;
            Survey survey() -> tenure_core::guarantee::Survey;
        }
    };
}
pub(super) use pass_on;
