//! Operations on checkpoints: write or rewind one, or move it to another store.
//!
//! All act like any holder: they claim the duty, write under the new epoch, and release. The
//! stores are *bare*: seals are read and written here.
//!
//! # A move
//!
//! 1. claims every source, which fences the old side, then every target, with the epochs of the
//!    sources as floor;
//! 2. marks each source as *moving*: from here on nobody can continue from it;
//! 3. writes the targets, whose signatures cover those of the sources, and reads them back;
//! 4. marks each source as *moved*, and releases.
//!
//! Between any two steps a checkpoint is valid on one side only, or marked as moving on the old
//! side. Running the same move again continues from there.
//!
//! Why: docs/decisions/0016-a-move-holds-both-sides.md

mod moves;
mod operator;
mod put;
mod rewind;

pub use moves::{Arrival, Move, MoveOutcome, Preview, preview};
pub use operator::{Operator, OperatorSession};
pub use put::{Put, put};
pub use rewind::{Rewound, rewind};
