//! The list of channels.

use async_trait::async_trait;
use rusqlite::Connection;
use serde_json::json;
use tenure_wire::ingest::Channel;

use super::{Sqlite, all, execute, token};
use crate::error::SwitchboardError;
use crate::storage::channel::{ChannelList, action, channel, joined};

#[async_trait]
impl ChannelList for Sqlite {
    async fn channels(&self) -> Result<Vec<Channel>, SwitchboardError> {
        self.read(|db, _| list(db)).await
    }

    async fn replace_channel(
        &self,
        was: Option<&Channel>,
        becomes: Option<&Channel>,
        by: &str,
    ) -> Result<bool, SwitchboardError> {
        let (was, becomes, by) = (was.cloned(), becomes.cloned(), by.to_owned());
        self.write(move |db, now| replace(db, was.as_ref(), becomes.as_ref(), &by, now)).await
    }
}

fn list(db: &Connection) -> rusqlite::Result<Vec<Channel>> {
    let sql = "SELECT channel, providers, alias FROM ingest_channel ORDER BY channel";
    all(db, sql, [], |row| Ok(channel(row.get(0)?, &row.get::<_, String>(1)?, row.get(2)?)))
}

fn replace(
    db: &Connection,
    was: Option<&Channel>,
    becomes: Option<&Channel>,
    by: &str,
    now: i64,
) -> rusqlite::Result<bool> {
    let Some(named) = was.or(becomes) else { return Ok(false) };
    let known = list(db)?.into_iter().find(|channel| channel.name == named.name);
    if known.as_ref() != was {
        return Ok(false);
    }
    execute(db, "DELETE FROM ingest_channel WHERE channel = ?1", [&named.name])?;
    if let Some(becomes) = becomes {
        let sql = "INSERT INTO ingest_channel (channel, providers, alias) VALUES (?1, ?2, ?3)";
        execute(db, sql, (&becomes.name, joined(becomes), &becomes.alias))?;
    }
    let metadata = json!({
        "providers": becomes.map(joined),
        "alias": becomes.and_then(|channel| channel.alias.as_deref()),
    });
    let action = action(was, becomes);
    let entry = token::Entry { token_id: &named.name, action, by, reason: "", metadata };
    token::record(db, &entry, now)?;
    Ok(true)
}
