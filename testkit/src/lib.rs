//! Servers for tests.
