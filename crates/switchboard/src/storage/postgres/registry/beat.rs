//! Heartbeats.

use tenure_core::Code;
use tenure_wire::heartbeat::Health;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::super::token::ended;
use super::super::value::{column, from_micros, missing, to_micros};
use super::super::{Parameter, Postgres};
use super::told;
use crate::error::SwitchboardError;
use crate::storage::{Beat, Beaten, MOST_PER_TOKEN, SILENT, STOPPING, Taken, When};

impl Postgres {
    pub(super) async fn take_beat(
        &self,
        beat: &Beat,
        when: When,
    ) -> Result<Beaten, SwitchboardError> {
        let (at, heartbeat) = (told(when), &beat.heartbeat);
        let state = heartbeat.state.as_str();
        let is_stopping = heartbeat.state == Health::Degraded
            && heartbeat.error_message.as_deref() == Some(STOPPING);
        let counters = &heartbeat.counters;
        let counters = [
            counters.messages_ingested,
            counters.messages_failed,
            counters.source_api_calls,
            counters.checkpoint_saves,
            counters.dedupe_accepted,
        ];
        // A checkpoint that does not say where is none.
        let checkpoint = heartbeat.checkpoint.as_ref();
        let cursor = checkpoint.and_then(|it| it.cursor.as_deref());
        let cursor_at = checkpoint.and_then(|it| it.updated_at_micros).map(from_micros);
        let sent_at = from_micros(heartbeat.sent_at_micros);
        let parameters: [Parameter<'_>; 18] = [
            (&at, Type::TIMESTAMPTZ),
            (&beat.token_id, Type::TEXT),
            (&MOST_PER_TOKEN, Type::INT8),
            (&SILENT, Type::INT8),
            (&beat.longest_interval, Type::INT8),
            (&heartbeat.connector_type, Type::TEXT),
            (&heartbeat.endpoint_identity, Type::TEXT),
            (&heartbeat.instance_id, Type::UUID),
            (&heartbeat.version, Type::TEXT),
            (&state, Type::TEXT),
            (&heartbeat.error_message, Type::TEXT),
            (&is_stopping, Type::BOOL),
            (&heartbeat.uptime_s, Type::INT8),
            (&counters.as_slice(), Type::INT8_ARRAY),
            (&cursor, Type::TEXT),
            (&cursor_at, Type::TIMESTAMPTZ),
            (&heartbeat.capabilities, Type::TEXT),
            (&sent_at, Type::TIMESTAMPTZ),
        ];
        let rows = self.beats.query(&self.statements.connector_beat, &parameters).await?;
        // From here on it has happened, whatever is wrong with the answer.
        rows.first().ok_or_else(missing).and_then(beaten).map_err(SwitchboardError::or_happened)
    }
}

fn beaten(row: &Row) -> Result<Beaten, SwitchboardError> {
    match column(row, 0)? {
        "taken" => {}
        "too_many" => return Ok(Beaten::TooMany),
        other => {
            let odd = || {
                let detail = format!("connector_beat answered {other:?}");
                SwitchboardError::unknown(Code::Damaged, detail)
            };
            return ended(other).map(Beaten::TokenEnded).ok_or_else(odd);
        }
    }
    Ok(Beaten::Taken(Taken {
        received_at: to_micros(column(row, 1)?),
        registered: column(row, 2)?,
        revived: column(row, 3)?,
        replaced: column(row, 4)?,
        late: column(row, 5)?,
        reset: column(row, 6)?,
        jumped: column(row, 7)?,
        drift: column(row, 8)?,
        drift_before: column(row, 9)?,
        unwritten: column(row, 10)?,
    }))
}
