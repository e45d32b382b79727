//! Stores around stores: [`Flaky`] makes faults by seed, [`Metered`] counts, [`Mortal`] is
//! killed.

mod around;
mod flaky;
mod metered;
mod mortal;

pub use around::Op;
pub use flaky::{Fault, Flaky};
pub use metered::{Metered, OpStats};
pub use mortal::{Life, Mortal};
