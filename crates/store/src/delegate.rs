//! Implementation of the store trait for backends and layers: signatures and argument checks.

/// Implements [`tenure_core::Store`] for a type: `impl_store!(Redis by own_method);`
///
/// A row has the operation's name in tests, the method of the trait, the backends' name for it, the
/// signature, and after `where` the check that refuses bad arguments before the call. So the row
/// of `claim` becomes
///
/// ```text
/// async fn claim(&self, session: &Session, ...) -> StoreResult<Vec<Claimed>> {
///     check::claim(session, wants)?;
///     own_method!(self Claim claim hold_claim(session, wants, reason))
/// }
/// ```
///
/// The macro after `by` makes the call: `own_method` calls `self.hold_claim(...)`, `bounded_call`
/// (etcd) adds a time limit, `layer_method` is for signatures, `pass_on` for the wrappers of tests.
/// `abilities` is `own_method!(self)`.
macro_rules! impl_store {
    ($store:ident by $call:ident) => {
        $crate::delegate::impl_store! { @methods $store $call
            OpenSession open_session session_open(open: &OpenSession) -> Opened;
            CloseSession close_session session_close(session: &Session, reason: &Reason) -> Closed;
            KeepAlive keep_alive session_keep_alive(
                session: &Session, note: Option<&Note>, holds: &[Hold]
            ) -> KeptAlive where check::keep_alive(holds);
            Claim claim hold_claim(
                session: &Session, wants: &[ClaimRequest], reason: &Reason
            ) -> Vec<Claimed> where check::claim(session, wants);
            Release release hold_release(
                session: &Session, holds: &[Hold], reason: &Reason
            ) -> Vec<Released> where check::release(session, holds);
            Evict evict session_evict(
                group: &GroupName, instance: &InstanceId, when: Evict, reason: &Reason
            ) -> Evicted;
            Groups groups group_list() -> Vec<GroupName>;
            Members members group_members(group: &GroupName) -> Vec<Member>;
            Holders holders group_holders(group: &GroupName) -> Vec<Holder>;
            Load load checkpoint_load(duties: &[DutyKey]) -> Vec<Option<Checkpoint>>
                where check::load(duties);
            Commit commit checkpoint_commit(
                session: &Session, commits: &[Commit]
            ) -> Vec<Committed> where check::commit(session, commits);
            Report report report_store(
                session: &Session, reports: &[Report]
            ) -> Vec<Reported> where check::report(session, reports);
            Reports reports report_load(duties: &[DutyKey]) -> Vec<Option<DutyReport>>
                where check::load(duties);
            History history checkpoint_history(duty: &DutyKey) -> Vec<Checkpoint>;
            GroupDocument group_document document_read(group: &GroupName) -> GroupDocument;
            ReplaceGroupDocument replace_group_document document_replace(
                group: &GroupName, expected: Version, document: &Document
            ) -> Replaced;
            Watch watch group_watch(group: &GroupName) -> Box<dyn Watch>;
            Audit audit audit_read(group: &GroupName, range: AuditRange) -> Vec<AuditEntry>;
            Forget forget duty_forget(duties: &[DutyKey], reason: &Reason) -> Vec<Forgotten>
                where check::forget(duties);
            Adopt adopt store_adopt(adopt: &Adopt) -> Adopted where check::adopt(adopt);
            Retain retain store_retain(retention: Retention) -> ()
                where retention.check();
            Retention retention store_retention() -> Retention;
            Survey survey store_survey() -> Survey;
            WallClock wall_clock store_wall_clock() -> Option<u64>;
        }
    };
    (@methods $store:ident $call:ident
        $($op:ident $method:ident $own:ident($($arg:ident: $kind:ty),*)
            -> $answer:ty $(where $check:expr)?;)*
    ) => {
        const _: () = {
            use tenure_core::guarantee::Survey;
            use tenure_core::store::*;
            use tenure_core::{
                Document, DutyKey, GroupName, Hold, InstanceId, Note, Reason, Session, StoreResult,
                Version,
            };

            #[async_trait::async_trait]
            impl Store for $store {
                fn abilities(&self) -> Abilities {
                    $call!(self)
                }
                $(async fn $method(&self, $($arg: $kind),*) -> StoreResult<$answer> {
                    $($check?;)?
                    $call!(self $op $method $own($($arg),*))
                })*
            }
        };
    };
}
pub(crate) use impl_store;

/// Calls the backend's own method; a part of [`impl_store`].
macro_rules! own_method {
    ($store:ident) => {
        $store.store_abilities()
    };
    ($store:ident $op:ident $method:ident $own:ident $arguments:tt) => {
        $store.$own $arguments.await
    };
}
pub(crate) use own_method;
