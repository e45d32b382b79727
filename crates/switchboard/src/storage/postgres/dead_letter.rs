//! Dead letters.

use tenure_core::Code;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::commit::closed;
use super::row::{column, count, missing};
use super::token::permitted;
use super::{Parameter, PostgresStorage};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::{
    DeadLetter, Decision, IngestFence, LetterQuery, LetterResolution, Permitted, PostOutcome,
    ResolveOutcome, StoredLetter,
};

impl PostgresStorage {
    pub(super) async fn keep_letter(
        &self,
        letter: &DeadLetter,
        fence: Option<&IngestFence>,
        token_id: Option<&str>,
    ) -> StorageResult<PostOutcome> {
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
        query: &LetterQuery,
    ) -> StorageResult<Vec<StoredLetter>> {
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
        self.rows(statement, &parameters).await
    }

    pub(super) async fn show_letter(&self, id: Uuid) -> StorageResult<Option<StoredLetter>> {
        Ok(self.rows(&self.statements.letter_show, &[(&id, Type::UUID)]).await?.pop())
    }

    pub(super) async fn end_letter(&self, resolve: &LetterResolution) -> Permitted<ResolveOutcome> {
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
                (true, _) => ResolveOutcome::Done,
                (false, true) => ResolveOutcome::Before,
                (false, false) => ResolveOutcome::Nothing,
            })
        })
    }
}

fn posted(row: &Row, duty: Option<&str>) -> StorageResult<PostOutcome> {
    let verdict: &str = column(row, 1)?;
    if verdict == "kept" {
        return Ok(PostOutcome::Kept { id: column(row, 5)?, duplicate: column(row, 6)? });
    }
    let odd =
        || SwitchboardError::unknown(Code::Damaged, format!("letter_post answered {verdict:?}"));
    Ok(closed(row, verdict, duty)?.ok_or_else(odd)?.into())
}
