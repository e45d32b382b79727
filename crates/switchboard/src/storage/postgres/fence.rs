//! Fences.

use tokio_postgres::types::Type;

use super::row::{count, from_row};
use super::token::refusal;
use super::{Parameter, PostgresStorage};
use crate::error::{StorageResult, SwitchboardError};
use crate::storage::{Decision, KnownFence, Permitted, SourceScope, parse_fence_cursor};

impl PostgresStorage {
    pub(super) async fn list_fences(
        &self,
        of: Option<&SourceScope>,
        after: &str,
        limit: usize,
    ) -> StorageResult<Vec<KnownFence>> {
        let limit = count(limit);
        let [duty, channel, provider, endpoint] = parse_fence_cursor(after);
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
        self.rows(&self.statements.fence_list, &parameters).await
    }

    pub(super) async fn forget_fence(
        &self,
        duty: &str,
        source: Option<&SourceScope>,
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
        let was = rows.iter().map(|row| from_row(row, 0)).collect::<Result<_, _>>();
        was.map(Ok).map_err(SwitchboardError::or_happened)
    }
}
