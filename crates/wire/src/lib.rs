//! JSON formats that cross processes, and the text format of metrics.

pub mod bucket;
pub mod checkpoint;
pub mod cursor;
mod envelope;
pub mod exposition;
pub mod folder;
pub mod heartbeat;
pub mod hold_api;
pub mod ingest;
pub mod object;
pub mod poll_report;
pub mod schedule;
