//! Bucketing in a connector's config and state: four settings, and the bucket that ran last.
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
//! All other members of config and state keep their bytes and their place.

mod config;
mod notice;
mod state;

use tenure_core::bucket::{Invalid, next as next_of};

use crate::object::Object;

pub use config::Config;
pub use notice::Notice;
pub use state::{Executed, OWN_STATE, STATE, carry_over};

/// JSON Schema of the four settings, for the specification of a connector.
pub const SCHEMA: &str = include_str!("schema.json");

/// Time at which the state records that a bucket was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitTiming {
    /// At the start of its run. A failed run skips its bucket until the next cycle.
    #[default]
    AtStart,
    /// After its run succeeded: [`AppliedBucket::executed`]. Until then the same bucket is chosen.
    OnSuccess,
}

/// Configuration and state of a run.
#[derive(Clone, Debug)]
pub struct AppliedBucket {
    /// The config, with the bucket of this run.
    pub config: Object,
    /// The state to keep now.
    pub state: Option<Object>,
    /// The chosen bucket; `None` without rotation.
    pub executed: Option<Executed>,
    /// Notices for a log.
    pub notices: Vec<Notice>,
}

/// Validates the settings of a config and returns notices for a log.
pub fn validate(config: &Object) -> Result<Vec<Notice>, Invalid> {
    Ok(Config::read(config)?.notices)
}

/// Returns the next bucket. Ranges count only with rotation.
pub fn next(config: &Object, state: Option<&Object>) -> Result<u32, Invalid> {
    let Config { total, ranges, .. } = Config::read(config)?;
    Ok(next_of(total, ranges.as_ref(), state::last(state, total).ok()))
}

/// Chooses the bucket of a run. Without rotation, config and state are returned unchanged.
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
