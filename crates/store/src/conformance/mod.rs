//! Conformance suite for every backend and wrapper; failing stores and disks for tests.
//!
//! A case is an async function that gets a [`Kit`]: a store, and a group of its own there. Names
//! are `topic::case`; a test target registers each case for each backend. A case proves one
//! sentence of the contract on [`tenure_core::Store`].
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cloned_ref_to_slice_refs,
    missing_docs,
    reason = "this is the tests' side: a case fails by panicking"
)]

mod adopt;
mod audit;
mod checkpoint;
mod evict;
mod faults;
#[cfg(feature = "file")]
pub mod faulty_disk;
mod group;
mod hold;
mod kit;
mod limits;
mod names;
mod race;
mod report;
mod session;
mod settled;
mod survey;
mod upkeep;
mod watch;
pub mod wrap;

use tenure_core::BoxFuture;

pub use faults::Snapshot;
pub use kit::{Kit, StoreFixture};
pub use settled::SettledStore;

/// A named case.
#[derive(Clone, Copy, Debug)]
pub struct ConformanceCase {
    pub topic: &'static str,
    pub name: &'static str,
    pub run: fn(Kit) -> BoxFuture<'static, ()>,
}

/// Builds the table of a topic from the names of its functions.
macro_rules! cases {
    ($topic:literal: $($case:ident,)*) => {
        pub(super) const CASES: &[$crate::conformance::ConformanceCase] = &[$(
            $crate::conformance::ConformanceCase {
                topic: $topic,
                name: stringify!($case),
                run: |kit| Box::pin($case(kit)),
            },
        )*];
    };
}
use cases;

/// Returns every case.
pub fn all() -> impl Iterator<Item = ConformanceCase> {
    let topics = [
        session::CASES,
        hold::CASES,
        race::CASES,
        evict::CASES,
        checkpoint::CASES,
        group::CASES,
        watch::CASES,
        audit::CASES,
        names::CASES,
        limits::CASES,
        survey::CASES,
        upkeep::CASES,
        adopt::CASES,
        report::CASES,
    ];
    topics.into_iter().flatten().copied()
}
