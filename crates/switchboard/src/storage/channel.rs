//! Channel list.

use super::row::from_row;
use super::token::split;
use crate::error::StorageResult;
use async_trait::async_trait;
use tenure_wire::ingest::Channel;

/// Channel list, shared by all replicas.
#[async_trait]
pub trait ChannelList {
    /// Returns all channels, sorted by name.
    async fn channels(&self) -> StorageResult<Vec<Channel>>;
    /// Replaces a channel, adds it (`was` is `None`) or removes it (`becomes` is `None`), and
    /// records it in the audit trail. Returns `false` if the stored channel differs from `was`.
    async fn replace_channel(
        &self,
        was: Option<&Channel>,
        becomes: Option<&Channel>,
        by: &str,
    ) -> StorageResult<bool>;
}

/// Joins the providers of a channel for storage; names have no commas.
pub(super) fn joined(channel: &Channel) -> String {
    channel.providers.join(",")
}

from_row! { Channel, |row| name, providers = split(&row.get::<String>()?), alias }

/// Returns the name of a change in the audit trail.
pub(super) fn action(was: Option<&Channel>, becomes: Option<&Channel>) -> &'static str {
    match (was, becomes) {
        (None, _) => "channel_add",
        (_, None) => "channel_remove",
        _ => "channel_change",
    }
}
