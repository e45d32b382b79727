//! Redis: what a server can lose, how it can fail, and who else may use its keys.

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
