//! Fences.

use async_trait::async_trait;

use super::row::{count, from_row};
use super::token::refusal;
use super::{PostgresStorage, parameters, sql};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::fence::parse_fence_cursor;
use crate::storage::{Decision, Fences, KnownFence, Permitted, SourceScope};

#[async_trait]
impl Fences for PostgresStorage {
    async fn fences(
        &self,
        of: Option<&SourceScope>,
        after: &str,
        limit: usize,
    ) -> StorageResult<Vec<KnownFence>> {
        let [duty, after_channel, after_provider, after_endpoint] = parse_fence_cursor(after);
        let (channel, provider, endpoint) = parts(of);
        let limit = count(limit);
        let parameters = parameters! {
            duty, after_channel, after_provider, after_endpoint, limit, channel, provider, endpoint
        };
        self.all(sql!("fence/list"), &parameters).await
    }

    async fn reset_fence(
        &self,
        duty: &str,
        source: Option<&SourceScope>,
        Decision { by, reason, token_id }: &Decision,
    ) -> Permitted<Vec<KnownFence>> {
        let (channel, provider, endpoint) = parts(source);
        let parameters = parameters! { duty, channel, provider, endpoint, by, reason, token_id };
        let rows = self.query(sql!("fence/reset"), &parameters).await?;
        if let Some(ended) = rows.first().map(|row| refusal(row, 7)).transpose()?.flatten() {
            return Ok(Err(ended));
        }
        let was = rows.iter().map(|row| from_row(row, 0)).collect::<Result<_, _>>();
        was.map(Ok).map_err(SwitchboardError::or_happened)
    }
}

/// Returns channel, provider and endpoint of a source, if there is one.
pub(super) fn parts(
    source: Option<&SourceScope>,
) -> (Option<&String>, Option<&String>, Option<&String>) {
    (
        source.map(|source| &source.channel),
        source.map(|source| &source.provider),
        source.map(|source| &source.endpoint_identity),
    )
}
