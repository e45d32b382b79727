//! `tenure bucket`.

mod next;
