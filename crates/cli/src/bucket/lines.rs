//! Entities, one on each line.
