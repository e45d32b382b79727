//! Stores around stores: [`Flaky`] makes faults by seed, [`Metered`] counts.

mod around;
mod flaky;
mod metered;

pub use around::Op;
pub use flaky::{Fault, Flaky};
pub use metered::{Metered, OpStats};
