//! Dead letters and fences.

use std::time::SystemTime;

use tenure_core::{Code, Epoch};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::commit::{Closed, closed};
use super::token::{permitted, refusal};
use super::value::{column, count, missing, to_micros};
use super::{Parameter, Postgres};
use crate::error::SwitchboardError;
use crate::storage::{
    DeadLetter, DeadQuery, Decision, Fence, KeptLetter, KnownFence, Permitted, Posted, Resolve,
    Resolved, Scope, Standing, of_cursor,
};

impl Postgres {
    pub(super) async fn keep_letter(
        &self,
        letter: &DeadLetter,
        fence: Option<&Fence>,
        token_id: Option<&str>,
    ) -> Result<Posted, SwitchboardError> {
        let duty = fence.map(|fence| fence.duty.to_string());
        let epoch = fence.map(|fence| fence.epoch.as_i64());
        let instance = fence.map(|fence| fence.instance.as_str());
        let digest = letter.digest.as_slice();
        let parameters: [Parameter<'_>; 14] = [
            (&token_id, Type::TEXT),
            (&duty, Type::TEXT),
            (&epoch, Type::INT8),
            (&instance, Type::TEXT),
            (&letter.id, Type::UUID),
            (&digest, Type::BYTEA),
            (&letter.channel, Type::TEXT),
            (&letter.provider, Type::TEXT),
            (&letter.endpoint_identity, Type::TEXT),
            (&letter.external_event_id, Type::TEXT),
            (&letter.error_class, Type::TEXT),
            (&letter.reason, Type::TEXT),
            (&letter.attempts, Type::INT8),
            (&letter.envelope, Type::TEXT),
        ];
        let rows = self.data.query(&self.statements.letter_post, &parameters).await?;
        posted(rows.first().ok_or_else(missing)?, duty.as_deref())
            .map_err(SwitchboardError::or_happened)
    }

    pub(super) async fn list_letters(
        &self,
        query: &DeadQuery,
    ) -> Result<Vec<KeptLetter>, SwitchboardError> {
        let after = query.after.unwrap_or(Uuid::nil());
        let limit = count(query.limit);
        let mut parameters: Vec<Parameter<'_>> = vec![
            (&after, Type::UUID),
            (&limit, Type::INT8),
            (&query.endpoint_identity, Type::TEXT),
            (&query.channel, Type::TEXT),
            (&query.provider, Type::TEXT),
        ];
        let mut statement = &self.statements.letter_list;
        if let Some(state) = &query.state {
            statement = &self.statements.letter_list_state;
            parameters.push((state, Type::TEXT));
        }
        self.data.query(statement, &parameters).await?.iter().map(kept).collect()
    }

    pub(super) async fn show_letter(
        &self,
        id: Uuid,
    ) -> Result<Option<KeptLetter>, SwitchboardError> {
        let rows = self.data.query(&self.statements.letter_show, &[(&id, Type::UUID)]).await?;
        rows.first().map(kept).transpose()
    }

    pub(super) async fn end_letter(&self, resolve: &Resolve) -> Permitted<Resolved> {
        let Decision { by, reason, token_id } = &resolve.decision;
        let parameters: [Parameter<'_>; 6] = [
            (&resolve.id, Type::UUID),
            (&resolve.state, Type::TEXT),
            (by, Type::TEXT),
            (reason, Type::TEXT),
            (&resolve.request_id, Type::UUID),
            (token_id, Type::TEXT),
        ];
        let rows = self.data.query(&self.statements.letter_resolve, &parameters).await?;
        permitted(&rows, |row| {
            Ok(match (column(row, 1)?, column(row, 2)?) {
                (true, _) => Resolved::Done,
                (false, true) => Resolved::Before,
                (false, false) => Resolved::Nothing,
            })
        })
    }

    pub(super) async fn list_fences(
        &self,
        of: Option<&Scope>,
        after: &str,
        limit: usize,
    ) -> Result<Vec<KnownFence>, SwitchboardError> {
        let limit = count(limit);
        let [duty, channel, provider, endpoint] = of_cursor(after);
        let parameters: [Parameter<'_>; 8] = [
            (&duty, Type::TEXT),
            (&channel, Type::TEXT),
            (&provider, Type::TEXT),
            (&endpoint, Type::TEXT),
            (&limit, Type::INT8),
            (&of.map(|source| &source.channel), Type::TEXT),
            (&of.map(|source| &source.provider), Type::TEXT),
            (&of.map(|source| &source.endpoint_identity), Type::TEXT),
        ];
        let rows = self.data.query(&self.statements.fence_list, &parameters).await?;
        rows.iter().map(known_fence).collect()
    }

    pub(super) async fn forget_fence(
        &self,
        duty: &str,
        source: Option<&Scope>,
        Decision { by, reason, token_id }: &Decision,
    ) -> Permitted<Vec<KnownFence>> {
        let parameters: [Parameter<'_>; 7] = [
            (&duty, Type::TEXT),
            (&source.map(|source| &source.channel), Type::TEXT),
            (&source.map(|source| &source.provider), Type::TEXT),
            (&source.map(|source| &source.endpoint_identity), Type::TEXT),
            (by, Type::TEXT),
            (reason, Type::TEXT),
            (token_id, Type::TEXT),
        ];
        let rows = self.data.query(&self.statements.fence_reset, &parameters).await?;
        if let Some(ended) = rows.first().map(|row| refusal(row, 7)).transpose()?.flatten() {
            return Ok(Err(ended));
        }
        let was = rows.iter().map(known_fence).collect::<Result<_, _>>();
        was.map(Ok).map_err(SwitchboardError::or_happened)
    }
}

