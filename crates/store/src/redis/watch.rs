//! Hints by publish and subscribe, on a separate connection.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use redis::aio::PubSub;
use tenure_core::store::Watch;
use tenure_core::{GroupName, StoreResult};
use tokio::time::timeout;

use super::client::CONNECT_TIMEOUT;
use super::connect::RedisConnector;
use super::{Redis, error};

/// After this long without a message, the connection is checked with a ping.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// Subscription to the channel of one group.
struct RedisWatch {
    connector: Arc<RedisConnector>,
    channel: String,
    /// `None` while the connection is down.
    subscribed: Option<PubSub>,
}

impl Redis {
    pub(super) async fn group_watch(&self, group: &GroupName) -> StoreResult<Box<dyn Watch>> {
        let (connector, channel) = (self.connector.clone(), format!("{}changes", self.root(group)));
        let mut listener = RedisWatch { connector, channel, subscribed: None };
        listener.subscribed = Some(listener.subscribe().await?);
        Ok(Box::new(listener))
    }
}

impl RedisWatch {
    /// Returns once the server has confirmed the subscription: every later change yields a hint.
    async fn subscribe(&self) -> StoreResult<PubSub> {
        let subscribing = async {
            let mut connection = self.connector.pubsub().await?;
            let subscribed = connection.subscribe(&self.channel).await;
            subscribed.map_err(|error| error::connect_error(&error, self.connector.address()))?;
            Ok(connection)
        };
        timeout(CONNECT_TIMEOUT, subscribing).await.map_err(|_| self.connector.late())?
    }
}

/// Waits for a message; returns false when the connection is lost.
async fn heard(connection: &mut PubSub) -> bool {
    loop {
        let message = timeout(PING_INTERVAL, connection.on_message().next()).await;
        if let Ok(message) = message {
            return message.is_some();
        }
        let pinged = timeout(CONNECT_TIMEOUT, connection.ping::<redis::Value>()).await;
        if !matches!(pinged, Ok(Ok(_))) {
            return false;
        }
    }
}

#[async_trait]
impl Watch for RedisWatch {
    async fn changed(&mut self) -> StoreResult<()> {
        if let Some(connection) = &mut self.subscribed {
            if heard(connection).await {
                return Ok(());
            }
            self.subscribed = None;
        }
        // Changes may have been missed in between, so reconnecting counts as a hint.
        self.subscribed = Some(self.subscribe().await?);
        Ok(())
    }
}

impl fmt::Debug for RedisWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisWatch({} {})", self.connector.address(), self.channel)
    }
}
