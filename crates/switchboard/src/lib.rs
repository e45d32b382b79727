//! The switchboard: a server that takes events in. What is submitted twice takes effect once, and
//! what a replaced holder still sends is refused.

pub mod commit;
pub mod storage;
pub mod token;
