//! What stands between a store and the work that a user's code does.
//!
//! A process [`Join`]s a group and gets a [`Membership`]: it tells which duties were assigned, each
//! with a [`Guard`] to check before each effect. [`fixed`] gives the same without a store.
//! Besides: who this [`process`] is, and how others [`observe`] what it does.

mod driver;
pub mod fixed;
mod guard;
mod join;
mod membership;
pub mod observe;
pub mod process;
mod standing;
pub mod targets;

pub use guard::{Guard, Lost};
pub use join::{BoxFuture, Duties, Join, Opener, opener};
pub use membership::{Event, Leaver, Membership};
pub use standing::Standing;
pub use tenure_core::engine::Ended;
