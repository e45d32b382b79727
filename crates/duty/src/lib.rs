//! Membership in a group: the layer between a store and user code.
//!
//! A process [`Join`]s a group and gets a [`Membership`], which reports the duties that were
//! assigned, each with a [`Guard`] to check before each effect. [`fixed`] offers the same without a
//! store. [`process`] is the identity of this process; [`observe`] is for logs and metrics.

mod driver;
mod error;
pub mod fixed;
mod guard;
mod hold_state;
mod join;
mod membership;
pub mod observe;
pub mod process;
mod report;

pub use error::DutyError;
pub use guard::{Guard, HoldLost, PutOutcome};
pub use hold_state::HoldStatus;
pub use join::{Duties, Join, Opener, opener};
pub use membership::{LeaveHandle, Membership, MembershipEvent};
pub use report::ReportHandle;
pub use tenure_core::engine::WorkOutcome;
