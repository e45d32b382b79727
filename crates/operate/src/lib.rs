//! Operations on groups of instances and on checkpoints.
//!
//! Every function takes a [`Store`](tenure_core::Store) and typed options, and returns a typed
//! report that serializes to the JSON that the `tenure` command prints. Nothing here prints or
//! reads a terminal.
//!
//! | to | use |
//! |---|---|
//! | list groups | [`list::list`] |
//! | monitor groups | [`top::Monitor`] |
//! | explain where a duty is | [`explain::explain`] |
//! | plan a change, and apply it | [`plan::plan`], [`plan::apply`] |
//! | hand over the duties of an instance | [`drain::start`] |
//! | remove an instance from its group | [`evict::evict`] |
//! | pause or resume | [`pause::pause`] |
//! | pin a duty | [`pin::pin`] |
//! | change the share of an instance | [`share::set_share`] |
//! | forget duties | [`forget::forget`] |
//! | verify or rewind checkpoints | [`checkpoint::verify`], [`checkpoint::rewind`] |
//! | move checkpoints to another store | [`checkpoint::CheckpointMove`] |
//! | choose the bucket of a run | [`bucket::Rotation`] |
//! | diagnose a store | [`doctor::diagnose`] |
//!
//! Drains, pauses, pins and shares are entries in the group's document, which every member reads.
//!
//! ```
//! use std::sync::Arc;
//! use tenure_core::DutyKey;
//! use tenure_operate::pause::{PauseOptions, Scope, pause};
//! use tenure_operate::{OperateError, list};
//! # use tenure_store::{BootClock, Memory};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), OperateError> {
//! # let store = Memory::new(Arc::new(BootClock));
//! let duty = DutyKey::new("mail", "inbox")?;
//! let options = PauseOptions { scope: Scope::Duty(duty), pause: true, dry_run: false };
//! // Nobody has held the duty yet: a typo is refused.
//! let refused = pause(&store, &options).await.unwrap_err();
//! assert_eq!(refused.code().as_str(), "DT010");
//! for group in list::list(&store, None, None).await? {
//!     println!("{}: {} duties", group.group, group.duties.len());
//! }
//! # Ok(()) }
//! ```

mod audit;
pub mod bucket;
pub mod checkpoint;
mod clock;
mod directive;
pub mod doctor;
pub mod drain;
mod edit;
mod error;
pub mod evict;
pub mod explain;
pub mod forget;
mod group;
pub mod list;
mod past;
pub mod pause;
pub mod pin;
pub mod plan;
mod replace;
mod serialize;
pub mod share;
pub mod top;

pub use audit::AuditTrail;
pub use directive::{Directive, directives};
pub use edit::EditSummary;
pub use error::{OperateError, nothing_happened};
pub use group::{StoredGroup, duties};
pub use replace::{replace, replace_or_create};
pub use serialize::{ErrorSummary, millis, timestamp};
