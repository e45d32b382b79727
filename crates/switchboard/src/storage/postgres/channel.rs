//! Channel list.

use async_trait::async_trait;
use tenure_wire::ingest::Channel;
use tokio_postgres::types::Type;

use super::{Parameter, PostgresStorage};
use crate::error::StorageResult;
use crate::storage::channel::{ChannelList, action, joined};

#[async_trait]
impl ChannelList for PostgresStorage {
    async fn channels(&self) -> StorageResult<Vec<Channel>> {
        self.rows(&self.statements.channel_list, &[]).await
    }

    async fn replace_channel(
        &self,
        was: Option<&Channel>,
        becomes: Option<&Channel>,
        by: &str,
    ) -> StorageResult<bool> {
        let Some(named) = was.or(becomes) else { return Ok(false) };
        let alias = |of: Option<&Channel>| of.and_then(|channel| channel.alias.clone());
        let parameters: [Parameter<'_>; 7] = [
            (&named.name, Type::TEXT),
            (&was.map(joined), Type::TEXT),
            (&alias(was), Type::TEXT),
            (&becomes.map(joined), Type::TEXT),
            (&alias(becomes), Type::TEXT),
            (&action(was, becomes), Type::TEXT),
            (&by, Type::TEXT),
        ];
        let rows = self.data.query(&self.statements.channel_replace, &parameters).await?;
        Ok(!rows.is_empty())
    }
}
