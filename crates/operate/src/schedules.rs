//! Schedules: the last and next run of each.

use serde::Serialize;
use tenure_core::store::{CurrentHolder, Holder, MAX_BATCH};
use tenure_core::{DutyKey, GroupName, InstanceId, Store, StoreError};
use tenure_wire::schedule::{OccurrenceRecord, ScheduleRecord};

use crate::clock;
use crate::error::nothing_happened;
use crate::serialize::{optional_text, text, timestamp};

/// A schedule with its last and next run.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleListing {
    /// The duty that its runs hold.
    #[serde(serialize_with = "text")]
    pub duty: DutyKey,
    /// Cron expression, or `every` and a period; the problem in brackets if there is one.
    pub schedule: String,
    /// Time zone of the schedule.
    pub time_zone: String,
    /// Holder; `None` if no instance holds the duty.
    #[serde(serialize_with = "optional_text")]
    pub holder: Option<InstanceId>,
    /// The newest occurrence; `None` before the first.
    pub last: Option<OccurrenceListing>,
    /// Nominal time of the newest occurrence that is done.
    pub last_success_at: Option<String>,
    /// Nominal time of the next occurrence.
    pub next_at: Option<String>,
    /// Whether that time has passed.
    pub due: bool,
    /// Problem with the record, of which nothing else is known then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// An occurrence in a listing.
#[derive(Clone, Debug, Serialize)]
pub struct OccurrenceListing {
    /// Nominal time.
    pub scheduled_at: String,
    /// State, such as `done`.
    pub state: &'static str,
    /// Number of attempts that began.
    pub attempt: u32,
    /// Exit code of the newest attempt.
    pub exit_code: Option<u8>,
    /// Begin of the newest attempt.
    pub started_at: Option<String>,
    /// End of the newest attempt.
    pub finished_at: Option<String>,
    /// The instance that ran or settled it.
    pub instance: String,
}

/// Lists the schedules of one group, or of all groups of the store.
pub async fn schedules(
    store: &dyn Store,
    only: Option<GroupName>,
) -> Result<Vec<ScheduleListing>, StoreError> {
    let groups = match only {
        Some(group) => vec![group],
        None => store.groups().await.map_err(nothing_happened)?,
    };
    let now = clock::now(store).await?;
    let mut listings = Vec::new();
    for group in groups {
        let holders = store.holders(&group).await.map_err(nothing_happened)?;
        for batch in holders.chunks(MAX_BATCH) {
            let duties: Vec<DutyKey> = batch.iter().map(|holder| holder.duty.clone()).collect();
            let reports = store.reports(&duties).await.map_err(nothing_happened)?;
            listings.extend(batch.iter().zip(reports).filter_map(|(holder, report)| {
                let document = report?.document;
                let Some(record) = ScheduleRecord::read(document.as_bytes()) else {
                    let problem = ScheduleRecord::problem(document.as_bytes())?;
                    return Some(ScheduleListing::unreadable(holder, problem));
                };
                Some(ScheduleListing::new(holder, record, now))
            }));
        }
    }
    Ok(listings)
}

impl ScheduleListing {
    fn new(Holder { duty, holder, .. }: &Holder, record: ScheduleRecord, now: u64) -> Self {
        let holder = holder.as_ref().map(|CurrentHolder { instance, .. }| instance.clone());
        Self {
            duty: duty.clone(),
            schedule: record.schedule,
            time_zone: record.time_zone,
            holder,
            last: record.occurrence.map(OccurrenceListing::new),
            last_success_at: record.last_success_unix_ms.map(timestamp),
            next_at: record.next_unix_ms.map(timestamp),
            due: record.next_unix_ms.is_some_and(|next| next <= now),
            problem: None,
        }
    }

    fn unreadable(holder: &Holder, problem: String) -> Self {
        let record = ScheduleRecord::new(format!("({problem})"), "-".to_owned(), 0);
        Self { problem: Some(problem), ..Self::new(holder, record, 0) }
    }
}

impl OccurrenceListing {
    fn new(occurrence: OccurrenceRecord) -> Self {
        Self {
            scheduled_at: timestamp(occurrence.scheduled_unix_ms),
            state: occurrence.state.as_str(),
            attempt: occurrence.attempt,
            exit_code: occurrence.exit_code,
            started_at: occurrence.started_unix_ms.map(timestamp),
            finished_at: occurrence.finished_unix_ms.map(timestamp),
            instance: occurrence.instance,
        }
    }
}