fn posted(row: &Row, duty: Option<&str>) -> Result<Posted, SwitchboardError> {
    let verdict: &str = column(row, 1)?;
    if verdict == "kept" {
        return Ok(Posted::Kept { id: column(row, 5)?, duplicate: column(row, 6)? });
    }
    let odd =
        || SwitchboardError::unknown(Code::Damaged, format!("letter_post answered {verdict:?}"));
    Ok(match closed(row, verdict, duty)?.ok_or_else(odd)? {
        Closed::Fenced(standing) => Posted::Fenced(standing),
        Closed::Bad(bad) => Posted::BadFence(bad),
        Closed::Ended(ended) => Posted::TokenEnded(ended),
    })
}

fn known_fence(row: &Row) -> Result<KnownFence, SwitchboardError> {
    let newest = Standing {
        duty: column(row, 0)?,
        epoch: Epoch::from_i64(column(row, 4)?)?,
        instance: column(row, 5)?,
        updated_at: to_micros(column(row, 6)?),
    };
    Ok(KnownFence::new([column(row, 1)?, column(row, 2)?, column(row, 3)?], newest))
}

fn kept(row: &Row) -> Result<KeptLetter, SwitchboardError> {
    let digest: &[u8] = column(row, 1)?;
    let odd =
        |_| SwitchboardError::refused(Code::Damaged, "a dead letter's digest has not 32 bytes");
    let letter = DeadLetter {
        id: column(row, 0)?,
        digest: digest.try_into().map_err(odd)?,
        channel: column(row, 3)?,
        provider: column(row, 4)?,
        endpoint_identity: column(row, 5)?,
        external_event_id: column(row, 6)?,
        error_class: column(row, 7)?,
        reason: column(row, 8)?,
        attempts: column(row, 9)?,
        envelope: column(row, 12)?,
    };
    let resolved_at: Option<SystemTime> = column(row, 14)?;
    Ok(KeptLetter {
        letter,
        posted_at: to_micros(column(row, 2)?),
        duty: column(row, 10)?,
        token_id: column(row, 11)?,
        state: column(row, 13)?,
        resolved_at: resolved_at.map(to_micros),
        resolved_by: column(row, 15)?,
        resolution: column(row, 16)?,
        request_id: column(row, 17)?,
    })
}
