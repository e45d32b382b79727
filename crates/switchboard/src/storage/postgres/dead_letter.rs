//! Dead letters.

use async_trait::async_trait;
use tenure_core::Code;
use tokio_postgres::Row;
use uuid::Uuid;

use super::commit::closed;
use super::row::{column, count, from_micros, missing};
use super::{PostgresStorage, parameters, sql};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::{
    DeadLetter, DeadLetters, Decision, IngestFence, LetterQuery, LetterResolution, Permitted,
    PostOutcome, ResolveOutcome, StoredLetter,
};

#[async_trait]
impl DeadLetters for PostgresStorage {
    async fn post_letter(
        &self,
        letter: &DeadLetter,
        fence: Option<&IngestFence>,
        token_id: Option<&str>,
    ) -> StorageResult<PostOutcome> {
        let duty = fence.map(|fence| fence.duty.to_string());
        let epoch = fence.map(|fence| fence.epoch.as_i64());
        let instance = fence.map(|fence| fence.instance.as_str());
        let digest = letter.digest.as_slice();
        let parameters = parameters! {
            token_id, duty, epoch, instance, letter.id, digest, letter.channel, letter.provider,
            letter.endpoint_identity, letter.external_event_id, letter.error_class, letter.reason,
            letter.attempts, letter.envelope
        };
        let rows = self.query(sql!("letter/post"), &parameters).await?;
        posted(rows.first().ok_or_else(missing)?, duty.as_deref())
            .map_err(SwitchboardError::or_happened)
    }

    async fn letters(&self, query: &LetterQuery) -> StorageResult<Vec<StoredLetter>> {
        let LetterQuery { endpoint_identity, channel, provider, error, .. } = query;
        let (after, limit) = (query.after.unwrap_or_default(), count(query.limit));
        let since = query.since.map(from_micros);
        let parameters =
            parameters! { after, limit, endpoint_identity, channel, provider, since, error };
        let Some(state) = &query.state else {
            return self.all(sql!("letter/list"), &parameters).await;
        };
        let parameters = [&parameters[..], &parameters! { state }].concat();
        self.all(sql!("letter/list_state"), &parameters).await
    }

    async fn letter(&self, id: Uuid) -> StorageResult<Option<StoredLetter>> {
        Ok(self.all(sql!("letter/show"), &parameters! { id }).await?.pop())
    }

    async fn resolve_letter(&self, resolve: &LetterResolution) -> Permitted<ResolveOutcome> {
        let LetterResolution { id, state, decision, request_id } = resolve;
        let Decision { by, reason, token_id } = decision;
        let parameters = parameters! { id, state, by, reason, request_id, token_id };
        let resolved = self.permitted(sql!("letter/resolve"), &parameters).await?;
        Ok(resolved.map(|found| match found {
            (true, _) => ResolveOutcome::Done,
            (false, true) => ResolveOutcome::Before,
            (false, false) => ResolveOutcome::Nothing,
        }))
    }

    async fn refuse_letter(&self, id: Uuid, class: &str, reason: &str) -> StorageResult<bool> {
        let rows = self.query(sql!("letter/refuse"), &parameters! { id, class, reason }).await?;
        Ok(!rows.is_empty())
    }

    async fn pending_letters(&self) -> StorageResult<u64> {
        let pending: i64 = self.one(sql!("letter/count_pending"), &[]).await?;
        Ok(u64::try_from(pending).unwrap_or(0))
    }
}

fn posted(row: &Row, duty: Option<&str>) -> StorageResult<PostOutcome> {
    let verdict: &str = column(row, 1)?;
    if verdict == "kept" {
        return Ok(PostOutcome::Kept { id: column(row, 5)?, duplicate: column(row, 6)? });
    }
    let odd =
        || SwitchboardError::unknown(Code::Damaged, format!("letter_post answered {verdict:?}"));
    Ok(PostOutcome::Rejected(closed(row, verdict, duty)?.ok_or_else(odd)?))
}
