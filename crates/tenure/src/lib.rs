//! Run any process that polls, ingests or works as many replicas.
//!
//! A **duty** is a unit of work that one instance at a time may do. A **store** grants it to one
//! instance's session under an **epoch** that only grows, and refuses the checkpoints of everybody
//! else. This crate only gathers what its parts offer: the words and the contract
//! ([`Store`]), the stores ([`store`]), and who this process is ([`process`]).
//!
//! ```no_run
//! # #[cfg(feature = "sqlite")]
//! # async fn example() -> Result<(), tenure::StoreError> {
//! use std::time::Duration;
//! use tenure::store::{Claimed, Commit, Committed, IfAbsent, OpenSession, StoreUrl, Want};
//! use tenure::{Document, DutyKey, Note, Reason, Ttl, Version, process};
//!
//! let url = StoreUrl::parse("sqlite:tenure.db")?;
//! let store = url.open(IfAbsent::Create, process::entropy()).await?;
//! let duty = DutyKey::new("demo", "one")?;
//! let open = OpenSession {
//!     group: duty.group.clone(),
//!     instance: process::instance().id().clone(),
//!     nonce: process::fresh_nonce(),
//!     ttl: Ttl::new(Duration::from_secs(30))?,
//!     note: Note::new("weight=1")?,
//! };
//! store.open_session(&open).await?;
//! let session = open.session();
//!
//! let why = Reason::new("start")?;
//! let claimed = store.claim(&session, &[Want::new(duty.clone())], &why).await?.remove(0);
//! if let Claimed::Granted(hold) = claimed {
//!     let last = store.load(&[duty]).await?.remove(0);
//!     let expected = last.map_or(Version::ZERO, |checkpoint| checkpoint.version);
//!     // ... work, until the deadline of the TTL, then remember how far it came:
//!     let document = Document::new(*b"offset=42")?;
//!     let commit = Commit { hold: hold.clone(), expected, document };
//!     if let Committed::Fenced { .. } = store.commit(&session, &[commit]).await?.remove(0) {
//!         // Somebody else holds the duty now: stop.
//!     }
//!     store.release(&session, &[hold], &Reason::new("done")?).await?;
//! }
//! store.close_session(&session, &Reason::new("done")?).await?;
//! # Ok(()) }
//! ```
//!
//! `examples/hold.rs` is the same with every answer looked at.

pub use tenure_core::{
    Clock, Code, Deadline, Document, DutyId, DutyKey, Epoch, GroupName, Hold, Instance, InstanceId,
    Jitter, LocalInstant, Mark, Nonce, Note, Problem, Reason, Session, Store, StoreError, Ttl,
    Version, guarantee, invariant, is_pause,
};
pub use tenure_duty::process;

/// What is asked of a store, what it answers, and the stores there are.
pub mod store {
    pub use tenure_core::store::*;
    pub use tenure_store::{BootClock, IfAbsent, Memory, StoreUrl, signing, transfer, wrap};

    /// PostgreSQL, and [`postgres::fence`] for effects in your own transaction.
    #[cfg(feature = "postgres")]
    pub use tenure_store::postgres;
    /// SQLite.
    #[cfg(feature = "sqlite")]
    pub use tenure_store::sqlite;
}
