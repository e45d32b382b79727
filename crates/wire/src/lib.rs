//! The JSON that crosses processes, and nothing else knows its shapes.

pub mod checkpoint;
pub mod cursor;
pub mod folder;
pub mod ingest;
