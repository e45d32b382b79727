//! Types and rules of Tenure, without I/O, clock, randomness or runtime: time and entropy are
//! arguments.
//!
//! This crate has the types ([`Epoch`], [`DutyKey`], [`Hold`], [`Deadline`], ...), the lease
//! arithmetic ([`Ttl`]), the [`engine`] and the [`roster`], the [`invariant`]s that tests check,
//! and the [`Store`] trait, whose doc comment is the contract of every backend.

pub mod bucket;
mod clock;
mod deadline;
mod document;
pub mod engine;
mod epoch;
mod error;
mod escape;
pub mod fnv;
pub mod guarantee;
mod hold;
mod instance;
pub mod invariant;
#[doc(hidden)]
pub mod mutant;
mod name;
mod record;
pub mod roster;
mod seal;
pub mod store;
mod target;
#[cfg(test)]
mod tests;
pub mod text;
mod text_enum;

pub use clock::{Clock, LocalInstant};
pub use deadline::{Deadline, Jitter, Ttl, is_pause};
pub use document::{Document, Note, Reason};
pub use epoch::{Epoch, Version};
pub use error::{Code, Problem, StoreError, StoreResult};
pub use hold::{Hold, Mark, Session};
pub use instance::{Instance, Nonce};
#[doc(hidden)]
pub use mutant::Mutant;
pub use name::{DutyId, DutyKey, GroupName, InstanceId, Label};
pub use record::{Change, LogLevel, Record};
pub use seal::{CipherNonce, IdentitySignature, Mac, Moved, PublicKey, Seal};
pub use store::Store;
pub use target::{Listing, Target, Targets};

/// A boxed future. It is compiled once, in the crate that creates it; an unboxed one is compiled
/// again, with all that it calls, in each crate that awaits it.
// Why: docs/decisions/0045-boxed-futures-at-crate-boundaries.md
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
