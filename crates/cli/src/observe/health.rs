//! Whether this process is well: it can hold duties, or wait for them.

use serde::Serialize;
use tenure_core::LocalInstant;

use super::About;
use super::state::State;
use crate::time;

/// The answer to `/health`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Health {
    pub(super) status: &'static str,
    uptime_seconds: u64,
    timestamp: String,
    instance_id: String,
    group: String,
    /// How many duties it holds. None is fine: others have them.
    holds: usize,
    pub(super) store: &'static str,
    last_renewed_at: Option<String>,
    /// Every poll fails here; only `poll` says so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failing: bool,
}

impl Health {
    pub(super) fn is_well(&self) -> bool {
        self.status == "healthy"
    }
}

/// One failed request is no illness. One that was not followed by an answer until the deadline is:
/// from then on nothing can be held.
pub(super) fn judge(
    state: &State,
    about: &About,
    started: LocalInstant,
    now: LocalInstant,
    unix_ms: u64,
) -> Health {
    let since = state.answered_at.unwrap_or(started);
    let failing = state.failing.is_some_and(|until| now < until);
    let lost = !about.ttl.deadline(since).allows(now);
    Health {
        status: if lost || failing { "unhealthy" } else { "healthy" },
        uptime_seconds: now.since(started).as_secs(),
        timestamp: time::shown(unix_ms),
        instance_id: about.instance.as_str().to_owned(),
        group: about.group.as_str().to_owned(),
        holds: state.held(),
        store: match state.answered {
            _ if lost => "disconnected",
            None => "unknown",
            Some(true) => "connected",
            Some(false) => "disconnected",
        },
        last_renewed_at: state.renewed_at.map(time::shown),
        failing,
    }
}
