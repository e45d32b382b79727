//! Comparison with other implementations.
