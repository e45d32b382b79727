//! Store wrappers: [`Flaky`] injects faults, [`Metered`] counts, [`Mortal`] simulates a killed
//! process, [`Hooked`] runs an action between calls.

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
