//! duty
