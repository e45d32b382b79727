//! Channel list.

use async_trait::async_trait;
use rusqlite::Connection;
use serde_json::json;
use tenure_wire::ingest::Channel;

use super::row::{all, execute};
use super::{SqliteStorage, sql, token};
use crate::error::StorageResult;
use crate::storage::channel::{ChannelList, action, joined};

#[async_trait]
impl ChannelList for SqliteStorage {
    async fn channels(&self) -> StorageResult<Vec<Channel>> {
        self.read(|db, _| all(db, sql!("channel/list"), [])).await
    }

    async fn replace_channel(
        &self,
        was: Option<&Channel>,
        becomes: Option<&Channel>,
        by: &str,
    ) -> StorageResult<bool> {
        let (was, becomes, by) = (was.cloned(), becomes.cloned(), by.to_owned());
        let job = move |db: &Connection, now| {
            let (was, becomes) = (was.as_ref(), becomes.as_ref());
            let Some(named) = was.or(becomes) else { return Ok(false) };
            let known: Vec<Channel> = all(db, sql!("channel/list"), [])?;
            if known.iter().find(|channel| channel.name == named.name) != was {
                return Ok(false);
            }
            execute(db, sql!("channel/remove"), [&named.name])?;
            if let Some(it) = becomes {
                execute(db, sql!("channel/add"), (&it.name, joined(it), &it.alias))?;
            }
            let alias = becomes.and_then(|channel| channel.alias.as_deref());
            let metadata = json!({ "providers": becomes.map(joined), "alias": alias });
            token::record(db, (&named.name, action(was, becomes), &by, "", metadata), now)?;
            Ok(true)
        };
        self.write(job).await
    }
}
