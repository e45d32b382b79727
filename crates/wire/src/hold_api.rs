//! Local API for the program under a hold: JSON bodies and header names.

use serde::{Deserialize, Serialize};

use crate::envelope::time;

/// Header with the epoch under which a checkpoint was written.
pub const EPOCH_HEADER: &str = "tenure-epoch";
/// Header with the instance that wrote a checkpoint.
pub const INSTANCE_HEADER: &str = "tenure-instance";
/// Header with the time at which a checkpoint was written, in milliseconds since 1970.
pub const WRITTEN_MS_HEADER: &str = "tenure-written-ms";

/// The hold that a program runs under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldView {
    /// The duty as `group/id`, escaped as in command-line arguments.
    pub duty: String,
    /// Name of its group.
    pub group: String,
    /// Id of the duty without its group.
    pub id: String,
    /// Epoch of the hold.
    pub epoch: u64,
    /// The holder.
    pub instance: String,
    /// State of the hold.
    pub state: HoldPhase,
    /// Whether the program was asked to end.
    pub draining: bool,
    /// Time left for effects; zero when none is allowed.
    pub remaining_ms: u64,
    /// End of that time unless the hold is renewed, by the wall clock.
    pub deadline_unix_ms: u64,
    /// The same by `CLOCK_BOOTTIME`.
    pub deadline_boottime_ns: u64,
    /// Number of this shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    /// Number of shards of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
}

impl HoldPhase {
    /// Returns the state as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Draining => "draining",
            Self::Suspended => "suspended",
            Self::Lost => "lost",
        }
    }
}

/// State of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldPhase {
    /// Effects are allowed.
    Held,
    /// Effects are allowed, and the program was asked to end.
    Draining,
    /// The process was paused: no effect until the store has confirmed the hold.
    Suspended,
    /// No effect is allowed any more.
    Lost,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldResult {
    /// The checkpoint is stored.
    Stored,
    /// The request was carried out.
    Ok,
    /// The hold is not valid any more.
    Fenced,
    /// Another version is stored.
    Conflict,
    /// There is no checkpoint yet.
    Absent,
    /// The time left is too short.
    Short,
    /// It did not happen, and may be tried again.
    Unavailable,
    /// It may have happened.
    Unknown,
    /// The request is invalid.
    Invalid,
    /// It failed, and trying again will not help.
    Failed,
}

/// Body of a response, but for a checkpoint and a hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldAnswer {
    /// Outcome.
    pub result: HoldResult,
    /// Version that is stored now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Time left for effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// The problem, unless the request succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<HoldProblem>,
}

/// A problem, with the fields that commands print with `--json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldProblem {
    /// Error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Meaning of the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentence: Option<String>,
    /// Details of this case.
    pub detail: String,
    /// State that is left.
    pub kept: String,
    /// Next step.
    pub hint: String,
}

/// Body of `POST /progress`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgressReport {
    /// Time of the oldest event that is not accepted yet, in RFC 3339; `null` if there is none.
    #[serde(default, deserialize_with = "present")]
    pub oldest_pending_at: Option<Option<String>>,
    /// Type of the connector, for the metric; by default the group.
    pub connector_type: Option<String>,
    /// Endpoint, for the metric; by default the duty.
    pub endpoint_identity: Option<String>,
    /// Shard, for the metric.
    pub shard_id: Option<String>,
}

/// Reads a member that is there, also if it is `null`.
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Longest name of a metric's label.
const MAX_LABEL_BYTES: usize = 512;

impl ProgressReport {
    /// Reads a report; an empty body reports progress and nothing else.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let report: Self = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let labels = [&report.connector_type, &report.endpoint_identity, &report.shard_id];
        if labels.into_iter().flatten().any(|label| label.len() > MAX_LABEL_BYTES) {
            return Err(format!("a name is longer than {MAX_LABEL_BYTES} bytes"));
        }
        Ok(report)
    }

    /// Returns the time of the oldest pending event in milliseconds since 1970. The outer option is
    /// `None` if the report does not say, the inner one if nothing is pending.
    pub fn oldest_pending_ms(&self) -> Result<Option<Option<u64>>, String> {
        let Some(Some(text)) = &self.oldest_pending_at else {
            return Ok(self.oldest_pending_at.as_ref().map(|_| None));
        };
        let time = time::read(text.as_bytes())
            .map_err(|_| "oldest_pending_at is not a time as in 2026-02-15T10:00:00Z".to_owned())?;
        Ok(Some(Some(u64::try_from(time.micros / 1000).unwrap_or(0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_nothing_pending_from_nothing_said() {
        let pending = |body: &str| ProgressReport::parse(body.as_bytes())?.oldest_pending_ms();
        assert_eq!(pending(""), Ok(None));
        assert_eq!(pending("{}"), Ok(None));
        assert_eq!(pending(r#"{"oldest_pending_at":null}"#), Ok(Some(None)));
        let at = r#"{"oldest_pending_at":"1970-01-01T00:00:01.5Z"}"#;
        assert_eq!(pending(at), Ok(Some(Some(1_500))));
        let long = format!(r#"{{"shard_id":"{}"}}"#, "x".repeat(513));
        for bad in [r#"{"oldest":1}"#, r#"{"oldest_pending_at":"now"}"#, "[]", "x", &long] {
            assert!(pending(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fields_without_a_value_are_left_out() {
        let answer = HoldAnswer {
            result: HoldResult::Stored,
            version: Some(3),
            remaining_ms: None,
            error: None,
        };
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(text, r#"{"result":"stored","version":3}"#);
        assert_eq!(serde_json::from_str::<HoldAnswer>(&text).unwrap(), answer);
    }
}
