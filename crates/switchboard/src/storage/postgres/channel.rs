//! Channel list.

use async_trait::async_trait;
use tenure_wire::ingest::Channel;

use super::{PostgresStorage, parameters, sql};
use crate::error::StorageResult;
use crate::storage::channel::{ChannelList, action, joined};

#[async_trait]
impl ChannelList for PostgresStorage {
    async fn channels(&self) -> StorageResult<Vec<Channel>> {
        self.all(sql!("channel/list"), &[]).await
    }

    async fn replace_channel(
        &self,
        was: Option<&Channel>,
        becomes: Option<&Channel>,
        by: &str,
    ) -> StorageResult<bool> {
        let Some(named) = was.or(becomes) else { return Ok(false) };
        let of = |channel: Option<&Channel>| {
            (channel.map(joined), channel.and_then(|channel| channel.alias.clone()))
        };
        let (action, (providers, alias), (new, new_alias)) =
            (action(was, becomes), of(was), of(becomes));
        let parameters = parameters! { named.name, providers, alias, new, new_alias, action, by };
        Ok(!self.query(sql!("channel/replace"), &parameters).await?.is_empty())
    }
}
