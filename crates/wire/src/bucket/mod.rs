//! Bucketing in a connector's config and state: four settings, and which bucket ran last.
//!
//! ```
//! use tenure_wire::bucket::{CommitTiming, apply};
//! use tenure_wire::object::Object;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = r#"{"bucket_total": 3, "round_robin_bucket_execution": true, "token": "..."}"#;
//! let config = Object::read(config)?;
//! let applied = apply(config, None, CommitTiming::AtStart)?;
//! for notice in &applied.notices {
//!     eprintln!("{notice}");
//! }
//! assert!(applied.config.as_str().ends_with(r#""token": "...", "bucket_id": 1}"#));
//! let state = applied.state.unwrap_or_default();
//! assert!(state.as_str().contains(r#""__bucket_execution_state":{"last_executed_bucket_id":1}"#));
//! # Ok(()) }
//! ```
//!
//! Every other member of config and state stays as it was, byte for byte and in its place.

mod config;
mod notice;
mod state;

use tenure_core::bucket::{Invalid, next as next_of};

use crate::object::Object;

pub use config::Config;
pub use notice::Notice;
pub use state::{Executed, OWN_STATE, STATE, carry_over};

/// The four settings as JSON Schema, for the specification of a connector.
pub const SCHEMA: &str = include_str!("schema.json");

/// When the state says that a bucket was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitTiming {
    /// When its run starts. A run that fails skips its bucket until the next cycle.
    #[default]
    AtStart,
    /// When its run has succeeded: [`Applied::executed`]. Until then the state stays as it was, and
    /// the same bucket is chosen again.
    OnSuccess,
}

/// Configuration and state of a run.
#[derive(Clone, Debug)]
pub struct AppliedBucket {
    /// The config, with the bucket of this run.
    pub config: Object,
    /// The state to keep now.
    pub state: Option<Object>,
    /// The bucket that was chosen; `None` when there is no rotation.
    pub executed: Option<Executed>,
    /// Notices for a log.
    pub notices: Vec<Notice>,
}

/// Checks the settings of a config. What a log is to say is returned.
pub fn validate(config: &Object) -> Result<Vec<Notice>, Invalid> {
    Ok(Config::read(config)?.notices)
}

/// The bucket that comes next. Ranges count only while there is a rotation.
pub fn next(config: &Object, state: Option<&Object>) -> Result<u32, Invalid> {
    let Config { total, ranges, .. } = Config::read(config)?;
    Ok(next_of(total, ranges.as_ref(), state::last(state, total).ok()))
}

/// Chooses the bucket of a run. Without rotation config and state come back as they were.
pub fn apply(
    mut config: Object,
    state: Option<Object>,
    commit: CommitTiming,
) -> Result<AppliedBucket, Invalid> {
    let Config { total, round_robin, ranges, mut notices, .. } = Config::read(&config)?;
    notices.extend(state::total_changed(state.as_ref(), total));
    if !round_robin {
        return Ok(AppliedBucket { config, state, executed: None, notices });
    }
    let last = state::last(state.as_ref(), total);
    if let Err(Some(value)) = &last {
        notices.push(Notice::StateDamaged { value: value.clone(), total });
    }
    let bucket = next_of(total, ranges.as_ref(), last.ok());
    notices.push(Notice::Chosen { bucket });
    config.set("bucket_id", &bucket.to_string());
    let executed = Executed { bucket, total };
    let state = match commit {
        CommitTiming::AtStart => Some(executed.record(state)),
        CommitTiming::OnSuccess => state,
    };
    Ok(AppliedBucket { config, state, executed: Some(executed), notices })
}

#[cfg(test)]
mod tests;
