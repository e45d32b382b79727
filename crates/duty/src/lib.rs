//! Membership in a group: the layer between a store and user code.
//!
//! A process [`Join`]s a group and gets a [`Membership`]: it tells which duties were assigned, each
//! with a [`Guard`] to check before each effect. [`fixed`] gives the same without a store.
//! Besides: who this [`process`] is, and how others [`observe`] what it does.

mod driver;
pub mod fixed;
mod guard;
mod hold_state;
mod join;
mod membership;
pub mod observe;
pub mod process;

pub use guard::{Guard, HoldLost};
pub use hold_state::HoldStatus;
pub use join::{Duties, Join, Opener, opener};
pub use membership::{LeaveHandle, Membership, MembershipEvent};
pub use tenure_core::engine::WorkOutcome;
