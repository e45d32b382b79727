//! Record of a schedule: its newest occurrence, stored as the report on its duty.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Format of a record. Another format is not a record of this version.
const FORMAT: &str = "tenure.schedule.v1";
/// Beginning of the formats of all versions.
const FORMATS: &str = "tenure.schedule.";

/// Record of a schedule. Times are milliseconds since 1970. Unknown members are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleRecord {
    format: String,
    /// Cron expression, or `every` and a period.
    pub schedule: String,
    /// Time zone of the schedule.
    pub time_zone: String,
    /// Time from which occurrences of this schedule count.
    pub since_unix_ms: u64,
    /// The newest occurrence that was started or settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<OccurrenceRecord>,
    /// Nominal time of the newest occurrence that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_unix_ms: Option<u64>,
    /// Nominal time of the next occurrence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_unix_ms: Option<u64>,
}

/// An occurrence of a schedule: its nominal time, and how it went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OccurrenceRecord {
    /// Nominal time, which identifies it.
    pub scheduled_unix_ms: u64,
    /// State.
    pub state: OccurrenceState,
    /// Number of the newest attempt; 0 if none began.
    pub attempt: u32,
    /// The instance that wrote this.
    pub instance: String,
    /// Begin of the newest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_unix_ms: Option<u64>,
    /// End of the newest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_unix_ms: Option<u64>,
    /// Exit code of the newest attempt, 128 plus the number of a signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
}

/// State of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OccurrenceState {
    /// An attempt began. If its holder is gone, it was interrupted.
    Started,
    /// The command exited with 0.
    Done,
    /// The newest attempt failed.
    Failed,
    /// An attempt was interrupted, and it is not run again.
    Skipped,
    /// It was not started in time.
    Missed,
}

impl OccurrenceState {
    /// Returns the state as a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Missed => "missed",
        }
    }
}

impl ScheduleRecord {
    /// Returns the record of a schedule without occurrences.
    pub fn new(schedule: String, time_zone: String, since_unix_ms: u64) -> Self {
        Self {
            format: FORMAT.to_owned(),
            schedule,
            time_zone,
            since_unix_ms,
            occurrence: None,
            last_success_unix_ms: None,
            next_unix_ms: None,
        }
    }

    /// Reads a record; `None` if the document is something else.
    pub fn read(document: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(document).ok()?;
        (record.format == FORMAT).then_some(record)
    }

    /// Returns what is wrong with a document that is not a record of this version; `None` if it is
    /// about something else.
    pub fn problem(document: &[u8]) -> Option<String> {
        let Ok(found) = serde_json::from_slice::<Value>(document) else {
            return Some("damaged record".to_owned());
        };
        match found.get("format")?.as_str()? {
            FORMAT => Some("damaged record".to_owned()),
            other if other.starts_with(FORMATS) => Some(format!("record of the format {other}")),
            _ => None,
        }
    }

    /// Returns the record as JSON.
    pub fn to_json(&self) -> String {
        // Text and numbers: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_unknown_members_are_ignored() {
        let mut record = ScheduleRecord::new("0 3 * * *".to_owned(), "UTC".to_owned(), 1_000);
        assert_eq!(ScheduleRecord::read(record.to_json().as_bytes()), Some(record.clone()));
        record.occurrence = Some(OccurrenceRecord {
            scheduled_unix_ms: 2_000,
            state: OccurrenceState::Failed,
            attempt: 2,
            instance: "host-1".to_owned(),
            started_unix_ms: Some(2_001),
            finished_unix_ms: Some(2_002),
            exit_code: Some(3),
        });
        let json = record.to_json();
        assert_eq!(
            json,
            "{\"format\":\"tenure.schedule.v1\",\"schedule\":\"0 3 * * *\",\"time_zone\":\"UTC\",\
             \"since_unix_ms\":1000,\"occurrence\":{\"scheduled_unix_ms\":2000,\
             \"state\":\"failed\",\"attempt\":2,\"instance\":\"host-1\",\"started_unix_ms\":2001,\
             \"finished_unix_ms\":2002,\"exit_code\":3}}"
        );
        let newer = json.replacen('{', "{\"later\":[1],", 1);
        assert_eq!(ScheduleRecord::read(newer.as_bytes()), Some(record));
    }

    #[test]
    fn other_documents_are_not_records() {
        let other = ScheduleRecord::new(String::new(), String::new(), 0).to_json();
        let other = other.replace(".v1", ".v2");
        for document in ["", "{}", "null", &other, "{\"format\":\"tenure.schedule.v1\"}"] {
            assert_eq!(ScheduleRecord::read(document.as_bytes()), None, "{document}");
        }
        for (document, problem) in [
            ("\0", Some("damaged record")),
            ("{\"format\":\"tenure.schedule.v1\"}", Some("damaged record")),
            (&other, Some("record of the format tenure.schedule.v2")),
            ("{\"format\":\"mine\"}", None),
            ("{}", None),
        ] {
            let found = ScheduleRecord::problem(document.as_bytes());
            assert_eq!(found.as_deref(), problem, "{document}");
        }
    }
}
