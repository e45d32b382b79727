//! Stores around stores: [`Flaky`] makes faults by seed, [`Metered`] counts, [`Mortal`] is
//! killed, [`Hooked`] is interrupted.

mod around;
mod flaky;
mod hooked;
mod metered;
mod mortal;

pub use around::Op;
pub use flaky::{Fault, Flaky};
pub use hooked::{Hooked, Interlude};
pub use metered::{Metered, OpStats};
pub use mortal::{CallBudget, Mortal};
