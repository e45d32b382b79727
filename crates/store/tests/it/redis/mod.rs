//! Redis: data loss, failures, and foreign users of its keys.

mod clock;
mod keys;
mod kit;
mod names;
mod opening;
mod poll_lease;
mod reset;
mod restart;
mod survey;
#[cfg(feature = "tls")]
mod tls;
mod upkeep;
mod wire;
