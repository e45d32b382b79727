//! One member of a group: joins, claims, renews, hands over, stops in time.
//!
//! A pure machine: [`Engine::step`] takes what happened and the local time, and answers what is to
//! be done. It reads no clock and does no I/O; its randomness comes from the seed.

mod effect;
mod event;
mod settings;

pub use effect::{Effect, End, Request};
pub use event::{Answer, Ended, Event, Ticket, View};
pub use settings::{Layout, Settings};

use crate::LocalInstant;

/// One member of a group.
#[derive(Debug)]
pub struct Engine {}

impl Engine {
    /// A member that has not joined yet. `seed` is 128 random bits of its own.
    pub fn new(_settings: Settings, _seed: u128, _now: LocalInstant) -> Self {
        Self {}
    }

    /// Takes one event and says what is to be done.
    pub fn step(&mut self, _event: Event, _now: LocalInstant) -> Vec<Effect> {
        Vec::new()
    }

    /// When [`Event::Tick`] is due, if nothing else happens before.
    pub fn wake_at(&self) -> LocalInstant {
        LocalInstant::from_nanos(0)
    }
}
