//! Signals to this process.

pub(crate) use tenure_supervise::{Signals, is_stop as ends};
