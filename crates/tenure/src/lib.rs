//! Run any process that polls, ingests or works as many replicas.
//!
//! A **duty** is a unit of work that one instance at a time may do. Join a group, and get a
//! [`Guard`] for each duty that is assigned to this process; check it before each effect.
//!
//! ```no_run
//! # #[cfg(feature = "sqlite")]
//! # async fn example() -> Result<(), tenure::StoreError> {
//! use std::time::Duration;
//! use tenure::{Duties, Guard, StoreError};
//!
//! // Sixteen shards over all processes that run this: SQLite on one host, or a server.
//! let ttl = Duration::from_secs(30);
//! let member = tenure::join("sqlite:tenure.db", "orders", ttl, Duties::Shards(16))?;
//! member.start().await?.run(work).await?;
//!
//! /// One task for each duty; it is dropped in time when the duty is lost.
//! async fn work(guard: Guard) -> Result<(), StoreError> {
//!     let mut offset = match guard.load().await? {
//!         Some(last) => String::from_utf8_lossy(last.document.as_bytes()).parse().unwrap_or(0),
//!         None => 0,
//!     };
//!     while !guard.draining() {
//!         // Check that a call of up to five seconds may begin, and send the epoch with it.
//!         guard.check_for(Duration::from_secs(5))?;
//!         offset = fetch_and_submit(offset, guard.epoch()).await;
//!         guard.commit(tenure::Document::new(offset.to_string())?).await?;
//!     }
//!     Ok(())
//! }
//! # async fn fetch_and_submit(offset: u64, _epoch: tenure::Epoch) -> u64 { offset }
//! # Ok(()) }
//! ```
//!
//! The examples `standby`, `shards`, `targets`, `work` and `fixed` show the ways to join;
//! `docs/reference/library.md` describes what to check when. The store ([`Store`], [`store`]) can
//! also be used without a membership, as in the examples `hold` and `fence`.

use std::sync::Arc;
use std::time::Duration;

pub use tenure_core::{
    Change, Clock, Code, Deadline, Document, DutyId, DutyKey, Epoch, GroupName, Hold, Instance,
    InstanceId, Jitter, Label, Listing, LocalInstant, Mark, Nonce, Note, Problem, Reason, Record,
    Session, Store, StoreError, Target, Targets, Ttl, Version, guarantee, invariant, is_pause,
};
pub use tenure_duty::{
    Duties, DutyError, Guard, HoldLost, HoldStatus, Join, LeaveHandle, Membership, MembershipEvent,
    Opener, PutOutcome, WorkOutcome, fixed, observe, opener, process,
};

/// Prepares to join `group` in the store at `url`, which is created if it does not exist. Change
/// further settings on the returned [`Join`], then call [`Join::start`].
pub fn join(url: &str, group: &str, ttl: Duration, duties: Duties) -> Result<Join, StoreError> {
    let url = store::StoreUrl::parse(url)?;
    let opener = opener(move || {
        let url = url.clone();
        async move { url.open(store::IfAbsent::Create, process::entropy()).await }
    });
    let (group, ttl) = (GroupName::new(group)?, Ttl::new(ttl)?);
    Ok(Join::new(opener, Arc::new(store::BootClock), group, ttl, duties))
}

/// Starts a membership with the partitions that the environment names, without a store or
/// coordination. See [`fixed::Partitions`], whose `join` also takes an observer. Work may take up
/// to `drain` to finish.
pub fn join_fixed(group: &str, drain: Duration) -> Result<Membership, DutyError> {
    let group = GroupName::new(group)?;
    let (clock, observer) = (Arc::new(store::BootClock), Arc::new(observe::TracingObserver));
    fixed::Partitions::from_env()?.join(&group, clock, drain, observer)
}

/// Operations on groups and checkpoints: drain, evict, pause, pin, plan, explain.
pub use tenure_operate as operate;
pub use tenure_targets as targets;

/// Buckets: the bucket of each entity, and the bucket of a run.
///
/// ```
/// use tenure::bucket::{CommitTiming, Config, Object, apply};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = r#"{"bucket_total": 12, "round_robin_bucket_execution": true}"#;
/// let run = apply(Object::read(config)?, None, CommitTiming::AtStart)?;
/// let active = Config::read(&run.config)?.active("farosai/airbyte-github-source")?;
/// let listed = ["facebook/react", "vercel/next.js"];
/// for repository in active.select(listed, |name| (*name).into()) {
///     println!("{repository} belongs to bucket {}", active.id());
/// }
/// # Ok(()) }
/// ```
pub mod bucket {
    pub use tenure_core::bucket::{
        Active, Field, Invalid, Partition, Ranges, RangesBuilder, Total, bucket,
    };
    pub use tenure_wire::bucket::{
        AppliedBucket, CommitTiming, Config, Executed, Notice, OWN_STATE, SCHEMA, STATE, apply,
        carry_over, next, validate,
    };
    pub use tenure_wire::object::{InvalidObject, Object};
}

/// Stores: the trait, its requests and responses, and the backends.
pub mod store {
    pub use tenure_core::store::*;
    pub use tenure_store::{BootClock, IfAbsent, Memory, StoreUrl, signing, transfer};

    /// PostgreSQL, and [`postgres::fence`] for effects in your own transaction.
    #[cfg(feature = "postgres")]
    pub use tenure_store::postgres;
    /// SQLite.
    #[cfg(feature = "sqlite")]
    pub use tenure_store::sqlite;
}
