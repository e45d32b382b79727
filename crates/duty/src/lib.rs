//! What stands between a store and the work that a user's code does.
//!
//! So far: who this [`process`] is.

pub mod process;
