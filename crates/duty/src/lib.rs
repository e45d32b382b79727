//! What stands between a store and the work that a user's code does.
//!
//! Who this [`process`] is, and how others [`observe`] what it does.

pub mod observe;
pub mod process;
